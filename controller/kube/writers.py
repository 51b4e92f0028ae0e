"""Writes by server-side apply: all that we own, every time, and nothing else.

A child that is not known to be ours is read by name first, since apply merges silently where no field clashes; there
without our reference, it is a conflict and never touched. A known child is applied with force and with its uid, which
the API server honours as a precondition. What has a deletion timestamp gets no writes at all: under foreground
deletion a re-applying operator makes one more Deployment. Nothing is sent that would change nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Literal

import msgspec

from controller.kube.api import APPLY, Api, ApiError, Object
from controller.kube.resources import (
    BALANCED_SERVICES,
    CHILDREN,
    CHILDREN_MANAGER,
    ENDPOINT_SLICES,
    ENDPOINTS,
    STATUS_MANAGER,
)
from controller.kube.workqueue import TokenBucket
from controller.model.service import GROUP, KIND, VERSION

APPLIED = f"{GROUP}/applied"  # annotation: the digest of what was applied last, to see a field that is left out since
RATE = 50.0  # writes a second; client-go's default of 5 makes a start with 1,000 objects last for minutes
BURST = 200.0
REMEMBERED = 50_000  # children whose last written version is kept

Outcome = Literal["same", "written", "conflict", "later"]
Ownership = Literal["ours", "former", "foreign"]

_ENCODER = msgspec.json.Encoder(order="deterministic")


class Found(msgspec.Struct, frozen=True):
    """A child as it should be, beside what there is of it."""

    desired: Object
    live: Object | None
    owned: Ownership | None  # None: there is none


class NotLeadingError(Exception):
    """The Lease was lost between a decision and the end of its write."""


class NotYetError(Exception):
    """What is to be written can't be said yet."""


