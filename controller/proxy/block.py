"""Counters that the workers of a pod share: rows of int64, one row per worker and one of the parent. Pure.

A worker writes its own row only, readers sum a column: no locks, since an aligned 8-byte store is never seen by half.
In flight goes up and down; answers (`ok`, `total`) only grow. When a worker dies its grown counts move to the parent's
row before its own is cleared, so that a sum may be too high for a moment, and never falls.
"""

from __future__ import annotations

from collections.abc import Collection

CELL = 8  # bytes
FIELDS = 3  # inflight, ok, total


class Block:
    """A view of shared memory. Rows 0 … workers − 1 are the workers', the last is the parent's."""

    def __init__(self, memory: memoryview, workers: int, slots: int) -> None:
        cells = memory.cast("q")
        rows = [cells[at * slots : (at + 1) * slots] for at in range(FIELDS * (workers + 1))]
        self.workers = workers
        self.slots = slots
        self.inflight = rows[0::FIELDS]
        self.ok = rows[1::FIELDS]
        self.total = rows[2::FIELDS]

    @staticmethod
    def size(workers: int, slots: int) -> int:
        """In bytes."""
        return FIELDS * (workers + 1) * slots * CELL

    def in_flight(self, slot: int) -> int:
        return sum(row[slot] for row in self.inflight)

    def answers(self, slot: int) -> tuple[int, int]:
        """`ok` and `total` of all workers, dead ones included."""
        return sum(row[slot] for row in self.ok), sum(row[slot] for row in self.total)

    def bury(self, worker: int) -> None:
        """The worker is dead: what it carried is over, and what it counted stays."""
        for rows in (self.ok, self.total):
            heir, row = rows[self.workers], rows[worker]
            for slot, count in enumerate(row.tolist()):
                if count:
                    heir[slot] += count
                    row[slot] = 0
        self.inflight[worker][:] = memoryview(bytes(self.slots * CELL)).cast("q")


class Slots:
    """Which column belongs to which endpoint; the parent's alone.

    A slot whose endpoint is gone is given out again when every worker has heard of that and its column says that
    nothing is in flight. `None` stands for "no slot left": such an endpoint is counted by each worker for itself.
    """

    def __init__(self, block: Block) -> None:
        self._block = block
        self._given: dict[tuple[str, str], int] = {}
        self._retired: dict[tuple[str, str], tuple[int, int]] = {}  # slot, and the change that retired it
        self._free: list[int] = []
        self._unused = 0  # slots from here on were never given out

    def retire(self, upstream: str, kept: Collection[str], change: int) -> None:
        """Of an upstream's endpoints only `kept` are listed since change number `change`."""
        for key in [key for key in self._given if key[0] == upstream and key[1] not in kept]:
            self._retired[key] = (self._given.pop(key), change)

    def of(self, upstream: str) -> dict[str, int]:
        """The slots of an upstream's endpoints."""
        return {identity: slot for (owner, identity), slot in self._given.items() if owner == upstream}

    def settle(self, heard: int) -> None:
        """Every worker has put change number `heard` in force."""
        for key, (slot, change) in list(self._retired.items()):
            if change <= heard and self._block.in_flight(slot) == 0:
                del self._retired[key]
                self._free.append(slot)

    def take(self, upstream: str, identity: str) -> int | None:
        """The endpoint's slot; one that it had and that nobody has got since is its own again."""
        key = (upstream, identity)
        if key in self._given:
            return self._given[key]
        slot: int | None
        if key in self._retired:
            slot, _ = self._retired.pop(key)
        elif self._free:
            slot = self._free.pop()
        elif self._unused < self._block.slots:
            slot = self._unused
            self._unused += 1
        else:
            return None
        self._given[key] = slot
        return slot
