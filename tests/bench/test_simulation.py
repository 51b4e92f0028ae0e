"""The policies against the simulator, as ratios with margin.

Rankings use common random numbers, so a difference is the policies' own. Sizes: see each assertion.
"""

from __future__ import annotations

import pytest

from controller.model.service import SlowStart
from tests.bench.simulation import scenarios as table
from tests.bench.simulation.counting import newcomers_share, reset_extremes, sidecars, together
from tests.bench.simulation.fleet import Fleet, Policy, one_backend
from tests.bench.simulation.result import Result
from tests.bench.simulation.scenarios import TIERS, cell
from tests.bench.simulation.sharing import run_sharing
from tests.bench.simulation.trace import poisson

pytestmark = [pytest.mark.parametrize("seed", [1, 2, 3]), pytest.mark.timeout(300)]


def run(scenario: str, setting: str, policy: Policy, seed: int, requests: int = 50_000) -> Result:
    return cell(scenario, setting, policy).run(seed, requests)


def test_the_simulator_agrees_with_queueing_theory(seed: int) -> None:
    """M/M/1 at ρ 0.9 waits 10 service times in all; two choices 2.61 (Mitzenmacher); full information about 1.07."""
    t = {
        policy.name: run("S0", "ρ 0.9", policy, seed, 150_000).mean / table.MEAN
        for policy in (table.RANDOM, table.TWO_EXACT, table.LEAST_EXACT, table.ROTATION)
    }

    assert 9.0 <= t["random"] <= 11.3
    assert 2.45 <= t["two choices, global"] <= 2.85
    assert t["least connections, global"] <= 1.15
    assert 4.6 <= t["rotation"] <= 5.6


def test_equal_servers_rank_least_connections_then_two_choices_then_rotation(seed: int) -> None:
    base = run("S1", "K 8", table.RANDOM, seed).mean
    least, two, rotation = (run("S1", "K 8", p, seed).mean / base for p in (table.LEAST, table.TWO, table.ROTATION))

    assert least < two < rotation
    assert least <= 0.80
    assert two <= 0.85
    assert rotation <= 0.90


def test_unequal_servers_overload_the_rotation_and_not_two_choices(seed: int) -> None:
    assert run("S2", "ρ 0.75, K 8", table.TWO, seed).p99 <= 0.4
    assert run("S2", "ρ 0.75, K 8", table.ROTATION, seed).p99 == 1.0


@pytest.mark.parametrize("policy", [table.TWO, table.LEAST], ids=lambda policy: policy.name)
def test_weights_are_kept_at_low_load_by_tier_and_endpoint(seed: int, policy: Policy) -> None:
    # The lightest tier is due one pick in fourteen: of 160 000 counted ones 3 % are 3.3 standard deviations.
    share = run("S2w", "ρ 0.02, K 1", policy, seed, 200_000).share([4 * speed for speed in TIERS])
    by_tier = [sum(share[first:last]) / (last - first) for first, last in ((0, 10), (10, 16), (16, 20))]

    assert all(abs(tier - 1) <= 0.03 for tier in by_tier)
    assert all(abs(endpoint - 1) <= 0.10 for endpoint in share)


def test_smooth_weighted_round_robin_keeps_weights_to_one_percent(seed: int) -> None:
    share = run("S2w", "ρ 0.02, K 1", table.ROTATION, seed).share([4 * speed for speed in TIERS])

    assert all(abs(endpoint - 1) <= 0.01 for endpoint in share)


@pytest.mark.parametrize("policy", [table.TWO, table.EWMA], ids=lambda policy: policy.name)
def test_ninety_to_ten_stays_ninety_to_ten_under_load(seed: int, policy: Policy) -> None:
    picks = run("split", "90/10, 10 + 10 endpoints", policy, seed).picks
    heavy, total = sum(picks[:10]), sum(picks)

    assert abs(heavy - 0.9 * total) <= 5 * (total * 0.9 * 0.1) ** 0.5


def test_contended_processors_favour_latency_over_two_choices_over_rotation(seed: int) -> None:
    rotation, two, ewma = (
        run("S3p", "load 1.03", policy, seed, 80_000).p99 for policy in (table.ROTATION, table.TWO, table.EWMA)
    )

    assert ewma <= 0.65 * two
    assert two <= 0.6 * rotation


