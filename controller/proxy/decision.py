"""Why a request went where it did, told in `X-Steelyard-*` response fields to who shows the object's debug key.

Without a key in force nothing of this costs a request anything. The key never goes upstream: the codec drops its field.
"""

from __future__ import annotations

from hmac import compare_digest
from typing import TYPE_CHECKING

from controller.balancing.eligible import Level
from controller.balancing.latency import UNKNOWN
from controller.balancing.node import Node
from controller.model.service import AlgorithmType
from controller.proxy.codec import RequestHead

if TYPE_CHECKING:
    from controller.proxy.forward import Exchange

FIELD = b"x-steelyard-debug"
CANDIDATES = 32  # named at most: clients refuse long heads


def wanted(head: RequestHead, key: bytes) -> bool:
    """Whether the request shows the key; compared in constant time."""
    shown = head.field(FIELD)
    return shown is not None and compare_digest(shown, key)


class Decision:
    """What the latest pick had to choose from; `note` it before the attempt counts as load."""

    __slots__ = ("_candidates", "_count", "_rungs", "how")

    def __init__(self) -> None:
        self.how = ""  # the algorithm, or what came before it
        self._count = 0
        self._candidates: list[str] = []
        self._rungs: list[str] = []

    def note(self, exchange: Exchange, how: str = "") -> None:
        """`how`: why not by the algorithm, if so."""
        upstream = exchange.lane.upstream
        algorithm = upstream.snapshot.algorithm.type
        levels = upstream.chosen.levels
        found = [(level, *candidate) for level in levels for group in level.candidates.groups for candidate in group[2]]
        self.how = how or algorithm
        self._count = len(found)
        self._candidates = [_candidate(algorithm, *each) for each in found[:CANDIDATES]]
        self._rungs = [
            f"{backend};level={level.priority};load={level.load};rung={rung}{';panic' if level.panic else ''}"
            for level in levels
            for backend, rung in level.rungs.items()
        ]

    def fields(self, exchange: Exchange, reason: str = "") -> bytes:
        """The lines, each with its CRLF. `reason`: why the answer is the proxy's own, if it is."""
        pool = exchange.pool
        lines = {
            "endpoint": pool.authority.decode() if pool is not None else "none",
            "reason": reason or self.how,
            "tries": str(exchange.tries),
            "tried": ", ".join(map(_address, exchange.tried)),
            "rung": ", ".join(self._rungs[:CANDIDATES]),
            "candidates": str(self._count),
            "costs": ", ".join(self._candidates),
        }
        return "".join(f"X-Steelyard-{name.title()}: {value}\r\n" for name, value in lines.items() if value).encode()


def _candidate(algorithm: AlgorithmType, level: Level, node: Node, weight: int) -> str:
    text = f"{_address(node)};level={level.priority};weight={weight};load={node.load()}"
    cost = _cost(algorithm, node, weight)
    return text if cost is None else f"{text};cost={cost:.6g}"


def _cost(algorithm: AlgorithmType, node: Node, weight: int) -> float | None:
    """What the algorithm compares, the lowest of those drawn being taken; None where it compares nothing."""
    if algorithm in ("LeastConnections", "PowerOfTwoChoices"):
        return node.load() / weight
    if algorithm == "PeakEWMA":
        return (node.ewma or UNKNOWN) * (node.load() + 1) / weight
    return None


def _address(node: Node) -> str:
    endpoint = node.endpoint
    host = f"[{endpoint.address}]" if ":" in endpoint.address else endpoint.address
    return f"{host}:{endpoint.port}"
