"""The wire between the planes, over real TLS sockets: the review of tokens is the only thing handed in."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import ssl
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import aiohttp
import msgspec
import pytest
from aiohttp import web

from controller.discovery import frames
from controller.discovery.certificates import renewed
from controller.discovery.client import Client, Event, Forget, Placed, Settings, Update
from controller.discovery.copy import Copies
from controller.discovery.hub import Hub
from controller.discovery.server import Access, Discovery, wait_seconds
from controller.discovery.tokens import FAILURES, Authenticator, Identity
from controller.model.snapshot import Snapshot

GOOD = Identity(username="system:serviceaccount:store:shop-lb", pod="shop-lb-1", pod_uid="uid-1", node="n1")
OTHER = Identity(username="system:serviceaccount:elsewhere:thief", pod="t", pod_uid="uid-2", node="n2")
REPLICA = Identity(username="system:serviceaccount:steelyard-system:steelyard", pod_uid="uid-3")
TOKENS = {"good": GOOD, "other": OTHER, "replica": REPLICA}


def snapshot(name: str = "shop", generation: int = 1) -> Snapshot:
    return Snapshot(namespace="store", name=name, generation=generation)


class Plane:
    """A served hub, and what it heard."""

    def __init__(self, directory: Path) -> None:
        self.existing: set[tuple[str, str]] = set()
        self.hub = Hub(self.existing.__contains__)
        self.directory = directory
        self.tokens = dict(TOKENS)
        self.later = 0.0  # seconds by which the server's clock is ahead
        self.closed: set[tuple[str, str]] = set()  # to everybody
        self.reviews = 0
        self.connected: set[tuple[tuple[str, str], str]] = set()
        self.reports: asyncio.Queue[tuple[tuple[str, str], str, frames.Report]] = asyncio.Queue()
        self.counts: asyncio.Queue[str] = asyncio.Queue()
        self.url = ""
        authority = renewed(None, ["localhost"], datetime.now(UTC))
        self.ca = directory / "ca.crt"
        self.ca.write_bytes(authority.trusted)
        (directory / "leaf").write_bytes(authority.leaf.certificate + authority.leaf.key)
        self.port = 0

    async def review(self, token: str) -> Identity | None:
        self.reviews += 1
        return self.tokens.get(token)

    def expire(self, token: str) -> None:
        """Also for whoever remembers it."""
        del self.tokens[token]
        self.later += 61

    async def allowed(self, identity: Identity, key: tuple[str, str]) -> bool:
        return identity.namespace == key[0] and key not in self.closed

    def presence(self, key: tuple[str, str], proxy: str, here: bool) -> None:
        (self.connected.add if here else self.connected.discard)((key, proxy))

    async def counted(self, event: str) -> None:
        async with asyncio.timeout(8):
            while await self.counts.get() != event:
                pass

    async def start(self) -> None:
        access = Access(
            allowed=self.allowed,
            zone=lambda node: {"n1": "zone-a"}.get(node, ""),
            connected=self.presence,
            reported=lambda key, proxy, report: self.reports.put_nowait((key, proxy, report)),
            relayed=lambda key, proxy, report: self.reports.put_nowait((key, proxy, report)),
            replica=REPLICA.username,
        )
        authenticator = Authenticator(self.review, lambda: time.time() + self.later)
        self.discovery = Discovery(self.hub, authenticator, access, self.counts.put_nowait)
        self.runner = web.AppRunner(self.discovery.app, access_log=None, handler_cancellation=True, shutdown_timeout=1)
        await self.runner.setup()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.directory / "leaf")
        site = web.TCPSite(self.runner, "127.0.0.1", self.port, ssl_context=context)
        await site.start()
        self.port = self.runner.addresses[0][1]
        self.url = f"https://localhost:{self.port}"

    async def stop(self) -> None:
        self.discovery.end()
        await self.runner.cleanup()

    @property
    def token(self) -> Path:
        return self.directory / "token"

    def client(self, names: tuple[str, ...] = ("shop",), store: Path | None = None) -> Client:
        self.token.write_text("good")
        settings = Settings(url=self.url, namespace="store", names=names, token=self.token, ca=self.ca, store=store)
        return Client(settings, time.monotonic, Random(1), lambda _: {"stable": frames.BackendHealth(4, 4)})


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[Plane]:
    plane = Plane(tmp_path)
    await plane.start()
    yield plane
    await plane.stop()


@contextlib.asynccontextmanager
async def listening(client: Client) -> AsyncIterator[asyncio.Queue[Event]]:
    """Runs a client; what it says to apply arrives in the queue, already acknowledged."""
    seen: asyncio.Queue[Event] = asyncio.Queue()

    async def follow() -> None:
        async for event in client.events():
            if isinstance(event, Update):
                client.ack(event.snapshot.name, event.version)
            seen.put_nowait(event)

    task = asyncio.create_task(follow())
    try:
        yield seen
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def following(seen: asyncio.Queue[Event], kind: type[Event]) -> Event:
    async with asyncio.timeout(8):
        while not isinstance(event := await seen.get(), kind):
            pass
    return event


async def acknowledged(plane: Plane, version: str) -> frames.Report:
    async with asyncio.timeout(8):
        while True:
            _, _, report = await plane.reports.get()
            if report.ack and report.ack.version == version:
                return report


async def get(plane: Plane, path: str, **headers: str) -> tuple[int, str, bytes]:
    tls = ssl.create_default_context(cafile=plane.ca)
    async with aiohttp.ClientSession() as session:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with session.get(plane.url + path, headers=named, ssl=tls) as response:
            return response.status, response.headers.get("ETag", ""), await response.read()


async def test_a_proxy_is_told_where_it_is_then_the_snapshot_and_acknowledges_it(plane: Plane) -> None:
    plane.hub.put(snapshot())
    plane.hub.sync()

    async with listening(plane.client()) as seen:
        assert await following(seen, Placed) == Placed(node="n1", zone="zone-a")
        update = await following(seen, Update)
        report = await acknowledged(plane, snapshot().version)

        assert update.snapshot == snapshot()
        assert report.ack == frames.Ack(version=snapshot().version, ok=True)
        assert report.health == {"stable": frames.BackendHealth(4, 4)}
        assert plane.connected == {(("store", "shop"), "uid-1")}


async def test_a_proxy_reports_only_what_has_something_new(plane: Plane) -> None:
    """A fleet of sidecars with many services would else repeat all of them for each change of one."""
    for name in ("shop", "stock"):
        plane.hub.put(snapshot(name))
    plane.hub.sync()
    said: list[str] = []

    async with listening(plane.client(("shop", "stock"))):
        for change in range(1, 31):
            version = snapshot("stock", change).version
            plane.hub.put(snapshot("stock", change))
            async with asyncio.timeout(8):
                while True:
                    (_, name), _, report = await plane.reports.get()
                    said.append(name)
                    if report.ack and report.ack.version == version:
                        break

    # At the start, and at pings.
    assert 1 <= said.count("shop") <= 10


async def test_every_change_arrives_and_an_equal_one_does_not(plane: Plane) -> None:
    plane.hub.put(snapshot())
    plane.hub.sync()

    async with listening(plane.client()) as seen:
        await following(seen, Update)

        assert not plane.hub.put(snapshot())
        assert plane.hub.put(snapshot(generation=2))
        assert (await following(seen, Update)).snapshot.generation == 2


async def test_nothing_is_called_gone_before_the_operator_is_synced(plane: Plane) -> None:
    status, _, _ = await get(plane, "/v1/snapshots/store?names=shop", Authorization="Bearer good")

    assert status == 503


async def test_gone_is_told_and_the_copy_on_disk_goes_too(plane: Plane, tmp_path: Path) -> None:
    plane.hub.put(snapshot())
    plane.hub.sync()
    store = tmp_path / "store"

    async with listening(plane.client(store=store)) as seen:
        await following(seen, Update)
        assert (store / "shop.json").exists()

        plane.hub.gone(("store", "shop"))

        assert await following(seen, Forget) == Forget(name="shop")
        assert not (store / "shop.json").exists()


async def test_what_exists_but_was_never_published_is_not_called_gone(plane: Plane) -> None:
    """An operator that starts finds an object that is not valid any more; its proxies keep what they have."""
    plane.existing.add(("store", "shop"))
    plane.hub.sync()

    async with listening(plane.client()) as seen:
        assert await following(seen, Placed) == Placed(node="n1", zone="zone-a")
        status, _, _ = await get(plane, "/v1/snapshots/store?names=shop", Authorization="Bearer good")
        assert status == 503
        plane.hub.put(snapshot())
        async with asyncio.timeout(8):
            assert isinstance(await seen.get(), Update)  # and nothing before it

        plane.existing.clear()
        plane.hub.gone(("store", "shop"))
        assert await following(seen, Forget) == Forget(name="shop")


async def test_a_proxy_that_starts_while_the_operator_is_away_serves_from_disk(plane: Plane, tmp_path: Path) -> None:
    plane.hub.put(snapshot(), keys=(b"secret",))
    plane.hub.sync()
    store = tmp_path / "store"
    async with listening(plane.client(store=store)) as seen:
        await following(seen, Update)
    await plane.stop()

    async with listening(plane.client(store=store)) as seen:
        update = await following(seen, Update)
        assert (update.snapshot, update.keys, update.stored) == (snapshot(), (b"secret",), True)

        plane.hub.put(snapshot(generation=2))
        await plane.start()
        assert (await following(seen, Update)).snapshot.generation == 2


async def test_rotated_keys_of_the_same_snapshot_reach_a_connected_proxy_and_its_copy(
    plane: Plane, tmp_path: Path
) -> None:
    plane.hub.put(snapshot(), keys=(b"old",))
    plane.hub.sync()
    store = tmp_path / "store"

    async with listening(plane.client(store=store)) as seen:
        assert (await following(seen, Update)).keys == (b"old",)
        plane.hub.put(snapshot(), keys=(b"new", b"old"))
        update = await following(seen, Update)

        assert (update.snapshot, update.keys) == (snapshot(), (b"new", b"old"))
        stored = Copies(store).load("shop")
        assert stored is not None
        assert stored.keys == (b"new", b"old")


async def test_keys_that_were_rotated_while_a_proxy_was_away_reach_it_when_it_is_back(
    plane: Plane, tmp_path: Path
) -> None:
    plane.hub.put(snapshot(), keys=(b"old",))
    plane.hub.sync()
    store = tmp_path / "store"
    async with listening(plane.client(store=store)) as seen:
        await following(seen, Update)

    plane.hub.put(snapshot(), keys=(b"new", b"old"))

    async with listening(plane.client(store=store)) as seen:
        assert (await following(seen, Update)).keys == (b"old",)  # from the disk
        assert (await following(seen, Update)).keys == (b"new", b"old")


async def test_a_proxy_that_comes_back_to_the_same_snapshot_and_keys_applies_nothing(plane: Plane) -> None:
    client = plane.client()
    frame = frames.SnapshotFrame("shop", "v", msgspec.Raw(snapshot().encode()), keys=(b"key",))

    assert [event.keys for event in client._understood(frame)] == [(b"key",)]
    client._understood(frames.Hello())
    assert client._understood(frame) == []


@pytest.mark.parametrize(
    "spoil", [lambda text: text[:-20], lambda text: text.replace('"generation\\":1', '"generation\\":7')]
)
async def test_a_torn_or_changed_copy_counts_as_none(plane: Plane, tmp_path: Path, spoil) -> None:
    copies = Copies(tmp_path / "store")
    copies.save("shop", snapshot().encode(), snapshot().version, ())
    assert copies.load("shop") is not None
    path = tmp_path / "store" / "shop.json"
    before = path.read_text()
    path.write_text(spoil(before))
    assert path.read_text() != before

    assert copies.load("shop") is None


async def test_requests_do_not_wait_for_the_disk_whenever_a_snapshot_is_applied(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The loop that stores it is the one that carries traffic."""
    waits: list[int] = []
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, waits.append)
    copies = Copies(tmp_path / "store")

    copies.save("shop", snapshot().encode(), snapshot().version, ())

    assert copies.load("shop") is not None
    assert waits == []


