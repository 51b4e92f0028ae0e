"""The Lease: who may write, and who must stop. Two electors share one record, kept by the test's own answers."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from aiohttp import web

from controller.kube.lease import Elector, StillWritingError, Timing
from tests.component.fake_api import FakeApi, refusal, reply, serving

COLLECTION = "/apis/coordination.k8s.io/v1/namespaces/ours/leases"
PATH = f"{COLLECTION}/controller"
QUICK = Timing(duration=1.0, deadline=0.6, period=0.05, stop=0.3)


class Record:
    """The one object that these tests need kept, with the API server's optimistic locking."""

    def __init__(self, fake: FakeApi) -> None:
        self.lease: dict[str, Any] | None = None
        self.cut = False  # the server hangs
        self.version = 0
        for verb, path in (("GET", PATH), ("PUT", PATH), ("POST", COLLECTION)):
            fake.on(verb, path, self.answer)

    @property
    def holder(self) -> str:
        return str(self.lease["spec"]["holderIdentity"]) if self.lease else ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if self.cut:
            await asyncio.Event().wait()
        if request.method == "GET":
            return await (reply(self.lease) if self.lease else refusal(404, "NotFound"))(request)
        sent = await request.json()
        if request.method == "PUT":
            assert self.lease is not None
            if sent["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
                return await refusal(409, "Conflict")(request)
        elif self.lease is not None:
            return await refusal(409, "AlreadyExists")(request)
        self.version += 1
        self.lease = sent | {"metadata": sent["metadata"] | {"resourceVersion": str(self.version)}}
        return await reply(self.lease)(request)


class Leader:
    """What is run while leading: shows that it started and ended."""

    def __init__(self) -> None:
        self.started, self.ended = asyncio.Event(), asyncio.Event()

    async def __call__(self) -> None:
        self.started.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.set()


async def _end(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def test_the_first_takes_it_and_renews_and_the_second_waits() -> None:
    fake = FakeApi()
    Record(fake)
    first, second = Leader(), Leader()
    async with serving(fake) as api:
        one = Elector(api, "ours", "controller", "one", timing=QUICK)
        two = Elector(api, "ours", "controller", "two", timing=QUICK)
        a = asyncio.ensure_future(one.run(first))
        await asyncio.wait_for(first.started.wait(), 5)
        b = asyncio.ensure_future(two.run(second))
        await asyncio.sleep(QUICK.duration * 1.5)

        assert (repr(one), repr(two)) == ("<Elector one leading>", "<Elector two behind one>")
        assert not second.started.is_set()
        await _end(a, b)


async def test_a_stopped_holder_hands_over_at_once_and_only_after_its_workers() -> None:
    fake = FakeApi()
    record = Record(fake)
    first, second = Leader(), Leader()
    async with serving(fake) as api:
        one = Elector(api, "ours", "controller", "one", timing=Timing())
        two = Elector(api, "ours", "controller", "two", timing=Timing(period=0.05))
        a = asyncio.ensure_future(one.run(first))
        await asyncio.wait_for(first.started.wait(), 5)
        b = asyncio.ensure_future(two.run(second))
        await _end(a)

        assert first.ended.is_set()
        await asyncio.wait_for(second.started.wait(), 2)  # far less than the 15 s of an expiry
        assert record.holder == "two"
        assert record.lease is not None
        assert record.lease["spec"]["leaseTransitions"] == 1
        await _end(b)


async def test_a_holder_that_is_cut_off_stops_before_another_may_start() -> None:
    fake = FakeApi()
    record = Record(fake)
    first, second = Leader(), Leader()
    other = FakeApi()
    for verb, path in (("GET", PATH), ("PUT", PATH), ("POST", COLLECTION)):
        other.on(verb, path, _without_cut(record))
    async with serving(fake) as api, serving(other) as reachable:
        one = Elector(api, "ours", "controller", "one", timing=QUICK)
        two = Elector(reachable, "ours", "controller", "two", timing=QUICK)
        a = asyncio.ensure_future(one.run(first))
        await asyncio.wait_for(first.started.wait(), 5)
        b = asyncio.ensure_future(two.run(second))
        await fake.until("PUT", PATH, 2)
        record.cut = True
        await asyncio.wait_for(second.started.wait(), 5)

        assert first.ended.is_set()
        assert not one.leading
        assert two.leading
        await _end(a, b)


def _without_cut(record: Record) -> Any:
    async def answer(request: web.Request) -> web.StreamResponse:
        cut, record.cut = record.cut, False
        try:
            return await record.answer(request)
        finally:
            record.cut = cut

    return answer


async def test_a_loop_blocked_past_the_deadline_has_lost() -> None:
    fake = FakeApi()
    Record(fake)
    leader = Leader()
    async with serving(fake) as api:
        elector = Elector(api, "ours", "controller", "one", timing=QUICK)
        task = asyncio.ensure_future(elector.run(leader))
        await asyncio.wait_for(leader.started.wait(), 5)
        time.sleep(QUICK.deadline)  # noqa: ASYNC251 - the subject of the test

        assert not elector.leading
        await asyncio.wait_for(leader.ended.wait(), 5)
        await _end(task)


async def test_workers_that_do_not_end_end_the_process() -> None:
    fake = FakeApi()
    record = Record(fake)
    started, release = asyncio.Event(), asyncio.Event()

    async def stubborn() -> None:
        started.set()
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    async with serving(fake) as api:
        elector = Elector(api, "ours", "controller", "one", timing=QUICK)
        task = asyncio.ensure_future(elector.run(stubborn))
        await asyncio.wait_for(started.wait(), 5)
        record.cut = True

        with pytest.raises(StillWritingError):
            await asyncio.wait_for(task, 5)
        release.set()


async def test_a_worker_that_fails_ends_the_elector() -> None:
    fake = FakeApi()
    Record(fake)

    async def broken() -> None:
        raise ZeroDivisionError

    async with serving(fake) as api:
        elector = Elector(api, "ours", "controller", "one", timing=QUICK)
        with pytest.raises(ZeroDivisionError):
            await asyncio.wait_for(elector.run(broken), 5)
