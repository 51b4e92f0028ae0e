"""The store: what it tells whom, when it opens, and what a list may and may not undo."""

from __future__ import annotations

from typing import Any

import pytest

from controller.kube.store import Listeners, Store
from controller.model.endpoints import grant_record, service_record, slice_record
from tests.component.cluster_objects import balanced, endpoint, service, slice_of

SHOP = ("store", "shop")


class Told:
    def __init__(self) -> None:
        self.published: list[tuple[str, bool]] = []
        self.written: list[str] = []

    def listeners(self) -> Listeners:
        return Listeners(
            publish=lambda key, urgent: self.published.append((key[1], urgent)),
            write=lambda key: self.written.append(key[1]),
        )

    def clear(self) -> None:
        self.published.clear()
        self.written.clear()


def _synced(told: Told, *objects: dict[str, Any]) -> Store:
    store = Store(told.listeners(), {})
    store.begin_list()
    store.end_list(None, objects)
    store.services.replace(None, {})
    store.slices.replace(None, {})
    store.grants.replace(None, {})
    assert store.synced
    told.clear()
    return store


def _put_slice(store: Store, item: dict[str, Any]) -> None:
    meta = item["metadata"]
    store.slices.put((meta["namespace"], meta["name"]), slice_record(item))


@pytest.mark.parametrize("last", ["services", "slices", "grants", "children", "objects"])
def test_nothing_is_told_until_every_kind_had_a_complete_list(last: str) -> None:
    told = Told()
    store = Store(told.listeners(), {})
    opened: list[bool] = []
    store.opened = lambda: opened.append(True)
    children = store.child_table("apps/v1", "Deployment")
    steps = {
        "services": lambda: store.services.replace(None, {}),
        "slices": lambda: store.slices.replace(None, {}),
        "grants": lambda: store.grants.replace(None, {}),
        "children": lambda: children.replace(None, {}),
        "objects": lambda: store.end_list(None, [balanced()]),
    }
    for name, step in steps.items():
        if name != last:
            step()
    store.event("ADDED", balanced())
    assert told.published == []
    assert told.written == []
    assert not store.synced

    steps[last]()

    assert told.published == [("shop", False)]
    assert told.written == ["shop"]
    assert opened == [True]


def test_each_namespace_needs_a_list_of_its_own() -> None:
    store = Store(Told().listeners(), {}, namespaces=["a", "b"])
    for scope in ("a", "b"):
        store.end_list(scope, [])
        store.services.replace(scope, {})
        store.slices.replace(scope, {})
    store.grants.replace("a", {})

    assert store.waiting_for() == ["referencegrants"]


def test_nothing_is_said_to_be_gone_from_a_namespace_that_is_not_watched() -> None:
    everything, one = Store(Told().listeners(), {}), Store(Told().listeners(), {}, namespaces={"store"})

    assert not everything.may_exist(SHOP)
    assert not one.may_exist(SHOP)
    assert one.may_exist(("warehouse", "shop"))


def test_a_slice_concerns_the_objects_that_name_its_service_and_no_other() -> None:
    told = Told()
    store = _synced(told, balanced("shop"), balanced("blog"))

    _put_slice(store, slice_of("shop-v1", "10.0.0.1"))

    assert told.published == [("shop", False)]


def test_an_equal_record_wakes_nobody() -> None:
    told = Told()
    store = _synced(told, balanced())
    _put_slice(store, slice_of("shop-v1", "10.0.0.1", version="1"))
    told.clear()

    _put_slice(store, slice_of("shop-v1", "10.0.0.1", version="2"))

    assert told.published == []


@pytest.mark.parametrize("change", ["gone", "unready", "slice"])
def test_a_lost_endpoint_is_urgent(change: str) -> None:
    told = Told()
    store = _synced(told, balanced())
    _put_slice(store, slice_of("shop-v1", "10.0.0.1", "10.0.0.2"))
    told.clear()

    if change == "gone":
        _put_slice(store, slice_of("shop-v1", "10.0.0.2"))
    elif change == "unready":
        entries = [endpoint("10.0.0.1", ready=False), endpoint("10.0.0.2")]
        _put_slice(store, slice_of("shop-v1", endpoints=entries))
    else:
        store.slices.drop(("store", "shop-v1-abcde"))

    assert told.published == [("shop", True)]


