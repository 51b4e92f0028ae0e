"""A bounded stream of requests through the proxy, and a count of who answered and what failed."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import aiohttp


class Traffic:
    """`workers` clients, together at most `rate` requests a second, until `stop`. Failures are kept by reason."""

    def __init__(self, url: str, *, workers: int = 8, rate: float = 150.0) -> None:
        self._url = url
        self._workers = workers
        self._pause = workers / rate
        self._tasks: list[asyncio.Task[None]] = []
        self._session: aiohttp.ClientSession | None = None
        self.answered: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.seconds: dict[str, float] = {}  # of each backend's latest answers, smoothed

    @property
    def total(self) -> int:
        return self.answered.total() + self.failed.total()

    def start(self) -> None:
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=10), connector=aiohttp.TCPConnector(limit=0), trust_env=False
        )
        self._tasks = [asyncio.create_task(self._run(n), name=f"demo-client-{n}") for n in range(self._workers)]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    def recent(self, since: Counter[str]) -> dict[str, float]:
        """Each backend's share of the answers since an earlier copy of `answered`."""
        new = self.answered - since
        total = new.total() or 1
        return {name: count / total for name, count in new.items()}

    async def _run(self, number: int) -> None:
        assert self._session is not None
        await asyncio.sleep(self._pause * number / self._workers)
        while True:
            began = time.monotonic()
            try:
                async with self._session.get(self._url) as response:
                    body = (await response.text()).strip()
                if response.status == 200:
                    self._answer(body, time.monotonic() - began)
                else:
                    self.failed[f"status {response.status}"] += 1
            except (aiohttp.ClientError, TimeoutError) as error:
                self.failed[type(error).__name__] += 1
            await asyncio.sleep(max(0.0, self._pause - (time.monotonic() - began)))

    def _answer(self, name: str, seconds: float) -> None:
        self.answered[name] += 1
        self.seconds[name] = 0.9 * self.seconds.get(name, seconds) + 0.1 * seconds
