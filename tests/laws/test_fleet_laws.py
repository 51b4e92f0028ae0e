"""A hundred sidecars with the same configuration: each decides by itself, and all together they stay even."""

from __future__ import annotations

from collections import Counter
from math import sqrt

import pytest

from controller.balancing.node import Kind
from controller.balancing.picker import PickRequest
from controller.model.endpoints import Endpoint
from controller.model.service import Algorithm, AlgorithmType
from controller.model.snapshot import Snapshot, SnapshotBackend, SnapshotPort
from controller.proxy.hash_key import address_key
from controller.proxy.seat import Seat
from controller.proxy.upstream import Upstream
from controller.proxy.upstreams import Upstreams
from tests.component.hand_clock import HandTimers

SIDECARS = 100
KEY = ("store", "shop")
SPREADING: list[AlgorithmType] = ["RoundRobin", "Random", "LeastConnections", "PowerOfTwoChoices", "PeakEWMA"]


def snapshot(policy: AlgorithmType, endpoints: range) -> Snapshot:
    listed = tuple(Endpoint(id=f"pod-{n:02}", address=f"10.0.0.{n}", port=80) for n in endpoints)
    backend = SnapshotBackend(name="all", weight=1, weight_per="Backend", endpoints=listed)
    port = SnapshotPort(name="http", port=80, listen=80, backends=(backend,))
    return Snapshot(namespace="store", name="shop", mode="Sidecar", ports=(port,), algorithm=Algorithm(type=policy))


class Fleet:
    def __init__(self, policy: AlgorithmType, endpoints: range) -> None:
        self.timers = [HandTimers() for _ in range(SIDECARS)]
        self._all = [
            Upstreams(Seat(identity=f"uid-{n}"), timers, lambda u, n: None, lambda u, n: None)
            for n, timers in enumerate(self.timers)
        ]
        self.update(policy, endpoints)

    def update(self, policy: AlgorithmType, endpoints: range) -> None:
        for timers, upstreams in zip(self.timers, self._all, strict=True):
            upstreams.apply(snapshot(policy, endpoints))
            timers.advance(0.2)

    def each(self) -> list[Upstream]:
        found = [upstreams.get(KEY, "http") for upstreams in self._all]
        return [upstream for upstream in found if upstream is not None]

    def request(self) -> Counter[str]:
        """One from each sidecar, which ends before its next."""
        counts: Counter[str] = Counter()
        for upstream, timers in zip(self.each(), self.timers, strict=True):
            now = timers.clock()
            node = upstream.pick(PickRequest(now, None))
            node.start(now)
            node.answered(now + 0.01, Kind.OK, 0.01)
            timers.advance(0.01)
            node.finish(now + 0.01, Kind.OK)
            counts[node.id] += 1
        return counts


@pytest.mark.parametrize("policy", SPREADING)
def test_right_after_an_update_no_endpoint_gets_more_than_three_times_its_share(policy: AlgorithmType) -> None:
    fleet = Fleet(policy, range(1, 6))
    for _ in range(7):
        fleet.request()
    fleet.update(policy, range(3, 13))

    first = fleet.request()

    assert max(first.values()) <= 3 * SIDECARS / 10


@pytest.mark.parametrize("policy", SPREADING)
def test_a_fleets_requests_are_even(policy: AlgorithmType) -> None:
    fleet, rounds, endpoints = Fleet(policy, range(1, 11)), 30, 10
    counts: Counter[str] = Counter()

    for _ in range(rounds):
        counts += fleet.request()

    total = rounds * SIDECARS
    sigma = sqrt(total * (1 / endpoints) * (1 - 1 / endpoints))
    assert all(abs(count - total / endpoints) <= 5 * sigma for count in counts.values())
    assert len(counts) == endpoints


def test_source_hash_spreads_the_pods_addresses_and_each_keeps_its_endpoint() -> None:
    fleet, endpoints = Fleet("SourceHash", range(1, 11)), 10
    homes = []

    for number, upstream in enumerate(fleet.each()):
        key = address_key(f"10.244.{number % 3}.{number + 2}")
        homes.append(upstream.pick(PickRequest(0.0, key)).id)
        assert {upstream.pick(PickRequest(0.0, key)).id for _ in range(5)} == {homes[-1]}

    sigma = sqrt(SIDECARS * (1 / endpoints) * (1 - 1 / endpoints))
    assert all(abs(count - SIDECARS / endpoints) <= 5 * sigma for count in Counter(homes).values())
