"""One try of a request on one endpoint: connect, send, read up to the final response head.

Guarantee: `node.start` is met by exactly one `node.finish`, since every way out passes `complete` or `_release`. What
the endpoint did is learnt at the head (`node.answered`); in flight ends at the end.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING

from controller.balancing.node import Kind, Node
from controller.proxy import again, answering, causes
from controller.proxy.causes import Cause
from controller.proxy.codec import ResponseHead
from controller.proxy.connections import Pool, UpstreamConnection
from controller.proxy.edge import guarded

if TYPE_CHECKING:
    from controller.proxy.forward import Exchange

OK, CANCELLED = Kind.OK, Kind.CANCELLED  # each look into an enumeration costs 30 ns


class Attempt:
    """`start` begins it; `complete`, `fail` or `abandon` ends it, once."""

    __slots__ = (
        "_task",
        "_timers",
        "began",
        "connection",
        "exchange",
        "heard",
        "kind",
        "node",
        "over",
        "pool",
    )

    def __init__(self, exchange: Exchange, node: Node, pool: Pool, now: float) -> None:
        self.exchange = exchange
        self.node = node
        self.pool = pool
        self.began = now
        self.kind = CANCELLED  # until a head or a failure says more
        self.connection: UpstreamConnection | None = None
        self.heard = False  # a 1xx has come
        self.over = False  # the node has been told, once
        self._task: asyncio.Task[None] | None = None
        self._timers: tuple[asyncio.TimerHandle, ...] = ()  # that the head ends
        node.start(now)

    def start(self, fresh: bool) -> None:
        """Go: at once over an idle connection, else over a new one."""
        exchange, now = self.exchange, self.began
        per_try = exchange.route.retries.per_try_timeout
        if per_try:
            call = exchange.plane.loop.call_later
            self._timers = (call(per_try, guarded, exchange.front, exchange.failed, causes.RESPONSE_TIMEOUT),)
        connection = None if fresh else self.pool.take(now, exchange.head)
        if connection is not None:
            self._send(connection, now)
        else:
            exchange.front.deadline = exchange.until
            self._task = exchange.plane.loop.create_task(self._connect(), name="connect")

    async def _connect(self) -> None:
        try:
            async with asyncio.timeout(self.exchange.route.timeouts.connect):
                connection = await self.pool.connect()
        except OSError as error:  # TimeoutError is one
            self._task = None
            guarded(self.exchange.front, self.exchange.failed, causes.of_connect(error))
        else:
            self._task = None
            guarded(self.exchange.front, self._connected, connection)

    def _connected(self, connection: UpstreamConnection) -> None:
        if connection.open:
            self._send(connection, monotonic())
        else:  # accepted and ended before this task ran on: no byte of the request has left
            self.exchange.failed(causes.RESET)

    def _send(self, connection: UpstreamConnection, now: float) -> None:
        """The head, and what there is of the body, in one write. The connection is open: just taken, or just made."""
        exchange = self.exchange
        head, route, front, upload = exchange.head, exchange.route, exchange.front, exchange.upload
        self.connection = connection
        connection.attempt = self
        connection.requests += 1
        exchange.handed = True
        data = head.forward(route.forwarding, front.peer, exchange.request_id, self.pool.authority)
        if upload is None:
            deadline = now + route.timeouts.response  # as `exchange.wait`, without its call
            front.deadline = deadline if deadline < exchange.until else exchange.until
        else:
            exchange.wait(now, route.timeouts.response if upload.ended else route.timeouts.idle)
            front.resume(front.UNCONNECTED)
            data += upload.release()
            if upload.size == 0 and head.expect and not exchange.continued:
                call, wait = exchange.plane.loop.call_later, exchange.plane.settings.continue_wait
                self._timers += (call(wait, guarded, front, answering.continue_anyway, exchange),)
        connection.transport.write(data)
        if front.full:
            self.throttle()

    # What the endpoint sends.

    def from_upstream(self, data: bytes) -> None:
        connection, exchange = self.connection, self.exchange
        if exchange.response is not None:
            answering.relay(exchange, data)
            return
        assert connection is not None
        reader, request = connection.reader, exchange.head
        usual = answering.usual(exchange)
        while data:
            if usual:
                head = reader.read(data, request, exchange.request_id, exchange.front.plane.date)
            else:
                head = reader.feed(data, request)
            if type(head) is bytes:
                now = monotonic()
                if self._timers:
                    self._disarm()
                self.kind = OK
                self.node.answered(now, OK, now - self.began)
                answering.answered_plainly(exchange, self, reader, head, now)
                return
            if type(head) is ResponseHead:
                status = head.status
                if status >= 200 or status == 101:
                    self._answered(head, status)
                    return
                self.heard = True
                answering.inform(exchange, head)
                data = head.take_rest()
            elif head is None:
                return
            else:
                exchange.failed(causes.BAD_RESPONSE)
                return

    def _answered(self, head: ResponseHead, status: int) -> None:
        now = monotonic()
        self._disarm()
        retry_after = None
        if status < 500 and status != 429:
            self.kind = OK
        else:
            retry_after = head.retry_after if head.retry_after >= 0 else None
            pushback = status == 429 or (status == 503 and head.field(b"retry-after") is not None)
            self.kind = Kind.PUSHBACK if pushback else Kind.ERROR
        self.node.answered(now, self.kind, now - self.began, retry_after)
        if head.keep_alive_timeout > 0:
            self.pool.learn_keep_alive(head.keep_alive_timeout)
        answering.answered(self.exchange, self, head, status, now)

    def upstream_ended(self, clean: bool) -> None:
        """FIN (`clean`) or RST; the connection is lost to us."""
        connection, self.connection = self.connection, None
        assert connection is not None
        if self.exchange.response is not None:
            connection.close()
            answering.upstream_ended(self.exchange, clean=clean)
            return
        connection.abort()
        if connection.requests > 1 and not (connection.reader.started or self.heard):
            # The endpoint closed an idle connection while the request was on its way: no fault of its own.
            self.pool.raced()
            self.abandon(None)
            if again.may_replay(self.exchange):
                again.replay(self.exchange, self)
                return
        self.exchange.failed(causes.RESET)

    # Back-pressure.

    def upstream_full(self) -> None:
        self.exchange.upstream_full()

    def upstream_drained(self) -> None:
        self.exchange.upstream_drained()

    def throttle(self) -> None:
        """Don't read the endpoint: the client reads too slowly."""
        if self.connection is not None:
            self.connection.pause_reading()

    def unthrottle(self) -> None:
        if self.connection is not None:
            self.connection.resume_reading()

    # The end.

    def complete(self, now: float, reusable: bool) -> None:
        """The response is whole."""
        self.over = True
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.attempt = None
            body = self.exchange.upload is not None
            # What the endpoint hasn't taken of this request would go before the next, and a transport that is full by
            # then doesn't say that it can't take that, either.
            if reusable and not (connection.full or (body and connection.transport.get_write_buffer_size())):
                self.pool.release(connection, now)
            else:
                connection.close()
        self.node.finish(now, self.kind)

    def fail(self, cause: Cause) -> None:
        """No final head came; the endpoint learns why, unless it is neutral."""
        self._release(cause.kind, monotonic() - self.began)

    def abandon(self, failure: Kind | None) -> None:
        """Stop, whatever it is at. `failure` is a fault behind the head, which the endpoint learns as one more."""
        self._release(failure or Kind.CANCELLED, 0.0 if failure else None)

    def detach(self) -> UpstreamConnection:
        """Give the connection away: it is a tunnel's from now on. The attempt goes on."""
        connection, self.connection = self.connection, None
        assert connection is not None
        connection.attempt = None
        return connection

    def _release(self, kind: Kind, seconds: float | None) -> None:
        if self.over:  # a bug ended it half-way
            return
        self.over = True
        self._disarm()
        if self._task is not None:
            self._task.cancel()
            self._task = None
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.attempt = None
            connection.abort()
        self.node.finish(monotonic(), kind, seconds)

    def _disarm(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers = ()
