"""One request's way: validate → admit → pick → attempt → the answer's head → decide → relay → end.

On the usual path (an endpoint with a free slot, a pooled connection) all of it is plain calls, driven by what the two
connections receive. A task exists only while a connection is being made, a timer only for what must be exact.

Guarantees: an exchange passes `_end` exactly once. Ending a response (`_complete`) and abandoning it (`_truncate`)
share no code, so that half an answer never looks whole.
"""

from __future__ import annotations

import asyncio
from math import inf
from time import monotonic
from typing import TYPE_CHECKING

from controller.balancing.node import Kind, Node
from controller.balancing.picker import NoEndpoints, PickRequest
from controller.model.service import RetryCondition
from controller.proxy import causes, retries
from controller.proxy.attempt import Attempt
from controller.proxy.causes import Cause
from controller.proxy.codec import Body, Complete, Refused, RequestHead, ResponseHead
from controller.proxy.connections import Pool
from controller.proxy.route import set_cookie
from controller.proxy.tunnel import Tunnel
from controller.proxy.upload import Upload

if TYPE_CHECKING:
    from controller.proxy.listener import Front

LOOPS = 5  # passes through this very object before it is taken for a loop
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
CLASSES = ("0xx", "1xx", "2xx", "3xx", "4xx", "5xx", "6xx", "7xx", "8xx", "9xx")


