"""Plays the story and shows it: a live table on a terminal, plain lines anywhere else."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from controller.demo.stage import Stage
from controller.demo.story import ACTS
from controller.demo.table import HEADINGS, Row, cells, plain

FRAME = 0.5  # seconds between two looks at the table
Show = Callable[[str, list[Row], str], None]  # act, table, totals


async def play(example: Path, *, once: bool) -> int:
    """Run the acts once, or over and over until cancelled. Returns how many requests failed. Raises NotStarted."""
    with tempfile.TemporaryDirectory(prefix="steelyard-demo-") as directory:
        stage = Stage(example, Path(directory))
        told: list[str] = []
        async with stage.up():
            print(f"The proxy serves {stage.file} on {stage.url}; try: curl {stage.url}", flush=True)  # noqa: T201 - speaks to people
            show, close = _screen()
            try:
                while True:
                    for act in ACTS:
                        before = stage.traffic.failed.total()
                        await act.do(stage)
                        await _watch(stage, act.title, act.seconds, show)
                        told.append(_told(act.title, stage.traffic.failed.total() - before))
                    if once:
                        break
                    del told[: -len(ACTS)]
            finally:
                close()
                _farewell(stage, told)
        return stage.traffic.failed.total()


async def _watch(stage: Stage, title: str, seconds: float, show: Show) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        await asyncio.sleep(FRAME)
        show(title, await stage.rows(), _totals(stage))


def _totals(stage: Stage) -> str:
    return f"{stage.traffic.total} requests, {stage.traffic.failed.total()} failed"


def _told(title: str, failed: int) -> str:
    return f"{title}: {failed or 'no'} request{'' if failed == 1 else 's'} failed"


def _farewell(stage: Stage, told: list[str]) -> None:
    lines = ["", *told, _totals(stage)]
    if stage.traffic.failed:
        lines.append(", ".join(f"{count} × {reason}" for reason, count in stage.traffic.failed.items()))
    print("\n".join(lines), flush=True)  # noqa: T201 - what happened, for people


def _screen() -> tuple[Show, Callable[[], None]]:
    """How to show a frame, and how to end."""
    if not sys.stdout.isatty():
        return _lines(), lambda: None
    try:
        from rich.live import Live
        from rich.table import Table
    except ImportError:  # without the `cli` extra
        return _lines(), lambda: None
    live = Live(auto_refresh=False)
    live.start()

    def show(act: str, rows: list[Row], totals: str) -> None:
        table = Table(title=act, caption=f"{totals}   (Ctrl-C ends it)", title_justify="left", min_width=86)
        for heading in HEADINGS:
            table.add_column(heading, justify="left" if heading in {"endpoint", "address", "state"} else "right")
        for row in rows:
            table.add_row(*cells(row), style=None if row.state == "ACTIVE" else "red")
        live.update(table, refresh=True)

    return show, live.stop


def _lines() -> Show:
    """One table an act, at its end's pace: a log must not fill with frames."""
    last = ""
    frames = 0

    def show(act: str, rows: list[Row], totals: str) -> None:
        nonlocal last, frames
        if act != last:
            last, frames = act, 0
            print(f"\n{act}", flush=True)  # noqa: T201 - speaks to people
        frames += 1
        if frames % 4 == 0:
            print(f"{plain(rows)}\n{totals}", flush=True)  # noqa: T201 - speaks to people

    return show
