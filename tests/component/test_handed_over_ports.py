"""An edit of the file that gives a service's port to another: nothing is lost, and each port is its service's."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from threading import Thread

import pytest
from msgspec.structs import replace

from controller.model.snapshot import Snapshot, SnapshotBackend, SnapshotPort
from controller.proxy.moving import _MovingReader
from controller.standalone import passing
from tests.component.rig import OK, Backend, Rig, Wire, recv_head, send, serve, wait_for
from tests.component.rig import signal as told
from tests.component.test_proxy_command import FILE, LIMIT, Proxy, Server, backends, fetch, free_port, start, until
from tests.component.test_workers import children

__all__ = ["backends", "start"]  # fixtures

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


def service(name: str, port: int, backend: int) -> str:
    return FILE.format(port=port, backend=backend).replace("name: shop", f"name: {name}")


def both(ports: Sequence[int], backends: list[Server]) -> str:
    """`aa` on the first port before the first backend, `bb` on the second before the second."""
    one, two = (server.server_port for server in backends)
    return f"{service('aa', ports[0], one)}---\n{service('bb', ports[1], two)}"


def serving(proxy: Proxy, workers: str) -> None:
    if workers != "1":
        until(lambda: proxy.log.read_text().count("worker serves") == int(workers))


@contextmanager
def asked(*ports: int) -> Iterator[Counter[object]]:
    """What is answered on each port meanwhile, over new connections and over one that is kept."""
    said: Counter[object] = Counter()
    ended = False

    def anew(port: int) -> None:
        while not ended:
            try:
                said[port, fetch(f"http://127.0.0.1:{port}/")[1]] += 1
            except OSError as error:
                said[repr(error)] += 1

    def kept(port: int) -> None:
        client = HTTPConnection("127.0.0.1", port, timeout=LIMIT)
        while not ended:
            try:
                client.request("GET", "/")
                said[port, client.getresponse().read().decode()] += 1
            except OSError as error:
                said[repr(error)] += 1
        client.close()

    threads = [Thread(target=ask, args=(port,)) for port in ports for ask in (anew, kept)]
    for thread in threads:
        thread.start()
    try:
        yield said
    finally:
        ended = True
        for thread in threads:
            thread.join()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_services_that_swap_their_ports_lose_no_request_and_each_port_serves_its_own(
    tmp_path: Path, start: Callable[..., Proxy], backends: list[Server], workers: str
) -> None:
    path, ports = tmp_path / "shop.yaml", [free_port(), free_port()]
    texts = [both(ports, backends), both(ports[::-1], backends)]
    path.write_text(texts[0])
    proxy = start(path, "--workers", workers)
    serving(proxy, workers)

    with asked(*ports) as said:
        for swaps in range(1, 4):
            before = proxy.metric("steelyard_config_applied_total")
            path.write_text(texts[swaps % 2])
            until(lambda before=before: proxy.metric("steelyard_config_applied_total") == before + 2)
            until(lambda: len(said) == 4)  # each of both
    with asked(*ports) as after:
        until(lambda: len(after) == 2)

    assert set(said) == {(port, name) for port in ports for name in ("one", "two")}
    assert set(after) == {(ports[1], "one"), (ports[0], "two")}
    assert "refused" not in proxy.log.read_text()
    assert proxy.stop() == 0


def test_a_worker_that_dies_after_services_have_swapped_ports_is_replaced(
    tmp_path: Path, start: Callable[..., Proxy], backends: list[Server]
) -> None:
    path, ports = tmp_path / "shop.yaml", [free_port(), free_port()]
    path.write_text(both(ports, backends))
    proxy = start(path, "--workers", "2")
    serving(proxy, "2")
    path.write_text(both(ports[::-1], backends))
    until(lambda: fetch(f"http://127.0.0.1:{ports[0]}/") == (200, "two"))

    for deaths in (1, 2):
        os.kill(children(proxy.process.pid)[0], signal.SIGKILL)
        until(lambda deaths=deaths: proxy.log.read_text().count("worker serves") == 2 + deaths)
    said = [fetch(f"http://127.0.0.1:{port}/") for port in ports for _ in range(20)]

    assert said == [(200, "two")] * 20 + [(200, "one")] * 20
    assert proxy.metric("steelyard_worker_restarts_total") == 2
    assert "can't be taken" not in proxy.log.read_text()
    assert proxy.stop() == 0


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_service_that_takes_a_new_name_keeps_its_port_open(
    tmp_path: Path, start: Callable[..., Proxy], backends: list[Server], workers: str
) -> None:
    path, port = tmp_path / "shop.yaml", free_port()
    path.write_text(service("aa", port, backends[0].server_port))
    proxy = start(path, "--workers", workers)
    serving(proxy, workers)

    with asked(port) as said:
        for name in ("bb", "cc", "dd"):
            path.write_text(service(name, port, backends[name == "cc"].server_port))
            until(lambda name=name: list(proxy.config()) == [f"store/{name}"])

    assert set(said) == {(port, "one"), (port, "two")}
    assert proxy.stop() == 0


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_swap_that_needs_a_taken_port_as_well_is_made_once_that_is_free(
    tmp_path: Path, start: Callable[..., Proxy], backends: list[Server], workers: str
) -> None:
    path, ports = tmp_path / "shop.yaml", [free_port(), free_port()]
    one, two = (server.server_port for server in backends)
    path.write_text(both(ports, backends))
    proxy = start(path, "--workers", workers)
    serving(proxy, workers)

    with asked(*ports) as said:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            third = taken.getsockname()[1]
            aa = service("aa", ports[1], one).replace(
                f"{{port: {ports[1]}}}", f"{{port: {ports[1]}}}, {{name: b, port: {third}}}"
            )
            aa = aa.replace(f", port: {one}}}", "}").replace("port: ", f"targetPort: {one}, port: ")
            path.write_text(f"{aa}---\n{service('bb', ports[0], two)}")
            until(lambda: f"port {third} on 127.0.0.1 can't be taken" in proxy.log.read_text())
            before = set(said)
        until(lambda: fetch(f"http://127.0.0.1:{third}/") == (200, "one"))
        until(lambda: len(said) == 4)

    assert before == {(ports[0], "one"), (ports[1], "two")}
    assert set(said) == {(port, name) for port in ports for name in ("one", "two")}
    assert proxy.stop() == 0


class Swapped:
    """Two services of one proxy, `one` and `two`, with a backend and a port each."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.ports = [free_port(), free_port()]

    async def open(self) -> None:
        await self.rig.open(backends=2)
        await self.rig.plane.forget(("store", "shop"))
        await self.apply()

    async def apply(self, protocol: str = "HTTP") -> None:
        await self.rig.plane.change(
            [
                self._snapshot(name, port, backend, protocol)
                for name, port, backend in zip(("one", "two"), self.ports, self.rig.backends, strict=True)
            ]
        )

    def _snapshot(self, name: str, listen: int, backend: Backend, protocol: str) -> Snapshot:
        listed = SnapshotBackend(name="all", weight=1, weight_per="Endpoint", endpoints=(self.rig.endpoint(backend),))
        tcp = protocol == "TCP" and name == "one"
        port = SnapshotPort(name="http", port=80, listen=listen, backends=(listed,), protocol="TCP" if tcp else "HTTP")
        return Snapshot(namespace="store", name=name, ports=(port,))

    async def swap(self, protocol: str = "HTTP") -> None:
        self.ports.reverse()
        await self.apply(protocol)

    async def connect(self, port: int) -> Wire:
        _, wire = await self.rig.loop.create_connection(Wire, "127.0.0.1", port)
        self.rig.clients.append(wire)
        return wire

    @property
    def connections(self) -> dict[str, int]:
        return {lane.service: lane.connections for lane in self.rig.plane.lanes}


