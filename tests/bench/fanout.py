"""How long one snapshot takes to every proxy: an operator's discovery server with TLS, and proxies' clients.

The server is a process of its own, as in a cluster; all clients share another one, which makes the figure worse than
that of a fleet: the last of them waits until the others have decrypted and decoded theirs. Both read the machine's
one monotonic clock. Acknowledgements go up after each round, not into the measured time.

    python -m tests.bench.fanout            prints the figure
"""

from __future__ import annotations

import asyncio
import itertools
import json
import ssl
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import msgspec
import uvloop
from aiohttp import web

from controller.discovery.certificates import renewed
from controller.discovery.client import Client, Settings, Update
from controller.discovery.hub import Hub
from controller.discovery.server import Access, Discovery
from controller.discovery.tokens import Authenticator, Identity
from controller.model.endpoints import Endpoint
from controller.model.snapshot import Snapshot, SnapshotBackend, SnapshotPort

PROXIES = 200
BYTES = 50_000
ROUNDS = 40
CONNECTED = 60.0  # seconds until all are


class Report(msgspec.Struct, frozen=True):
    """Seconds from `Hub.put` to the client's `Update`, over all proxies and rounds."""

    proxies: int
    size: int  # bytes of a snapshot
    p50: float
    p99: float
    longest: float
    quietest: float  # p99 of the round that was disturbed least: what else runs on the machine can only add


def snapshot(generation: int) -> Snapshot:
    """Of about `BYTES`: pods as a cluster names them."""
    endpoints = tuple(
        Endpoint(
            id=f"5f1c8c1e-6a3a-4f0e-9d2b-{number:012x}",
            address=f"10.{generation % 256}.{number // 256}.{number % 256}",
            port=8080,
            pod=f"store/shop-v1-6c9f7d5b8-{number:05x}",
            node=f"node-{number % 50}",
            zone=f"zone-{number % 3}",
        )
        for number in range(BYTES // 208)
    )
    backend = SnapshotBackend(name="stable", weight=1, weight_per="Backend", endpoints=endpoints)
    port = SnapshotPort(name="http", port=80, listen=20000, backends=(backend,))
    return Snapshot(namespace="store", name="shop", generation=generation, ports=(port,))


# -- the operator's side, told by lines on standard input --------------------------------------------------------------


async def serve(folder: Path) -> None:
    async def review(token: str) -> Identity:
        return Identity(username="system:serviceaccount:store:shop-lb", pod_uid=token)

    async def allowed(*_: object) -> bool:
        return True

    hub = Hub()
    hub.put(snapshot(0))
    hub.sync()
    access = Access(
        allowed=allowed,
        zone=lambda _: "",
        connected=lambda *_: None,
        reported=lambda *_: None,
        relayed=lambda *_: None,
    )
    discovery = Discovery(hub, Authenticator(review, time.time), access, lambda _: None)
    authority = renewed(None, ["localhost"], datetime.now(UTC))
    (folder / "leaf").write_bytes(authority.leaf.certificate + authority.leaf.key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "leaf")
    runner = web.AppRunner(discovery.app, access_log=None, handler_cancellation=True, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    (folder / "ca.crt").write_bytes(authority.trusted)
    print(runner.addresses[0][1], flush=True)
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    async for line in lines:
        made = snapshot(int(line))
        made.encode()
        print(json.dumps(time.monotonic()), flush=True)
        hub.put(made)
    await runner.cleanup()


# -- the proxies' side -------------------------------------------------------------------------------------------------


class Fleet:
    """Clients that note when the snapshot of a round has come."""

    def __init__(self, folder: Path, port: int) -> None:
        self.arrived: list[float] = []
        self._all = asyncio.Event()
        self._held: list[tuple[Client, Update]] = []
        self.clients = [self._client(folder, port, number) for number in range(PROXIES)]

    def _client(self, folder: Path, port: int, number: int) -> Client:
        token = folder / f"token-{number}"
        token.write_text(f"uid-{number}")
        settings = Settings(
            url=f"https://localhost:{port}", namespace="store", names=("shop",), token=token, ca=folder / "ca.crt"
        )
        return Client(settings, time.monotonic, Random(number), lambda _: {})

    async def follow(self, client: Client) -> None:
        async for event in client.events():
            if isinstance(event, Update):
                self.arrived.append(time.monotonic())
                self._held.append((client, event))
                if len(self.arrived) == PROXIES:
                    self._all.set()

    async def everyone(self) -> list[float]:
        """When each had it; then they acknowledge."""
        await asyncio.wait_for(self._all.wait(), CONNECTED)
        found, self.arrived = self.arrived, []
        self._all.clear()
        for client, update in self._held:
            client.ack(update.snapshot.name, update.version)
        self._held.clear()
        return found


async def fan_out(folder: Path) -> Report:
    pipe = asyncio.subprocess.PIPE
    words = (sys.executable, "-m", "tests.bench.fanout", str(folder))
    async with AsyncExitStack() as stack:
        server = await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe)
        assert server.stdin is not None
        assert server.stdout is not None
        stack.push_async_callback(server.wait)
        stack.callback(server.stdin.close)
        fleet = Fleet(folder, int(await server.stdout.readline()))
        tasks = [asyncio.create_task(fleet.follow(client)) for client in fleet.clients]
        try:
            await fleet.everyone()
            rounds: list[list[float]] = []
            for generation in range(1, ROUNDS + 1):
                await asyncio.sleep(0.25)  # acknowledgements of the round before are not part of this one
                server.stdin.write(f"{generation}\n".encode())
                begun = json.loads(await server.stdout.readline())
                rounds.append([at - begun for at in await fleet.everyone()])
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    seconds = sorted(itertools.chain.from_iterable(rounds))
    return Report(
        proxies=PROXIES,
        size=len(snapshot(1).encode()),
        p50=_quantile(seconds, 0.5),
        p99=_quantile(seconds, 0.99),
        longest=seconds[-1],
        quietest=min(_quantile(each, 0.99) for each in rounds),
    )


def _quantile(seconds: list[float], share: float) -> float:
    return sorted(seconds)[int(share * (len(seconds) - 1))]


def measure() -> Report:
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(fan_out(Path(folder)))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        uvloop.run(serve(Path(sys.argv[1])))
    else:
        print(measure())