def test_several_slices_of_one_service_are_kept_side_by_side_in_any_order() -> None:
    store = _synced(Told(), balanced())
    _put_slice(store, slice_of("shop-v1", "10.0.0.2", name="two"))
    _put_slice(store, slice_of("shop-v1", "10.0.0.1", name="one"))
    store.slices.drop(("store", "two"))

    assert [each.name for each in store.inputs.slices["store", "shop-v1"]] == ["one"]


def test_a_list_of_slices_without_one_drops_it() -> None:
    told = Told()
    store = _synced(told, balanced())
    _put_slice(store, slice_of("shop-v1", "10.0.0.1"))
    told.clear()

    store.slices.replace(None, {})

    assert store.inputs.slices.get(("store", "shop-v1"), ()) == ()
    assert told.published == [("shop", True)]


def test_a_service_concerns_those_that_name_it() -> None:
    told = Told()
    store = _synced(told, balanced("shop"), balanced("blog"))

    store.services.put(("store", "blog-v1"), service_record(service("blog-v1")))

    assert told.published == [("blog", False)]


def test_a_grant_concerns_those_that_refer_into_its_namespace() -> None:
    told = Told()
    backend = {"name": "far", "service": {"name": "pay", "namespace": "bank"}}
    store = _synced(told, balanced("shop", backends=[backend]), balanced("blog"))
    grant = grant_record({"metadata": {"namespace": "bank", "name": "all"}, "spec": {}})

    store.grants.put(("bank", "all"), grant)
    store.grants.drop(("bank", "all"))

    assert told.published == [("shop", False), ("shop", True)]


def test_a_change_of_status_alone_triggers_nothing() -> None:
    told = Told()
    store = _synced(told, balanced())
    written = balanced(version="2") | {"status": {"endpoints": "1/1", "conditions": []}}

    store.event("MODIFIED", written)

    assert told.published == []
    assert told.written == []
    assert store.owners[SHOP].status == written["status"]


def test_what_the_status_gave_out_is_a_change() -> None:
    told = Told()
    store = _synced(told, balanced())

    store.event("MODIFIED", balanced() | {"status": {"sidecar": {"address": "127.64.0.1"}}})

    assert told.published == [("shop", False)]
    assert {"127.64.0.1": {"shop"}} == store.inputs.claims["store"]
    store.event("DELETED", balanced())
    assert store.inputs.claims == {}


def test_a_ghost_is_dropped_by_the_next_list() -> None:
    told = Told()
    store = _synced(told, balanced("shop"), balanced("ghost"))

    store.begin_list()
    store.end_list(None, [balanced("shop")])

    assert told.published == [("ghost", True)]
    assert list(store.keys) == [SHOP]


def test_a_list_does_not_undo_what_events_said_since_it_was_asked_for() -> None:
    store = _synced(Told(), balanced("old"), balanced("changed"))

    store.begin_list()
    store.event("ADDED", balanced("new"))
    store.event("DELETED", balanced("old"))
    store.event("MODIFIED", balanced("changed", generation=2))
    store.end_list(None, [balanced("old"), balanced("changed")])

    assert sorted(name for _, name in store.keys) == ["changed", "new"]
    assert store.owners["store", "changed"].generation == 2


def test_a_child_concerns_its_owner_and_only_the_writers() -> None:
    told = Told()
    store = _synced(told, balanced())
    table = store.child_table("apps/v1", "Deployment")
    meta = {"namespace": "store", "name": "shop-lb", "labels": {"steelyard.dev/balancedservice": "shop"}}

    table.put(("store", "shop-lb"), {"metadata": meta, "status": {"replicas": 2}})

    assert told.written == ["shop"]
    assert told.published == []
    assert store.inputs.replicas == {SHOP: 2}
    table.drop(("store", "shop-lb"))
    assert store.children == {}
    assert store.inputs.replicas == {}


def test_the_zone_of_a_node_is_read_from_any_slice() -> None:
    store = _synced(Told())
    _put_slice(store, slice_of("other", endpoints=[endpoint("10.0.0.1", node="n7", zone="b")]))

    assert store.zone("n7") == "b"
    assert store.zone("n8") == ""
