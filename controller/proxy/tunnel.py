"""Raw bytes both ways between two transports: after a 101, and on TCP ports.

Back-pressure is passed on, a half-close is a half-close, a reset is a reset. Only silence (`idle` seconds without a
byte either way) and the drain end a tunnel from here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic

from controller.proxy.causes import MEMORY
from controller.proxy.connections import reset
from controller.proxy.memory import PIECE, Memory
from controller.proxy.splicing import Pipe, Pipes
from controller.proxy.tcp_socket import descriptor, has_left

SPILL = 65536  # bytes: enough to make a transport full, and little to copy
# libuv reads a socket up to 32 times, if each read is full, before the loop turns: 8 MB, and 42 with what is spliced
# behind them. After so many moves the others have their turn.
MOVES = 4


class Side(asyncio.Protocol):
    """One end of a tunnel; it becomes the protocol of a transport that is already open."""

    __slots__ = ("broken", "closed", "ended", "full", "moves", "pipe", "received", "transport", "tunnel")

    def __init__(self, tunnel: Tunnel, transport: asyncio.Transport) -> None:
        self.tunnel = tunnel
        self.transport = transport
        self.received = 0  # bytes from this side
        self.full = False  # it doesn't read, so the other side isn't read
        self.ended = False  # its FIN has come
        self.broken = False  # it ended by a reset or by silence
        self.closed = False
        self.moves = 0  # through a pipe
        self.pipe: Pipe | None = None  # what it sent and the other side has yet to take; it isn't read meanwhile

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        self.tunnel.carry(self, data)
        if len(data) >= PIECE:
            self.tunnel.splice(self)

    def eof_received(self) -> bool:
        self.ended = True
        return self.tunnel.half_close(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self.broken = exc is not None
        self.tunnel.memory.unblock(self)
        self.tunnel.lost(self, exc)

    def pause_writing(self) -> None:
        self.full = True
        self.tunnel.memory.block(self)
        other = self.tunnel.other(self)
        if not other.transport.is_closing():
            other.transport.pause_reading()

    def resume_writing(self) -> None:
        self.full = False
        self.tunnel.memory.unblock(self)
        other = self.tunnel.other(self)
        self.tunnel.pour(other)
        self.tunnel.read_on(other)

    def shed(self) -> None:
        self.tunnel.close(MEMORY.reason)


class Tunnel:
    """Two sides. `on_end` is called once, when both are gone."""

    __slots__ = ("_on_end", "backend", "client", "memory", "outcome", "pipes", "seen")

    def __init__(
        self,
        client: asyncio.Transport,
        backend: asyncio.Transport,
        on_end: Callable[[], None],
        memory: Memory,
        pipes: Pipes,
    ) -> None:
        self.client = Side(self, client)
        self.backend = Side(self, backend)
        self.seen = monotonic()  # when a byte last came
        self.outcome = ""  # why it was ended from here, if it was
        self.memory = memory
        self.pipes = pipes
        self._on_end = on_end
        client.set_protocol(self.client)
        backend.set_protocol(self.backend)

    def start(self, from_client: bytes, from_backend: bytes, *, client_full: bool = False) -> None:
        """Pass on what came early, and let bytes flow; `client_full`: it has yet to read what was written before."""
        if client_full:
            self.client.full = True
            self.memory.block(self.client)
        for side, early in ((self.client, from_client), (self.backend, from_backend)):
            if early:
                side.received += len(early)
                self.carry(side, early)
        for side in (self.client, self.backend):
            if not side.transport.is_closing() and not (client_full and side is self.backend):
                side.transport.resume_reading()

    def other(self, side: Side) -> Side:
        return self.backend if side is self.client else self.client

    def carry(self, side: Side, data: bytes) -> None:
        self.seen = monotonic()
        other = self.other(side)
        if not (other.closed or other.transport.is_closing()):
            other.transport.write(data)

    def splice(self, side: Side) -> None:
        """Take what waits behind a full read, and pass it on without looking at it."""
        other = self.other(side)
        if side.transport.is_closing() or other.transport.is_closing() or other.transport.get_write_buffer_size():
            return
        side.pipe = self.pipes.fill(descriptor(side.transport), PIECE)
        if side.pipe is not None:
            side.received += side.pipe.held
            self.pour(side)
            side.moves += 1
            if side.moves % MOVES == 0 and not other.full:
                side.transport.pause_reading()
                asyncio.get_running_loop().call_soon(self.read_on, side)

    def pour(self, side: Side) -> None:
        """Empty the side's pipe into the other side; what that doesn't take now makes it full."""
        pipe, other = side.pipe, self.other(side)
        if pipe is None:
            return
        while pipe.held and not other.transport.is_closing():
            if other.transport.get_write_buffer_size() or not pipe.pour(descriptor(other.transport)):
                # Only the transport is told when there is room again, or that there never will be.
                other.transport.write(pipe.read(SPILL))
                if other.full:
                    return
        self.drop(side)

    def read_on(self, side: Side) -> None:
        """Read a side again, unless the other one doesn't."""
        if not self.other(side).full and not side.transport.is_closing():
            side.transport.resume_reading()

    def drop(self, side: Side) -> None:
        pipe, side.pipe = side.pipe, None
        if pipe is not None:
            self.pipes.give_back(pipe)

    def half_close(self, side: Side) -> bool:
        """Pass a FIN on; True keeps the side open for writing until the other one has ended, too."""
        other = self.other(side)
        if other.closed or other.transport.is_closing():
            return False
        if other.ended:
            other.transport.close()
            return False
        other.transport.write_eof()
        return True

    def lost(self, side: Side, exc: Exception | None) -> None:
        other = self.other(side)
        self.drop(side)
        self.drop(other)
        if not other.closed and not other.transport.is_closing():
            if exc is None:
                other.transport.close()
            else:
                reset(other.transport, flush=True)
        elif other.closed:
            self._on_end()

    def look(self) -> None:
        """End both sides if one that isn't read has been reset: no event tells, and what it sent is for nobody."""
        for side in (self.client, self.backend):
            if self.other(side).full and not side.closed and has_left(side.transport):
                side.broken = True
                side.transport.abort()
                other = self.other(side)
                if not other.closed:
                    reset(other.transport)

    def moved(self, now: float) -> float:
        """When a byte last came, or was taken by a side that reads slowly."""
        return max(self.seen, *(self.memory.since(side, now) or 0.0 for side in (self.client, self.backend)))

    def close(self, outcome: str) -> None:
        """End both sides: the silence was too long, the drain is over, others need the memory. No close frame: the
        bytes aren't ours."""
        self.outcome = outcome
        for side in (self.client, self.backend):
            if side.closed:
                continue
            if side.transport.get_write_buffer_size():
                reset(side.transport)  # a FIN would say that it has all
            else:
                side.transport.abort()
