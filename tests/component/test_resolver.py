"""Hostname backends against a DNS server of a few lines on loopback."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_address
from random import Random
from typing import Any, cast

import aiodns
import pytest

from controller.model.snapshot import Snapshot, SnapshotBackend, SnapshotPort
from controller.proxy.resolver import Pace, Resolver
from controller.proxy.seat import Seat
from controller.proxy.timers import LoopTimers
from controller.proxy.upstreams import Upstreams

LIMIT = 5.0
PACE = Pace(soonest=0.05, latest_retry=0.1)  # with a TTL of 0 every 50 ms
KEY = ("store", "shop")
TYPES = {1: "A", 28: "AAAA"}
NXDOMAIN, SERVFAIL = 3, 2


class NameServer(asyncio.DatagramProtocol):
    """Answers by a table: (name, type) → (addresses, TTL in seconds), or a response code. Counts the questions."""

    def __init__(self) -> None:
        self.records: dict[tuple[str, str], tuple[list[str], int]] = {}
        self.aliases: dict[str, tuple[str, int]] = {}
        self.code = 0
        self.asked: list[tuple[str, str]] = []
        self.came = asyncio.Event()
        self.transport: asyncio.DatagramTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        question = data[12:]
        labels, at = [], 0
        while size := question[at]:
            labels.append(question[at + 1 : at + 1 + size].decode())
            at += size + 1
        question = question[: at + 5]
        name, kind = ".".join(labels).lower(), TYPES.get(struct.unpack("!H", question[at + 1 : at + 3])[0], "?")
        self.asked.append((name, kind))
        self.came.set()
        answers = []
        owner = b"\xc0\x0c"
        if name in self.aliases:
            target, ttl = self.aliases[name]
            encoded = b"".join(bytes([len(label)]) + label.encode() for label in target.split(".")) + b"\0"
            answers.append(owner + struct.pack("!HHIH", 5, 1, ttl, len(encoded)) + encoded)
            owner, name = encoded, target
        addresses, ttl = self.records.get((name, kind), ([], 0))
        for text in addresses:
            packed = ip_address(text).packed
            answers.append(owner + struct.pack("!HHIH", 1 if kind == "A" else 28, 1, ttl, len(packed)) + packed)
        header = data[:2] + struct.pack("!HHHHH", 0x8180 | self.code, 1, 0 if self.code else len(answers), 0, 0)
        self.transport.sendto(header + question + (b"" if self.code else b"".join(answers)), addr)

    async def question(self, number: int, kind: str = "A") -> None:
        """Until that many of the type have come."""
        async with asyncio.timeout(LIMIT):
            while sum(asked == kind for _, asked in self.asked) < number:
                self.came.clear()
                await self.came.wait()


class Resolved:
    """Upstreams with a resolver running; `changed` is set by every change of them."""

    def __init__(self, server: NameServer) -> None:
        self.server = server
        self.upstreams = Upstreams(Seat(identity="pod"), LoopTimers(), lambda u, n: None, lambda u, n: None)
        self.changed = asyncio.Event()
        self.upstreams.watchers.append(self.changed.set)

    def want(self, *hostnames: str) -> None:
        backends = tuple(
            SnapshotBackend(name=f"b{number}", weight=1, weight_per="Backend", hostname=name, port=8080)
            for number, name in enumerate(hostnames)
        )
        ports = (SnapshotPort(name="http", port=80, listen=80, backends=backends),)
        self.upstreams.apply(Snapshot(namespace="store", name="shop", ports=ports))

    def addresses(self) -> list[str]:
        upstream = self.upstreams.get(KEY, "http")
        assert upstream is not None
        return [node.endpoint.address for node in upstream.nodes]

    async def becomes(self, *addresses: str) -> None:
        async with asyncio.timeout(LIMIT):
            while self.addresses() != list(addresses):
                self.changed.clear()
                await self.changed.wait()


@asynccontextmanager
async def _running(upstreams: Upstreams, port: int, **more: Any) -> AsyncIterator[None]:
    def dns() -> aiodns.DNSResolver:
        return aiodns.DNSResolver(nameservers=[f"127.0.0.1:{port}"], timeout=0.2, tries=1, **more)

    task = asyncio.create_task(Resolver(upstreams, dns, Random(7), PACE).run())
    yield
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


@pytest.fixture
async def resolved() -> AsyncIterator[Resolved]:
    """At the end no task of the resolver's is left."""
    transport, server = await asyncio.get_running_loop().create_datagram_endpoint(
        NameServer, local_addr=("127.0.0.1", 0)
    )
    found = Resolved(server)
    async with _running(found.upstreams, transport.get_extra_info("sockname")[1]):
        yield found
    transport.close()
    found.upstreams.close()
    assert found.upstreams.watchers == [found.changed.set]
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_name_becomes_endpoints(resolved: Resolved) -> None:
    resolved.server.records["db.example", "A"] = (["192.0.2.2", "192.0.2.1"], 300)

    resolved.want("db.example")

    await resolved.becomes("192.0.2.1", "192.0.2.2")
    assert resolved.server.asked == [("db.example", "A")]


