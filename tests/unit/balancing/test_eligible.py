"""The order of the guard stages, and what each leaves."""

from __future__ import annotations

from math import inf

import pytest

from controller.balancing.eligible import REFRESH, Eligible, Rules, Source, eligible, usable
from controller.balancing.locality import Place
from controller.balancing.node import Node
from controller.model.endpoints import Endpoint, State
from controller.model.service import Algorithm, Health, SlowStart, WeightPer

NOW = 1000.0


def _node(
    name: str,
    state: State = "ACTIVE",
    *,
    ejected: float | None = None,
    healthy: bool = True,
    age: float = 1e6,
    zone: str = "",
) -> Node:
    node = Node(Endpoint(id=name, address="10.0.0.1", port=80, state=state, zone=zone), NOW - age)
    node.ejected_until = None if ejected is None else NOW + ejected
    node.healthy = healthy
    return node


def _source(*nodes: Node, name: str = "b", weight: int = 1, per: WeightPer = "Backend", priority: int = 0) -> Source:
    return Source(name, weight, per, priority, nodes)


def _decide(*sources: Source, rules: Rules = Rules()) -> Eligible:  # noqa: B008 - immutable
    return eligible(sources, rules, NOW)


def _names(found: Eligible) -> list[tuple[int, int, bool, str]]:
    """Per level: priority, load, panic, and what may be picked."""
    return [
        (
            level.priority,
            level.load,
            level.panic,
            " ".join("".join(node.id for node, _ in group.candidates) for group in level.candidates.groups),
        )
        for level in found.levels
    ]


def test_weight_0_is_out_before_anything_is_counted() -> None:
    found = _decide(_source(_node("a"), name="x"), _source(_node("b"), name="y", weight=0))

    assert _names(found) == [(0, 100, False, "a")]
    assert [node.id for node in found.base] == ["a"]


def test_all_weights_0_leave_nothing() -> None:
    assert _decide(_source(_node("a"), weight=0)) == Eligible((), (), (), frozenset(), inf)


def test_draining_ones_take_the_place_of_active_ones_only_when_no_level_has_any() -> None:
    draining = _source(_node("d", "DRAINING"), _node("p", "PARKED"))

    assert _names(_decide(draining, _source(_node("a"), priority=1))) == [(1, 100, False, "a")]
    assert _names(_decide(draining)) == [(0, 100, False, "d")]


def test_parked_ones_get_nothing() -> None:
    assert _decide(_source(_node("p", "PARKED"))).levels == ()


def test_an_active_one_of_weight_0_does_not_keep_draining_ones_out() -> None:
    found = _decide(_source(_node("a"), name="x", weight=0), _source(_node("d", "DRAINING"), name="y"))

    assert _names(found) == [(0, 100, False, "d")]


def test_ejected_and_unhealthy_ones_are_passed_over() -> None:
    found = _decide(_source(_node("a"), _node("b"), _node("e", ejected=5), _node("u", healthy=False)))

    assert _names(found) == [(0, 100, False, "ab")]
    assert [node.id for node in found.usable] == ["a", "b"]
    assert [node.id for node in found.base] == ["a", "b", "e", "u"]


def test_it_says_when_the_first_ejection_ends() -> None:
    found = _decide(_source(_node("a"), _node("e", ejected=5), _node("f", ejected=3), _node("g", ejected=-1)))

    assert found.again == NOW + 3


def test_one_back_from_ejection_is_probed_with_one_request() -> None:
    back = _node("e", ejected=-0.001)

    found = _decide(_source(_node("a"), back))

    assert _names(found) == [(0, 100, False, "ae")]
    assert found.probing == {back}


def test_a_level_of_probed_ones_keeps_its_load_so_that_they_are_probed() -> None:
    back = _node("e", ejected=0)

    found = _decide(_source(back), _source(_node("b"), priority=1))

    assert _names(found) == [(0, 100, False, "e"), (1, 0, False, "b")]
    assert found.probing == {back}


def test_with_nobody_proven_the_probed_ones_serve_without_a_limit() -> None:
    found = _decide(_source(_node("e", ejected=-1), _node("f", ejected=-2)))

    assert _names(found) == [(0, 100, False, "ef")]
    assert found.probing == frozenset()


def test_panic_uses_every_active_one_again() -> None:
    found = _decide(
        _source(
            _node("a"),
            _node("e", ejected=5),
            _node("f", ejected=-1),
            _node("u", healthy=False),
            _node("v", healthy=False),
        )
    )

    assert _names(found) == [(0, 100, True, "aefuv")]
    assert found.probing == frozenset()


