"""What holds for every policy of the table. A new policy is tried by all of this as soon as it is listed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from controller.balancing.latency import Latency
from controller.balancing.node import Kind
from controller.balancing.picker import CandidateSet, EmptyPicker, NoEndpoints, Options, Picker, PickRequest
from controller.balancing.policies import POLICIES
from controller.model.service import PeakEwma
from tests.unit.balancing.sets import assert_shares, flat_set, group_of, picker_of, set_of, some_nodes

POOL = 12
SOME_POLICIES = sorted(POLICIES)
KEYS = st.one_of(st.none(), st.binary(max_size=40), st.sampled_from([b"", "Größe".encode(), b"k" * 65536]))
PLACES = st.integers(0, POOL - 1)


class Shape(NamedTuple):
    """A candidate set by places in the pool: groups of (place, weight), and the places that are not eligible."""

    groups: tuple[tuple[tuple[int, int], ...], ...]
    ineligible: frozenset[int]


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    groups = draw(
        st.lists(
            st.lists(st.tuples(PLACES, st.integers(1, 9)), min_size=1, max_size=POOL, unique_by=lambda pair: pair[0]),
            min_size=1,
            max_size=3,
        )
    )
    places = sorted({place for group in groups for place, _ in group})
    out = draw(st.sets(st.sampled_from(places), max_size=len(places) - 1))
    return Shape(tuple(map(tuple, groups)), frozenset(out))


class World:
    """One worker's nodes, random numbers and picker: two of them, given the same calls, must agree."""

    def __init__(self, policy: str, seed: int) -> None:
        self.policy = policy
        self.random = Random(seed)
        self.nodes = some_nodes(POOL)
        self.latency = Latency(PeakEwma(), self.nodes)
        for node in self.nodes:
            node.observers = (self.latency.observe,)
        self.candidates: CandidateSet = CandidateSet(())
        self.picker: Picker = EmptyPicker()

    def build(self, shape: Shape) -> None:
        groups = [
            group_of([self.nodes[place] for place, _ in group], [weight for _, weight in group], f"backend-{number}")
            for number, group in enumerate(shape.groups)
        ]
        self.candidates = set_of(*groups, ineligible=[self.nodes[place] for place in shape.ineligible])
        self.rebuild()

    def rebuild(self) -> None:
        self.picker = POLICIES[self.policy](self.candidates, Options(seed=7, phase=0.3), self.random)

    @property
    def eligible(self) -> set[int]:
        return {self.nodes.index(node) for group in self.candidates.groups for node, _ in group.candidates}

    def pick(self, now: float, key: bytes | None, tried: Sequence[int]) -> int:
        return self.nodes.index(self.picker.pick(PickRequest(now, key, [self.nodes[place] for place in tried])))


