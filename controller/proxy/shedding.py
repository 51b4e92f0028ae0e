"""Short of memory, the clients go that hold it and stand still, so that everybody else is served.

A slow client is none of those: as long as it reads, or its head goes on, it only has less time than `timeouts` say
once others need the memory.
"""

from __future__ import annotations

from collections.abc import Iterable

from controller.proxy.listener import Front
from controller.proxy.memory import Memory

STILL = 2.0  # seconds: longer than a lost packet is repeated in


def shed(clients: Iterable[object], memory: Memory, now: float) -> None:
    """Drop those that have stood still, the largest holders first, until there is room again."""
    still = [each for each in clients if isinstance(each, Front) and now - each.moved(now) >= STILL and each.holds]
    still.sort(key=lambda front: front.holds, reverse=True)
    for front in still:
        if memory.roomy:
            return
        front.shed()
