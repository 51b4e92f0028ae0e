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
from controller.proxy.codec import Refused, ResponseHead
from controller.proxy.connections import Pool, UpstreamConnection
from controller.proxy.edge import guarded

if TYPE_CHECKING:
    from controller.proxy.forward import Exchange

OK, CANCELLED = Kind.OK, Kind.CANCELLED  # each look into an enumeration costs 30 ns


class Attempt:
    """`start` begins it; `complete`, `fail` or `abandon` ends it, once."""

    __slots__ = (
        "_expecting",
        "_reused",
        "_task",
        "_throttled",
        "_timer",
        "began",
        "connection",
        "exchange",
        "kind",
        "node",
        "over",
        "pool",
        "response",
    )

    def __init__(self, exchange: Exchange, node: Node, pool: Pool, now: float) -> None:
        self.exchange = exchange
        self.node = node
        self.pool = pool
        self.began = now
        self.kind = CANCELLED  # until a head or a failure says more
        self.connection: UpstreamConnection | None = None
        self.response: ResponseHead | None = None
        self.over = False  # the node has been told, once
        self._reused = False
        self._throttled = False
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._expecting: asyncio.TimerHandle | None = None
        node.start(now)

    def start(self, fresh: bool) -> None:
        """Go: at once over an idle connection, else over a new one."""
        exchange, now = self.exchange, self.began
        per_try = exchange.route.retries.per_try_timeout
        if per_try:
            self._timer = exchange.plane.loop.call_later(
                per_try, guarded, exchange.front, exchange.failed, causes.RESPONSE_TIMEOUT
            )
        connection = None if fresh else self.pool.take(now, exchange.head)
        if connection is not None:
            self._reused = True
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
        """The head, and what there is of the body, in one write."""
        exchange = self.exchange
        self.connection = connection
        connection.attempt = self
        connection.requests += 1
        connection.write(exchange.request_bytes(self.pool.authority, now))
        upload = exchange.upload
        if upload is not None and upload.size == 0 and exchange.head.expect and not exchange.continued:
            wait = exchange.plane.settings.continue_wait
            self._expecting = exchange.plane.loop.call_later(
                wait, guarded, exchange.front, answering.continue_anyway, exchange
            )
        if exchange.front.full:
            self.throttle()

    # What the endpoint sends.

    def from_upstream(self, data: bytes) -> None:
        if self.response is not None:
            answering.relay(self.exchange, data)
            return
        connection, exchange = self.connection, self.exchange
        assert connection is not None
        while data:
            head = connection.reader.feed(data, exchange.head)
            if head is None:
                return
            if type(head) is Refused:
                exchange.failed(causes.BAD_RESPONSE)
                return
            status = head.status
            if status >= 200 or status == 101:
                self._answered(head, status)
                return
            answering.inform(exchange, head)
            data = head.take_rest()

    def _answered(self, head: ResponseHead, status: int) -> None:
        now = monotonic()
        plain = head.plain
        retry_after = -1.0
        if plain or (status < 500 and status != 429):
            self.kind = OK
        else:
            retry_after = head.retry_after
            pushback = status == 429 or (status == 503 and head.field(b"retry-after") is not None)
            self.kind = Kind.PUSHBACK if pushback else Kind.ERROR
        self.response = head
        if self._timer is not None or self._expecting is not None:
            self._disarm()
        self.node.answered(now, self.kind, now - self.began, retry_after if retry_after >= 0 else None)
        if not plain and head.keep_alive_timeout > 0:
            self.pool.learn_keep_alive(head.keep_alive_timeout)
        answering.answered(self.exchange, head, status, now, plain)

    def upstream_ended(self, clean: bool) -> None:
        """FIN (`clean`) or RST; the connection is lost to us."""
        connection, self.connection = self.connection, None
        assert connection is not None
        if self.response is not None:
            connection.close()
            answering.upstream_ended(self.exchange, clean=clean)
            return
        connection.abort()
        if self._reused and not connection.reader.started and again.may_replay(self.exchange):
            self.pool.raced()
            self.abandon(None)
            again.replay(self.exchange, self)
        else:
            self.exchange.failed(causes.RESET)

    # Back-pressure.

    def upstream_full(self) -> None:
        self.exchange.upstream_full()

    def upstream_drained(self) -> None:
        self.exchange.upstream_drained()

    @property
    def throttled(self) -> bool:
        """The endpoint isn't read, since the client reads too slowly."""
        return self._throttled

    def throttle(self) -> None:
        if self.connection is not None and not self._throttled:
            self._throttled = True
            self.connection.pause_reading()

    def unthrottle(self) -> None:
        if self._throttled:
            self._throttled = False
            if self.connection is not None:
                self.connection.resume_reading()

    # The end.

    def complete(self, now: float, reusable: bool) -> None:
        """The response is whole."""
        self.over = True
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.attempt = None
            if reusable:
                if self._throttled:
                    connection.resume_reading()
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
        for timer in (self._timer, self._expecting):
            if timer is not None:
                timer.cancel()
        self._timer = self._expecting = None
