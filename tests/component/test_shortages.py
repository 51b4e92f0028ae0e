"""Short of descriptors or of local ports: an answer of its own, no retry, and no blame for the endpoint.

Each runs in a process that is really short of them: limits and port ranges belong to a process or its network.
"""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import os
import resource
import shutil
import socket
import struct
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from controller.balancing.node import Kind
from controller.model.service import Health, PassiveHealth, Retries
from tests.component.rig import LIMIT, OK, Rig, no_descriptors, recv_head, send, serve, wait_for

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
EAGER = Retries(attempts=3)
STRICT = Health(passive=PassiveHealth(consecutive_failures=1))
SPARE = 128  # descriptors that are kept for all else than clients
LIFTED = "; import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
FILE = """\
apiVersion: steelyard.dev/v1alpha1
kind: BalancedService
metadata: {{name: shop}}
spec:
  ports: [{{port: {port}}}]
  backends: [{{name: all, addresses: [127.0.0.1], port: {backend}}}]
  proxy: {{acceptGrace: 100ms, drain: 1s}}
"""


async def test_a_request_for_which_there_is_no_descriptor_is_answered_without_blame_or_retry(rig: Rig) -> None:
    await rig.open(backends=2, retries=EAGER, health=STRICT)
    client = await rig.connect()
    await rig.reached(lambda: len(rig.plane.fronts) == 1)

    with no_descriptors():
        await client.send(GET)
        response = await client.response()
    again = await rig.ask()

    assert (response.status, response.get("retry-after"), response.get("connection")) == (503, "1", None)
    assert rig.outcomes == {"shortage": 1, "2xx": 1}
    assert rig.learnt == [Kind.CANCELLED, Kind.OK]
    assert again.status == 200
    assert all(node.ejected_until is None for node in rig.lane.upstream.nodes)
    assert rig.telemetry.retries == {}
    rig.plane.access_log.flush()
    assert (rig.log[0]["outcome"], rig.log[0]["tries"]) == ("shortage", 1)


async def test_what_has_a_connection_is_served_without_descriptors(rig: Rig) -> None:
    await rig.open()
    client = await rig.connect()
    await client.send(GET)
    await client.response()

    with no_descriptors():
        await client.send(GET)
        response = await client.response()

    assert response.status == 200


# Local ports.

NETWORK = 0x40000000  # CLONE_NEWNET
SET_FLAGS = 0x8914  # SIOCSIFFLAGS
UP = 1  # IFF_UP
PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")


@contextmanager
def network() -> Iterator[None]:
    """A network of this thread's own: what is said of its ports is said of no other process's."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/thread-self/ns/net", "rb") as before:
        if libc.unshare(NETWORK):
            pytest.skip(f"needs a network of its own: {os.strerror(ctypes.get_errno())}")
        try:
            with socket.socket() as sock:
                fcntl.ioctl(sock, SET_FLAGS, struct.pack("16sh14x", b"lo", UP))
            yield
        finally:
            assert libc.setns(before.fileno(), NETWORK) == 0


def one_port() -> None:
    """All that a connect may begin at, from now on. (It is one connection's to each endpoint.)"""
    try:
        PORTS.write_text("40000 40000")
    except OSError as error:
        pytest.skip(f"needs to set its network's ports: {error}")


async def test_a_request_for_which_there_is_no_local_port_is_answered_without_blame_or_retry(rig: Rig) -> None:
    with network():
        await rig.open(retries=EAGER, health=STRICT)
        answer = asyncio.Event()
        rig.backend.script(recv_head(), wait_for(answer), send(OK), serve(OK))
        first, second = await rig.connect(), await rig.connect()
        one_port()
        await first.send(GET)
        upstream = await rig.backend.connection()
        await upstream.until(lambda: bool(upstream.received))

        await second.send(GET)
        response = await second.response()
        answer.set()
        served = await first.response()
        await second.send(GET)
        again = await second.response()

    assert (response.status, response.get("retry-after"), response.get("connection")) == (503, "1", None)
    assert (served.status, again.status) == (200, 200)
    assert rig.outcomes == {"shortage": 1, "2xx": 2}
    assert rig.learnt == [Kind.CANCELLED, Kind.OK, Kind.OK]
    assert rig.telemetry.retries == {}
    assert len(rig.backend.connections) == 1


# Clients.


class Answering(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(204)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Quiet."""


@contextmanager
def answering() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def ready(process: subprocess.Popen[bytes], admin: int) -> None:
    """A process tells no event: ask until it serves."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end and process.poll() is None:
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{admin}/readyz", timeout=LIMIT):
            return
        time.sleep(0.02)
    raise AssertionError("the proxy doesn't serve")


@contextmanager
def limited(path: Path, descriptors: int, workers: int) -> Iterator[int]:
    """A proxy whose process may have so many descriptors; the port of its service."""
    port, admin = free_port(), free_port()
    with answering() as backend:
        path.write_text(FILE.format(port=port, backend=backend))
        limit = (shutil.which("sh") or "sh", "-c", f'ulimit -n {descriptors} && exec "$@"', "sh")
        proxy = (sys.executable, "-m", "controller", "proxy", "--file", str(path), "--host", "127.0.0.1")
        options = ("--admin", f"127.0.0.1:{admin}", "--workers", str(workers))
        process = subprocess.Popen((*limit, *proxy, *options), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            ready(process, admin)
            yield port
        finally:
            process.terminate()
            process.wait(LIMIT)


@pytest.mark.parametrize("workers", [1, 2])
def test_no_more_clients_are_taken_than_the_descriptors_allow(workers: int, tmp_path: Path) -> None:
    """By each worker, which the kernel gives connections at random: one of them has more than its share at last."""
    with limited(tmp_path / "shop.yaml", SPARE + 2 * 3, workers) as port, ExitStack() as held:
        statuses = []
        for _ in range(workers * 3 + 1):
            sock = held.enter_context(socket.create_connection(("127.0.0.1", port), LIMIT))
            sock.sendall(GET)
            statuses.append(sock.recv(4096)[9:12])

    assert statuses[:3] == [b"204"] * 3
    assert set(statuses) == {b"204", b"503"}
    assert statuses.count(b"503") == 1 or workers > 1


@pytest.mark.parametrize(("descriptors", "clients"), [(SPARE + 6, 3), (SPARE + 7, 3), (SPARE, 1), (64, 1)])
def test_a_client_takes_two_descriptors_of_those_that_are_to_spare(descriptors: int, clients: int) -> None:
    code = "from controller.proxy.descriptors import raise_descriptor_limit as lift; print(lift())"

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (32, descriptors))

    done = subprocess.run((sys.executable, "-c", code + LIFTED), preexec_fn=limit, capture_output=True, check=True)

    assert done.stdout.split() == [str(clients).encode(), str(descriptors).encode()]
