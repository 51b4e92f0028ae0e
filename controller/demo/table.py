"""What the demo shows: one row an endpoint, from the proxy's own `/endpoints` and the answers that clients counted."""

from __future__ import annotations

import msgspec


class Row(msgspec.Struct, frozen=True):
    name: str
    place: str
    weight: int
    expected: float  # share by weight among those that may be picked
    actual: float  # share of the latest answers
    in_flight: int
    latency: float | None  # seconds, as the clients saw it
    state: str


HEADINGS = ("endpoint", "address", "weight", "expected", "actual", "in flight", "latency", "state")


def cells(row: Row) -> tuple[str, ...]:
    latency = f"{1000 * row.latency:.0f} ms" if row.latency is not None else "-"
    return (
        row.name,
        row.place,
        str(row.weight),
        f"{row.expected:.0%}",
        f"{row.actual:.0%}",
        str(row.in_flight),
        latency,
        row.state,
    )


def plain(rows: list[Row]) -> str:
    """For logs and pipes: aligned columns, no colours."""
    lines = [HEADINGS, *map(cells, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )
