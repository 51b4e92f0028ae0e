"""Connections to endpoints, and one last-in-first-out pool of them per node.

The freshest idle connection is the least likely to be stale, and surplus ages out at the bottom. Reading stays on
while a connection is idle: a FIN removes it at once, and any byte drops it.
"""

from __future__ import annotations

import asyncio
import struct
from socket import SO_LINGER, SOL_SOCKET
from time import monotonic
from typing import TYPE_CHECKING, cast

from controller.balancing.node import Node
from controller.proxy import causes, endings
from controller.proxy.codec import RequestHead, ResponseReader
from controller.proxy.edge import guarded, is_bug
from controller.telemetry import Requests

if TYPE_CHECKING:
    from controller.proxy.attempt import Attempt
    from controller.proxy.lane import Lane

# A request that must not be repeated takes no connection that has been idle for longer: its race can't be replayed.
FRESH = 1.0
SHORTEST_KEEP = 0.5  # seconds; races never make a pool useless
_RESET = struct.pack("ii", 1, 0)


def reset(transport: asyncio.Transport, *, flush: bool = False) -> None:
    """Close with a RST, at once or after our buffer. (`abort` alone sends a FIN, under asyncio and uvloop alike.)"""
    sock = transport.get_extra_info("socket")
    if sock is not None:  # None on a transport that is closed already, under uvloop
        sock.setsockopt(SOL_SOCKET, SO_LINGER, _RESET)
    if flush:
        transport.close()
    else:
        transport.abort()


class UpstreamConnection(asyncio.Protocol):
    """One connection to an endpoint: idle in its pool, or carrying one attempt."""

    # fmt: off
    __slots__ = (
        "attempt", "full", "idle_since", "open", "paused", "pool", "reader", "requests", "retires", "transport",
    )
    # fmt: on

    transport: asyncio.Transport

    def __init__(self, pool: Pool, now: float) -> None:
        self.pool = pool
        self.retires = now + pool.settings.upstream_age
        self.requests = 0
        self.idle_since = now
        self.open = False
        self.full = False  # the endpoint doesn't read, or too slowly
        self.paused = False  # it isn't read
        self.attempt: Attempt | None = None
        self.reader = ResponseReader(pool.plane.head_limits)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(self.pool.settings.write_high, self.pool.settings.write_low)
        self.open = True

    def data_received(self, data: bytes) -> None:
        attempt = self.attempt
        if attempt is not None:
            try:
                attempt.from_upstream(data)
            except BaseException as error:  # as `edge.guarded`, without its call
                if not is_bug(error):
                    raise
                attempt.exchange.front.bug(error)
        else:
            self.pool.forget(self)  # nobody asked: the bytes belong to no request
            self.abort()

    def eof_received(self) -> None:
        self._ended(clean=True)

    def connection_lost(self, exc: Exception | None) -> None:
        self.open = False
        self.pool.plane.memory.unblock(self)
        self._ended(clean=exc is None)

    def _ended(self, *, clean: bool) -> None:
        attempt, self.attempt = self.attempt, None
        if attempt is not None:
            guarded(attempt.exchange.front, attempt.upstream_ended, clean)
        else:
            self.open = False  # its transport closes by itself behind a FIN
            self.pool.forget(self)

    def pause_writing(self) -> None:
        self.full = True
        self.pool.plane.memory.block(self)
        if self.attempt is not None:
            guarded(self.attempt.exchange.front, self.attempt.upstream_full)

    def resume_writing(self) -> None:
        self.full = False
        self.pool.plane.memory.unblock(self)
        if self.attempt is not None:
            guarded(self.attempt.exchange.front, self.attempt.upstream_drained)

    def shed(self) -> None:
        """The endpoint doesn't read the request, and others need what that holds."""
        if self.attempt is not None:
            exchange = self.attempt.exchange
            guarded(exchange.front, endings.drop, exchange, causes.MEMORY.reason)

    def write(self, data: bytes) -> None:
        if self.open:  # uvloop raises on a closed transport
            self.transport.write(data)

    def pause_reading(self) -> None:
        if self.open and not self.paused:
            self.paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        if self.open and self.paused:
            self.paused = False
            self.transport.resume_reading()

    def close(self) -> None:
        """End an idle or finished connection. What it hasn't taken of a request is for nobody once that is answered."""
        if self.transport.get_write_buffer_size():
            self.abort()
        elif self.open:
            self.open = False
            self.transport.close()

    def abort(self) -> None:
        """End a connection in the middle of something, so that the endpoint can't take it for complete."""
        if self.open:
            self.open = False
            reset(self.transport)

    def __repr__(self) -> str:
        state = "closed" if not self.open else "idle" if self.attempt is None else "busy"
        return f"<UpstreamConnection {self.pool.node.id} {state} requests={self.requests}>"


