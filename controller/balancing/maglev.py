"""Maglev hashing (Eisenbud et al., NSDI 2016): a table of slots that members fill in turn, each in its own order.

Lookup O(1), load even to a slot; a change of membership moves a little more than it must. Building takes tens of
milliseconds in Python, so it belongs off an event loop; an ejection never needs it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

from xxhash import xxh64_intdigest

from controller.balancing.rendezvous import Rendezvous

SIZE = 65537  # a prime, and the same for all: a size that followed N would move everything when it steps
FURTHER = 9  # lookups before the rendezvous order takes over


def fill(size: int, permutations: Sequence[tuple[int, int]], weights: Sequence[int]) -> array[int]:
    """Return the member's index of each slot. A permutation is (offset, skip) modulo the prime `size`.

    In each round the heaviest member takes a slot, the others as often as their weight has grown to its (Envoy).
    """
    table = [-1] * size
    heaviest = max(weights)
    targets = [0] * len(weights)
    cursors = [offset for offset, _ in permutations]
    skips = [skip for _, skip in permutations]
    left, turn = size, 0
    while True:
        turn += 1
        for at, weight in enumerate(weights):
            if turn * weight < targets[at]:
                continue
            targets[at] += heaviest
            cursor, skip = cursors[at], skips[at]
            while table[cursor] >= 0:
                cursor = (cursor + skip) % size
            table[cursor] = at
            cursors[at] = (cursor + skip) % size
            left -= 1
            if not left:
                return array("I", table)


class Maglev:
    """Over one group's members, given by identity."""

    __slots__ = ("_rest", "_table")

    def __init__(self, identities: Sequence[str], weights: Sequence[int]) -> None:
        """Build the table. Raises ValueError for more members than slots."""
        if len(identities) > SIZE:
            raise ValueError(f"a Maglev table has room for {SIZE} endpoints, not for {len(identities)}")
        names = [identity.encode() for identity in identities]
        permutations = [(xxh64_intdigest(n) % SIZE, xxh64_intdigest(n, 1) % (SIZE - 1) + 1) for n in names]
        self._table = fill(SIZE, permutations, weights)
        self._rest = Rendezvous(identities, weights)

    def first(self, key: bytes) -> int:
        return self._table[xxh64_intdigest(key) % SIZE]

    def order(self, key: bytes) -> Iterator[int]:
        seen = set()
        for attempt in range(FURTHER):
            at = self._table[xxh64_intdigest(key, 2 * attempt) % SIZE]
            if at not in seen:
                seen.add(at)
                yield at
        for at in self._rest.order(key):
            if at not in seen:
                yield at
