"""Writing, on the Lease's holder: one key at a time, from the store's state alone to children and status.

A user's mistake is a condition and no reason to try again. What the API refuses is tried again after a back-off; a bug
is logged, counted and backed off too. All keys come again every 10 to 15 minutes, and whenever the Lease is taken.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime

import aiohttp
import msgspec

from controller.kube.api import ApiError, Object
from controller.kube.events import Recorder, Said, news
from controller.kube.leftovers import left_over
from controller.kube.rollouts import Rollouts, deployments, held, rolls
from controller.kube.store import ChildKey, Store
from controller.kube.workqueue import Workqueue
from controller.kube.writers import Found, NotLeadingError, NotYetError, Outcome, Writers, covers, ownership
from controller.model.conditions import transition
from controller.model.service import BalancedService
from controller.translate import Translated, translate
from controller.translate.fleet import SILENT
from controller.translate.inputs import Key
from controller.translate.status import Status

WORKERS = 8  # keys in hand at once; they mostly wait for the API server
AGAIN = (600.0, 900.0)  # seconds until a key is looked at again, whatever happens
LATER = 2.0  # until something that is being deleted is looked at again
TURN = 30.0  # until a Deployment that waits for its turn to roll is looked at again, unless one ends before
ROLLOUTS = 5  # Deployments that roll at a time
CONFLICT = 30.0  # until a same-named object of someone else's is looked at again
SETTLING = 15.0  # after a take-over, until the other replicas have passed on what their proxies said
COUNTS = 1.0  # between two writes of a status whose conditions are the same
PER_PROXY = 0.002  # seconds that a report may wait for those of the others; a look costs a hundredth of it

EXPECTED = (ApiError, aiohttp.ClientError, TimeoutError, OSError)

log = logging.getLogger(__name__)

Children = Callable[[BalancedService, Translated], Sequence[Object]]
Shared = Callable[[str, Collection[BalancedService]], Sequence[Object]]


class Desired(msgspec.Struct, frozen=True, kw_only=True):
    """What should be there, as pure functions, which raise NotYetError while they lack something themselves."""

    children: Children  # of one object
    shared: Shared  # of one namespace and its objects


class _Written(msgspec.Struct, frozen=True):
    uid: str
    status: Object
    at: float


class Reconciler:
    """`changed` from the store; `run` while the Lease is ours."""

    def __init__(
        self, store: Store, writers: Writers, recorder: Recorder, desired: Desired, rollouts: int = ROLLOUTS
    ) -> None:
        self.failures = 0
        self._store = store
        self._writers = writers
        self._recorder = recorder
        self._desired = desired
        self._queue: Workqueue[Key] | None = None  # None: not leading
        self._since = -math.inf  # when the Lease was taken
        self._statuses: dict[Key, _Written] = {}  # as last written; the cache may lag behind
        self._rollouts = Rollouts(rollouts)
        self._turns: dict[Key, None] = {}  # objects whose Deployment waits for its turn, the first first

    def __repr__(self) -> str:
        return f"<Reconciler {self._queue if self._queue is not None else 'idle'} failures={self.failures}>"

    @property
    def queued(self) -> int:
        return len(self._queue) if self._queue is not None else 0

    def changed(self, key: Key) -> None:
        if self._queue is not None:
            self._queue.add(key)

    def reported(self, key: Key, proxies: int) -> None:
        """So many proxies have the object, and what one of them says has changed.

        All of them are looked at each time, and they all speak up when the object changes: the more there are, the
        more of them are waited for.
        """
        if self._queue is not None:
            self._queue.after(key, min(COUNTS, proxies * PER_PROXY))

    async def run(self) -> None:
        """Until cancelled."""
        self._statuses.clear()
        self._turns.clear()
        self._since = time.monotonic()
        self._queue = queue = Workqueue[Key]()
        try:
            for key in self._store.keys:
                queue.add(key)
            for namespace in {key[0] for key in self._store.keys}:
                queue.add((namespace, ""))
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._recorder.run(), name="events")
                for number in range(WORKERS):
                    tasks.create_task(self._work(queue), name=f"writer {number}")
        finally:
            self._queue = None
            queue.close()

    async def _work(self, queue: Workqueue[Key]) -> None:
        while True:
            key = await queue.get()
            try:
                again = await self.reconcile(key)
            except (NotLeadingError, NotYetError):
                queue.retry(key)
            except EXPECTED as error:
                if isinstance(error, ApiError) and error.terminating:
                    queue.after(key, CONFLICT)  # it goes with its namespace
                else:
                    self.failures += 1
                    self._refused(key, error)
                    queue.retry(key)
            except Exception:
                # A bug with one object: the others go on, and this one is tried ever more rarely.
                self.failures += 1
                log.exception("not reconciled", extra={"object": "/".join(key)})
                queue.retry(key)
            else:
                queue.forget(key)
                if self._turns and key not in self._turns:
                    queue.add(next(iter(self._turns)))  # perhaps it was this one that it waits for
                if again is not None:
                    queue.after(key, again)
            finally:
                queue.done(key)

    def _refused(self, key: Key, error: BaseException) -> None:
        log.warning("write failed", extra={"object": "/".join(key), "error": str(error) or repr(error)})
        owner = self._store.owners.get(key)
        if isinstance(error, ApiError) and error.status in (400, 403, 422) and owner is not None:
            self._recorder.say(Said(key, owner.uid, "Warning", "WriteRefused", "Write", str(error)))

    async def reconcile(self, key: Key) -> float | None:
        """Make children and status of `key` as they should be; returns seconds until it is looked at again."""
        if not key[1]:
            return await self._reconcile_shared(key[0])
        self._turns.pop(key, None)
        owner, service = self._store.owners.get(key), self._store.inputs.objects.get(key)
        if owner is None or service is None or owner.deleting:
            if owner is None:
                self._statuses.pop(key, None)
            return None  # what it owns goes by garbage collection
        result, waits = translate(self._store.inputs, key), [random.uniform(*AGAIN)]
        refused: ApiError | None = None
        if isinstance(service, BalancedService) and result.snapshot is not None:
            wanted = self._desired.children(service, result)
            try:
                if not self._store.children.keys() & {key, (key[0], "")}:
                    # The proxies' pods mount it: one that is quicker waits a minute for the kubelet's next look.
                    await self._reconcile_shared(key[0])
                conflicts, later = await self._reconcile_children(key, owner.uid, wanted)
            except ApiError as error:
                refused = error  # the status is told all the same
            else:
                self._store.set_conflicts(key, conflicts)
                waits += [CONFLICT] * bool(conflicts) + [LATER] * later + [TURN] * (key in self._turns)
        if self._store.owners.get(key) is not None:  # else it went while we waited
            waits.append(await self._reconcile_status(key, translate(self._store.inputs, key).status))
        if refused is not None:
            raise refused
        silent = [SILENT - report.age for report in self._store.inputs.reports.get(key, ())]
        return min(waits + [left + 0.1 for left in silent if left > 0])

    async def _reconcile_children(self, key: Key, uid: str, wanted: Sequence[Object]) -> tuple[list[str], bool]:
        """The names in conflict, with which nothing is written; and whether to look again soon."""
        live = dict(self._store.children.get(key, {}))
        found = [await self._writers.look(child, live.pop(_child_key(child), None), uid) for child in wanted]
        conflicts = [_title(each.desired) for each in found if each.owned == "foreign"]
        if conflicts:
            return conflicts, False
        later = False
        for each in found:
            outcome = await self._apply(key, each)
            if outcome == "conflict":
                conflicts.append(_title(each.desired))
            later = later or outcome == "later"
        for child in live.values():
            if ownership(child, uid) == "ours":
                await self._writers.delete(child)
        later = await self._clear_endpoints(key, uid, wanted) or later
        return conflicts, later

    async def _clear_endpoints(self, key: Key, uid: str, wanted: Sequence[Object]) -> bool:
        slices = [each.name for each in self._store.inputs.slices.get(key, ())]
        theirs = left_over(key[1], uid, wanted, slices, self._store.children.get(key, {}))
        if theirs:
            await self._writers.clear_endpoints(key, theirs)
        return bool(theirs)

    async def _apply(self, key: Key, found: Found) -> Outcome:
        """Write a child; of a Deployment that must wait for its turn to roll, only what replaces no pod."""
        live, desired = found.live, found.desired
        if live is None or desired["kind"] != "Deployment" or not rolls(live, desired):
            return await self._writers.apply(found)
        if not self._rollouts.admit(live, deployments(self._store.children)):
            self._turns[key] = None
            rest = held(live, desired)
            return "same" if rest is None else await self._writers.apply(Found(rest, live, found.owned))
        outcome: Outcome | None = None
        try:
            outcome = await self._writers.apply(found)
        finally:
            if outcome != "written":
                self._rollouts.withdraw(live)
        return outcome

    async def _reconcile_shared(self, namespace: str) -> float | None:
        objects = self._store.inputs.objects.values()
        owners = [each for each in objects if isinstance(each, BalancedService) and each.namespace == namespace]
        if not owners:
            return None
        live, waits = self._store.children.get((namespace, ""), {}), [random.uniform(*AGAIN)]
        for child in self._desired.shared(namespace, owners):
            found = await self._writers.look(child, live.get(_child_key(child)), "")
            outcome = await self._writers.apply(found)
            if outcome == "conflict":
                log.warning("not ours, left alone", extra={"child": _title(child), "namespace": namespace})
                waits.append(CONFLICT)
            elif outcome == "later":
                waits.append(LATER)
        return min(waits)

    async def _reconcile_status(self, key: Key, status: Status) -> float:
        """Write it if it differs; returns seconds until it is looked at again."""
        owner, written = self._store.owners[key], self._statuses.get(key)
        if written is not None and written.uid != owner.uid:
            written = None
        last = written.status if written is not None else owner.status
        before = last.get("conditions") or ()
        conditions = transition(before, status.facts, status.observed_generation, datetime.now(UTC))
        desired = status.as_dict() | {"conditions": conditions}
        left = self._since + SETTLING - time.monotonic()
        if left > 0 and _unheard(last.get("conditions") or (), desired["conditions"]):
            return left
        # Others may have conditions of their own there. After a take-over a field of ours that is left out now
        # could be among what is not: then one write more, which changes nothing.
        if desired == last and covers(owner.status, desired):
            return AGAIN[1]
        if written is not None and desired["conditions"] == last.get("conditions"):
            left = written.at + COUNTS - time.monotonic()
            if left > 0:
                return left
        answer = await self._writers.status(key, owner.uid, desired)
        if answer is None:
            return LATER
        self._statuses[key] = _Written(owner.uid, desired, time.monotonic())
        for said in news(key, owner.uid, before, conditions):
            self._recorder.say(said)
        self._seen(key, answer)
        return AGAIN[1]

    def _seen(self, key: Key, answer: Object) -> None:
        """Our own write, ahead of its event; unless a newer spec came meanwhile."""
        owner, meta = self._store.owners.get(key), answer["metadata"]
        if owner is not None and owner.uid == meta["uid"] and owner.generation <= meta["generation"]:
            self._store.event("MODIFIED", answer)


def _unheard(before: Iterable[Object], after: Iterable[Object]) -> bool:
    """Whether `Programmed` would be lost for this same generation, which a proxy not heard from yet may explain."""
    old = next((each for each in before if each["type"] == "Programmed"), None)
    new = next(each for each in after if each["type"] == "Programmed")
    if old is None or old.get("observedGeneration") != new["observedGeneration"]:
        return False
    return bool(old["status"] == "True" and new["reason"] == "Pending")


def _child_key(child: Object) -> ChildKey:
    return child["apiVersion"], child["kind"], child["metadata"]["name"]


def _title(child: Object) -> str:
    return f"{child['kind']} {child['metadata']['name']}"
