"""What the lists of differences from other proxies are made of."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Difference(NamedTuple):
    """A case of our tables, and what a backend gets to see through us and through them: or `refused`."""

    case: str
    ours: str
    theirs: str


class Group(NamedTuple):
    """Differences about which the RFCs say the same. `right`: who does what they ask for."""

    right: Literal["ours", "theirs", "either"]
    word: str
    cases: tuple[Difference, ...]
