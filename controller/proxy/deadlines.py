"""A client connection's deadline has passed while an exchange was served: whose fault was it, and what follows?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.proxy import causes, endings

if TYPE_CHECKING:
    from controller.proxy.forward import Exchange


def expire(exchange: Exchange, now: float) -> None:
    """The deadline has passed: whose fault was it?"""
    front, tunnel, response = exchange.front, exchange.tunnel, exchange.response
    idle = exchange.route.timeouts.idle
    if tunnel is not None:
        if now - tunnel.seen >= idle:
            tunnel.close()
        else:
            front.deadline = tunnel.seen + idle
    elif now >= exchange.until:
        if response is not None:
            endings.truncate(exchange, causes.TOTAL_TIMEOUT.reason, failed=True)
        elif exchange.attempt is not None:
            exchange.failed(causes.TOTAL_TIMEOUT)
        else:
            endings.abandon(exchange)
            endings.answer(exchange, causes.TOTAL_TIMEOUT)
    elif response is not None:
        if front.full:
            endings.drop(exchange, causes.CLIENT_SLOW)
        else:
            endings.truncate(exchange, causes.TRUNCATED, failed=True)
    elif exchange.upload is None or exchange.upload.ended or front.paused(front.UPSTREAM):
        exchange.failed(causes.RESPONSE_TIMEOUT)
    else:
        endings.abandon(exchange)
        endings.answer(exchange, causes.REQUEST_TIMEOUT)
