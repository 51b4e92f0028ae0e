"""One budget for all bytes that the process holds for others: heads, replay copies, waiting bodies, blocked writes."""

from __future__ import annotations

from pathlib import Path

# A third: interpreter and code need about 60 MiB of a small container, and the kernel charges socket buffers to it.
SHARE = 3
UNLIMITED = 128 * 1024 * 1024


def budget(cgroup: Path = Path("/sys/fs/cgroup/memory.max")) -> int:
    """A third of the cgroup's limit in bytes, or of 128 MiB where there is none."""
    try:
        limit = int(cgroup.read_text())
    except (OSError, ValueError):  # no cgroup v2, or the word "max"
        limit = UNLIMITED
    return limit // SHARE


class Memory:
    """Counts held bytes. Above 75 % no replay copies are kept, above 90 % new requests are refused, above all of it
    unfinished heads, too."""

    __slots__ = ("_keep", "_refuse", "held", "limit", "refused", "unkept")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self.refused = 0  # requests answered 503
        self.unkept = 0  # replay copies given up
        self._keep = limit * 75 // 100
        self._refuse = limit * 90 // 100

    @property
    def tight(self) -> bool:
        """Above 75 %: who holds much and stands still has to go."""
        return self.held > self._keep

    @property
    def roomy(self) -> bool:
        """Well below that."""
        return self.held <= self.limit // 2

    def may_keep(self) -> bool:
        if self.held <= self._keep:
            return True
        self.unkept += 1
        return False

    def may_serve(self) -> bool:
        if self.held <= self._refuse:
            return True
        self.refused += 1
        return False

    def may_hold(self) -> bool:
        """False: the budget is used up, and who holds more of it has to go."""
        if self.held <= self.limit:
            return True
        self.refused += 1
        return False

    def __repr__(self) -> str:
        return f"<Memory {self.held}/{self.limit}>"
