"""From what backends are due to integer weights per endpoint, and to the share groups that keep a split exact.

A share group is one `Backend`-weighted backend, or all endpoints of the `Endpoint`-weighted backends together. Weights
are exact in their set (scaled by the least common multiple of the backends' sizes, over the greatest common divisor),
so a rotation is exact per period; while an endpoint ramps up they are rounded to millionths of the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import gcd, lcm
from typing import NamedTuple

from controller.balancing.node import Node
from controller.balancing.picker import Candidate, Group, Member
from controller.model.service import WeightPer

POOL = ""  # the share group of the `Endpoint`-weighted; no backend can be called so
RESOLUTION = 1_000_000
# Above it sums of weights would lose digits as floats; many backends of coprime sizes get there.
EXACT = 1 << 53

Factor = Callable[[Node], float]


class Share(NamedTuple):
    """What one backend brings into a level."""

    name: str
    weight: int  # > 0
    per: WeightPer
    nodes: Sequence[Node]  # never none, no duplicates


class _Due(NamedTuple):
    """One share group before scaling: endpoint weights are `units / parts`."""

    name: str
    weight: int
    units: dict[Node, int]
    parts: int


def groups(shares: Iterable[Share], factor: Factor | None = None) -> tuple[Group, ...]:
    """The share groups in the order of their first backend. `factor`: slow start's part of each endpoint's weight."""
    due = _due(shares)
    factors = [_factors(group, factor) for group in due] if factor else []
    if any(factors):
        weights = _rounded([_ramped(group, part) for group, part in zip(due, factors, strict=True)])
    else:
        weights = _exact(due)
    return tuple(
        Group(group.name, group.weight, tuple(map(Candidate, group.units, scaled)))
        for group, scaled in zip(due, weights, strict=True)
    )


def members(shares: Iterable[Share], identity: Callable[[Node], str], heaviest: int = 0) -> tuple[Member, ...]:
    """What a hash table is built over, sorted by group and hash identity, without slow start.

    `heaviest`: the greatest weight of an `Endpoint`-weighted backend, with endpoints or without; 0 = not told.
    """
    due = _due(shares)
    found = [
        Member(identity(node), group.name, weight, node.id, heaviest * weight / units if group.name == POOL else 0.0)
        for group, scaled in zip(due, _exact(due), strict=True)
        for (node, units), weight in zip(group.units.items(), scaled, strict=True)
    ]
    return tuple(sorted(found, key=lambda member: (member.group, member.identity)))


def _due(shares: Iterable[Share]) -> list[_Due]:
    pool: dict[Node, int] = {}
    order: list[_Due | None] = []  # None marks the pool's place
    for share in shares:
        if share.per == "Backend":
            order.append(_Due(share.name, share.weight, dict.fromkeys(share.nodes, share.weight), len(share.nodes)))
            continue
        if not pool:
            order.append(None)
        for node in share.nodes:
            pool[node] = pool.get(node, 0) + share.weight
    return [group or _Due(POOL, sum(pool.values()), pool, 1) for group in order]


def _exact(due: Sequence[_Due]) -> list[list[int]]:
    scale = lcm(*(group.parts for group in due))
    scaled = [[units * (scale // group.parts) for units in group.units.values()] for group in due]
    divisor = gcd(*(weight for weights in scaled for weight in weights)) or 1
    if sum(map(sum, scaled)) // divisor > EXACT:
        return _rounded([[units / group.parts for units in group.units.values()] for group in due])
    return [[weight // divisor for weight in weights] for weights in scaled]


def _factors(group: _Due, factor: Factor) -> list[float]:
    """None at all when nothing ramps, or when more than half of the group's weight would."""
    factors = [factor(node) for node in group.units]
    ramping = sum(units for units, part in zip(group.units.values(), factors, strict=True) if part < 1)
    return factors if 0 < 2 * ramping <= sum(group.units.values()) else []


def _ramped(group: _Due, factors: Sequence[float]) -> list[float]:
    if not factors:
        return [units / group.parts for units in group.units.values()]
    parts = [units * part for units, part in zip(group.units.values(), factors, strict=True)]
    restore = sum(group.units.values()) / group.parts / sum(parts)
    return [part * restore for part in parts]


def _rounded(weights: Sequence[Sequence[float]]) -> list[list[int]]:
    whole = sum(map(sum, weights))
    return [[max(1, round(weight / whole * RESOLUTION)) for weight in group] for group in weights]