class Pool:
    """The connections to one node of one upstream."""

    __slots__ = (
        "_announced",
        "_idle",
        "_keep",
        "address",
        "authority",
        "counts",
        "gone",
        "lane",
        "node",
        "plane",
        "port",
        "settings",
    )

    def __init__(self, node: Node, lane: Lane, counts: Requests) -> None:
        endpoint = node.endpoint
        host = f"[{endpoint.address}]" if ":" in endpoint.address else endpoint.address
        self.node = node
        self.address = endpoint.address
        self.port = endpoint.port
        self.authority = f"{host}:{endpoint.port}".encode()
        self.lane = lane
        self.plane = lane.plane
        self.settings = lane.plane.settings
        self.counts = counts  # of the node's backend
        self.gone = False  # in no slice any more: nothing is kept for it
        self._keep = self.settings.upstream_idle
        self._announced = -1
        self._idle: list[UpstreamConnection] = []

    def take(self, now: float, request: RequestHead) -> UpstreamConnection | None:
        """The freshest idle connection, or None; for what is not idempotent only if it was used a second ago."""
        idle = self._idle
        if not idle:
            return None
        since = now - idle[-1].idle_since
        if since >= self._keep:  # the freshest is too old: all are
            self.close_idle()
            return None
        if since >= FRESH and not request.idempotent:
            return None
        return idle.pop()

    async def connect(self) -> UpstreamConnection:
        """A new connection. Raises OSError."""
        self.lane.made.connects += 1
        _, connection = await self.plane.loop.create_connection(self._make, self.address, self.port)
        return connection

    def _make(self) -> UpstreamConnection:
        return UpstreamConnection(self, monotonic())

    def release(self, connection: UpstreamConnection, now: float) -> None:
        """Keep a connection whose response is complete, unless it is too old or not wanted."""
        settings = self.settings
        if (
            self.gone
            or not connection.open
            or connection.requests >= settings.upstream_requests
            or now >= connection.retires
        ):
            connection.close()
            return
        if connection.paused:
            connection.resume_reading()
        connection.idle_since = now
        idle = self._idle
        idle.append(connection)
        if len(idle) > settings.upstream_idle_connections:
            idle.pop(0).close()

    def learn_keep_alive(self, seconds: int) -> None:
        """Heed `Keep-Alive: timeout=N` (1–60): a second less than it, or half of a very short one."""
        if seconds != self._announced and 1 <= seconds <= 60:
            self._announced = seconds
            self._keep = seconds - 1.0 if seconds >= 2 else seconds / 2

    def raced(self) -> None:
        """A reused connection ended before a response byte: the endpoint closes sooner than it says."""
        self.lane.made.races += 1
        self._keep = max(SHORTEST_KEEP, self._keep / 2)

    def forget(self, connection: UpstreamConnection) -> None:
        if connection in self._idle:
            self._idle.remove(connection)

    def sweep(self, now: float) -> None:
        """Close what has been idle for too long."""
        idle, keep = self._idle, self._keep
        stale = 0
        while stale < len(idle) and now - idle[stale].idle_since >= keep:
            stale += 1
        old, self._idle = idle[:stale], idle[stale:]
        for connection in old:
            connection.close()

    def close(self) -> None:
        """The endpoint is in no slice any more: what is idle closes, and nothing is kept any more."""
        self.gone = True
        self.close_idle()

    def close_idle(self) -> None:
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    @property
    def idle(self) -> int:
        return len(self._idle)

    def __repr__(self) -> str:
        return f"<Pool {self.node.id} idle={self.idle} keep={self._keep:g}s{' gone' if self.gone else ''}>"
