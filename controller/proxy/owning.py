"""Which object each address is served for, and what a change of several objects at once comes to. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from controller.model.snapshot import Snapshot, SnapshotPort
from controller.proxy.hosting import Address, Key, PortInUse, address_of, served
from controller.proxy.sidecar import Withdrawn
from controller.settings import ProxySettings


class Plan(NamedTuple):
    snapshots: tuple[tuple[Snapshot, str], ...]  # that aren't in force yet, with their versions
    gone: tuple[Key, ...]
    ports: tuple[tuple[Address, Snapshot, SnapshotPort], ...]  # of these snapshots
    owners: Mapping[Address, Key]  # of all addresses, once the plan is in force

    @property
    def keys(self) -> tuple[Key, ...]:
        return tuple(snapshot.key for snapshot, _ in self.snapshots)


def plan(
    owners: Mapping[Address, Key],
    in_force: Mapping[Key, tuple[Snapshot, str, float]],
    snapshots: Sequence[Snapshot],
    gone: Collection[Key],
    settings: ProxySettings,
) -> Plan:
    """What becomes of `owners` and of what is `in_force`.

    Raises PortInUse where an address is another object's, which doesn't give it up in the same change. Of an object
    that is withdrawn it may be had: nobody is behind it.
    """
    versions = [(snapshot, snapshot.version) for snapshot in snapshots]
    changed = tuple(each for each in versions if each[0].key not in in_force or in_force[each[0].key][1] != each[1])
    ports = tuple((address_of(each, port, settings), each, port) for each, _ in changed for port in each.ports)
    stating = {*gone, *(snapshot.key for snapshot, _ in changed)}
    after = {address: owner for address, owner in owners.items() if owner not in stating}
    ceding: dict[Key, set[Address]] = {}
    for address, snapshot, _ in ports:
        owner = after.setdefault(address, snapshot.key)
        if owner != snapshot.key:
            if owner in stating or not isinstance(in_force[owner][0], Withdrawn):
                raise PortInUse(served(address, owner))
            ceding.setdefault(owner, set()).add(address)
    if ceding:
        left = [_without(in_force[owner][0], addresses, settings) for owner, addresses in ceding.items()]
        emptied = [each.key for each in left if not each.ports]
        return plan(owners, in_force, [*snapshots, *(each for each in left if each.ports)], [*gone, *emptied], settings)
    return Plan(changed, tuple(gone), ports, after)


def _without(snapshot: Snapshot, addresses: Collection[Address], settings: ProxySettings) -> Snapshot:
    ports = tuple(port for port in snapshot.ports if address_of(snapshot, port, settings) not in addresses)
    return replace(snapshot, ports=ports)
