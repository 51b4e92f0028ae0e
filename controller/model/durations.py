"""Durations as the Gateway API writes them (GEP-2257): `1h30m`, `500ms`. Pure."""

from __future__ import annotations

import re

PATTERN = re.compile(r"([0-9]{1,5}(h|m|s|ms)){1,4}", re.ASCII)
_PART = re.compile(r"([0-9]+)(ms|h|m|s)", re.ASCII)
_MILLISECONDS = {"h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}


def parse_duration(text: str) -> float:
    """Seconds. Raises ValueError for what is no duration."""
    if PATTERN.fullmatch(text) is None:
        raise ValueError(f"not a duration: {text!r}")
    return sum(int(count) * _MILLISECONDS[unit] for count, unit in _PART.findall(text)) / 1000


def format_duration(seconds: float) -> str:
    """Written with the largest units: `5400.0` is `1h30m`. The inverse of `parse_duration` up to 99999 h."""
    rest = round(seconds * 1000)
    parts = []
    for unit, size in _MILLISECONDS.items():
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"
