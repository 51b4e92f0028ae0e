"""What is put in force of a configuration whose ports can't all be had."""

from __future__ import annotations

from msgspec.structs import replace

from controller.model.snapshot import Snapshot
from controller.proxy.hosting import PortInUse
from controller.proxy.plane import Plane


async def apply_or_hold(plane: Plane, snapshot: Snapshot) -> bool:
    """Put it in force; False if it was already.

    Raises PortInUse. Then the ports are those of before, and all else, endpoints above all, is in force on them: they
    change with every rollout, and one port more must not send the others' requests to pods that are gone.
    """
    try:
        return await plane.apply(snapshot)
    except PortInUse:
        known = plane.snapshots.get(snapshot.key)
        if known is not None:
            had = {(port.name, port.protocol): port.listen for port in known[0].ports}
            wanted = [(port, had.get((port.name, port.protocol))) for port in snapshot.ports]
            ports = tuple(replace(port, listen=listen) for port, listen in wanted if listen is not None)
            if ports:
                await plane.apply(replace(snapshot, ports=ports, address=known[0].address, mode=known[0].mode))
        raise
