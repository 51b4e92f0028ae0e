"""The scenarios: each a setting in which one property of a policy shows. `SCENARIOS` is the table of them all.

A cell is one run: a policy at one setting. Sizes are those that hold the assertions; a report may ask for more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from controller.model.service import Algorithm, ConsistentHash, PeakEwma
from tests.bench.simulation.fleet import Backend, Fleet, Policy, one_backend
from tests.bench.simulation.result import Result
from tests.bench.simulation.sharing import Caps, run_sharing
from tests.bench.simulation.slots import Antagonist, Cache, run_slots
from tests.bench.simulation.trace import Trace, poisson, zipf_keys

MEAN = 0.01  # seconds of work per request, unless a scenario says otherwise

RANDOM = Policy("random", Algorithm(type="Random"))
ROTATION = Policy("rotation", Algorithm(type="RoundRobin"))
ALIGNED = replace(ROTATION, name="rotation, aligned", aligned=True)
TWO = Policy("two choices", Algorithm(type="PowerOfTwoChoices"))
TWO_EXACT = replace(TWO, name="two choices, global", knows="exact")
LEAST = Policy("least connections", Algorithm(type="LeastConnections"))
LEAST_EXACT = replace(LEAST, name="least connections, global", knows="exact")
EWMA = Policy("PeakEWMA 10 s", Algorithm(type="PeakEWMA"))
EWMA_1S = Policy("PeakEWMA 1 s", Algorithm(type="PeakEWMA", peak_ewma=PeakEwma(decay=1.0)))
EWMA_NAIVE = replace(EWMA, name="PeakEWMA, no penalty", penalised=False)


def hashing(name: str, table: str, bounded: int) -> Policy:
    return Policy(
        name, Algorithm(type="ConsistentHash", consistent_hash=ConsistentHash(table=table, bounded_load=bounded))
    )


RING = hashing("ring, unbounded", "Ring", 0)
BOUNDED = hashing("ring, bounded 125", "Ring", 125)
RENDEZVOUS_BOUNDED = hashing("rendezvous, bounded 125", "Rendezvous", 125)


@dataclass(frozen=True)
class Cell:
    scenario: str
    setting: str
    policy: Policy
    run: Callable[[int, int], Result]  # seed, requests


Cells = Iterator[Cell]


def farm(
    policy: Policy,
    *,
    servers: int,
    slots: int,
    load: float,
    balancers: int,
    speeds: list[float] | None = None,
    weights: list[int] | None = None,
    backends: list[Backend] | None = None,
    demand: str = "lognormal",
    mean: float = MEAN,
    keys: Callable[[int, int], list[int]] | None = None,
    warmup: float = 0.2,
    **options: object,
) -> Callable[[int, int], Result]:
    """A run over slotted servers at `load` of their capacity (the mean one, with an antagonist)."""
    rates = speeds or [1.0] * servers
    antagonist = options.get("antagonist")
    factor = antagonist.mean_factor if isinstance(antagonist, Antagonist) else 1.0

    def run(seed: int, requests: int) -> Result:
        rate = load * slots * sum(rates) * factor / mean
        trace = poisson(requests, rate, balancers, seed, mean=mean, demand=demand)
        if keys is not None:
            trace = Trace(trace.at, trace.demand, trace.balancer, keys(requests, seed))
        fleet = Fleet(policy, balancers, backends or one_backend(servers, weights), seed)
        return run_slots(fleet, trace, [slots] * servers, rates, seed=seed, warmup=warmup, **options)

    return run


def s0() -> Cells:
    for load in (0.5, 0.8, 0.9, 0.95):
        for policy in (RANDOM, ROTATION, TWO_EXACT, LEAST_EXACT):
            yield Cell("S0", f"ρ {load}", policy, _s0(policy, load))


def _s0(policy: Policy, load: float) -> Callable[[int, int], Result]:
    return farm(policy, servers=100, slots=1, load=load, balancers=1, demand="exponential", warmup=0.3)


def s1() -> Cells:
    for balancers in (1, 8, 32):
        for policy in (RANDOM, ROTATION, TWO, LEAST, EWMA, TWO_EXACT):
            yield Cell("S1", f"K {balancers}", policy, farm(policy, servers=20, slots=4, load=0.8, balancers=balancers))


def s1k() -> Cells:
    for balancers in (1, 16, 256, 1024):
        for policy in (RANDOM, ROTATION, ALIGNED, TWO, LEAST):
            run = farm(policy, servers=100, slots=1, load=0.8, balancers=balancers, demand="exponential")
            yield Cell("S1k", f"K {balancers}", policy, run)


TIERS = [1.0] * 10 + [0.5] * 6 + [0.25] * 4


def s2() -> Cells:
    for policy in (RANDOM, ROTATION, TWO, TWO_EXACT, LEAST, EWMA):
        run = farm(policy, servers=20, slots=4, load=0.75, balancers=8, speeds=TIERS, timeout=1.0)
        yield Cell("S2", "ρ 0.75, K 8", policy, run)


def s2w() -> Cells:
    weights = [int(4 * speed) for speed in TIERS]
    for setting, load, balancers in (("ρ 0.75, K 8", 0.75, 8), ("ρ 0.02, K 1", 0.02, 1)):
        for policy in (RANDOM, ROTATION, LEAST, TWO, EWMA):
            run = farm(
                policy, servers=20, slots=4, load=load, balancers=balancers, speeds=TIERS, weights=weights, timeout=1.0
            )
            yield Cell("S2w", setting, policy, run)


def split() -> Cells:
    backends = [Backend(90, range(10), [1] * 10), Backend(10, range(10, 20), [1] * 10)]
    for policy in (ROTATION, RANDOM, LEAST, TWO, EWMA):
        run = farm(policy, servers=20, slots=4, load=0.5, balancers=4, backends=backends)
        yield Cell("split", "90/10, 10 + 10 endpoints", policy, run)


def s3() -> Cells:
    antagonist = Antagonist(slow=0.3, slow_mean=2.0, normal_mean=8.0)
    for policy in (RANDOM, ROTATION, TWO, TWO_EXACT, EWMA, EWMA_1S, LEAST, LEAST_EXACT):
        run = farm(policy, servers=20, slots=4, load=0.75, balancers=8, antagonist=antagonist)
        yield Cell("S3", "ρ 0.75, K 8", policy, run)


CAPS = Caps(high=10.0, low=3.2, high_mean=4.0, low_mean=1.0)


def s3p() -> Cells:
    for load in (0.75, 1.03, 1.27, 1.57):
        for policy in (ROTATION, LEAST, TWO, EWMA, EWMA_1S, TWO_EXACT):
            yield Cell("S3p", f"load {load}", policy, _s3p(policy, load))


def _s3p(policy: Policy, load: float) -> Callable[[int, int], Result]:
    def run(seed: int, requests: int) -> Result:
        trace = poisson(requests, load * 4 * 100 / MEAN, 100, seed)
        fleet = Fleet(policy, 100, one_backend(100), seed)
        result, _ = run_sharing(fleet, trace, 100, CAPS, timeout=1.0, seed=seed)
        return result

    return run


def s4() -> Cells:
    for period in (0.05, 0.1, 0.2, 0.5, 1.0, 5.0, 10.0):
        for policy in (LEAST, TWO):
            stale = replace(policy, name=f"{policy.name}, stale", knows="stale", period=period * MEAN)
            run = farm(stale, servers=100, slots=1, load=0.9, balancers=10, demand="exponential", warmup=0.3)
            yield Cell("S4", f"τ {period}", stale, run)


def s5() -> Cells:
    for load in (0.3, 0.6):
        for policy in (ROTATION, LEAST, TWO, EWMA_NAIVE, EWMA):
            run = farm(policy, servers=20, slots=4, load=load, balancers=8, failing=0)
            yield Cell("S5", f"ρ {load}", policy, run)


def s8() -> Cells:
    for exponent in (0.9, 1.1):
        for policy in (RANDOM, TWO, RING, BOUNDED, RENDEZVOUS_BOUNDED):
            run = farm(
                policy,
                servers=20,
                slots=4,
                load=0.45,
                balancers=8,
                mean=0.005,
                timeout=1.0,
                cache=Cache(size=1500, miss=4.0),
                keys=lambda requests, seed, exponent=exponent: zipf_keys(requests, 20_000, exponent, seed),
            )
            yield Cell("S8", f"Zipf {exponent}", policy, run)


SCENARIOS: dict[str, tuple[str, Callable[[], Cells]]] = {
    "S0": ("the simulator agrees with queueing theory", s0),
    "S1": ("equal servers: the effect of the number of balancers", s1),
    "S1k": ("aligned starts: rotations in step are worse than random", s1k),
    "S2": ("servers of unequal speed and equal weights need feedback", s2),
    "S2w": ("weights that are the speeds: every policy keeps to them", s2w),
    "split": ("90/10 between backends stays 90/10 under load", split),
    "S3": ("servers that are slowed for seconds", s3),
    "S3p": ("many proxies, and servers with contended processors", s3p),
    "S4": ("the staler the load signal, the fewer choices it may decide", s4),
    "S5": ("one server that fails everything in a millisecond", s5),
    "S8": ("affinity against load: caches and hot keys", s8),
}


def cell(scenario: str, setting: str, policy: Policy) -> Cell:
    """One cell of the table, by its names."""
    for found in SCENARIOS[scenario][1]():
        if found.setting == setting and found.policy.name == policy.name:
            return found
    raise LookupError(f"{scenario}: no {policy.name} at {setting}")
