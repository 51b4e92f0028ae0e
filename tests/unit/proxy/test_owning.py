"""Whose an address is, and how it passes from one object to another."""

from __future__ import annotations

import pytest

from controller.model.snapshot import Snapshot, SnapshotBackend, SnapshotPort
from controller.proxy.hosting import PortInUse
from controller.proxy.owning import Plan, plan
from controller.proxy.sidecar import withdrawn
from controller.settings import ProxySettings

SETTINGS = ProxySettings(host="127.0.0.1")


def shop(name: str, *listens: int) -> Snapshot:
    backends = (SnapshotBackend(name="all", weight=1, weight_per="Endpoint"),)
    ports = tuple(SnapshotPort(name=f"p{listen}", port=80, listen=listen, backends=backends) for listen in listens)
    return Snapshot(namespace="store", name=name, ports=ports)


class Proxy:
    """What a plane knows of its objects."""

    def __init__(self, *snapshots: Snapshot) -> None:
        self.owners: dict[tuple[str, int], tuple[str, str]] = {}
        self.in_force: dict[tuple[str, str], tuple[Snapshot, str, float]] = {}
        for snapshot in snapshots:
            self.change(snapshot)

    def change(self, *snapshots: Snapshot, gone: tuple[str, ...] = ()) -> Plan:
        found = plan(self.owners, self.in_force, snapshots, [("store", name) for name in gone], SETTINGS)
        self.owners = dict(found.owners)
        self.in_force |= {snapshot.key: (snapshot, version, 0.0) for snapshot, version in found.snapshots}
        for key in found.gone:
            self.in_force.pop(key, None)
        return found

    @property
    def served(self) -> dict[int, str]:
        return {port: name for (_, port), (_, name) in sorted(self.owners.items())}


def test_a_port_of_another_object_is_refused_by_its_name_and_nothing_changes() -> None:
    proxy = Proxy(shop("a", 1, 2))

    with pytest.raises(PortInUse, match=r"port 2 on 127\.0\.0\.1 is served for store/a already"):
        proxy.change(shop("b", 3, 2))

    assert proxy.served == {1: "a", 2: "a"}


def test_ports_are_swapped_by_one_change_and_by_no_other_way() -> None:
    proxy = Proxy(shop("a", 1), shop("b", 2))

    with pytest.raises(PortInUse):
        proxy.change(shop("a", 2))
    proxy.change(shop("a", 2), shop("b", 1))

    assert proxy.served == {1: "b", 2: "a"}


def test_an_object_that_goes_leaves_its_port_to_one_that_comes() -> None:
    proxy = Proxy(shop("a", 1, 2))

    found = proxy.change(shop("b", 1), gone=("a",))

    assert (found.keys, found.gone, proxy.served) == ((("store", "b"),), (("store", "a"),), {1: "b"})


def test_a_change_that_gives_one_port_to_two_is_refused() -> None:
    with pytest.raises(PortInUse, match="served for store/a already"):
        Proxy().change(shop("a", 1), shop("b", 1))


def test_what_is_in_force_already_is_no_change() -> None:
    proxy = Proxy(shop("a", 1))

    found = proxy.change(shop("a", 1), shop("b", 2))

    assert (found.keys, proxy.served) == ((("store", "b"),), {1: "a", 2: "b"})


def test_a_withdrawn_object_gives_up_what_another_asks_for() -> None:
    proxy = Proxy(shop("a", 1, 2))
    proxy.change(withdrawn(shop("a", 1, 2)))

    assert proxy.change(shop("b", 1)).keys == (("store", "b"), ("store", "a"))
    assert proxy.served == {1: "b", 2: "a"}
    assert proxy.change(shop("b", 1, 2)).gone == (("store", "a"),)
    assert proxy.served == {1: "b", 2: "b"}
    with pytest.raises(PortInUse, match="served for store/b already"):
        proxy.change(shop("a", 1))
