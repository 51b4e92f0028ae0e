"""The admin listener: `/healthz /readyz /metrics /config /endpoints`. For people and probes, never for traffic.

`/config` and `/endpoints` name addresses and settings, so they are served on a loopback listener only; the health
listener, which probes reach, has the first three.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import msgspec
from aiohttp import http_parser, web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

Report = Callable[[], Any]  # something that msgspec can write as JSON


class AdminError(Exception):
    """The admin listener can't be had; the message says why."""


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What the endpoints show; each is asked at every request."""

    ready: Callable[[], bool]
    registry: CollectorRegistry
    config: Report
    endpoints: Report


# Named here, since aiohttp only logs a warning about a keyword that it doesn't know, and then has none of them.
OPTIONS: dict[str, Any] = {
    "access_log": None,  # the stock one costs more than a proxied request
    "keepalive_timeout": 75.0,  # an hour by default
    "handler_cancellation": True,  # a handler learns that its reader has left
    "auto_decompress": False,
    "lingering_time": 1.0,
}


def application(view: View, *, full: bool) -> web.Application:
    """`full` adds what only the host's own people may see."""

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n") if view.ready() else web.Response(text="not ready\n", status=503)

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(view.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def config(_: web.Request) -> web.Response:
        return _json(view.config())

    async def endpoints(_: web.Request) -> web.Response:
        return _json(view.endpoints())

    routes = [web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)]
    if full:
        routes += [web.get("/config", config), web.get("/endpoints", endpoints)]
    app = web.Application()
    app.add_routes(routes)
    return app


async def serve(app: web.Application, host: str, port: int, option: str) -> web.AppRunner:
    """Listen; `cleanup()` on the result ends it. Raises AdminError, which names `option` as the mend."""
    if not _has_c_parser():
        raise AdminError("aiohttp runs without its C parser: install a wheel for this platform")
    runner = web.AppRunner(app, handle_signals=False, shutdown_timeout=1.0, **OPTIONS)
    await runner.setup()
    try:
        await web.SockSite(runner, bound(host, port)).start()
    except OSError as error:
        await runner.cleanup()
        reason = (error.strerror or str(error)).partition(" (while")[0]
        raise AdminError(f"can't listen on {host}:{port}: {reason}; {option} names another address") from error
    return runner


def bound(host: str, port: int) -> socket.socket:
    """A listening socket. `::` is both families where the kernel has both: asyncio alone would make it IPv6 only."""
    if host == "::" and not socket.has_dualstack_ipv6():
        host = "0.0.0.0"  # noqa: S104 - all addresses are what was asked for
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, dualstack_ipv6=host == "::")


def _has_c_parser() -> bool:
    return http_parser.HttpRequestParser is not http_parser.HttpRequestParserPy


def _json(value: object) -> web.Response:
    body = msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
    return web.Response(body=body, content_type="application/json")
