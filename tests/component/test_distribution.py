"""What is published: the wheel in a clean environment runs a proxy, and the sdist has all that a build needs."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tarfile
import time
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.cluster.local import wheels

PROJECT = Path(__file__).parents[2]
LIMIT = 30.0  # seconds for the proxy to answer, on a busy machine
FILE = """\
apiVersion: steelyard.dev/v1alpha1
kind: BalancedService
metadata: {{name: shop, namespace: store}}
spec:
  ports: [{{port: {port}}}]
  backends:
    - {{name: all, addresses: [127.0.0.1], port: {backend}}}
  proxy: {{acceptGrace: 100ms, drain: 5s}}
"""

pytestmark = pytest.mark.timeout(900)  # without a cache the wheel is compiled first, and its dependencies fetched


class Backend(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"here")

    def log_message(self, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def backend() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Backend) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def answer(url: str) -> bytes:
    end = time.monotonic() + LIMIT
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5) as response:
                return bytes(response.read())
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)  # nobody says when another process listens


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the wheel is for Python 3.11, as the images are")
def test_the_wheel_runs_a_proxy_in_a_clean_environment(tmp_path: Path, backend: int) -> None:
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(environment / "bin" / "python"), "install", "--quiet"]
    offline = ["--disable-pip-version-check", "--no-index", "--find-links", str(wheels.locked("proxy", print))]
    (wheel,) = wheels.project(print).glob("*.whl")
    subprocess.run([*pip, *offline, str(wheel)], check=True)
    port, file = free_port(), tmp_path / "shop.yaml"
    file.write_text(FILE.format(port=port, backend=backend))
    clean = {"PATH": os.defpath, "HOME": str(tmp_path)}
    options = ["--file", str(file), "--host", "127.0.0.1", "--admin", "Disabled"]
    command = [str(environment / "bin" / "steelyard"), "proxy", *options]

    with subprocess.Popen(command, env=clean, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert answer(f"http://127.0.0.1:{port}/") == b"here"
        finally:
            process.send_signal(signal.SIGTERM)
            _, log = process.communicate(timeout=LIMIT)

    assert process.returncode == 0, log


def test_the_sdist_has_what_a_build_needs(tmp_path: Path) -> None:
    maturin = [sys.executable, "-m", "maturin", "sdist", "--out", str(tmp_path)]
    subprocess.run(maturin, cwd=PROJECT, check=True, capture_output=True)
    (archive,) = tmp_path.glob("*.tar.gz")

    with tarfile.open(archive) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}

    codec = Path("controller/proxy/codec")
    needed = [
        "pyproject.toml",
        "README.md",
        "LICENSE",
        ".cargo/config.toml",
        "controller/__main__.py",
        codec / "Cargo.toml",
        codec / "Cargo.lock",
    ]
    needed += [path.relative_to(PROJECT) for path in (PROJECT / codec).glob("*/src/*.rs") if "fuzz" not in path.parts]
    assert {str(each) for each in needed} - names == set()
