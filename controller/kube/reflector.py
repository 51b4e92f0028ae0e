"""A local copy of one kind of object: LIST replaces, WATCH amends, 410 starts again.

What an event can't be trusted to say (a deletion while the history was lost) the next list does: it replaces the whole
map in one step. A stream that ends as it should is resumed from the last version seen, bookmarks included; one that
fails, after a pause that grows and is jittered. There is always a pause: a stale version may be answered with an empty
stream, over and over.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar

import aiohttp
import msgspec

from controller.kube.api import Api, ApiError, Object
from controller.kube.resources import Resource

R = TypeVar("R")
R_contra = TypeVar("R_contra", contravariant=True)
Key = tuple[str, str]

LINE_BYTES = 16 << 20  # of one event at most; the API server's own limit for an object is 3 MiB

log = logging.getLogger(__name__)


class Sink(Protocol[R_contra]):
    """Where the copy is kept."""

    def replace(self, scope: str | None, items: Mapping[Key, R_contra]) -> None:
        """All there is in the namespace `scope` (None: everywhere)."""

    def put(self, key: Key, record: R_contra) -> None: ...

    def drop(self, key: Key) -> None: ...


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds."""

    silence: float = 70.0  # a bookmark comes about each minute; without it the connection is half open
    connect: float = 5.0
    shortest: float = 0.25  # pause between two connections
    longest: float = 30.0
    server: tuple[int, int] = (240, 360)  # after which the server ends a stream; random, or all end at once
    absent: float = 30.0  # until an absent optional kind is looked for again


class TornStreamError(Exception):
    """A stream that ended within a line, or sent what is no event."""


async def pages(api: Api, resource: Resource, namespace: str | None) -> AsyncIterator[Object]:
    """A list, page by page. Raises what the API raises; an expired continuation is a 410."""
    query = [("limit", "500")]
    if resource.selector:
        query.append(("labelSelector", resource.selector))
    more = ""
    while True:
        page = await api.json(
            "GET",
            resource.path(namespace),
            query=[*query, ("continue", more)] if more else query,
            accept=resource.accept(listed=True),
        )
        yield page
        more = page["metadata"].get("continue") or ""
        if not more:
            return


class Reflector(Generic[R]):
    """Copies `resource` (of one namespace, or of all) into `sink`, each object as what `record` makes of it.

    `record` returns None for an object that is of no interest. `age()` is the time since the API server was last
    heard; it is a fault of the stream when it passes `silence` by far.
    """

    def __init__(
        self,
        api: Api,
        resource: Resource,
        record: Callable[[Object], R | None],
        sink: Sink[R],
        *,
        namespace: str | None = None,
        timing: Timing = Timing(),  # noqa: B008 - frozen
    ) -> None:
        self.resource = resource
        self.namespace = namespace
        self.errors = 0
        self.listed: Callable[[], None] = lambda: None  # called after each whole list
        self.reached = 0  # the highest version heard of: of a list, an event or a bookmark
        self._api = api
        self._record = record
        self._sink = sink
        self._timing = timing
        self._version: str | None = None  # None: list first
        self._heard = time.monotonic()
        self._fresh = False  # something came since the last connection was made

    def __repr__(self) -> str:
        return f"<Reflector {self.resource} in {self.namespace or 'all'} at {self._version}>"

    def age(self) -> float:
        """Seconds since the last byte."""
        return time.monotonic() - self._heard

    async def run(self) -> None:
        """For ever; only a bug ends it."""
        failures = 0
        while True:
            self._fresh = False
            least = 0.0
            try:
                if self._version is None:
                    await self._list()
                await self._watch()
                failures = 0 if self._fresh else failures + 1
            except ApiError as error:
                failures = 1 if self._fresh else failures + 1
                least = self._refused(error, failures)
            except (aiohttp.ClientError, TimeoutError, OSError, TornStreamError, msgspec.DecodeError) as error:
                failures = 1 if self._fresh else failures + 1
                self._failed(error, failures)
            await asyncio.sleep(max(least, self._pause(failures)))

    def _pause(self, failures: int) -> float:
        longest = min(self._timing.longest, self._timing.shortest * 2.0 ** min(failures, 16))
        return random.uniform(longest / 2, longest)

    def _refused(self, error: ApiError, failures: int) -> float:
        """What follows from a refusal; returns the least pause."""
        if error.status == 410:
            log.info("history lost, listing again", extra={"resource": str(self.resource)})
            self._version = None
            return 0.0
        if error.status == 404 and self.resource.optional:
            self._version = None
            self._heard = time.monotonic()
            self._sink.replace(self.namespace, {})
            return self._timing.absent
        if error.status == 403:
            # The server says who may not do what; a role that is mended later is enough.
            log.warning(
                "permission missing",
                extra={"permission": f"list, watch {self.resource}", "namespace": self.namespace, "error": str(error)},
            )
        self._failed(error, failures)
        return error.retry_after or 0.0

    def _failed(self, error: BaseException, failures: int) -> None:
        self.errors += 1
        log.log(
            logging.WARNING if failures > 1 else logging.INFO,
            "watch failed",
            extra={"resource": str(self.resource), "error": repr(error), "failures": failures},
        )

    async def _list(self) -> None:
        items: dict[Key, R] = {}
        version = None
        async for page in pages(self._api, self.resource, self.namespace):
            self._heard = time.monotonic()
            for item in page.get("items") or ():
                record = self._record(item)
                if record is not None:
                    items[_key(item)] = record
            # Of the list, not of its last item: from there history would be replayed.
            version = page["metadata"]["resourceVersion"]
        self._at(version)
        self._sink.replace(self.namespace, items)
        self.listed()

    async def _watch(self) -> None:
        assert self._version is not None
        query = [
            ("watch", "1"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", self._version),
            ("timeoutSeconds", str(random.randint(*self._timing.server))),
        ]
        if self.resource.selector:
            query.append(("labelSelector", self.resource.selector))
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._timing.connect, sock_read=self._timing.silence)
        path, accept = self.resource.path(self.namespace), self.resource.accept(listed=False)
        async with self._api.open("GET", path, query=query, accept=accept, timeout=timeout) as answer:
            async for line in self._lines(answer.content):
                self._event(msgspec.json.decode(line))

    async def _lines(self, content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
        rest = bytearray()
        async for chunk in content.iter_any():
            self._heard = time.monotonic()
            rest += chunk
            if b"\n" in chunk:
                *lines, last = rest.split(b"\n")
                rest = bytearray(last)
                for line in lines:
                    if line:
                        yield bytes(line)
            elif len(rest) > LINE_BYTES:
                raise TornStreamError(f"more than {LINE_BYTES} bytes in one line")
        if rest:
            raise TornStreamError(f"ended after {len(rest)} bytes of a line")

    def _event(self, event: dict[str, Any]) -> None:
        kind, item = event.get("type"), event.get("object")
        if not isinstance(item, dict):
            raise TornStreamError("an event without an object")
        if kind == "ERROR":
            raise ApiError.of(item)
        self._fresh = True
        if kind in ("ADDED", "MODIFIED"):
            record = self._record(item)
            if record is None:
                self._sink.drop(_key(item))
            else:
                self._sink.put(_key(item), record)
        elif kind == "DELETED":
            self._sink.drop(_key(item))
        self._at(item["metadata"]["resourceVersion"])

    def _at(self, version: str | None) -> None:
        self._version = version
        if version is not None and version.isdecimal():
            self.reached = max(self.reached, int(version))


def _key(item: Object) -> Key:
    metadata = item["metadata"]
    return metadata.get("namespace") or "", metadata["name"]
