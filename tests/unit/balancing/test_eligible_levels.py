"""The level of a request, full endpoints, and pickers whose set has shrunk."""

from __future__ import annotations

from collections import Counter
from math import sqrt
from random import Random

import pytest

from controller.balancing.eligible import Level
from controller.balancing.levels import LevelPicker, Without
from controller.balancing.node import Kind, Node
from controller.balancing.picker import Candidate, CandidateSet, Group, PickRequest
from controller.balancing.weights import Share
from controller.model.endpoints import Endpoint


class First:
    """Picks the first untried of its nodes, the first of all when all are tried. Counts its picks."""

    def __init__(self, *nodes: Node) -> None:
        self.nodes = nodes
        self.picks = 0

    def pick(self, request: PickRequest) -> Node:
        self.picks += 1
        return next((node for node in self.nodes if node not in request.tried), self.nodes[0])


def _node(name: str, limit: int = 0) -> Node:
    node = Node(Endpoint(id=name, address="10.0.0.1", port=80), 0.0)
    node.limit = limit
    return node


def _level(load: int, *nodes: Node, priority: int = 0) -> tuple[Level, First]:
    candidates = CandidateSet((Group("g", 1, tuple(Candidate(node, 1) for node in nodes)),))
    return Level(priority, load, False, candidates, {}), First(*nodes)


def _picker(*levels: tuple[Level, First], hashing: bool = False) -> LevelPicker:
    picker = LevelPicker(levels, Random(7), hashing=hashing)
    for level, _ in levels:
        for node, _ in level.candidates.groups[0].candidates:
            node.gate = picker
    return picker


def _pick(picker: LevelPicker, *tried: Node, key: bytes | None = None) -> str:
    return picker.pick(PickRequest(0.0, key, tried)).id


def test_levels_are_drawn_by_load() -> None:
    """Within 5σ of 70 % in 10 000 picks: false alarm 6·10⁻⁷, with a fixed seed none."""
    picker = _picker(_level(70, _node("a")), _level(30, _node("b")))

    counts = Counter(_pick(picker) for _ in range(10_000))

    assert abs(counts["a"] - 7000) <= 5 * sqrt(10_000 * 0.7 * 0.3)


def test_the_same_key_goes_to_the_same_level() -> None:
    pickers = [_picker(_level(70, _node("a")), _level(30, _node("b")), hashing=True) for _ in range(3)]
    keys = [f"user-{number}".encode() for number in range(2000)]

    found = [[_pick(picker, key=key) for key in keys] for picker in pickers]

    assert found[0] == found[1] == found[2]
    assert abs(found[0].count("a") - 1400) <= 5 * sqrt(2000 * 0.7 * 0.3)


def test_without_a_key_a_hash_policy_draws_at_random() -> None:
    picker = _picker(_level(70, _node("a")), _level(30, _node("b")), hashing=True)

    assert {_pick(picker) for _ in range(50)} == {"a", "b"}


def test_a_level_whose_endpoints_are_tried_is_left_out() -> None:
    a, b = _node("a"), _node("b")
    picker = _picker(_level(100, a), _level(0, b))

    assert {_pick(picker) for _ in range(20)} == {"a"}
    assert _pick(picker, a) == "b"


def test_with_all_that_is_near_tried_the_next_rung_serves_and_then_the_next_level() -> None:
    here, zone, far, lower = (_node(name) for name in ("here", "zone", "far", "lower"))
    wider = tuple((Share("b", 1, "Backend", nodes),) for nodes in ((here, zone), (here, zone, far)))
    level, first = _level(100, here)
    picker = _picker((level._replace(wider=wider), first), _level(0, lower, priority=1))

    assert _pick(picker) == "here"
    assert _pick(picker, here) == "zone"
    assert _pick(picker, here, zone) == "far"
    assert _pick(picker, here, zone, far) == "lower"
    assert _pick(picker, here, zone, far, lower) == "here"


def test_a_full_one_of_the_next_rung_is_passed_over() -> None:
    here, near, far = _node("here"), _node("near", limit=1), _node("far")
    wider = tuple((Share("b", 1, "Backend", nodes),) for nodes in ((here, near), (here, near, far)))
    level, first = _level(100, here)
    picker = _picker((level._replace(wider=wider), first))
    near.start(0.0)

    assert _pick(picker, here) == "far"