class Exchange:
    """One request and its answer, over as many attempts as it takes."""

    __slots__ = (
        "_binding",
        "_continued",
        "_download",
        "_handed",
        "_informed",
        "_pauses",
        "_pick",
        "_replayed",
        "_retry",
        "_tried",
        "_tunnel",
        "_upload",
        "attempt",
        "began",
        "close",
        "front",
        "head",
        "headed",
        "lane",
        "plane",
        "pool",
        "request_id",
        "response",
        "route",
        "sent",
        "tries",
        "until",
    )

    def __init__(self, front: Front, head: RequestHead) -> None:
        lane = front.lane
        route = lane.route
        now = monotonic()
        self.front = front
        self.plane = front.plane
        self.lane = lane
        self.route = route  # the settings of this moment: a later snapshot is for later requests
        self.head = head
        self.request_id = head.request_id or front.plane.next_id()
        self.began = now
        self.until = now + route.timeouts.request if route.timeouts.request else inf
        self.attempt: Attempt | None = None
        self.pool: Pool | None = None  # the latest attempt's
        self.response: ResponseHead | None = None
        self.headed = 0.0  # when the final head came; 0 = none did
        self.close = False  # said to the client
        self.tries = 0
        self.sent = 0  # payload bytes of the response
        self._tried: list[Node] = []
        self._pick = PickRequest(now, None, self._tried)
        self._upload: Upload | None = None
        self._download: Body | None = None
        self._tunnel: Tunnel | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._pauses = 0
        self._binding = False  # the answer shall carry an affinity cookie for the endpoint that gave it
        self._handed = False  # a byte of the request was given to a connection
        self._informed = False  # a 1xx went to the client: nothing can be tried again
        self._continued = False  # the 100 was ours
        self._replayed = False  # a keep-alive race was made good

    # The request.

    def begin(self) -> None:
        """Validate and admit; then try."""
        head, front, route = self.head, self.front, self.route
        if head.length:
            self._upload = Upload(
                head,
                front.limits,
                limit=route.body_bytes,
                keep=route.retries.max_body_bytes,
                memory=self.plane.memory,
            )
        if head.rest:
            self.from_client(head.rest)
            if front.exchange is not self:  # the body was refused in its first piece
                return
        refusal = self._refusal()
        if refusal is not None:
            self.answer(refusal)
            return
        if route.hash_key is not None:
            self._pick.key = route.hash_key(head, front.peer)
        self.lane.upstream.budget.attempt(self.began)
        self.attempt_next()

    def _refusal(self) -> Cause | None:
        head, limit = self.head, self.route.body_bytes
        if head.hops and head.loops(self.route.forwarding) >= LOOPS:
            return causes.LOOP
        if head.max_forwards == 0:
            return causes.OPTIONS_LAST_HOP if head.method == b"OPTIONS" else causes.TRACE_LAST_HOP
        if limit and head.length > limit:
            return causes.BODY_TOO_LARGE
        return None if self.plane.memory.may_serve() else causes.MEMORY

    def from_client(self, data: bytes) -> None:
        """Bytes behind the head: the body, then what is pipelined."""
        upload, front = self._upload, self.front
        if upload is None or upload.ended:
            front.pipeline(data)
            return
        fed = upload.feed(data)
        if isinstance(fed, Cause):
            self._refuse_body(fed)
            return
        out, ended, rest = fed
        connection = self.attempt.connection if self.attempt is not None else None
        if connection is None:
            front.pause(front.UNCONNECTED)
        else:
            connection.write(out)
            if self.response is None:
                timeouts = self.route.timeouts
                self._wait(monotonic(), timeouts.response if ended else timeouts.idle)
        if rest:
            front.pipeline(rest)

    def _refuse_body(self, cause: Cause) -> None:
        """The body is malformed or too long: the endpoint must not take what it got for a whole."""
        if self.response is None:
            self._abandon()
            self.answer(cause)
        else:
            self._truncate(cause.reason)

    def request_bytes(self, authority: bytes, now: float) -> bytes:
        """The head as this endpoint shall see it, and what there is of the body."""
        head, upload, timeouts = self.head, self._upload, self.route.timeouts
        data = head.forward(
            self.route.forwarding,
            self.front.peer,
            self.request_id,
            authority,
            head.max_forwards - 1 if head.max_forwards > 0 else -1,
        )
        self._handed = True
        if upload is None:
            self._wait(now, timeouts.response)
            return data
        self._wait(now, timeouts.response if upload.ended else timeouts.idle)
        self.front.resume(self.front.UNCONNECTED)
        return data + upload.release()

    # Attempts.

    def attempt_next(self) -> None:
        """Pick an endpoint and go there, or wait until one has a free slot."""
        try:
            node = self._bound() if self.route.affinity is not None and not self.tries else None
            if node is None:
                node = self.lane.pick(self._pick)
        except NoEndpoints:
            self.answer(causes.NO_ENDPOINTS)
            return
        if node is not None:
            self._go(node)
        elif not self.lane.queue.put(self):
            self.answer(causes.QUEUE_FULL)

    def _bound(self) -> Node | None:
        """The endpoint that the client's affinity cookie names, if it may serve and has a free slot."""
        token = self.head.cookie(self.route.cookie_name)
        node = self.lane.upstream.bound(token) if token else None
        self._binding = node is None
        return None if node is None or (node.limit and node.inflight >= node.limit) else node

    def _cookie(self, node: Node) -> bytes:
        """The field line that binds the client to `node`, if it isn't bound already."""
        cookie = self.route.affinity
        if cookie is None or not self._binding:
            return b""
        https = cookie.secure == "Auto" and self.head.scheme(self.route.forwarding, self.front.peer) == "https"
        return set_cookie(cookie, self.lane.upstream.token_for(node), https=https)

    def _go(self, node: Node, *, fresh: bool = False) -> None:
        self.tries += 1
        pool = self.pool = self.lane.pool(node)
        attempt = self.attempt = Attempt(self, node, pool, monotonic())
        attempt.start(fresh=fresh)

    def failed(self, cause: Cause) -> None:
        """The attempt got no final head: try again, or tell the client."""
        attempt = self.attempt
        assert attempt is not None
        attempt.fail(cause)
        if not self._try_again(attempt.node, cause.retry):
            self.attempt = None
            self.answer(cause)

    def _try_again(self, node: Node, condition: RetryCondition | None) -> bool:
        """Whether another attempt is under way, or will be after a pause."""
        upload = self._upload
        if (
            self._informed
            or not retries.allowed(
                self.route.retries,
                condition,
                tries=self.tries,
                idempotent=self.head.idempotent,
                handed=self._handed,
                replayable=upload is None or upload.replayable,
            )
            or (now := monotonic()) >= self.until
        ):
            return False
        self._tried.append(node)
        self._binding = True  # whoever serves it now is the one to come back to
        try:
            following = self.lane.pick(self._pick)
        except NoEndpoints:
            return False
        if not self.lane.upstream.budget.retry(now):
            return False
        self._hold()
        self.lane.retried(condition)
        if following is not None and self.tries == 1 and following not in self._tried:
            self._go(following)
            return True
        wait = retries.pause(self._pauses, self.plane.random)
        self._pauses += 1
        self.front.deadline = self.until
        self._retry = self.plane.loop.call_later(wait, self.attempt_next)
        return True

    def _hold(self) -> None:
        """The attempt is over and another one follows: what comes of the body waits for it."""
        self.attempt = None
        if self._upload is not None:
            self._upload.hold()
            self.front.resume(self.front.UPSTREAM)

    def may_replay(self) -> bool:
        """Whether a keep-alive race can be made good: once, if the request may be sent twice at all."""
        upload = self._upload
        return (
            not (self._replayed or self._informed)
            and (self.head.idempotent or self.route.retries.non_idempotent)
            and (upload is None or upload.replayable)
        )

    def replay(self, attempt: Attempt) -> None:
        """Once more on a fresh connection, to the same endpoint if it is still there; not counted as a try."""
        self._replayed = True
        self.tries -= 1
        self._hold()
        if attempt.pool.gone:
            self.attempt_next()
        else:
            self._go(attempt.node, fresh=True)

    # The answer.

    def awaits_continue(self) -> bool:
        upload = self._upload
        return self.head.expect and not self._continued and upload is not None and upload.size == 0

    def continue_anyway(self) -> None:
        """Neither a 100 nor an answer came: nobody shall wait for ever."""
        self._continued = self._informed = True
        self.front.write(CONTINUE)

    def inform(self, head: ResponseHead) -> None:
        """Relay a 1xx; a 100 only if ours didn't go out before it."""
        if self.head.version == 10 or (head.status == 100 and self._continued):
            return
        self._informed = True
        self.front.write(head.forward(False, self.request_id, self.plane.date))

    def answered(self, head: ResponseHead, now: float) -> None:
        """The final head is here: decide."""
        attempt, request, upload = self.attempt, self.head, self._upload
        assert attempt is not None
        if head.status in self.route.retry_statuses and self._try_again(attempt.node, head.status):
            attempt.abandon(None)
            return
        self.response = head
        self.headed = now
        if head.status == 101:
            self._open_tunnel(attempt, head)
            return
        self.close = (
            not request.keep_alive
            or self.lane.closing
            or (upload is not None and not upload.ended)  # an early answer: the client may go on sending
            or head.ends_by_close
        )
        extra = self._cookie(attempt.node) if self.route.affinity is not None else b""
        out = head.forward(self.close, self.request_id, self.plane.date, extra)
        if head.length == 0:
            self.front.write(out)
            self._complete(head.rest, now)
            return
        self._download = Body(head, request, self.front.limits)
        if head.rest:
            self.relay(head.rest, out)
        else:
            self.front.write(out)
            self._wait(now, self.route.timeouts.idle)

    def relay(self, data: bytes, before: bytes = b"") -> None:
        """A piece of the response's body; `before` is the head, if it hasn't gone out."""
        assert self._download is not None
        fed = self._download.feed(data)
        if isinstance(fed, Refused):
            self.front.write(before)
            self._truncate(causes.BAD_RESPONSE.reason, failed=True)
            return
        out, payload, ended, rest = fed
        self.sent += payload
        self.front.write(before + out if before else out)
        now = monotonic()
        if ended:
            self._complete(rest, now)
        else:
            self._wait(now, self.route.timeouts.idle)

    def upstream_ended(self, *, clean: bool) -> None:
        """The connection ended behind the head: whole only if the framing says so."""
        assert self._download is not None
        end = self._download.eof(clean)
        if isinstance(end, Complete):
            self.front.write(end.out)
            self._complete(b"", monotonic())
        else:
            self._truncate(causes.TRUNCATED, failed=True)

    def _complete(self, rest: bytes, now: float) -> None:
        attempt, response, upload = self.attempt, self.response, self._upload
        assert attempt is not None
        assert response is not None
        whole = upload is None or upload.ended
        attempt.complete(now, reusable=whole and response.keep_alive and not rest)
        self._end(CLASSES[response.status // 100], now)
        self.front.served(now, close=self.close, unread=not whole)

    def _truncate(self, outcome: str, *, failed: bool = False) -> None:
        """Stop in the middle of the answer, so that the client can't take it for a whole."""
        attempt, response = self.attempt, self.response
        assert attempt is not None
        assert response is not None
        attempt.abandon(Kind.ERROR if failed else None)
        self._end(outcome, monotonic())
        # To a 1.0 client a FIN would end a body without a length; a chunk or a length that is missing says enough.
        self.front.truncate(reset_it=response.ends_by_close)

    def answer(self, cause: Cause) -> None:
        """An answer of the proxy's own."""
        head, upload = self.head, self._upload
        unread = upload is not None and not upload.ended
        self.close = cause.close or unread or not head.keep_alive or self.lane.closing
        self.front.write(
            causes.render(cause, self.request_id, self.plane.date, close=self.close, bodyless=head.method == b"HEAD")
        )
        now = monotonic()
        self._end(cause.reason, now, cause.status)
        self.front.served(now, close=self.close, unread=unread)

    def _open_tunnel(self, attempt: Attempt, head: ResponseHead) -> None:
        front = self.front
        front.write(head.forward(False, self.request_id, self.plane.date))
        connection = attempt.detach()
        self.until = inf
        self._tunnel = Tunnel(front.transport, connection.transport, self._tunnel_ended)
        front.deadline = self.headed + self.route.timeouts.idle
        self._tunnel.start(front.take_pipelined(), head.rest)

    def _tunnel_ended(self) -> None:
        assert self.attempt is not None
        now = monotonic()
        self.attempt.complete(now, reusable=False)
        self._end(CLASSES[1], now)
        self.front.gone()

    # What else may happen.

    def client_left(self) -> None:
        """FIN or RST from the client: everything stops at once."""
        self._abandon()
        self._end(causes.CLIENT_LEFT, monotonic(), 499)

    def cut(self) -> None:
        """The drain is over."""
        if self._tunnel is not None:
            self._tunnel.close()
        elif self.response is not None:
            self._truncate(causes.CUT)
        else:
            self._abandon()
            self.answer(causes.DRAINED)

    def bug(self) -> None:
        """A fault of our own, which the caller has logged."""
        if self.response is not None:
            self._truncate(causes.BUG.reason)
        else:
            self._abandon()
            self.answer(causes.BUG)

    def expire(self, now: float) -> None:
        """The deadline has passed: whose fault was it?"""
        front, tunnel, response = self.front, self._tunnel, self.response
        idle = self.route.timeouts.idle
        if tunnel is not None:
            if now - tunnel.seen >= idle:
                tunnel.close()
            else:
                front.deadline = tunnel.seen + idle
        elif now >= self.until:
            if response is not None:
                self._truncate(causes.TOTAL_TIMEOUT.reason, failed=True)
            elif self.attempt is not None:
                self.failed(causes.TOTAL_TIMEOUT)
            else:
                self._abandon()
                self.answer(causes.TOTAL_TIMEOUT)
        elif response is not None:
            if front.full:
                self._abandon()
                self._end(causes.CLIENT_SLOW, now)
                front.abort()
            else:
                self._truncate(causes.TRUNCATED, failed=True)
        elif self._upload is None or self._upload.ended or front.paused(front.UPSTREAM):
            self.failed(causes.RESPONSE_TIMEOUT)
        else:
            self._abandon()
            self.answer(causes.REQUEST_TIMEOUT)

    def client_full(self) -> None:
        if self.attempt is not None:
            self.attempt.throttle()
        self._wait(monotonic(), self.route.timeouts.idle)

    def client_drained(self) -> None:
        if self.attempt is not None:
            self.attempt.unthrottle()
        if self.response is not None:
            self._wait(monotonic(), self.route.timeouts.idle)

    def upstream_full(self) -> None:
        self.front.pause(self.front.UPSTREAM)

    def upstream_drained(self) -> None:
        self.front.resume(self.front.UPSTREAM)
        if self.response is None and self._upload is not None and not self._upload.ended:
            self._wait(monotonic(), self.route.timeouts.idle)

    def _wait(self, now: float, seconds: float) -> None:
        deadline = now + seconds
        self.front.deadline = deadline if deadline < self.until else self.until

    def _abandon(self) -> None:
        """End what is under way, neutrally for the endpoint."""
        attempt, self.attempt = self.attempt, None
        if attempt is not None:
            attempt.abandon(None)
        elif self._retry is None:
            self.lane.queue.remove(self)

    @property
    def received(self) -> int:
        """Payload bytes of the request."""
        return self._upload.size if self._upload is not None else 0

    def _end(self, outcome: str, now: float, status: int = 0) -> None:
        """The one way out: nothing of this exchange is left behind."""
        if self._retry is not None:
            self._retry.cancel()
        if self._upload is not None:
            self._upload.drop()
        self.front.exchange = None
        self.attempt = None  # it points back: a cycle per request would keep the collector busy
        self.lane.record(self, outcome, now, status)
