"""`TcpFront`: one client connection of a TCP port, balanced as a whole.

States: waiting (for a free slot, a connect, a retry's pause) → a `Tunnel` → gone. What the client sends stays unread
until the connect, so that a connect that fails can be tried again elsewhere. The latency is the connect's: an
established connection has answered; a reset before the endpoint's first byte is one more failure.

Guarantee: `node.start` is met by exactly one `node.finish`, and an ended connection passes `_end` exactly once.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, cast

from controller.balancing.node import Kind, Node
from controller.balancing.picker import NoEndpoints, PickRequest
from controller.proxy import causes, retries
from controller.proxy.causes import Cause
from controller.proxy.connections import reset
from controller.proxy.tcp_socket import Dialled, has_left, prepare
from controller.proxy.tunnel import Tunnel

if TYPE_CHECKING:
    from controller.proxy.connections import Pool
    from controller.proxy.lane import Lane

log = logging.getLogger(__name__)


class TcpFront(asyncio.BufferedProtocol):
    """One client connection, from the accept to the end of both sides.

    Under uvloop a pause takes hold only after the first read: a buffer of one byte leaves the rest in the kernel.
    """

    # fmt: off
    __slots__ = (
        "_buffer", "_connecting", "_early", "_ended", "_over", "_pauses", "_pick", "_retry", "_started", "_tried",
        "_tunnel", "began", "carried", "connected_after", "deadline", "lane", "node", "peer", "plane", "pool", "route",
        "transport", "tries",
    )
    # fmt: on

    transport: asyncio.Transport

    def __init__(self, lane: Lane) -> None:
        now = monotonic()
        self.lane = lane
        self.plane = lane.plane
        self.route = lane.route  # the settings of this moment: a later snapshot is for later connections
        self.peer = ""
        self.began = now
        self.deadline = inf
        self.node: Node | None = None  # the latest tried, while its attempt is on
        self.pool: Pool | None = None  # its counters, and its name in the log
        self.tries = 0
        self.connected_after: float | None = None  # seconds; None = never
        self._started = now  # the latest attempt's beginning
        self._tried: list[Node] = []
        self._pick = PickRequest(now, None, self._tried)
        self._pauses = 0
        self._connecting: asyncio.Task[None] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._tunnel: Tunnel | None = None
        self._buffer = bytearray(1)
        self._early = b""
        self._ended = False  # the client's FIN came before the connect
        self.carried = (0, 0)  # bytes that are in the counters already, from the client and from the endpoint
        self._over = False

    # The client, before there is a tunnel.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        plane, lane = self.plane, self.lane
        prepare(self.transport, plane.settings)
        peer = transport.get_extra_info("peername")
        self.peer = peer[0].removeprefix("::ffff:").partition("%")[0] if peer else "0.0.0.0"  # noqa: S104 - it left
        plane.fronts.add(self)
        lane.connections += 1
        plane.loop.call_soon(self._pause)
        if lane.clients > self.route.limits.max_connections or len(plane.fronts) > plane.client_room:
            plane.telemetry.refused_connections += 1
            self.refuse(causes.CONNECTIONS)
        elif not plane.memory.may_serve():
            self.refuse(causes.MEMORY)
        else:
            if self.route.address_key is not None:
                self._pick.key = self.route.address_key(self.peer)
            lane.upstream.budget.attempt(self.began)
            self.attempt_next()

    def _pause(self) -> None:
        if self._tunnel is None and not self.transport.is_closing():
            self.transport.pause_reading()

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._early += self._buffer[:nbytes]
        self._pause()

    def eof_received(self) -> bool:
        self._ended = True
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has left, or was refused."""
        if not self._over:
            self._abandon()
            self._end(causes.CLIENT_LEFT)
        self._gone()

    # Attempts.

    def attempt_next(self) -> None:
        """Pick an endpoint and connect, or wait until one has a free slot."""
        if has_left(self.transport):
            self.transport.abort()
            return
        try:
            node = self.lane.pick(self._pick)
        except NoEndpoints:
            self.refuse(self.route.none)
            return
        if node is not None:
            self._go(node)
        elif self.lane.queue.put(self):
            self.waits()
        else:
            self.refuse(causes.QUEUE_FULL)

    def waits(self) -> None:
        """Look at the client at each tick: while nothing is read, its reset is told by no event."""
        self.deadline = 0.0

    def _go(self, node: Node) -> None:
        self.tries += 1
        self.node = node
        self.pool = self.lane.pool(node)
        self._started = monotonic()
        node.start(self._started)
        self.lane.made.connects += 1
        self.waits()
        self._connecting = self.plane.loop.create_task(self._connect(node), name="connect")

    async def _connect(self, node: Node) -> None:
        endpoint = node.endpoint
        try:
            async with asyncio.timeout(self.route.timeouts.connect):
                await self.plane.loop.create_connection(
                    lambda: Dialled(partial(self._connected, node)), endpoint.address, endpoint.port
                )
        except OSError as error:  # TimeoutError is one
            self._connecting = None
            if self._tunnel is None:
                self._failed(node, causes.of_connect(error))
        else:
            self._connecting = None

    def _connected(self, node: Node, backend: asyncio.Transport) -> None:
        """The endpoint has accepted: from now on bytes flow."""
        if self.node is not node:  # the client left, or time ran out, a moment ago
            backend.abort()
            return
        now = monotonic()
        self.connected_after = now - self.began
        prepare(backend, self.plane.settings)
        node.answered(now, Kind.OK, now - self._started)
        self.deadline = now + self.route.timeouts.tcp_idle
        self._tunnel = Tunnel(self.transport, backend, self._tunnel_ended, self.plane.memory, self.plane.pipes)
        self._tunnel.start(self._early, b"")
        if self._ended:
            self._tunnel.client.eof_received()

    def _failed(self, node: Node, cause: Cause) -> None:
        now = monotonic()
        self.node = None
        node.finish(now, cause.kind, now - self._started)
        if not self._try_again(node, cause, now):
            self.refuse(cause)

    def _try_again(self, node: Node, cause: Cause, now: float) -> bool:
        """Whether another attempt is under way, or will be after a pause."""
        if not retries.allowed(
            self.route.retries, cause.retry, tries=self.tries, idempotent=True, handed=False, replayable=True
        ):
            return False
        self._tried.append(node)
        try:
            following = self.lane.pick(self._pick)
        except NoEndpoints:
            return False
        if not self.lane.upstream.budget.retry(now):
            return False
        self.lane.retried(cause.retry)
        if following is not None and self.tries == 1 and following not in self._tried:
            self._go(following)
            return True
        pause = retries.pause(self._pauses, self.plane.random)
        self._pauses += 1
        self._retry = self.plane.loop.call_later(pause, self.attempt_next)
        return True

    # Beside the bytes.

    def serves(self, node: Node) -> bool:
        return self.node is node

    def tally(self) -> None:
        """Add what has passed since the last call to the counters: a connection may stay for days."""
        tunnel, pool = self._tunnel, self.pool
        if tunnel is not None and pool is not None:
            received, sent = tunnel.client.received, tunnel.backend.received
            pool.counts.received += received - self.carried[0]
            pool.counts.sent += sent - self.carried[1]
            self.carried = (received, sent)

    def expire(self, now: float) -> None:
        tunnel = self._tunnel
        if tunnel is None:
            if has_left(self.transport):
                self.transport.abort()
        else:
            self.deadline = tunnel.moved(now) + self.route.timeouts.tcp_idle
            if self.deadline <= now:
                tunnel.close(causes.SILENT)

    def look(self) -> None:
        if self._tunnel is not None:
            self._tunnel.look()

    def close_idle(self) -> None:
        """The listener stops: no connection here is ever known to be idle, so each has its drain."""

    def cut(self) -> None:
        """The drain is over."""
        if self._tunnel is not None:
            self._tunnel.close(causes.CUT)
        else:
            self.refuse(causes.DRAINED)

    def bug(self, error: BaseException) -> None:
        """A fault of our own; the caller has caught `error`."""
        log.error("bug while forwarding", exc_info=error, extra={"service": self.lane.service})
        self.plane.telemetry.bugs += 1
        if self._tunnel is not None:
            self._tunnel.close(causes.BUG.reason)
        else:
            self.refuse(causes.BUG)

    # The end.

    def refuse(self, cause: Cause) -> None:
        """By a reset, since a FIN would look like an endpoint that has nothing to say."""
        self._abandon()
        self._end(cause.reason)
        reset(self.transport)

    def _abandon(self) -> None:
        """Stop what is under way, neutrally for the endpoint."""
        if self._connecting is not None:
            self._connecting.cancel()
        if self._retry is not None:
            self._retry.cancel()
        self._connecting = self._retry = None
        self.lane.queue.remove(self)
        node, self.node = self.node, None
        if node is not None:
            node.finish(monotonic(), Kind.CANCELLED)

    def _tunnel_ended(self) -> None:
        tunnel, node = self._tunnel, self.node
        assert tunnel is not None
        assert node is not None
        failed = not tunnel.outcome and tunnel.backend.broken and not tunnel.backend.received
        node.finish(monotonic(), Kind.RESET if failed else Kind.OK, 0.0 if failed else None)
        self._end(causes.RESET.reason if failed else tunnel.outcome or causes.CARRIED)
        self.node = None
        self._gone()

    def _end(self, outcome: str) -> None:
        """Count and log; once."""
        self.tally()
        self._over = True
        self.lane.carried(self, outcome, monotonic())

    def _gone(self) -> None:
        self.lane.connections -= 1
        self.plane.left(self)

    def __repr__(self) -> str:
        state = "carrying" if self._tunnel is not None else "over" if self._over else "waiting"
        return f"<TcpFront {self.peer} {state}>"
