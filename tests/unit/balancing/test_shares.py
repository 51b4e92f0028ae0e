"""Share groups: the split between backends is exact, whatever happens inside them."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from controller.balancing.node import Node
from controller.balancing.picker import CandidateSet, PickRequest
from controller.balancing.shares import ShareGroups
from tests.unit.balancing.sets import assert_shares, group_of, picker_of, sequence, set_of, some_nodes

GROUPED = ["LeastConnections", "PowerOfTwoChoices", "PeakEWMA"]


def _two(heavy: int, light: int) -> tuple[CandidateSet, list[Node], list[Node]]:
    a, b = some_nodes(heavy), some_nodes(light, first=1000)
    groups = group_of(a, [90 * light] * heavy, "stable"), group_of(b, [10 * heavy] * light, "canary")
    return set_of(*(group._replace(weight=weight) for group, weight in zip(groups, (90, 10), strict=True))), a, b


@pytest.mark.parametrize("policy", GROUPED)
@pytest.mark.parametrize(("heavy", "light"), [(1, 1), (3, 3), (10, 10), (1, 20)])
def test_ninety_to_ten_stays_so_under_load(policy: str, heavy: int, light: int) -> None:
    """One pool of in-flight over weight gives 67/33 with one endpoint each."""
    candidates, a, b = _two(heavy, light)
    picker, random = picker_of(policy, candidates), Random(9)
    at_work: list[Node] = []
    counts: Counter[str] = Counter()

    for _ in range(10_000):
        node = picker.pick(PickRequest(0.0))
        counts["stable" if node in a else "canary"] += 1
        node.start(0.0)
        at_work.append(node)
        if random.random() < len(at_work) / 10:
            gone = at_work.pop(random.randrange(len(at_work)))
            gone.inflight -= 1

    assert_shares(counts, {"stable": 90, "canary": 10})
    assert set(b).isdisjoint(a)


@pytest.mark.parametrize("policy", GROUPED)
def test_one_group_needs_no_draw_between_groups(policy: str) -> None:
    candidates = set_of(group_of(some_nodes(8), [1] * 8))

    assert not isinstance(picker_of(policy, candidates), ShareGroups)


def test_a_group_with_nothing_untried_is_left_out_and_the_rest_keep_their_proportion() -> None:
    a, b, c = some_nodes(2), some_nodes(2, first=10), some_nodes(2, first=20)
    groups = [group_of(a, [1, 1], "a"), group_of(b, [3, 3], "b"), group_of(c, [1, 1], "c")]
    picker = picker_of("LeastConnections", set_of(*groups))

    counts = Counter(sequence(picker, 8000, tried=[a[0], a[1], b[0]]))

    assert_shares(counts, {b[1]: 6, c[0]: 1, c[1]: 1})


def test_tried_is_ignored_only_when_no_group_has_an_untried_endpoint() -> None:
    a, b = some_nodes(2), some_nodes(2, first=10)
    picker = picker_of("PowerOfTwoChoices", set_of(group_of(a, [1, 1], "a"), group_of(b, [1, 1], "b")))

    assert {b[1]} == set(sequence(picker, 50, tried=[*a, b[0]]))
    assert {*a, *b} == set(sequence(picker, 200, tried=[*a, *b]))


def test_a_tried_endpoint_leaves_its_group_in_the_draw() -> None:
    candidates, a, b = _two(2, 2)

    counts = Counter(sequence(picker_of("LeastConnections", candidates), 10_000, tried=[a[0]]))

    assert_shares(counts, {a[1]: 90, b[0]: 5, b[1]: 5})
