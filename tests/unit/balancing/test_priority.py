"""Loads and panic by the health of the levels."""

from __future__ import annotations

import pytest

from controller.balancing.priority import Load, loads


# Percent usable per level (of 100 ACTIVE ones), loads, indices of levels in panic at the default of 50.
@pytest.mark.parametrize(
    ("usable", "expected", "panics"),
    [
        ((100, 100), (100, 0), ()),
        ((72, 100), (100, 0), ()),
        ((71, 100), (99, 1), ()),
        ((50, 100), (70, 30), ()),
        ((25, 100), (35, 65), ()),
        ((0, 100), (0, 100), ()),
        ((25, 25), (50, 50), (0, 1)),
        ((25, 25, 100), (35, 35, 30), ()),
        ((25, 25, 20), (36, 36, 28), (0, 1, 2)),
        ((5, 65), (7, 93), (0,)),
        ((40,), (100,), (0,)),
    ],
)
def test_loads_follow_health(usable: tuple[int, ...], expected: tuple[int, ...], panics: tuple[int, ...]) -> None:
    found = loads([(share, 100) for share in usable], 50)

    assert expected == tuple(load.percent for load in found)
    assert panics == tuple(index for index, load in enumerate(found) if load.panic)


def test_with_nothing_usable_the_first_level_with_endpoints_gets_all() -> None:
    assert loads([(0, 0), (0, 3), (0, 3)], 50) == [Load(0, False), Load(100, True), Load(0, True)]


def test_without_endpoints_nobody_gets_anything() -> None:
    assert loads([(0, 0)], 50) == [Load(0, False)]
    assert loads([], 50) == []


def test_panic_percent_0_never_panics() -> None:
    assert loads([(0, 10)], 0) == [Load(100, False)]
    assert loads([(1, 10)], 0) == [Load(100, False)]


def test_an_empty_level_is_skipped() -> None:
    assert loads([(0, 0), (2, 2)], 50) == [Load(0, False), Load(100, False)]


def test_what_rounding_leaves_goes_to_the_first_healthy_level() -> None:
    # Healths 46, 46, 2 of norm 94: 48.9, 48.9 and 2.1 of a hundred.
    assert [load.percent for load in loads([(33, 100), (33, 100), (2, 100)], 0)] == [49, 49, 2]
    # Healths 1, 1, 1: 33.3 each.
    assert [load.percent for load in loads([(1, 140)] * 3, 0)] == [34, 33, 33]
