"""Priority levels: how much each carries, and when a level panics.

Envoy's form: a level is healthy up to 140 % of its usable share (so it may lose more than a quarter before anything
spills), and only while all levels together can't carry the load are unusable endpoints used again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

OVERPROVISIONED = 140  # percent


class Load(NamedTuple):
    percent: int  # of the requests; sums to 100 over the levels unless all are empty
    panic: bool  # use all ACTIVE endpoints of the level, whatever their health


def loads(levels: Sequence[tuple[int, int]], panic_percent: int) -> list[Load]:
    """`levels`: (usable, ACTIVE) in order of priority. One Load for each."""
    healths = [min(100, OVERPROVISIONED * usable // active) if active else 0 for usable, active in levels]
    norm = min(100, sum(healths))
    panics = [norm < 100 and 100 * usable < panic_percent * active for usable, active in levels]
    shares = [0] * len(levels)
    if norm == 0:
        filled = [index for index, (_, active) in enumerate(levels) if active]
        if filled:
            shares[filled[0]] = 100
        return list(map(Load, shares, panics))
    left = 100
    for index, health in enumerate(healths):
        shares[index] = min(left, (200 * health + norm) // (2 * norm))  # rounded half up
        left -= shares[index]
    first = next(index for index, health in enumerate(healths) if health)
    shares[first] += left
    return list(map(Load, shares, panics))
