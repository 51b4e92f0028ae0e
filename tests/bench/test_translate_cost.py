"""One object costs the same, however many others there are."""

from __future__ import annotations

from tests.bench.translate_cost import measure


def test_an_object_costs_the_same_beside_ten_others_as_beside_a_thousand() -> None:
    report = measure()

    assert report.ratio < 1.5, report
