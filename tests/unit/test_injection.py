"""Rules of injection that the golden files don't show: what is refused, and that twice is once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.children import ChildSettings
from controller.injection import (
    Injected,
    InjectionSettings,
    Refused,
    Target,
    inject,
    inject_workload,
    namespace_of,
    target,
)
from controller.model.service import Backend, BalancedService, Port, Proxy
from tests.strategies import ANYTHING

SETTINGS = InjectionSettings(proxy=ChildSettings(image="proxy:1", control="https://operator"), version="1")
SHOP = Target(namespace="store", name="shop", address="127.64.0.1", ports=((80, "HTTP", "http"),))
STOCK = Target(
    namespace="store", name="stock", address="127.64.0.2", ports=((8080, "HTTP", "http"), (9000, "TCP", "raw"))
)


def pod(annotations: dict[str, Any] | None = None, *ports: int, **spec: Any) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "app", "ports": [{"containerPort": port} for port in ports]}
    return {"metadata": {"annotations": annotations or {}}, "spec": {"containers": [container]} | spec}


def injected(given: dict[str, Any], *services: Target) -> Injected:
    result = inject(given, "store", services or (SHOP, STOCK), SETTINGS)
    assert isinstance(result, Injected), result
    return result


def refusal(given: dict[str, Any], *services: Target) -> str:
    result = inject(given, "store", services or (SHOP, STOCK), SETTINGS)
    assert isinstance(result, Refused), result
    return result.message


def names(result: Injected) -> list[str]:
    return [each["hostnames"][0] for each in result.pod["spec"].get("hostAliases", ())]


def test_a_pod_without_anything_gets_the_sidecar_first_and_a_name_for_each_service() -> None:
    result = injected({"spec": {"containers": [{"name": "app"}], "initContainers": [{"name": "setup"}]}})

    assert [each["name"] for each in result.pod["spec"]["initContainers"]] == ["steelyard", "setup"]
    assert names(result) == ["shop", "stock"]
    assert result.pod["metadata"]["labels"] == {"steelyard.dev/inject": "enabled"}
    assert result.warnings == ()


def test_the_pod_that_was_given_is_untouched() -> None:
    given = pod()
    before = repr(given)

    injected(given)

    assert before == repr(given)


def test_an_annotation_chooses_the_services() -> None:
    assert names(injected(pod({"steelyard.dev/services": " stock, stock,"}))) == ["stock"]


def test_an_unknown_service_is_refused_by_the_annotation_and_with_what_there_is() -> None:
    message = refusal(pod({"steelyard.dev/services": "shop,shpo"}))

    assert "annotation steelyard.dev/services: no BalancedService shpo" in message
    assert "there are: shop, stock" in message


def test_a_namespace_without_services_leaves_the_pod_as_it_is_and_says_so() -> None:
    result = inject(pod(), "store", (), SETTINGS)

    assert isinstance(result, Injected)
    assert pod() == result.pod
    assert "has no BalancedService with mode Sidecar" in result.warnings[0]
    assert "there are: none" in str(inject(pod({"steelyard.dev/services": "shop"}), "store", (), SETTINGS))


def test_a_pod_on_the_hosts_network_is_refused() -> None:
    assert "hostNetwork" in refusal(pod(hostNetwork=True))


def test_a_port_that_the_pod_listens_on_keeps_its_ordinary_service() -> None:
    result = injected(pod(None, 8080))

    assert names(result) == ["shop"]
    assert (result.warnings) == (
        "stock goes by its ordinary Service in this pod, not by the sidecar: port 8080 (a container declares it)",
    )


def test_an_annotation_excludes_ports() -> None:
    result = injected(pod({"steelyard.dev/exclude-ports": "80, 9000"}))

    assert names(result) == []
    assert len(result.warnings) == 3


def test_the_sidecars_own_ports_can_be_set() -> None:
    own = {"steelyard.dev/admin-port": "1", "steelyard.dev/health-port": "2", "steelyard.dev/forward-proxy-port": "3"}

    container = injected(pod(own)).pod["spec"]["initContainers"][0]

    assert {"--admin=127.0.0.1:1", "--health=[::]:2", "--forward-proxy=127.0.0.1:3"} <= set(container["args"])
    assert container["startupProbe"]["httpGet"]["port"] == 2


def test_a_service_on_the_health_port_goes_by_its_ordinary_service() -> None:
    result = injected(pod({"steelyard.dev/health-port": "80"}))

    assert names(result) == ["stock"]
    assert "annotation steelyard.dev/health-port" in result.warnings[0]


def test_a_container_on_the_sidecars_own_port_is_refused_with_the_annotation_that_mends_it() -> None:
    assert "steelyard.dev/health-port=19912" in refusal(pod(None, 19912))


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        ("steelyard.dev/exclude-ports", "80,http"),
        ("steelyard.dev/admin-port", "0"),
        ("steelyard.dev/health-port", "65536"),
        ("steelyard.dev/forward-proxy-port", ""),
    ],
)
def test_a_wrong_annotation_is_refused_by_its_name(annotation: str, value: str) -> None:
    assert f"annotation {annotation}" in refusal(pod({annotation: value}))


def test_two_of_the_sidecars_own_ports_on_one_number_are_refused() -> None:
    assert "must differ" in refusal(pod({"steelyard.dev/admin-port": "19912"}))


def test_what_the_author_set_on_the_sidecar_stays() -> None:
    theirs = {"name": "steelyard", "resources": {"limits": {"cpu": "1"}}, "securityContext": {"runAsUser": 7}}

    container = injected(pod(initContainers=[theirs])).pod["spec"]["initContainers"][0]

    assert theirs["resources"] == container["resources"]
    assert theirs["securityContext"] == container["securityContext"]


def test_a_service_that_went_leaves_no_name_behind() -> None:
    both = injected(pod(hostAliases=[{"ip": "127.0.0.1", "hostnames": ["me"]}, {"ip": "10.0.0.1"}]))

    result = injected(both.pod, SHOP)

    assert [each["ip"] for each in result.pod["spec"]["hostAliases"]] == ["127.0.0.1", "10.0.0.1", "127.64.0.1"]


@given(
    services=st.sets(st.sampled_from([SHOP, STOCK])),
    declared=st.sets(st.sampled_from([80, 8080, 1234])),
    annotations=st.fixed_dictionaries(
        {},
        optional={
            "steelyard.dev/services": st.sampled_from(["shop", "stock", "shop,stock", ""]),
            "steelyard.dev/exclude-ports": st.sampled_from(["80", "9000", "80,8080", ""]),
            "steelyard.dev/health-port": st.sampled_from(["80", "1234", "9999"]),
            "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes": st.sampled_from(["", "a", "a,b"]),
        },
    ),
    more=st.fixed_dictionaries(
        {},
        optional={
            "initContainers": st.just([{"name": "setup"}]),
            "volumes": st.just([{"name": "data"}]),
            "hostAliases": st.just([{"ip": "10.1.1.1", "hostnames": ["shop.store.svc.cluster.local"]}]),
        },
    ),
)
def test_injecting_twice_is_injecting_once(
    services: set[Target], declared: set[int], annotations: dict[str, str], more: dict[str, Any]
) -> None:
    once = inject(pod(annotations, *declared, **more), "store", services, SETTINGS)

    if isinstance(once, Injected):
        assert once == inject(once.pod, "store", services, SETTINGS)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (pod() | {"spec": ["a"]}, "Expected `object | null`, got `array` - at `spec`"),
        (pod(containers={"name": "app"}), "Expected `array | null`, got `object` - at `spec.containers`"),
        (pod({"steelyard.dev/exclude-ports": 80}), "Expected `str | null`, got `int` - at `metadata.annotations[...]`"),
    ],
)
def test_what_is_no_pod_is_refused_with_its_place(given: dict[str, Any], message: str) -> None:
    assert message == refusal(given)


def test_an_annotation_that_is_null_is_an_empty_one() -> None:
    safe = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"

    result = injected(pod({"steelyard.dev/exclude-ports": None, safe: None}))

    assert result.pod["metadata"]["annotations"][safe] == "steelyard-snapshots"
    assert "are: shop, stock" not in str(inject(pod({"steelyard.dev/services": None}), "store", (SHOP,), SETTINGS))


_PARTS = st.sampled_from(["name", "ports", "containerPort", "protocol", "ip", "hostnames", "resources"])
_PIECES = st.recursive(ANYTHING, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_PARTS, inner, max_size=3))


@given(
    metadata=st.dictionaries(st.sampled_from(["labels", "annotations", "name"]), _PIECES, max_size=2) | ANYTHING,
    spec=st.dictionaries(
        st.sampled_from(["containers", "initContainers", "volumes", "hostAliases", "hostNetwork"]), _PIECES, max_size=3
    )
    | ANYTHING,
)
def test_whatever_a_file_holds_is_injected_or_refused(metadata: Any, spec: Any) -> None:
    result = inject({"metadata": metadata, "spec": spec}, "store", (SHOP, STOCK), SETTINGS)

    assert isinstance(result, Injected | Refused)


def test_a_kind_without_pods_is_left_to_its_author() -> None:
    assert inject_workload({"apiVersion": "v1", "kind": "Service"}, "store", (SHOP,), SETTINGS) is None


@pytest.mark.parametrize("spec", [{}, {"template": None}, {"template": {"spec": {"hostNetwork": True}}}])
def test_a_workload_without_a_pod_or_with_a_bad_one_is_refused(spec: dict[str, Any]) -> None:
    workload = {"apiVersion": "apps/v1", "kind": "Deployment", "spec": spec}

    assert isinstance(inject_workload(workload, "store", (SHOP,), SETTINGS), Refused)


def test_the_namespace_is_the_objects_own_or_the_default() -> None:
    assert namespace_of({"metadata": {"namespace": "store"}}, "default") == "store"
    assert namespace_of({}, "default") == "default"


def test_only_sidecar_services_with_a_loopback_address_are_targets() -> None:
    service = BalancedService(
        namespace="store",
        name="shop",
        ports=(Port(port=80),),
        backends=(Backend(name="a", addresses=("192.0.2.1",)),),
        proxy=Proxy(mode="Sidecar"),
    )

    assert target(service, "127.64.0.1") == SHOP
    assert target(service, "") is None
    assert target(service, "10.0.0.1") is None
    assert (
        target(
            BalancedService(**{f: getattr(service, f) for f in ("namespace", "name", "ports", "backends")}),
            "127.64.0.1",
        )
        is None
    )
