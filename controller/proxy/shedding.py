"""Short of memory, the connections go that hold it and stand still, so that everybody else is served.

A slow client is none of those: as long as it reads, or its head goes on, it only has less time than `timeouts` say
once others need the memory.
"""

from __future__ import annotations

from collections.abc import Iterable

from controller.proxy.listener import Front
from controller.proxy.memory import Holder, Memory

STILL = 2.0  # seconds: longer than a lost packet is repeated in


def shed(clients: Iterable[object], memory: Memory, now: float) -> None:
    """Drop those that have stood still, the largest holders first, until there is room again."""
    since = now - STILL
    still: list[tuple[int, Holder]] = list(memory.still(since, now))
    still += [
        (each.partial, each) for each in clients if isinstance(each, Front) and each.partial and each.since <= since
    ]
    still.sort(key=lambda each: each[0], reverse=True)
    for _, holder in still:
        if memory.roomy:
            return
        holder.shed()
