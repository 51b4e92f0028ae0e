"""A port that can't be had: all else is in force, the mend is told, and it is tried again."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest
from msgspec.structs import replace

from tests.component.test_proxy_command import FILE, Proxy, Server, backends, fetch, free_port, run, start, until
from tests.component.test_sidecar import Operator, Pod, at_gateway, backend, gateway

__all__ = ["backends", "start"]  # fixtures


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--listen-offset", "60000"), "choose a smaller --listen-offset"),
        (("--listen-offset", "60000", "--workers", "2"), "choose a smaller --listen-offset"),
        (("--host", "203.0.113.1"), "203.0.113.1 is no address of this machine; --host names the one to listen on"),
        (("--host", "no.such.host.invalid"), "no.such.host.invalid is no address of this machine; --host names"),
    ],
)
def test_an_address_that_cannot_be_is_told_with_its_mend(tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(FILE.format(port=28080, backend=80))

    done = run("proxy", "--file", str(path), "--admin", "Disabled", *options)

    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("workers", ["1", "2"])
def test_an_edit_that_moves_a_port_over_the_last_one_ends_nothing(
    tmp_path: Path, start: Callable[..., Proxy], backends: list[Server], workers: str
) -> None:
    path, port = tmp_path / "shop.yaml", free_port()
    path.write_text(FILE.format(port=port - 1000, backend=backends[0].server_port))
    proxy = start(path, "--listen-offset", "1000", "--workers", workers)

    path.write_text(FILE.format(port=65000, backend=backends[1].server_port))

    until(lambda: fetch(f"http://127.0.0.1:{port}/") == (200, "two"))
    assert "66000" in proxy.log.read_text()
    assert proxy.stop() == 0


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_port_of_the_file_that_was_taken_is_served_once_it_is_free(
    tmp_path: Path, start: Callable[..., Proxy], backends: list[Server], workers: str
) -> None:
    path, port = tmp_path / "shop.yaml", free_port()
    path.write_text(FILE.format(port=port, backend=backends[0].server_port))
    proxy = start(path, "--workers", workers)

    with socket.create_server(("127.0.0.1", 0)) as taken:
        second = taken.getsockname()[1]
        text = FILE.format(port=port, backend=backends[1].server_port)
        other = text.replace("name: shop", "name: other").replace(str(port), str(second))
        path.write_text(f"{text}---\n{other}")
        until(lambda: proxy.metric("steelyard_config_rejected_total") == 1)
        assert fetch(f"http://127.0.0.1:{port}/") == (200, "two")

    until(lambda: fetch(f"http://127.0.0.1:{second}/") == (200, "two"))
    assert proxy.metric("steelyard_config_rejected_total") == 1
    refusals = [line for line in proxy.log.read_text().splitlines() if "refused" in json.loads(line)["message"]]
    assert len(refusals) == 1
    assert proxy.stop() == 0


async def test_endpoints_stay_in_step_while_a_port_more_is_taken(tmp_path: Path) -> None:
    operator, port = Operator(), free_port()
    async with (
        backend("one") as one,
        backend("two") as two,
        operator.up() as url,
        gateway(url, tmp_path, again=0.05) as plane,
        aiohttp.ClientSession() as session,
    ):
        running = Pod(plane, port, 0)
        operator.put(at_gateway(port, one))
        await running.until(lambda: plane.ready)

        with socket.create_server(("127.0.0.1", 0)) as taken:
            second = taken.getsockname()[1]
            found = at_gateway(port, two, generation=2)
            more = replace(found.ports[0], name="more", port=81, listen=second)
            operator.put(replace(found, ports=(*found.ports, more)))
            await running.until(lambda: operator.report is not None and not operator.report.ack.ok)
            async with session.get(f"http://127.0.0.1:{port}/") as response:
                assert (await response.json())["name"] == "two"
            assert operator.report is not None
            assert str(second) in operator.report.ack.error

        await running.until(lambda: operator.report is not None and operator.report.ack.ok)
        async with session.get(f"http://127.0.0.1:{second}/") as response:
            assert (await response.json())["name"] == "two"
