"""A soak: mixed traffic through one proxy whose endpoints come and go. No failed request, memory flat, nothing left.

`python -m tests.bench.soak --seconds 600`. Traffic: GETs, uploads in both framings, pipelined pairs, clients that
leave half-way, upgraded connections. Churn: the watched file lists other endpoints ten times a second.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import re
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

import aiohttp

BACKENDS = 6
CLIENTS = 12
WARM = 0.4  # of the time: pools, tables and the allocator's arenas have their size then
FLAT = 5 * 1024 * 1024  # bytes that memory may grow by after that
GAUGES = (
    "steelyard_requests_in_flight",
    "steelyard_queue_length",
    "steelyard_client_connections",
    "steelyard_held_bytes",
    "steelyard_bugs_total",
    "steelyard_config_rejected_total",
)
OBJECT = """\
apiVersion: steelyard.dev/v1alpha1
kind: BalancedService
metadata: {{name: shop}}
spec:
  ports: [{{port: {listen}}}]
  backends:
{backends}
  algorithm: {{type: {algorithm}}}
  proxy: {{acceptGrace: 100ms, drain: 30s}}
"""
POLICIES = ("PowerOfTwoChoices", "RoundRobin", "LeastConnections", "Random", "PeakEWMA", "ConsistentHash")


class Report(NamedTuple):
    ended: Counter[str]  # what clients did, by kind
    failed: list[str]
    changes: int
    warm: int  # bytes resident
    end: int
    left: dict[str, float]  # gauges that should be 0, and are not

    @property
    def flat(self) -> bool:
        return self.end - self.warm <= FLAT

    def __str__(self) -> str:
        grown = (self.end - self.warm) / 2**20
        return (
            f"{self.ended.total()} exchanges {dict(self.ended)}, {len(self.failed)} failed {self.failed[:3]}, "
            f"{self.changes} changes, {self.warm >> 20} MiB after the warm-up and {grown:+.1f} at the end, "
            f"left: {self.left}"
        )


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


async def _body(reader: asyncio.StreamReader, head: bytes) -> int:
    found = re.search(rb"content-length: (\d+)", head.lower())
    if found is not None:
        return len(await reader.readexactly(int(found[1])))
    total = 0
    while b"chunked" in head and (size := int(await reader.readuntil(b"\r\n"), 16)):
        total += len(await reader.readexactly(size))
        await reader.readexactly(2)
    if b"chunked" in head:
        await reader.readexactly(2)
    return total


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A backend: tells how long the body was, or turns into an echo."""
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError), contextlib.closing(writer):
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            if b"upgrade: echo" in head.lower():
                writer.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
                while data := await reader.read(65_536):
                    writer.write(data)
                    await writer.drain()
                return
            text = b"%d" % await _body(reader, head)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(text), text))
            await writer.drain()


