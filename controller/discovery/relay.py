"""Passing on to the Lease's holder what another replica's proxies said: it alone writes statuses."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random

import aiohttp
import msgspec

from controller.discovery.frames import Relayed, Report
from controller.discovery.hub import Key

log = logging.getLogger(__name__)

TOGETHER = 0.05  # seconds that reports wait for others to go with
PAUSE = 1.0  # after a failure, jittered; the holder may be about to change
BATCH = 500  # reports of one request: some 200 KB, where a server takes 1 MB
TIMEOUT = aiohttp.ClientTimeout(total=10, sock_connect=3)


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """How the holder is reached. It is dialled by address, and shows a certificate for `server_name`."""

    holder: Callable[[], str | None]  # HOST:PORT; None while we hold the Lease ourselves, or nobody does
    trust: Callable[[], ssl.SSLContext]
    server_name: str
    token: Path  # of our own account, read again for each request: the kubelet renews it


class Relay:
    """`heard` and `left` as proxies report and go; `run` passes on the newest of each.

    A new holder is told at once what all proxies said whose streams are `here`; the others report again by themselves.
    """

    def __init__(self, way: Way, random: Random) -> None:
        self.failures = 0
        self._way = way
        self._random = random
        self._newest: dict[tuple[Key, str], Report] = {}
        self._due: dict[tuple[Key, str], None] = {}
        self._here: set[tuple[Key, str]] = set()
        self._news = asyncio.Event()
        self._told = ""  # the holder that all this went to

    def __repr__(self) -> str:
        return f"<Relay to {self._told or None} due={len(self._due)} failures={self.failures}>"

    def heard(self, key: Key, proxy: str, report: Report, *, here: bool) -> None:
        self._newest[key, proxy] = report
        (self._here.add if here else self._here.discard)((key, proxy))
        self._due[key, proxy] = None
        self._news.set()

    def left(self, key: Key, proxy: str) -> None:
        self._newest.pop((key, proxy), None)
        self._here.discard((key, proxy))
        self._due.pop((key, proxy), None)

    async def run(self) -> None:
        """For ever."""
        async with aiohttp.ClientSession(timeout=TIMEOUT) as session:
            while True:
                await self._news.wait()
                await asyncio.sleep(TOGETHER)
                self._news.clear()
                holder = self._way.holder()
                if holder is None:
                    self._done(list(self._due))
                    self._told = ""
                    continue
                if holder != self._told:
                    self._due = dict.fromkeys(self._newest)
                try:
                    await self._send(session, holder)
                except (aiohttp.ClientError, TimeoutError, OSError) as error:
                    self.failures += 1
                    log.info("reports not passed on", extra={"holder": holder, "error": str(error)})
                    await asyncio.sleep(PAUSE * self._random.uniform(0.5, 1.5))
                    self._news.set()
                else:
                    self._told = holder

    async def _send(self, session: aiohttp.ClientSession, holder: str) -> None:
        while batch := list(self._due)[:BATCH]:
            reports = [self._newest[each] for each in batch]
            relayed = [
                Relayed(namespace=key[0], name=key[1], proxy=proxy, report=report)
                for (key, proxy), report in zip(batch, reports, strict=True)
            ]
            token = await asyncio.to_thread(self._way.token.read_text)
            async with session.post(
                f"https://{holder}/v1/relay",
                data=msgspec.json.encode(relayed),
                headers={"Authorization": f"Bearer {token.strip()}", "Content-Type": "application/json"},
                ssl=self._way.trust(),
                server_hostname=self._way.server_name,
                raise_for_status=True,
            ):
                pass
            self._done([each for each, sent in zip(batch, reports, strict=True) if self._newest.get(each) is sent])

    def _done(self, passed: Iterable[tuple[Key, str]]) -> None:
        for each in passed:
            self._due.pop(each, None)
            if each not in self._here:
                self._newest.pop(each, None)
