"""What PeakEWMA learns: each node's latency, with failures made dear.

Without the penalty an endpoint that fails everything in a millisecond is the cheapest of all, and takes twice its
share; with it, a hundredth. The estimate jumps to a peak at once and falls by the time passed (Finagle, Linkerd).
"""

from __future__ import annotations

from collections.abc import Iterable
from math import exp

from controller.balancing.node import Kind, Node
from controller.model.service import PeakEwma

UNKNOWN = 0.030  # seconds; any positive constant ranks nodes by their load
PENALTY = (0.1, 5.0)  # seconds: above what a fast backend's noise can reach, below what would bar it for minutes
LONGEST_RETRY_AFTER = 300.0  # seconds
GREATEST_EXPONENT = 500.0  # e^709 is the greatest float
MEDIAN_AGE = 1.0  # seconds


def median(nodes: Iterable[Node], now: float, decay: float) -> float:
    """Return the median latency of those that have one, brought to `now`, in seconds; 0 where none has.

    Above the greatest penalty an estimate says that the endpoint asked for a pause, and nothing of the others: a
    newcomer that started there would be passed over for as long. `decay` in seconds, above 0.
    """
    known = sorted(node.ewma * exp((node.stamp - now) / decay) for node in nodes if node.ewma > 0.0)
    usual = [latency for latency in known if latency <= PENALTY[1]]
    size = len(usual)
    if not size:
        return PENALTY[1] if known else 0.0
    return (usual[(size - 1) // 2] + usual[size // 2]) / 2


class Latency:
    """Keeps `Node.ewma`: put `observe` into the `observers` of an upstream's nodes.

    `nodes` is a live view of them, gone through once a second at most: their median scales the penalty. `terms` may be
    replaced at any time.
    """

    __slots__ = ("_median", "_nodes", "_stamp", "terms")

    def __init__(self, terms: PeakEwma, nodes: Iterable[Node]) -> None:
        self.terms = terms
        self._nodes = nodes
        self._median = UNKNOWN
        self._stamp = float("-inf")

    def observe(self, node: Node, now: float, kind: Kind, seconds: float, retry_after: float | None) -> None:
        """Learn from one attempt: `seconds` from its start to its head, or to its failure."""
        if kind is Kind.CANCELLED:
            if seconds > node.ewma:  # no answer yet: a lower bound
                self._sample(node, seconds, now)
            return
        if kind is not Kind.OK:
            usual = self._usual(now)
            seconds = max(seconds, min(max(self.terms.failure_penalty * usual, PENALTY[0]), PENALTY[1]))
            if retry_after is not None:
                wait = min(retry_after, LONGEST_RETRY_AFTER) / self.terms.decay
                seconds = max(seconds, usual * exp(min(wait, GREATEST_EXPONENT)))  # back at the usual after it
        self._sample(node, seconds, now)

    def _usual(self, now: float) -> float:
        """Return the median, at most a second old."""
        if now - self._stamp >= MEDIAN_AGE:
            self._median = median(self._nodes, now, self.terms.decay) or UNKNOWN
            self._stamp = now
        return self._median

    def _sample(self, node: Node, seconds: float, now: float) -> None:
        if seconds > node.ewma:
            node.ewma = seconds
        else:
            kept = exp((node.stamp - now) / self.terms.decay)
            node.ewma = node.ewma * kept + seconds * (1.0 - kept)
        node.stamp = now
