"""Leadership by a Lease object: of all replicas of the operator, its holder alone writes.

Expiry is judged by our own monotonic clock, since the record was last seen to change: clocks of two machines are never
compared. Each write carries the `resourceVersion`, so of two that try at once one fails. The holder gives up well
before others may take over, and a loop that was blocked past that deadline has lost, whatever the record says.
The field layout is client-go's.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import aiohttp
import msgspec

from controller.kube.api import Api, ApiError, Object
from controller.kube.resources import LEASES

log = logging.getLogger(__name__)

EXPECTED = (ApiError, aiohttp.ClientError, TimeoutError, OSError)


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds."""

    duration: float = 15.0  # others wait this long after the last renewal they saw
    deadline: float = 10.0  # the holder stops after this long without a renewal
    period: float = 2.0
    jitter: float = 1.2
    stop: float = 4.0  # for the workers to end after a loss; with `deadline` less than `duration`


class StillWritingError(Exception):
    """The workers did not end in time after a loss; only the end of the process is safe."""


class Elector:
    """`run(lead)` runs `lead` while we hold the Lease, and cancels it when we lose it.

    `identity` is unique to this process, and says how other replicas reach it. Writes are safe for `left` seconds
    yet; who writes asks before each write, and has ended it by then.
    """

    def __init__(
        self,
        api: Api,
        namespace: str,
        name: str,
        identity: str,
        *,
        owner: Object | None = None,
        timing: Timing = Timing(),  # noqa: B008 - frozen
    ) -> None:
        self.identity = identity
        self.holder = ""  # as last read
        self.transitions = 0
        self._api = api
        self._path = LEASES.path(namespace, name)
        self._collection = LEASES.path(namespace)
        self._metadata: Object = {"namespace": namespace, "name": name}
        if owner is not None:
            self._metadata["ownerReferences"] = [owner]
        self._timing = timing
        self._lease: Object | None = None
        self._changed = 0.0  # when the record was last seen to change
        self._renewed: float | None = None  # None: not ours

    def __repr__(self) -> str:
        return f"<Elector {self.identity} {'leading' if self.leading else f'behind {self.holder or None}'}>"

    @property
    def leading(self) -> bool:
        return self.left > 0

    @property
    def left(self) -> float:
        return 0.0 if self._renewed is None else max(0.0, self._renewed + self._timing.deadline - time.monotonic())

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """For ever. Cancelled, it ends `lead` first, then gives the Lease back."""
        try:
            while True:
                await self._acquire()
                log.info("leading", extra={"identity": self.identity})
                await self._hold(lead)
                log.warning("leadership lost", extra={"identity": self.identity})
        finally:
            await self._release()

    async def _acquire(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._timing.deadline):
                    if await self._try():
                        return
            except EXPECTED as error:
                log.info("lease not taken", extra={"error": repr(error)})
            await asyncio.sleep(self._period())

    async def _hold(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Returns once the Lease is lost and `lead` has ended."""
        worker = asyncio.ensure_future(lead())
        try:
            while self.leading:
                done, _ = await asyncio.wait([worker], timeout=self._period())
                if done:
                    worker.result()  # raises what ended them
                    raise RuntimeError("the workers ended by themselves")
                if not await self._renew():
                    break
        finally:
            worker.cancel()
            _, pending = await asyncio.wait([worker], timeout=self._timing.stop)
            self._renewed = None
            if pending:
                raise StillWritingError
            if not worker.cancelled() and (error := worker.exception()) is not None:
                raise error

    async def _renew(self) -> bool:
        """False once the Lease is another's, or the deadline has passed."""
        while (left := self.left) > 0:
            try:
                async with asyncio.timeout(left):
                    return await self._try()
            except EXPECTED as error:
                log.info("lease not renewed", extra={"error": repr(error), "left": round(left, 1)})
            await asyncio.sleep(min(self._period(), left))
        return False

    def _period(self) -> float:
        return self._timing.period * random.uniform(1.0, self._timing.jitter)

    async def _try(self) -> bool:
        """Take or renew, if the record allows it. Raises what the API raises."""
        started = time.monotonic()
        lease = await self._read()
        if lease is None:
            body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": self._metadata}
            self._seen(await self._api.json("POST", self._collection, body=body | {"spec": self._spec({})}))
        else:
            spec = lease.get("spec") or {}
            self.holder = spec.get("holderIdentity") or ""
            expires = self._changed + float(spec.get("leaseDurationSeconds") or self._timing.duration)
            if self.holder not in ("", self.identity) and time.monotonic() < expires:
                return False
            self._seen(await self._api.json("PUT", self._path, body=lease | {"spec": self._spec(spec)}))
        self.holder = self.identity
        self._renewed = started  # others count from the moment of the write, which is later
        return True

    async def _read(self) -> Object | None:
        try:
            self._seen(await self._api.json("GET", self._path))
        except ApiError as error:
            if error.status != 404:
                raise
            self._lease = None
        return self._lease

    def _seen(self, lease: Object) -> None:
        if self._lease is None or _version(lease) != _version(self._lease):
            self._changed = time.monotonic()
        self._lease = lease

    def _spec(self, old: Object) -> Object:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        transitions = old.get("leaseTransitions") or 0
        ours = old.get("holderIdentity") == self.identity
        if not ours:
            transitions += bool(old)
            self.transitions += 1
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": max(1, round(self._timing.duration)),
            "acquireTime": (ours and old.get("acquireTime")) or now,
            "renewTime": now,
            "leaseTransitions": transitions,
        }

    async def _release(self) -> None:
        """Lets another replica take over at once. Without it they wait for the expiry."""
        lease = self._lease
        if lease is None or self.holder != self.identity:
            return
        spec = (lease.get("spec") or {}) | {"holderIdentity": "", "leaseDurationSeconds": 1}
        try:
            async with asyncio.timeout(self._timing.period):
                await self._api.json("PUT", self._path, body=lease | {"spec": spec})
        except EXPECTED as error:
            log.info("lease not released", extra={"error": repr(error)})
        self.holder = ""


def _version(lease: Object) -> object:
    return lease["metadata"].get("resourceVersion")
