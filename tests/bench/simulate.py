"""`python -m tests.bench.simulate`: every scenario for three seeds, as a Markdown table and one plot each in reports/.

python -m tests.bench.simulate                      all scenarios, seeds 1 2 3
python -m tests.bench.simulate --only S1 S5         some of them
python -m tests.bench.simulate --requests 200000    p99 within 3 %, p99.9 within 10 %
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

import matplotlib as mpl

from controller.model.service import SlowStart
from tests.bench.simulation.counting import newcomers_share, reset_extremes, together
from tests.bench.simulation.result import Result
from tests.bench.simulation.scenarios import SCENARIOS

mpl.use("Agg")
from matplotlib import pyplot as plt

Rows = dict[str, dict[str, list[Result]]]  # setting → policy → one result a seed


def simulate(scenario: str, seeds: list[int], requests: int) -> Rows:
    rows: Rows = {}
    cells = list(SCENARIOS[scenario][1]())
    for number, found in enumerate(cells, 1):
        progress(f"{scenario} {number}/{len(cells)}: {found.setting}, {found.policy.name}")
        results = [found.run(seed, requests) for seed in seeds]
        rows.setdefault(found.setting, {})[found.policy.name] = results
    progress("")
    return rows


def progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
    elif text:
        print(text, file=sys.stderr, flush=True)


def median(results: list[Result], field: str) -> float:
    return statistics.median(getattr(result, field) for result in results)


def markdown(scenario: str, rows: Rows) -> str:
    lines = [f"## {scenario}: {SCENARIOS[scenario][0]}", "", f"![{scenario}]({scenario}.png)", ""]
    lines += ["| setting | policy | mean ms | p50 ms | p99 ms | p99.9 ms | errors | imbalance | cache hits |"]
    lines += ["|---|---|---:|---:|---:|---:|---:|---:|---:|"]
    for setting, policies in rows.items():
        for policy, results in policies.items():
            times = [f"{1000 * median(results, name):.1f}" for name in ("mean", "p50", "p99", "p999")]
            hits = median(results, "hits")
            lines.append(
                f"| {setting} | {policy} | {' | '.join(times)} | {median(results, 'errors'):.2%} "
                f"| {median(results, 'imbalance'):.2f} | {f'{hits:.2f}' if hits else ''} |"
            )
    return "\n".join([*lines, ""])


def plot(scenario: str, rows: Rows, path: Path) -> None:
    """p99 by policy (bars), one group a setting, on a logarithmic scale; the share of errors is written on the bar."""
    policies = list(dict.fromkeys(policy.removesuffix(", stale") for row in rows.values() for policy in row))
    figure, axes = plt.subplots(figsize=(max(7, 1.4 + 0.32 * len(rows) * len(policies)), 4.2), layout="constrained")
    width = 0.8 / len(policies)
    colours = plt.colormaps["tab10"]
    for place, policy in enumerate(policies):
        for group, row in enumerate(rows.values()):
            results = row.get(policy) or row.get(f"{policy}, stale")
            if not results:
                continue
            at, height = group + (place - (len(policies) - 1) / 2) * width, 1000 * median(results, "p99")
            axes.bar(at, height, width, color=colours(place % 10), label=policy if group == 0 else None)
            if (errors := median(results, "errors")) >= 0.0005:
                axes.annotate(
                    f"{errors:.1%} errors", (at, height), rotation=90, ha="center", va="top", size=6, color="w"
                )
    axes.set_yscale("log")
    axes.set_ylabel("p99 latency, ms (lower is better)")
    axes.set_xticks(range(len(rows)), list(rows))
    axes.set_title(f"{scenario}: {SCENARIOS[scenario][0]}", fontsize=10)
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    figure.legend(fontsize=8, loc="outside right upper")
    figure.savefig(path, dpi=130)
    plt.close(figure)


def slow_start_report(seeds: list[int], out: Path) -> str:
    """S6: what part of their fair share five newcomers among twenty get, second by second."""
    seconds = range(13)
    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    lines = [
        "## S6: newcomers ramp up",
        "",
        "![S6](S6.png)",
        "",
        "Share of the picks over the fair share, by second.",
        "",
    ]
    lines += ["| policy | slow start | " + " | ".join(map(str, seconds)) + " |", "|---|---|" + "---:|" * len(seconds)]
    for policy in ("RoundRobin", "Random", "LeastConnections", "PowerOfTwoChoices"):
        for name, ramp in (("10 s", SlowStart(window=10.0)), ("off", SlowStart())):
            progress(f"S6 {policy}, slow start {name}")
            shares = [statistics.median(newcomers_share(policy, ramp, at, seed) for seed in seeds) for at in seconds]
            lines.append(f"| {policy} | {name} | " + " | ".join(f"{share:.2f}" for share in shares) + " |")
            axes.plot(seconds, shares, "-" if ramp.window else ":", label=f"{policy}, slow start {name}")
    axes.set(xlabel="seconds since the newcomers came", ylabel="share over fair share", title="S6: newcomers ramp up")
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3)
    figure.savefig(out / "S6.png", dpi=130)
    plt.close(figure)
    progress("")
    return "\n".join([*lines, ""])


def in_step_report(seeds: list[int], out: Path) -> str:
    """S7: what resets and aligned starts of a rotation do, counted in picks."""
    bars = {
        "reset at each update,\n1 request between": max(reset_extremes(1, seed, keep=False) for seed in seeds),
        "kept,\n1 request between": max(reset_extremes(1, seed, keep=True) for seed in seeds),
        "reset at each update,\n10 requests between": max(reset_extremes(10, seed, keep=False) for seed in seeds),
        "kept,\n10 requests between": max(reset_extremes(10, seed, keep=True) for seed in seeds),
    }
    together_rows = {aligned: max(together(seed, aligned=aligned) for seed in seeds) for aligned in (True, False)}
    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    axes.bar(list(bars), list(bars.values()), color=["tab:red", "tab:green"] * 2)
    axes.axhline(1, color="k", linewidth=0.8)
    axes.tick_params(axis="x", labelsize=8)
    axes.set(ylabel="greatest share over fair share", title="S7: a rotation must outlive updates")
    figure.savefig(out / "S7.png", dpi=130)
    plt.close(figure)
    lines = [
        "## S7: rotations that reset or move in step",
        "",
        "![S7](S7.png)",
        "",
        "| 32 rotations over 20 | figure |",
    ]
    lines += [
        "|---|---:|",
        *(f"| greatest share, {name.replace(chr(10), ' ')} | {value:.2f} |" for name, value in bars.items()),
    ]
    lines += [f"| most of 32 simultaneous requests on one endpoint, aligned | {together_rows[True]:.1f} |"]
    lines += [f"| the same, own order and offset | {together_rows[False]:.1f} |", ""]
    return "\n".join(lines)


COUNTED = {"S6": slow_start_report, "S7": in_step_report}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", nargs="*", choices=[*SCENARIOS, *COUNTED], default=[*SCENARIOS, *COUNTED], metavar="SCENARIO"
    )
    parser.add_argument("--seeds", nargs="*", type=int, default=[1, 2, 3])
    parser.add_argument("--requests", type=int, default=50_000, help="per run (default 50000)")
    parser.add_argument("--out", type=Path, default=Path("reports/simulation"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    parts = ["# Simulated balancing", "", f"Medians of seeds {options.seeds}, {options.requests} requests a run.", ""]
    for scenario in options.only:
        if scenario in COUNTED:
            parts.append(COUNTED[scenario](options.seeds, options.out))
            continue
        rows = simulate(scenario, options.seeds, options.requests)
        plot(scenario, rows, options.out / f"{scenario}.png")
        parts.append(markdown(scenario, rows))
    report = options.out / "README.md"
    report.write_text("\n".join(parts))
    print(f"{report} ({time.monotonic() - started:.0f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
