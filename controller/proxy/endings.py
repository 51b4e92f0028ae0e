"""Every way that an exchange ends but one: a whole answer is `answering.complete`'s, and shares no code with these."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from controller.balancing.node import Kind
from controller.proxy import causes
from controller.proxy.causes import Cause

if TYPE_CHECKING:
    from controller.proxy.forward import Exchange

KEPT = b"Connection: keep-alive\r\n"  # to a 1.0 client, which takes the connection for closed otherwise


def truncate(exchange: Exchange, outcome: str, *, failed: bool = False) -> None:
    """Stop in the middle of the answer, so that the client can't take it for a whole."""
    attempt, response = exchange.attempt, exchange.response
    assert attempt is not None
    assert response is not None
    attempt.abandon(Kind.ERROR if failed else None)
    exchange.end(outcome, monotonic())
    # To a 1.0 client a FIN would end a body without a length; a chunk or a length that is missing says enough.
    exchange.front.truncate(reset_it=response.ends_by_close)


def answer(exchange: Exchange, cause: Cause) -> None:
    """An answer of the proxy's own."""
    head, upload = exchange.head, exchange.upload
    unread = upload is not None and not upload.ended
    exchange.close = cause.close or unread or not head.keep_alive or exchange.lane.closing
    extra = b"" if exchange.close or head.version != 10 else KEPT
    if exchange.decision is not None:
        extra += exchange.decision.fields(exchange, cause.reason)
    exchange.front.write(
        causes.render(
            cause,
            exchange.request_id,
            exchange.plane.date,
            close=exchange.close,
            bodyless=head.method == b"HEAD",
            extra=extra,
        )
    )
    now = monotonic()
    exchange.end(cause.reason, now, cause.status)
    exchange.front.served(now, close=exchange.close, unread=unread)


def abandon(exchange: Exchange) -> None:
    """End what is under way, neutrally for the endpoint."""
    attempt, exchange.attempt = exchange.attempt, None
    if attempt is not None:
        attempt.abandon(None)
    else:
        exchange.lane.queue.remove(exchange)


def client_left(exchange: Exchange) -> None:
    """FIN or RST from the client: everything stops at once."""
    abandon(exchange)
    exchange.end(causes.CLIENT_LEFT, monotonic(), 499)


def drop(exchange: Exchange, outcome: str) -> None:
    """The client costs too much: its connection ends at once, neutrally for the endpoint."""
    abandon(exchange)
    exchange.end(outcome, monotonic())
    exchange.front.abort()


def cut(exchange: Exchange) -> None:
    """The drain is over."""
    if exchange.tunnel is not None:
        exchange.tunnel.close(causes.CUT)
    elif exchange.response is not None:
        truncate(exchange, causes.CUT)
    else:
        abandon(exchange)
        answer(exchange, causes.DRAINED)


def bug(exchange: Exchange) -> None:
    """A fault of our own, which the caller has logged."""
    if exchange.tunnel is not None:
        exchange.tunnel.close(causes.BUG.reason)
    elif exchange.response is not None:
        truncate(exchange, causes.BUG.reason)
    else:
        abandon(exchange)
        answer(exchange, causes.BUG)
