"""The figures as Markdown, with a plot for each measure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl

from tests.bench.peers.contenders import OURS
from tests.bench.peers.figures import Bar, Figures, Spread, growth, spread
from tests.bench.peers.load import CONNECTIONS

mpl.use("Agg")
from matplotlib import pyplot as plt

Row = tuple[str, Spread]


def line(bar: Bar) -> str:
    """In one line: median, quartiles, bar."""
    low, median, high = bar.seen
    digits = 0 if median >= 100 else 2
    seen = f"{median:.{digits}f} ({low:.{digits}f}–{high:.{digits}f})"
    return f"{bar.what}: {seen}, at most {bar.limit:g} {bar.unit}".rstrip()


def write(found: Figures, bars: Sequence[Bar], out: Path) -> Path:
    """README.md and its plots; returns the page's path."""
    out.mkdir(parents=True, exist_ok=True)
    parts = [_head(found), _bars(bars)]
    if found.small:
        rows = [(name, spread([each.per_answer for each in seen])) for name, seen in found.small.items()]
        _plot(rows, "CPU-µs per request (lower is better)", out / "requests.png")
        rates = {name: spread([each.rate for each in seen]).median for name, seen in found.small.items()}
        parts.append(_section("A request", "requests.png", "CPU-µs", rows, ("requests/s", rates)))
    if found.profile:
        parts.append(_profile(found))
    for kind, by_name in found.bodies.items():
        rows = [(name, spread([each.per_mib for each in seen])) for name, seen in by_name.items()]
        name = f"{kind.lower().replace(' ', '-')}.png"
        _plot(rows, f"CPU-µs per MiB, {kind} (lower is better)", out / name)
        parts.append(_section(kind, name, "CPU-µs per MiB", rows))
    if found.delays:
        parts.append(_delays(found, out))
    if found.endpoints:
        parts.append(_endpoints(found, out))
    if found.idle:
        parts.append(_memory(found))
    page = out / "README.md"
    page.write_text("\n\n".join(parts) + "\n")
    return page


def _head(found: Figures) -> str:
    low, median, high = spread(found.loads) if found.loads else Spread(0, 0, 0)
    lines = [
        "# Against peers",
        "",
        f"{found.rounds} rounds of {found.seconds:g} s each, in turns; {CONNECTIONS} connections, keep-alive on both",
        "sides, eleven request fields, one nginx worker as the backend. A proxy has one core, backend and load have",
        "another. CPU is the kernel's account of all processes and threads of a proxy. Bars are on the median of the",
        "ratios of one round each, with quartiles. Ours has metrics, identifiers, ejection and retries on and no",
        "access log; the peers' configurations are in `tests/bench/peers/`.",
        "",
        f"Machine: {found.machine}; its load was {median:.1f} ({low:.1f}–{high:.1f}), where 2 is the bench's own.",
        "",
        *(f"- {name}: {version}" for name, version in found.versions.items()),
        *(f"- skipped {each}" for each in found.missing),
    ]
    return "\n".join(lines)


def _bars(bars: Sequence[Bar]) -> str:
    lines = ["| measure | median | quartiles | at most | |", "|---|---:|---:|---:|---|"]
    for bar in bars:
        low, median, high = bar.seen
        digits = 0 if median >= 100 else 2
        quartiles = f"{low:.{digits}f}–{high:.{digits}f}" if low != high else ""
        verdict = "met" if bar.met else "**missed**"
        lines.append(f"| {bar.what} | {median:.{digits}f} | {quartiles} | {bar.limit:g} {bar.unit} | {verdict} |")
    return "\n".join(lines)


def _section(
    title: str, plot: str, unit: str, rows: Sequence[Row], more: tuple[str, Mapping[str, float]] | None = None
) -> str:
    lines = [f"## {title}", "", f"![{title}]({plot})", ""]
    lines += [f"| | {unit} | quartiles |{f' {more[0]} |' if more else ''}", f"|---|---:|---:|{'---:|' if more else ''}"]
    for name, (low, median, high) in rows:
        last = f" {more[1][name]:.0f} |" if more else ""
        lines.append(f"| {name} | {median:.1f} | {low:.1f}–{high:.1f} |{last}")
    return "\n".join(lines)


