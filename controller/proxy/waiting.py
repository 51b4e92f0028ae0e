"""The admission queue of one upstream: exchanges for which no endpoint has a free slot, first in, first out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from controller.proxy import causes, endings

if TYPE_CHECKING:
    from controller.proxy.forward import Exchange


class Queue:
    """Bounded by `limits.queue`, each waiter by `limits.queueTimeout`. A waiter that leaves frees its place."""

    __slots__ = ("_full", "_loop", "_waiting", "_woken")

    def __init__(self, loop: asyncio.AbstractEventLoop, full: Callable[[], bool]) -> None:
        self._loop = loop
        self._full = full
        self._waiting: dict[Exchange, asyncio.TimerHandle] = {}
        self._woken = False

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, exchange: Exchange) -> bool:
        """False: there is no place."""
        limits = exchange.route.limits
        if len(self._waiting) >= limits.queue:
            return False
        self._waiting[exchange] = self._loop.call_later(limits.queue_timeout, self._expire, exchange)
        exchange.front.deadline = exchange.until
        return True

    def remove(self, exchange: Exchange) -> None:
        timer = self._waiting.pop(exchange, None)
        if timer is not None:
            timer.cancel()

    def wake(self) -> None:
        """A slot may have come free. Served from the loop: the caller is in the middle of ending another exchange."""
        if self._waiting and not self._woken:
            self._woken = True
            self._loop.call_soon(self._serve)

    def _serve(self) -> None:
        self._woken = False
        while self._waiting and not self._full():
            exchange = next(iter(self._waiting))
            self.remove(exchange)
            exchange.attempt_next()

    def _expire(self, exchange: Exchange) -> None:
        del self._waiting[exchange]
        endings.answer(exchange, causes.QUEUE_TIMEOUT)

    def __repr__(self) -> str:
        return f"<Queue {len(self)} waiting>"
