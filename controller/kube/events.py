"""Kubernetes Events (events.k8s.io/v1) about BalancedServices: transitions only, bounded per object.

What repeats within a series is counted in the Event there is. An Event that can't be written is dropped and counted:
it never fails what it reports.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Literal

import aiohttp
import msgspec

from controller.kube.api import Api, ApiError, Object
from controller.kube.resources import EVENTS
from controller.kube.workqueue import TokenBucket
from controller.model.service import GROUP, KIND, VERSION

CONTROLLER = f"{GROUP}/controller"
SERIES = 360.0  # seconds within which the same is a repetition, as in client-go
PER_OBJECT = 25.0  # in a burst, then one per 5 minutes, as in client-go
REFILL = 1 / 300
REMEMBERED = 4096
WAITING = 1000
NOTE = 1024  # characters, the API's limit

log = logging.getLogger(__name__)


class Said(msgspec.Struct, frozen=True):
    """What is said of one object; equal ones are one series."""

    key: tuple[str, str]
    uid: str
    type: Literal["Normal", "Warning"]
    reason: str
    action: str
    note: str
    kind: tuple[str, str] = (f"{GROUP}/{VERSION}", KIND)  # apiVersion and kind of the object


def news(key: tuple[str, str], uid: str, before: Iterable[Object], after: Iterable[Object]) -> Iterator[Said]:
    """What is to be said of an object's conditions when they have become others."""
    known = {each["type"]: each for each in before}
    for condition in after:
        old = known.get(condition["type"])
        same = old is not None and (old["status"], old["reason"]) == (condition["status"], condition["reason"])
        if same or (old is None and condition["status"] != "True"):
            continue  # at first everything waits for something; that is no news
        good = condition["status"] == "True"
        note = condition["message"] or f"{condition['type']} is {condition['status']}"
        yield Said(key, uid, "Normal" if good else "Warning", condition["reason"], condition["type"], note)


class _Series(msgspec.Struct):
    name: str
    count: int
    last: float


class Recorder:
    """`say` is a plain call that never waits; `run` writes what was said."""

    def __init__(self, api: Api, instance: str) -> None:
        self.dropped = 0
        self._api = api
        self._instance = instance
        self._waiting: asyncio.Queue[Said] = asyncio.Queue(WAITING)
        self._series: OrderedDict[Said, _Series] = OrderedDict()
        self._budgets: OrderedDict[str, TokenBucket] = OrderedDict()

    def say(self, said: Said) -> None:
        budget = self._budgets.setdefault(said.uid, TokenBucket(REFILL, PER_OBJECT, time.monotonic))
        self._budgets.move_to_end(said.uid)
        while len(self._budgets) > REMEMBERED:
            self._budgets.popitem(last=False)
        if not budget.spend() or self._waiting.full():
            self.dropped += 1
            return
        self._waiting.put_nowait(said)

    async def run(self) -> None:
        """For ever."""
        while True:
            said = await self._waiting.get()
            try:
                await self._write(said)
            except (ApiError, aiohttp.ClientError, TimeoutError, OSError) as error:
                self.dropped += 1
                if isinstance(error, ApiError) and error.terminating:
                    continue
                log.info("event not written", extra={"object": "/".join(said.key), "error": repr(error)})

    async def _write(self, said: Said) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        series = self._series.get(said)
        if series is not None and time.monotonic() - series.last < SERIES:
            series.count += 1
            series.last = time.monotonic()
            try:
                await self._api.json(
                    "PATCH",
                    EVENTS.path(said.key[0], series.name),
                    body={"series": {"count": series.count, "lastObservedTime": now}},
                    content_type="application/merge-patch+json",
                )
            except ApiError as error:
                if error.status != 404:  # Events live for an hour only
                    raise
            else:
                return
        name = f"{said.key[1]}.{secrets.token_hex(8)}"
        await self._api.json("POST", EVENTS.path(said.key[0]), body=self._event(said, name, now))
        self._series[said] = _Series(name, 1, time.monotonic())
        self._series.move_to_end(said)
        while len(self._series) > REMEMBERED:
            self._series.popitem(last=False)

    def _event(self, said: Said, name: str, now: str) -> Object:
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"namespace": said.key[0], "name": name},
            "eventTime": now,
            "type": said.type,
            "reason": said.reason,
            "action": said.action,
            "note": said.note[:NOTE],
            "reportingController": CONTROLLER,
            "reportingInstance": self._instance[:128],
            "regarding": {
                "apiVersion": said.kind[0],
                "kind": said.kind[1],
                "namespace": said.key[0],
                "name": said.key[1],
                "uid": said.uid,
            },
        }
