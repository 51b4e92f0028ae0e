"""What was measured, and the bars: medians of ratios that were taken round by round."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.bench.peers.load import Burst, Delay


class Spread(NamedTuple):
    """Median and quartiles."""

    low: float
    median: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    if len(values) == 1:
        return Spread(values[0], values[0], values[0])
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(low, median, high)


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Of the same round each: what disturbs the machine disturbs both."""
    return spread([mine / other for mine, other in zip(ours, theirs, strict=True)])


@dataclass
class Figures:
    """All rounds by contender, in the order in which they were taken."""

    versions: dict[str, str]
    rounds: int
    seconds: float
    machine: str = ""
    loads: list[float] = field(default_factory=list)  # of the machine, one a round: above 2 others were at work
    missing: list[str] = field(default_factory=list)
    small: dict[str, list[Burst]] = field(default_factory=dict)
    profile: dict[str, float] = field(default_factory=dict)  # of ours: share by part
    bodies: dict[str, dict[str, list[Burst]]] = field(default_factory=dict)  # by kind
    endpoints: dict[str, dict[int, list[Burst]]] = field(default_factory=dict)  # by contender, by their number
    rate: float = 0.0  # of the delays, requests a second
    delays: dict[str, list[Delay]] = field(default_factory=dict)  # "direct": no proxy
    base: dict[str, int] = field(default_factory=dict)  # resident bytes
    idle: dict[str, float] = field(default_factory=dict)  # resident bytes a connection


class Bar(NamedTuple):
    what: str
    seen: Spread
    limit: float
    unit: str = ""

    @property
    def met(self) -> bool:
        return self.seen.median <= self.limit


REQUEST_BARS = {"envoy": 0.45, "traefik": 0.45, "nginx": 1.5, "haproxy": 1.5}
BODY_BAR = 1.3
GROWTH_BAR = 1.15
IDLE_BAR = 6000.0  # bytes
BASE_BAR = 55e6


def bars(found: Figures, ours: str) -> list[Bar]:
    """What could be measured here, against what it must be."""
    seen: list[Bar] = []
    if found.small:
        mine = [each.per_answer for each in found.small[ours]]
        for name, limit in REQUEST_BARS.items():
            if name in found.small:
                theirs = [each.per_answer for each in found.small[name]]
                seen.append(Bar(f"CPU per request, × {name}", ratios(mine, theirs), limit))
    for kind, by_name in found.bodies.items():
        if "nginx" in by_name:
            ratio = ratios([each.per_mib for each in by_name[ours]], [each.per_mib for each in by_name["nginx"]])
            seen.append(Bar(f"CPU per byte, {kind}, × nginx", ratio, BODY_BAR))
    if found.endpoints:
        seen.append(Bar("CPU per request, 1 000 endpoints × 10", growth(found, ours), GROWTH_BAR))
    if "envoy" in found.delays:
        for name in ("p50", "p99"):
            ratio = ratios(added(found, ours, name), added(found, "envoy", name))
            seen.append(Bar(f"added {name} at {found.rate:.0f} requests/s, × envoy", ratio, 1.0))
    if ours in found.idle:
        seen.append(Bar("idle connection", spread([found.idle[ours]]), IDLE_BAR, "B"))
        seen.append(Bar("process base", spread([found.base[ours] / 1e6]), BASE_BAR / 1e6, "MB"))
    return seen


def growth(found: Figures, name: str) -> Spread:
    """What a request costs over a thousand endpoints, as a multiple of what it does over ten."""
    ten, many = ([each.per_answer for each in found.endpoints[name][count]] for count in (10, 1000))
    return ratios(many, ten)


def added(found: Figures, name: str, quantile: str) -> list[float]:
    """Microseconds on top of the backend's own, round by round. At least one: a ratio needs a number above 0."""
    pairs = zip(found.delays[name], found.delays["direct"], strict=True)
    return [max(1.0, getattr(through, quantile) - getattr(direct, quantile)) for through, direct in pairs]
