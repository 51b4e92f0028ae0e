"""Candidate sets for the tests of the policies, and the five-sigma rule by which shares are judged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import sqrt
from random import Random
from typing import TypeVar

from controller.balancing.node import Node
from controller.balancing.picker import Candidate, CandidateSet, Group, Member, Options, Picker, PickRequest
from controller.balancing.policies import POLICIES
from controller.model.endpoints import Endpoint
from controller.model.service import Algorithm, ConsistentHash

T = TypeVar("T")


def some_nodes(count: int, first: int = 1) -> list[Node]:
    """Return nodes with the ids `10.0.0.1:8080`, `10.0.0.2:8080` and so on."""
    places = range(first, first + count)
    addresses = [f"10.0.{number // 256}.{number % 256}" for number in places]
    return [Node(Endpoint(id=f"{address}:8080", address=address, port=8080), 0.0) for address in addresses]


def group_of(nodes: Sequence[Node], weights: Sequence[int], name: str = "") -> Group:
    return Group(name, sum(weights), tuple(map(Candidate, nodes, weights)))


def set_of(*groups: Group, ineligible: Iterable[Node] = ()) -> CandidateSet:
    """Return the set with its members; `ineligible` nodes stay members and are no candidates."""
    out = set(ineligible)
    members = [
        Member(node.endpoint.hash_identity("Address"), group.name, weight, node.id)
        for group in groups
        for node, weight in group.candidates
    ]
    kept = [
        Group(group.name, group.weight, candidates)
        for group in groups
        if (candidates := tuple(candidate for candidate in group.candidates if candidate.node not in out))
    ]
    return CandidateSet(tuple(kept), tuple(members))


def flat_set(
    nodes: Sequence[Node], weights: Sequence[int] | None = None, ineligible: Iterable[Node] = ()
) -> CandidateSet:
    """Return one group of these nodes, of equal weights unless given."""
    return set_of(group_of(nodes, weights or [1] * len(nodes)), ineligible=ineligible)


def picker_of(policy: str, candidates: CandidateSet, seed: int = 1, options: Options | None = None) -> Picker:
    return POLICIES[policy](candidates, options or Options(), Random(seed))


def hashing(how: ConsistentHash = ConsistentHash()) -> Options:  # noqa: B008 - immutable
    return Options(algorithm=Algorithm(type="ConsistentHash", consistent_hash=how))


def names(nodes: Sequence[Node]) -> dict[Node, str]:
    """Return the letters a, b, c, … for the nodes in this order."""
    return {node: chr(ord("a") + at) for at, node in enumerate(nodes)}


def sequence(picker: Picker, picks: int, tried: Sequence[Node] = (), now: float = 0.0) -> list[Node]:
    """Return the next picks, each of a request that is over at once."""
    return [picker.pick(PickRequest(now, None, tried)) for _ in range(picks)]


def assert_shares(counts: Mapping[T, int], weights: Mapping[T, float], sigmas: float = 5.0) -> None:
    """Each count is within five sigma of its binomial expectation: a false alarm in 1.7 million."""
    picks, whole = sum(counts.values()), sum(weights.values())
    for item, weight in weights.items():
        share = weight / whole
        allowed = sigmas * sqrt(picks * share * (1 - share)) + 1e-9
        assert abs(counts.get(item, 0) - picks * share) <= allowed, (item, counts.get(item, 0), picks * share)