class Writers:
    """`lease_left` is asked before each write, which is given so many seconds: the Lease may be lost at any time."""

    def __init__(self, api: Api, lease_left: Callable[[], float]) -> None:
        self.writes = 0
        self._api = api
        self._lease_left = lease_left
        self._bucket: TokenBucket | None = None
        self._written: OrderedDict[str, tuple[str, str]] = OrderedDict()  # uid: (resourceVersion, digest)

    async def look(self, desired: Object, live: Object | None, uid: str) -> Found:
        """What there is of the child; `live` is what the cache has, `uid` its controller's ("": it has none)."""
        # The name of a slice holds a hash, so a stranger's would be no accident; and they need no permission to get.
        read = desired["kind"] != "EndpointSlice" and (live is None or ownership(live, uid) != "ours")
        if read:
            live = await self._read(_path(desired))
        return Found(desired, live, None if live is None else ownership(live, uid))

    async def apply(self, found: Found) -> Outcome:
        """Make the child as desired.

        `conflict`: one of that name is not ours. `later`: it is being deleted, or changed under our hands.
        """
        desired, live = found.desired, found.live
        digest = hashlib.sha256(_ENCODER.encode(desired)).hexdigest()[:16]
        query = [("fieldManager", CHILDREN_MANAGER)]
        meta = desired["metadata"]
        sent = desired | {"metadata": meta | {"annotations": meta.get("annotations", {}) | {APPLIED: digest}}}
        if live is not None:
            if found.owned == "foreign":
                return "conflict"
            if found.owned == "former" or "deletionTimestamp" in live["metadata"]:
                return "later"
            if self._same(live, sent, digest):
                return "same"
            query.append(("force", "true"))
            sent["metadata"]["uid"] = live["metadata"]["uid"]
        try:
            answer = await self._write("PATCH", _path(desired), query=query, body=sent, content_type=APPLY)
        except ApiError as error:
            if error.status == 409:
                return "conflict" if live is None else "later"
            raise
        self._written[answer["metadata"]["uid"]] = (answer["metadata"]["resourceVersion"], digest)
        while len(self._written) > REMEMBERED:
            self._written.popitem(last=False)
        return "written"

    async def delete(self, live: Object) -> None:
        """Delete exactly this child, none that was made under its name since."""
        meta = live["metadata"]
        if "deletionTimestamp" in meta:
            return
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": meta["uid"]},
            "propagationPolicy": "Background",
        }
        self._written.pop(meta["uid"], None)
        try:
            await self._write("DELETE", _path(live), body=options)
        except ApiError as error:
            if error.status not in (404, 409):
                raise

    async def clear_endpoints(self, key: tuple[str, str], slices: Iterable[str]) -> None:
        """Delete what a Service has from the time when it had a selector: its Endpoints, then these slices.

        In this order: from Endpoints that are left over, the mirroring controller makes a slice again.
        """
        doomed = [ENDPOINTS.path(*key), *(ENDPOINT_SLICES.path(key[0], name) for name in slices)]
        for path in doomed:
            try:
                await self._write("DELETE", path)
            except ApiError as error:
                if error.status != 404:
                    raise

    async def status(self, key: tuple[str, str], uid: str, status: Object) -> Object | None:
        """The object after its status was written; None if it is gone or another one by now."""
        body = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": KIND,
            "metadata": {"namespace": key[0], "name": key[1], "uid": uid},
            "status": status,
        }
        try:
            return await self._write(
                "PATCH",
                BALANCED_SERVICES.path(*key, subresource="status"),
                query=[("fieldManager", STATUS_MANAGER), ("force", "true")],
                body=body,
                content_type=APPLY,
            )
        except ApiError as error:
            if error.status in (404, 409):
                return None
            raise

    async def _read(self, path: str) -> Object | None:
        try:
            return await self._api.json("GET", path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def _write(self, method: str, path: str, **request: object) -> Object:
        if self._bucket is None:
            self._bucket = TokenBucket(RATE, BURST, asyncio.get_running_loop().time)
        await asyncio.sleep(self._bucket.take())
        left = self._lease_left()
        if left <= 0:
            raise NotLeadingError
        self.writes += 1
        try:
            # A process that stands still while a connection opens would send it whenever it goes on; this timer is
            # due by then, and the first thing that the write sees.
            async with asyncio.timeout(left):
                return await self._api.json(method, path, **request)
        except TimeoutError:
            if self._lease_left() <= 0:
                raise NotLeadingError from None
            raise

    def _same(self, live: Object, sent: Object, digest: str) -> bool:
        meta = live["metadata"]
        if self._written.get(meta["uid"]) == (meta["resourceVersion"], digest):
            return True
        return (meta.get("annotations") or {}).get(APPLIED) == digest and covers(live, sent)


def _path(child: Object) -> str:
    resource = CHILDREN[child["apiVersion"], child["kind"]]
    return resource.path(child["metadata"]["namespace"], child["metadata"]["name"])


def ownership(live: Object, uid: str) -> Ownership:
    """Whose child it is. `former`: of a BalancedService that was deleted and perhaps made anew; it will be collected.

    With `uid` "" it is one that several objects share: any reference to a BalancedService makes it ours.
    """
    references = live["metadata"].get("ownerReferences") or ()
    ours = [ref for ref in references if ref.get("kind") == KIND and ref["apiVersion"].startswith(f"{GROUP}/")]
    if not uid:
        return "ours" if ours else "foreign"
    controlling = [ref["uid"] for ref in ours if ref.get("controller")]
    if uid in controlling:
        return "ours"
    return "former" if controlling else "foreign"


def covers(live: object, desired: object) -> bool:
    """Whether `live` has all that `desired` says; defaults and others' fields may come on top.

    Entries of a list are matched by their `name` or `type` where all have one, else by their place.
    """
    if isinstance(desired, Mapping):
        return isinstance(live, Mapping) and all(
            key in live and covers(live[key], value) for key, value in desired.items()
        )
    if isinstance(desired, list | tuple):
        if not isinstance(live, list | tuple):
            return False
        for field in ("name", "type"):
            wanted, found = _by(field, desired), _by(field, live)
            if wanted and found:
                return covers(found, wanted)
        return len(live) == len(desired) and all(map(covers, live, desired))
    return live == desired


def _by(field: str, entries: list[object] | tuple[object, ...]) -> dict[object, object]:
    found: dict[object, object] = {
        entry[field]: entry for entry in entries if isinstance(entry, Mapping) and field in entry
    }
    return found if len(found) == len(entries) else {}
