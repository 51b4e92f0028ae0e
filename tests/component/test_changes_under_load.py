"""Configuration changes while requests run: no failed request, every change in force, memory flat.

The proxy is a process of its own, configured as in production: by an operator's stream, or by a watched file.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from controller.discovery import frames
from controller.discovery.hub import Hub
from controller.discovery.server import Access, Discovery
from controller.discovery.tokens import Authenticator, Identity
from controller.model.endpoints import Endpoint
from controller.model.service import Algorithm
from controller.model.snapshot import Snapshot, SnapshotBackend, SnapshotPort, SnapshotProxy

SNAPSHOTS = 10_000
WARM_UP = 2_000  # applied before memory is looked at: pools, tables and the allocator's arenas have their size then
REPLACEMENTS = 200
FLAT = 5 * 1024 * 1024  # bytes
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
REQUEST = b"GET / HTTP/1.1\r\nHost: shop\r\n\r\n"


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(ANSWER)
    writer.close()


@contextlib.asynccontextmanager
async def serving(count: int) -> AsyncIterator[list[int]]:
    """So many backends' ports."""
    servers = [await asyncio.start_server(answer, "127.0.0.1", 0) for _ in range(count)]
    yield [server.sockets[0].getsockname()[1] for server in servers]
    for server in servers:
        server.close()


