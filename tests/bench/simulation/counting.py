"""Scenarios in which only picks are counted: slow start (S6), resets of a rotation, and arrivals in step (S7)."""

from __future__ import annotations

from collections import Counter
from random import Random

from controller.balancing.node import Kind, Node
from controller.balancing.picker import Candidate, CandidateSet, Group, Options, PickRequest
from controller.balancing.policies import POLICIES
from controller.balancing.slow_start import factor
from controller.model.endpoints import Endpoint
from controller.model.service import AlgorithmType, SlowStart

RESOLUTION = 1000  # weights while an endpoint ramps up, in thousandths


def nodes(count: int, first: int = 0) -> list[Node]:
    return [Node(Endpoint(id=f"pod-{i}", address="10.0.0.1", port=8080 + i), 0.0) for i in range(first, first + count)]


def _options(random: Random, *, aligned: bool = False) -> Options:
    seed, phase = (0, 0.0) if aligned else (random.getrandbits(64), random.random())
    return Options(scope="counting", seed=seed, phase=phase)


def _set(members: list[Node], weights: list[int]) -> CandidateSet:
    return CandidateSet((Group("all", 1, tuple(map(Candidate, members, weights))),))


def newcomers_share(policy: AlgorithmType, slow_start: SlowStart, second: int, seed: int) -> float:
    """S6: twenty endpoints grow to 25. The five's share of the picks in that second, over 5/25; load is at rest."""
    random = Random(seed)
    everyone = nodes(25)
    options = _options(random)
    picks: Counter[str] = Counter()
    young = {node.id for node in everyone[20:]}
    for now in range(second + 1):
        ramp = factor(now + 0.5, slow_start) if slow_start.window else 1.0
        weights = [RESOLUTION] * 20 + [max(1, round(RESOLUTION * ramp))] * 5
        picker = POLICIES[policy](_set(everyone, weights), options, random)
        picks = Counter(picker.pick(PickRequest(float(now))).id for _ in range(20_000))
    return sum(picks[name] for name in young) / picks.total() / (5 / 25)


def reset_extremes(requests_between: int, seed: int, *, keep: bool, balancers: int = 32, count: int = 20) -> float:
    """S7: the greatest share over the fair one when every update resets the rotation (`keep` false), or keeps it."""
    random = Random(seed)
    fleets = [(nodes(count), _options(random, aligned=True), Random(seed + k)) for k in range(balancers)]
    picks: Counter[str] = Counter()
    for update in range(200):
        for members, options, own in fleets:
            if not keep:
                for node in members:
                    node.lag.clear()
            # A weight that changes and comes back, as a rollout makes it: each is a build of the picker.
            weights = [1] * count if update % 2 else [2] * count
            picker = POLICIES["RoundRobin"](_set(members, weights), options, own)
            picks.update(picker.pick(PickRequest(0.0)).id for _ in range(requests_between))
    return max(picks.values()) / (picks.total() / count)


def together(seed: int, *, aligned: bool, balancers: int = 32, count: int = 20, rounds: int = 200) -> float:
    """S7: one request at each balancer at the same moment: the most on one endpoint, on average over rounds."""
    random = Random(seed)
    fleets = []
    for _ in range(balancers):
        options = _options(random, aligned=aligned)
        own = Random(random.getrandbits(64))
        fleets.append(POLICIES["RoundRobin"](_set(nodes(count), [1] * count), options, own))
    most = 0
    for _ in range(rounds):
        most += max(Counter(picker.pick(PickRequest(0.0)).id for picker in fleets).values())
    return most / rounds


def sidecars(seed: int, policy: AlgorithmType, *, count: int = 100, endpoints: int = 20) -> int:
    """The most first requests that one endpoint gets from `count` sidecars, each right after an update."""
    random = Random(seed)
    first: Counter[str] = Counter()
    for _ in range(count):
        options = _options(random)
        picker = POLICIES[policy](_set(nodes(endpoints), [1] * endpoints), options, Random(random.getrandbits(64)))
        node = picker.pick(PickRequest(0.0))
        node.start(0.0)
        node.finish(0.0, Kind.OK)
        first[node.id] += 1
    return max(first.values())
