"""The keys that sign affinity cookies: one per object, derived from a master that never leaves the operator.

With the master a proxy could sign for every object, with a derived key for its own only. Two masters are kept, so
that a change of the current one breaks no cookie that the previous one signed.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping

CURRENT, PREVIOUS = "session-key", "session-key-previous"
SIZE = 32  # bytes, the block that SHA-256 makes full use of


def masters(data: Mapping[str, bytes] | None, random_bytes: Callable[[int], bytes]) -> dict[str, bytes]:
    """The masters in a Secret, made where missing. To rotate, move CURRENT to PREVIOUS and drop CURRENT."""
    held = dict(data or {})
    current = held.get(CURRENT, b"")
    made = {CURRENT: current if len(current) >= SIZE else random_bytes(SIZE)}
    if held.get(PREVIOUS):
        made[PREVIOUS] = held[PREVIOUS]
    return made


def derived(data: Mapping[str, bytes], uid: str) -> tuple[bytes, ...]:
    """The keys of the object `uid`, current first: HMAC-SHA-256(master, uid)."""
    return tuple(
        hmac.digest(data[name], uid.encode(), hashlib.sha256) for name in (CURRENT, PREVIOUS) if data.get(name)
    )
