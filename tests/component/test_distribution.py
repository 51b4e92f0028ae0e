"""What is published: the wheel runs in a clean environment, and from the sdist one is built that does."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tarfile
import time
import urllib.request
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from release import hot_path
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

SDIST = [sys.executable, "-m", "maturin", "sdist", "--out"]
IMAGES_PYTHON = pytest.mark.skipif(
    sys.version_info[:2] != (3, 11), reason="the wheels are for Python 3.11, as the images"
)

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


def installed(wheel: Path, folder: Path) -> str:
    """Its program, in an environment with what it depends on and nothing else."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--quiet"]
    offline = ["--disable-pip-version-check", "--no-index", "--find-links", str(wheels.locked("proxy", print))]
    # The package that other tests import would be found on its path, and taken for installed.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([*pip, *offline, str(wheel)], env=environment, check=True)
    return str(folder / "bin" / "steelyard")


def carries(program: str, backend: int, folder: Path) -> None:
    """The proxy of this program answers a request with the backend's answer, and ends in order."""
    port, file = free_port(), folder / "shop.yaml"
    file.write_text(FILE.format(port=port, backend=backend))
    options = ["--file", str(file), "--host", "127.0.0.1", "--admin", "Disabled"]

    with subprocess.Popen(
        [program, "proxy", *options], env=clean(folder), cwd=folder, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert answer(f"http://127.0.0.1:{port}/") == b"here"
        finally:
            process.send_signal(signal.SIGTERM)
            _, log = process.communicate(timeout=LIMIT)

    assert process.returncode == 0, log


def clean(folder: Path) -> dict[str, str]:
    return {"PATH": os.defpath, "HOME": str(folder)}


@IMAGES_PYTHON
def test_the_wheel_runs_a_proxy_and_the_demo_in_a_clean_environment(tmp_path: Path, backend: int) -> None:
    (wheel,) = wheels.project(print).glob("*.whl")
    program = installed(wheel, tmp_path / "environment")

    carries(program, backend, tmp_path)

    with subprocess.Popen(
        [program, "demo"],
        env=clean(tmp_path),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # as in test_demo
    ) as process:
        assert process.stdout is not None
        shown = next((line for line in process.stdout if "requests, 0 failed" in line), "")
        process.send_signal(signal.SIGINT)
        _, log = process.communicate(timeout=LIMIT)
    assert shown, log
    assert process.returncode == 0, log


@IMAGES_PYTHON
def test_the_hot_path_is_compiled_in_the_wheel() -> None:
    (wheel,) = wheels.project(print).glob("*.whl")

    with zipfile.ZipFile(wheel) as packed:
        compiled = {name.partition(".")[0] for name in packed.namelist() if name.endswith(".so")}

    assert {module.removesuffix(".py") for module in hot_path.modules(PROJECT)} - compiled == set()


@IMAGES_PYTHON
def test_the_sdist_builds_a_wheel_that_runs(tmp_path: Path, backend: int) -> None:
    """By pip, as on a platform without a wheel. Crates that are compiled already are not compiled again."""
    subprocess.run([*SDIST, str(tmp_path)], cwd=PROJECT, check=True, capture_output=True)
    (archive,) = tmp_path.glob("*.tar.gz")
    tools = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "CARGO_TARGET_DIR": str(PROJECT / "target")}
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-index"]
    built = [*pip, "--no-build-isolation", "--wheel-dir", str(tmp_path), str(archive)]
    subprocess.run(built, env=os.environ | tools, check=True)
    (wheel,) = tmp_path.glob("*.whl")

    carries(installed(wheel, tmp_path / "environment"), backend, tmp_path)


def test_the_sdist_has_what_a_build_needs(tmp_path: Path) -> None:
    subprocess.run([*SDIST, str(tmp_path)], cwd=PROJECT, check=True, capture_output=True)
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
