"""`Upstream`: what one port of one object sends to. Keeps the Nodes, and swaps in a new picker on every change.

The decisions are `balancing`'s; here are the events that call for one (a snapshot, an ejection, a check's verdict, a
step of slow start) and the timers between them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf

from controller.balancing import affinity
from controller.balancing.affinity import Bindings, Keys
from controller.balancing.eligible import Rules, Source, eligible, usable
from controller.balancing.latency import Latency
from controller.balancing.locality import Place
from controller.balancing.node import Node, Observer
from controller.balancing.outlier import INTERVAL, Outlier
from controller.balancing.retry_budget import RetryBudget
from controller.model.endpoints import Endpoint
from controller.model.snapshot import Snapshot, SnapshotPort
from controller.proxy.membership import Membership, settle
from controller.proxy.pickers import NOTHING, Pick, Pickers
from controller.proxy.seat import Seat
from controller.proxy.sharing import Sharing, fresh
from controller.proxy.timers import Timer, Timers

log = logging.getLogger(__name__)

COALESCED = 0.1  # seconds that additions and weights may wait behind the last decision; removals never do
JITTER = 0.1  # of a period: fleets must not move in step

NodeHook = Callable[["Upstream", Node], None]
Standing = tuple[bool, float | None, float]  # healthy, ejected until, ACTIVE or back since


class Upstream:
    """One port of one object.

    The forwarder asks `full` (then queues) and `pick`s; `pick` raises NoEndpoints. `on_free` is called whenever a slot
    may have come free: inside `Node.finish`, and after a change. `on_gone` is called when a Node is in no slice any
    more (its idle connections close, its drain clock starts), `on_returned` when the same identity is back; both, in
    this order, when its address has changed.
    """

    pick: Pick
    full: bool  # all that may be picked is at its limit: queue

    def __init__(
        self,
        port: SnapshotPort,
        snapshot: Snapshot,
        seat: Seat,
        timers: Timers,
        keys: Keys,
        sharing: Sharing | None = None,
    ) -> None:
        self.service = f"{snapshot.namespace}/{snapshot.name}"
        self.name = f"{self.service}/{port.name}"
        self.port = port
        self.snapshot = snapshot
        self.on_free: Callable[[], None] | None = None
        self.on_gone: NodeHook | None = None
        self.on_returned: NodeHook | None = None
        self.on_standing: Callable[[Upstream], None] | None = None  # a check or an ejection has changed a Node
        self.on_ejected: Callable[[Upstream, str], None] | None = None  # with its cause
        self.on_verdict: Callable[[Upstream, bool], None] | None = None  # an active check's, that was another before
        self.chosen = NOTHING
        self._sharing = sharing
        self._place = seat.place
        self._timers = timers
        self._random = seat.random(self.name)
        self._members = Membership(self._make)
        self._bindings: Bindings[Node] = Bindings(keys)
        self._rules = self._ruling(snapshot)
        self._pickers = Pickers(seat, self.name, self._random, timers, self._installed)
        self._probing: dict[Node, int] = {}  # with their limits
        self._closed = False
        self._decided = -inf
        self.budget = RetryBudget(snapshot.retries.budget)
        self.latency = Latency(snapshot.algorithm.peak_ewma, self)
        self.outlier = Outlier(snapshot.health.passive, self._random, self._ejection_changed)
        judge = sharing.observer(self.name) if sharing is not None else None
        self._judge: Observer = judge or self.outlier.observe
        self._again = Timer(timers, self._decide)
        self._sweep = Timer(timers, self._swept)
        self._sweep.at(timers.clock() + INTERVAL * self._random.random())
        self.apply(port, snapshot)

    # What the forwarder asks.

    def bound(self, token: bytes) -> Node | None:
        """The Node that an affinity cookie names, if it may still serve: weight 0 and DRAINING are honoured.

        It may be full (`node.limit`): then pick another for this request, and leave the cookie as it is.
        """
        node = self._bindings.find(token, self._timers.wall())
        if node is None or node not in self._members or node.endpoint.state == "PARKED":
            return None
        return node if node.healthy and node.ejected_until is None else None

    def token_for(self, node: Node, backend: str | None = None) -> bytes:
        """The cookie value that binds a client to `node`. `backend`: the first that lists it, unless given."""
        cookie = self.snapshot.affinity.cookie if self.snapshot.affinity else None
        expires = self._timers.wall() + cookie.ttl if cookie and cookie.lifetime == "Permanent" else None
        name = backend if backend is not None else self.backend_of(node)
        return affinity.token(self._bindings.keys.current, name, node.id, expires)

    def backend_of(self, node: Node) -> str:
        """The first backend that lists it; "" when none does any more."""
        return next((source.name for source in self._members.sources if node in source.nodes), "")

    # What changes it.

    def apply(self, port: SnapshotPort, snapshot: Snapshot) -> None:
        """Take over a whole state. Removals act at once, the rest within 100 ms of the last decision."""
        now = self._timers.clock()
        rules = self._ruling(snapshot)
        at_once = rules != self._rules or snapshot.limits != self.snapshot.limits
        self.port, self.snapshot, self._rules = port, snapshot, rules
        self.outlier.terms = snapshot.health.passive
        self.latency.terms = snapshot.algorithm.peak_ewma
        self.budget.terms = snapshot.retries.budget
        change = self._members.update(port.backends, now)
        if self._sharing is not None:
            for node in change.returned:
                self._sharing.returned(self.name, node)
        bound = self._members.sources if snapshot.affinity is not None else ()
        self._bindings.bind({(source.name, node.id): node for source in bound for node in source.nodes})
        if at_once or change.lost or now - self._decided >= COALESCED:
            self._decide()
        else:
            self._again.by(self._decided + COALESCED)
        for node in change.gone:
            settle(node)
        if self.on_gone is not None:
            for node in (*change.gone, *change.moved):
                self.on_gone(self, node)
        if self.on_returned is not None:
            for node in (*change.returned, *change.moved):
                self.on_returned(self, node)

    def rekey(self, keys: Keys) -> None:
        self._bindings.rekey(keys)

    def place(self, place: Place) -> None:
        """Where this process runs: what is near follows from it."""
        self._place = place
        self._rules = self._ruling(self.snapshot)
        self._decide()

    def judge(self, node: Node, *, healthy: bool) -> None:
        """An active check's verdict."""
        if node.healthy != healthy:
            node.healthy = healthy
            self._log("endpoint passes its checks" if healthy else "endpoint fails its checks", node)
            if self.on_verdict is not None:
                self.on_verdict(self, healthy)
            self._decide()
            if self.on_standing is not None:
                self.on_standing(self)

    def standings(self) -> dict[str, Standing]:
        """What checks and ejection say of each listed Node, by identity."""
        return {node.id: (node.healthy, node.ejected_until, node.since) for node in self._members.listed}

    def stand(self, standings: Mapping[str, Standing]) -> None:
        """Take over what another process has decided. `since` only where it moves a Node's age on: a return."""
        for node in self._members.listed:
            if node.id in standings:
                node.healthy, node.ejected_until, since = standings[node.id]
                node.since = max(node.since, since)
        self._decide()

    def find(self, identity: str) -> Node | None:
        """The listed Node of this identity."""
        return self._members.find(identity)

    def close(self) -> None:
        """Nothing is picked any more; work in flight goes on, its Nodes as those that are gone."""
        self._closed = True
        self._again.cancel()
        self._sweep.cancel()
        self.chosen = NOTHING
        self._pickers.build(NOTHING, self._rules.algorithm)
        if self.on_gone is not None:
            for node in self._members.listed:
                self.on_gone(self, node)

    # What is known.

    @property
    def nodes(self) -> Sequence[Node]:
        """Listed Nodes."""
        return self._members.listed

    def __iter__(self) -> Iterator[Node]:
        """Listed Nodes, as they are at the call."""
        return iter(self._members.listed)

    @property
    def sources(self) -> Sequence[Source]:
        """The backends with their Nodes."""
        return self._members.sources

    @property
    def known(self) -> int:
        return len(self._members.listed)

    @property
    def usable(self) -> int:
        now = self._timers.clock()
        return sum(usable(node, now) for node in self.chosen.base)

    # Between.

    def _make(self, endpoint: Endpoint, now: float) -> Node:
        node = Node(endpoint, now) if self._sharing is None else self._sharing.node(self.name, endpoint, now)
        node.observers = self._observers()
        node.gate = self
        return node

    def _observers(self) -> tuple[Observer, ...]:
        if self._rules.algorithm.type == "PeakEWMA":  # nobody else reads latencies: a percent of a request's cost
            return (self._judge, self.latency.observe)
        return (self._judge,)

    def filled(self, node: Node) -> None:
        self._pickers.levels.filled(node)
        self.full = self._pickers.levels.full

    def freed(self, node: Node) -> None:
        self._pickers.levels.freed(node)
        self.full = self._pickers.levels.full
        if self.on_free is not None:
            self.on_free()

    def _installed(self, pick: Pick, full: bool) -> None:
        self.pick, self.full = pick if self._sharing is None else fresh(pick, self), full
        if self.on_free is not None:
            self.on_free()

    def _ejection_changed(self, node: Node) -> None:
        if node.ejected_until is None:
            if self._sharing is not None:
                self._sharing.answers(node)  # what came before its return is no longer held against it
            self._log("endpoint back from ejection", node)
        else:
            seconds = round(node.ejected_until - self._timers.clock(), 1)
            self._log("endpoint ejected", node, cause=self.outlier.causes[node], seconds=seconds)
            if self.on_ejected is not None:
                self.on_ejected(self, self.outlier.causes[node])
        self._decide()
        if self.on_standing is not None:
            self.on_standing(self)

    def _log(self, message: str, node: Node, **fields: object) -> None:
        log.info(message, extra={"upstream": self.name, "endpoint": node.id, **fields})

    def _swept(self) -> None:
        now = self._timers.clock()
        if self._sharing is not None:
            for node in self._members:
                node.ok, node.total = self._sharing.answers(node) or (node.ok, node.total)
        self.outlier.sweep(now, tuple(self._members))
        for node in self._members.purge(now):
            self.outlier.forget(node)
        self._sweep.at(now + INTERVAL * (1 + JITTER * (2 * self._random.random() - 1)))

    def _decide(self) -> None:
        if self._closed:
            return
        now = self._timers.clock()
        chosen = eligible(self._members.sources, self._rules, now)
        self._decided = now
        self.chosen = chosen
        self.outlier.base = chosen.base
        observers = self._observers()
        # One request besides what was in flight as the probing began: an old stream must not keep it from being proved.
        self._probing = {node: self._probing.get(node, node.load() + 1) for node in chosen.probing}
        limit = self.snapshot.limits.max_requests_per_endpoint
        for node in self._members:
            node.observers = observers
            probe = self._probing.get(node, limit)
            node.limit = min(probe, limit) if limit else probe
        self._again.cancel()
        if chosen.again < inf:
            self._again.at(chosen.again)
        self._pickers.build(chosen, self._rules.algorithm)

    def _ruling(self, snapshot: Snapshot) -> Rules:
        return Rules(snapshot.algorithm, snapshot.health, snapshot.locality.prefer, self._place)

    def __repr__(self) -> str:
        return f"<Upstream {self.name} {self._rules.algorithm.type} {self.usable}/{self.known} usable>"
