"""Active checks against real sockets: one connection each, the head judged, thresholds both ways."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any, cast

import pytest

from controller.model.endpoints import Endpoint, State
from controller.model.service import ActiveHealth, Health, Protocol
from controller.model.snapshot import Snapshot, SnapshotBackend, SnapshotPort
from controller.proxy.health import AT_ONCE, HealthChecks, check_session, expected, probe
from controller.proxy.seat import Seat
from controller.proxy.timers import LoopTimers
from controller.proxy.upstream import Upstream
from controller.proxy.upstreams import Upstreams

LIMIT = 5.0
KEY = ("store", "shop")
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
BAD = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Backend:
    """Answers each connection's head with `answer` and closes. Counts connections, keeps heads, and when each came."""

    def __init__(self) -> None:
        self.answer: bytes | Answer = OK
        self.connections = 0
        self.heads: list[bytes] = []
        self.times: list[float] = []
        self.came = asyncio.Event()
        self.port = 0
        self.serving: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.serving.add(cast("asyncio.Task[None]", asyncio.current_task()))
        self.connections += 1
        self.times.append(asyncio.get_running_loop().time())
        self.came.set()
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                self.heads.append(await reader.readuntil(b"\r\n\r\n"))
                if callable(self.answer):
                    await self.answer(reader, writer)
                elif self.answer:
                    writer.write(self.answer)
                    await writer.drain()
                    writer.close()
                    await writer.wait_closed()
        finally:
            writer.transport.abort()

    async def close(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)  # what has been accepted gets its handler
        for task in self.serving:
            task.cancel()
        await asyncio.gather(*self.serving, return_exceptions=True)

    async def connection(self, number: int) -> None:
        """Until that many have come."""
        async with asyncio.timeout(LIMIT):
            while self.connections < number:
                self.came.clear()
                await self.came.wait()


@asynccontextmanager
async def backend(host: str = "127.0.0.1") -> AsyncIterator[Backend]:
    found = Backend()
    server = await asyncio.start_server(found.serve, host, 0, backlog=1024)
    found.port = server.sockets[0].getsockname()[1]
    async with server:
        yield found
        server.close()
        await found.close()


class Checked:
    """One upstream under checks. `decided` is set whenever it has decided anew."""

    def __init__(self) -> None:
        self.upstreams = Upstreams(Seat(identity="pod"), LoopTimers(), lambda u, n: None, lambda u, n: None)
        self.decided = asyncio.Event()

    def apply(
        self,
        port: int,
        terms: ActiveHealth | None,
        *addresses: str,
        protocol: Protocol = "HTTP",
        state: State = "ACTIVE",
    ) -> Upstream:
        endpoints = tuple(
            Endpoint(id=f"pod-{address}", address=address, port=port, state=state)
            for address in addresses or ("127.0.0.1",)
        )
        listed = SnapshotBackend(name="b", weight=1, weight_per="Backend", endpoints=endpoints)
        ports = (SnapshotPort(name="http", port=80, listen=80, protocol=protocol, backends=(listed,)),)
        self.upstreams.apply(Snapshot(namespace="store", name="shop", ports=ports, health=Health(active=terms)))
        upstream = self.upstreams.get(KEY, "http")
        assert upstream is not None
        upstream.on_free = self.decided.set
        return upstream

    async def becomes(self, upstream: Upstream, *, healthy: bool) -> None:
        async with asyncio.timeout(LIMIT):
            while any(node.healthy != healthy for node in upstream.nodes):
                self.decided.clear()
                await self.decided.wait()


@pytest.fixture
async def checked() -> AsyncIterator[Checked]:
    """Runs the checks; at the end no task and no timer of theirs is left."""
    found = Checked()
    running = asyncio.create_task(HealthChecks(found.upstreams, Random(7)).run())
    yield found
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    found.upstreams.close()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert found.upstreams.watchers == []


def _terms(**more: Any) -> ActiveHealth:
    return ActiveHealth(**{"host": "shop", "interval": 0.05, "timeout": 1.0} | more)


