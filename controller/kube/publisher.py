"""Publishing, on every replica: what changed is translated and put where proxies hear of it.

A removal goes out at once, so that nobody is sent to a pod that is gone; all else waits for the burst to end. Only
what a change concerns is translated.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from controller.model.snapshot import Snapshot
from controller.translate import translate
from controller.translate.inputs import Inputs, Key

TRAILING = 0.02  # seconds without a further change that end a burst
LONGEST = 0.1  # a burst without end is cut here
BATCH = 16  # objects translated before others of the loop get their turn

log = logging.getLogger(__name__)


class Publisher:
    """`changed(key, urgent)` from the store; `put` and `gone` towards the proxies."""

    def __init__(self, inputs: Inputs, put: Callable[[Snapshot], object], gone: Callable[[Key], None]) -> None:
        self.failures = 0
        self._inputs = inputs
        self._put = put
        self._gone = gone
        self._dirty: dict[Key, None] = {}
        self._changed = asyncio.Event()
        self._urgent = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Publisher dirty={len(self._dirty)} failures={self.failures}>"

    def changed(self, key: Key, urgent: bool) -> None:
        self._dirty[key] = None
        self._changed.set()
        if urgent:
            self._urgent.set()

    async def run(self, started: Callable[[], None]) -> None:
        """For ever. `started` is called once the first state, which may be empty, has been put."""
        await self._flush()
        started()
        while True:
            await self._changed.wait()
            await self._burst()
            await self._flush()

    async def _burst(self) -> None:
        loop = asyncio.get_running_loop()
        latest = loop.time() + LONGEST
        while not self._urgent.is_set() and (left := latest - loop.time()) > 0:
            self._changed.clear()
            try:
                async with asyncio.timeout(min(TRAILING, left)):
                    await self._changed.wait()
            except TimeoutError:
                break
        self._changed.clear()
        self._urgent.clear()

    async def _flush(self) -> None:
        while batch := list(self._dirty)[:BATCH]:
            for key in batch:
                del self._dirty[key]
                self._publish(key)
            await asyncio.sleep(0)

    def _publish(self, key: Key) -> None:
        if key not in self._inputs.objects:
            self._gone(key)
            return
        try:
            snapshot = translate(self._inputs, key).snapshot
            if snapshot is not None:
                self._put(snapshot)
        except Exception:
            # One object's bug must not stop the others; its last snapshot goes on serving.
            self.failures += 1
            log.exception("not published", extra={"object": "/".join(key)})