@pytest.mark.parametrize(
    ("token", "path", "expected"),
    [
        ("", "/v1/snapshots/store?names=shop", 401),
        ("wrong", "/v1/snapshots/store?names=shop", 401),
        ("other", "/v1/snapshots/store?names=shop", 403),
        ("good", "/v1/snapshots/elsewhere?names=shop", 403),
        ("good", "/v1/snapshots/store", 400),
        ("good", "/v1/snapshots/store?names=a,b", 400),
        ("good", "/v1/snapshots/store?names=absent", 404),
        ("good", "/v1/snapshots/store?names=shop", 200),
    ],
)
async def test_only_its_owner_reads_a_snapshot(plane: Plane, token: str, path: str, expected: int) -> None:
    plane.hub.put(snapshot())
    plane.hub.sync()

    status, _, body = await get(plane, path, Authorization=f"Bearer {token}")

    assert status == expected
    assert (body == snapshot().encode()) == (expected == 200)


async def test_who_subscribes_before_an_object_exists_gets_nothing_of_it_once_it_is_not_theirs(plane: Plane) -> None:
    plane.hub.sync()
    tls = ssl.create_default_context(cafile=plane.ca)
    headers = {"Authorization": "Bearer good", "Accept": frames.MEDIA_TYPE}
    url = f"{plane.url}/v1/snapshots/store?names=shop"

    async with aiohttp.ClientSession() as session, asyncio.timeout(8):
        async with session.get(url, headers=headers, ssl=tls) as response:
            told = [frames.decode((await response.content.readline()).strip()) for _ in range(2)]
            plane.closed.add(("store", "shop"))
            plane.hub.put(snapshot(), keys=(b"secret",))
            rest = await response.content.read()
        async with session.get(url, headers=headers, ssl=tls) as response:
            again = response.status

    assert told == [frames.Hello(node="n1", zone="zone-a"), frames.Gone(name="shop")]
    assert rest == b""
    assert again == 403


