"""The list of BalancedServices every few minutes, and after a list of another kind: it closes the gap that kopf leaves.

kopf replays what exists after a lost history and compares with nothing, so an object deleted meanwhile would stay for
ever. A list must not undo an event that is newer than it: see `Store.end_list`.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time

import aiohttp

from controller.kube.api import Api, ApiError, Object
from controller.kube.reflector import pages
from controller.kube.resources import BALANCED_SERVICES
from controller.kube.store import Store

PERIOD = 300.0  # seconds, jittered by a fifth
TOGETHER = 1.0  # pause in which further wishes come: kopf lists object by object
SHORTEST = 0.5  # pause after a failure; doubles
LONGEST = 30.0

log = logging.getLogger(__name__)


class Lister:
    """`run` lists for ever; `listed` is set after the first whole list; `soon()` asks for one at once."""

    def __init__(self, api: Api, store: Store, period: float = PERIOD) -> None:
        self.listed = asyncio.Event()
        self.errors = 0
        self._api = api
        self._store = store
        self._period = period
        self._soon = asyncio.Event()
        self._heard = time.monotonic()

    def age(self) -> float:
        """Seconds since the last whole list."""
        return time.monotonic() - self._heard

    def soon(self) -> None:
        self._soon.set()

    async def run(self) -> None:
        failures = 0
        while True:
            self._soon.clear()
            try:
                for scope in self._store.scopes:
                    await self._list(scope)
            except (ApiError, aiohttp.ClientError, TimeoutError, OSError) as error:
                failures += 1
                self.errors += 1
                wait = min(LONGEST, SHORTEST * 2.0 ** min(failures, 16)) * random.uniform(0.5, 1.0)
                if isinstance(error, ApiError):
                    wait = max(wait, error.retry_after or 0.0)
                self._failed(error, failures)
            else:
                failures = 0
                self._heard = time.monotonic()
                self.listed.set()
                wait = self._period * random.uniform(0.8, 1.2)
            try:
                async with asyncio.timeout(wait):
                    await self._soon.wait()
            except TimeoutError:
                continue
            await asyncio.sleep(TOGETHER)

    async def _list(self, scope: str | None) -> None:
        self._store.begin_list()
        items: list[Object] = []
        async for page in pages(self._api, BALANCED_SERVICES, scope):
            items += page.get("items") or ()
        self._store.end_list(scope, items)

    def _failed(self, error: BaseException, failures: int) -> None:
        if isinstance(error, ApiError) and error.status == 404:
            log.warning("the CRD of BalancedService is not installed; waiting for it", extra={"failures": failures})
        elif isinstance(error, ApiError) and error.status == 403:
            log.warning("permission missing", extra={"permission": f"list {BALANCED_SERVICES}", "error": str(error)})
        else:
            log.warning("list failed", extra={"resource": str(BALANCED_SERVICES), "error": repr(error)})