async def test_a_name_is_absolute_though_there_are_search_domains_and_a_hosts_file() -> None:
    transport, server = await asyncio.get_running_loop().create_datagram_endpoint(
        NameServer, local_addr=("127.0.0.1", 0)
    )
    found = Resolved(server)
    found.want("db", "db.store", "localhost")

    as_in_a_pod: dict[str, Any] = {"domains": ["store.svc.cluster.local"], "ndots": 5, "lookups": "fb"}
    async with _running(found.upstreams, transport.get_extra_info("sockname")[1], **as_in_a_pod):
        await server.question(6)  # each name twice

    assert {name for name, _ in server.asked} == {"db", "db.store", "localhost"}
    assert found.addresses() == []
    transport.close()
    found.upstreams.close()


async def test_it_is_asked_again_after_its_ttl_and_the_whole_answer_is_taken(resolved: Resolved) -> None:
    resolved.server.records["db.example", "A"] = (["192.0.2.1", "192.0.2.2"], 0)
    resolved.want("db.example")
    await resolved.becomes("192.0.2.1", "192.0.2.2")

    resolved.server.records["db.example", "A"] = (["192.0.2.2", "192.0.2.3"], 300)

    await resolved.becomes("192.0.2.2", "192.0.2.3")


async def test_a_ttl_of_0_makes_no_flood(resolved: Resolved) -> None:
    resolved.server.records["db.example", "A"] = (["192.0.2.1"], 0)
    began = asyncio.get_running_loop().time()

    resolved.want("db.example")
    await resolved.server.question(5)

    assert asyncio.get_running_loop().time() - began >= 4 * PACE.soonest
    assert Pace().soonest == 1


@pytest.mark.parametrize("code", [NXDOMAIN, SERVFAIL])
async def test_the_last_good_answer_stays_while_resolution_fails(resolved: Resolved, code: int) -> None:
    resolved.server.records["db.example", "A"] = (["192.0.2.1"], 0)
    resolved.want("db.example")
    await resolved.becomes("192.0.2.1")

    resolved.server.code = code
    resolved.server.records["db.example", "A"] = (["192.0.2.9"], 0)
    before = len(resolved.server.asked)
    await resolved.server.question(before + 2)
    assert resolved.addresses() == ["192.0.2.1"]

    resolved.server.code = 0
    await resolved.becomes("192.0.2.9")


async def test_an_answer_without_addresses_is_a_failure(resolved: Resolved) -> None:
    resolved.server.records["db.example", "A"] = (["192.0.2.1"], 0)
    resolved.want("db.example")
    await resolved.becomes("192.0.2.1")

    del resolved.server.records["db.example", "A"]
    await resolved.server.question(1, "AAAA")
    await resolved.server.question(3)

    assert resolved.addresses() == ["192.0.2.1"]


async def test_an_alias_that_leads_nowhere_is_a_failure(resolved: Resolved) -> None:
    resolved.server.records["db.example", "A"] = (["192.0.2.1"], 0)
    resolved.want("db.example")
    await resolved.becomes("192.0.2.1")

    resolved.server.aliases["db.example"] = ("nowhere.example", 0)
    await resolved.server.question(2, "AAAA")

    assert resolved.addresses() == ["192.0.2.1"]


async def test_ipv6_is_taken_only_where_there_is_no_ipv4(resolved: Resolved) -> None:
    resolved.server.records["six.example", "AAAA"] = (["2001:db8::1"], 300)
    resolved.server.records["both.example", "AAAA"] = (["2001:db8::2"], 300)
    resolved.server.records["both.example", "A"] = (["192.0.2.1"], 300)

    resolved.want("six.example", "both.example")

    await resolved.becomes("2001:db8::1", "192.0.2.1")


async def test_an_alias_bounds_how_long_the_answer_is_kept(resolved: Resolved) -> None:
    resolved.server.aliases["db.example"] = ("one.example", 0)
    resolved.server.records["one.example", "A"] = (["192.0.2.1"], 300)
    resolved.server.records["two.example", "A"] = (["192.0.2.2"], 300)
    resolved.want("db.example")
    await resolved.becomes("192.0.2.1")

    resolved.server.aliases["db.example"] = ("two.example", 300)

    await resolved.becomes("192.0.2.2")


async def test_a_name_that_nobody_wants_is_asked_no_more(resolved: Resolved) -> None:
    for name in ("old.example", "new.example"):
        resolved.server.records[name, "A"] = (["192.0.2.1"], 0)
    resolved.want("old.example")
    await resolved.becomes("192.0.2.1")

    resolved.want("new.example")
    asked = resolved.server.asked.count(("old.example", "A"))
    await resolved.server.question(len(resolved.server.asked) + 2)

    assert resolved.server.asked.count(("old.example", "A")) == asked


async def test_a_server_that_is_silent_costs_only_its_own_names() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        found = Resolved(NameServer())
        found.want("db.example")

        async with _running(found.upstreams, silent.getsockname()[1]), asyncio.timeout(LIMIT):
            silent.setblocking(False)
            for _ in range(2):
                await asyncio.get_running_loop().sock_recv(silent, 512)

        assert found.addresses() == []
        found.upstreams.close()
