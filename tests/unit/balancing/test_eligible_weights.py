"""From what backends are due to integers per endpoint."""

from __future__ import annotations

from math import inf

import pytest

from controller.balancing import weights
from controller.balancing.node import Node
from controller.balancing.weights import Share
from controller.model.endpoints import Endpoint

A, B, C, D, E = (
    Node(Endpoint(id=f"uid-{name}", address=f"10.0.0.{at}", port=80, pod=f"store/{name}"), 0.0)
    for at, name in enumerate("abcde")
)


def _plain(groups: tuple[weights.Group, ...]) -> list[tuple[str, int, dict[Node, int]]]:
    return [(group.name, group.weight, dict(group.candidates)) for group in groups]


def test_a_backends_weight_is_split_among_its_endpoints_exactly() -> None:
    found = weights.groups([Share("stable", 90, "Backend", (A, B)), Share("canary", 10, "Backend", (C,))])

    assert _plain(found) == [("stable", 90, {A: 9, B: 9}), ("canary", 10, {C: 2})]


def test_sizes_that_do_not_divide_the_weight_stay_exact() -> None:
    found = weights.groups([Share("three", 1, "Backend", (A, B, C)), Share("two", 1, "Backend", (D, E))])

    assert _plain(found) == [("three", 1, {A: 2, B: 2, C: 2}), ("two", 1, {D: 3, E: 3})]


def test_endpoint_weights_share_one_pool() -> None:
    found = weights.groups([Share("big", 4, "Endpoint", (A, B)), Share("small", 2, "Endpoint", (C,))])

    assert _plain(found) == [("", 10, {A: 2, B: 2, C: 1})]


def test_the_pool_stands_beside_the_backends() -> None:
    found = weights.groups(
        [
            Share("big", 3, "Endpoint", (A,)),
            Share("apart", 2, "Backend", (B, C)),
            Share("small", 1, "Endpoint", (D,)),
        ]
    )

    assert _plain(found) == [("", 4, {A: 3, D: 1}), ("apart", 2, {B: 1, C: 1})]


def test_a_pod_in_two_backends_has_an_entry_in_each_and_one_in_the_pool() -> None:
    apart = weights.groups([Share("x", 1, "Backend", (A,)), Share("y", 3, "Backend", (A,))])
    pooled = weights.groups([Share("x", 1, "Endpoint", (A, B)), Share("y", 3, "Endpoint", (A,))])

    assert _plain(apart) == [("x", 1, {A: 1}), ("y", 3, {A: 3})]
    assert _plain(pooled) == [("", 5, {A: 4, B: 1})]


def test_no_share_makes_no_group() -> None:
    assert weights.groups([]) == ()


def test_a_ramping_endpoint_moves_load_inside_its_group_only() -> None:
    shares = [Share("stable", 90, "Backend", (A, B, C, D)), Share("canary", 10, "Backend", (E,))]

    found = weights.groups(shares, lambda node: 0.25 if node is A else 1.0)

    stable, canary = (dict(group.candidates) for group in found)
    assert canary == {E: 100_000}
    assert sum(stable.values()) == pytest.approx(900_000, abs=2)
    assert stable[A] / stable[B] == pytest.approx(0.25, rel=1e-4)
    assert [group.weight for group in found] == [90, 10]


def test_slow_start_is_off_while_more_than_half_of_a_group_ramps() -> None:
    half = {A: 0.5, B: 0.5}
    most = {A: 0.5, B: 0.5, C: 0.5}

    ramped = weights.groups([Share("x", 1, "Backend", (A, B, C, D))], lambda node: half.get(node, 1.0))
    off = weights.groups([Share("x", 1, "Backend", (A, B, C, D))], lambda node: most.get(node, 1.0))

    assert len(set(dict(ramped[0].candidates).values())) == 2
    assert dict(off[0].candidates) == {A: 1, B: 1, C: 1, D: 1}


def test_half_is_measured_by_weight() -> None:
    shares = [Share("big", 4, "Endpoint", (A,)), Share("small", 1, "Endpoint", (B, C))]

    found = weights.groups(shares, lambda node: 0.1 if node is A else 1.0)

    assert _plain(found) == [("", 6, {A: 4, B: 1, C: 1})]


def test_a_ramping_weight_is_at_least_one() -> None:
    shares = [Share("big", 1_000_000, "Endpoint", (A, B)), Share("small", 1, "Endpoint", (C,))]

    found = weights.groups(shares, lambda node: 0.01 if node is C else 1.0)

    assert dict(found[0].candidates)[C] == 1


def test_sums_that_a_float_cannot_hold_are_rounded_to_millionths() -> None:
    nodes = [Node(Endpoint(id=f"{i}", address="10.0.0.1", port=i + 1), 0.0) for i in range(53)]
    primes = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53)
    shares = [Share(f"b{prime}", 1, "Backend", tuple(nodes[:prime])) for prime in primes]

    found = weights.groups(shares)

    sums = [sum(weight for _, weight in group.candidates) for group in found]
    assert inf > max(sums) < 2 * weights.RESOLUTION / len(primes)
    assert max(sums) / min(sums) == pytest.approx(1, rel=1e-3)


def test_members_carry_the_weights_of_the_whole_set_sorted_by_group_and_identity() -> None:
    found = weights.members(
        [Share("y", 1, "Backend", (B, A)), Share("x", 1, "Backend", (C,))], lambda node: node.endpoint.pod
    )

    assert found == (
        weights.Member("store/c", "x", 2, "uid-c"),
        weights.Member("store/a", "y", 1, "uid-a"),
        weights.Member("store/b", "y", 1, "uid-b"),
    )
