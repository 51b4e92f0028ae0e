"""Outlier ejection: an endpoint that answers badly is left out for a while, then tried with one request.

Envoy's two detectors: failures in a row, and a success rate far below the others'. Its deviations alone would eject
healthy endpoints (0.77 false ejections an interval among 20 at 99 %), so a gap in points is required, too; and
k equal outliers of n deviate by √((n − k)/k), so below five endpoints the rate says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt
from random import Random
from typing import Literal

from controller.balancing.eligible import usable
from controller.balancing.node import FAILURES, Kind, Node
from controller.model.service import PassiveHealth

INTERVAL = 10.0  # seconds between two sweeps: Envoy's
RATED = 5  # endpoints with enough requests, at least, for the success rate to mean something
JITTER = 0.1  # of the ejection time, so that endpoints ejected together don't return together

OK = Kind.OK  # a look into an enumeration costs 30 ns
Cause = Literal["consecutive failures", "success rate", "failed its probe"]


class Outlier:
    """The detector of one upstream. `changed` is called after a Node was ejected or came back.

    Guarantees: never ejects the last usable Node of `base`; never more than `maxEjectedPercent` of it, but one always
    (0: none); Nodes outside `base` are not judged. `consecutiveFailures: 0` turns that detector off.
    """

    def __init__(self, terms: PassiveHealth, random: Random, changed: Callable[[Node], None]) -> None:
        self.terms = terms
        self.base: Sequence[Node] = ()  # the Nodes that eligibility chose from
        self.causes: dict[Node, Cause] = {}  # of those ejected now
        self._random = random
        self._changed = changed
        self._returned: set[Node] = set()  # since the last sweep

    def observe(self, node: Node, now: float, kind: Kind, seconds: float, retry_after: float | None) -> None:
        """An Observer of Node. What is neutral (the client left) or back-pressure teaches nothing here."""
        if kind is OK:
            node.consecutive = 0
            node.ok += 1
            node.total += 1
            if node.ejected_until is not None and node.ejected_until <= now:
                self._restore(node, now)
        elif kind in FAILURES:
            node.consecutive += 1
            node.total += 1
            if node.ejected_until is not None:
                self._eject(node, now, "failed its probe")
            elif 0 < self.terms.consecutive_failures <= node.consecutive:
                self._eject(node, now, "consecutive failures")

    def sweep(self, now: float, known: Sequence[Node]) -> None:
        """Judge success rates over the interval since the last sweep. `known`: every Node of the upstream."""
        least = self.terms.success_rate.min_requests  # at least 1
        rates = [(node, node.ok / node.total) for node in self.base if node.total >= least]
        if len(rates) >= RATED:
            mean = sum(rate for _, rate in rates) / len(rates)
            deviation = sqrt(sum((rate - mean) ** 2 for _, rate in rates) / len(rates))
            success = self.terms.success_rate
            bar = mean - max(success.deviations * deviation, success.min_gap_percent / 100)
            for node, rate in rates:
                if rate < bar:
                    self._eject(node, now, "success rate")
        for node in known:
            if node.ejected_until is None and node not in self._returned:
                node.times = max(0, node.times - 1)
            node.ok = node.total = 0
        self._returned.clear()

    def forget(self, node: Node) -> None:
        self.causes.pop(node, None)
        self._returned.discard(node)

    def _eject(self, node: Node, now: float, cause: Cause) -> None:
        if node.ejected_until is not None and node.ejected_until > now:
            return
        if node not in self.base or not any(other is not node and usable(other, now) for other in self.base):
            return
        if not self.terms.max_ejected_percent:
            return
        others = sum(other.ejected_until is not None for other in self.base if other is not node)
        if others + 1 > max(1, len(self.base) * self.terms.max_ejected_percent // 100):
            return
        node.times += 1
        duration = min(self.terms.ejection * node.times, self.terms.max_ejection)
        node.ejected_until = now + duration * (1 + JITTER * self._random.random())
        self.causes[node] = cause
        self._changed(node)

    def _restore(self, node: Node, now: float) -> None:
        node.ejected_until = None
        node.consecutive = node.ok = node.total = 0
        node.since = now
        self._returned.add(node)
        self.causes.pop(node, None)
        self._changed(node)