async def test_the_thresholds_count_checks_in_a_row(checked: Checked) -> None:
    async with backend() as endpoint:
        endpoint.answer = BAD
        upstream = checked.apply(endpoint.port, _terms(unhealthy_threshold=3, healthy_threshold=2))

        await checked.becomes(upstream, healthy=False)
        assert endpoint.connections == 3

        endpoint.answer = OK
        await checked.becomes(upstream, healthy=True)
        assert endpoint.connections == 5


async def test_a_failed_check_is_one_connection_and_never_two(checked: Checked) -> None:
    async with backend() as endpoint:
        endpoint.answer = b""
        upstream = checked.apply(endpoint.port, _terms(unhealthy_threshold=4))

        await checked.becomes(upstream, healthy=False)

        assert endpoint.connections == 4


async def test_the_request_names_host_and_path_and_keeps_no_connection(checked: Checked) -> None:
    async with backend() as endpoint:
        checked.apply(endpoint.port, _terms(path="/healthz?full=1", host="shop.example"))
        await endpoint.connection(2)

        head = endpoint.heads[0].lower()
        assert head.startswith(b"get /healthz?full=1 http/1.1\r\n")
        assert b"\r\nhost: shop.example\r\n" in head
        assert b"\r\nconnection: close\r\n" in head
        assert b"cookie" not in head


async def test_a_redirect_is_judged_and_not_followed(checked: Checked) -> None:
    async with backend() as endpoint:
        endpoint.answer = b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n"
        upstream = checked.apply(endpoint.port, _terms(expected_statuses=("200-299",), unhealthy_threshold=1))

        await checked.becomes(upstream, healthy=False)

        assert [head.split()[1] for head in endpoint.heads] == [b"/"]


async def test_an_endless_body_holds_nothing(checked: Checked) -> None:
    ended = asyncio.Event()

    async def stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
        with suppress(ConnectionError):
            await reader.read()
        ended.set()

    async with backend() as endpoint, asyncio.timeout(LIMIT):
        endpoint.answer = stream
        upstream = checked.apply(endpoint.port, _terms(unhealthy_threshold=1))

        await ended.wait()
        await endpoint.connection(2)

        assert upstream.usable == 1


