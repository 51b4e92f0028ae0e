"""Reports on their way from one replica of the operator to the Lease's holder, over real TLS."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import msgspec
import pytest
from aiohttp import web

from controller.discovery.certificates import renewed
from controller.discovery.frames import Ack, Relayed, Report
from controller.discovery.relay import Relay, Way

SHOP = ("store", "shop")
AUTHORITY = renewed(None, ["steelyard.test"], datetime.now(UTC))


class Holder:
    """A replica that holds the Lease: keeps what it is told."""

    def __init__(self, directory: Path) -> None:
        self.told: asyncio.Queue[tuple[str, str, list[str]]] = asyncio.Queue()
        self.refusals = 0
        self.directory = directory

    async def answer(self, request: web.Request) -> web.Response:
        if self.refusals:
            self.refusals -= 1
            return web.Response(status=503)
        relayed = msgspec.json.decode(await request.read(), type=list[Relayed])
        versions = [f"{each.proxy} {each.report.ack.version}" for each in relayed if each.report.ack]
        self.told.put_nowait((request.path, request.headers["Authorization"], versions))
        return web.Response(status=204)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        app = web.Application()
        app.router.add_post("/v1/relay", self.answer)
        leaf = self.directory / "leaf"
        leaf.write_bytes(AUTHORITY.leaf.certificate + AUTHORITY.leaf.key)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(leaf)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        try:
            yield f"127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()

    async def next(self) -> list[str]:
        _, _, versions = await asyncio.wait_for(self.told.get(), 5)
        return versions


def report(version: str) -> Report:
    return Report(ack=Ack(version=version, ok=True))


class Bench:
    """A relay whose holder the test decides."""

    def __init__(self, directory: Path) -> None:
        self.holder: str | None = None
        token = directory / "token"
        token.write_text("secret\n")
        trust = ssl.create_default_context(cadata=AUTHORITY.trusted.decode())
        way = Way(holder=lambda: self.holder, trust=lambda: trust, server_name="steelyard.test", token=token)
        self.relay = Relay(way, Random(1))


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path)
    task = asyncio.ensure_future(bench.relay.run())
    yield bench
    task.cancel()
    await asyncio.wait([task])


async def test_a_report_reaches_the_holder_with_our_token(bench: Bench, tmp_path: Path) -> None:
    holder = Holder(tmp_path)
    async with holder.serving() as bench.holder:
        bench.relay.heard(SHOP, "pod-1", report("v1"), here=True)

        assert await holder.told.get() == ("/v1/relay", "Bearer secret", ["pod-1 v1"])


async def test_only_the_newest_of_each_goes_and_together(bench: Bench, tmp_path: Path) -> None:
    holder = Holder(tmp_path)
    async with holder.serving() as bench.holder:
        for version in ("v1", "v2"):
            bench.relay.heard(SHOP, "pod-1", report(version), here=True)
        bench.relay.heard(SHOP, "pod-2", report("v1"), here=False)

        assert await holder.next() == ["pod-1 v2", "pod-2 v1"]


async def test_a_new_holder_is_told_of_all_proxies_that_are_here(bench: Bench, tmp_path: Path) -> None:
    first, second = Holder(tmp_path), Holder(tmp_path)
    async with first.serving() as one, second.serving() as two:
        bench.holder = one
        bench.relay.heard(SHOP, "pod-1", report("v1"), here=True)
        bench.relay.heard(SHOP, "pod-2", report("v1"), here=False)
        bench.relay.heard(SHOP, "pod-3", report("v1"), here=True)
        bench.relay.left(SHOP, "pod-3")
        assert await first.next() == ["pod-1 v1", "pod-2 v1"]

        bench.holder = two
        bench.relay.heard(SHOP, "pod-4", report("v2"), here=True)

        assert await second.next() == ["pod-1 v1", "pod-4 v2"]


async def test_what_a_holder_did_not_take_is_told_again(bench: Bench, tmp_path: Path) -> None:
    holder = Holder(tmp_path)
    holder.refusals = 1
    async with holder.serving() as bench.holder:
        bench.relay.heard(SHOP, "pod-1", report("v1"), here=False)

        assert await holder.next() == ["pod-1 v1"]
        assert bench.relay.failures == 1


async def test_nothing_is_kept_while_we_hold_the_lease(bench: Bench) -> None:
    bench.relay.heard(SHOP, "pod-1", report("v1"), here=False)
    async with asyncio.timeout(5):
        while repr(bench.relay) != "<Relay to None due=0 failures=0>":  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0)
