"""Durations in the Gateway API's writing."""

from __future__ import annotations

import pytest

from controller.model.durations import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0s", 0.0),
        ("1ms", 0.001),
        ("30s", 30.0),
        ("1h30m", 5400.0),
        ("1m1s1ms", 61.001),
        ("1s1s", 2.0),
        ("99999h", 359_996_400.0),
    ],
)
def test_a_duration_is_the_sum_of_its_parts(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "5", "s", "1.5s", "-1s", "100000s", "1s1s1s1s1s", "1d", "1S", " 1s", "1s\n", "٣s", "2 weeks"]
)
def test_what_is_no_duration_raises(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0, "0s"), (0.25, "250ms"), (60.0, "1m"), (90.5, "1m30s500ms"), (5400.0, "1h30m")]
)
def test_a_duration_is_written_with_its_largest_units(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
