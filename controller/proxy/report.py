"""What `/endpoints` shows: each endpoint of an upstream, with all that decides what it is given."""

from __future__ import annotations

from controller.balancing import slow_start
from controller.balancing.eligible import Level, Source
from controller.balancing.node import Node
from controller.balancing.weights import POOL
from controller.proxy.upstream import Upstream


def endpoints(upstream: Upstream, now: float) -> list[dict[str, object]]:
    """One dictionary per backend and endpoint, in the order of the snapshot. `now`: seconds, monotonic.

    `share` is the percentage of new requests that the endpoint is due while nothing is full or tried; it is None for
    one that may not be picked. Times are in seconds.
    """
    levels = {level.priority: level for level in upstream.chosen.levels}
    return [
        _row(upstream, source, node, levels.get(source.priority), now)
        for source in upstream.sources
        for node in source.nodes
    ]


def _row(upstream: Upstream, source: Source, node: Node, level: Level | None, now: float) -> dict[str, object]:
    endpoint = node.endpoint
    terms = upstream.snapshot.health.slow_start
    share = _share(level, source, node) if level is not None else None
    return {
        "backend": source.name,
        "id": node.id,
        "address": endpoint.address,
        "port": endpoint.port,
        "pod": endpoint.pod or None,
        "zone": endpoint.zone or None,
        "state": endpoint.state,
        "weight": source.weight,
        "inFlight": node.load(),
        "latency": node.ewma or None,
        "healthy": node.healthy,
        "ejection": _ejection(upstream, node, now),
        "slowStart": round(slow_start.factor(now - node.since, terms), 3),
        "level": source.priority,
        "panic": level is not None and level.panic,
        "rung": level.rungs.get(source.name) if level is not None and share is not None else None,
        "share": share,
    }


def _ejection(upstream: Upstream, node: Node, now: float) -> dict[str, object] | None:
    if node.ejected_until is None:
        return None
    left = max(0.0, node.ejected_until - now)  # 0: waits for the request that proves it
    return {"cause": upstream.outlier.causes.get(node), "remaining": round(left, 3), "times": node.times}


def _share(level: Level, source: Source, node: Node) -> float | None:
    name = source.name if source.per == "Backend" else POOL
    groups = level.candidates.groups
    weight = next((dict(group.candidates).get(node) for group in groups if group.name == name), None)
    if weight is None:
        return None
    whole = sum(weight for group in groups for _, weight in group.candidates)
    return round(level.load * weight / whole, 3)
