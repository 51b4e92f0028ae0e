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

    __slots__ = ("_balance", "_newest", "_second", "terms")

    def __init__(self, terms: Terms) -> None:
        self.terms = terms  # may be replaced; what was paid in stays
        self._balance = [0] * SLOTS  # by second, that of the newest one nought
        self._newest = 0  # the balance of the newest
        self._second = -SLOTS  # which that is

    def attempt(self, now: float) -> None:
        """A request's first attempt."""
        if now >= self._second + 1:
            self._turn(int(now))
        self._newest += self.terms.percent

    def retry(self, now: float) -> bool:
        """Whether one more retry may be made; if so, it is counted."""
        if now >= self._second + 1:
            self._turn(int(now))
        if self.left() < RETRY:
            return False
        self._newest -= RETRY
        return True

    def left(self) -> int:
        """Hundredths of a retry, as of the last call."""
        return self.terms.min_per_second * SLOTS * RETRY + sum(self._balance) + self._newest

    def _turn(self, second: int) -> None:
        """Put the newest slot away, and clear those of the seconds since."""
        self._balance[self._second % SLOTS] = self._newest
        self._newest = 0
        for passed in range(max(self._second + 1, second - SLOTS + 1), second + 1):
            self._balance[passed % SLOTS] = 0
        self._second = second

    def __repr__(self) -> str:
        return f"<RetryBudget {self.left() / RETRY:.2f} left>"