async def test_who_waits_for_a_change_gets_nothing_of_an_object_that_is_not_theirs_any_more(plane: Plane) -> None:
    plane.hub.put(snapshot())
    plane.hub.sync()
    path, good = "/v1/snapshots/store?names=shop", "Bearer good"
    _, etag, _ = await get(plane, path, Authorization=good)

    waiting = asyncio.create_task(get(plane, path, Authorization=good, If_None_Match=etag, Prefer="wait=30"))
    await plane.counted("poll")
    plane.closed.add(("store", "shop"))
    plane.hub.put(snapshot(generation=2))
    status, _, _ = await waiting

    assert status == 403


async def test_reports_of_a_foreign_namespace_and_relays_of_a_proxy_are_refused(plane: Plane) -> None:
    tls = ssl.create_default_context(cafile=plane.ca)
    report = msgspec.json.encode({"shop": frames.Report(ack=frames.Ack(version="x", ok=True))})
    relayed = msgspec.json.encode([frames.Relayed("store", "shop", "p", frames.Report())])
    answers = []
    async with aiohttp.ClientSession() as session:
        for token, path, body in [
            ("other", "/v1/reports/store", report),
            ("good", "/v1/relay", relayed),
            ("good", "/v1/reports/store", b"{"),
            ("replica", "/v1/relay", relayed),
        ]:
            headers = {"Authorization": f"Bearer {token}"}
            async with session.post(plane.url + path, data=body, headers=headers, ssl=tls) as response:
                answers.append(response.status)

    assert answers == [403, 403, 400, 204]
    assert plane.reports.qsize() == 1


