"""A client connection below HTTP: reading that pauses for reasons, and ways to end that a client can tell apart.

A FIN says that the client has all; a RST, that something is missing. A close over unread bytes makes a RST as well,
which can destroy the answer on its way: hence the lingering.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING

from controller.proxy.connections import reset
from controller.proxy.memory import unsent

if TYPE_CHECKING:
    from controller.proxy.lane import Lane


class ClientConnection(asyncio.Protocol):
    """`deadline` (monotonic seconds) is when its owner has to look at it. Reading is paused while any of the reasons
    holds: the body waits for a connection, the endpoint reads too slowly, a pipelined request waits, the client doesn't
    read the answers that it has.
    """

    UNCONNECTED = 1
    UPSTREAM = 2
    PIPELINED = 4
    FULL = 8

    # fmt: off
    __slots__ = (
        "_closing", "_last", "_left", "_lingering", "_paused", "deadline", "full", "lane", "open", "plane", "transport",
    )
    # fmt: on

    transport: asyncio.Transport

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.plane = lane.plane
        self.open = False
        self.full = False  # the client reads too slowly
        self.deadline = 0.0
        self._paused = 0
        self._closing = False
        self._last = False  # no request is waited for behind what is being served
        self._lingering = False
        self._left = 0  # bytes that the client had yet to take when a closing connection was last looked at

    def move(self, lane: Lane) -> None:
        """It is another lane's from here on."""
        self.lane.connections -= 1
        lane.connections += 1
        self.lane = lane

    def pause(self, reason: int) -> None:
        if not self._paused and self.open:
            self.transport.pause_reading()
        self._paused |= reason

    def resume(self, reasons: int) -> None:
        if self._paused:
            self._paused &= ~reasons
            if not self._paused and self.open:
                self.transport.resume_reading()

    def paused(self, reason: int) -> bool:
        return bool(self._paused & reason)

    def write(self, data: bytes) -> None:
        if self.open:  # uvloop raises on a closed transport
            self.transport.write(data)

    # The end.

    def shed(self) -> None:
        """Give up the client, since others need what it holds."""
        if self._closing:
            reset(self.transport)
        else:
            self.abort()

    def _finish(self, now: float) -> None:
        """Close behind a whole answer; what is written still goes out."""
        self.open = False
        self._close_behind(now)

    def _close_behind(self, now: float, *, reset_it: bool = False) -> None:
        """Close once what is written has gone out."""
        self._closing = True
        self.deadline = now + self.plane.settings.flush
        if self.transport.get_write_buffer_size():
            self._left = unsent(self.transport)
        if reset_it:
            reset(self.transport, flush=True)
        else:
            self.transport.close()

    def _linger(self) -> None:
        """Half-close and discard: a close over unread data makes a RST, which can destroy the answer on its way."""
        if not self.open:
            return
        self._closing = self._lingering = True
        self.open = False
        self.plane.lingering += 1
        self.deadline = monotonic() + self.plane.settings.lingering
        self.transport.write_eof()
        if self._paused:
            self._paused = 0
            self.transport.resume_reading()

    def _stop_lingering(self) -> None:
        self._lingering = False
        self.plane.lingering -= 1
        self._close_behind(monotonic())

    def truncate(self, *, reset_it: bool) -> None:
        """Close behind half an answer: what came goes out, then a FIN, or a RST where a FIN would say "complete"."""
        if self.open:
            self.open = False
            self._close_behind(monotonic(), reset_it=reset_it)

    def abort(self) -> None:
        if self.open:
            self.open, self._closing = False, True
            reset(self.transport)

    def _expire_closing(self, now: float) -> None:
        """A client that takes the last answer slowly may. For one that doesn't, a FIN would say that it has all."""
        left, self._left = self._left, unsent(self.transport)
        if self._left < left:
            self.deadline = now + self.plane.settings.flush
        else:
            reset(self.transport)

    def _expire_full(self, now: float) -> None:
        since, idle = self.plane.memory.since(self, now), self.lane.route.timeouts.idle
        if since is None or now - since >= idle:
            self.abort()
        else:
            self.deadline = since + idle
