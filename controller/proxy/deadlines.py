"""A client connection's deadline has passed while an exchange was served: whose fault was it, and what follows?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.proxy import causes, endings

if TYPE_CHECKING:
    from controller.proxy.forward import Exchange
    from controller.proxy.memory import Holder


def expire(exchange: Exchange, now: float) -> None:
    """The deadline has passed: whose fault was it?"""
    front, tunnel, response, upload = exchange.front, exchange.tunnel, exchange.response, exchange.upload
    idle = exchange.route.timeouts.idle
    if tunnel is not None:
        moved = tunnel.moved(now)
        if now - moved >= idle:
            tunnel.close(causes.SILENT)
        else:
            front.deadline = moved + idle
    elif now >= exchange.until:
        if response is not None:
            endings.truncate(exchange, causes.TOTAL_TIMEOUT.reason, failed=True)
        elif exchange.attempt is not None:
            exchange.failed(causes.TOTAL_TIMEOUT)
        else:
            endings.abandon(exchange)
            endings.answer(exchange, causes.TOTAL_TIMEOUT)
    elif response is not None and front.full:
        if not _moving(exchange, front, now):
            endings.drop(exchange, causes.CLIENT_SLOW)
    elif upload is not None and not upload.ended and not front.paused(front.UPSTREAM):
        # The client has stopped in its body; an answer that has begun may well be waiting for the rest of it.
        if response is not None:
            endings.truncate(exchange, causes.REQUEST_TIMEOUT.reason)
        else:
            endings.abandon(exchange)
            endings.answer(exchange, causes.REQUEST_TIMEOUT)
    else:
        connection = exchange.attempt.connection if exchange.attempt is not None else None
        if connection is not None and _moving(exchange, connection, now):
            return
        if response is not None:
            endings.truncate(exchange, causes.TRUNCATED, failed=True)
        else:
            exchange.failed(causes.RESPONSE_TIMEOUT)


def _moving(exchange: Exchange, holder: Holder, now: float) -> bool:
    """Whether it has taken something of what waits for it: it is slow then, and has as long again."""
    idle = exchange.route.timeouts.idle
    since = exchange.plane.memory.since(holder, now)
    if since is None or now - since >= idle:
        return False
    exchange.wait(since, idle)
    return True
