"""The soak, for twenty seconds; `make bench` runs it for ten minutes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.soak import soak


@pytest.mark.timeout(150)
async def test_mixed_traffic_under_churn_fails_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    report = await soak(20, tmp_path)
    print(report)

    assert report.failed == []
    assert report.left == {}
    assert report.flat, report
    assert report.ended.total() > 300
    assert report.changes > 20