async def test_clients_that_are_there_when_ports_are_swapped_are_served_by_their_ports_service(rig: Rig) -> None:
    shops = Swapped(rig)
    await shops.open()
    one, two = rig.backends
    asking, go = asyncio.Event(), asyncio.Event()
    one.script(recv_head(), told(asking), wait_for(go), send(OK), serve(OK))
    idle, busy = [await shops.connect(shops.ports[0]) for _ in range(2)]
    await busy.send(GET)
    await asking.wait()
    await idle.send(GET[:10])  # a head has begun
    await rig.reached(lambda: rig.plane.memory.held == 10)

    await shops.swap()
    await idle.send(GET[10:])
    assert (await idle.response()).status == 200
    go.set()
    assert (await busy.response()).status == 200
    for client in (busy, idle):
        await client.send(GET)
        assert (await client.response()).status == 200

    assert len(one.connections) == 1
    assert len(two.connections) >= 1
    assert shops.connections == {"store/one": 0, "store/two": 2}
    assert not any(isinstance(front.reader, _MovingReader) for front in rig.plane.fronts)  # type: ignore[union-attr]


async def test_a_busy_client_of_a_port_that_is_swapped_and_back_stays_where_it_was(rig: Rig) -> None:
    shops = Swapped(rig)
    await shops.open()
    asking, go = asyncio.Event(), asyncio.Event()
    rig.backends[0].script(recv_head(), told(asking), wait_for(go), send(OK), serve(OK))
    client = await shops.connect(shops.ports[0])
    await client.send(GET)
    await asking.wait()

    await shops.swap()
    await shops.swap()
    go.set()
    assert (await client.response()).status == 200
    await client.send(GET)
    assert (await client.response()).status == 200

    assert rig.backends[1].connections == []
    assert shops.connections == {"store/one": 1, "store/two": 0}


async def test_an_idle_client_of_a_port_that_speaks_another_protocol_now_is_closed(rig: Rig) -> None:
    shops = Swapped(rig)
    await shops.open()
    client = await shops.connect(shops.ports[1])
    await rig.reached(lambda: shops.connections["store/two"] == 1)

    await shops.swap(protocol="TCP")

    assert await client.to_end() == ("FIN", b"")


async def test_a_client_of_a_port_that_takes_a_new_name_goes_on(rig: Rig) -> None:
    await rig.open()
    client = await rig.connect()
    await client.send(GET)
    assert (await client.response()).status == 200

    (port,) = rig.snapshot().ports
    await rig.plane.apply(rig.snapshot(ports=(replace(port, name="other"),)))
    await client.send(GET)

    assert (await client.response()).status == 200
    assert [(lane.upstream.name, lane.connections) for lane in rig.plane.lanes] == [("store/shop/other", 1)]


def test_only_services_that_pass_a_port_on_change_together() -> None:
    def each(**listens: int) -> list[Snapshot]:
        return [
            Snapshot(namespace="s", name=name, ports=(SnapshotPort(name="p", port=1, listen=listen),))
            for name, listen in listens.items()
        ]

    before = each(a=1, b=2, c=3, d=4, e=5, gone=6)
    after = each(a=2, b=1, c=4, d=5, e=7, new=6)

    groups = passing(before, after)

    assert [{"a", "b"}, {"c", "d", "e"}, {"gone", "new"}] == [{name for _, name in group} for group in groups]
    assert passing(before, before) == []
