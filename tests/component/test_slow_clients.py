"""Thousands of clients that send their heads or bodies, or read their answers, as slowly as they can.

The proxy is a process with the memory budget of a container of 128 MiB. What must hold: everybody else is served as
before, the process stays within its container, and nothing is left when they have gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import resource
import shutil
import socket
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest

from controller.proxy.connections import reset
from controller.proxy.memory import PIECE
from tests.bench.peers.programs import PACKAGES, SYSTEM_PATH, debian

CONTAINER = 128 * 1024 * 1024
BUDGET = CONTAINER // 3
WAVES = 3
PER_WAVE = 1_150  # of each kind: 10 350 in all
BIG = 1_000_000  # bytes: more than the kernel takes off the proxy's hands for a reader with a small buffer
OBJECT = """\
apiVersion: steelyard.dev/v1alpha1
kind: BalancedService
metadata: {{name: shop}}
spec:
  ports: [{{port: {listen}, protocol: {protocol}}}]
  backends: [{{name: one, addresses: [127.0.0.1], port: {backend}}}]
  proxy: {{acceptGrace: 100ms, drain: 1s}}
{more}"""


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@pytest.fixture(autouse=True)
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 4 * PER_WAVE * 3:
        pytest.skip(f"needs {4 * PER_WAVE * 3} open files, may have {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Backend:
    """Reads bodies to their end; `/big` is answered with much, all else with little.

    Nothing is read or answered before `room` requests have come: then all at once.
    """

    def __init__(self, room: int) -> None:
        self._missing = room
        self._ready = asyncio.Event()
        self._serving: set[asyncio.Task[None]] = set()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await self._answer(reader, writer)
        writer.close()

    async def end(self) -> None:
        """Once nobody is connected any more."""
        self._ready.set()
        await asyncio.gather(*self._serving)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            self._missing -= 1
            if self._missing <= 0:
                self._ready.set()
            await self._ready.wait()
            found = re.search(rb"content-length: (\d+)", head.lower())
            if found is not None:
                await reader.readexactly(int(found[1]))
            body = bytes(BIG) if head.startswith(b"GET /big") else b"ok"
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
            await writer.drain()


class Proxy:
    """The process, and where it is."""

    def __init__(self, process: asyncio.subprocess.Process, listen: int, admin: int) -> None:
        self.listen = listen
        self.admin = admin
        self._status = Path(f"/proc/{process.pid}/status")

    @property
    def peak(self) -> int:
        """The most memory that was ever resident, in bytes."""
        found = re.search(r"VmHWM:\s+(\d+) kB", self._status.read_text())
        assert found is not None
        return int(found[1]) * 1024

    async def metric(self, name: str) -> float:
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{self.admin}/metrics") as shown:
            lines = (await shown.text()).splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith((f"{name} ", f"{name}{{")))

    async def reaches(self, name: str, value: float) -> None:
        async with asyncio.timeout(30):
            while await self.metric(name) != value:  # noqa: ASYNC110 - the other process tells no event
                await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def small_proxy(directory: Path, protocol: str = "HTTP", more: str = "", room: int = 0) -> AsyncIterator[Proxy]:
    backend = Backend(room)
    server = await asyncio.start_server(backend, "127.0.0.1", 0, backlog=4096)
    listen, admin, file = free_port(), free_port(), directory / "shop.yaml"
    port = server.sockets[0].getsockname()[1]
    file.write_text(OBJECT.format(listen=listen, backend=port, protocol=protocol, more=more))
    module = "tests.component.small_proxy"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, str(file), f"127.0.0.1:{admin}", str(BUDGET)),
        stderr=asyncio.subprocess.DEVNULL,
        env=os.environ | {"MALLOC_ARENA_MAX": "1"},
    )
    found = Proxy(process, listen, admin)
    try:
        async with asyncio.timeout(30):
            while True:
                with contextlib.suppress(OSError, aiohttp.ClientError):
                    if await found.metric("steelyard_config_applied_total"):
                        break
                await asyncio.sleep(0.05)
        yield found
    finally:
        process.terminate()
        await process.wait()
        server.close()
        await backend.end()


class Slow(asyncio.Protocol):
    """Sends what it has, drips a byte when told to, and reads only if it is no reader."""

    def __init__(self, begin: bytes, drip: bytes) -> None:
        self._begin = begin
        self._drip = drip
        self.transport: asyncio.Transport
        self.gone = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(self._begin)
        if not self._drip:
            transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone = True

    def reset(self) -> None:
        if not self.gone:
            reset(self.transport)

    def drip(self) -> None:
        if not self.gone and self._drip:
            self.transport.write(self._drip)


KINDS = (
    (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 2000, b"x"),
    (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999\r\n\r\n" + b"x" * 2000, b"x"),
    (b"GET /big HTTP/1.1\r\nHost: a\r\n\r\n", b""),
)


async def attack(port: int, kinds: tuple[tuple[bytes, bytes], ...] = KINDS) -> list[Slow]:
    """A wave of these kinds, once it stands."""

    async def one(begin: bytes, drip: bytes) -> Slow:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
        _, protocol = await asyncio.get_running_loop().create_connection(lambda: Slow(begin, drip), sock=sock)
        return protocol

    wave: list[Slow] = []
    for _ in range(0, PER_WAVE, 50):
        wave += await asyncio.gather(*(one(*kind) for kind in kinds for _ in range(50)))
    return wave


class Others:
    """Normal clients, each asking again and again; how each request went, and how long it took."""

    def __init__(self, port: int, number: int) -> None:
        self.outcomes = Counter[str]()
        self.seconds: list[float] = []
        self._port = port
        self._tasks = [asyncio.create_task(self._run()) for _ in range(number)]

    async def _run(self) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        with contextlib.closing(writer):
            await self._ask(reader, writer)

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            began = time.monotonic()
            writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head.lower())
            assert length is not None
            await reader.readexactly(int(length[1]))
            self.seconds.append(time.monotonic() - began)
            self.outcomes[head[9:12].decode()] += 1
            await asyncio.sleep(0.01)

    def take(self) -> tuple[Counter[str], float]:
        """Outcomes and the 99th percentile since the last look."""
        outcomes, seconds = self.outcomes, sorted(self.seconds)
        self.outcomes, self.seconds = Counter(), []
        return outcomes, seconds[len(seconds) * 99 // 100] if seconds else 0.0

    async def end(self) -> None:
        broken = [task for task in self._tasks if task.done()]
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for task in broken:
            task.result()


async def recovered(others: Others) -> float:
    """Seconds until everybody else is served again: what a new wave holds is not given back before it stood still."""
    began = time.monotonic()
    async with asyncio.timeout(30):
        while True:
            others.take()
            await asyncio.sleep(0.5)
            outcomes, _ = others.take()
            assert outcomes.keys() <= {"200", "503"}
            if "503" not in outcomes:
                return time.monotonic() - began


@pytest.mark.timeout(240)
async def test_ten_thousand_slow_clients_hurt_nobody(tmp_path: Path) -> None:
    async with small_proxy(tmp_path) as proxy:
        others = Others(proxy.listen, 4)
        await asyncio.sleep(1)
        print(f"calm: p99 {others.take()[1]:.3f} s, peak {proxy.peak >> 20} MiB")

        for _ in range(WAVES):
            wave = await attack(proxy.listen)
            waited = await recovered(others)
            for _ in range(8):
                await asyncio.sleep(0.25)
                for each in wave:
                    each.drip()
            outcomes, slowest = others.take()
            left, held = sum(not each.gone for each in wave), await proxy.metric("steelyard_held_bytes")
            print(
                f"{outcomes} p99 {slowest:.3f} s after {waited:.1f} s, {left} of {len(wave)} left, "
                f"{held / 2**20:.1f} MiB held, peak {proxy.peak >> 20} MiB"
            )
            assert outcomes.keys() == {"200"}
            for each in wave:
                each.transport.abort()
        await others.end()

        await proxy.reaches("steelyard_client_connections", 0)
        assert await proxy.metric("steelyard_held_bytes") == 0
        assert await proxy.metric("steelyard_requests_in_flight") == 0
        assert await proxy.metric("steelyard_bugs_total") == 0
        assert proxy.peak < CONTAINER


BODY = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n" + b"x" * BIG


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("kind", "protocol", "more"),
    [
        pytest.param(KINDS[2], "HTTP", "", id="answers"),
        pytest.param(KINDS[2], "TCP", "", id="answers on a TCP port"),
        pytest.param((BODY, b""), "HTTP", "", id="bodies that the endpoint does not read"),
        pytest.param((BODY, b""), "TCP", "", id="bodies on a TCP port"),
        pytest.param(
            (BODY, b""),
            "HTTP",
            "  limits: {maxRequestsPerEndpoint: 1, queue: 1150}\n",
            id="bodies that wait for a slot",
        ),
    ],
)
async def test_what_comes_all_at_once_for_whom_nobody_reads_stays_in_the_container(
    kind: tuple[bytes, bytes], protocol: str, more: str, tmp_path: Path
) -> None:
    """All were let in while there was room, and a moment later each has more than its share."""
    room = 1 << 30 if kind[0] is BODY else PER_WAVE
    async with small_proxy(tmp_path, protocol, more, room) as proxy:
        wave = await attack(proxy.listen, (kind,))
        await asyncio.sleep(3)  # what is to come has come
        print(f"{sum(not each.gone for each in wave)} of {len(wave)} left, peak {proxy.peak >> 20} MiB")
        assert proxy.peak < CONTAINER
        assert await proxy.metric("steelyard_held_bytes") <= BUDGET + PIECE
        for each in wave:
            each.reset()

        await proxy.reaches("steelyard_client_connections", 0)
        assert await proxy.metric("steelyard_held_bytes") == 0
        assert await proxy.metric("steelyard_bugs_total") == 0


def slowhttptest() -> str:
    """The program from Debian's package, which is installed where that is required. Else skips without it."""
    if os.environ.get("STEELYARD_REQUIRE_PEERS") != "1" and not shutil.which("slowhttptest", path=SYSTEM_PATH):
        pytest.skip(f"no slowhttptest (Debian: apt-get install {PACKAGES['slowhttptest']})")
    return debian("slowhttptest")


