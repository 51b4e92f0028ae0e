"""A node's live state: what an attempt changes, and when it is learnt from."""

from __future__ import annotations

import pytest

from controller.balancing.node import Kind, Node, Total
from controller.balancing.picker import EmptyPicker, NoEndpoints, PickRequest
from controller.model.endpoints import Endpoint

Seen = tuple[float, Kind, float, float | None]


def _watched() -> tuple[Node, list[Seen]]:
    seen: list[Seen] = []
    endpoint = Endpoint(id="uid-1", address="10.0.0.1", port=8080)
    node = Node(endpoint, 0.0, (lambda _, *what: seen.append(what),))
    return node, seen


def test_an_answered_attempt_is_learnt_at_the_head_and_released_at_the_end() -> None:
    node, seen = _watched()

    node.start(1.0)
    node.answered(1.5, Kind.PUSHBACK, 0.5, 30.0)
    assert node.load() == 1
    node.finish(9.0, Kind.OK)

    assert node.load() == 0
    assert seen == [(1.5, Kind.PUSHBACK, 0.5, 30.0)]


def test_an_attempt_without_a_head_is_learnt_at_its_end() -> None:
    node, seen = _watched()

    node.start(1.0)
    node.finish(3.0, Kind.CONNECT, 2.0)

    assert seen == [(3.0, Kind.CONNECT, 2.0, None)]


def test_every_total_follows_the_attempts() -> None:
    node, _ = _watched()
    node.totals = (Total("0", 5), Total("1", 0))

    node.start(0.0)
    node.start(0.0)
    node.finish(1.0, Kind.OK)

    assert [total.inflight for total in node.totals] == [6, 1]


def test_the_load_includes_the_other_workers() -> None:
    node, _ = _watched()
    node.others = 3
    node.start(0.0)

    assert node.load() == 4


def test_it_prints_what_a_person_needs() -> None:
    node, _ = _watched()
    node.start(0.0)
    node.ewma = 0.0123
    assert repr(node) == "<Node uid-1 ACTIVE inflight=1 ewma=0.0123>"

    node.ejected_until = 31.25
    assert repr(node) == "<Node uid-1 ACTIVE inflight=1 ewma=0.0123 ejected until 31.2>"


def test_none_to_pick_from_is_an_object_that_raises() -> None:
    with pytest.raises(NoEndpoints):
        EmptyPicker().pick(PickRequest(0.0))


def test_a_node_is_full_at_its_limit_and_crowded_when_it_is_full() -> None:
    node, _ = _watched()
    node.limit = 1
    assert not node.full

    node.start(1.0)

    assert node.full
    assert node.crowded()
    node.finish(2.0, Kind.OK)
    assert not node.crowded()
