"""Which object each address is served for, and what a change of several objects at once comes to. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from controller.model.snapshot import Snapshot, SnapshotPort
from controller.proxy.hosting import Address, Key, address_of
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
    snapshots: Iterable[Snapshot],
    gone: Collection[Key],
    settings: ProxySettings,
) -> Plan:
    """What becomes of `owners` and of what is `in_force`."""
    versions = [(snapshot, snapshot.version) for snapshot in snapshots]
    changed = tuple(each for each in versions if each[0].key not in in_force or in_force[each[0].key][1] != each[1])
    ports = tuple((address_of(each, port, settings), each, port) for each, _ in changed for port in each.ports)
    stating = {*gone, *(snapshot.key for snapshot, _ in changed)}
    others = {address: owner for address, owner in owners.items() if owner not in stating}
    return Plan(changed, tuple(gone), ports, others | {address: each.key for address, each, _ in ports})
