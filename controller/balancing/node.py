"""`Node`: the live state of one endpoint. It outlives membership, pickers and weights."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Protocol

from controller.model.endpoints import Endpoint


class Kind(Enum):
    """How an attempt went, as far as the endpoint is concerned."""

    OK = "ok"  # any answer below 500 but 429
    ERROR = "error"  # 5xx; a failure after the head
    PUSHBACK = "pushback"  # 429, or 503 with Retry-After: costs, never ejects
    CONNECT = "connect"
    RESET = "reset"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"  # neutral: the client left, a stale idle connection, a shortage of our own


FAILURES = frozenset({Kind.ERROR, Kind.CONNECT, Kind.RESET, Kind.TIMEOUT})

# node, now (seconds, monotonic), kind, seconds from the start to the head, Retry-After in seconds
Observer = Callable[["Node", float, Kind, float, float | None], None]


class Lag(Protocol):
    """A node's place in one rotation, which the rotation keeps current."""

    def turns(self) -> float:
        """Turns due to the node minus the turns it had: free of scale, so it outlives weights and members."""
        ...


class Total:
    """This worker's attempts in flight on the nodes of one candidate set: bounded load needs it at each pick.

    A policy that wants it puts it into `Node.totals` of its nodes, in place of an older one of the same scope; that
    one is wrong from then on.
    """

    __slots__ = ("inflight", "scope")

    def __init__(self, scope: str, inflight: int) -> None:
        self.scope = scope
        self.inflight = inflight


class Gate(Protocol):
    """Told when a node reaches its limit, and when it no longer is at it."""

    def filled(self, node: Node) -> None: ...

    def freed(self, node: Node) -> None: ...


class Node:
    """One endpoint's live state; one object per identity and upstream.

    An attempt calls `start` once, `answered` at most once (at the final response head; TCP: at connect) and `finish`
    exactly once, cancelled included. Latency, ejection and probing learn at the head, in-flight ends at the end.
    """

    __slots__ = (
        "consecutive",
        "ejected_until",
        "endpoint",
        "ewma",
        "gate",
        "healthy",
        "inflight",
        "lag",
        "limit",
        "observers",
        "ok",
        "others",
        "since",
        "stamp",
        "times",
        "total",
        "totals",
    )

    def __init__(self, endpoint: Endpoint, now: float, observers: tuple[Observer, ...] = ()) -> None:
        self.endpoint = endpoint
        self.observers = observers
        self.inflight = 0  # attempts of this worker
        self.limit = 0  # attempts at which it is full; 0 = none
        self.gate: Gate | None = None
        self.others = 0  # in flight in the pod's other workers, refreshed by the proxy shell
        self.ewma = 0.0  # seconds; 0 = nothing known yet
        self.stamp = now  # when `ewma` was last brought up to date
        self.lag: dict[str, Lag] = {}  # rotation state per candidate set
        self.totals: tuple[Total, ...] = ()  # running sums that this node's attempts belong to
        self.since = now  # ACTIVE or back from ejection since: slow start counts from here
        self.healthy = True  # the active check's verdict
        self.ejected_until: float | None = None  # None = not ejected
        self.times = 0  # ejections in a row
        self.consecutive = 0  # failures in a row
        self.ok = 0  # of this ejection interval
        self.total = 0

    @property
    def id(self) -> str:
        return self.endpoint.id

    @property
    def full(self) -> bool:
        """At its limit."""
        return 0 < self.limit <= self.inflight

    def crowded(self) -> bool:
        """The same, looked at anew: with several workers others may have filled it."""
        return self.full

    def refresh(self) -> None:
        """Bring `others` up to date; a lone worker has none."""

    def load(self) -> int:
        """Attempts in flight in the whole pod, as exactly as this worker can know."""
        return self.inflight + self.others

    def start(self, now: float) -> None:
        self.inflight = inflight = self.inflight + 1
        if inflight == self.limit and self.gate is not None:
            self.gate.filled(self)
        for total in self.totals:
            total.inflight += 1

    def answered(self, now: float, kind: Kind, seconds: float, retry_after: float | None = None) -> None:
        for observe in self.observers:
            observe(self, now, kind, seconds, retry_after)

    def finish(self, now: float, kind: Kind, seconds: float | None = None) -> None:
        """Release the attempt. With `seconds` no head came (or it failed after the head): `kind` is learnt, too."""
        inflight = self.inflight
        self.inflight = inflight - 1
        for total in self.totals:
            total.inflight -= 1
        if inflight == self.limit and self.gate is not None:
            self.gate.freed(self)
        if seconds is not None:
            for observe in self.observers:
                observe(self, now, kind, seconds, None)

    def __repr__(self) -> str:
        ejected = f" ejected until {self.ejected_until:.1f}" if self.ejected_until is not None else ""
        return f"<Node {self.id} {self.endpoint.state} inflight={self.load()} ewma={self.ewma:.4f}{ejected}>"
