"""A snapshot reaches every proxy soon, however many there are."""

from __future__ import annotations

import pytest

from tests.bench.fanout import measure


@pytest.mark.timeout(120)
def test_a_snapshot_of_fifty_kilobytes_reaches_two_hundred_proxies_within_150_ms() -> None:
    report = measure()

    assert 45_000 < report.size < 55_000
    assert report.quietest < 0.150, report
