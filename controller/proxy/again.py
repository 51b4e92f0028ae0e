"""Trying again: whether a failed attempt may be followed by another one, where that goes, and when."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from controller.balancing.node import Node
from controller.balancing.picker import NoEndpoints
from controller.model.service import RetryCondition
from controller.proxy import retries
from controller.proxy.edge import guarded

if TYPE_CHECKING:
    from controller.proxy.attempt import Attempt
    from controller.proxy.forward import Exchange


def try_again(exchange: Exchange, node: Node, condition: RetryCondition | None) -> bool:
    """Whether another attempt is under way, or will be after a pause."""
    upload = exchange.upload
    if (
        exchange.informed
        or not retries.allowed(
            exchange.route.retries,
            condition,
            tries=exchange.tries,
            idempotent=exchange.head.idempotent,
            handed=exchange.handed,
            replayable=upload is None or upload.replayable,
        )
        or (now := monotonic()) >= exchange.until
    ):
        return False
    exchange.tried = (*exchange.tried, node)
    exchange.binding = True  # whoever serves it now is the one to come back to
    try:
        following = exchange.lane.pick(exchange)
    except NoEndpoints:
        return False
    if not exchange.lane.upstream.budget.retry(now):
        return False
    exchange.hold()
    exchange.lane.retried(condition)
    if following is not None and exchange.tries == 1 and following not in exchange.tried:
        exchange.go(following, now)
        return True
    wait = retries.pause(exchange.pauses, exchange.plane.random)
    exchange.pauses += 1
    exchange.front.deadline = exchange.until
    exchange.backoff = exchange.plane.loop.call_later(wait, guarded, exchange.front, exchange.attempt_next)
    return True


def may_replay(exchange: Exchange) -> bool:
    """Whether a keep-alive race can be made good: once, if the request may be sent twice at all."""
    upload = exchange.upload
    return (
        not (exchange.replayed or exchange.informed)
        and (exchange.head.idempotent or exchange.route.retries.non_idempotent)
        and (upload is None or upload.replayable)
    )


def replay(exchange: Exchange, attempt: Attempt) -> None:
    """Once more on a fresh connection, to the same endpoint if it is still there; not counted as a try."""
    exchange.replayed = True
    exchange.tries -= 1
    exchange.hold()
    node = attempt.node
    if attempt.pool.gone or node.endpoint.state == "PARKED" or not node.healthy or node.ejected_until is not None:
        exchange.attempt_next()
    else:
        exchange.go(node, monotonic(), fresh=True, how="keep-alive race")
