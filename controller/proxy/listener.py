"""`Front`: one client connection. It reads heads, and hands each to an `Exchange`, one at a time and in order.

States: reading a head (or idle) → an exchange is served → … → closing. What comes behind the request in service waits,
one read's worth at most, and reading pauses. While an answer streams, reading goes on: a client's FIN or RST ends its
exchange at once.
"""

from __future__ import annotations

import asyncio
import logging
from time import monotonic
from typing import TYPE_CHECKING, cast

from controller.balancing.node import Node
from controller.proxy import causes, endings
from controller.proxy.causes import Cause
from controller.proxy.client_connection import ClientConnection
from controller.proxy.codec import RequestHead, RequestReader
from controller.proxy.connections import reset
from controller.proxy.deadlines import expire
from controller.proxy.edge import guarded, is_bug
from controller.proxy.forward import Exchange
from controller.proxy.tcp_socket import has_left

if TYPE_CHECKING:
    from controller.proxy.lane import Lane

log = logging.getLogger(__name__)

LARGE = 4096  # bytes: what a connection's share of the process's base has room for isn't counted


class Front(ClientConnection):
    """What HTTP adds to a client connection. The process's tick calls `expire` once `deadline` has passed."""

    __slots__ = (
        "_counted",
        "_discarded",
        "_heading",
        "_pipelined",
        "_weight",
        "exchange",
        "limits",
        "partial",
        "peer",
        "reader",
        "since",
    )

    def __init__(self, lane: Lane) -> None:
        super().__init__(lane)
        self.limits = lane.route.head_limits
        self.exchange: Exchange | None = None
        self.peer = ""
        self.reader = RequestReader(self.limits)
        self._heading = True  # a head is being waited for with `requestHeaders`, not idly
        self.partial = 0  # bytes of an unfinished head
        self.since = 0.0  # when it began
        self._weight = 0  # bytes of a large head in service
        self._pipelined = b""
        self._counted = True  # among the lane's clients
        self._discarded = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        plane, lane = self.plane, self.lane
        self.open = True
        self.transport.set_write_buffer_limits(plane.settings.write_high, plane.settings.write_low)
        peer = transport.get_extra_info("peername")
        self.peer = peer[0].removeprefix("::ffff:").partition("%")[0] if peer else "0.0.0.0"  # noqa: S104 - it left
        plane.fronts.add(self)
        lane.connections += 1
        self.deadline = monotonic() + lane.route.timeouts.request_headers
        if lane.clients > lane.route.limits.max_connections or len(plane.fronts) > plane.client_room:
            self._turn_away()

    def data_received(self, data: bytes) -> None:
        try:
            exchange = self.exchange
            if exchange is not None:
                exchange.from_client(data)
            elif not self._closing:
                self._read(data)
            elif self._lingering:
                self._discarded += len(data)
                if self._discarded > self.plane.settings.lingering_bytes:
                    self._stop_lingering()
        except BaseException as error:  # as `edge.guarded`, without its call
            if not is_bug(error):
                raise
            self.bug(error)

    def eof_received(self) -> None:
        """A FIN is leaving (as in nginx): behind a half-close a later RST could not be seen."""
        self.open = False
        response = self.exchange.response if self.exchange is not None else None
        if self.exchange is not None:
            guarded(self, endings.client_left, self.exchange)
        if not self._closing:  # the loop closes behind a FIN, too, but waits without end for a client that doesn't read
            self._close_behind(monotonic(), reset_it=response is not None and response.ends_by_close)

    def connection_lost(self, exc: Exception | None) -> None:
        self.open = False
        if self.exchange is not None:
            guarded(self, endings.client_left, self.exchange)
        self.gone()

    def gone(self) -> None:
        self.plane.memory.unblock(self)
        self.plane.memory.held -= self.partial + self._weight + len(self._pipelined)
        self.partial = self._weight = 0
        self._pipelined = b""
        if self._lingering:
            self._lingering = False
            self.plane.lingering -= 1
        if self._counted:
            self.lane.connections -= 1
        self.plane.left(self)

    def _turn_away(self) -> None:
        """Over `maxConnections`: an answer that can arrive, for as many as may linger; a RST for the rest."""
        plane = self.plane
        plane.telemetry.refused_connections += 1
        self._counted = False  # while it lingers, its place is for who comes
        self.lane.uncount()
        if plane.lingering < plane.settings.lingering_connections:
            self._refuse(causes.CONNECTIONS)
        else:
            self.abort()

    def _read(self, data: bytes) -> None:
        head = self.reader.feed(data)
        if type(head) is RequestHead:
            if (self.partial or len(data) > LARGE) and not self._weigh(head):
                return
            exchange = self.exchange = Exchange(self, head)
            exchange.begin()
        elif head is None:
            if not self.partial:
                self.since = monotonic()
            self.partial += len(data)
            self.plane.memory.held += len(data)
            if not self.plane.memory.may_hold():
                self._refuse(causes.MEMORY)
            elif self.reader.started and not self._heading:
                self._heading = True
                self.deadline = monotonic() + self.lane.route.timeouts.request_headers
        else:
            self._refuse(causes.REFUSALS.get(head.status, causes.MALFORMED))

    def _weigh(self, head: RequestHead) -> bool:
        """The head stays for as long as its request. False if there is no room for it: it is refused."""
        memory = self.plane.memory
        self._weight = head.size
        memory.held += self._weight - self.partial
        self.partial = 0
        if memory.may_hold():
            return True
        memory.held -= self._weight
        self._weight = 0
        self._refuse(causes.MEMORY)
        return False

    def _refuse(self, cause: Cause) -> None:
        """Answer what never became a request, and close."""
        request_id = self.plane.identifiers.next()
        self.write(causes.render(cause, request_id, self.plane.date, close=True, bodyless=False))
        self.lane.refused(self, cause, request_id)
        self._linger()

    def pipeline(self, data: bytes) -> None:
        """Bytes behind the request in service: they wait, and nothing more is read."""
        memory = self.plane.memory
        self._pipelined += data
        memory.held += len(data)
        self.pause(self.PIPELINED)
        if not memory.may_hold() and self.exchange is not None:
            endings.drop(self.exchange, causes.MEMORY.reason)

    def take_pipelined(self) -> bytes:
        data, self._pipelined = self._pipelined, b""
        self.plane.memory.held -= len(data)
        return data

    def served(self, now: float, close: bool, unread: bool) -> None:
        """The exchange is over and its answer written. `unread`: the client may still be sending its body."""
        if not self.open:
            return
        if self._weight:
            self.plane.memory.held -= self._weight
            self._weight = 0
        if close or (self._last and not self._pipelined):
            if unread or self._pipelined:
                self._linger()
            else:
                self._finish(now)
            return
        self._heading = False
        self.deadline = now + self.lane.route.timeouts.idle
        if self.full:
            self.pause(self.FULL)
        if self._paused:
            self.resume(self.UNCONNECTED | self.UPSTREAM)
            if self._pipelined:
                # Not from here: a row of requests that we answer ourselves would nest without end.
                self.plane.loop.call_soon(self._next)

    def _next(self) -> None:
        """Go on with what waits, unless the answers before it do."""
        if self.open and self._pipelined and self.exchange is None and not (self._closing or self.full):
            self.resume(self.PIPELINED)
            self.data_received(self.take_pipelined())

    # Back-pressure.

    def pause_writing(self) -> None:
        self.full = True
        self.plane.memory.block(self)
        if self.exchange is not None:
            guarded(self, self.exchange.client_full)

    def resume_writing(self) -> None:
        self.full = False
        self.plane.memory.unblock(self)
        if self.exchange is not None:
            guarded(self, self.exchange.client_drained)
        else:
            self.resume(self.FULL)
            self._next()

    def look(self) -> None:
        """Has the client left? While it isn't read, no event tells."""
        if self.exchange is not None and self.exchange.tunnel is not None:
            self.exchange.tunnel.look()
        elif self._paused and self.open and has_left(self.transport):
            self.transport.abort()

    # Short of memory.

    def shed(self) -> None:
        if self.exchange is not None:
            endings.drop(self.exchange, causes.CLIENT_SLOW)
        elif self.partial and self.open and not self.full:
            self._refuse(causes.MEMORY)
            self._stop_lingering()
        else:
            super().shed()

    def serves(self, node: Node) -> bool:
        """Whether its request is on this endpoint."""
        exchange = self.exchange
        return exchange is not None and exchange.attempt is not None and exchange.attempt.node is node

    def close_idle(self) -> None:
        """The listener stops: close, behind what is being served or begun if there is something."""
        self._last = True
        if self.exchange is None and self.open and not (self._pipelined or self.reader.started):
            self._finish(monotonic())

    def cut(self) -> None:
        if self.exchange is not None:
            endings.cut(self.exchange)
        else:
            reset(self.transport)

    def expire(self, now: float) -> None:
        if self.exchange is not None:
            expire(self.exchange, now)
        elif self._lingering:
            self._stop_lingering()
        elif self._closing:
            self._expire_closing(now)
        elif self.full:
            self._expire_full(now)
        elif self.reader.started:
            self._refuse(causes.REQUEST_TIMEOUT)
        else:
            self._finish(now)

    def bug(self, error: BaseException) -> None:
        """A fault of our own."""
        log.error("bug while forwarding", exc_info=error, extra={"service": self.lane.service})
        self.plane.telemetry.bugs += 1
        try:
            if self.exchange is not None:
                endings.bug(self.exchange)
            else:
                self.abort()
        except BaseException as another:
            if not is_bug(another):
                raise
            # What the first has left can't even be answered: only the connection is left to end.
            log.error("bug while answering for a bug", exc_info=another, extra={"service": self.lane.service})
            self.exchange = None
            self.abort()

    def __repr__(self) -> str:
        state = "closing" if self._closing else "idle" if self.exchange is None else "serving"
        return f"<Front {self.peer} {state}>"