def _profile(found: Figures) -> str:
    """What remains of ours: the kernel's part is the same for every proxy."""
    whole = spread([each.per_answer for each in found.small[OURS]]).median
    lines = [
        "## Where our CPU goes",
        "",
        "Sampled. Four system calls a request, two each way, are the kernel's part.",
        "",
    ]
    lines += ["| | share | CPU-µs |", "|---|---:|---:|"]
    ordered = sorted(found.profile.items(), key=lambda row: -row[1])
    return "\n".join([*lines, *(f"| {name} | {share:.1%} | {share * whole:.1f} |" for name, share in ordered)])


def _endpoints(found: Figures, out: Path) -> str:
    """Each of many endpoints has connections of its own, and a request finds less of them in the processor's caches."""
    rows = [
        (f"{name}, {count}", spread([each.per_answer for each in seen]))
        for name, by_count in found.endpoints.items()
        for count, seen in by_count.items()
    ]
    _plot(rows, "CPU-µs per request, by endpoints", out / "endpoints.png")
    grown = ", ".join(f"{name} {growth(found, name).median:.2f}" for name in found.endpoints)
    return f"{_section('Endpoints', 'endpoints.png', 'CPU-µs', rows)}\n\nA thousand endpoints against ten: {grown}."


def _delays(found: Figures, out: Path) -> str:
    title = f"p50 and p99 at {found.rate:.0f} requests/s, ms"
    figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
    lines = [f"## {title}", "", "![delays](delays.png)", "", "| | p50 | quartiles | p99 | quartiles |"]
    lines.append("|---|---:|---:|---:|---:|")
    for place, (name, seen) in enumerate(found.delays.items()):
        cells = []
        for shift, quantile in ((-0.2, "p50"), (0.2, "p99")):
            low, median, high = (value / 1000 for value in spread([getattr(each, quantile) for each in seen]))
            cells.append(f"{median:.3f} | {low:.3f}–{high:.3f}")
            axes.bar(place + shift, median, 0.4, color="tab:blue" if quantile == "p50" else "tab:orange")
            axes.errorbar(place + shift, median, [[median - low], [high - median]], color="k", capsize=3)
        lines.append(f"| {name} | {' | '.join(cells)} |")
    axes.set_xticks(range(len(found.delays)), list(found.delays))
    axes.set(ylabel="ms, logarithmic", title=f"{title}: p50 blue, p99 orange", yscale="log")
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    figure.savefig(out / "delays.png", dpi=130)
    plt.close(figure)
    return "\n".join(lines)


def _memory(found: Figures) -> str:
    lines = [
        "## Memory",
        "",
        "Resident, all processes of a proxy; the kernel's share of a connection is not in it.",
        "",
    ]
    lines += ["| | at the start, MB | an idle connection, B |", "|---|---:|---:|"]
    lines += [f"| {name} | {found.base[name] / 1e6:.1f} | {cost:.0f} |" for name, cost in found.idle.items()]
    return "\n".join(lines)


def _plot(rows: Sequence[Row], title: str, path: Path) -> None:
    """A bar each with its quartiles, ours in a colour of its own."""
    figure, axes = plt.subplots(figsize=(7, 0.9 + 0.5 * len(rows)), layout="constrained")
    for place, (name, (low, median, high)) in enumerate(rows):
        axes.barh(place, median, color="tab:green" if name == OURS else "tab:blue")
        axes.errorbar(median, place, xerr=[[median - low], [high - median]], color="k", capsize=3)
        axes.annotate(f" {median:.1f}", (high, place), xytext=(4, 0), textcoords="offset points", va="center")
    axes.set_yticks(range(len(rows)), [name for name, _ in rows])
    axes.invert_yaxis()
    axes.set_title(title, fontsize=10)
    axes.margins(x=0.12)
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    figure.savefig(path, dpi=130)
    plt.close(figure)