class Clients:
    """Keep-alive connections that ask one request after the other; any other answer than 200 ends the test."""

    def __init__(self, port: int, count: int) -> None:
        self.answered = 0
        self._port = port
        self._tasks = [asyncio.create_task(self._run()) for _ in range(count)]

    async def _run(self) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            while True:
                writer.write(REQUEST)
                head = await reader.readuntil(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 200 "), head
                assert await reader.readexactly(2) == b"ok"
                self.answered += 1
                await asyncio.sleep(0.002)  # most of the machine is for the changes
        finally:
            writer.close()

    async def end(self) -> None:
        failed = [task for task in self._tasks if task.done()]
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for task in failed:
            task.result()


@contextlib.asynccontextmanager
async def proxy(admin: int, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "controller",
        "proxy",
        f"--admin=127.0.0.1:{admin}",
        "--host=127.0.0.1",
        *arguments,
        stderr=asyncio.subprocess.DEVNULL,
        env=os.environ | {"MALLOC_ARENA_MAX": "1"},
    )
    try:
        yield process
    finally:
        process.terminate()
        await process.wait()


async def until_ready(admin: int) -> None:
    async with aiohttp.ClientSession() as session, asyncio.timeout(20):
        while True:
            with contextlib.suppress(aiohttp.ClientConnectionError):
                async with session.get(f"http://127.0.0.1:{admin}/readyz") as response:
                    if response.status == 200:
                        return
            await asyncio.sleep(0.02)


def resident(process: asyncio.subprocess.Process) -> int:
    status = Path(f"/proc/{process.pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


class Operator:
    """A served hub on loopback; `acknowledged` waits until the proxy has answered to a version."""

    def __init__(self) -> None:
        self.hub = Hub()
        self._acks: asyncio.Queue[frames.Ack] = asyncio.Queue()

    def _reported(self, key: tuple[str, str], proxy: str, report: frames.Report) -> None:
        if report.ack is not None:
            self._acks.put_nowait(report.ack)

    @contextlib.asynccontextmanager
    async def up(self) -> AsyncIterator[str]:
        async def review(_: str) -> Identity:
            return Identity(username="system:serviceaccount:store:shop-lb", pod_uid="uid")

        async def allowed(_: Identity, key: tuple[str, str]) -> bool:
            return key == ("store", "shop")

        access = Access(
            allowed=allowed,
            zone=lambda _: "",
            connected=lambda *_: None,
            reported=self._reported,
            relayed=lambda *_: None,
        )
        discovery = Discovery(self.hub, Authenticator(review, time.time), access, lambda _: None)
        runner = web.AppRunner(discovery.app, access_log=None, handler_cancellation=True, shutdown_timeout=1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            discovery.end()
            await runner.cleanup()

    async def acknowledged(self, version: str) -> None:
        async with asyncio.timeout(20):
            while True:
                ack = await self._acks.get()
                assert ack.ok, ack.error
                if ack.version == version:
                    return


def snapshot(number: int, listen: int, ports: list[int]) -> Snapshot:
    """Ever another: members come and go, weights move, the policy changes now and then."""
    policies = ("PowerOfTwoChoices", "RoundRobin", "LeastConnections", "Random", "PeakEWMA")
    chosen = [port for at, port in enumerate(ports) if (number >> at) & 1] or ports[:1]
    endpoints = tuple(Endpoint(id=f"pod-{port}", address="127.0.0.1", port=port) for port in sorted(chosen))
    backend = SnapshotBackend(name="all", weight=1 + number % 7, weight_per="Endpoint", endpoints=endpoints)
    return Snapshot(
        namespace="store",
        name="shop",
        generation=number,
        ports=(SnapshotPort(name="http", port=listen, listen=listen, backends=(backend,)),),
        algorithm=Algorithm(type=policies[number // 500 % len(policies)]),
        proxy=SnapshotProxy(accept_grace=0.1),
    )


@pytest.mark.timeout(900)
async def test_ten_thousand_snapshots_cost_no_request_and_no_memory(tmp_path: Path) -> None:
    operator, listen, admin = Operator(), free_port(), free_port()
    token = tmp_path / "token"
    token.write_text("token")
    async with serving(4) as ports, operator.up() as url:
        operator.hub.put(snapshot(0, listen, ports))
        operator.hub.sync()
        follow = (f"--control={url}", "--namespace=store", "--name=shop", f"--token-file={token}")
        async with proxy(admin, *follow) as process:
            await until_ready(admin)
            clients = Clients(listen, 4)
            warm = 0

            for number in range(1, SNAPSHOTS + 1):
                new = snapshot(number, listen, ports)
                operator.hub.put(new)
                await operator.acknowledged(new.version)
                if number == WARM_UP:
                    warm = resident(process)

            await clients.end()
            assert clients.answered > SNAPSHOTS / 10
            assert abs(resident(process) - warm) <= FLAT


OBJECT = """\
apiVersion: steelyard.dev/v1alpha1
kind: BalancedService
metadata: {{name: shop}}
spec:
  ports: [{{port: {listen}}}]
  backends:
    - {{name: one, addresses: [127.0.0.1], port: {one}, weight: {weight}}}
    - {{name: two, addresses: [127.0.0.1], port: {two}}}
  proxy: {{acceptGrace: 100ms}}
"""


class Mounted:
    """A file as a mounted ConfigMap has it: a link to `..data`, itself a link that is swapped whole."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._turn = 0
        self.path = directory / "shop.yaml"
        self.path.symlink_to("..data/shop.yaml")

    def replace(self, text: str) -> None:
        self._turn += 1
        folder = self._directory / f"..{self._turn}"
        folder.mkdir()
        (folder / "shop.yaml").write_text(text)
        link = self._directory / "..data_tmp"
        link.symlink_to(folder.name)
        link.replace(self._directory / "..data")
        old = self._directory / f"..{self._turn - 1}"
        if old.exists():
            (old / "shop.yaml").unlink()
            old.rmdir()


class Plain:
    """A file that is written in place and replaced by a rename, in turn."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "shop.yaml"
        self._turn = 0

    def replace(self, text: str) -> None:
        self._turn += 1
        if self._turn % 2:
            beside = self.path.with_suffix(".new")
            beside.write_text(text)
            beside.replace(self.path)
        else:
            self.path.write_text(text)


async def in_force(session: aiohttp.ClientSession, admin: int, weight: int) -> None:
    async with asyncio.timeout(10):
        while True:
            async with session.get(f"http://127.0.0.1:{admin}/config") as response:
                (shown,) = (await response.json()).values()
            if shown["snapshot"]["ports"][0]["backends"][0]["weight"] == weight:
                return
            await asyncio.sleep(0.01)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("way", [Plain, Mounted], ids=["written and renamed", "mounted ConfigMap"])
async def test_every_replacement_of_the_file_comes_into_force_without_a_failed_request(
    way: type[Plain | Mounted], tmp_path: Path
) -> None:
    listen, admin = free_port(), free_port()
    async with serving(2) as (one, two):
        file = way(tmp_path)

        def text(weight: int) -> str:
            return OBJECT.format(listen=listen, one=one, two=two, weight=weight)

        file.replace(text(1))
        async with proxy(admin, f"--file={file.path}") as process, aiohttp.ClientSession() as session:
            await until_ready(admin)
            clients = Clients(listen, 4)
            warm = 0

            for weight in range(2, REPLACEMENTS // 2 + 2):
                file.replace(text(weight))
                await in_force(session, admin, weight)
                if weight == REPLACEMENTS // 10:
                    warm = resident(process)

            await clients.end()
            assert clients.answered > REPLACEMENTS
            assert abs(resident(process) - warm) <= FLAT
