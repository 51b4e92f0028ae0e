"""One budget for all bytes that the process holds for others: heads, replay copies, waiting bodies, blocked writes."""

from __future__ import annotations

import asyncio
import fcntl
import struct
import termios
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Protocol

# A third: interpreter and code need about 60 MiB of a small container, and the kernel charges socket buffers to it.
SHARE = 3
UNLIMITED = 128 * 1024 * 1024
PIECE = 256_000  # bytes: what one read brings at most. uvloop keeps all of a piece while a part of it is unsent


def budget(cgroup: Path = Path("/sys/fs/cgroup/memory.max")) -> int:
    """A third of the cgroup's limit in bytes, or of 128 MiB where there is none."""
    try:
        limit = int(cgroup.read_text())
    except (OSError, ValueError):  # no cgroup v2, or the word "max"
        limit = UNLIMITED
    return limit // SHARE


class Holder(Protocol):
    """A connection whose other end doesn't read what we have for it."""

    transport: asyncio.Transport

    def shed(self) -> None:
        """Give it up, since others need what it holds."""


def unsent(transport: asyncio.Transport) -> int:
    """Bytes that the other end has not acknowledged: ours, and the kernel's, which takes more of ours in big steps."""
    sock = transport.get_extra_info("socket")
    if sock is None:  # closed, under uvloop
        return transport.get_write_buffer_size()
    (queued,) = struct.unpack("i", fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4)))
    return transport.get_write_buffer_size() + int(queued)


class Blocked:
    """What a holder's transport keeps, and since when it is not becoming less."""

    __slots__ = ("_left", "_since", "_transport", "size")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._left = unsent(transport)
        self._since = monotonic()
        self.size = max(transport.get_write_buffer_size(), PIECE)

    def since(self, now: float) -> float:
        """When it last became less, as far as that was looked at."""
        left = unsent(self._transport)
        if left < self._left:
            self._left, self._since = left, now
        return self._since


class Memory:
    """Counts held bytes. Above 75 % no replay copies are kept, above 90 % new requests are refused; above all of it
    unfinished heads are refused, too, and who has not read for the longest time makes room for who is blocked next:
    requests that came while there was room may all be answered at once, with more than there is."""

    __slots__ = ("_blocked", "_keep", "_refuse", "held", "limit", "refused", "unkept")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self.refused = 0  # requests answered 503
        self.unkept = 0  # replay copies given up
        self._blocked: dict[Holder, Blocked] = {}
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

    def block(self, holder: Holder) -> None:
        """Its transport has had to keep bytes."""
        self.unblock(holder)
        blocked = self._blocked[holder] = Blocked(holder.transport)
        self.held += blocked.size
        while self.held > self.limit and len(self._blocked) > 1:
            self._make_room(holder)

    def unblock(self, holder: Holder) -> None:
        blocked = self._blocked.pop(holder, None)
        if blocked is not None:
            self.held -= blocked.size

    def since(self, holder: Holder, now: float) -> float | None:
        """When a blocked one last took something; None if it isn't blocked."""
        blocked = self._blocked.get(holder)
        return None if blocked is None else blocked.since(now)

    def still(self, since: float, now: float) -> Iterator[tuple[int, Holder]]:
        """Those who have taken nothing since then, and what each holds."""
        return ((each.size, holder) for holder, each in self._blocked.items() if each.since(now) <= since)

    def _make_room(self, for_: Holder) -> None:
        now = monotonic()
        stillest = min(
            (each for each in self._blocked if each is not for_), key=lambda each: self._blocked[each].since(now)
        )
        self.unblock(stillest)
        stillest.shed()

    def __repr__(self) -> str:
        return f"<Memory {self.held}/{self.limit}>"
