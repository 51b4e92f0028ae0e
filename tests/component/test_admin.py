"""The admin listener's options are in force: aiohttp only warns of a keyword that it doesn't know."""

from __future__ import annotations

import socket

import aiohttp
import pytest

from controller import admin
from controller.telemetry import Telemetry


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def view(*, ready: bool) -> admin.View:
    return admin.View(ready=lambda: ready, registry=Telemetry().registry(), config=lambda: {"a": 1}, endpoints=list)


async def test_a_live_connection_has_every_option() -> None:
    port = free_port()
    runner = await admin.serve(admin.application(view(ready=True), full=True), "127.0.0.1", port, "--admin")
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/config") as response:
        assert await response.json() == {"a": 1}
        assert runner.server is not None
        (connection,) = runner.server.connections
        found = {
            "access_log": connection.access_log,
            "keepalive_timeout": connection.keepalive_timeout,
            "lingering_time": connection._lingering_time,
            "handler_cancellation": runner.server.handler_cancellation,
        }
    await runner.cleanup()

    assert found == {name: admin.OPTIONS[name] for name in found}


@pytest.mark.parametrize(("ready", "status"), [(True, 200), (False, 503)])
async def test_readiness_is_asked_at_every_probe(ready: bool, status: int) -> None:
    port = free_port()
    runner = await admin.serve(admin.application(view(ready=ready), full=False), "127.0.0.1", port, "--admin")
    async with aiohttp.ClientSession() as session:
        statuses = {}
        for path in ("readyz", "healthz", "config", "endpoints"):
            async with session.get(f"http://127.0.0.1:{port}/{path}") as response:
                statuses[path] = response.status
    await runner.cleanup()

    assert statuses == {"readyz": status, "healthz": 200, "config": 404, "endpoints": 404}


async def test_a_port_that_is_taken_is_told_clearly() -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        port = sock.getsockname()[1]

        with pytest.raises(admin.AdminError, match=f"can't listen on 127.0.0.1:{port}"):
            await admin.serve(admin.application(view(ready=True), full=True), "127.0.0.1", port, "--admin")
