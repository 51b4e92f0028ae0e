"""Active health checks: a small request (TCP ports: a connect) to each endpoint at an interval.

A check proves that the endpoint still accepts: every one is a fresh connection, and never two of them. The head is
judged and the connection dropped, so that an endless body holds nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from random import Random

from aiohttp import ClientError, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector

from controller.balancing.node import Node
from controller.model.service import ActiveHealth, Protocol
from controller.proxy.causes import SHORTAGES
from controller.proxy.upstream import Upstream
from controller.proxy.upstreams import Upstreams

AT_ONCE = 64  # checks under way; the rest wait their turn, so that thousands of endpoints cost few descriptors
JITTER = 0.1  # of the interval, each time: fleets must not check in step


class Target:
    """One endpoint under check."""

    __slots__ = ("bad", "good", "node", "task", "timer", "upstream")

    def __init__(self, upstream: Upstream, node: Node) -> None:
        self.upstream = upstream
        self.node = node
        self.good = 0  # in a row
        self.bad = 0
        self.timer: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None

    @property
    def terms(self) -> ActiveHealth | None:
        """None once the object asks for no checks any more."""
        return self.upstream.snapshot.health.active

    def __repr__(self) -> str:
        return f"<Target {self.upstream.name} {self.node.id} good={self.good} bad={self.bad}>"


class HealthChecks:
    """Checks the endpoints of every upstream that asks for it, and tells the upstream. One long-lived `run`.

    ACTIVE and DRAINING endpoints are checked: a PARKED one gets nothing, and would only fail.
    """

    def __init__(self, upstreams: Upstreams, random: Random) -> None:
        self._upstreams = upstreams
        self._random = random
        self._changed = asyncio.Event()
        self._targets: dict[tuple[Upstream, Node], Target] = {}
        self._waiting: deque[Target] = deque()
        self._running = 0
        self._session: ClientSession
        self._tasks: asyncio.TaskGroup

    async def run(self) -> None:
        """Until it is cancelled."""
        async with check_session() as self._session, asyncio.TaskGroup() as self._tasks:
            self._upstreams.watchers.append(self._changed.set)
            try:
                while True:
                    self._changed.clear()
                    self._follow()
                    await self._changed.wait()
            finally:  # before the group waits for its tasks: none of them may start another
                self._upstreams.watchers.remove(self._changed.set)
                self._waiting.clear()
                for target in list(self._targets.values()):
                    self._drop(target)

    def _follow(self) -> None:
        """Bring the targets to what the upstreams list now."""
        wanted: dict[tuple[Upstream, Node], float] = {}
        for upstream in self._upstreams:
            terms = upstream.snapshot.health.active
            for node in upstream.nodes:
                if terms is None:
                    upstream.judge(node, healthy=True)
                elif node.endpoint.state != "PARKED":
                    wanted[upstream, node] = terms.interval
        for key in self._targets.keys() - wanted.keys():
            self._drop(self._targets[key])
        for key in wanted.keys() - self._targets.keys():
            target = self._targets[key] = Target(*key)
            self._later(target, wanted[key] * self._random.random())

    def _drop(self, target: Target) -> None:
        del self._targets[target.upstream, target.node]
        if target.timer is not None:
            target.timer.cancel()
        if target.task is not None:
            target.task.cancel()

    def _later(self, target: Target, delay: float) -> None:
        target.timer = asyncio.get_running_loop().call_later(delay, self._due, target)

    def _due(self, target: Target) -> None:
        target.timer = None
        self._waiting.append(target)
        self._start()

    def _start(self) -> None:
        while self._waiting and self._running < AT_ONCE:
            target = self._waiting.popleft()
            terms = target.terms
            if terms is not None and (target.upstream, target.node) in self._targets:
                self._running += 1
                target.task = self._tasks.create_task(self._check(target, terms), name=f"check {target.node.id}")

    async def _check(self, target: Target, terms: ActiveHealth) -> None:
        began = asyncio.get_running_loop().time()
        try:
            endpoint = target.node.endpoint
            port = terms.port or endpoint.port
            found = await probe(self._session, target.upstream.port.protocol, endpoint.address, port, terms)
        finally:
            target.task = None
            self._running -= 1
            self._start()
        if found is not None:
            self._count(target, terms, good=found)
        if (target.upstream, target.node) in self._targets:
            spent = asyncio.get_running_loop().time() - began
            interval = terms.interval * (1 + JITTER * (2 * self._random.random() - 1))
            self._later(target, max(0.0, interval - spent))

    def _count(self, target: Target, terms: ActiveHealth, *, good: bool) -> None:
        target.good, target.bad = (target.good + 1, 0) if good else (0, target.bad + 1)
        if target.good >= terms.healthy_threshold:
            target.upstream.judge(target.node, healthy=True)
        elif target.bad >= terms.unhealthy_threshold:
            target.upstream.judge(target.node, healthy=False)


async def probe(
    session: ClientSession, protocol: Protocol, address: str, port: int, terms: ActiveHealth
) -> bool | None:
    """One check of one endpoint; None: a shortage of our own, which says nothing about it."""
    try:
        if protocol == "TCP":
            async with asyncio.timeout(terms.timeout):
                return await _connects(address, port)
        return expected(await _status(session, address, port, terms), terms.expected_statuses)
    except OSError as error:  # TimeoutError and aiohttp's connection errors are such, too
        return None if error.errno in SHORTAGES else False
    except ClientError:
        return False


async def _status(session: ClientSession, address: str, port: int, terms: ActiveHealth) -> int:
    host = f"[{address}]" if ":" in address else address
    response = await session.get(
        f"http://{host}:{port}{terms.path}",
        headers={"Host": terms.host, "User-Agent": "steelyard"},
        timeout=ClientTimeout(total=terms.timeout),
        allow_redirects=False,  # a 302 is a status to judge
    )
    response.close()
    return response.status


async def _connects(address: str, port: int) -> bool:
    _, writer = await asyncio.open_connection(address, port)
    writer.transport.abort()
    return True


def expected(status: int, ranges: tuple[str, ...]) -> bool:
    """Whether one of the ranges, as in `200-399` or `418`, holds the status."""
    for text in ranges:
        low, _, high = text.partition("-")
        if int(low) <= status <= int(high or low):
            return True
    return False


def check_session() -> ClientSession:
    session = ClientSession(
        connector=TCPConnector(limit=0, force_close=True),
        cookie_jar=DummyCookieJar(),
        auto_decompress=False,
        trust_env=False,
    )
    # Else an idempotent request is repeated unseen on a second connection, and one failed check is two.
    session._retry_connection = False
    return session
