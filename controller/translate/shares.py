"""What share of the requests each backend gets at the moment, from weights, priorities and usable endpoints."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from controller.model.service import WeightPer

OVERPROVISIONING = 140  # percent: a level keeps all its load until fewer than 71 % of it are usable (Envoy's factor)


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """One backend, as far as its share goes."""

    weight: int
    weight_per: WeightPer
    priority: int
    active: int
    usable: int  # of the active ones: neither ejected nor failing their checks


def shares(standings: Sequence[Standing], panic_percent: int) -> tuple[float, ...]:
    """The backends' shares, in their order; they sum to 1, or are all 0 when nothing can be sent anywhere.

    A backend without a usable endpoint gives its share to the others of its priority. A `Backend` weight is the
    backend's share; `Endpoint` weights count once per endpoint.
    """
    levels = sorted({each.priority for each in standings})
    members = [[each for each in standings if each.priority == level and each.weight > 0] for level in levels]
    totals = [(sum(each.usable for each in level), sum(each.active for each in level)) for level in members]
    loads, panics = level_loads(totals, panic_percent)
    unit: dict[int, float] = {}  # the share of one unit of pull
    for level, group, load, panic in zip(levels, members, loads, panics, strict=True):
        pull = sum(_pull(each, panic=panic) for each in group)
        unit[level] = load / 100 / pull if pull else 0.0
    panicking = dict(zip(levels, panics, strict=True))
    return tuple(unit[each.priority] * _pull(each, panic=panicking[each.priority]) for each in standings)


def _pull(standing: Standing, *, panic: bool) -> int:
    count = standing.active if panic else standing.usable
    return standing.weight * (count if standing.weight_per == "Endpoint" else min(count, 1))


def level_loads(levels: Sequence[tuple[int, int]], panic_percent: int) -> tuple[list[int], list[bool]]:
    """Each level's load in percent, and whether it panics, from its (usable, active) endpoints; Envoy's rule."""
    health = [min(100, OVERPROVISIONING * usable // active) if active else 0 for usable, active in levels]
    total = min(100, sum(health))
    panic = [total < 100 and 100 * usable < panic_percent * active for usable, active in levels]
    if not total:
        first = next((index for index, (_, active) in enumerate(levels) if active), None)
        return [100 if index == first else 0 for index in range(len(levels))], panic
    loads, left = [], 100
    for level in health:
        loads.append(min(left, (200 * level + total) // (2 * total)))  # rounded half up
        left -= loads[-1]
    loads[next(index for index, level in enumerate(health) if level)] += left
    return loads, panic