async def test_without_tls_there_is_no_answer(plane: Plane) -> None:
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientError):
            await session.get(plane.url.replace("https", "http") + "/v1/snapshots/store?names=shop")


async def test_a_token_is_reviewed_once_a_minute_and_a_source_of_wrong_ones_is_held_off(plane: Plane) -> None:
    plane.hub.put(snapshot())
    plane.hub.sync()
    path = "/v1/snapshots/store?names=shop"
    for _ in range(3):
        await get(plane, path, Authorization="Bearer good")
    assert plane.reviews == 1

    statuses = [(await get(plane, path, Authorization=f"Bearer wrong-{n}"))[0] for n in range(FAILURES + 5)]

    assert statuses[0] == 401
    assert statuses[-1] == 429
    assert plane.reviews <= 1 + FAILURES + 5
    assert (await get(plane, path, Authorization="Bearer good"))[0] == 200


@contextlib.asynccontextmanager
async def acknowledging(plane: Plane) -> AsyncIterator[Client]:
    """A client that has reported with its first token; "renewed" will be good, too."""
    plane.tokens["renewed"] = GOOD
    plane.hub.put(snapshot())
    plane.hub.sync()
    client = plane.client()
    async with listening(client):
        await acknowledged(plane, snapshot().version)
        yield client


