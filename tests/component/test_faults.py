"""Against faults: backends that come and go, die, refuse, or close connections just as they are used again.

Backends that leave or die are processes of their own (`origin.py`); what reached them is read in their logs.
"""

from __future__ import annotations

import asyncio
import resource
import socket
import sys
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from random import Random
from typing import NamedTuple, cast

import pytest

from controller.model.endpoints import Endpoint, State
from controller.model.service import Algorithm, ConsistentHash, HashOn, Health, PassiveHealth, Retries, Timeouts
from controller.model.snapshot import SnapshotBackend, SnapshotPort
from tests.component import origin
from tests.component.rig import Rig, Wire

CHANGES = 150
KILLS = 50
CLIENTS = 8
ENOUGH = 25.0
PATIENT = Timeouts(connect=30)  # the one loop of this process may be late: that is not what is tested
IDEMPOTENT = (b"GET", b"PUT")
DEADLINE = 60.0  # seconds for one change or kill on a machine that is busy; none takes a tenth of it otherwise


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class Origin:
    """A backend process on a port that stays its own."""

    def __init__(self, directory: Path, number: int) -> None:
        self.port = free_port()
        self.name = f"o{number}"
        self._log = directory / f"{self.name}.log"
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-S", "-E", str(origin.__file__), str(self.port), str(self._log), stdout=-1
        )
        assert self._process.stdout is not None
        assert await self._process.stdout.readline() == b"listening\n"

    async def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            await self._gone()

    async def leave(self) -> None:
        """As a pod that is deleted: it ends when its work is done."""
        assert self._process is not None
        self._process.terminate()
        assert await self._gone() == 0

    async def _gone(self) -> int:
        process, self._process = self._process, None
        assert process is not None
        await process.communicate()
        assert process.returncode is not None
        return process.returncode

    def endpoint(self, state: State = "ACTIVE") -> Endpoint:
        return Endpoint(id=self.name, address="127.0.0.1", port=self.port, state=state)

    def noted(self) -> Counter[str]:
        """How often each line is in the log."""
        return Counter(self._log.read_text().splitlines()) if self._log.exists() else Counter()


class Asked(NamedTuple):
    """One request, and what came of it; "" = the right answer."""

    id: str
    method: bytes
    fault: str


class Traffic:
    """Keep-alive clients that ask without a pause: GETs, and requests with bodies of 1 byte to `largest`."""

    def __init__(self, rig: Rig, methods: tuple[bytes, ...], largest: int) -> None:
        self.asked: list[Asked] = []
        self._rig = rig
        self._methods = methods
        self._largest = largest
        self._ids = count()
        self._asking: set[str] = set()
        self._ending = False
        self._progress = asyncio.Event()
        self._tasks = [asyncio.create_task(self._run(Random(number))) for number in range(CLIENTS)]

    async def further(self, requests: int) -> None:
        """Until so many more have ended."""
        aim = len(self.asked) + requests
        async with asyncio.timeout(DEADLINE):
            while len(self.asked) < aim:
                self._progress.clear()
                await self._progress.wait()

    async def turned_over(self) -> None:
        """Until every request that is under way now has ended."""
        now = frozenset(self._asking)
        async with asyncio.timeout(DEADLINE):
            while now & self._asking:
                self._progress.clear()
                await self._progress.wait()

    async def end(self) -> None:
        self._ending = True
        await asyncio.gather(*self._tasks)

    async def _run(self, random: Random) -> None:
        client = await self._rig.connect()
        while not self._ending:
            identity, method = f"r{next(self._ids)}", random.choice(self._methods)
            body = b"" if method == b"GET" else random.randbytes(random.randint(1, self._largest))
            self._asking.add(identity)
            await client.send(_request(identity, method, body, chunked=random.random() < 0.3))
            fault = await self._answer(client, body)
            self.asked.append(Asked(identity, method, fault))
            self._asking.discard(identity)
            self._progress.set()
            if client.ending != "open" or fault:
                client.fin()
                client = await self._rig.connect()
        client.fin()

    @staticmethod
    async def _answer(client: Wire, body: bytes) -> str:
        try:
            response = await client.response()
        except (AssertionError, TimeoutError) as error:
            return repr(error)
        if response.get("connection") == "close":
            await client.to_end()
        if response.status != 200:
            return f"status {response.status}"
        return "" if response.body == b"%d %d" % (zlib.crc32(body), len(body)) else "another body"


