"""What proxies said, from their streams' coming and going to the status that follows from it."""

from __future__ import annotations

import pytest

from controller.kube.reports import FORGOTTEN, RETURN, Reports
from controller.model.endpoints import ServiceRecord, Slice, SliceEndpoint
from controller.model.service import Backend, BalancedService, Mode, Port, Proxy
from controller.model.snapshot import Snapshot
from controller.translate import Inputs, translate
from controller.translate.fleet import SILENT
from tests.component.hand_clock import HandTimers

KEY = ("store", "shop")


class Scene:
    """One object with its status, at each change of which the condition `Programmed` is noted."""

    def __init__(self, mode: Mode, *ready: str, terminating: str = "") -> None:
        self.timers = HandTimers()
        self.reports = Reports(self.timers.clock, self.timers.later)
        shop = BalancedService(
            namespace="store",
            name="shop",
            generation=1,
            ports=(Port(port=80),),
            backends=(Backend(name="stable", addresses=("192.0.2.1",)),),
            proxy=Proxy(mode=mode),
        )
        own = [SliceEndpoint(address="10.0.0.1", uid=uid) for uid in ready]
        own += [SliceEndpoint(address="10.0.0.2", uid=terminating, ready=False, terminating=True)] * bool(terminating)
        piece = Slice(namespace="store", name="a", service="shop", address_type="IPv4", endpoints=tuple(own))
        self.inputs = Inputs(
            objects={KEY: shop},
            services={KEY: ServiceRecord(namespace="store", name="shop")},
            slices={KEY: [piece]},
            reports=self.reports,
        )
        snapshot = translate(self.inputs, KEY).snapshot
        assert snapshot is not None
        self.snapshot: Snapshot = snapshot
        self.reports.published(snapshot)
        self.seen: list[str] = []
        self.reports.changed = self.look

    def look(self, key: tuple[str, str] = KEY) -> None:
        fact = next(fact for fact in translate(self.inputs, key).status.facts if fact.type == "Programmed")
        self.seen.append(f"{fact.status} {fact.reason}")

    @property
    def programmed(self) -> int:
        return translate(self.inputs, KEY).status.proxy.programmed

    @property
    def replicas(self) -> int:
        return translate(self.inputs, KEY).status.proxy.replicas

    def says(self, proxy: str) -> None:
        self.reports.reported(KEY, proxy, (self.snapshot.version, ""), {"stable": (1, 1)})

    def come(self, proxy: str) -> None:
        self.reports.connected(KEY, proxy, True)
        self.says(proxy)

    def join(self, *proxies: str) -> None:
        """They come for the first time."""
        for proxy in proxies:
            self.come(proxy)
        self.seen.clear()

    def leave(self, proxy: str) -> None:
        self.reports.connected(KEY, proxy, False)

    def wait(self, seconds: float, *living: str) -> None:
        """As time goes by: a ping each ten seconds, which the living answer, and a look at the status."""
        for _ in range(round(seconds)):
            self.timers.advance(1)
            if not self.timers.now % 10:
                for proxy in living:
                    self.says(proxy)
            self.look()


@pytest.fixture(params=["Gateway", "Sidecar", "External"])
def scene(request: pytest.FixtureRequest) -> Scene:
    return Scene(request.param, "uid-1", "uid-2")


def test_programmed_stays_while_a_proxy_makes_its_stream_anew(scene: Scene) -> None:
    scene.join("uid-1", "uid-2")

    scene.leave("uid-1")
    scene.wait(RETURN - 1, "uid-2")
    scene.come("uid-1")
    scene.wait(FORGOTTEN * 2, "uid-1", "uid-2")

    assert set(scene.seen) == {"True Programmed"}
    assert scene.programmed == 2
    assert scene.timers.pending == []


def test_programmed_stays_while_a_gateways_only_proxy_is_out_of_reach_for_a_while() -> None:
    scene = Scene("Gateway", "uid-1")
    scene.join("uid-1")

    scene.leave("uid-1")
    scene.wait(SILENT - 1)

    assert set(scene.seen) == {"True Programmed"}


def test_programmed_stays_while_a_proxy_goes_over_to_another_replica(scene: Scene) -> None:
    scene.join("uid-1", "uid-2")

    scene.leave("uid-1")
    scene.wait(1)
    scene.says("uid-1")  # by way of it
    scene.wait(FORGOTTEN * 2, "uid-1", "uid-2")

    assert set(scene.seen) == {"True Programmed"}
    assert scene.programmed == 2


def test_a_gateways_ready_proxy_that_stays_away_is_pending_again() -> None:
    """It is silent at first; for good it must not be passed over."""
    scene = Scene("Gateway", "uid-1", "uid-2")
    scene.join("uid-1", "uid-2")

    scene.leave("uid-1")
    scene.wait(FORGOTTEN - 1, "uid-2")
    assert (set(scene.seen), scene.programmed) == ({"True Programmed"}, 1)
    scene.seen.clear()
    scene.timers.advance(1)

    assert scene.seen == ["False Pending"]


def test_a_gateways_proxy_counts_no_longer_than_its_slice_calls_it_ready() -> None:
    scene = Scene("Gateway", "uid-1", terminating="uid-2")
    scene.join("uid-1", "uid-2")

    scene.leave("uid-2")

    assert (scene.programmed, scene.replicas) == (1, 1)


@pytest.mark.parametrize("mode", ["Sidecar", "External"])
def test_who_has_no_slice_and_does_not_come_back_is_not_counted_soon(mode: Mode) -> None:
    scene = Scene(mode)
    scene.join("uid-1", "uid-2")

    scene.leave("uid-1")
    scene.timers.advance(RETURN)

    assert scene.seen == ["True Programmed"]
    assert (scene.programmed, scene.replicas) == (1, 1)


def test_a_second_stream_of_a_proxy_outlives_the_first(scene: Scene) -> None:
    scene.join("uid-1", "uid-2", "uid-1")

    scene.leave("uid-1")
    scene.wait(FORGOTTEN, "uid-1", "uid-2")

    assert scene.reports.here(KEY, "uid-1")
    assert scene.programmed == 2


def test_nothing_is_kept_of_objects_that_are_gone() -> None:
    """Of two thousand whose proxies were relayed to us, all were there a week later."""
    scene = Scene("External")
    keys = [("store", f"shop-{number}") for number in range(2000)]
    scene.reports.changed = lambda _: None
    for key in keys:
        scene.reports.reported(key, "uid-1", ("v", ""), {})
        scene.reports.connected(key, "uid-2", True)

    for key in keys:
        scene.reports.gone(key)
        scene.reports.connected(key, "uid-2", False)
    assert repr(scene.reports) == "<Reports of 2000 proxies on 2000 objects>"  # who may come back
    scene.reports.reported(keys[0], "uid-3", ("v", ""), {})  # was on its way
    scene.timers.advance(FORGOTTEN)

    assert repr(scene.reports) == "<Reports of 0 proxies on 0 objects>"
    assert scene.timers.pending == []


def test_proxies_that_left_a_gateway_go_with_the_object() -> None:
    scene = Scene("Gateway", "uid-1", "uid-2")
    scene.join("uid-1", "uid-2")

    scene.leave("uid-1")
    scene.reports.gone(KEY)

    assert [report.proxy for report in scene.reports[KEY]] == ["uid-2"]
    scene.leave("uid-2")
    scene.timers.advance(RETURN)
    assert dict(scene.reports) == {}