async def test_reports_are_taken_after_the_token_that_the_stream_began_with_has_expired(plane: Plane) -> None:
    """The kubelet renews it in time; the stream itself is reviewed every ten minutes only."""
    async with acknowledging(plane) as client:
        plane.token.write_text("renewed")
        plane.expire("good")
        plane.hub.put(snapshot(generation=2))
        await acknowledged(plane, snapshot(generation=2).version)

        assert client.failures == 0


async def test_a_proxy_whose_report_is_refused_for_its_token_comes_back_with_the_next_one(plane: Plane) -> None:
    async with acknowledging(plane) as client:
        plane.expire("good")
        client.changed()
        await plane.counted("unauthenticated")
        plane.token.write_text("renewed")
        await plane.counted("stream")
        await acknowledged(plane, snapshot().version)

        assert client.failures >= 1
        assert plane.connected == {(("store", "shop"), "uid-1")}


async def test_a_token_that_can_not_be_read_for_a_while_ends_no_reports(plane: Plane) -> None:
    plane.hub.put(snapshot())
    plane.hub.sync()
    client = plane.client()

    async with listening(client) as seen:
        await acknowledged(plane, snapshot().version)
        await following(seen, Update)
        plane.token.unlink()
        plane.hub.put(snapshot(generation=2))
        await following(seen, Update)
        await asyncio.sleep(0.05)
        plane.token.write_text("good")
        plane.hub.put(snapshot(generation=3))
        await acknowledged(plane, snapshot(generation=3).version)

        assert client.failures == 0


async def test_long_poll_answers_when_the_snapshot_changes(plane: Plane) -> None:
    plane.hub.put(snapshot())
    plane.hub.sync()
    path, good = "/v1/snapshots/store?names=shop", "Bearer good"
    _, etag, _ = await get(plane, path, Authorization=good)
    assert (await get(plane, path, Authorization=good, If_None_Match=etag))[0] == 304

    waiting = asyncio.create_task(get(plane, path, Authorization=good, If_None_Match=etag, Prefer="wait=30"))
    await plane.counted("poll")
    plane.hub.put(snapshot(generation=2))
    status, _, body = await waiting

    assert (status, body) == (200, snapshot(generation=2).encode())


async def test_a_slow_reader_gets_the_newest_only(plane: Plane) -> None:
    hub = plane.hub
    hub.put(snapshot())
    subscriber = hub.subscribe([("store", "shop")])
    subscriber.take()

    for generation in range(2, 1000):
        hub.put(snapshot(generation=generation))

    assert subscriber.take() == [("store", "shop")]
    newest = frames.decode(hub.frame(("store", "shop")).rstrip())
    assert isinstance(newest, frames.SnapshotFrame)
    assert newest.version == snapshot(generation=999).version


