"""Kubernetes Events: what repeats is one series, what is too much is dropped, and no failure goes further."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from controller.kube.events import Recorder, Said
from tests.component.fake_api import FakeApi, refusal, reply, serving

EVENTS = "/apis/events.k8s.io/v1/namespaces/store/events"


def said(note: str = "no endpoint is ready", uid: str = "u") -> Said:
    return Said(("store", "shop"), uid, "Warning", "NoEndpoints", "Ready", note)


@asynccontextmanager
async def recording(fake: FakeApi) -> AsyncIterator[Recorder]:
    async with serving(fake) as api:
        recorder = Recorder(api, "pod-1")
        task = asyncio.ensure_future(recorder.run())
        try:
            yield recorder
            assert not task.done(), task.exception()
        finally:
            task.cancel()
            await asyncio.wait([task])


async def test_an_event_says_what_of_whom_and_by_whom() -> None:
    fake = FakeApi()
    fake.on("POST", EVENTS, reply({}))

    async with recording(fake) as recorder:
        recorder.say(said())
        await fake.until("POST", EVENTS)

    event = fake.bodies("POST", EVENTS)[0]
    assert (event["type"], event["reason"], event["action"]) == ("Warning", "NoEndpoints", "Ready")
    assert (event["reportingController"], event["reportingInstance"]) == ("steelyard.dev/controller", "pod-1")
    assert event["regarding"]["name"] == "shop"
    assert event["eventTime"].endswith("Z")
    assert "series" not in event


async def test_a_repetition_is_counted_in_the_event_there_is() -> None:
    fake = FakeApi()
    fake.on("POST", EVENTS, reply({}))

    async with recording(fake) as recorder:
        recorder.say(said())
        await fake.until("POST", EVENTS)
        path = f"{EVENTS}/{fake.bodies('POST', EVENTS)[0]['metadata']['name']}"
        fake.on("PATCH", path, reply({}))
        recorder.say(said())
        recorder.say(said())
        await fake.until("PATCH", path, 2)

    assert [body["series"]["count"] for body in fake.bodies("PATCH", path)] == [2, 3]
    assert fake.count("POST", EVENTS) == 1


async def test_a_series_whose_event_has_expired_begins_anew() -> None:
    fake = FakeApi()
    fake.on("POST", EVENTS, reply({}))

    async with recording(fake) as recorder:
        recorder.say(said())
        recorder.say(said())  # the PATCH gets 404
        await fake.until("POST", EVENTS, 2)


async def test_one_object_says_no_more_than_its_share() -> None:
    fake = FakeApi()
    fake.on("POST", EVENTS, reply({}))

    async with recording(fake) as recorder:
        for number in range(40):
            recorder.say(said(str(number)))
        recorder.say(said(uid="other"))
        await fake.until("POST", EVENTS, 26)

    assert recorder.dropped == 15
    assert fake.count("POST", EVENTS) == 26


async def test_an_event_that_is_refused_is_dropped_and_counted() -> None:
    fake = FakeApi()
    fake.on("POST", EVENTS, refusal(403, "Forbidden"), reply({}))

    async with recording(fake) as recorder:
        recorder.say(said("first"))
        recorder.say(said("second"))
        await fake.until("POST", EVENTS, 2)

    assert recorder.dropped == 1
