"""What makes several processes balance as one: nodes whose load is the pod's, and outcomes told to who decides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Protocol

from controller.balancing.node import FAILURES, Kind, Node, Observer
from controller.balancing.picker import PickRequest
from controller.model.endpoints import Endpoint
from controller.proxy.block import Block, Slots

CLIENTS = ""  # no endpoint's identity: the slot where an upstream's client connections are counted
OTHERS_AGE = 0.005  # seconds that full scans may use old sums of the other workers for: the sum costs 0.1 µs a node


class Sharing(Protocol):
    """How an Upstream of one process is bound to those of the others."""

    def node(self, upstream: str, endpoint: Endpoint, now: float) -> Node: ...

    def returned(self, upstream: str, node: Node) -> None:
        """The endpoint is listed again; its slot may have gone to another meanwhile."""
        ...

    def observer(self, upstream: str) -> Observer | None:
        """Who hears of answers in the ejection's place; None: the ejection itself does."""
        ...

    def answers(self, node: Node) -> tuple[int, int] | None:
        """The pod's `ok` and `total` since the last call; None where this process doesn't judge."""
        ...


def fresh(pick: Callable[[PickRequest], Node], nodes: Iterable[Node]) -> Callable[[PickRequest], Node]:
    """The same pick, over loads of the other workers that are not too old. `nodes`: a live view of them."""
    stamp = -inf

    def fresh_pick(request: PickRequest) -> Node:
        nonlocal stamp
        if request.now - stamp >= OTHERS_AGE:
            stamp = request.now
            for node in nodes:
                node.refresh()
        return pick(request)

    return fresh_pick


class SharedNode(Node):
    """A Node whose load is the pod's. `slot` may change only while nothing is in flight here."""

    __slots__ = ("_at_limit", "_own", "_rows", "base", "good", "slot")

    def __init__(self, endpoint: Endpoint, now: float, block: Block, row: int, slot: int) -> None:
        super().__init__(endpoint, now)
        self.slot = slot
        self.base = block.answers(slot)  # what former owners of the slot have left
        self.good = self.base[0]  # the pod's good answers as of the latest failure that the parent heard of
        self._own = block.inflight[row]
        self._rows = tuple(cells for index, cells in enumerate(block.inflight) if index != row)
        self._at_limit = False

    @property
    def full(self) -> bool:
        return self._at_limit and self.limit > 0

    def load(self) -> int:
        """Exact: two draws compare nothing else, and the limit is the pod's."""
        load, slot = self.inflight, self.slot
        for row in self._rows:
            load += row[slot]
        return load

    def refresh(self) -> None:
        """Bring `others`, which full scans read, up to date."""
        self.others = self.load() - self.inflight

    def crowded(self) -> bool:
        full = 0 < self.limit <= self.load()
        if full is not self._at_limit:
            self._at_limit = full
            if self.gate is not None:
                (self.gate.filled if full else self.gate.freed)(self)
        return full

    def start(self, now: float) -> None:
        self.inflight += 1
        self._own[self.slot] = self.inflight
        for total in self.totals:
            total.inflight += 1
        if self.limit:
            self.crowded()

    def finish(self, now: float, kind: Kind, seconds: float | None = None) -> None:
        self.inflight -= 1
        self._own[self.slot] = self.inflight
        for total in self.totals:
            total.inflight -= 1
        if self.limit:
            self.crowded()
        if seconds is not None:
            for observe in self.observers:
                observe(self, now, kind, seconds, None)


# upstream, node, when, kind, seconds to it, the worker's count of good answers before it
Tell = Callable[[str, str, float, Kind, float, int], None]


class Carrying:
    """A worker's part: counts in its row, and tells of what the parent must judge at once."""

    def __init__(self, block: Block, worker: int, tell: Tell) -> None:
        self._block = block
        self._worker = worker
        self._tell = tell
        self._slots: dict[str, Mapping[str, int]] = {}

    def assign(self, upstream: str, slots: Mapping[str, int]) -> None:
        """To be called before the upstream is changed."""
        self._slots[upstream] = slots

    def node(self, upstream: str, endpoint: Endpoint, now: float) -> Node:
        slot = self._slots.get(upstream, {}).get(endpoint.id)
        if slot is None:
            return Node(endpoint, now)
        return SharedNode(endpoint, now, self._block, self._worker, slot)

    def returned(self, upstream: str, node: Node) -> None:
        slot = self._slots.get(upstream, {}).get(node.id)
        if isinstance(node, SharedNode) and slot is not None:
            node.slot = slot  # another one only if nothing was in flight on it anywhere

    def forget(self, upstream: str) -> None:
        """It is gone, and nobody is on it any more: its slot says so, for the next one that is given it."""
        self.clients(upstream, 0)
        self._slots.pop(upstream, None)

    def clients(self, upstream: str, here: int) -> int:
        """Client connections in the whole pod, of which so many are `here`."""
        slot = self._slots.get(upstream, {}).get(CLIENTS)
        if slot is None:
            return here
        self._block.inflight[self._worker][slot] = here
        return self._block.in_flight(slot)

    def observer(self, upstream: str) -> Observer:
        ok, total, tell = self._block.ok[self._worker], self._block.total[self._worker], self._tell

        def observe(node: Node, now: float, kind: Kind, seconds: float, retry_after: float | None) -> None:
            if not isinstance(node, SharedNode):
                if kind is Kind.OK or kind in FAILURES:
                    tell(upstream, node.id, now, kind, seconds, 0)
            elif kind is Kind.OK:
                ok[node.slot] += 1
                total[node.slot] += 1
                if node.ejected_until is not None:  # the request that proves it
                    tell(upstream, node.id, now, kind, seconds, ok[node.slot])
            elif kind in FAILURES:
                total[node.slot] += 1
                tell(upstream, node.id, now, kind, seconds, ok[node.slot])

        return observe

    def answers(self, node: Node) -> None:
        return None


class Deciding:
    """The parent's part: it carries nothing, sees every worker's counts, and judges."""

    def __init__(self, block: Block, slots: Slots) -> None:
        self._block = block
        self._slots = slots

    def node(self, upstream: str, endpoint: Endpoint, now: float) -> Node:
        slot = self._slots.take(upstream, endpoint.id)
        if slot is None:
            return Node(endpoint, now)
        return SharedNode(endpoint, now, self._block, self._block.workers, slot)

    def returned(self, upstream: str, node: Node) -> None:
        slot = self._slots.take(upstream, node.id)
        if isinstance(node, SharedNode) and slot is not None and slot != node.slot:
            node.slot = slot
            node.base = self._block.answers(slot)
            node.good = node.base[0]

    def observer(self, upstream: str) -> None:
        return None

    def answers(self, node: Node) -> tuple[int, int] | None:
        if not isinstance(node, SharedNode):
            return None
        ok, total = self._block.answers(node.slot)
        before_ok, before_total = node.base
        node.base = (ok, total)
        return ok - before_ok, total - before_total

    def hear(self, node: Node, worker: int, good: int) -> None:
        """A failure is about to be learnt; before it `worker` counted so many `good` answers.

        A good answer of any worker since the latest failure ends the row of failures.
        """
        if isinstance(node, SharedNode):
            rows = enumerate(self._block.ok)
            good += sum(row[node.slot] for index, row in rows if index != worker)
            if good > node.good:
                node.good = good
                node.consecutive = 0
