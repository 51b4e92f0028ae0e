"""Which table a share group of ConsistentHash uses, and the memory of tables already built.

A table depends on the members' identities and weights alone, never on who is ejected: as long as these stay, a new
picker finds it ready. Building is a pure function and safe in a thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Literal, Protocol

from controller.balancing.maglev import Maglev
from controller.balancing.rendezvous import Rendezvous
from controller.balancing.ring import Ring

Scheme = Literal["Auto", "Rendezvous", "Maglev", "Ring"]

# `Auto` goes by the membership alone, since all proxies must agree. Here a rendezvous pick costs 7 µs.
AUTO_RENDEZVOUS = 128
REMEMBERED = 32  # groups; a Maglev table is 256 KiB


class Table(Protocol):
    def first(self, key: bytes) -> int:
        """Return the index of the key's home."""
        ...

    def order(self, key: bytes) -> Iterator[int]:
        """Yield every member's index once, the home first."""
        ...


@lru_cache(maxsize=REMEMBERED)
def table(scheme: Scheme, identities: tuple[str, ...], weights: tuple[int, ...], heaviest: float) -> Table:
    """Build the table of one group. Raises ValueError when a Maglev table has no room for so many."""
    if scheme == "Ring":
        return Ring(identities, weights, heaviest)
    if scheme == "Maglev" or (scheme == "Auto" and len(identities) > AUTO_RENDEZVOUS):
        return Maglev(identities, weights)
    return Rendezvous(identities, weights)
