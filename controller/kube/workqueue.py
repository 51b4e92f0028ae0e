"""A queue of keys, each at most once in it and with at most one worker.

A key added while it is processed runs once more afterwards, so no change is lost and none is done twice. Failures are
repeated after a back-off of their own, and all repetitions together pass one token bucket.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")

FIRST = 0.005  # seconds before the first repetition of a key; doubles
LONGEST = 120.0
RATE = 10.0  # repetitions a second, all keys together
BURST = 100.0


class TokenBucket:
    """`rate` tokens a second, at most `burst` saved. `take` says how long to wait for the one it took."""

    def __init__(self, rate: float, burst: float, clock: Callable[[], float]) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._tokens = burst
        self._at = clock()

    def take(self) -> float:
        self._fill()
        self._tokens -= 1.0
        return max(0.0, -self._tokens / self._rate)

    def spend(self) -> bool:
        """Take one only if there is one."""
        self._fill()
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    def _fill(self) -> None:
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now


class Workqueue(Generic[K]):
    """For the tasks of one loop. Each `get` is followed by one `done`."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._dirty: set[K] = set()
        self._processing: set[K] = set()
        self._ready: deque[K] = deque()
        self._arrived = asyncio.Event()
        self._failures: dict[K, int] = {}
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._bucket = TokenBucket(RATE, BURST, loop.time)

    def __repr__(self) -> str:
        return (
            f"<Workqueue ready={len(self._ready)} processing={len(self._processing)}"
            f" later={len(self._timers)} failing={len(self._failures)}>"
        )

    def __len__(self) -> int:
        return len(self._dirty)

    def add(self, key: K) -> None:
        if key in self._dirty:
            return
        self._dirty.add(key)
        if key not in self._processing:
            self._ready.append(key)
            self._arrived.set()

    def after(self, key: K, seconds: float) -> None:
        """Add `key` then; the earlier one of two such wishes holds."""
        timer = self._timers.get(key)
        if timer is not None:
            if timer.when() <= self._loop.time() + seconds:
                return
            timer.cancel()
        self._timers[key] = self._loop.call_later(seconds, self._due, key)

    def retry(self, key: K) -> float:
        """Add `key` after its back-off; returns the seconds until then."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        pause = max(min(LONGEST, FIRST * 2.0 ** min(failures, 20)), self._bucket.take())
        self.after(key, pause)
        return pause

    def forget(self, key: K) -> None:
        """`key` succeeded: its next failure starts from the shortest pause."""
        self._failures.pop(key, None)

    async def get(self) -> K:
        while not self._ready:
            self._arrived.clear()
            await self._arrived.wait()
        key = self._ready.popleft()
        self._dirty.discard(key)
        self._processing.add(key)
        return key

    def done(self, key: K) -> None:
        self._processing.discard(key)
        if key in self._dirty:
            self._ready.append(key)
            self._arrived.set()

    def close(self) -> None:
        """Cancels what was to come later."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _due(self, key: K) -> None:
        del self._timers[key]
        self.add(key)
