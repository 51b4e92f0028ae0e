"""Time as the data plane's membership side sees it: clocks, timers and work off the loop, handed in as one object."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")


class Handle(Protocol):
    def cancel(self) -> None: ...


class Timers(Protocol):
    def clock(self) -> float:
        """Seconds, monotonic."""
        ...

    def wall(self) -> float:
        """Seconds since the epoch."""
        ...

    def later(self, delay: float, call: Callable[[], None]) -> Handle: ...

    def off_loop(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        """Run `work` beside the loop, then `done` with its result on the loop."""
        ...


class LoopTimers:
    """The running loop's. An error in `work` reaches the loop's exception handler."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.clock: Callable[[], float] = time.monotonic
        self.wall: Callable[[], float] = time.time

    def later(self, delay: float, call: Callable[[], None]) -> Handle:
        return self._loop.call_later(delay, call)

    def off_loop(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        def landed(future: asyncio.Future[T]) -> None:
            if not future.cancelled():
                done(future.result())

        self._loop.run_in_executor(None, work).add_done_callback(landed)


class Timer:
    """One thing that is due at one time at most."""

    __slots__ = ("_call", "_due", "_handle", "_timers")

    def __init__(self, timers: Timers, call: Callable[[], None]) -> None:
        self._timers = timers
        self._call = call
        self._handle: Handle | None = None
        self._due = 0.0

    def at(self, when: float) -> None:
        """Due at `when` (monotonic), whatever it was before."""
        self.cancel()
        self._due = when
        self._handle = self._timers.later(max(0.0, when - self._timers.clock()), self._fire)

    def by(self, when: float) -> None:
        """Due at `when` at the latest."""
        if self._handle is None or when < self._due:
            self.at(when)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _fire(self) -> None:
        self._handle = None
        self._call()
