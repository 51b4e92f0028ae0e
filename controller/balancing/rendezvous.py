"""Rendezvous hashing (highest random weight; Thaler and Ravishankar 1998): every member bids for the key.

Removal, addition and reweighting move the least possible: collateral is exactly nought. O(N) and no table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from itertools import repeat
from math import log

from xxhash import xxh64_digest, xxh64_intdigest

UNIT = 2.0**-64
# A pick at 100 members costs a tenth of a proxied request, and sessions come back: homes of recent keys are kept.
RECENT = 1024
SHORT = 64  # bytes; a longer key is not kept, so a table's memory stays under half a megabyte


class Rendezvous:
    """Over one group's members, given by identity; of equal bids the smaller identity's wins."""

    __slots__ = ("_at", "_equal", "_recent", "_seeds", "_weights")

    def __init__(self, identities: Sequence[str], weights: Sequence[int]) -> None:
        self._seeds = [xxh64_intdigest(identity.encode()) for identity in identities]
        self._at = {seed: at for at, seed in reversed(list(enumerate(self._seeds)))}
        self._weights = weights
        self._equal = len(set(weights)) == 1
        self._recent = lru_cache(maxsize=RECENT)(self._home)

    def first(self, key: bytes) -> int:
        return self._recent(key) if len(key) <= SHORT else self._home(key)

    def _home(self, key: bytes) -> int:
        if self._equal:  # raw hashes rank alike, at a quarter of the cost; digests are big-endian
            return self._at[max(self._seeds, key=partial(xxh64_digest, key))]
        bids = self._bids(key)
        return bids.index(min(bids))

    def order(self, key: bytes) -> Iterator[int]:
        if self._equal:
            hashes = list(map(xxh64_intdigest, repeat(key), self._seeds))
            return iter(sorted(range(len(hashes)), key=hashes.__getitem__, reverse=True))
        bids = self._bids(key)
        return iter(sorted(range(len(bids)), key=bids.__getitem__))

    def _bids(self, key: bytes) -> list[float]:
        """Return −ln(U)/w for each member, U in (0, 1) from the key and the seed: the least wins, with chance w/W.

        It is the score −w/ln(U) turned over, so that a U that rounds to 1 is no division by zero.
        """
        pairs = zip(self._seeds, self._weights, strict=True)
        return [-log((xxh64_intdigest(key, seed) + 0.5) * UNIT) / weight for seed, weight in pairs]
