"""Ten slots of a second: first attempts pay in, retries take out, a reserve starts it."""

from __future__ import annotations

from controller.balancing.retry_budget import RetryBudget
from controller.model.service import RetryBudget as Terms


def _granted(budget: RetryBudget, now: float, asked: int) -> int:
    return sum(budget.retry(now) for _ in range(asked))


def test_a_fifth_of_the_requests_may_be_retried() -> None:
    budget = RetryBudget(Terms(percent=20, min_per_second=0))
    for _ in range(100):
        budget.attempt(5.0)

    assert _granted(budget, 5.0, 50) == 20


def test_the_reserve_lets_a_quiet_service_retry() -> None:
    budget = RetryBudget(Terms(percent=0, min_per_second=3))

    assert _granted(budget, 1000.0, 50) == 30
    assert _granted(budget, 1009.9, 50) == 0
    assert _granted(budget, 1010.0, 50) == 30


def test_both_at_nothing_means_no_retry() -> None:
    budget = RetryBudget(Terms(percent=0, min_per_second=0))
    budget.attempt(1.0)

    assert not budget.retry(1.0)


def test_what_was_paid_in_lasts_ten_seconds() -> None:
    budget = RetryBudget(Terms(percent=100, min_per_second=0))
    budget.attempt(3.0)

    assert budget.retry(12.9)

    budget.attempt(23.0)
    assert not budget.retry(33.0)


def test_a_long_silence_clears_every_slot_once() -> None:
    budget = RetryBudget(Terms(percent=100, min_per_second=0))
    for second in range(10):
        budget.attempt(float(second))

    assert not budget.retry(1e9)


def test_a_clock_that_stands_a_little_behind_changes_no_newer_slot() -> None:
    budget = RetryBudget(Terms(percent=100, min_per_second=0))
    budget.attempt(8.0)
    budget.attempt(7.5)

    assert _granted(budget, 8.0, 5) == 2


def test_new_terms_keep_what_was_paid_in() -> None:
    budget = RetryBudget(Terms(percent=50, min_per_second=0))
    budget.attempt(1.0)
    budget.attempt(1.0)

    budget.terms = Terms(percent=0, min_per_second=0)

    assert budget.retry(1.0)
    assert repr(budget) == "<RetryBudget 0.00 left>"
