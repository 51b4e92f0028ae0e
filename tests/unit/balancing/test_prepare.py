"""Hash tables that are built ahead of their picker, in a thread."""

from __future__ import annotations

from controller.balancing.consistent_hash import prepare
from controller.balancing.eligible import Rules, Source, eligible
from controller.balancing.node import Node
from controller.model.endpoints import Endpoint
from controller.model.service import Algorithm, ConsistentHash

HOW = ConsistentHash(table="Maglev")


def test_an_ejection_finds_its_tables_built() -> None:
    nodes = [Node(Endpoint(id=f"uid-{n}", address=f"10.0.0.{n}", port=80), 0.0) for n in range(5)]
    sources = [Source("x", 1, "Backend", 0, nodes[:3]), Source("y", 1, "Backend", 0, nodes[3:])]
    rules = Rules(algorithm=Algorithm(type="ConsistentHash", consistent_hash=HOW))
    before = prepare(eligible(sources, rules, 1.0).levels[0].candidates, HOW)

    nodes[0].ejected_until = 100.0
    after = prepare(eligible(sources, rules, 1.0).levels[0].candidates, HOW)

    assert len(before) == 2
    assert all(one is other for one, other in zip(before, after, strict=True))