async def test_a_lagging_replica_does_not_move_a_proxy_back(plane: Plane) -> None:
    client = plane.client()
    new = frames.SnapshotFrame("shop", "new", msgspec.Raw(snapshot(generation=2).encode()), freshness=20)
    old = frames.SnapshotFrame("shop", "old", msgspec.Raw(snapshot(generation=1).encode()), freshness=10)

    assert [event.version for event in client._understood(new)] == ["new"]
    client._understood(frames.Hello())
    assert client._understood(old) == []
    assert client._understood(new) == []
    assert client._understood(frames.Ping()) == []

    client._understood(old)
    assert [event.version for event in client._understood(frames.Ping())] == ["old"]


async def test_of_two_objects_the_older_one_is_not_taken_for_a_lagging_replicas(plane: Plane) -> None:
    """Each frame carries what its server knew when it was published, which may be long ago."""
    client = plane.client(("blog", "shop"))
    recent = frames.SnapshotFrame("blog", "a", msgspec.Raw(snapshot("blog").encode()), freshness=20)
    long_ago = frames.SnapshotFrame("shop", "b", msgspec.Raw(snapshot("shop").encode()), freshness=10)

    found = [*client._understood(recent), *client._understood(long_ago)]

    assert [event.version for event in found if isinstance(event, Update)] == ["a", "b"]


async def test_a_busy_stream_is_pinged_too(plane: Plane) -> None:
    """Pings ask for reports, and end the wait for a replica that seemed to lag."""
    plane.hub.put(snapshot())
    plane.hub.sync()
    tls = ssl.create_default_context(cafile=plane.ca)
    headers = {"Authorization": "Bearer good", "Accept": frames.MEDIA_TYPE}
    seen: list[frames.Frame | None] = []

    async with aiohttp.ClientSession() as session, asyncio.timeout(8):
        url = f"{plane.url}/v1/snapshots/store?names=shop"
        async with session.get(url, headers=headers, ssl=tls) as response:
            for generation in itertools.count(2):
                seen.append(frames.decode((await response.content.readline()).strip()))
                if seen[-1] == frames.Ping():
                    break
                plane.hub.put(snapshot(generation=generation))

    assert len(seen) > 2


async def test_a_snapshot_of_another_schema_is_refused_and_the_old_one_stays(plane: Plane) -> None:
    plane.hub.put(snapshot())
    plane.hub.sync()
    async with listening(plane.client()) as seen:
        await following(seen, Update)
        foreign = Snapshot(schema=99, namespace="store", name="shop")
        plane.hub.put(foreign)

        report = await acknowledged(plane, foreign.version)

        assert report.ack is not None
        assert not report.ack.ok
        assert "schema 99" in report.ack.error
        assert seen.empty()


async def test_a_proxy_comes_back_after_the_server_ends(plane: Plane) -> None:
    plane.hub.put(snapshot())
    plane.hub.sync()
    client = plane.client()
    async with listening(client) as seen:
        await following(seen, Update)
        await plane.stop()
        plane.hub.put(snapshot(generation=2))
        await plane.start()

        assert (await following(seen, Update)).snapshot.generation == 2
        assert client.connected


def test_lines_are_joined_over_any_cut() -> None:
    data = b'{"a":1}\n\n{"b":2}\n{"c"'
    for cut in range(len(data)):
        lines = frames.Lines()
        assert [*lines.feed(data[:cut]), *lines.feed(data[cut:]), *lines.feed(b":3}\n")] == [
            b'{"a":1}',
            b'{"b":2}',
            b'{"c":3}',
        ]


def test_a_frame_of_a_later_version_is_skipped() -> None:
    assert frames.decode(b'{"frame":"weather","sun":true}') is None
    assert frames.decode(b'{"frame":"gone","name":"shop","why":"deleted"}') == frames.Gone(name="shop")


def test_frames_and_identities_show_no_secret() -> None:
    frame = frames.SnapshotFrame("shop", "v", msgspec.Raw(b"{}"), keys=(b"secret",))

    assert "secret" not in repr(frame)


@pytest.mark.parametrize(
    ("prefer", "expected"), [("", 0), ("wait=30", 30), ("respond-async, wait=5", 5), ("wait=999", 60), ("wait=x", 0)]
)
def test_prefer_wait_is_read(prefer: str, expected: float) -> None:
    assert wait_seconds(prefer) == expected
