"""The factor by age, aggression and floor."""

from __future__ import annotations

import pytest

from controller.balancing.slow_start import factor
from controller.model.service import SlowStart

# Window 60 s, at least 10 %: rows by aggression, columns by age in seconds.
AGES = (0, 1, 5, 10, 15, 30, 45, 59)
TABLE = {
    0.5: (0.1, 0.1, 0.1, 0.1, 0.1, 0.25, 0.562, 0.967),
    1: (0.1, 0.1, 0.1, 0.167, 0.25, 0.5, 0.75, 0.983),
    1.5: (0.1, 0.1, 0.191, 0.303, 0.397, 0.63, 0.825, 0.989),
    2: (0.1, 0.129, 0.289, 0.408, 0.5, 0.707, 0.866, 0.992),
    5: (0.111, 0.441, 0.608, 0.699, 0.758, 0.871, 0.944, 0.997),
}


@pytest.mark.parametrize("aggression", TABLE)
def test_the_factor_follows_its_table(aggression: float) -> None:
    terms = SlowStart(window=60, aggression=aggression)

    assert TABLE[aggression] == tuple(round(factor(age, terms), 3) for age in AGES)


def test_it_ends_with_the_window() -> None:
    assert factor(60, SlowStart(window=60)) == 1
    assert factor(1e9, SlowStart(window=60)) == 1


def test_without_a_window_nothing_is_slow() -> None:
    assert factor(0, SlowStart()) == 1