class Client:
    """One after the other, everything that clients do; each on a connection of its own or on a kept one."""

    def __init__(self, port: int, random: Random) -> None:
        self.ended = Counter[str]()
        self.failed: list[str] = []
        self._port = port
        self._random = random

    async def run(self, end: float) -> None:
        kinds: tuple[Callable[[], Awaitable[None]], ...] = (
            self._gets,
            self._uploads,
            self._pipelined,
            self._leaves,
            self._echo,
        )
        while time.monotonic() < end:
            kind = self._random.choice(kinds)
            try:
                await kind()
            except (OSError, asyncio.IncompleteReadError, AssertionError) as error:
                self.failed.append(f"{kind.__name__}: {error!r}")
            self.ended[kind.__name__.strip("_")] += 1
            await asyncio.sleep(0.002)

    @contextlib.asynccontextmanager
    async def _connection(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        with contextlib.closing(writer):
            yield reader, writer

    @staticmethod
    async def _answered(reader: asyncio.StreamReader, length: int) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 "), head
        found = re.search(rb"content-length: (\d+)", head.lower())
        assert found is not None
        assert await reader.readexactly(int(found[1])) == b"%d" % length

    async def _gets(self) -> None:
        async with self._connection() as (reader, writer):
            for _ in range(10):
                writer.write(b"GET /a HTTP/1.1\r\nHost: a\r\nCookie: a=b\r\n\r\n")
                await self._answered(reader, 0)

    async def _uploads(self) -> None:
        async with self._connection() as (reader, writer):
            for chunked in (False, True):
                body = bytes(self._random.randint(1, 200_000))
                framed = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if chunked else body
                framing = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % len(body)
                writer.write(b"POST /b HTTP/1.1\r\nHost: a\r\n" + framing + b"\r\n\r\n" + framed)
                await writer.drain()
                await self._answered(reader, len(body))

    async def _pipelined(self) -> None:
        async with self._connection() as (reader, writer):
            writer.write(
                b"GET /c HTTP/1.1\r\nHost: a\r\n\r\nPUT /d HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"
            )
            await self._answered(reader, 0)
            await self._answered(reader, 3)

    async def _leaves(self) -> None:
        async with self._connection() as (_, writer):
            writer.write(
                b"POST /e HTTP/1.1\r\nHost: a\r\nContent-Length: 9999\r\n\r\n" + bytes(self._random.randint(0, 9998))
            )
            await asyncio.sleep(self._random.uniform(0, 0.005))
            if self._random.random() < 0.5:
                writer.transport.abort()

    async def _echo(self) -> None:
        async with self._connection() as (reader, writer):
            writer.write(b"GET /f HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
            for _ in range(5):
                data = self._random.randbytes(self._random.randint(1, 100_000))
                writer.write(data)
                await writer.drain()
                assert await reader.readexactly(len(data)) == data


def _resident(pid: int) -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


async def _metrics(admin: int) -> dict[str, float]:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{admin}/metrics") as shown:
        lines = (await shown.text()).splitlines()
    sums: dict[str, float] = {}
    for line in lines:
        if not line.startswith("#"):
            name = re.split("[{ ]", line)[0]
            sums[name] = sums.get(name, 0.0) + float(line.rpartition(" ")[2])
    return sums


async def _churn(file: Path, listen: int, ports: list[int], end: float) -> int:
    random, changes = Random(3), 0
    while time.monotonic() < end:
        chosen = random.sample(ports, random.randint(1, len(ports)))
        lines = (f"    - {{name: b{port}, addresses: [127.0.0.1], port: {port}}}" for port in chosen)
        beside = file.with_suffix(".new")
        beside.write_text(OBJECT.format(listen=listen, backends="\n".join(lines), algorithm=random.choice(POLICIES)))
        beside.replace(file)
        changes += 1
        await asyncio.sleep(0.1)
    return changes


async def soak(seconds: float, directory: Path) -> Report:
    servers = [await asyncio.start_server(answer, "127.0.0.1", 0, backlog=1024) for _ in range(BACKENDS)]
    ports = [server.sockets[0].getsockname()[1] for server in servers]
    listen, admin, file = free_port(), free_port(), directory / "shop.yaml"
    await _churn(file, listen, ports, time.monotonic() + 0.01)
    process = await asyncio.create_subprocess_exec(
        *(
            sys.executable,
            "-m",
            "controller",
            "proxy",
            f"--file={file}",
            "--host=127.0.0.1",
            f"--admin=127.0.0.1:{admin}",
        ),
        stderr=asyncio.subprocess.DEVNULL,
        env=os.environ | {"MALLOC_ARENA_MAX": "1"},
    )
    try:
        async with asyncio.timeout(30):
            while True:
                with contextlib.suppress(OSError, aiohttp.ClientError):
                    if (await _metrics(admin)).get("steelyard_config_applied_total"):
                        break
                await asyncio.sleep(0.1)
        end = time.monotonic() + seconds
        clients = [Client(listen, Random(number)) for number in range(CLIENTS)]
        churning = asyncio.create_task(_churn(file, listen, ports, end))
        running = [asyncio.create_task(client.run(end)) for client in clients]
        await asyncio.sleep(seconds * WARM)
        warm = _resident(process.pid)
        await asyncio.gather(*running)
        left = {}
        for _ in range(100):  # clients' ends are seen at once, those of tunnels and timers soon
            shown = await _metrics(admin)
            left = {name: shown[name] for name in GAUGES if shown[name]}
            if not left:
                break
            await asyncio.sleep(0.1)
        ended = sum((client.ended for client in clients), Counter[str]())
        failed = [fault for client in clients for fault in client.failed]
        return Report(ended, failed, await churning, warm, _resident(process.pid), left)
    finally:
        process.terminate()
        await process.wait()
        for server in servers:
            server.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    with tempfile.TemporaryDirectory() as directory:
        report = asyncio.run(soak(parser.parse_args().seconds, Path(directory)))
    print(report)
    return 0 if report.flat and not report.failed and not report.left else 1


if __name__ == "__main__":
    sys.exit(main())