async def test_no_answer_in_time_is_a_failure(checked: Checked) -> None:
    async def stall(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with backend() as endpoint:
        endpoint.answer = stall
        upstream = checked.apply(endpoint.port, _terms(timeout=0.05, unhealthy_threshold=1))

        await checked.becomes(upstream, healthy=False)


@pytest.mark.parametrize(
    "answer", [b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", b"HTTP/1.1 200"]
)
async def test_a_malformed_answer_is_a_failure(checked: Checked, answer: bytes) -> None:
    async with backend() as endpoint:
        endpoint.answer = answer
        upstream = checked.apply(endpoint.port, _terms(unhealthy_threshold=1))

        await checked.becomes(upstream, healthy=False)


async def test_a_port_of_its_own_is_checked_instead_of_the_endpoints(checked: Checked) -> None:
    async with backend() as traffic, backend() as health:
        health.answer = BAD
        upstream = checked.apply(traffic.port, _terms(port=health.port, unhealthy_threshold=1))

        await checked.becomes(upstream, healthy=False)

        assert traffic.connections == 0


async def test_a_tcp_port_is_checked_by_a_connect(checked: Checked) -> None:
    async with backend() as endpoint:
        upstream = checked.apply(endpoint.port, _terms(), protocol="TCP")
        await endpoint.connection(2)
        assert upstream.usable == 1
        assert endpoint.heads == []

    checked.apply(endpoint.port, _terms(unhealthy_threshold=2), protocol="TCP")
    await checked.becomes(upstream, healthy=False)


async def test_an_ipv6_endpoint_is_checked(checked: Checked) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 on this machine's loopback")
    async with backend("::1") as endpoint:
        endpoint.answer = BAD
        upstream = checked.apply(endpoint.port, _terms(unhealthy_threshold=1), "::1")

        await checked.becomes(upstream, healthy=False)

        assert endpoint.connections == 1


async def test_a_parked_endpoint_is_left_alone_until_it_is_back(checked: Checked) -> None:
    async with backend() as parked, backend() as other:
        checked.apply(parked.port, _terms(), state="PARKED")
        checked.upstreams.apply(_second(other.port))
        await other.connection(4)
        assert parked.connections == 0

        checked.apply(parked.port, _terms())
        await parked.connection(1)


async def test_an_endpoint_that_is_gone_is_checked_no_more(checked: Checked) -> None:
    async with backend() as gone, backend() as other:
        checked.apply(gone.port, _terms())
        await gone.connection(1)

        checked.upstreams.forget(KEY)
        checked.upstreams.apply(_second(other.port))
        await other.connection(1)
        before = gone.connections
        await other.connection(5)

        assert gone.connections == before


def _second(port: int) -> Snapshot:
    listed = (Endpoint(id="second", address="127.0.0.1", port=port),)
    backends = (SnapshotBackend(name="b", weight=1, weight_per="Backend", endpoints=listed),)
    ports = (SnapshotPort(name="http", port=80, listen=80, backends=backends),)
    return Snapshot(namespace="store", name="second", ports=ports, health=Health(active=_terms()))


async def test_without_checks_every_verdict_is_taken_back(checked: Checked) -> None:
    async with backend() as endpoint:
        endpoint.answer = BAD
        upstream = checked.apply(endpoint.port, _terms(unhealthy_threshold=1))
        await checked.becomes(upstream, healthy=False)

        checked.apply(endpoint.port, None)
        await checked.becomes(upstream, healthy=True)


async def test_a_check_under_way_ends_with_its_endpoint(checked: Checked) -> None:
    left = asyncio.Event()

    async def stall(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            await reader.read()
        left.set()

    async with backend() as endpoint, asyncio.timeout(LIMIT):
        endpoint.answer = stall
        checked.apply(endpoint.port, _terms(timeout=60))
        await endpoint.connection(1)

        checked.upstreams.forget(KEY)

        await left.wait()


async def test_checks_are_bounded_and_none_is_lost(checked: Checked) -> None:
    held, most, done = 0, 0, 0
    release, all_done, crowded = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal held, most, done
        held += 1
        most = max(most, held)
        if held == AT_ONCE:
            crowded.set()
        await release.wait()
        writer.write(OK)
        held -= 1
        done += 1
        if done == 100:
            all_done.set()

    async with backend("0.0.0.0") as endpoint, asyncio.timeout(LIMIT):
        endpoint.answer = hold
        checked.apply(endpoint.port, _terms(), *(f"127.0.1.{number}" for number in range(1, 101)))
        await crowded.wait()
        await asyncio.sleep(0.1)  # what must not come can't be awaited: every first check has been due by now

        release.set()
        await all_done.wait()

        assert most == AT_ONCE


async def test_first_checks_are_spread_over_the_interval(checked: Checked) -> None:
    async with backend("0.0.0.0") as endpoint:
        checked.apply(endpoint.port, _terms(interval=0.5), *(f"127.0.1.{number}" for number in range(1, 41)))
        await endpoint.connection(40)

        first = endpoint.times[:40]
        assert max(first) - min(first) > 0.25


async def test_a_shortage_of_our_own_says_nothing_about_the_endpoint() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with check_session() as session:
        with socket.create_server(("127.0.0.1", 0)) as endpoint:
            port = endpoint.getsockname()[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))  # 0, 1 and 2 are taken: no descriptor is to be had
            try:
                found = [await probe(session, kind, "127.0.0.1", port, _terms()) for kind in ("HTTP", "TCP")]
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert found == [None, None]


@pytest.mark.parametrize(
    ("status", "ranges", "fits"),
    [
        (200, ("200-399",), True),
        (399, ("200-399",), True),
        (400, ("200-399",), False),
        (199, ("200-399",), False),
        (418, ("200-299", "418"), True),
        (419, ("200-299", "418"), False),
        (200, (), False),
    ],
)
def test_a_status_fits_codes_and_ranges(status: int, ranges: tuple[str, ...], fits: bool) -> None:
    assert expected(status, ranges) is fits