class PolicyMachine(RuleBasedStateMachine):
    """Any interleaving of builds, picks, answers, ends and cancellations.

    `shadow` gets the same calls as `world` but for the rebuilds that change nothing.
    """

    policy = ""

    @initialize(shape=shapes(), seed=st.integers(0, 2**32))
    def begin(self, shape: Shape, seed: int) -> None:
        self.now = 0.0
        self.world, self.shadow = World(self.policy, seed), World(self.policy, seed)
        self.worlds = (self.world, self.shadow)
        self.open: list[tuple[int, float, bool]] = []  # place, start, answered
        self.build(shape)

    @rule(shape=shapes())
    def build(self, shape: Shape) -> None:
        for world in self.worlds:
            world.build(shape)

    @rule()
    def rebuild_unchanged(self) -> None:
        self.world.rebuild()

    @rule(seconds=st.sampled_from([0.0, 0.001, 0.3, 20.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(key=KEYS, tried=st.lists(PLACES, max_size=POOL), count=st.integers(1, 8))
    def pick(self, key: bytes | None, tried: list[int], count: int) -> None:
        for _ in range(count):
            place = self.world.pick(self.now, key, tried)
            allowed = self.world.eligible - set(tried) or self.world.eligible
            assert place in allowed
            assert place == self.shadow.pick(self.now, key, tried)
            for world in self.worlds:
                world.nodes[place].start(self.now)
            self.open.append((place, self.now, False))

    @precondition(lambda self: self.open)
    @rule(data=st.data(), kind=st.sampled_from(Kind), after=st.sampled_from([None, 0.0, 7.0, 1e6]))
    def answer(self, data: st.DataObject, kind: Kind, after: float | None) -> None:
        at = data.draw(st.integers(0, len(self.open) - 1))
        place, start, answered = self.open[at]
        if not answered:
            for world in self.worlds:
                world.nodes[place].answered(self.now, kind, self.now - start, after)
            self.open[at] = (place, start, True)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), kind=st.sampled_from(Kind))
    def finish(self, data: st.DataObject, kind: Kind) -> None:
        place, start, answered = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
        for world in self.worlds:
            world.nodes[place].finish(self.now, kind, None if answered else self.now - start)

    @invariant()
    def in_flight_is_the_open_attempts(self) -> None:
        attempts = Counter(place for place, _, _ in self.open)
        for world in self.worlds:
            assert [attempts[place] for place in range(POOL)] == [node.inflight for node in world.nodes]

    def teardown(self) -> None:
        for world in self.worlds:
            for place, _, _ in self.open:
                world.nodes[place].finish(self.now, Kind.CANCELLED)
            assert all(node.inflight == 0 for node in world.nodes)


@pytest.mark.parametrize("policy", SOME_POLICIES)
def test_any_interleaving_keeps_the_laws(policy: str) -> None:
    """A pick is eligible, and untried unless all are; in flight balances; rebuilding changes nothing; calls repeat."""
    machine = type(f"{policy}Machine", (PolicyMachine,), {"policy": policy})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=30, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


def test_only_an_empty_set_raises() -> None:
    with pytest.raises(NoEndpoints):
        EmptyPicker().pick(PickRequest(0.0))


@pytest.mark.parametrize("policy", SOME_POLICIES)
@pytest.mark.parametrize("size", [1, 2, 7, 70])
def test_every_endpoint_of_equal_weight_gets_its_share(policy: str, size: int) -> None:
    """Within five sigma over 200 N picks with instant completion, and random keys; so each is picked at all."""
    nodes, random = some_nodes(size), Random(21)
    picker = picker_of(policy, flat_set(nodes))

    counts = Counter(picker.pick(PickRequest(0.0, random.randbytes(12))) for _ in range(200 * size))

    assert_shares(counts, dict.fromkeys(nodes, 1.0))
    assert set(nodes) == set(counts)


WEIGHTED = sorted(POLICIES.keys() - {"PeakEWMA"})  # whose shares are approximate when weights differ in a group


@pytest.mark.parametrize("policy", WEIGHTED)
@pytest.mark.parametrize("size", [2, 5, 9])
def test_shares_are_the_weights_at_rest(policy: str, size: int) -> None:
    nodes, random = some_nodes(size), Random(22)
    weights = [1 + (3 * at) % 7 for at in range(size)]
    picker = picker_of(policy, flat_set(nodes, weights))

    counts = Counter(picker.pick(PickRequest(0.0, random.randbytes(12))) for _ in range(12_000))

    assert_shares(counts, dict(zip(nodes, weights, strict=True)))


@pytest.mark.parametrize("policy", SOME_POLICIES)
def test_backends_get_their_shares_at_rest(policy: str) -> None:
    a, b = some_nodes(3), some_nodes(5, first=50)
    groups = group_of(a, [150] * 3, "a")._replace(weight=90), group_of(b, [10] * 5, "b")._replace(weight=10)
    picker, random = picker_of(policy, set_of(*groups)), Random(23)

    counts = Counter(picker.pick(PickRequest(0.0, random.randbytes(12))) for _ in range(12_000))

    assert_shares(counts, dict.fromkeys(a, 30.0) | dict.fromkeys(b, 2.0))


@pytest.mark.parametrize("policy", SOME_POLICIES)
def test_an_endpoint_that_left_is_never_picked_again_though_it_has_requests_in_flight(policy: str) -> None:
    nodes = some_nodes(6)
    picker = picker_of(policy, flat_set(nodes))
    for _ in range(60):
        picker.pick(PickRequest(0.0)).start(0.0)

    left = [node for node in nodes if node is not nodes[2]]
    picker = picker_of(policy, flat_set(left))

    assert nodes[2] not in {picker.pick(PickRequest(0.0)) for _ in range(600)}


@pytest.mark.parametrize("policy", SOME_POLICIES)
def test_a_server_removed_between_pick_and_connect_is_passed_over_at_once(policy: str) -> None:
    """It goes into `tried`, another one serves, and the swapped picker does not know it."""
    nodes = some_nodes(4)
    request = PickRequest(0.0, b"user-1")
    removed = picker_of(policy, flat_set(nodes)).pick(request)
    removed.start(0.0)
    removed.finish(0.1, Kind.CONNECT, 0.1)
    request.tried = [removed]

    swapped = picker_of(policy, flat_set([node for node in nodes if node is not removed]))

    assert removed is not picker_of(policy, flat_set(nodes)).pick(request)
    assert removed is not swapped.pick(request)
    assert removed.inflight == 0


@given(
    steps=st.lists(
        st.tuples(
            st.lists(
                st.tuples(PLACES, st.integers(1, 1000)), min_size=1, max_size=POOL, unique_by=lambda pair: pair[0]
            ),
            st.integers(0, 30),
        ),
        min_size=1,
        max_size=12,
    )
)
@settings(max_examples=100, deadline=None)
def test_rotation_gives_nobody_two_picks_over_its_share_after_any_change(
    steps: list[tuple[list[tuple[int, int]], int]],
) -> None:
    """Changes of members, weights and slow-start factors all look like this to RoundRobin."""
    pool, random = some_nodes(POOL), Random(24)
    for change, more in steps:
        nodes, weights = [pool[place] for place, _ in change], [weight for _, weight in change]
        picker = POLICIES["RoundRobin"](flat_set(nodes, weights), Options(), random)
        ahead = dict.fromkeys(nodes, 0.0)  # the greatest excess over its share of a window that ends now
        for _ in range(len(nodes) + more):
            picked = picker.pick(PickRequest(0.0))
            for node, weight in zip(nodes, weights, strict=True):
                ahead[node] = max(0.0, ahead[node] + (node is picked) - weight / sum(weights))
            assert ahead[picked] <= 2