def _request(identity: str, method: bytes, body: bytes, *, chunked: bool) -> bytes:
    head = b"%b / HTTP/1.1\r\nHost: a\r\nX-Id: %b\r\n" % (method, identity.encode())
    if not body:
        return head + b"\r\n"
    if not chunked:
        return head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    half = len(body) // 2
    pieces = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in (body[:half], body[half:]) if piece)
    return head + b"Transfer-Encoding: chunked\r\n\r\n" + pieces + b"0\r\n\r\n"


@asynccontextmanager
async def origins(directory: Path, number: int) -> AsyncIterator[list[Origin]]:
    found = [Origin(directory, each) for each in range(number)]
    try:
        for each in found:
            await each.start()
        yield found
    finally:
        for each in found:
            await each.kill()


@pytest.mark.timeout(180)
async def test_changes_of_the_endpoints_fail_no_request(rig: Rig, tmp_path: Path) -> None:
    """Add, drain, remove, in turn, each while requests of up to 256 KiB run."""
    await rig.open(timeouts=PATIENT)
    async with origins(tmp_path, 3) as alive:
        await rig.apply(endpoints=tuple(each.endpoint() for each in alive))
        traffic = Traffic(rig, (b"GET", b"POST"), 256 * 1024)

        for number in range(CHANGES // 3):
            new = Origin(tmp_path, len(alive) + number)
            await new.start()
            alive.append(new)
            await rig.apply(endpoints=tuple(each.endpoint() for each in alive))
            await traffic.further(10)
            leaving = alive[0]
            draining = (leaving.endpoint("DRAINING"), *(each.endpoint() for each in alive[1:]))
            await rig.apply(endpoints=draining)
            await traffic.further(5)
            await rig.apply(endpoints=draining[1:])
            alive.remove(leaving)
            await leaving.leave()
        await traffic.end()

    assert [each for each in traffic.asked if each.fault] == []
    assert len(traffic.asked) >= CHANGES // 3 * 15


@pytest.mark.timeout(180)
async def test_a_backends_death_fails_only_what_must_not_be_asked_again(rig: Rig, tmp_path: Path) -> None:
    """Of the requests that failed, each had an answer begun or is a POST; and no POST was read twice."""
    passive = PassiveHealth(ejection=0.2, max_ejection=0.2)
    await rig.open(health=Health(passive=passive), timeouts=PATIENT)
    async with origins(tmp_path, 4) as all_of_them:
        await rig.apply(endpoints=tuple(each.endpoint() for each in all_of_them))
        traffic = Traffic(rig, (b"GET", b"PUT", b"POST"), 32 * 1024)

        for number in range(KILLS):
            victim = all_of_them[number % len(all_of_them)]
            await traffic.further(10)
            await victim.kill()
            await traffic.further(10)
            await victim.start()
            # One death at a time. With one retry a request that meets two has been given all that it may have, and
            # where deaths follow faster than endpoints come back from ejection the retry budget ends.
            await traffic.turned_over()
            while any(node.ejected_until is not None for node in rig.lane.upstream.nodes):
                await traffic.further(1)
        await traffic.end()
        noted = sum((each.noted() for each in all_of_them), Counter[str]())

    failed = [each for each in traffic.asked if each.fault]
    unjust = [each for each in failed if each.method in IDEMPOTENT and not noted[f"answer {each.id}"]]
    twice = [each for each in traffic.asked if each.method == b"POST" and noted[f"read {each.id}"] > 1]
    print(f"{len(traffic.asked)} asked, {len(failed)} failed: {Counter(each.method for each in failed)}")
    assert unjust == []
    assert twice == []
    assert len(failed) <= KILLS * CLIENTS / 2


def _port(*endpoints: tuple[Endpoint, int]) -> tuple[SnapshotPort, ...]:
    backends = tuple(
        SnapshotBackend(name=each.id, weight=1, weight_per="Endpoint", priority=priority, endpoints=(each,))
        for each, priority in endpoints
    )
    return (SnapshotPort(name="http", port=80, listen=0, backends=backends),)


@pytest.mark.parametrize("method", [b"GET", b"POST"])
@pytest.mark.parametrize("priorities", [(0, 0), (0, 1), (1, 0)], ids=["beside", "before", "behind"])
async def test_an_endpoint_that_refuses_costs_no_request(priorities: tuple[int, int], method: bytes, rig: Rig) -> None:
    """It is ejected again and again here, so that its returns and their one probe are among the requests."""
    refusing = Endpoint(id="refusing", address="127.0.0.1", port=free_port())
    await rig.open(health=Health(passive=PassiveHealth(consecutive_failures=2, ejection=0.02, max_ejection=0.02)))
    ports = _port((refusing, priorities[0]), (rig.endpoint(rig.backend), priorities[1]))
    await rig.apply(ports=ports)
    client = await rig.connect()

    answers = Counter[int]()
    for _ in range(300):
        await client.send(method + b" / HTTP/1.1\r\nHost: a\r\n\r\n")
        answers[(await client.response()).status] += 1

    assert answers == {200: 300}
    assert "connect_failure" not in rig.outcomes


class Fading(asyncio.Protocol):
    """A backend's connection with a keep-alive of a second, which announces five or six: the proxy learns the latest
    from it each time, and so goes on taking connections that are about to close."""

    KEEP = 1.0
    made = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._end: asyncio.TimerHandle | None = None
        self._announced = 5
        Fading.made += 1

    def data_received(self, data: bytes) -> None:
        if self._end is not None:
            self._end.cancel()
        self._announced = 11 - self._announced
        self._transport.write(
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nKeep-Alive: timeout=%d\r\n\r\nok" % self._announced
        )
        self._end = asyncio.get_running_loop().call_later(self.KEEP, self._transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._end is not None:
            self._end.cancel()


@pytest.fixture
def many_files() -> Iterator[int]:
    """How many may be open, after the limit was raised to what it can be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.timeout(120)
async def test_the_keep_alive_race_fails_no_request(rig: Rig, many_files: int) -> None:
    """1 000 connections ask 10 times each, at gaps uniform within 50 ms of the backend's keep-alive of a second; on a
    machine too busy for that as often as fits in `ENOUGH` seconds.

    Each asks by its own key, so that it gets an endpoint, and a pool, nearly for itself: in one pool the freshest
    connection would always be one that another client has just used.
    """
    connections = min(1000, many_files // 8)
    await rig.open(
        retries=Retries(attempts=0),
        timeouts=PATIENT,
        algorithm=Algorithm(
            type="ConsistentHash",
            hash_on=(HashOn(header="X-Client"),),
            consistent_hash=ConsistentHash(bounded_load=0),
        ),
    )
    server = await rig.loop.create_server(Fading, "127.0.0.1", 0, backlog=4096)
    port = server.sockets[0].getsockname()[1]
    await rig.apply(endpoints=tuple(Endpoint(id=f"e{n}", address="127.0.0.1", port=port) for n in range(connections)))
    answers = Counter[int]()
    end = rig.loop.time() + ENOUGH

    async def ask(number: int) -> None:
        random = Random(number)
        await asyncio.sleep(random.random())
        client = await rig.connect()
        for _ in range(10):
            if rig.loop.time() >= end:
                break
            await client.send(b"GET / HTTP/1.1\r\nHost: a\r\nX-Client: %d\r\n\r\n" % number)
            answers[(await client.response()).status] += 1
            await asyncio.sleep(random.uniform(Fading.KEEP - 0.05, Fading.KEEP + 0.05))
        client.fin()

    await asyncio.gather(*(ask(number) for number in range(connections)))
    server.close()

    print(f"{rig.lane.made.races} races met, {Fading.made} connections made")
    assert answers.keys() == {200}
    assert answers[200] > connections
    assert rig.lane.made.races > 0