def test_panic_brings_back_neither_weight_0_nor_draining_nor_parked_ones() -> None:
    found = _decide(
        _source(_node("e", ejected=5), _node("d", "DRAINING"), _node("p", "PARKED"), name="x"),
        _source(_node("z"), name="y", weight=0),
    )

    assert _names(found) == [(0, 100, True, "e")]


def test_all_ejected_and_no_panic_leaves_nothing() -> None:
    found = _decide(_source(_node("e", ejected=5)), rules=Rules(health=Health(panic_percent=0)))

    assert found.levels == ()
    assert found.again == NOW + 5


def test_a_level_that_lost_health_spills() -> None:
    found = _decide(
        _source(_node("a"), _node("e", ejected=5)),
        _source(_node("b"), priority=1),
        _source(_node("c"), priority=7),
    )

    assert _names(found) == [(0, 70, False, "a"), (1, 30, False, "b"), (7, 0, False, "c")]


def test_a_backend_without_a_usable_endpoint_gives_its_share_to_its_level() -> None:
    found = _decide(
        _source(_node("a"), name="x", weight=10),
        _source(_node("e", ejected=5), name="y", weight=90),
        _source(_node("b"), name="z", priority=1),
    )

    assert _names(found) == [(0, 70, False, "a"), (1, 30, False, "b")]


def test_a_bad_zone_falls_back_to_its_own_levels_other_zones() -> None:
    rules = Rules(prefer="Zone", place=Place(zone="here"))
    near, far = _node("n", zone="here", healthy=False), _node("f", zone="there")

    found = _decide(
        _source(near, far, _node("g", zone="there")), _source(_node("b", zone="here"), priority=1), rules=rules
    )

    assert _names(found)[0] == (0, 93, False, "fg")
    assert found.levels[0].rungs == {"b": "all"}
    assert found.levels[1].rungs == {"b": "zone"}


def test_in_panic_the_nearest_rung_with_an_active_one_is_kept() -> None:
    rules = Rules(prefer="Zone", place=Place(zone="here"))

    found = _decide(
        _source(_node("n", zone="here", healthy=False), _node("f", zone="there", healthy=False)), rules=rules
    )

    assert _names(found) == [(0, 100, True, "n")]


def test_locality_is_decided_per_backend_so_that_a_split_stays() -> None:
    rules = Rules(prefer="Zone", place=Place(zone="here"))

    found = _decide(
        _source(_node("a", zone="here"), _node("b", zone="there"), name="x", weight=90),
        _source(_node("c", zone="there"), name="y", weight=10),
        rules=rules,
    )

    assert _names(found) == [(0, 100, False, "a c")]
    assert found.levels[0].rungs == {"x": "zone", "y": "all"}


def test_slow_start_asks_to_be_looked_at_again_while_something_ramps() -> None:
    rules = Rules(health=Health(slow_start=SlowStart(window=60)))

    ramping = _decide(_source(_node("a"), _node("b"), _node("c", age=6)), rules=rules)
    done = _decide(_source(_node("a"), _node("b", age=60)), rules=rules)

    weights = {node.id: weight for node, weight in ramping.levels[0].candidates.groups[0].candidates}
    assert weights["c"] / weights["a"] == pytest.approx(0.1, rel=1e-3)
    assert ramping.again == NOW + REFRESH
    assert done.again == inf


def test_a_pod_in_two_levels_is_probed_in_both() -> None:
    back = _node("e", ejected=-1)

    found = _decide(_source(back, _node("a")), _source(back, name="y", priority=1))

    assert found.probing == {back}
    assert [node.id for node in found.base] == ["e", "a"]


@pytest.mark.parametrize("kind", ["SourceHash", "ConsistentHash"])
def test_hash_tables_hold_every_member_of_the_set_and_no_slow_start(kind: str) -> None:
    algorithm = Algorithm(type=kind)
    rules = Rules(algorithm=algorithm, health=Health(slow_start=SlowStart(window=60)))
    nodes = [_node("a", age=0), _node("b"), _node("e", ejected=5)]
    ejected = _source(_node("f", ejected=5), name="y")

    found = _decide(_source(*nodes), ejected, _source(_node("z"), name="z", weight=0), rules=rules)

    candidates = found.levels[0].candidates
    assert [(node.id, weight) for node, weight in candidates.groups[0].candidates] == [("a", 1), ("b", 1)]
    assert [(member.group, member.id, member.weight) for member in candidates.members] == [
        ("b", "a", 1),
        ("b", "b", 1),
        ("b", "e", 1),
        ("y", "f", 3),
    ]
    assert found.again == NOW + 5


def test_usable_means_proven_by_neither_check_to_be_bad() -> None:
    assert usable(_node("a"), NOW)
    assert usable(_node("a", ejected=0), NOW)
    assert not usable(_node("a", ejected=1), NOW)
    assert not usable(_node("a", healthy=False), NOW)