@pytest.mark.peers
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "way",
    [
        pytest.param(("-H", "-i", "1"), id="heads"),
        pytest.param(("-B", "-i", "1", "-s", "99999"), id="bodies"),
        pytest.param(("-X", "-w", "512", "-y", "1024", "-n", "1", "-z", "32"), id="readers"),
    ],
)
async def test_an_attack_by_slowhttptest_hurts_nobody(way: tuple[str, ...], tmp_path: Path) -> None:
    """1 000 connections, 500 new ones a second: while they stand, others are served."""
    program = slowhttptest()
    async with small_proxy(tmp_path) as proxy:
        others = Others(proxy.listen, 2)
        attacking = await asyncio.create_subprocess_exec(
            *(program, "-c", "1000", "-r", "500", "-l", "40", "-u", f"http://127.0.0.1:{proxy.listen}/big", *way),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        async with asyncio.timeout(30):
            while await proxy.metric("steelyard_client_connections") < 100:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.05)
        await asyncio.sleep(3)  # until all of them have come
        waited = await recovered(others)
        print(f"everybody else is served after {waited:.1f} s, peak {proxy.peak >> 20} MiB")
        assert attacking.returncode is None  # it goes on
        attacking.terminate()
        await attacking.wait()
        await others.end()

        assert proxy.peak < CONTAINER
        await proxy.reaches("steelyard_client_connections", 0)
        assert await proxy.metric("steelyard_bugs_total") == 0
