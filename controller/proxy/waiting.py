"""The admission queue of one upstream: those for which no endpoint has a free slot, first in, first out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from controller.proxy import causes
from controller.proxy.causes import Cause
from controller.proxy.edge import guarded
from controller.proxy.route import Route


class Waiter(Protocol):
    """A request, or the connection of a TCP port."""

    route: Route

    def attempt_next(self) -> None: ...

    def refuse(self, cause: Cause) -> None: ...

    def bug(self, error: BaseException) -> None: ...


class Queue:
    """Bounded by `limits.queue`, each waiter by `limits.queueTimeout`. A waiter that leaves frees its place."""

    __slots__ = ("_full", "_loop", "_waiting", "_woken")

    def __init__(self, loop: asyncio.AbstractEventLoop, full: Callable[[], bool]) -> None:
        self._loop = loop
        self._full = full
        self._waiting: dict[Waiter, asyncio.TimerHandle] = {}
        self._woken = False

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, waiter: Waiter) -> bool:
        """False: there is no place."""
        limits = waiter.route.limits
        if len(self._waiting) >= limits.queue:
            return False
        self._waiting[waiter] = self._loop.call_later(limits.queue_timeout, self._expire, waiter)
        return True

    def remove(self, waiter: Waiter) -> None:
        timer = self._waiting.pop(waiter, None)
        if timer is not None:
            timer.cancel()

    def wake(self) -> None:
        """A slot may have come free. Served from the loop: the caller is in the middle of ending another one."""
        if self._waiting and not self._woken:
            self._woken = True
            self._loop.call_soon(self._serve)

    def _serve(self) -> None:
        self._woken = False
        while self._waiting and not self._full():
            waiter = next(iter(self._waiting))
            self.remove(waiter)
            guarded(waiter, waiter.attempt_next)

    def _expire(self, waiter: Waiter) -> None:
        del self._waiting[waiter]
        guarded(waiter, waiter.refuse, causes.QUEUE_TIMEOUT)

    def __repr__(self) -> str:
        return f"<Queue {len(self)} waiting>"