def test_overcommitted_processors_lose_requests_by_rotation_only(seed: int) -> None:
    rotation, two, ewma = (
        run("S3p", "load 1.57", policy, seed, 80_000) for policy in (table.ROTATION, table.TWO, table.EWMA)
    )

    assert ewma.errors <= 0.001
    assert two.errors <= 0.001
    assert rotation.errors >= 0.01
    assert rotation.p99 == 1.0


def test_every_server_has_its_average_capacity(seed: int) -> None:
    """A flip that always hit the same server would leave the others at one cap for ever."""
    trace = poisson(80_000, 400.0, 1, seed)
    fleet = Fleet(table.RANDOM, 1, one_backend(10), seed)

    _, supplied = run_sharing(fleet, trace, 10, table.CAPS, timeout=1.0, seed=seed)

    # 200 s in phases of 1 and 4 s: about 40 cycles, whose share of low time has a deviation of about 4 points.
    assert all(abs(cap - table.CAPS.mean) <= 5 * 0.04 * (table.CAPS.high - table.CAPS.low) for cap in supplied)


def test_stale_counts_favour_two_choices_and_fresh_ones_the_full_scan(seed: int) -> None:
    def mean(policy: Policy, setting: str) -> float:
        found = next(c for c in table.s4() if c.setting == setting and c.policy.algorithm == policy.algorithm)
        return found.run(seed, 50_000).mean

    assert mean(table.LEAST, "τ 0.1") < 0.8 * mean(table.TWO, "τ 0.1")
    assert mean(table.LEAST, "τ 5.0") > 2 * mean(table.TWO, "τ 5.0")


def test_a_fast_failing_server_is_no_sinkhole_with_the_penalty(seed: int) -> None:
    assert run("S5", "ρ 0.3", table.EWMA, seed).errors <= 0.005
    assert 0.08 <= run("S5", "ρ 0.3", table.EWMA_NAIVE, seed).errors <= 0.12


def test_bounded_load_keeps_the_cache_and_sheds_the_hot_key(seed: int) -> None:
    random, ring, bounded = (
        run("S8", "Zipf 1.1", policy, seed) for policy in (table.RANDOM, table.RING, table.BOUNDED)
    )

    assert ring.errors >= 0.05
    assert bounded.errors == 0
    assert bounded.hits >= random.hits + 0.08


@pytest.mark.parametrize("policy", ["RoundRobin", "Random", "LeastConnections", "PowerOfTwoChoices"])
def test_slow_start_ramps_newcomers_up_and_lets_them_arrive(seed: int, policy: str) -> None:
    ramp = SlowStart(window=10.0)

    shares = [newcomers_share(policy, ramp, second, seed) for second in (0, 2, 6, 10)]

    assert shares[0] <= 0.25
    assert shares == sorted(shares)
    assert 0.9 <= shares[-1] <= 1.1
    assert 0.9 <= newcomers_share(policy, SlowStart(), 0, seed) <= 1.1


def test_a_rotation_that_is_reset_by_updates_starves_endpoints_and_a_kept_one_does_not(seed: int) -> None:
    assert reset_extremes(1, seed, keep=False) >= 10
    assert reset_extremes(1, seed, keep=True) <= 1.2
    assert reset_extremes(10, seed, keep=True) <= 1.05


def test_own_orders_and_offsets_keep_balancers_from_moving_in_step(seed: int) -> None:
    """32 balancers over 20 endpoints: in step all 32 hit one; by chance the fullest of 20 bins holds about 4.4."""
    assert together(seed, aligned=True) == 32
    assert together(seed, aligned=False) <= 6


@pytest.mark.parametrize("policy", ["RoundRobin", "Random", "LeastConnections", "PowerOfTwoChoices", "PeakEWMA"])
def test_a_hundred_sidecars_spread_their_first_requests(seed: int, policy: str) -> None:
    """Fair is 5 of 100 on each of 20 endpoints; three times that would be a herd."""
    assert sidecars(seed, policy) <= 15


def test_many_rotations_that_start_aligned_move_in_step(seed: int) -> None:
    """256 balancers whose turns coincide: the busiest moments pile up on one server after the other."""
    offset, aligned = (run("S1k", "K 256", policy, seed, 100_000).mean for policy in (table.ROTATION, table.ALIGNED))

    assert aligned >= 2 * offset
