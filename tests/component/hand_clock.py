"""Timers turned by hand: a clock that stands still, calls that fall due when it is moved, and work kept for later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False)
class Call:
    when: float
    call: Callable[[], None]
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


@dataclass
class HandTimers:
    now: float = 1000.0
    calls: list[Call] = field(default_factory=list)
    work: list[tuple[Callable[[], Any], Callable[[Any], None]]] = field(default_factory=list)

    def clock(self) -> float:
        return self.now

    def wall(self) -> float:
        return 1.7e9 + self.now

    def later(self, delay: float, call: Callable[[], None]) -> Call:
        handle = Call(self.now + delay, call)
        self.calls.append(handle)
        return handle

    def off_loop(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self.work.append((work, done))

    def land(self) -> None:
        """The oldest work off the loop ends."""
        work, done = self.work.pop(0)
        done(work())

    def advance(self, seconds: float) -> None:
        """Move the clock; what falls due on the way is called at its time, in order."""
        end = self.now + seconds
        while due := [call for call in self.pending if call.when <= end]:
            first = min(due, key=lambda call: call.when)
            self.calls.remove(first)
            self.now = max(self.now, first.when)
            first.call()
        self.now = end

    @property
    def pending(self) -> list[Call]:
        self.calls = [call for call in self.calls if not call.cancelled]
        return self.calls
