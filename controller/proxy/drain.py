"""How a proxy leaves without losing a request.

Readiness goes first, while the listeners stay open until the cluster has stopped sending; each answer says
`Connection: close`. Then the sites stop (closing a listener resets what is in its accept queue, so never earlier),
idle connections close, and what is in flight has its time. The rest is cut, as truncation, and counted.
"""

from __future__ import annotations

import asyncio
import logging

from controller.proxy.plane import DataPlane

log = logging.getLogger(__name__)


async def drain(plane: DataPlane) -> int:
    """Leave; returns how many connections were cut."""
    terms = [snapshot.proxy for snapshot, _, _ in plane.snapshots.values()]
    grace = max((proxy.accept_grace for proxy in terms), default=0.0)
    patience = max((proxy.drain for proxy in terms), default=0.0)
    log.info("draining", extra={"accept_grace": grace, "drain": patience, "clients": len(plane.fronts)})
    plane.announce()
    await asyncio.sleep(grace)
    await plane.stop_listening()
    try:
        async with asyncio.timeout(patience):
            await plane.emptied()
    except TimeoutError:
        pass
    left = tuple(plane.fronts)
    for front in left:
        plane.telemetry.drain_cut += 1
        front.cut()
    if left:
        async with asyncio.timeout(plane.settings.flush * 2):  # a cut answer may still be flushing
            await plane.emptied()
    plane.close()
    log.info("drained", extra={"cut": len(left)})
    return len(left)
