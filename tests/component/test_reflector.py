"""The reflector against a scripted API server: what it copies, and what it does when a watch goes wrong."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from controller.kube.api import Api
from controller.kube.reflector import Reflector, Timing
from controller.kube.resources import ENDPOINT_SLICES, REFERENCE_GRANTS, Resource
from tests.component.fake_api import FakeApi, Stream, listing, refusal, reply, serving

PATH = "/apis/discovery.k8s.io/v1/endpointslices"
QUICK = Timing(silence=0.3, connect=1.0, shortest=0.02, longest=0.1, absent=0.05)


def item(name: str, version: str = "1", value: int = 0) -> dict[str, Any]:
    return {"metadata": {"namespace": "store", "name": name, "resourceVersion": version}, "value": value}


class Copy:
    """A sink that tests read as `{name: value}` and can wait on."""

    def __init__(self) -> None:
        self.items: dict[str, int] = {}
        self.replaced = 0
        self._news = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()

    def replace(self, scope: str | None, items: Mapping[tuple[str, str], int]) -> None:
        self.items = {name: value for (_, name), value in items.items()}
        self.replaced += 1
        self._tell()

    def put(self, key: tuple[str, str], record: int) -> None:
        self.items[key[1]] = record
        self._tell()

    def drop(self, key: tuple[str, str]) -> None:
        self.items.pop(key[1], None)
        self._tell()

    def _tell(self) -> None:
        async def tell() -> None:
            async with self._news:
                self._news.notify_all()

        task = asyncio.ensure_future(tell())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def until(self, **expected: int) -> None:
        async with self._news:
            await asyncio.wait_for(self._news.wait_for(lambda: self.items == expected), 5)


@asynccontextmanager
async def reflecting(api: Api, copy: Copy, resource: Resource = ENDPOINT_SLICES) -> AsyncIterator[Reflector[int]]:
    reflector = Reflector(api, resource, lambda found: found["value"], copy, timing=QUICK)
    task = asyncio.ensure_future(reflector.run())
    try:
        yield reflector
        assert not task.done(), task.exception()
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_list_replaces_and_watch_amends() -> None:
    fake, copy, stream = FakeApi(), Copy(), Stream()
    fake.on("LIST", PATH, listing(item("a", value=1)))
    fake.on("WATCH", PATH, stream)

    async with serving(fake) as api, reflecting(api, copy):
        stream.send("ADDED", item("b", "101", value=2))
        stream.send("MODIFIED", item("a", "102", value=3))
        await copy.until(a=3, b=2)
        stream.send("DELETED", item("b", "103"))
        await copy.until(a=3)

    assert copy.replaced == 1


async def test_watches_from_the_version_of_the_list_with_bookmarks_and_selector() -> None:
    fake, copy = FakeApi(), Copy()
    fake.on("LIST", PATH, listing(item("a", "999"), version="1000"))
    fake.on("WATCH", PATH, Stream())

    async with serving(fake) as api, reflecting(api, copy):
        await fake.until("WATCH", PATH)

    query = fake.asked[-1][2]
    assert query["resourceVersion"] == "1000"
    assert query["allowWatchBookmarks"] == "true"
    assert query["labelSelector"] == "kubernetes.io/service-name"
    assert 240 <= int(query["timeoutSeconds"]) <= 360


async def test_pages_are_joined_and_replace_in_one_step() -> None:
    fake, copy = FakeApi(), Copy()
    fake.on("LIST", PATH, listing(item("a"), more="next"), listing(item("b"), version="7"))
    fake.on("WATCH", PATH, Stream())

    async with serving(fake) as api, reflecting(api, copy):
        await copy.until(a=0, b=0)

    assert copy.replaced == 1
    assert fake.asked[1][2]["continue"] == "next"


async def test_an_expired_continuation_starts_the_list_again() -> None:
    fake, copy = FakeApi(), Copy()
    fake.on("LIST", PATH, listing(item("ghost"), more="next"), refusal(410, "Expired"), listing(item("a")))
    fake.on("WATCH", PATH, Stream())

    async with serving(fake) as api, reflecting(api, copy):
        await copy.until(a=0)


@pytest.mark.parametrize("how", ["status", "event"])
async def test_what_vanished_while_the_history_was_lost_is_dropped(how: str) -> None:
    fake, copy, gone, stream = FakeApi(), Copy(), Stream(), Stream()
    fake.on("LIST", PATH, listing(item("ghost"), item("a")), listing(item("a"), version="200"))
    gone.send("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"})
    fake.on("WATCH", PATH, gone if how == "event" else refusal(410, "Expired"), stream)

    async with serving(fake) as api, reflecting(api, copy):
        await copy.until(a=0)
        await fake.until("WATCH", PATH, 2)

    assert fake.asked[-1][2]["resourceVersion"] == "200"


async def test_a_plain_end_resumes_from_the_last_version_bookmarks_included() -> None:
    fake, copy, first, second = FakeApi(), Copy(), Stream(), Stream()
    fake.on("LIST", PATH, listing())
    first.send("ADDED", item("a", "101"))
    first.send("BOOKMARK", {"metadata": {"resourceVersion": "150"}})
    first.end()
    fake.on("WATCH", PATH, first, second)

    async with serving(fake) as api, reflecting(api, copy):
        await fake.until("WATCH", PATH, 2)

    assert fake.asked[-1][2]["resourceVersion"] == "150"
    assert fake.count("LIST", PATH) == 1
    assert copy.items == {"a": 0}


async def test_a_silent_half_open_watch_is_given_up_and_resumed() -> None:
    fake, copy, silent, second = FakeApi(), Copy(), Stream(), Stream()
    fake.on("LIST", PATH, listing())
    silent.send("ADDED", item("a", "101"))
    second.send("ADDED", item("b", "102"))
    fake.on("WATCH", PATH, silent, second)

    async with serving(fake) as api, reflecting(api, copy):
        await copy.until(a=0, b=0)
        await asyncio.wait_for(silent.closed.wait(), 5)

    assert fake.asked[-1][2]["resourceVersion"] == "101"


async def test_a_torn_line_changes_nothing_and_is_resumed_before_it() -> None:
    fake, copy, torn, second = FakeApi(), Copy(), Stream(), Stream()
    fake.on("LIST", PATH, listing(item("a", value=1)))
    torn.raw(b'{"type": "DELETED", "object": {"metadata": {"namespace": "store", "name": "a", "resour')
    torn.end()
    second.send("ADDED", item("b", "101"))
    fake.on("WATCH", PATH, torn, second)

    async with serving(fake) as api, reflecting(api, copy):
        await copy.until(a=1, b=0)

    assert fake.asked[-1][2]["resourceVersion"] == "100"


async def test_lines_longer_than_any_buffer_are_joined() -> None:
    fake, copy, stream = FakeApi(), Copy(), Stream()
    fake.on("LIST", PATH, listing())
    fake.on("WATCH", PATH, stream)

    async with serving(fake) as api, reflecting(api, copy):
        stream.send("ADDED", item("a", "101") | {"padding": "x" * (5 << 20)})
        stream.send("ADDED", item("b", "102"))
        await copy.until(a=0, b=0)


async def test_an_error_inside_a_stream_is_neither_an_end_nor_a_busy_loop() -> None:
    fake, copy, stream = FakeApi(), Copy(), Stream()
    fake.on("LIST", PATH, listing())
    failures = []
    for _ in range(4):
        failing = Stream()
        failing.send("ERROR", {"kind": "Status", "code": 500, "reason": "InternalError", "message": "etcdserver"})
        failures.append(failing)
    stream.send("ADDED", item("a", "101"))
    fake.on("WATCH", PATH, *failures, stream)
    loop = asyncio.get_running_loop()
    started = loop.time()

    async with serving(fake) as api, reflecting(api, copy) as reflector:
        await copy.until(a=0)

    assert loop.time() - started >= (0.02 + 0.04 + 0.08 + 0.1) / 2 - 0.01
    assert reflector.errors == 4
    assert fake.count("LIST", PATH) == 1


async def test_empty_streams_are_paused_between() -> None:
    fake, copy = FakeApi(), Copy()
    fake.on("LIST", PATH, listing())
    fake.on("WATCH", PATH, reply({"metadata": {}}, 429), *[_empty() for _ in range(5)], Stream())
    loop = asyncio.get_running_loop()
    started = loop.time()

    async with serving(fake) as api, reflecting(api, copy):
        await fake.until("WATCH", PATH, 7)

    assert loop.time() - started >= 0.2


def _empty() -> Stream:
    stream = Stream()
    stream.end()
    return stream


async def test_retry_after_is_law() -> None:
    fake, copy = FakeApi(), Copy()
    fake.on("LIST", PATH, refusal(429, "TooManyRequests", Retry_After="1"), listing(item("a")))
    fake.on("WATCH", PATH, Stream())
    loop = asyncio.get_running_loop()
    started = loop.time()

    async with serving(fake) as api, reflecting(api, copy):
        await copy.until(a=0)

    assert loop.time() - started >= 1.0


async def test_a_missing_permission_is_named_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    fake, copy = FakeApi(), Copy()
    fake.on("LIST", PATH, *[refusal(403, "Forbidden")] * 3, listing(item("a")))
    fake.on("WATCH", PATH, Stream())

    with caplog.at_level(logging.WARNING):
        async with serving(fake) as api, reflecting(api, copy):
            await copy.until(a=0)

    named = [record.__dict__["permission"] for record in caplog.records if "permission" in record.__dict__]
    assert named == ["list, watch endpointslices.discovery.k8s.io"] * 3


async def test_an_optional_kind_without_its_crd_counts_as_none_until_it_comes() -> None:
    fake, copy = FakeApi(), Copy()
    path = "/apis/gateway.networking.k8s.io/v1beta1/referencegrants"
    fake.on("LIST", path, refusal(404, "NotFound"), refusal(404, "NotFound"), listing(item("a")))
    fake.on("WATCH", path, Stream())

    async with serving(fake) as api, reflecting(api, copy, REFERENCE_GRANTS):
        await fake.until("LIST", path, 2)
        assert copy.replaced >= 1
        await copy.until(a=0)


async def test_age_counts_from_the_last_byte() -> None:
    fake, copy, stream = FakeApi(), Copy(), Stream()
    fake.on("LIST", PATH, listing())
    fake.on("WATCH", PATH, stream)

    async with serving(fake) as api, reflecting(api, copy) as reflector:
        await asyncio.wait_for(stream.opened.wait(), 5)
        await asyncio.sleep(0.1)
        old, sent = reflector.age(), time.monotonic()
        stream.send("ADDED", item("a", "101"))
        await copy.until(a=0)

        assert old >= 0.1
        assert reflector.age() <= time.monotonic() - sent
