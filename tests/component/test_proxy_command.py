"""`steelyard proxy` as a process: bad input, a file that changes, the admin port, the way out, and what it loads."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.error import HTTPError

import pytest

STEELYARD = (sys.executable, "-m", "controller")
LIMIT = 20.0

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


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class Answering(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 65536  # head and body in one write: two would wait for an acknowledgement in between

    def do_GET(self) -> None:
        body = self.server.answer.encode()  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Quiet."""


class Server(ThreadingHTTPServer):
    daemon_threads = True
    answer = ""


@pytest.fixture
def backends() -> Iterator[list[Server]]:
    servers = []
    for name in ("one", "two"):
        server = Server(("127.0.0.1", 0), Answering)
        server.answer = name
        Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
    yield servers
    for server in servers:
        server.shutdown()
        server.server_close()


def fetch(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return response.status, response.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def until(what: Callable[[], bool]) -> None:
    """A process tells no event: look until it is so."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        try:
            if what():
                return
        except OSError:
            pass
        time.sleep(0.02)
    raise AssertionError("never came true")


class Proxy:
    """A running `steelyard proxy`."""

    def __init__(
        self, path: Path, *options: str, stdout: int = subprocess.DEVNULL, hangup: signal.Handlers = signal.SIG_DFL
    ) -> None:
        self.admin = free_port()
        self.log = path.with_suffix(".log")
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                (
                    *STEELYARD,
                    "proxy",
                    "--file",
                    str(path),
                    "--host",
                    "127.0.0.1",
                    "--admin",
                    f"127.0.0.1:{self.admin}",
                    *options,
                ),
                stderr=log,
                stdout=stdout,
                preexec_fn=lambda: signal.signal(signal.SIGHUP, hangup),  # else as whoever runs the tests has it
            )
        until(lambda: self.get("/readyz")[0] == 200)

    def get(self, path: str) -> tuple[int, str]:
        assert self.process.poll() is None, self.log.read_text()
        return fetch(f"http://127.0.0.1:{self.admin}{path}")

    def config(self) -> Any:
        return json.loads(self.get("/config")[1])

    def metric(self, name: str) -> float:
        """Its first series; 0 while it has none."""
        text = self.get("/metrics")[1]
        assert f"# TYPE {name} " in text
        found = re.search(rf"^{name}\S* (\S+)$", text, re.MULTILINE)
        return float(found[1]) if found is not None else 0.0

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(LIMIT)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Proxy]]:
    running: list[Proxy] = []

    def make(path: Path, *options: str, **how: Any) -> Proxy:
        running.append(Proxy(path, *options, **how))
        return running[-1]

    yield make
    for proxy in running:
        if proxy.process.poll() is None:
            proxy.process.kill()
            proxy.process.wait()


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run((*STEELYARD, *arguments), capture_output=True, text=True, timeout=LIMIT, check=False)


def test_a_bad_file_is_refused_with_every_fault_and_its_line(tmp_path: Path) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(FILE.format(port=70000, backend=80).replace("  proxy:", "  algorithm: {type: Fastest}\n  proxy:"))

    done = run("proxy", "--file", str(path))

    assert (done.returncode, done.stdout) == (2, "")
    assert re.search(rf"^{re.escape(str(path))}:5: spec\.ports\[0\]\.port: ", done.stderr, re.MULTILINE)
    assert re.search(rf"^{re.escape(str(path))}:8: spec\.algorithm\.type: ", done.stderr, re.MULTILINE)


def test_a_backend_that_needs_a_cluster_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(
        FILE.format(port=80, backend=80).replace("addresses: [127.0.0.1], port: 80", "service: {name: shop-v1}")
    )

    done = run("proxy", "--file", str(path))

    assert done.returncode == 2
    assert f"{path}:7: spec.backends[0].service: can't be found without a cluster" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("proxy",),
        ("proxy", "--file", "x", "--admin", "nowhere"),
        ("proxy", "--name", "shop", "--control", "127.0.0.1:1"),
        ("proxy", "--name", "shop", "--control", "http://steelyard-controller.steelyard-system:19443"),
    ],
)
def test_a_wrong_option_is_refused_with_the_mend(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)

    assert done.returncode == 2
    assert "--help" in done.stderr


def test_a_port_that_is_taken_is_told_clearly(tmp_path: Path, backends: list[Server]) -> None:
    path = tmp_path / "shop.yaml"
    taken = backends[0].server_port
    path.write_text(FILE.format(port=taken, backend=80))

    done = run("proxy", "--file", str(path), "--host", "127.0.0.1", "--admin", "Disabled")

    assert done.returncode == 1
    assert f"port {taken} on 127.0.0.1 can't be taken" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_admin_port_that_is_taken_is_told_with_the_option(tmp_path: Path, backends: list[Server]) -> None:
    path, taken = tmp_path / "shop.yaml", backends[0].server_port
    path.write_text(FILE.format(port=free_port(), backend=80))

    done = run("proxy", "--file", str(path), "--admin", f"127.0.0.1:{taken}")

    assert done.returncode == 1
    assert done.stderr.endswith(
        f"steelyard: can't listen on 127.0.0.1:{taken}: Address already in use; --admin names another address\n"
    )


def test_help_teaches_a_file_to_begin_with() -> None:
    done = run("proxy", "--help")

    assert done.returncode == 0
    for word in ("kind: BalancedService", "--listen-offset", "STEELYARD_FILE", "Exit status"):
        assert word in done.stdout


def test_the_file_is_followed_and_a_bad_edit_changes_nothing(
    tmp_path: Path, start: Callable[..., Proxy], backends: list[Server]
) -> None:
    path, port = tmp_path / "shop.yaml", free_port()
    path.write_text(FILE.format(port=port - 1000, backend=backends[0].server_port))
    proxy = start(path, "--listen-offset", "1000")
    url = f"http://127.0.0.1:{port}/"
    assert fetch(url) == (200, "one")
    before = proxy.config()["store/shop"]

    path.write_text("kind: [")
    until(lambda: proxy.metric("steelyard_config_rejected_total") == 1)
    assert fetch(url) == (200, "one")
    assert proxy.config()["store/shop"]["version"] == before["version"]

    path.write_text(FILE.format(port=port - 1000, backend=backends[1].server_port))
    until(lambda: proxy.config()["store/shop"]["version"] != before["version"])
    assert fetch(url) == (200, "two")
    assert "faults" in proxy.log.read_text()
    assert proxy.stop() == 0


def test_ports_come_and_go_with_the_file(tmp_path: Path, start: Callable[..., Proxy], backends: list[Server]) -> None:
    path, first, second = tmp_path / "shop.yaml", free_port(), free_port()
    text = FILE.format(port=first, backend=backends[0].server_port)
    path.write_text(text)
    proxy = start(path)

    path.write_text(
        text.replace(f"[{{port: {first}}}]", f"[{{port: {first}}}, {{name: b, port: {second}}}]")
        .replace(f", port: {backends[0].server_port}}}", "}")
        .replace("port: ", f"targetPort: {backends[0].server_port}, port: ")
    )
    until(lambda: fetch(f"http://127.0.0.1:{second}/") == (200, "one"))
    assert fetch(f"http://127.0.0.1:{first}/") == (200, "one")

    path.write_text(text.replace(str(first), str(second)))
    until(lambda: refused(first))
    assert fetch(f"http://127.0.0.1:{second}/") == (200, "one")
    assert proxy.stop() == 0


def refused(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) != 0


def test_file_changes_drop_no_request(tmp_path: Path, start: Callable[..., Proxy], backends: list[Server]) -> None:
    path, port = tmp_path / "shop.yaml", free_port()
    path.write_text(FILE.format(port=port, backend=backends[0].server_port))
    proxy = start(path)
    answers: list[int] = []
    ended = False

    def ask() -> None:
        while not ended:
            answers.append(fetch(f"http://127.0.0.1:{port}/")[0])

    asking = Thread(target=ask)
    asking.start()
    for number in range(4):
        applied = proxy.metric("steelyard_config_applied_total")
        path.write_text(FILE.format(port=port, backend=backends[(number + 1) % 2].server_port))
        until(lambda applied=applied: proxy.metric("steelyard_config_applied_total") > applied)
    ended = True
    asking.join()

    assert len(answers) > 10
    assert set(answers) == {200}
    assert proxy.stop() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=["SIGTERM", "SIGHUP"])
def test_a_proxy_that_is_ended_turns_unready_and_serves_on_for_the_grace(
    tmp_path: Path, start: Callable[..., Proxy], backends: list[Server], number: signal.Signals
) -> None:
    path, port = tmp_path / "shop.yaml", free_port()
    path.write_text(FILE.format(port=port, backend=backends[0].server_port).replace("100ms", "2s"))
    proxy = start(path)

    proxy.process.send_signal(number)
    until(lambda: proxy.get("/readyz")[0] == 503)

    assert fetch(f"http://127.0.0.1:{port}/") == (200, "one")
    assert proxy.process.wait(LIMIT) == 0


def test_under_nohup_a_proxy_outlives_its_terminal(
    tmp_path: Path, start: Callable[..., Proxy], backends: list[Server]
) -> None:
    path, port = tmp_path / "shop.yaml", free_port()
    path.write_text(FILE.format(port=port, backend=backends[0].server_port))
    proxy = start(path, hangup=signal.SIG_IGN)

    proxy.process.send_signal(signal.SIGHUP)

    assert fetch(f"http://127.0.0.1:{port}/") == (200, "one")
    assert proxy.get("/readyz")[0] == 200
    assert proxy.stop() == 0


def test_sigterm_ends_a_proxy_that_has_not_started_yet(tmp_path: Path) -> None:
    """As a container's first process it would otherwise never hear of it. Here its file, a pipe, keeps it waiting."""
    path = tmp_path / "shop.yaml"
    os.mkfifo(path)
    process = subprocess.Popen((*STEELYARD, "proxy", "--file", str(path)))
    with path.open("wb"):  # returns once the other end is open
        process.send_signal(signal.SIGTERM)

        assert process.wait(LIMIT) == 0


def test_one_address_serves_both_families(tmp_path: Path, start: Callable[..., Proxy], backends: list[Server]) -> None:
    """As in a pod, which is told `::` before anyone knows of which family its address will be."""
    path, port = tmp_path / "shop.yaml", free_port()
    path.write_text(FILE.format(port=port, backend=backends[0].server_port))
    start(path, "--host", "::")

    hosts = ["127.0.0.1", "[::1]"] if socket.has_dualstack_ipv6() else ["127.0.0.1"]

    assert [fetch(f"http://{host}:{port}/") for host in hosts] == [(200, "one")] * len(hosts)


def test_the_health_listener_shows_no_configuration(
    tmp_path: Path, start: Callable[..., Proxy], backends: list[Server]
) -> None:
    path, health = tmp_path / "shop.yaml", free_port()
    path.write_text(FILE.format(port=free_port(), backend=backends[0].server_port))
    proxy = start(path, "--health", f"127.0.0.1:{health}")

    found = {name: fetch(f"http://127.0.0.1:{health}/{name}")[0] for name in ("healthz", "readyz", "metrics", "config")}

    assert found == {"healthz": 200, "readyz": 200, "metrics": 200, "config": 404}
    (endpoint,) = json.loads(proxy.get("/endpoints")[1])["store/shop/http"]
    assert (endpoint["id"], endpoint["state"]) == (f"127.0.0.1:{backends[0].server_port}", "ACTIVE")


def test_a_session_key_that_is_too_short_is_refused(tmp_path: Path) -> None:
    path, key = tmp_path / "shop.yaml", tmp_path / "key"
    path.write_text(FILE.format(port=80, backend=80))
    key.write_bytes(b"short")

    done = run("proxy", "--file", str(path), "--session-key-file", str(key))

    assert (done.returncode, "at least 32" in done.stderr) == (2, True)


def test_a_proxy_loads_neither_kopf_nor_kubernetes(
    tmp_path: Path, start: Callable[..., Proxy], backends: list[Server]
) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(FILE.format(port=free_port(), backend=backends[0].server_port))
    proxy = start(path)
    maps = Path(f"/proc/{proxy.process.pid}/maps").read_text()
    resident = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{proxy.process.pid}/status").read_text())

    assert resident is not None
    assert int(resident[1]) < 100 * 1024
    assert "kubernetes" not in maps
    code = "import sys, controller.standalone, controller.proxy.process; print(*sorted(sys.modules))"
    loaded = subprocess.run((sys.executable, "-c", code), capture_output=True, text=True, check=True).stdout.split()
    assert not {"kopf", "kubernetes"} & {name.partition(".")[0] for name in loaded}
