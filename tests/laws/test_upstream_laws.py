"""An upstream under any order of snapshots, picks, outcomes and time: only what may be picked is, and nothing leaks."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from controller.balancing.node import Kind, Node
from controller.balancing.picker import NoEndpoints, PickRequest
from controller.model.endpoints import Endpoint
from controller.model.service import Algorithm, ConsistentHash, Health, Limits, PassiveHealth, SlowStart
from controller.model.snapshot import Snapshot, SnapshotBackend, SnapshotPort
from controller.proxy.seat import Seat
from controller.proxy.upstreams import Upstreams
from tests.component.hand_clock import HandTimers

NAMES = "abcdefg"
ALGORITHMS = [
    *(Algorithm(type=kind) for kind in ("RoundRobin", "Random", "LeastConnections", "PowerOfTwoChoices", "PeakEWMA")),
    Algorithm(type="SourceHash"),
    *(
        Algorithm(type="ConsistentHash", consistent_hash=ConsistentHash(table=table))
        for table in ("Rendezvous", "Maglev", "Ring")
    ),
]
STATES = st.sampled_from(["ACTIVE", "ACTIVE", "ACTIVE", "DRAINING", "PARKED"])
BACKENDS = st.lists(
    st.tuples(
        st.integers(0, 3),  # weight
        st.sampled_from(["Backend", "Endpoint"]),
        st.integers(0, 1),  # priority
        st.sets(st.sampled_from(NAMES)),
    ),
    max_size=3,
)


class AnUpstream(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.timers = HandTimers()
        self.upstreams = Upstreams(Seat(identity="pod"), self.timers, lambda u, n: None, lambda u, n: None)
        self.open: list[Node] = []
        self.nodes: dict[str, Node] = {}
        self.algorithm = ALGORITHMS[0]
        self.limit = 0
        self.generation = 0
        self._apply([])

    def _apply(self, backends: list[Any], states: dict[str, Any] | None = None) -> None:
        self.generation += 1
        listed = tuple(
            SnapshotBackend(
                name=f"b{number}",
                weight=weight,
                weight_per=per,
                priority=priority,
                endpoints=tuple(
                    Endpoint(id=name, address=f"10.0.0.{ord(name)}", port=80, state=(states or {}).get(name, "ACTIVE"))
                    for name in sorted(names)
                ),
            )
            for number, (weight, per, priority, names) in enumerate(backends)
        )
        self.upstreams.apply(
            Snapshot(
                namespace="store",
                name="shop",
                generation=self.generation,
                ports=(SnapshotPort(name="http", port=80, listen=80, backends=listed),),
                algorithm=self.algorithm,
                limits=Limits(max_requests_per_endpoint=self.limit),
                health=Health(passive=PassiveHealth(consecutive_failures=2), slow_start=SlowStart(window=5)),
            )
        )
        upstream = self.upstreams.get(("store", "shop"), "http")
        assert upstream is not None
        self.upstream = upstream
        for node in upstream.nodes:
            known = self.nodes.setdefault(node.id, node)
            if known is not node:  # five minutes have passed since it was listed, and it was idle
                assert known.inflight == 0
                self.nodes[node.id] = node

    @rule(backends=BACKENDS, states=st.dictionaries(st.sampled_from(NAMES), STATES))
    def snapshot(self, backends: list[Any], states: dict[str, Any]) -> None:
        self._apply(backends, states)

    @rule(
        backends=BACKENDS,
        algorithm=st.sampled_from(ALGORITHMS),
        limit=st.integers(0, 2),
    )
    def another_object(self, backends: list[Any], algorithm: Algorithm, limit: int) -> None:
        self.algorithm, self.limit = algorithm, limit
        self._apply(backends)

    @rule(seconds=st.sampled_from([0.05, 0.1, 1.0, 35.0, 400.0]))
    def wait(self, seconds: float) -> None:
        self.timers.advance(seconds)

    @precondition(lambda self: self.timers.work)
    @rule()
    def a_table_lands(self) -> None:
        self.timers.land()

    @precondition(lambda self: not self.upstream.full)
    @rule(key=st.none() | st.binary(max_size=4), tried=st.sets(st.sampled_from(NAMES), max_size=3))
    def pick(self, key: bytes | None, tried: set[str]) -> None:
        listed = {node.id: node for node in self.upstream.nodes}
        request = PickRequest(self.timers.now, key, [listed[name] for name in tried if name in listed])
        weighted = {node for source in self.upstream.sources if source.weight for node in source.nodes}
        active = {node for node in weighted if node.endpoint.state == "ACTIVE"}
        serving = {node for node in weighted if node.endpoint.state in ("ACTIVE", "DRAINING")}
        settled = not self.timers.work and self.timers.now - self.upstream._decided >= 0.1  # nothing waits to be seen
        try:
            node = self.upstream.pick(request)
        except NoEndpoints:
            assert not serving or not settled
            return
        assert node in serving
        assert node in active or not active or not settled
        assert node.limit == 0 or node.inflight < node.limit
        node.start(self.timers.now)
        self.open.append(node)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), kind=st.sampled_from(Kind), head=st.booleans())
    def end(self, data: st.DataObject, kind: Kind, head: bool) -> None:
        node = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
        if head:
            node.answered(self.timers.now, kind, 0.01)
        node.finish(self.timers.now, kind, None if head else 0.01)

    @invariant()
    def nothing_leaks(self) -> None:
        assert {name: node.inflight for name, node in self.nodes.items() if node.inflight} == {
            node.id: self.open.count(node) for node in self.open
        }

    @invariant()
    def full_is_known(self) -> None:
        nodes = self.upstream._pickers.levels._homes
        assert self.upstream.full == (bool(nodes) and all(0 < node.limit <= node.inflight for node in nodes))

    def teardown(self) -> None:
        self.upstreams.close()
        assert self.timers.pending == []


AnUpstream.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestAnUpstream = AnUpstream.TestCase
