"""`Lane`: what one port keeps across snapshots: its upstream, pools, queue, drain clocks and counters."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from controller.balancing.node import Node
from controller.balancing.picker import PickRequest
from controller.model.service import RetryCondition
from controller.proxy.connections import Pool
from controller.proxy.route import Route
from controller.proxy.upstream import Upstream
from controller.proxy.waiting import Queue

if TYPE_CHECKING:
    from controller.proxy.causes import Cause
    from controller.proxy.forward import Exchange
    from controller.proxy.listener import Front
    from controller.proxy.plane import DataPlane
    from controller.proxy.tcp import TcpFront


class Lane:
    """`route` is swapped by every snapshot; the rest stays while the port does."""

    __slots__ = (
        "_clocks",
        "closing",
        "connections",
        "counts",
        "held",
        "made",
        "plane",
        "queue",
        "route",
        "service",
        "upstream",
    )

    def __init__(self, plane: DataPlane, upstream: Upstream, route: Route) -> None:
        snapshot = upstream.snapshot
        self.plane = plane
        self.upstream = upstream
        self.route = route
        self.service = f"{snapshot.namespace}/{snapshot.name}"
        self.counts = plane.telemetry.requests(self.service, "")  # of what never reached a backend
        self.queue = Queue(plane.loop, lambda: upstream.full)
        self.connections = 0  # of clients, those that are refused aside
        self.closing = False  # going away: responses say `Connection: close`
        self.made = plane.telemetry.pools(self.service)
        self.held: dict[Node, Pool] = {}  # the pools that there are; `pool` makes one
        self._clocks: dict[Node, asyncio.TimerHandle] = {}
        upstream.on_free = self.queue.wake

    @property
    def clients(self) -> int:
        """Client connections in the whole pod."""
        sharing = self.plane.sharing
        return self.connections if sharing is None else sharing.clients(self.upstream.name, self.connections)

    def uncount(self) -> None:
        """One of the client connections is refused; the other workers hear of it at once."""
        self.connections -= 1
        if self.plane.sharing is not None:
            self.plane.sharing.clients(self.upstream.name, self.connections)

    def apply(self, route: Route) -> None:
        """A new snapshot: for the requests that begin from now on."""
        self.route = route
        for node, pool in self.held.items():
            pool.counts = self.plane.telemetry.requests(self.service, self.upstream.backend_of(node))

    def pick(self, request: PickRequest) -> Node | None:
        """None: every endpoint that may be picked is at its limit. Raises NoEndpoints."""
        upstream = self.upstream
        if upstream.full:
            return None
        node = upstream.pick(request)
        while node.limit and node.crowded():  # another worker has filled it
            if upstream.full:
                return None
            earlier, node = node, upstream.pick(request)
            if node is earlier:
                return None
        return node

    def pool(self, node: Node) -> Pool:
        pool = self.held.get(node)
        if pool is None:
            plane = self.plane
            counts = plane.telemetry.requests(self.service, self.upstream.backend_of(node))
            pool = self.held[node] = Pool(node, self, counts)
        return pool

    @property
    def pools(self) -> tuple[Pool, ...]:
        return tuple(self.held.values())

    def gone(self, node: Node) -> None:
        """In no slice any more: idle connections close, and what is in flight has `proxy.drain` seconds."""
        pool = self.held.pop(node, None)
        if pool is not None:
            pool.close()
        if node.inflight:
            self._clocks[node] = self.plane.loop.call_later(self.route.drain, self._cut, node)

    def returned(self, node: Node) -> None:
        """The same identity is back: nothing is cut."""
        clock = self._clocks.pop(node, None)
        if clock is not None:
            clock.cancel()

    def _cut(self, node: Node) -> None:
        del self._clocks[node]
        for front in tuple(self.plane.fronts):
            if front.serves(node):
                self.plane.telemetry.drain_cut += 1
                front.cut()

    def close(self) -> None:
        """Drop what only an open process needs; called when nothing is in flight any more."""
        for pool in self.held.values():
            pool.close()
        for clock in self._clocks.values():
            clock.cancel()

    def leave(self) -> None:
        """Its port is gone: idle clients go at once, and what is in flight goes on."""
        self.closing = True
        for front in tuple(self.plane.fronts):
            if front.lane is self:
                front.close_idle()

    def retried(self, condition: RetryCondition | None) -> None:
        retries = self.plane.telemetry.retries
        key = (self.service, str(condition))
        retries[key] = retries.get(key, 0) + 1

    def refused(self, front: Front, cause: Cause, request_id: bytes) -> None:
        """Count what never became a request, and log it if wanted."""
        self.counts.outcomes[cause.reason] = self.counts.outcomes.get(cause.reason, 0) + 1
        if self.route.access_log:
            self.plane.access_log.add_refusal(self.service, front.peer, cause, request_id)

    def record(self, exchange: Exchange, outcome: str, now: float, status: int) -> None:
        """Count one exchange that has ended, and log it if wanted."""
        pool = exchange.pool
        counts = self.counts if pool is None else pool.counts
        outcomes = counts.outcomes
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        if exchange.headed:
            counts.observe(exchange.headed - exchange.now)
        if exchange.route.access_log:
            response = exchange.response
            code = status or (response.status if response is not None else 0)
            self.plane.access_log.add(self.service, exchange, outcome, code, now)

    def carried(self, front: TcpFront, outcome: str, now: float) -> None:
        """Count one connection of a TCP port that has ended, and log it if wanted."""
        counts = self.counts if front.pool is None else front.pool.counts
        counts.outcomes[outcome] = counts.outcomes.get(outcome, 0) + 1
        if front.route.access_log:
            self.plane.access_log.add_connection(self.service, front, outcome, now)

    def __repr__(self) -> str:
        return f"<Lane {self.upstream.name} connections={self.connections} {self.queue}>"
