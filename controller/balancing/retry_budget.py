"""Retry budget: retries are a share of the requests, so that an outage is not multiplied by its own retries.

The form of Finagle and Linkerd: ten slots of a second; a first attempt pays in, a retry takes out, and a reserve lets
a quiet service retry at all.
"""

from __future__ import annotations

from controller.model.service import RetryBudget as Terms

SLOTS = 10  # of a second each
RETRY = 100  # amounts are in hundredths of a retry, so that percentages stay integers


class RetryBudget:
    """One upstream's budget in one process. `now` is monotonic, in seconds.

    In any ten slots that end with a granted retry, retries ≤ 10 · minPerSecond + percent of their first attempts.
    """

    __slots__ = ("_balance", "_second", "terms")

    def __init__(self, terms: Terms) -> None:
        self.terms = terms  # may be replaced; what was paid in stays
        self._balance = [0] * SLOTS
        self._second = -SLOTS  # the newest second that has a slot

    def attempt(self, now: float) -> None:
        """A request's first attempt."""
        second = int(now)
        if second > self._second:
            self._turn(second)
        self._balance[second % SLOTS] += self.terms.percent

    def retry(self, now: float) -> bool:
        """Whether one more retry may be made; if so, it is counted."""
        second = int(now)
        if second > self._second:
            self._turn(second)
        if self.left() < RETRY:
            return False
        self._balance[second % SLOTS] -= RETRY
        return True

    def left(self) -> int:
        """Hundredths of a retry, as of the last call."""
        return self.terms.min_per_second * SLOTS * RETRY + sum(self._balance)

    def _turn(self, second: int) -> None:
        """Clear the slots of the seconds since the last one."""
        for passed in range(max(self._second + 1, second - SLOTS + 1), second + 1):
            self._balance[passed % SLOTS] = 0
        self._second = second

    def __repr__(self) -> str:
        return f"<RetryBudget {self.left() / RETRY:.2f} left>"
