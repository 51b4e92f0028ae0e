"""The proxy as a process: signals, descriptors, admin listeners, the configuration task, and the way out."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import msgspec
from aiodns import DNSResolver
from aiohttp import web

from controller import admin
from controller.proxy import report
from controller.proxy.descriptors import raise_descriptor_limit
from controller.proxy.drain import drain
from controller.proxy.fleet import Fleet
from controller.proxy.health import HealthChecks
from controller.proxy.plane import DataPlane, Plane
from controller.proxy.resolver import Resolver
from controller.settings import ProxySettings
from controller.telemetry import Telemetry

log = logging.getLogger(__name__)

# Keeps the plane's configuration current until it is cancelled. It is handed in: the proxy doesn't know the source.
Feed = Callable[[Plane], Coroutine[Any, Any, None]]


async def run(settings: ProxySettings, feed: Feed) -> None:
    """Serve until a signal, then drain; a second one ends the drain. Raises what the feed raises."""
    plane = Fleet(settings, Telemetry()) if settings.workers > 1 else DataPlane(settings, Telemetry())
    room = raise_descriptor_limit()
    stop, hurry = asyncio.Event(), asyncio.Event()

    def stopped() -> None:
        (hurry if stop.is_set() else stop).set()

    ending = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as under nohup
        ending.append(signal.SIGHUP)  # the terminal was closed
    for number in ending:
        plane.loop.add_signal_handler(number, stopped)
    runners: list[web.AppRunner] = []
    running: list[asyncio.Task[None]] = []
    try:
        runners += await _admin(plane, settings)
        async with asyncio.TaskGroup() as tasks:
            if isinstance(plane, Fleet):
                running.append(tasks.create_task(plane.run(), name="workers"))
            else:
                plane.client_room = room
            running += [
                tasks.create_task(feed(plane), name="configuration"),
                tasks.create_task(HealthChecks(plane.upstreams, Random()).run(), name="health checks"),
                tasks.create_task(Resolver(plane.upstreams, DNSResolver, Random()).run(), name="resolver"),
            ]
            # What exists now lives as long as the process: no collection needs to look at it again.
            gc.freeze()
            await stop.wait()
            await (plane.drain(hurry) if isinstance(plane, Fleet) else drain(plane, hurry))
            for task in running:
                task.cancel()
    finally:
        await plane.stop_listening()
        plane.close()
        for runner in runners:
            await runner.cleanup()


async def _admin(plane: Plane, settings: ProxySettings) -> list[web.AppRunner]:
    view = admin.View(
        ready=lambda: plane.ready,
        registry=plane.telemetry.registry(),
        config=lambda: configuration(plane),
        endpoints=lambda: endpoints(plane),
    )
    runners = []
    for option, address in (("--admin", settings.admin), ("--health", settings.health)):
        if address is not None:
            app = admin.application(view, full=option == "--admin")
            runners.append(await admin.serve(app, *address, option))
    return runners


def configuration(plane: Plane) -> dict[str, object]:
    """What `/config` shows: the snapshots in force, every default filled in."""
    return {
        f"{namespace}/{name}": {"version": version, "applied": applied, "snapshot": _without_secrets(snapshot)}
        for (namespace, name), (snapshot, version, applied) in plane.snapshots.items()
    }


def _without_secrets(snapshot: Any) -> Any:
    if snapshot.proxy.debug_key is None:
        return snapshot
    return msgspec.structs.replace(snapshot, proxy=msgspec.structs.replace(snapshot.proxy, debug_key="(set)"))


def endpoints(plane: Plane) -> dict[str, object]:
    """What `/endpoints` shows: each upstream's endpoints, as this process sees them."""
    now = plane.loop.time()
    shown: dict[str, object] = {}
    for upstream, idle in plane.idle():
        rows = report.endpoints(upstream, now)
        shown[upstream.name] = [row | {"idleConnections": idle.get(str(row["id"]), 0)} for row in rows]
    return shown
