"""Which Nodes may be picked, decided once per change and never per request.

In this order: weight 0 is out; of the rest the ACTIVE ones, or the DRAINING ones where no level has an ACTIVE one;
the usable of those (not ejected, the active check passing); priority levels and panic; locality inside each backend;
weights and slow start. Levels come before locality, so a zone that is all bad falls back to its own level's other
zones and not to a lower level.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import NamedTuple

from controller.balancing import locality, priority, slow_start, weights
from controller.balancing.locality import RUNGS, Place, Rung
from controller.balancing.node import Node
from controller.balancing.picker import CandidateSet
from controller.model.service import HASHING, Algorithm, Health, Prefer, WeightPer

REFRESH = 0.1  # seconds between two steps of slow start: ten a second look smooth and cost little


class Source(NamedTuple):
    """One backend with the Nodes it lists now, whatever their state; the same pod only once."""

    name: str
    weight: int
    per: WeightPer
    priority: int
    nodes: Sequence[Node]


# The sources of a level, each with its rungs that hold a pickable endpoint, the nearest first.
Ladders = Sequence[tuple[Source, Sequence[tuple[Rung, Sequence[Node]]]]]


class Rules(NamedTuple):
    """What of an object, and of the proxy's place, decides eligibility."""

    algorithm: Algorithm = Algorithm()
    health: Health = Health()
    prefer: Prefer = "Service"
    place: Place = Place()


class Level(NamedTuple):
    """One priority with something to pick."""

    priority: int
    load: int  # percent of the requests
    panic: bool
    candidates: CandidateSet
    rungs: dict[str, Rung]  # per backend
    wider: tuple[tuple[weights.Share, ...], ...] = ()  # further rungs, for who has tried the candidates


class Eligible(NamedTuple):
    levels: tuple[Level, ...]  # in order of priority; none when nothing may be picked
    base: tuple[Node, ...]  # those with a weight that the ladder left, whatever their health
    usable: tuple[Node, ...]  # of these, the ones that pass their checks
    probing: frozenset[Node]  # back from ejection and not proven: one request at a time
    again: float  # when to decide again although nothing changes, in seconds monotonic; inf = never


def usable(node: Node, now: float) -> bool:
    return node.healthy and (node.ejected_until is None or node.ejected_until <= now)


def eligible(sources: Iterable[Source], rules: Rules, now: float) -> Eligible:
    """`now`: seconds, monotonic. Same input, same output; the order of `sources` is kept."""
    listed = tuple(sources)
    ranks: dict[int, list[Source]] = {}
    for source in _standing(listed):
        ranks.setdefault(source.priority, []).append(source)
    order = sorted(ranks)
    base = {rank: _distinct(ranks[rank]) for rank in order}
    able = {rank: {node for node in base[rank] if usable(node, now)} for rank in order}
    shares = priority.loads([(len(able[rank]), len(base[rank])) for rank in order], rules.health.panic_percent)

    levels = []
    probing: set[Node] = set()
    again = inf
    for rank, load in zip(order, shares, strict=True):
        pickable = set(base[rank]) if load.panic else able[rank]
        if not pickable:
            continue
        heaviest = max((s.weight for s in listed if s.priority == rank and s.per == "Endpoint"), default=0)
        ladders = [
            (source, locality.ladder(source.nodes, pickable, rules.prefer, rules.place)) for source in ranks[rank]
        ]
        candidates, rungs = _candidates(ladders, pickable, rules, now, heaviest)
        levels.append(Level(rank, load.percent, load.panic, candidates, rungs, _wider(ladders, pickable)))
        if not load.panic:
            probing.update(node for node in pickable if node.ejected_until is not None)
        again = min(again, _next_step(candidates, rules, now))

    everything = tuple(dict.fromkeys(node for rank in order for node in base[rank]))
    standing = tuple(node for node in everything if usable(node, now))
    # With nobody proven to take the rest, holding the probed ones to one request would refuse work they could do.
    proven = any(node.ejected_until is None for node in standing)
    returns = [node.ejected_until for node in everything if node.ejected_until is not None and node.ejected_until > now]
    return Eligible(
        tuple(levels), everything, standing, frozenset(probing) if proven else frozenset(), min([again, *returns])
    )


def _standing(sources: Iterable[Source]) -> list[Source]:
    """The sources cut down to what the draining ladder leaves; those with nothing left are dropped."""
    weighted = [source for source in sources if source.weight > 0]
    for state in ("ACTIVE", "DRAINING"):
        found = [
            source._replace(nodes=nodes)
            for source in weighted
            if (nodes := tuple(node for node in source.nodes if node.endpoint.state == state))
        ]
        if found:
            return found
    return []


def _distinct(sources: Iterable[Source]) -> tuple[Node, ...]:
    return tuple(dict.fromkeys(node for source in sources for node in source.nodes))


def _candidates(
    ladders: Ladders, pickable: set[Node], rules: Rules, now: float, heaviest: int
) -> tuple[CandidateSet, dict[str, Rung]]:
    shares, listed, rungs = [], [], {}
    for source, ladder in ladders:
        rung, near = ladder[0]
        listed.append(weights.Share(source.name, source.weight, source.per, near))
        nodes = tuple(node for node in near if node in pickable)
        if nodes:  # else its share goes to the others of its level
            shares.append(weights.Share(source.name, source.weight, source.per, nodes))
            rungs[source.name] = rung

    if rules.algorithm.type in HASHING:  # a moving weight would remap keys: no slow start
        by = rules.algorithm.consistent_hash.identity
        members = weights.members(listed, lambda node: node.endpoint.hash_identity(by), heaviest)
        return CandidateSet(weights.groups(shares), members), rungs
    if not rules.health.slow_start.window:
        return CandidateSet(weights.groups(shares)), rungs
    return CandidateSet(
        weights.groups(shares, lambda node: slow_start.factor(now - node.since, rules.health.slow_start))
    ), rungs


def _wider(ladders: Ladders, pickable: set[Node]) -> tuple[tuple[weights.Share, ...], ...]:
    """What each rung adds to the candidates, the nearest first; nothing where they are all there is."""
    if all(len(ladder) == 1 for _, ladder in ladders):
        return ()
    found = []
    for step in RUNGS[1:]:
        shares = []
        for source, ladder in ladders:
            nodes = next(nodes for rung, nodes in ladder if RUNGS.index(rung) >= RUNGS.index(step))
            if usable_nodes := tuple(node for node in nodes if node in pickable):
                shares.append(weights.Share(source.name, source.weight, source.per, usable_nodes))
        found.append(tuple(shares))
    return tuple(found)


def _next_step(candidates: CandidateSet, rules: Rules, now: float) -> float:
    """When slow start may change a weight; inf when nothing is inside its window."""
    window = rules.health.slow_start.window
    if not window or rules.algorithm.type in HASHING:
        return inf
    young = any(node.since + window > now for group in candidates.groups for node, _ in group.candidates)
    return now + REFRESH if young else inf
