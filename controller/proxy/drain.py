"""How a proxy leaves without losing a request.

Readiness goes first, while the listeners stay open until the cluster has stopped sending; each answer says
`Connection: close`. Then the sites stop (closing a listener resets what is in its accept queue, so never earlier),
idle connections close, and what is in flight has its time. The rest is cut, as truncation, and counted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from typing import Any

from controller.model.snapshot import Snapshot
from controller.proxy.plane import DataPlane

log = logging.getLogger(__name__)


async def drain(plane: DataPlane, hurry: asyncio.Event) -> int:
    """Leave; `hurry` ends the waiting. Returns how many connections were cut."""
    grace, patience = terms(snapshot for snapshot, _, _ in plane.snapshots.values())
    log.info("draining", extra={"accept_grace": grace, "drain": patience, "clients": len(plane.fronts)})
    plane.announce()
    await _at_most(grace, hurry.wait())
    await plane.stop_listening()
    await _at_most(patience, _either(plane.emptied(), hurry.wait()))
    left = tuple(plane.fronts)
    for front in left:
        plane.telemetry.drain_cut += 1
        front.cut()
    await _at_most(plane.settings.flush, plane.emptied())  # what was cut may still be flushing
    log.info("drained", extra={"cut": len(left)})
    return len(left)


def terms(snapshots: Iterable[Snapshot]) -> tuple[float, float]:
    """Seconds of grace, and of drain: the longest of all objects.

    No grace beside a client: the kubelet stops a sidecar when its clients have ended, and the pod waits for it.
    """
    listed = list(snapshots)
    grace = max((each.proxy.accept_grace for each in listed if each.mode != "Sidecar"), default=0.0)
    return grace, max((each.proxy.drain for each in listed), default=0.0)


async def _at_most(seconds: float, wait: Coroutine[Any, Any, Any]) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await wait


async def _either(*waits: Coroutine[Any, Any, Any]) -> None:
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
