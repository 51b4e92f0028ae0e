"""Draws the priority level of a request, then picks inside it; and knows without a scan when everything is full.

An endpoint at its limit counts as tried, and a level with nothing untried and not full is left out of the draw. Who
tries again goes on to a level's further rungs when it has tried what is near. Only when no level has such an endpoint
is `tried` ignored.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence
from itertools import accumulate
from random import Random
from typing import NamedTuple

from xxhash import xxh64_intdigest

from controller.balancing import further
from controller.balancing.eligible import Level
from controller.balancing.node import Node
from controller.balancing.picker import CandidateSet, Picker, PickRequest

LEVEL_SEED = 255  # of the key's hash; the policies use the small seeds
TRIES = 3  # picks that may hit a full Node before the full ones are looked up


class _Tier(NamedTuple):
    at: int  # its place among the levels
    load: int
    picker: Picker
    nodes: frozenset[Node]
    wider: further.Rungs


class LevelPicker:
    """One eligible set with its pickers. Owns the count of full Nodes: `filled` and `freed` keep it right.

    Where every Node is full, `pick` returns one all the same: ask `full` first, and queue.
    """

    def __init__(self, levels: Sequence[tuple[Level, Picker]], random: Random, *, hashing: bool) -> None:
        self._tiers = tuple(
            _Tier(index, level.load, picker, nodes_of(level.candidates), level.wider)
            for index, (level, picker) in enumerate(levels)
        )
        self._random = random
        self._hashing = hashing
        self._homes: dict[Node, list[int]] = {}
        for tier in self._tiers:
            for node in tier.nodes:
                self._homes.setdefault(node, []).append(tier.at)
        self._busy = [0] * len(self._tiers)  # full Nodes per level
        self._filled = 0  # distinct full Nodes
        for node in self._homes:
            if node.full:
                self.filled(node)

    @property
    def full(self) -> bool:
        """Everything that may be picked is at its limit. False when nothing may be picked."""
        return self._filled == len(self._homes) and self._filled > 0

    def filled(self, node: Node) -> None:
        self._count(node, 1)

    def freed(self, node: Node) -> None:
        self._count(node, -1)

    def _count(self, node: Node, step: int) -> None:
        homes = self._homes.get(node)
        if homes is None:
            return  # in flight on one that has left the set
        self._filled += step
        for index in homes:
            self._busy[index] += step

    def pick(self, request: PickRequest) -> Node:
        tiers = self._tiers
        tried: Collection[Node] = request.tried
        if len(tiers) == 1 and not self._filled and not tried:
            return tiers[0].picker.pick(request)
        near = [tier for tier in tiers if self._open(tier, tried)]
        beyond = self._beyond(near, tried) if tried else {}
        open_tiers = [tier for tier in tiers if tier.at in beyond or tier in near] if beyond else near
        if not open_tiers:
            tried = ()
            open_tiers = [tier for tier in tiers if self._open(tier, ())] or list(tiers)
        tier = open_tiers[0] if len(open_tiers) == 1 else self._draw(open_tiers, request.key)
        if tier.at in beyond:
            return further.pick(beyond[tier.at], request.key if self._hashing else None, self._random)
        return self._pick_in(tier, request, tried)

    def _beyond(self, near: Sequence[_Tier], tried: Collection[Node]) -> dict[int, dict[Node, int]]:
        """What the further rungs have for who has tried all that is near, by level."""
        found = {tier.at: further.untried(tier.wider, tried) for tier in self._tiers if tier.wider and tier not in near}
        return {at: nodes for at, nodes in found.items() if nodes}

    def _open(self, tier: _Tier, tried: Collection[Node]) -> bool:
        left = len(tier.nodes) - self._busy[tier.at]
        return left > len(tried) or left > sum(node in tier.nodes and not node.full for node in set(tried))

    def _draw(self, tiers: Sequence[_Tier], key: bytes | None) -> _Tier:
        bounds = list(accumulate(tier.load for tier in tiers))
        whole = bounds[-1]
        if not whole:
            return tiers[0]
        if self._hashing and key is not None:
            return tiers[bisect_right(bounds, xxh64_intdigest(key, LEVEL_SEED) % whole)]
        return tiers[bisect_right(bounds, self._random.randrange(whole))]

    def _pick_in(self, tier: _Tier, request: PickRequest, tried: Collection[Node]) -> Node:
        if self._busy[tier.at] in (0, len(tier.nodes)):
            return tier.picker.pick(request)
        avoid = set(tried)
        for _ in range(TRIES):
            node = tier.picker.pick(PickRequest(request.now, request.key, avoid))
            if not node.full:
                return node
            avoid.add(node)
        avoid.update(node for node in tier.nodes if node.full)
        return tier.picker.pick(PickRequest(request.now, request.key, avoid))


class Without:
    """A picker whose set has shrunk while its successor is being built: the removed Nodes count as tried."""

    def __init__(self, picker: Picker, removed: Collection[Node]) -> None:
        self._picker = picker
        self._removed = frozenset(removed)  # never all of the picker's

    def pick(self, request: PickRequest) -> Node:
        node = self._picker.pick(PickRequest(request.now, request.key, self._removed.union(request.tried)))
        if node in self._removed:  # everything else was tried
            node = self._picker.pick(PickRequest(request.now, request.key, self._removed))
        return node


def nodes_of(candidates: CandidateSet) -> frozenset[Node]:
    return frozenset(node for group in candidates.groups for node, _ in group.candidates)
