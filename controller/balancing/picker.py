"""What a policy gets and what it gives: candidate sets in, one Node per pick out.

A picker is built from what is eligible and swapped on every change; it never filters. "None" is an object that
raises, not `None` (grpc-go's base balancer).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from random import Random
from typing import NamedTuple, Protocol

from controller.balancing.node import Node
from controller.model.service import Algorithm


class NoEndpoints(Exception):  # noqa: N818 - the design's word; it is an answer (503), not a fault of the program
    """Nothing may be picked; the proxy answers 503 with Retry-After."""


class Candidate(NamedTuple):
    node: Node
    weight: int  # > 0, scaled to integers that are exact in their set


class Group(NamedTuple):
    """A share group: one `Backend`-weighted backend, or all `Endpoint`-weighted ones together."""

    name: str  # the backend's name; "" for the pool of the `Endpoint`-weighted
    weight: int  # > 0
    candidates: tuple[Candidate, ...]  # never none


class Member(NamedTuple):
    """One endpoint that a hash table is built over, eligible or not."""

    identity: str  # the hash identity
    group: str
    weight: int
    id: str  # the Node's identity
    heaviest: float = 0.0  # the greatest weight configured in the group, present or not, in this scale; 0 = not told


class CandidateSet(NamedTuple):
    """All that is eligible in one priority level; never empty."""

    groups: tuple[Group, ...]
    members: tuple[Member, ...] = ()  # filled for the hash policies only


class Options(NamedTuple):
    """What a policy may need besides its candidates."""

    algorithm: Algorithm = Algorithm()
    scope: str = ""  # names the candidate set: the key of `Node.lag`
    seed: int = 0  # the pod's, for permuted orders
    phase: float = 0.0  # this worker's start position, in [0, 1)
    min_slots: int = 2  # the least that bounded load allows; 4 when counts are per worker


class PickRequest:
    """One request as a policy sees it. Mutable: the forwarder adds to `tried` and picks again."""

    __slots__ = ("key", "now", "tried")

    def __init__(self, now: float, key: bytes | None = None, tried: Collection[Node] = ()) -> None:
        self.now = now  # seconds, monotonic
        self.key = key  # the hash key; None = a random one
        self.tried = tried


class Picker(Protocol):
    def pick(self, request: PickRequest) -> Node:
        """Return an eligible Node, outside `request.tried` unless all are tried. Raises NoEndpoints when empty."""
        ...


PickerFactory = Callable[[CandidateSet, Options, Random], Picker]


class EmptyPicker:
    """Stands where nothing is eligible."""

    def pick(self, request: PickRequest) -> Node:
        raise NoEndpoints
