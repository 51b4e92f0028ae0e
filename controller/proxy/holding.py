"""What is put in force of a configuration whose ports can't all be had."""

from __future__ import annotations

from msgspec.structs import replace

from controller.model.snapshot import Snapshot
from controller.proxy.hosting import PortInUse
from controller.proxy.plane import Plane


def at_ports_of(snapshot: Snapshot, before: Snapshot) -> Snapshot:
    """The same, listened for where `before` is: at those of its ports that `before` has by name."""
    numbers = {port.name: port.listen for port in before.ports}
    ports = tuple(replace(port, listen=numbers[port.name]) for port in snapshot.ports if port.name in numbers)
    return replace(snapshot, mode=before.mode, address=before.address, ports=ports)


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
            wanted = {(port.name, port.protocol) for port in snapshot.ports}
            had = tuple(port for port in known[0].ports if (port.name, port.protocol) in wanted)
            if had:
                await plane.apply(at_ports_of(snapshot, replace(known[0], ports=had)))
        raise
