"""Membership, pickers and timers of an upstream, driven by snapshots and a clock turned by hand."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from controller.balancing.affinity import Keys
from controller.balancing.locality import Place
from controller.balancing.node import Kind, Node
from controller.balancing.picker import NoEndpoints, PickRequest
from controller.model.endpoints import Endpoint, State
from controller.model.service import (
    Affinity,
    Algorithm,
    ConsistentHash,
    Cookie,
    Health,
    Limits,
    Locality,
    PassiveHealth,
    PeakEwma,
    Retries,
    RetryBudget,
    SlowStart,
)
from controller.model.snapshot import Snapshot, SnapshotBackend, SnapshotPort
from controller.proxy import report
from controller.proxy.membership import KEPT, KEPT_AT_MOST
from controller.proxy.seat import Seat
from controller.proxy.timers import LoopTimers
from controller.proxy.upstream import Upstream
from controller.proxy.upstreams import Upstreams
from tests.component.hand_clock import HandTimers

KEY = ("store", "shop")


def endpoint(name: str, state: State = "ACTIVE", **more: Any) -> Endpoint:
    return Endpoint(
        **{"id": name, "address": f"10.0.0.{sum(name.encode()) % 250}", "port": 8080, "state": state} | more
    )


def backend(*endpoints: Endpoint | str, name: str = "b", weight: int = 1, **more: Any) -> SnapshotBackend:
    listed = tuple(endpoint(e) if isinstance(e, str) else e for e in endpoints)
    return SnapshotBackend(**{"name": name, "weight": weight, "weight_per": "Backend", "endpoints": listed} | more)


def snapshot(*backends: SnapshotBackend, **more: Any) -> Snapshot:
    return Snapshot(
        namespace="store",
        name="shop",
        ports=(SnapshotPort(name="http", port=80, listen=80, backends=backends),),
        **more,
    )


class Plane:
    """Upstreams with hooks that keep a record."""

    def __init__(self, seat: Seat = Seat(identity="pod")) -> None:  # noqa: B008 - immutable
        self.timers = HandTimers()
        self.heard: list[str] = []
        self.upstreams = Upstreams(
            seat,
            self.timers,
            lambda upstream, node: self.heard.append(f"gone {node.id}"),
            lambda upstream, node: self.heard.append(f"returned {node.id}"),
        )

    def apply(self, *backends: SnapshotBackend, **more: Any) -> Upstream:
        self.upstreams.apply(snapshot(*backends, **more))
        return self.shop

    @property
    def shop(self) -> Upstream:
        upstream = self.upstreams.get(KEY, "http")
        assert upstream is not None
        return upstream

    def pick(self, *tried: Node, key: bytes | None = None) -> Node:
        return self.shop.pick(PickRequest(self.timers.now, key, tried))

    def reached(self, picks: int = 200) -> str:
        """The names of all that are picked, sorted."""
        return "".join(sorted({self.pick(key=b"%d" % number).id for number in range(picks)}))

    def node(self, name: str) -> Node:
        return next(node for node in self.shop.nodes if node.id == name)

    def fail(self, name: str, times: int = 5) -> None:
        for _ in range(times):
            node = self.node(name)
            node.start(self.timers.now)
            node.finish(self.timers.now, Kind.CONNECT, 0.001)

    def succeed(self, name: str) -> None:
        node = self.node(name)
        node.start(self.timers.now)
        node.answered(self.timers.now, Kind.OK, 0.001)
        node.finish(self.timers.now, Kind.OK)


# Membership.


def test_an_endpoint_that_stays_keeps_its_node() -> None:
    plane = Plane()
    plane.apply(backend("a", "b"))
    before = plane.node("a")
    before.start(0)

    plane.apply(backend("c", "a", "b"))
    plane.apply(backend("a"))

    assert plane.node("a") is before
    assert before.inflight == 1


def test_a_new_pod_on_an_old_address_inherits_nothing() -> None:
    plane = Plane()
    plane.apply(backend(endpoint("old", address="10.9.9.9")))
    before = plane.node("old")

    plane.apply(backend(endpoint("new", address="10.9.9.9")))

    assert plane.node("new") is not before
    assert plane.heard == ["gone old"]


def test_a_removal_acts_at_once() -> None:
    plane = Plane()
    plane.apply(backend("a", "b"))

    plane.apply(backend("b"))

    assert plane.reached() == "b"
    assert plane.heard == ["gone a"]


@pytest.mark.parametrize("state", ["PARKED", "DRAINING"])
def test_losing_readiness_acts_at_once_and_cuts_nothing(state: State) -> None:
    plane = Plane()
    plane.apply(backend("a", "b"))

    plane.apply(backend(endpoint("a", state), "b"))

    assert plane.reached() == "b"
    assert plane.heard == []


def test_weight_0_acts_at_once() -> None:
    plane = Plane()
    plane.apply(backend("a", name="x"), backend("b", name="y"))

    plane.apply(backend("a", name="x", weight=0), backend("b", name="y"))

    assert plane.reached() == "b"


def test_additions_in_a_burst_wait_for_a_tenth_of_a_second() -> None:
    plane = Plane()
    plane.apply(backend("a"))

    plane.apply(backend("a", "b"))
    plane.apply(backend("a", "b", "c"))
    assert plane.reached() == "a"

    plane.timers.advance(0.1)
    assert plane.reached() == "abc"

    plane.timers.advance(0.1)
    plane.apply(backend("a", "b", "c", "d"))
    assert plane.reached() == "abcd"


def test_nothing_that_may_be_picked_raises() -> None:
    plane = Plane()
    plane.apply(backend())

    with pytest.raises(NoEndpoints):
        plane.pick()
    assert not plane.shop.full
    assert (plane.shop.usable, plane.shop.known) == (0, 0)


def test_a_pod_that_comes_back_finds_its_state() -> None:
    plane = Plane()
    plane.apply(backend("a", "b"))
    before = plane.node("a")
    plane.apply(backend("b"))

    plane.timers.advance(KEPT - 20)
    plane.apply(backend("a", "b"))

    assert plane.node("a") is before
    assert before.since == plane.timers.now
    assert plane.heard == ["gone a", "returned a"]


def test_after_five_minutes_an_idle_node_is_forgotten_and_a_busy_one_is_not() -> None:
    plane = Plane()
    plane.apply(backend("a", "b", "c"))
    idle, busy = plane.node("a"), plane.node("b")
    busy.start(0)
    plane.apply(backend("c"))

    plane.timers.advance(KEPT + 12)  # a sweep comes every 10 s, give or take a tenth
    plane.apply(backend("a", "b", "c"))

    assert plane.node("a") is not idle
    assert plane.node("b") is busy


def test_churn_does_not_fill_the_memory() -> None:
    plane = Plane()
    plane.apply(backend("keep", *(f"old-{number}" for number in range(KEPT_AT_MOST + 50))))
    busy = plane.node("old-0")
    busy.start(0)
    plane.apply(backend("keep"))

    plane.timers.advance(12)

    assert len(plane.shop._members._gone) == KEPT_AT_MOST  # what nobody can ask for from outside
    plane.apply(backend("keep", "old-0"))
    assert plane.node("old-0") is busy


def test_an_identity_that_moves_is_gone_and_returned() -> None:
    plane = Plane()
    plane.apply(backend(endpoint("a", address="10.0.0.1")))
    before = plane.node("a")

    plane.apply(backend(endpoint("a", address="10.0.0.2")))

    assert plane.node("a") is before
    assert before.endpoint.address == "10.0.0.2"
    assert plane.heard == ["gone a", "returned a"]


def test_the_same_pod_twice_is_one_entry_in_its_better_condition() -> None:
    plane = Plane()

    plane.apply(backend(endpoint("a", "PARKED"), endpoint("a"), endpoint("a", "DRAINING"), "b"))

    assert plane.reached() == "ab"
    assert plane.shop.known == 2


def test_one_pod_under_two_ports_is_two_endpoints() -> None:
    plane = Plane()

    plane.apply(backend(endpoint("a"), name="x"), backend(endpoint("a", port=9090), name="y"))

    assert {node.endpoint.port for node in plane.shop.nodes} == {8080, 9090}
    assert {plane.pick().endpoint.port for _ in range(50)} == {8080, 9090}


def test_a_pod_in_two_backends_is_one_node_with_both_shares() -> None:
    plane = Plane()

    plane.apply(backend("a", name="x", weight=3), backend("a", "b", name="y", weight=1))

    assert plane.shop.known == 2
    assert plane.shop.backend_of(plane.node("a")) == "x"
    assert plane.shop.backend_of(plane.node("b")) == "y"


def test_age_counts_from_when_the_pod_became_active() -> None:
    plane = Plane()
    plane.apply(backend(endpoint("a", "PARKED"), "b"))

    plane.timers.advance(60)
    plane.apply(backend("a", "b"))

    assert plane.node("a").since == plane.timers.now
    assert plane.node("b").since == plane.timers.now - 60


# Pickers.


@pytest.mark.parametrize("kind", ["RoundRobin", "PowerOfTwoChoices"])
def test_unchanged_membership_keeps_the_picker(kind: Any) -> None:
    plane = Plane()
    algorithm = Algorithm(type=kind)
    plane.apply(backend("a", "b", "c"), algorithm=algorithm)
    before = plane.shop.pick

    plane.timers.advance(1)
    plane.apply(backend(endpoint("a", zone="elsewhere"), "b", "c"), algorithm=algorithm, generation=7)

    assert plane.shop.pick == before


def test_rotation_goes_on_over_any_number_of_updates() -> None:
    plane = Plane()
    algorithm = Algorithm(type="RoundRobin")
    counts: Counter[str] = Counter()
    for round_ in range(50):
        plane.apply(backend("a", "b", "c"), algorithm=algorithm, generation=round_)
        plane.timers.advance(0.2)
        counts[plane.pick().id] += 1

    assert max(counts.values()) - min(counts.values()) <= 1


def test_another_algorithm_takes_over_at_once() -> None:
    plane = Plane()
    plane.apply(backend("a", "b"))
    before = plane.shop.pick

    plane.apply(backend("a", "b"), algorithm=Algorithm(type="LeastConnections"))

    assert plane.shop.pick != before


def test_latency_is_learnt_only_by_the_policy_that_needs_it() -> None:
    plane = Plane()
    plane.apply(backend("a", "b"))
    plane.succeed("a")
    assert plane.node("a").ewma == 0

    plane.apply(backend("a", "b"), algorithm=Algorithm(type="PeakEWMA", peak_ewma=PeakEwma(decay=5)))
    plane.succeed("a")
    assert plane.node("a").ewma == 0.001


def test_levels_are_told_apart() -> None:
    plane = Plane()

    plane.apply(backend("a"), backend("b", name="spare", priority=1))

    assert plane.reached() == "a"
    assert plane.pick(plane.node("a")).id == "b"


def _hashing(table: str = "Maglev") -> Algorithm:
    return Algorithm(type="ConsistentHash", consistent_hash=ConsistentHash(table=table))  # type: ignore[arg-type]


def test_a_large_table_is_built_off_the_loop_while_the_old_one_serves() -> None:
    plane = Plane()
    plane.apply(backend("a", "b"), algorithm=_hashing())
    assert plane.timers.work == []  # the first has nothing to serve meanwhile
    plane.timers.advance(1)

    plane.apply(backend("a", "b", "c"), algorithm=_hashing())
    assert plane.reached() == "ab"

    plane.timers.land()
    assert plane.reached() == "abc"
    assert plane.timers.work == []


def test_what_is_removed_is_never_given_by_the_old_table() -> None:
    plane = Plane()
    plane.apply(backend("a", "b", "c"), algorithm=_hashing("Ring"))

    plane.apply(backend("b", "c"), algorithm=_hashing("Ring"))
    assert plane.reached() == "bc"

    plane.apply(backend("c"), algorithm=_hashing("Ring"))
    assert plane.reached() == "c"

    plane.timers.land()
    assert plane.reached() == "c"
    plane.timers.land()
    assert plane.reached() == "c"
    assert plane.timers.work == []


def test_with_nothing_left_of_the_old_table_the_new_one_is_built_at_once() -> None:
    plane = Plane()
    plane.apply(backend("a", "b"), algorithm=_hashing())

    plane.apply(backend("c", "d"), algorithm=_hashing())

    assert plane.reached() == "cd"
    assert plane.timers.work == []


def test_changes_that_never_pause_do_not_starve_a_table() -> None:
    plane = Plane()
    plane.apply(backend("a", "b"), algorithm=_hashing())
    for number, name in enumerate("cdef"):
        plane.timers.advance(1)
        plane.apply(backend("a", "b", *"cdef"[: number + 1]), algorithm=_hashing())
        if number:
            plane.timers.land()
            assert plane.reached() == "abcdef"[: number + 2], name


def test_another_algorithm_does_not_wait_for_a_table() -> None:
    plane = Plane()
    plane.apply(backend("a", "b"), algorithm=_hashing())
    plane.timers.advance(1)
    plane.apply(backend("a", "b", "c"), algorithm=_hashing())

    plane.apply(backend("a", "b", "c"))
    assert plane.reached() == "abc"

    plane.timers.land()
    assert plane.reached() == "abc"


def test_a_closed_upstream_lets_a_table_land_on_nothing() -> None:
    plane = Plane()
    plane.apply(backend("a", "b"), algorithm=_hashing())
    plane.timers.advance(1)
    upstream = plane.apply(backend("a", "b", "c"), algorithm=_hashing())

    plane.upstreams.forget(KEY)
    plane.timers.land()

    with pytest.raises(NoEndpoints):
        upstream.pick(PickRequest(0.0))


def test_auto_goes_off_the_loop_above_128_members_only() -> None:
    plane = Plane()
    names = [f"n{number}" for number in range(130)]
    plane.apply(backend(*names[:127]), algorithm=_hashing("Auto"))
    plane.timers.advance(1)
    plane.apply(backend(*names[:128]), algorithm=_hashing("Auto"))
    assert plane.timers.work == []

    plane.timers.advance(1)
    plane.apply(backend(*names), algorithm=_hashing("Auto"))
    assert len(plane.timers.work) == 1


async def test_on_a_real_loop_the_table_comes_from_a_thread() -> None:
    swapped = asyncio.Event()
    upstreams = Upstreams(Seat(identity="pod"), LoopTimers(), lambda u, n: None, lambda u, n: None)
    upstreams.apply(snapshot(backend("a", "b"), algorithm=_hashing()))
    shop = upstreams.get(KEY, "http")
    assert shop is not None

    upstreams.apply(snapshot(backend("b", "c"), algorithm=_hashing()))
    assert {shop.pick(PickRequest(0.0, b"%d" % key)).id for key in range(100)} == {"b"}
    shop.on_free = swapped.set
    async with asyncio.timeout(5):
        await swapped.wait()

    assert {shop.pick(PickRequest(0.0, b"%d" % key)).id for key in range(100)} == {"b", "c"}
    upstreams.close()


# Full endpoints.


def test_full_is_known_and_a_freed_slot_is_told() -> None:
    plane = Plane()
    shop = plane.apply(backend("a", "b"), limits=Limits(max_requests_per_endpoint=1))
    freed: list[bool] = []
    shop.on_free = lambda: freed.append(shop.full)
    first = plane.pick()
    first.start(0)
    second = plane.pick()
    second.start(0)

    assert {first.id, second.id} == {"a", "b"}
    assert shop.full

    first.finish(0, Kind.OK)
    assert freed == [False]
    assert plane.pick() is first


def test_a_new_endpoint_or_a_higher_limit_wakes_who_waits() -> None:
    plane = Plane()
    shop = plane.apply(backend("a"), limits=Limits(max_requests_per_endpoint=1))
    plane.pick().start(0)
    freed: list[bool] = []
    shop.on_free = lambda: freed.append(shop.full)
    plane.timers.advance(1)

    plane.apply(backend("a"), limits=Limits(max_requests_per_endpoint=2))
    assert freed == [False]

    plane.apply(backend("a"), limits=Limits(max_requests_per_endpoint=1))
    plane.timers.advance(1)
    plane.apply(backend("a", "b"), limits=Limits(max_requests_per_endpoint=1))
    assert freed == [False, True, False]


# Ejection, checks, slow start.


def test_an_ejected_endpoint_is_probed_by_one_request_and_then_comes_back() -> None:
    plane = Plane()
    plane.apply(backend("a", "b", "c"), algorithm=Algorithm(type="RoundRobin"))
    plane.fail("a")
    assert plane.reached() == "bc"
    assert plane.shop.usable == 2

    plane.timers.advance(34)
    assert plane.reached() == "abc"
    plane.node("a").start(0)
    assert plane.reached() == "bc"

    plane.node("a").answered(plane.timers.now, Kind.OK, 0.001)
    assert plane.reached() == "abc"
    plane.node("a").start(0)
    assert plane.reached() == "abc"


def test_an_old_stream_does_not_keep_an_endpoint_from_being_probed() -> None:
    plane = Plane()
    plane.apply(backend("a", "b", "c"), algorithm=Algorithm(type="RoundRobin"))
    plane.node("a").start(0)  # and it goes on
    plane.fail("a")

    plane.timers.advance(34)
    assert plane.reached() == "abc"
    plane.node("a").start(0)
    assert plane.reached() == "bc"

    plane.apply(backend("a", "b", "c", "d"), algorithm=Algorithm(type="RoundRobin"))
    assert plane.reached() == "bcd"


def test_a_probed_endpoint_keeps_to_the_limit_of_all() -> None:
    plane = Plane()
    plane.apply(backend("a", "b"), limits=Limits(max_requests_per_endpoint=1))
    plane.node("a").start(0)
    for _ in range(5):
        plane.node("a").answered(plane.timers.now, Kind.ERROR, 0.1)

    plane.timers.advance(34)

    assert plane.reached() == "b"


def test_panic_percent_lets_a_fleet_that_is_all_bad_serve() -> None:
    plane = Plane()
    plane.apply(backend("a", "b", "c"), health=Health(passive=PassiveHealth(max_ejected_percent=100)))
    for name in "ab":
        plane.fail(name)

    assert plane.reached() == "abc"


def test_a_success_rate_is_judged_every_ten_seconds() -> None:
    plane = Plane()
    plane.apply(backend(*"abcdef"))
    for _ in range(60):
        for name in "abcdef":
            plane.succeed(name)
            plane.fail(name, 1) if name == "f" else plane.succeed(name)

    plane.timers.advance(10)

    assert plane.reached() == "abcde"


def test_a_checks_verdict_acts_at_once_both_ways() -> None:
    plane = Plane()
    shop = plane.apply(backend("a", "b", "c"))
    before = shop.pick

    shop.judge(plane.node("a"), healthy=True)
    assert shop.pick == before

    shop.judge(plane.node("a"), healthy=False)
    assert plane.reached() == "bc"

    shop.judge(plane.node("a"), healthy=True)
    assert plane.reached() == "abc"


def test_slow_start_is_stepped_ten_times_a_second_until_its_window_ends() -> None:
    plane = Plane()
    health = Health(slow_start=SlowStart(window=5))
    plane.apply(backend("a", "b"), health=health)
    plane.timers.advance(60)
    plane.apply(backend("a", "b", "c"), health=health)
    seen = set()
    for _ in range(50):
        plane.timers.advance(0.1)
        seen.add(dict(plane.shop.chosen.levels[0].candidates.groups[0].candidates)[plane.node("c")])

    plane.timers.advance(0.2)

    assert 40 <= len(seen) <= 50
    assert len(plane.timers.pending) == 1  # the sweep


def test_a_retry_budget_keeps_its_balance_over_updates() -> None:
    plane = Plane()
    shop = plane.apply(backend("a"), retries=Retries(budget=RetryBudget(percent=0, min_per_second=1)))
    granted = sum(shop.budget.retry(0.0) for _ in range(20))

    plane.apply(backend("a"), retries=Retries(budget=RetryBudget(percent=0, min_per_second=1)), generation=2)

    assert granted == 10
    assert not plane.shop.budget.retry(0.0)


def test_one_refusing_endpoint_at_priority_0_and_a_healthy_one_at_1_lose_no_request() -> None:
    plane = Plane()
    plane.apply(backend("bad"), backend("good", name="spare", priority=1))
    tries = []
    for _ in range(300):
        plane.timers.advance(0.5)
        first = plane.pick()
        tries.append(1)
        if first.id == "bad":
            plane.fail("bad", 1)
            assert plane.pick(first).id == "good"
            tries[-1] = 2
        plane.succeed("good")

    # Five failures eject it; then only a probe finds it, after 30, 60 and 90 s and a tenth more at most.
    assert tries[:5] == [2] * 5
    assert sum(tries[5:]) - len(tries[5:]) <= 3


def test_a_busy_rotation_is_not_kept_by_a_node_that_is_gone() -> None:
    plane = Plane()
    algorithm = Algorithm(type="RoundRobin")
    plane.apply(backend("a", "b", "c"), algorithm=algorithm)
    gone = plane.node("a")
    plane.pick()
    due = gone.lag["0"].turns()

    plane.apply(backend("b", "c"), algorithm=algorithm)

    assert gone.lag["0"] == (due,)
    assert gone.lag["0"].turns() == due


def test_ejections_and_verdicts_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    plane = Plane()
    plane.apply(backend("a", "b", "c"))

    plane.fail("a", 9)
    plane.timers.advance(34)
    plane.succeed("a")
    plane.shop.judge(plane.node("b"), healthy=False)
    plane.shop.judge(plane.node("b"), healthy=False)
    plane.shop.judge(plane.node("b"), healthy=True)

    assert [(record.message, record.endpoint) for record in caplog.records] == [  # type: ignore[attr-defined]
        ("endpoint ejected", "a"),
        ("endpoint back from ejection", "a"),
        ("endpoint fails its checks", "b"),
        ("endpoint passes its checks", "b"),
    ]


# Affinity.

SESSION = Affinity(cookie=Cookie())


def test_a_token_brings_back_to_the_same_endpoint_through_any_scaling() -> None:
    plane = Plane()
    shop = plane.apply(backend("a", "b"), affinity=SESSION)
    token = shop.token_for(plane.node("a"))

    plane.apply(backend(*"abcdefgh"), affinity=SESSION)

    assert shop.bound(token) is plane.node("a")


def test_weight_0_and_draining_are_honoured_and_the_rest_is_not() -> None:
    plane = Plane()
    shop = plane.apply(backend("a", "b", "c"), affinity=SESSION)
    token = shop.token_for(plane.node("a"))

    plane.apply(backend("a", "b", "c", weight=0), affinity=SESSION)
    assert shop.bound(token) is plane.node("a")

    plane.apply(backend(endpoint("a", "DRAINING"), "b", "c"), affinity=SESSION)
    assert shop.bound(token) is plane.node("a")

    plane.apply(backend(endpoint("a", "PARKED"), "b", "c"), affinity=SESSION)
    assert shop.bound(token) is None

    plane.apply(backend("b", "c"), affinity=SESSION)
    assert shop.bound(token) is None

    plane.apply(backend("a", "b", "c"), affinity=SESSION)
    assert shop.bound(token) is plane.node("a")
    plane.timers.advance(0.1)
    plane.fail("a")
    assert shop.bound(token) is None


def test_a_check_that_fails_ends_a_binding() -> None:
    plane = Plane()
    shop = plane.apply(backend("a", "b"), affinity=SESSION)
    token = shop.token_for(plane.node("a"))

    shop.judge(plane.node("a"), healthy=False)

    assert shop.bound(token) is None


def test_a_token_without_affinity_is_ignored() -> None:
    plane = Plane()
    shop = plane.apply(backend("a"), affinity=SESSION)
    token = shop.token_for(plane.node("a"))

    plane.apply(backend("a"))

    assert shop.bound(token) is None


def test_a_permanent_cookie_ends_with_its_ttl_and_a_session_does_not() -> None:
    plane = Plane()
    permanent = Affinity(cookie=Cookie(lifetime="Permanent", ttl=60))
    shop = plane.apply(backend("a"), affinity=SESSION)
    session = shop.token_for(plane.node("a"))
    plane.apply(backend("a"), affinity=permanent)
    token = shop.token_for(plane.node("a"), backend="b")

    plane.timers.advance(59)
    assert shop.bound(token) is plane.node("a")

    plane.timers.advance(2)
    assert shop.bound(token) is None
    assert shop.bound(session) is plane.node("a")


def test_all_proxies_of_an_object_understand_each_others_tokens() -> None:
    planes = [Plane(Seat(identity=name)) for name in ("one", "two")]
    for plane in planes:
        plane.apply(backend("a", "b"), affinity=SESSION)
        plane.upstreams.rekey(KEY, Keys(b"k" * 32))

    token = planes[0].shop.token_for(planes[0].node("a"))

    assert planes[1].shop.bound(token) is planes[1].node("a")


def test_keys_that_come_before_the_snapshot_are_used() -> None:
    planes = [Plane(), Plane()]
    for plane in planes:
        plane.upstreams.rekey(KEY, Keys(b"k" * 32))
        plane.apply(backend("a", "b"), affinity=SESSION)

    assert planes[0].shop.bound(planes[1].shop.token_for(planes[1].node("b"))) is planes[0].node("b")


# All of them.


def test_a_port_that_is_gone_is_closed() -> None:
    plane = Plane()
    upstream = plane.apply(backend("a"))

    plane.upstreams.apply(Snapshot(namespace="store", name="shop"))

    assert plane.upstreams.get(KEY, "http") is None
    assert plane.heard == ["gone a"]
    assert plane.timers.pending == []
    with pytest.raises(NoEndpoints):
        upstream.pick(PickRequest(0.0))


def test_late_outcomes_of_a_closed_upstream_change_nothing() -> None:
    plane = Plane()
    upstream = plane.apply(backend("a", "b"))
    nodes = list(upstream.nodes)
    for node in nodes:
        node.start(0)
    plane.upstreams.close()

    for node in nodes:
        for _ in range(5):
            node.answered(0, Kind.ERROR, 0.1)
        node.finish(0, Kind.ERROR)
    upstream.judge(nodes[0], healthy=False)

    assert list(plane.upstreams) == []
    assert plane.timers.pending == []


def test_forgetting_an_object_that_is_not_there_is_no_error() -> None:
    Plane().upstreams.forget(("no", "where"))


def test_every_port_has_an_upstream_of_its_own() -> None:
    plane = Plane()
    plane.upstreams.apply(
        Snapshot(
            namespace="store",
            name="shop",
            ports=tuple(
                SnapshotPort(name=name, port=port, listen=port, backends=(backend("a", endpoint("b", "PARKED")),))
                for name, port in (("http", 80), ("admin", 81))
            ),
        )
    )

    assert [(upstream.name, upstream.usable, upstream.known) for upstream in plane.upstreams] == [
        ("store/shop/http", 1, 2),
        ("store/shop/admin", 1, 2),
    ]


def test_watchers_hear_of_every_change() -> None:
    plane = Plane()
    heard: list[int] = []
    plane.upstreams.watchers.append(lambda: heard.append(len(list(plane.upstreams))))

    plane.apply(backend("a"))
    plane.upstreams.forget(KEY)

    assert heard == [1, 0]


def test_a_hostname_has_the_endpoints_of_its_last_good_answer() -> None:
    plane = Plane()
    offsite = backend(name="offsite", hostname="db.example", port=5432)
    plane.apply(offsite)
    assert plane.upstreams.hostnames == {"db.example"}
    assert plane.shop.known == 0

    plane.upstreams.resolved("db.example", ["192.0.2.2", "192.0.2.1", "192.0.2.1"])
    first = plane.node("192.0.2.1:5432")
    assert plane.shop.known == 2

    plane.timers.advance(1)
    plane.upstreams.resolved("db.example", ["192.0.2.1", "2001:db8::1"])
    assert [node.id for node in plane.shop.nodes] == ["192.0.2.1:5432", "2001:db8::1:5432"]
    assert plane.node("192.0.2.1:5432") is first

    plane.apply(offsite, generation=2)
    assert plane.shop.known == 2


def test_an_equal_answer_is_no_change_and_an_unwanted_one_is_not_kept() -> None:
    plane = Plane()
    heard: list[str] = []
    plane.apply(backend(name="offsite", hostname="db.example", port=5432))
    plane.upstreams.watchers.append(lambda: heard.append("changed"))

    plane.upstreams.resolved("db.example", ["192.0.2.1"])
    plane.upstreams.resolved("db.example", ["192.0.2.1"])
    assert heard == ["changed"]

    plane.apply(backend("a"))
    plane.apply(backend(name="offsite", hostname="db.example", port=5432))
    assert plane.shop.known == 0


def test_the_report_says_why_an_endpoint_gets_what_it_gets() -> None:
    plane = Plane(Seat(identity="pod", place=Place(zone="here")))
    plane.apply(
        backend("a", "b", endpoint("p", "PARKED"), name="stable", weight=90),
        backend("c", name="canary", weight=10),
        backend("z", name="off", weight=0),
        backend("s", name="spare", priority=1),
        backend("q", name="pool", weight=2, weight_per="Endpoint", priority=2),
    )
    plane.fail("b")

    rows = {row["id"]: row for row in report.endpoints(plane.shop, plane.timers.now)}

    assert {name: row["share"] for name, row in rows.items()} == {
        "a": 83.7,  # level 0 has two of three, and carries 93 %
        "b": None,
        "p": None,
        "c": 9.3,
        "z": None,
        "s": 7.0,
        "q": 0.0,
    }
    assert rows["b"]["ejection"] == {
        "cause": "consecutive failures",
        "remaining": pytest.approx(31.5, abs=1.5),
        "times": 1,
    }
    assert rows["a"] == {
        "backend": "stable",
        "id": "a",
        "address": "10.0.0.97",
        "port": 8080,
        "pod": None,
        "zone": None,
        "state": "ACTIVE",
        "weight": 90,
        "inFlight": 0,
        "latency": None,
        "healthy": True,
        "ejection": None,
        "slowStart": 1.0,
        "level": 0,
        "panic": False,
        "rung": "all",
        "share": 83.7,
    }


def test_a_proxy_that_learns_where_it_runs_prefers_what_is_near() -> None:
    plane = Plane()
    locality = Locality(prefer="Zone")
    plane.apply(backend(endpoint("a", zone="here"), endpoint("b", zone="there")), locality=locality)
    assert plane.reached() == "ab"

    plane.upstreams.place(Place(zone="there"))
    assert plane.reached() == "b"

    plane.upstreams.forget(KEY)
    plane.apply(backend(endpoint("a", zone="here"), endpoint("b", zone="there")), locality=locality)
    assert plane.reached() == "b"


def test_an_operator_that_knows_no_zone_takes_none_away() -> None:
    plane = Plane()
    plane.upstreams.place(Place(zone="there", node="n1"))
    plane.apply(backend(endpoint("a", zone="here"), endpoint("b", zone="there")), locality=Locality(prefer="Zone"))

    plane.upstreams.place(Place(node="n2"))

    assert plane.reached() == "b"


def test_workers_of_a_pod_start_evenly_and_pods_differ() -> None:
    phases = [Seat(identity="pod", worker=worker).phase("x") for worker in range(4)]
    offsets = sorted((phase - phases[0]) % 1 for phase in phases)

    assert offsets == pytest.approx([0, 0.25, 0.5, 0.75])
    assert {Seat(identity="pod", worker=worker).seed("x") for worker in range(4)} == {Seat(identity="pod").seed("x")}
    assert Seat(identity="pod").seed("x") != Seat(identity="other").seed("x")
    draws = {Seat(identity=pod, worker=worker).random("x").random() for pod in "ab" for worker in range(4)}
    assert len(draws) == 8


def test_it_shows_what_it_is() -> None:
    assert repr(Plane().apply(backend("a"))) == "<Upstream store/shop/http PowerOfTwoChoices 1/1 usable>"
