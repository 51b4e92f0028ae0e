"""One request's way: validate → admit → pick → attempt → the answer's head → decide → relay → end.

On the usual path (an endpoint with a free slot, a pooled connection) all of it is plain calls, driven by what the two
connections receive. A task exists only while a connection is being made, a timer only for what must be exact.

Guarantee: an exchange passes `end` exactly once, by `answering.complete` or by one of `endings`. The two share no code,
so that half an answer never looks whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import monotonic
from typing import TYPE_CHECKING

from controller.balancing.node import Node
from controller.balancing.picker import NoEndpoints, PickRequest
from controller.proxy import again, causes, decision, endings, sticky
from controller.proxy.attempt import Attempt
from controller.proxy.causes import Cause
from controller.proxy.codec import Body, RequestHead, ResponseHead
from controller.proxy.connections import Pool
from controller.proxy.decision import Decision
from controller.proxy.tunnel import Tunnel
from controller.proxy.upload import Upload

if TYPE_CHECKING:
    from controller.proxy.listener import Front
    from controller.proxy.plane import DataPlane

LOOPS = 5  # passes through this very object before it is taken for a loop


class Exchange(PickRequest):
    """One request and its answer, over as many attempts as it takes. To a policy it is what it picks for."""

    # fmt: off
    __slots__ = (
        "attempt", "backoff", "binding", "close", "continued", "decision", "download", "front", "handed", "head",
        "headed", "informed", "lane", "pauses", "pool", "replayed", "request_id", "response", "route", "sent", "tries",
        "tunnel", "until", "upload",
    )
    # fmt: on

    tried: Sequence[Node]

    def __init__(self, front: Front, head: RequestHead) -> None:
        lane = front.lane
        route = lane.route
        self.now = now = monotonic()
        self.key = None
        self.tried = ()
        self.front = front
        self.lane = lane
        self.route = route  # the settings of this moment: a later snapshot is for later requests
        self.head = head
        self.request_id = head.identifier(lane.plane.identifiers)
        self.until = now + route.longest
        self.attempt: Attempt | None = None
        self.pool: Pool | None = None  # the latest attempt's
        self.response: ResponseHead | None = None
        self.headed = 0.0  # when the final head came; 0 = none did
        self.close = False  # said to the client
        self.tries = 0
        self.sent = 0  # payload bytes of the response
        self.upload: Upload | None = None
        self.download: Body | None = None
        self.tunnel: Tunnel | None = None
        self.decision: Decision | None = None  # told to who asks with the debug key
        self.backoff: asyncio.TimerHandle | None = None
        self.pauses = 0
        self.binding = False  # the answer shall carry an affinity cookie for the endpoint that gave it
        self.handed = False  # a byte of the request was given to a connection
        self.informed = False  # a 1xx went to the client: nothing can be tried again
        self.continued = False  # the 100 was ours
        self.replayed = False  # a keep-alive race was made good

    # The request.

    def begin(self) -> None:
        """Validate and admit; then try."""
        head, front, route = self.head, self.front, self.route
        if route.debug_key is not None and decision.wanted(head, route.debug_key):
            self.decision = Decision()
        if not head.plain and not self._prepared():
            return
        lane = self.lane
        if not lane.plane.memory.may_serve():
            endings.answer(self, causes.MEMORY)
            return
        if route.hash_key is not None:
            self.key = route.hash_key(head, front.peer)
        lane.upstream.budget.attempt(self.now)
        self._attempt(self.now)

    def _prepared(self) -> bool:
        """What a request with a body, or one that may go in circles, needs first; False if it was answered."""
        head, front, route = self.head, self.front, self.route
        if head.length:
            self.upload = Upload(
                head,
                front.limits,
                limit=route.body_bytes,
                keep=route.retries.max_body_bytes,
                memory=self.plane.memory,
            )
        rest = head.take_rest()
        if rest:
            self.from_client(rest)
            if front.exchange is not self:  # the body was refused in its first piece
                return False
        refusal = self._refusal()
        if refusal is not None:
            endings.answer(self, refusal)
        return refusal is None

    def _refusal(self) -> Cause | None:
        head, limit = self.head, self.route.body_bytes
        if head.hops and head.loops(self.route.forwarding) >= LOOPS:
            return causes.LOOP
        if head.max_forwards == 0:
            return causes.OPTIONS_LAST_HOP if head.method == b"OPTIONS" else causes.TRACE_LAST_HOP
        if limit and head.length > limit:
            return causes.BODY_TOO_LARGE
        return None

    def from_client(self, data: bytes) -> None:
        """Bytes behind the head: the body, then what is pipelined."""
        upload, front = self.upload, self.front
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
            if not self.plane.memory.may_hold():
                self._refuse_body(causes.MEMORY)
                return
            if not ended:  # behind a whole body only a FIN can come, and has to be seen
                front.pause(front.UNCONNECTED)
        else:
            connection.write(out)
            self._moved(ended)
        if rest:
            front.pipeline(rest)

    def _refuse_body(self, cause: Cause) -> None:
        """The body is malformed or too long: the endpoint must not take what it got for a whole."""
        if self.response is None:
            endings.abandon(self)
            endings.answer(self, cause)
        else:
            endings.truncate(self, cause.reason)

    # Attempts.

    def attempt_next(self) -> None:
        """Go on after a wait."""
        self._attempt(monotonic())

    def _attempt(self, now: float) -> None:
        """Pick an endpoint and go there, or wait until one has a free slot."""
        if self.route.affinity is not None and not self.tries:
            bound = sticky.bound(self)
            if bound is not None:
                self.go(bound, now, False, "affinity")
                return
        try:
            node = self.lane.pick(self)
        except NoEndpoints:
            endings.answer(self, self.route.none)
            return
        if node is not None:
            self.go(node, now)
        elif self.lane.queue.put(self):
            self.front.deadline = self.until
        else:
            endings.answer(self, causes.QUEUE_FULL)

    def go(self, node: Node, now: float, fresh: bool = False, how: str = "") -> None:
        """`how`: why to this one, if not by the algorithm's choice."""
        if self.decision is not None:
            self.decision.note(self, how)
        self.tries += 1
        lane = self.lane
        pool = self.pool = lane.held.get(node) or lane.pool(node)
        attempt = self.attempt = Attempt(self, node, pool, now)
        attempt.start(fresh)

    def failed(self, cause: Cause) -> None:
        """The attempt got no final head: try again, or tell the client."""
        attempt = self.attempt
        assert attempt is not None
        attempt.fail(cause)
        if not again.try_again(self, attempt.node, cause.retry):
            self.attempt = None
            endings.answer(self, cause)

    def refuse(self, cause: Cause) -> None:
        """It waited for a free slot, in vain."""
        endings.answer(self, cause)

    def bug(self, error: BaseException) -> None:
        self.front.bug(error)

    def hold(self) -> None:
        """The attempt is over and another one follows: what comes of the body waits for it."""
        self.attempt = None
        if self.upload is not None:
            self.upload.hold()
            self.front.resume(self.front.UPSTREAM)

    # Back-pressure and the end.

    def client_full(self) -> None:
        if self.attempt is not None:
            self.attempt.throttle()
        self.wait(monotonic(), self.route.timeouts.idle)

    def client_drained(self) -> None:
        if self.attempt is not None:
            self.attempt.unthrottle()
        if self.response is not None:
            self.wait(monotonic(), self.route.timeouts.idle)

    def upstream_full(self) -> None:
        self.front.pause(self.front.UPSTREAM)

    def upstream_drained(self) -> None:
        self.front.resume(self.front.UPSTREAM)
        if self.upload is not None:
            self._moved(self.upload.ended)

    def _moved(self, ended: bool) -> None:
        """A piece of the body has: what follows has its whole time. `ended`: it was the last."""
        timeouts = self.route.timeouts
        if self.response is None:
            self.wait(monotonic(), timeouts.response if ended else timeouts.idle)
        elif not self.front.full:  # else it has to read, whatever it sends
            self.wait(monotonic(), timeouts.idle)

    def wait(self, now: float, seconds: float) -> None:
        deadline = now + seconds
        self.front.deadline = deadline if deadline < self.until else self.until

    @property
    def plane(self) -> DataPlane:
        return self.lane.plane

    @property
    def began(self) -> float:
        """When the head had come; monotonic."""
        return self.now

    @property
    def received(self) -> int:
        """Payload bytes of the request."""
        if self.tunnel is not None:
            return self.tunnel.client.received
        return self.upload.size if self.upload is not None else 0

    def end(self, outcome: str, now: float, status: int = 0) -> None:
        """The one way out: nothing of this exchange is left behind."""
        if self.backoff is not None:
            self.backoff.cancel()
        if self.upload is not None:
            self.upload.drop()
        self.front.exchange = None
        self.attempt = None  # it points back: a cycle per request would keep the collector busy
        self.lane.record(self, outcome, now, status)
