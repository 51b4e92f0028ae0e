"""The proxy beside its client, on real sockets: with an operator, without one, and after its service is gone.

The far side is a served hub in the operator's place; the name server's answer is put in by hand.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from msgspec.structs import replace

from controller import beside, controlled
from controller.admin import AdminError
from controller.discovery.client import Settings
from controller.discovery.frames import Report
from controller.discovery.hub import Hub
from controller.discovery.server import Access, Discovery
from controller.discovery.tokens import Authenticator, Identity
from controller.model.endpoints import Endpoint
from controller.model.service import Algorithm, Mode, Timeouts
from controller.model.snapshot import Snapshot, SnapshotBackend, SnapshotPort
from controller.proxy.drain import drain, terms
from controller.proxy.plane import DataPlane
from controller.proxy.sidecar import Sidecar, SidecarPort, SidecarService, service
from controller.settings import ProxySettings
from controller.telemetry import Telemetry

Answer = tuple[int, dict[str, str] | str]

LIMIT = 10.0
ADDRESS = "127.64.0.1"
KEY = ("store", "shop")
POD = "10.1.2.3"


def free_port(host: str = "127.0.0.1") -> int:
    with socket.socket() as sock:
        sock.bind((host, 0))
        return int(sock.getsockname()[1])


@contextlib.asynccontextmanager
async def backend(name: str) -> AsyncIterator[int]:
    """Says who it is and which client it sees."""

    async def answer(request: web.Request) -> web.Response:
        return web.json_response({"name": name, "host": request.host, "for": request.headers.get("X-Forwarded-For")})

    app = web.Application()
    app.router.add_get("/", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


class Operator:
    def __init__(self) -> None:
        self.hub = Hub()
        self.report: Report | None = None  # the last
        self.reports: dict[tuple[str, str], Report] = {}  # each object's last

    def put(self, snapshot: Snapshot) -> None:
        self.hub.put(snapshot)
        self.hub.sync()

    @contextlib.asynccontextmanager
    async def up(self) -> AsyncIterator[str]:
        async def review(_: str) -> Identity:
            return Identity(username="system:serviceaccount:store:default", pod_uid="uid", node="n1")

        async def allowed(_: Identity, key: tuple[str, str]) -> bool:
            return key[0] == "store"

        def reported(key: tuple[str, str], proxy: str, report: Report) -> None:
            self.report = self.reports[key] = report

        access = Access(
            allowed=allowed,
            zone=lambda _: "a",
            connected=lambda *_: None,
            reported=reported,
            relayed=reported,
        )
        discovery = Discovery(self.hub, Authenticator(review, time.time), access, lambda _: None)
        runner = web.AppRunner(discovery.app, access_log=None, handler_cancellation=True, shutdown_timeout=1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            discovery.end()
            await runner.cleanup()


class Pod:
    """A running sidecar with one service, and what its client does."""

    def __init__(self, plane: DataPlane, port: int, forward: int) -> None:
        self.plane = plane
        self.port = port
        self.forward = forward

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(LIMIT):
            while not true():  # noqa: ASYNC110 - the state of a plane, which tells nobody
                await asyncio.sleep(0.01)

    async def ask(self, path: str = "/", **headers: str) -> Answer:
        async with aiohttp.ClientSession() as session:
            return await _answer(session.get(f"http://{ADDRESS}:{self.port}{path}", headers=headers))

    async def ask_by_proxy(self, url: str) -> Answer:
        async with aiohttp.ClientSession() as session:
            return await _answer(session.get(url, proxy=f"http://127.0.0.1:{self.forward}"))


async def _answer(
    request: contextlib.AbstractAsyncContextManager[aiohttp.ClientResponse],
) -> Answer:
    async with request as response:
        if response.content_type == "application/json":
            return response.status, await response.json()
        return response.status, await response.text()


@contextlib.asynccontextmanager
async def pod(url: str, *, start_timeout: float = 60.0) -> AsyncIterator[Pod]:
    with tempfile.NamedTemporaryFile("w", suffix=".token") as token:
        token.write("token")
        token.flush()
        async with _running(url, Path(token.name), start_timeout) as running:
            yield running


@contextlib.asynccontextmanager
async def _running(url: str, token: Path, start_timeout: float) -> AsyncIterator[Pod]:
    plane = DataPlane(ProxySettings(pod_address=POD, zone=""), Telemetry())
    port, forward = free_port(ADDRESS), free_port()
    sidecar = Sidecar(
        services=(SidecarService("shop", ADDRESS, (SidecarPort(port, "HTTP", "http"),)),),
        domain="cluster.local",
        start_timeout=start_timeout,
        forward_proxy=("127.0.0.1", forward),
    )
    settings = Settings(url=url, namespace="store", names=("shop",), token=token)
    following = asyncio.create_task(beside.follow(plane, settings, sidecar))
    try:
        yield Pod(plane, port, forward)
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await plane.stop_listening()
        plane.close()


def snapshot(port: int, *targets: int, mode: Mode = "Sidecar", generation: int = 1) -> Snapshot:
    endpoints = tuple(Endpoint(id=f"pod-{each}", address="127.0.0.1", port=each) for each in targets)
    part = SnapshotBackend(name="all", weight=1, weight_per="Backend", endpoints=endpoints)
    listen = port if mode == "Sidecar" else 20000
    return Snapshot(
        namespace="store",
        name="shop",
        generation=generation,
        mode=mode,
        address=ADDRESS,
        algorithm=Algorithm(type="SourceHash"),
        ports=(SnapshotPort(name="http", port=port, listen=listen, backends=(part,)),),
    )


async def test_the_client_is_answered_by_the_services_own_address_and_seen_by_the_pods() -> None:
    operator = Operator()
    async with backend("one") as one, operator.up() as url, pod(url) as beside_it:
        operator.put(snapshot(beside_it.port, one))
        await beside_it.until(lambda: beside_it.plane.ready)

        status, said = await beside_it.ask(**{"X-Forwarded-For": "192.0.2.7"})

        assert status == 200
        assert isinstance(said, dict)
        assert said["for"] == f"192.0.2.7, {POD}"


async def test_it_is_not_ready_before_each_service_has_its_configuration() -> None:
    operator = Operator()
    async with backend("one") as one, operator.up() as url, pod(url) as beside_it:
        before = beside_it.plane.ready
        operator.put(snapshot(beside_it.port, one))
        await beside_it.until(lambda: beside_it.plane.ready)

        assert not before
        assert not beside_it.plane.pending


async def test_without_an_operator_requests_go_to_the_ordinary_service_until_it_comes() -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    async with backend("service") as one, pod(nowhere, start_timeout=0.05) as beside_it:
        plane = beside_it.plane
        await beside_it.until(lambda: plane.telemetry.pass_through == 1)
        unresolved = plane.ready
        (hostname,) = plane.upstreams.hostnames
        plane.upstreams.resolved(hostname, ["127.0.0.1"])
        await beside_it.until(lambda: plane.ready)

        assert not unresolved
        assert hostname == "shop.store.svc.cluster.local"
        (upstream,) = plane.upstreams
        (node,) = upstream.nodes
        assert (node.endpoint.address, node.endpoint.port) == ("127.0.0.1", beside_it.port)
        await plane.apply(snapshot(beside_it.port, one))
        assert (await beside_it.ask())[0] == 200


async def test_a_configuration_takes_the_place_of_the_way_through() -> None:
    operator = Operator()
    async with backend("one") as one, operator.up() as url, pod(url, start_timeout=0.05) as beside_it:
        await beside_it.until(lambda: beside_it.plane.telemetry.pass_through == 1)
        operator.put(snapshot(beside_it.port, one))

        await beside_it.until(lambda: beside_it.plane.telemetry.pass_through == 0)

        assert (await beside_it.ask())[0] == 200
        assert beside_it.plane.ready


async def test_a_service_that_is_gone_is_answered_503_and_never_sent_to_what_is_remembered() -> None:
    operator = Operator()
    async with backend("one") as one, operator.up() as url, pod(url) as beside_it:
        operator.put(snapshot(beside_it.port, one))
        await beside_it.until(lambda: beside_it.plane.ready and KEY in beside_it.plane.snapshots)
        await beside_it.until(lambda: next(iter(beside_it.plane.upstreams)).known == 1)
        operator.hub.gone(KEY)
        await beside_it.until(lambda: next(iter(beside_it.plane.upstreams)).known == 0)

        gone = await beside_it.ask()
        operator.put(snapshot(beside_it.port, one, generation=2))
        async with asyncio.timeout(LIMIT):
            # Endpoints that come may wait for 100 ms.
            while (await beside_it.ask())[0] != 200:  # noqa: ASYNC110 - only requests tell
                await asyncio.sleep(0.01)

        assert gone == (503, "ServiceGone: the BalancedService has been deleted.\n")
        outcomes = beside_it.plane.telemetry.requests("store/shop", "").outcomes
        assert outcomes["service_gone"] == 1


async def test_a_service_that_never_was_is_answered_503() -> None:
    operator = Operator()
    operator.hub.sync()
    async with operator.up() as url, pod(url) as beside_it:
        await beside_it.until(lambda: beside_it.plane.ready)

        assert (await beside_it.ask())[0] == 503


async def test_another_mode_of_the_object_changes_nothing_for_a_pod_that_has_its_sidecar() -> None:
    operator = Operator()
    async with backend("one") as one, backend("two") as two, operator.up() as url, pod(url) as beside_it:
        operator.put(snapshot(beside_it.port, one))
        await beside_it.until(lambda: beside_it.plane.ready and next(iter(beside_it.plane.upstreams)).known == 1)
        operator.put(snapshot(beside_it.port, two, mode="Gateway", generation=2))
        await beside_it.until(lambda: beside_it.plane.snapshots[KEY][0].generation == 2)

        status, said = await beside_it.ask()

        assert status == 200
        assert isinstance(said, dict)
        assert said["name"] == "two"
        assert [address for address in beside_it.plane.addresses if address[0] == ADDRESS] == [
            (ADDRESS, beside_it.port)
        ]


@pytest.mark.parametrize("name", ["shop", "shop.store", "shop.store.svc", "SHOP.store.svc.cluster.local"])
async def test_the_forward_proxy_serves_each_name_of_a_service(name: str) -> None:
    operator = Operator()
    async with backend("one") as one, operator.up() as url, pod(url) as beside_it:
        operator.put(snapshot(beside_it.port, one))
        await beside_it.until(lambda: beside_it.plane.ready and next(iter(beside_it.plane.upstreams)).known == 1)

        status, said = await beside_it.ask_by_proxy(f"http://{name}:{beside_it.port}/")

        assert status == 200
        assert isinstance(said, dict)
        assert (said["name"], said["for"]) == ("one", POD)


@pytest.mark.parametrize("authority", ["example.com", "shop", "shop:1", "shop.other:{port}", "shop:x"])
async def test_the_forward_proxy_refuses_all_else(authority: str) -> None:
    operator = Operator()
    async with backend("one") as one, operator.up() as url, pod(url) as beside_it:
        operator.put(snapshot(beside_it.port, one))
        await beside_it.until(lambda: beside_it.plane.ready)
        reader, writer = await asyncio.open_connection("127.0.0.1", beside_it.forward)
        host = authority.format(port=beside_it.port)
        writer.write(f"GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())

        answer = await asyncio.wait_for(reader.read(), LIMIT)
        writer.close()
        await writer.wait_closed()

        assert answer.startswith((b"HTTP/1.1 403 ", b"HTTP/1.1 400 "))


async def test_one_connection_to_the_forward_proxy_asks_for_a_service_again_and_again() -> None:
    operator = Operator()
    async with backend("one") as one, operator.up() as url, pod(url) as beside_it:
        operator.put(snapshot(beside_it.port, one))
        await beside_it.until(lambda: beside_it.plane.ready and next(iter(beside_it.plane.upstreams)).known == 1)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1)) as session:
            for _ in range(3):
                url = f"http://shop:{beside_it.port}/"
                async with session.get(url, proxy=f"http://127.0.0.1:{beside_it.forward}") as response:
                    assert response.status == 200

        await beside_it.until(lambda: not beside_it.plane.fronts)
        assert all(lane.connections == 0 for lane in beside_it.plane.lanes)


class Plain:
    """A connection to the forward proxy, bare."""

    def __init__(self, beside_it: Pod, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.request = f"GET / HTTP/1.1\r\nHost: shop:{beside_it.port}\r\n\r\n".encode()
        self._reader = reader

    async def status(self) -> int:
        """Of the next answer."""
        head = await asyncio.wait_for(self._reader.readuntil(b"\r\n\r\n"), LIMIT)
        length = re.search(rb"content-length: (\d+)", head.lower())
        assert length is not None
        await self._reader.readexactly(int(length[1]))
        return int(head.split()[1])

    async def rest(self) -> bytes:
        """What comes up to the FIN; ConnectionResetError if there is none."""
        return await asyncio.wait_for(self._reader.read(), LIMIT)


@contextlib.asynccontextmanager
async def plain(timeouts: Timeouts | None = None) -> AsyncIterator[tuple[Pod, Plain]]:
    operator = Operator()
    async with backend("one") as one, operator.up() as url, pod(url) as beside_it:
        operator.put(replace(snapshot(beside_it.port, one), timeouts=timeouts or Timeouts()))
        await beside_it.until(lambda: beside_it.plane.ready and next(iter(beside_it.plane.upstreams)).known == 1)
        client = Plain(beside_it, *await asyncio.open_connection("127.0.0.1", beside_it.forward))
        try:
            yield beside_it, client
        finally:
            client.writer.close()
            with contextlib.suppress(ConnectionError):
                await client.writer.wait_closed()
        assert beside_it.plane.telemetry.bugs == 0


async def test_a_head_that_comes_to_the_forward_proxy_in_pieces_is_served() -> None:
    async with plain() as (beside_it, client):
        client.writer.write(client.request[:10])
        await beside_it.until(lambda: beside_it.plane.memory.held == 10)
        client.writer.write(client.request[10:])

        assert await client.status() == 200


async def test_a_proxy_with_an_idle_client_on_its_forward_proxy_drains() -> None:
    async with plain() as (beside_it, client):
        client.writer.write(client.request)
        assert await client.status() == 200

        assert await asyncio.wait_for(drain(beside_it.plane, asyncio.Event()), LIMIT) == 0

        assert await client.rest() == b""


async def test_a_service_with_an_idle_client_on_the_forward_proxy_is_forgotten() -> None:
    async with plain() as (beside_it, client):
        client.writer.write(client.request)
        assert await client.status() == 200

        await beside_it.plane.forget(KEY)

        assert await client.rest() == b""
        assert not beside_it.plane.lanes


async def test_a_client_that_is_idle_for_too_long_on_the_forward_proxy_is_closed_cleanly() -> None:
    async with plain(Timeouts(idle=0.1)) as (_, client):
        client.writer.write(client.request)
        assert await client.status() == 200

        assert await client.rest() == b""


async def test_a_forward_proxy_without_its_port_is_told() -> None:
    plane = DataPlane(ProxySettings(), Telemetry())
    with socket.create_server(("127.0.0.1", 0)) as taken:
        sidecar = Sidecar(services=(), domain="cluster.local", start_timeout=1, forward_proxy=taken.getsockname()[:2])
        with pytest.raises(AdminError, match="can't listen"):
            await beside.follow(plane, Settings(url="http://127.0.0.1:9", namespace="store", names=()), sidecar)
    plane.close()


def test_a_service_is_read_as_the_injector_writes_it() -> None:
    assert service("shop=127.64.0.1:80/HTTP/http,9000/TCP/raw") == SidecarService(
        "shop", "127.64.0.1", (SidecarPort(80, "HTTP", "http"), SidecarPort(9000, "TCP", "raw"))
    )


@pytest.mark.parametrize("text", ["shop", "shop=10.0.0.1:80/HTTP/http", "shop=127.0.0.1:80", "shop=127.0.0.1:0/HTTP/a"])
def test_a_service_written_wrongly_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=" is not "):
        service(text)


async def test_a_proxy_that_others_run_answers_503_too_when_its_object_is_gone(tmp_path: Path) -> None:
    operator, port = Operator(), free_port()
    token = tmp_path / "token"
    token.write_text("token")
    async with backend("one") as one, operator.up() as url:
        plane = DataPlane(ProxySettings(host="127.0.0.1"), Telemetry())
        settings = Settings(url=url, namespace="store", names=("shop",), token=token)
        following = asyncio.create_task(controlled.follow(plane, settings))
        running = Pod(plane, port, 0)
        external = snapshot(port, one, mode="External")
        ports = tuple(replace(each, listen=port) for each in external.ports)
        operator.put(replace(external, ports=ports, address=""))
        await running.until(lambda: plane.ready)
        operator.hub.gone(KEY)
        await running.until(lambda: next(iter(plane.upstreams)).known == 0)

        async with aiohttp.ClientSession() as session:
            answer = await _answer(session.get(f"http://127.0.0.1:{port}/"))
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await plane.stop_listening()
        plane.close()

    assert answer == (503, "ServiceGone: the BalancedService has been deleted.\n")


@contextlib.asynccontextmanager
async def gateway(url: str, tmp_path: Path, *, again: float = controlled.AGAIN) -> AsyncIterator[DataPlane]:
    token = tmp_path / "token"
    token.write_text("token")
    plane = DataPlane(ProxySettings(host="127.0.0.1"), Telemetry())
    settings = Settings(url=url, namespace="store", names=("shop",), token=token)
    following = asyncio.create_task(controlled.follow(plane, settings, again=again))
    try:
        yield plane
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await plane.stop_listening()
        plane.close()


def at_gateway(port: int, target: int, generation: int = 1) -> Snapshot:
    found = snapshot(80, target, mode="Gateway", generation=generation)
    return replace(found, address="", ports=tuple(replace(each, listen=port) for each in found.ports))


async def test_a_gateway_listens_where_clients_find_it_until_it_is_ended_though_its_object_is_a_sidecar_now(
    tmp_path: Path,
) -> None:
    operator, port = Operator(), free_port()
    async with (
        backend("one") as one,
        backend("two") as two,
        operator.up() as url,
        gateway(url, tmp_path) as plane,
        aiohttp.ClientSession() as session,
    ):
        running = Pod(plane, port, 0)
        operator.put(at_gateway(port, one))
        await running.until(lambda: plane.ready and next(iter(plane.upstreams)).known == 1)
        operator.put(snapshot(80, two, generation=2))
        await running.until(lambda: plane.snapshots[KEY][0].generation == 2)

        status, said = await _answer(session.get(f"http://127.0.0.1:{port}/"))
        grace, _ = terms(each for each, _, _ in plane.snapshots.values())

        assert (status, list(plane.addresses)) == (200, [("127.0.0.1", port)])
        assert isinstance(said, dict)
        assert said["name"] == "two"
        assert grace > 0


async def test_a_gateway_that_was_first_told_of_the_mode_before_listens_where_it_should_later(tmp_path: Path) -> None:
    operator, port, before = Operator(), free_port(), free_port(ADDRESS)
    async with backend("one") as one, operator.up() as url, gateway(url, tmp_path) as plane:
        running = Pod(plane, port, 0)
        operator.put(snapshot(before, one))
        await running.until(lambda: plane.ready)
        operator.put(at_gateway(port, one, generation=2))
        await running.until(lambda: plane.snapshots[KEY][0].generation == 2)

        assert list(plane.addresses) == [("127.0.0.1", port)]
