"""The affinity cookie: what it says to the client, and when the endpoint that it names is passed over."""

from __future__ import annotations

import asyncio

import pytest

from controller.model.service import Affinity, Algorithm, Cookie, Limits
from controller.model.snapshot import SnapshotProxy
from tests.component.rig import Rig, Step, Wire, recv_head, send, serve, stall

TRUSTED = SnapshotProxy(trusted_proxies=("127.0.0.0/8",))
HTTPS = b"X-Forwarded-Proto: https\r\n"
HTTP = b"X-Forwarded-Proto: http\r\n"


def request(lines: bytes = b"", method: bytes = b"GET") -> bytes:
    return method + b" / HTTP/1.1\r\nHost: a\r\n" + lines + b"\r\n"


def named(number: int) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n%d" % number


@pytest.mark.parametrize(
    ("cookie", "proxy", "lines", "attributes"),
    [
        (Cookie(), TRUSTED, HTTPS, ["Path=/", "HttpOnly", "SameSite=Lax", "Secure"]),
        (Cookie(), TRUSTED, HTTP, ["Path=/", "HttpOnly", "SameSite=Lax"]),
        (Cookie(), TRUSTED, b"", ["Path=/", "HttpOnly", "SameSite=Lax"]),
        (Cookie(), SnapshotProxy(), HTTPS, ["Path=/", "HttpOnly", "SameSite=Lax"]),
        (Cookie(secure="Never"), TRUSTED, HTTPS, ["Path=/", "HttpOnly", "SameSite=Lax"]),
        (Cookie(secure="Always"), SnapshotProxy(), b"", ["Path=/", "HttpOnly", "SameSite=Lax", "Secure"]),
        (
            Cookie(lifetime="Permanent", ttl=90.0, path="/shop", same_site="Strict"),
            SnapshotProxy(),
            b"",
            ["Path=/shop", "HttpOnly", "SameSite=Strict", "Max-Age=90"],
        ),
        (Cookie(lifetime="Session", ttl=90.0), SnapshotProxy(), b"", ["Path=/", "HttpOnly", "SameSite=Lax"]),
    ],
    ids=[
        "https of a trusted proxy",
        "http of a trusted proxy",
        "a trusted proxy that doesn't say",
        "https of a stranger",
        "never, by https",
        "always, by http",
        "permanent",
        "session",
    ],
)
async def test_the_cookie_says_what_it_shall(
    cookie: Cookie, proxy: SnapshotProxy, lines: bytes, attributes: list[str], rig: Rig
) -> None:
    await rig.open(affinity=Affinity(cookie=cookie), proxy=proxy)

    (line,) = [value for name, value in (await rig.ask(request(lines))).fields if name == "set-cookie"]

    pair, *found = line.split("; ")
    assert pair.startswith("steelyard=")
    assert found == attributes


async def test_a_bound_endpoint_at_its_limit_is_passed_over_for_this_once(rig: Rig) -> None:
    """The request goes elsewhere at once, and the client stays bound to where it was."""
    await rig.open(
        backends=2,
        affinity=Affinity(cookie=Cookie()),
        limits=Limits(max_requests_per_endpoint=1),
        algorithm=Algorithm(type="RoundRobin"),
    )
    answer = asyncio.Event()

    def patient(number: int) -> Step:
        async def step(wire: Wire) -> None:
            while wire.ending == "open":
                await wire.until(lambda: wire.received.find(b"\r\n\r\n", wire.taken) >= 0 or wire.ending != "open")
                if wire.ending == "open" and b"PUT " in await wire.take_head():
                    await answer.wait()
                await wire.send(named(number))

        return step

    for number, backend in enumerate(rig.backends):
        backend.script(patient(number))
    first = await rig.ask(request())
    bound = b"Cookie: " + (first.get("set-cookie") or "").partition(";")[0].encode() + b"\r\n"
    slow = await rig.connect()
    await slow.send(request(bound, b"PUT"))
    await rig.reached(lambda: sum(node.inflight for node in rig.lane.upstream.nodes) == 1)

    passed = await rig.ask(request(bound))
    answer.set()
    kept = await slow.response()
    again = await rig.ask(request(bound))

    assert (passed.status, passed.body != first.body, passed.get("set-cookie")) == (200, True, None)
    assert (kept.status, kept.body) == (200, first.body)
    assert (again.body, again.get("set-cookie")) == (first.body, None)


async def test_while_all_are_at_their_limits_a_bound_client_waits_like_any_other(rig: Rig) -> None:
    await rig.open(affinity=Affinity(cookie=Cookie()), limits=Limits(max_requests_per_endpoint=1))
    answer = asyncio.Event()
    first = await rig.ask(request())
    bound = b"Cookie: " + (first.get("set-cookie") or "").partition(";")[0].encode() + b"\r\n"
    rig.backend.connections[0].rst()
    await rig.reached(lambda: rig.lane.pools[0].idle == 0)

    async def once_told(wire: Wire) -> None:
        await answer.wait()

    rig.backend.script(recv_head(), once_told, send(named(0)), serve(named(0)), stall())
    clients = [await rig.connect() for _ in range(2)]
    for client in clients:
        await client.send(request(bound))
    (node,) = rig.lane.upstream.nodes
    await rig.reached(lambda: (node.inflight, len(rig.lane.queue)) == (1, 1))

    answer.set()
    assert [(await client.response()).status for client in clients] == [200, 200]
