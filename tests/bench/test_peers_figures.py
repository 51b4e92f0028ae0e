"""The arithmetic of the comparison with peers: ratios are taken round by round, and a missing peer leaves no bar."""

from __future__ import annotations

from pathlib import Path

from tests.bench.peers import report
from tests.bench.peers.contenders import OURS
from tests.bench.peers.figures import Figures, bars, ratios
from tests.bench.peers.load import Burst, Delay


def rounds(*microseconds: float) -> list[Burst]:
    return [Burst(answers=1000, moved=2**20, seconds=1.0, cpu=each / 1000) for each in microseconds]


def test_a_disturbed_round_disturbs_both_and_leaves_the_median_ratio_alone() -> None:
    assert ratios([10, 40, 10], [20, 80, 20]).median == 0.5


def test_only_what_was_measured_has_a_bar() -> None:
    found = Figures({}, 3, 1.0, small={OURS: rounds(10, 10, 10), "nginx": rounds(10, 5, 4)})
    (bar,) = bars(found, OURS)
    assert bar.what == "CPU per request, × nginx"
    assert bar.seen.median == 2
    assert not bar.met


def test_the_report_says_which_bars_are_missed_and_at_what_load(tmp_path: Path) -> None:
    found = Figures({OURS: "1.0.0"}, 3, 1.0, loads=[7.0], missing=["envoy: no wheel"])
    found.small = {OURS: rounds(20, 20, 20), "nginx": rounds(10, 10, 10)}
    found.delays = {name: [Delay(p50=100.0, p99=900.0, answers=9)] for name in ("direct", OURS, "nginx")}
    found.base, found.idle = {OURS: 50_000_000}, {OURS: 2000.0}
    page = report.write(found, bars(found, OURS), tmp_path).read_text()
    assert "| CPU per request, × nginx | 2.00 |  | 1.5  | **missed** |" in page
    assert "load was 7.0" in page
    assert "skipped envoy: no wheel" in page
    assert {path.name for path in tmp_path.iterdir()} == {"README.md", "requests.png", "delays.png"}


def test_what_many_endpoints_cost_is_told_of_each_proxy_and_has_a_bar_for_ours(tmp_path: Path) -> None:
    found = Figures({OURS: "1.0.0"}, 3, 1.0)
    found.endpoints = {
        OURS: {10: rounds(10, 20, 10), 1000: rounds(12, 24, 12)},
        "nginx": {10: rounds(10, 20, 10), 1000: rounds(15, 30, 15)},
    }
    (bar,) = bars(found, OURS)
    assert (bar.what, bar.met) == ("CPU per request, 1 000 endpoints × 10", False)
    page = report.write(found, [bar], tmp_path).read_text()
    assert f"A thousand endpoints against ten: {OURS} 1.20, nginx 1.50." in page
    assert f"| {OURS}, 1000 | 12.0 | 12.0–18.0 |" in page
    assert (tmp_path / "endpoints.png").exists()