@pytest.mark.parametrize("hashing", [True, False])
def test_the_same_key_is_tried_again_on_the_same_one_of_the_next_rung(hashing: bool) -> None:
    here, *far = (_node(name) for name in "abcdefgh")
    level, first = _level(100, here)
    picker = _picker((level._replace(wider=((Share("b", 1, "Backend", (here, *far)),),)), first), hashing=hashing)

    by_key = [{_pick(picker, here, key=b"%d" % key) for _ in range(50)} for key in range(40)]

    assert {len(met) for met in by_key} == {1} if hashing else all(len(met) > 1 for met in by_key)
    assert set().union(*by_key) == {node.id for node in far}


def test_with_every_load_at_0_the_first_level_left_serves() -> None:
    a, b, c = _node("a"), _node("b"), _node("c")
    picker = _picker(_level(100, a), _level(0, b), _level(0, c))

    assert _pick(picker, a) == "b"
    assert _pick(picker, a, b) == "c"


def test_tried_is_ignored_only_when_no_level_has_another() -> None:
    a, b = _node("a"), _node("b")
    picker = _picker(_level(100, a), _level(0, b))

    assert _pick(picker, a, b) == "a"


def test_a_full_endpoint_counts_as_tried() -> None:
    a, b = _node("a", limit=1), _node("b", limit=2)
    picker = _picker(_level(100, a, b))

    a.start(0)

    assert _pick(picker) == "b"
    assert not picker.full

    b.start(0)
    b.start(0)
    assert picker.full

    a.finish(0, Kind.OK)
    assert not picker.full
    assert _pick(picker) == "a"


def test_a_full_level_spills_to_the_next() -> None:
    a, b = _node("a", limit=1), _node("b", limit=1)
    picker = _picker(_level(100, a), _level(0, b))
    a.start(0)

    assert _pick(picker) == "b"


def test_full_ones_are_avoided_even_where_everything_else_was_tried() -> None:
    a, b = _node("a", limit=1), _node("b", limit=1)
    picker = _picker(_level(100, a, b))
    a.start(0)

    assert _pick(picker, b) == "b"


def test_many_full_ones_cost_three_picks_and_one_scan() -> None:
    nodes = [_node(f"n{number}", limit=1) for number in range(50)]
    level, first = _level(100, *nodes)
    picker = _picker((level, first))
    for node in nodes[:-1]:
        node.start(0)

    assert _pick(picker) == "n49"
    assert first.picks == 4


def test_what_was_full_before_it_was_built_is_counted() -> None:
    a = _node("a", limit=1)
    a.start(0)

    assert _picker(_level(100, a)).full


def test_a_pod_in_two_levels_is_one_when_it_is_full() -> None:
    a, b = _node("a", limit=1), _node("b", limit=1)
    picker = _picker(_level(100, a), _level(0, a, b))
    a.start(0)

    assert not picker.full
    assert _pick(picker) == "b"

    b.start(0)
    assert picker.full


def test_one_that_has_left_the_set_changes_no_count() -> None:
    a, gone = _node("a", limit=1), _node("gone", limit=1)
    picker = _picker(_level(100, a))
    gone.gate = picker

    gone.start(0)

    assert not picker.full


def test_when_all_are_full_a_pick_still_answers() -> None:
    a, b = _node("a", limit=1), _node("b", limit=1)
    picker = _picker(_level(50, a), _level(50, b))
    a.start(0)
    b.start(0)

    assert {_pick(picker) for _ in range(50)} == {"a", "b"}


def test_only_one_level_is_full_and_the_others_pick_costs_nothing_more() -> None:
    a, b = _node("a", limit=1), _node("b")
    level, first = _level(0, b)
    picker = _picker(_level(100, a), (level, first))
    a.start(0)

    assert _pick(picker) == "b"
    assert first.picks == 1


def test_nothing_to_pick_is_not_full() -> None:
    picker = LevelPicker((), Random(7), hashing=False)

    assert not picker.full


@pytest.mark.parametrize(("tried", "expected"), [("", "b"), ("b", "c"), ("bc", "b")])
def test_a_shrunken_set_never_gives_what_was_removed(tried: str, expected: str) -> None:
    nodes = {name: _node(name) for name in "abc"}

    picker = Without(First(*nodes.values()), {nodes["a"]})

    assert picker.pick(PickRequest(0.0, None, [nodes[name] for name in tried])).id == expected
