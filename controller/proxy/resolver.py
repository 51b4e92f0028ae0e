"""Resolves the hostnames of backends, again after each answer's TTL. While resolution fails the last answer stays."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from random import Random

import aiodns
import msgspec
import pycares

from controller.proxy.upstreams import Upstreams

log = logging.getLogger(__name__)

AT_ONCE = 16  # queries under way
JITTER = 0.1  # later, at most: a fleet must not ask in step, nor before the TTL is over


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds between two questions for one name."""

    soonest: float = 1.0  # a TTL of 0 must not become a flood of queries
    latest: float = 300.0  # a change is seen within five minutes, whatever the TTL says
    latest_retry: float = 30.0  # after a failure: doubling from `soonest`


class Resolver:
    """Asks for A records, and for AAAA ones only where there is no A: one IP family per backend. One long-lived `run`.

    Names are absolute: no search domains, as for the target of a CNAME. `dns` makes a DNSResolver; each question gets
    its own, because c-ares remembers an answer without addresses for an hour if it came without a SOA record.
    """

    def __init__(
        self,
        upstreams: Upstreams,
        dns: Callable[[], aiodns.DNSResolver],
        random: Random,
        pace: Pace = Pace(),  # noqa: B008 - frozen
    ) -> None:
        self._upstreams = upstreams
        self._dns = dns
        self._random = random
        self._pace = pace
        self._changed = asyncio.Event()
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._names: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Until it is cancelled."""
        self._upstreams.watchers.append(self._changed.set)
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    self._changed.clear()
                    self._follow(tasks)
                    await self._changed.wait()
        finally:
            self._upstreams.watchers.remove(self._changed.set)

    def _follow(self, tasks: asyncio.TaskGroup) -> None:
        wanted = self._upstreams.hostnames
        for name in self._names.keys() - wanted:
            self._names.pop(name).cancel()
        for name in wanted - self._names.keys():
            self._names[name] = tasks.create_task(self._keep(name), name=f"resolve {name}")

    async def _keep(self, name: str) -> None:
        pace = self._pace
        retry = pace.soonest
        failing = known = False
        while True:
            try:
                async with self._slots, self._dns() as dns:
                    addresses, ttl = await _ask(dns, name)
            except aiodns.error.DNSError as error:
                log.log(
                    logging.DEBUG if failing else logging.WARNING,
                    "name not resolved, the last good answer stays" if known else "name not resolved",
                    extra={"hostname": name, "error": error.args[-1], "pause": retry},
                )
                failing = True
                pause, retry = retry, min(2 * retry, pace.latest_retry)
            else:
                if failing:
                    log.info("name resolved again", extra={"hostname": name})
                failing, known, retry = False, True, pace.soonest
                pause = min(max(ttl, pace.soonest), pace.latest)
                self._upstreams.resolved(name, addresses)
            await asyncio.sleep(pause * (1 + JITTER * self._random.random()))


async def _ask(dns: aiodns.DNSResolver, name: str) -> tuple[list[str], float]:
    """Addresses, and the seconds that they may be kept. Raises DNSError; an answer without addresses is one."""
    try:
        return await _records(dns, name, "A")
    except aiodns.error.DNSError as error:
        if error.args[0] != aiodns.error.ARES_ENODATA:
            raise
        return await _records(dns, name, "AAAA")


async def _records(dns: aiodns.DNSResolver, name: str, family: str) -> tuple[list[str], float]:
    result = await dns.query_dns(name, family)
    found = [
        record.data.addr
        for record in result.answer
        if isinstance(record.data, pycares.ARecordData | pycares.AAAARecordData)
    ]
    if not found:  # a CNAME that leads nowhere
        raise aiodns.error.DNSError(aiodns.error.ARES_ENODATA, "no address in the answer")
    # A CNAME on the way bounds it, too.
    return found, float(min(record.ttl for record in result.answer))
