"""The endpoint's answer on its way to the client: 1xx, the final head, the body, a tunnel.

Only `complete` ends an answer as a whole; abandoning one is `endings.truncate`'s, and shares no code with it.
"""

from __future__ import annotations

from math import inf
from time import monotonic
from typing import TYPE_CHECKING

from controller.proxy import again, causes, endings, sticky
from controller.proxy.codec import Body, Complete, Refused, ResponseHead, ResponseReader
from controller.proxy.tunnel import Tunnel

if TYPE_CHECKING:
    from controller.proxy.attempt import Attempt
    from controller.proxy.forward import Exchange

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
CLASSES = ("0xx", "1xx", "2xx", "3xx", "4xx", "5xx", "6xx", "7xx", "8xx", "9xx")


def continue_anyway(exchange: Exchange) -> None:
    """Neither a 100 nor an answer came: nobody shall wait for ever."""
    exchange.continued = exchange.informed = True
    exchange.front.write(CONTINUE)


def inform(exchange: Exchange, head: ResponseHead) -> None:
    """Relay a 1xx; a 100 only if ours didn't go out before it."""
    if exchange.head.version == 10 or (head.status == 100 and exchange.continued):
        return
    exchange.informed = True
    exchange.front.write(head.forward(False, exchange.request_id, exchange.plane.date))


def usual(exchange: Exchange) -> bool:
    """Whether a plain answer goes to the client with nothing to decide, and nothing added that not all answers get."""
    upload = exchange.upload
    return (
        exchange.route.plain
        and exchange.decision is None
        and not exchange.lane.closing
        and (upload is None or upload.ended)
    )


def answered_plainly(exchange: Exchange, attempt: Attempt, reader: ResponseReader, out: bytes, now: float) -> None:
    """A plain answer is here, and `out` is what the client gets: what `answered` comes to then, in one go."""
    front, status = exchange.front, reader.status
    exchange.headed = now
    if exchange.route.access_log:  # nobody else asks
        exchange.sent = reader.length
    attempt.complete(now, True)
    exchange.end(CLASSES[status // 100], now, status)
    if front.open:  # as `front.write`, without its call; arguments by place, since by name one costs 30 ns
        front.transport.write(out)
    front.served(now, False, False)


def answered(exchange: Exchange, attempt: Attempt, head: ResponseHead, status: int, now: float) -> None:
    """The final head is here: decide."""
    request, upload, route = exchange.head, exchange.upload, exchange.route
    if status in route.retry_statuses and again.try_again(exchange, attempt.node, status):
        attempt.abandon(None)
        return
    exchange.response = head
    exchange.headed = now
    extra = _extra(exchange, attempt)
    if status == 101:
        open_tunnel(exchange, attempt, head, extra)
        return
    exchange.close = (
        exchange.lane.closing
        or (upload is not None and not upload.ended)  # an early answer: the client may go on sending
        or not request.keep_alive
        or head.ends_by_close
    )
    out = head.forward(exchange.close, exchange.request_id, exchange.plane.date, extra)
    rest = head.take_rest()
    length = head.length
    if length == len(rest):
        exchange.sent = length
        exchange.front.write(out + rest)
        complete(exchange, b"", now)
        return
    if length == 0:
        exchange.front.write(out)
        complete(exchange, rest, now)
        return
    exchange.download = Body(head, request, exchange.front.limits)
    if rest:
        relay(exchange, rest, out)
    else:
        exchange.front.write(out)
        exchange.wait(now, exchange.route.timeouts.idle)


def _extra(exchange: Exchange, attempt: Attempt) -> bytes:
    """Lines of ours that some answers get."""
    cookie = sticky.cookie(exchange, attempt.node) if exchange.route.affinity is not None else b""
    return cookie if exchange.decision is None else cookie + exchange.decision.fields(exchange)


def relay(exchange: Exchange, data: bytes, before: bytes = b"") -> None:
    """A piece of the response's body; `before` is the head, if it hasn't gone out."""
    assert exchange.download is not None
    fed = exchange.download.feed(data)
    if isinstance(fed, Refused) and before:  # nothing has gone out
        exchange.response = exchange.download = None
        exchange.headed = 0.0
        exchange.failed(causes.BAD_RESPONSE)
        return
    if isinstance(fed, Refused):
        endings.truncate(exchange, causes.BAD_RESPONSE.reason, failed=True)
        return
    out, payload, ended, rest = fed
    exchange.sent += payload
    exchange.front.write(before + out if before else out)
    now = monotonic()
    if ended:
        complete(exchange, rest, now)
    else:
        exchange.wait(now, exchange.route.timeouts.idle)


def upstream_ended(exchange: Exchange, *, clean: bool) -> None:
    """The connection ended behind the head: whole only if the framing says so."""
    assert exchange.download is not None
    end = exchange.download.eof(clean)
    if isinstance(end, Complete):
        exchange.front.write(end.out)
        complete(exchange, b"", monotonic())
    else:
        endings.truncate(exchange, causes.TRUNCATED, failed=True)


def complete(exchange: Exchange, rest: bytes, now: float) -> None:
    """The answer is whole. `rest`: bytes behind it, which nobody asked for."""
    attempt, response, upload = exchange.attempt, exchange.response, exchange.upload
    assert attempt is not None
    assert response is not None
    whole = upload is None or upload.ended
    attempt.complete(now, whole and response.keep_alive and not rest)
    exchange.end(CLASSES[response.status // 100], now)
    exchange.front.served(now, exchange.close, not whole)


def open_tunnel(exchange: Exchange, attempt: Attempt, head: ResponseHead, extra: bytes) -> None:
    front = exchange.front
    front.write(head.forward(False, exchange.request_id, exchange.plane.date, extra))
    connection = attempt.detach()
    memory = exchange.plane.memory
    memory.unblock(front)  # from now on the tunnel's sides hold what is unread
    memory.unblock(connection)
    exchange.until = inf
    exchange.tunnel = Tunnel(
        front.transport, connection.transport, lambda: tunnel_ended(exchange), memory, exchange.plane.pipes
    )
    front.deadline = exchange.headed + exchange.route.timeouts.idle
    exchange.tunnel.start(front.take_pipelined(), head.take_rest(), client_full=front.full)


def tunnel_ended(exchange: Exchange) -> None:
    assert exchange.attempt is not None
    assert exchange.tunnel is not None
    now = monotonic()
    exchange.sent = exchange.tunnel.backend.received
    exchange.attempt.complete(now, reusable=False)
    exchange.end(exchange.tunnel.outcome or CLASSES[1], now)
    exchange.front.gone()
