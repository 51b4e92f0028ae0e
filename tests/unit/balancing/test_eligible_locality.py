"""Nearest rung by hints (kube-proxy's rule) and by the endpoints' own place."""

from __future__ import annotations

import pytest

from controller.balancing.locality import Place, ladder
from controller.balancing.node import Node
from controller.model.endpoints import Endpoint
from controller.model.service import Prefer

HERE = Place(zone="here", node="n1")


def _node(name: str, zone: str = "", node: str = "", zones: str = "", nodes: str = "") -> Node:
    return Node(
        Endpoint(
            id=name,
            address="10.0.0.1",
            port=80,
            zone=zone,
            node=node,
            zone_hints=tuple(zones.split()),
            node_hints=tuple(nodes.split()),
        ),
        0.0,
    )


def _near(prefer: Prefer, *nodes: Node, place: Place = HERE, usable: str | None = None) -> tuple[str, str]:
    pickable = {node for node in nodes if usable is None or node.id in usable}
    rung, near = ladder(nodes, pickable, prefer, place)[0]
    return "".join(node.id for node in near), rung


ZONED = (_node("a", zones="here"), _node("b", zones="there"), _node("c", zones="there here"))
HALF_ZONED = (_node("a", zones="here"), _node("b"))
ELSEWHERE = (_node("a", zones="there"), _node("b", zones="there"))
PLAIN = (_node("a"), _node("b"))
NODED = (
    _node("a", zones="here", nodes="n1"),
    _node("b", zones="here", nodes="n2"),
    _node("c", zones="there", nodes="n2"),
)
PLACED = (_node("a", "here", "n1"), _node("b", "here", "n2"), _node("c", "there", "n3"), _node("d"))


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        (ZONED, ("ac", "zone")),
        (HALF_ZONED, ("ab", "all")),  # one endpoint without a hint disables the step
        (ELSEWHERE, ("ab", "all")),
        (PLAIN, ("ab", "all")),
        (NODED, ("a", "node")),
        ((*NODED[1:], _node("d", zones="here")), ("bd", "zone")),  # node hints on some only
    ],
)
def test_hints_are_followed_when_every_endpoint_has_one(nodes: tuple[Node, ...], expected: tuple[str, str]) -> None:
    assert expected == _near("Service", *nodes)


@pytest.mark.parametrize(
    ("prefer", "expected"),
    [("None", ("abcd", "all")), ("Zone", ("ab", "zone")), ("Node", ("a", "node")), ("Service", ("abcd", "all"))],
)
def test_zone_and_node_compare_the_endpoints_own_place(prefer: Prefer, expected: tuple[str, str]) -> None:
    assert expected == _near(prefer, *PLACED)


def test_a_rung_without_a_usable_endpoint_falls_through() -> None:
    assert _near("Node", *PLACED, usable="bcd") == ("ab", "zone")
    assert _near("Node", *PLACED, usable="cd") == ("abcd", "all")
    assert _near("Service", *NODED, usable="b") == ("ab", "zone")


@pytest.mark.parametrize("prefer", ["Service", "Zone", "Node"])
def test_a_proxy_that_does_not_know_where_it_runs_is_near_nothing(prefer: Prefer) -> None:
    assert _near(prefer, *PLACED, place=Place())[1] == "all"
    assert _near(prefer, *ZONED, place=Place())[1] == "all"
