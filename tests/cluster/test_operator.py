"""The operator on a real cluster, under its own ServiceAccount: children, status, and what it never touches."""

from __future__ import annotations

import json

import pytest

from tests.cluster.api import Object, condition
from tests.cluster.deployed import OWN, SERVICES, Operator, balanced
from tests.cluster.namespace import Namespace

LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{OWN}/leases/steelyard-controller"


def reason(of: Object, kind: str) -> str:
    found = of.get("status", {}).get("conditions") or []
    return next((each["reason"] for each in found if each["type"] == kind), "")


def holder(lease: Object) -> str:
    return str(lease.get("spec", {}).get("holderIdentity") or "")


def test_an_object_gets_its_children_and_its_status(operator: Operator, namespace: Namespace) -> None:
    namespace.backend("shop-v1", replicas=2)
    namespace.apply(balanced())

    found = namespace.wait(SERVICES, "shop", lambda each: condition(each, "Ready") == "True")

    assert found["status"]["endpoints"] == "2/2"
    assert condition(found, "Accepted") == condition(found, "ResolvedRefs") == "True"
    for resource, name in (
        ("v1/services", "shop"),
        ("v1/serviceaccounts", "shop-lb"),
        ("apps/v1/deployments", "shop-lb"),
        ("policy/v1/poddisruptionbudgets", "shop-lb"),
    ):
        child = namespace.wait(resource, name, bool)
        assert child["metadata"]["ownerReferences"][0]["uid"] == found["metadata"]["uid"]
    assert namespace.wait("v1/configmaps", "steelyard-ca", bool)["data"]["ca.crt"].startswith("-----BEGIN CERT")


def test_status_follows_the_endpoints(operator: Operator, namespace: Namespace) -> None:
    namespace.backend("shop-v1", replicas=1)
    namespace.apply(balanced())
    namespace.wait(SERVICES, "shop", lambda each: each.get("status", {}).get("endpoints") == "1/1")

    namespace.kubectl("scale", "deployment/shop-v1", "--replicas=0")
    namespace.wait(SERVICES, "shop", lambda each: reason(each, "Ready") == "NoEndpoints")

    namespace.kubectl("delete", "service/shop-v1")
    namespace.wait(SERVICES, "shop", lambda each: reason(each, "ResolvedRefs") == "BackendNotFound")


def test_pods_of_a_selector_are_found_by_a_service_of_our_own(operator: Operator, namespace: Namespace) -> None:
    namespace.backend("shop-v1", replicas=2)
    labels = namespace.get("v1/services", "shop-v1")
    assert labels is not None
    backend = {"name": "pods", "selector": {"matchLabels": labels["spec"]["selector"]}, "port": 8080}
    namespace.apply(balanced(backends=[backend]))

    namespace.wait(SERVICES, "shop", lambda each: each.get("status", {}).get("endpoints") == "2/2")


def test_nothing_is_written_while_nothing_changes(operator: Operator, namespace: Namespace) -> None:
    namespace.apply(balanced(backends=[{"name": "fixed", "addresses": ["192.0.2.1"]}], proxy={"mode": "External"}))
    found = namespace.wait(SERVICES, "shop", lambda each: condition(each, "Programmed") == "True")
    version = found["metadata"]["resourceVersion"]

    events = list(namespace.cluster.watch(namespace.path(SERVICES), 5, resourceVersion=version))

    assert events == []


def test_what_is_not_ours_is_never_touched(operator: Operator, namespace: Namespace) -> None:
    theirs = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "shop"},
        "spec": {"ports": [{"port": 1234}], "selector": {"app": "theirs"}},
    }
    namespace.apply(theirs)
    before = namespace.get("v1/services", "shop")
    namespace.apply(balanced())

    namespace.wait(SERVICES, "shop", lambda each: reason(each, "Accepted") == "Conflict")

    assert namespace.get("v1/services", "shop") == before
    assert namespace.list("apps/v1/deployments") == []

    namespace.kubectl("delete", "service/shop")
    namespace.wait(SERVICES, "shop", lambda each: condition(each, "Accepted") == "True")
    namespace.wait("v1/services", "shop", lambda each: each.get("spec", {}).get("ports", [{}])[0].get("port") == 80)


def test_drift_is_mended_and_what_others_add_is_left(operator: Operator, namespace: Namespace) -> None:
    namespace.apply(balanced())
    namespace.wait("apps/v1/deployments", "shop-lb", bool)

    namespace.kubectl("label", "deployment/shop-lb", "team=red")
    namespace.kubectl("scale", "deployment/shop-lb", "--replicas=5")

    mended = namespace.wait("apps/v1/deployments", "shop-lb", lambda each: each["spec"]["replicas"] == 2)
    assert mended["metadata"]["labels"]["team"] == "red"


def test_another_mode_takes_the_children_away(operator: Operator, namespace: Namespace) -> None:
    namespace.apply(balanced())
    namespace.wait("policy/v1/poddisruptionbudgets", "shop-lb", bool)

    namespace.apply(balanced(proxy={"mode": "External"}))

    for resource, name in (
        ("apps/v1/deployments", "shop-lb"),
        ("v1/services", "shop"),
        ("v1/serviceaccounts", "shop-lb"),
        ("policy/v1/poddisruptionbudgets", "shop-lb"),
    ):
        namespace.wait(resource, name, lambda each: not each)


def test_a_foreground_deletion_ends_and_leaves_nothing(operator: Operator, namespace: Namespace) -> None:
    namespace.apply(balanced())
    first = namespace.wait("apps/v1/deployments", "shop-lb", bool)

    namespace.kubectl("delete", "bsvc/shop", "--cascade=foreground", "--timeout=60s", timeout=70)

    assert namespace.get(SERVICES, "shop") is None
    assert namespace.get("apps/v1/deployments", "shop-lb") is None
    assert namespace.get("v1/services", "shop") is None
    namespace.wait("v1/configmaps", "steelyard-ca", lambda each: not each)
    assert first["metadata"]["ownerReferences"][0]["blockOwnerDeletion"]


def test_an_object_made_anew_under_its_name_gets_children_of_its_own(operator: Operator, namespace: Namespace) -> None:
    namespace.apply(balanced())
    first = namespace.wait("apps/v1/deployments", "shop-lb", bool)
    namespace.kubectl("delete", "bsvc/shop", "--wait=false")
    namespace.wait(SERVICES, "shop", lambda each: not each)
    namespace.apply(balanced())
    owner = namespace.get(SERVICES, "shop")
    assert owner is not None

    second = namespace.wait(
        "apps/v1/deployments",
        "shop-lb",
        lambda each: each and each["metadata"]["ownerReferences"][0]["uid"] == owner["metadata"]["uid"],
    )

    assert first["metadata"]["uid"] != second["metadata"]["uid"]
    namespace.wait(SERVICES, "shop", lambda each: condition(each, "Accepted") == "True")


def test_a_transition_is_an_event(operator: Operator, namespace: Namespace) -> None:
    namespace.backend("shop-v1", replicas=1)
    namespace.apply(balanced())
    namespace.wait(SERVICES, "shop", lambda each: condition(each, "Ready") == "True")
    namespace.kubectl("delete", "service/shop-v1")
    namespace.wait(SERVICES, "shop", lambda each: reason(each, "ResolvedRefs") == "BackendNotFound")

    for event in namespace.cluster.watch(namespace.path("events.k8s.io/v1/events"), 30):
        if event["object"]["reason"] == "BackendNotFound":
            break
    else:
        pytest.fail("no event within 30 s")
    assert event["object"]["regarding"]["name"] == "shop"
    assert event["object"]["type"] == "Warning"


def test_a_stopped_leader_hands_over(operator: Operator, namespace: Namespace) -> None:
    first = holder(namespace.cluster.wait(LEASE, holder))
    pod = first.partition("@")[0].rpartition("-")[0]

    operator.kubectl("delete", "pod", pod, "--wait=false")
    lease = namespace.cluster.wait(LEASE, lambda each: holder(each) not in ("", first), seconds=12)

    assert lease["spec"]["leaseTransitions"] >= 1
    namespace.apply(balanced())
    namespace.wait("apps/v1/deployments", "shop-lb", bool)


def test_the_operator_warns_of_nothing_such_as_a_missing_permission(operator: Operator) -> None:
    logs = operator.kubectl(
        "-n", OWN, "logs", "-l", "app.kubernetes.io/component=controller", "--tail=-1", "--ignore-errors"
    )

    lines = [json.loads(line) for line in logs.splitlines() if line.startswith("{")]
    wrong = [line for line in lines if line["logger"].startswith("controller.") and line["level"] != "info"]
    assert wrong == []


def test_traffic_flows_once_the_proxies_have_acknowledged(operator: Operator, namespace: Namespace) -> None:
    namespace.backend("shop-v1", replicas=2)
    namespace.apply(balanced())
    found = namespace.wait(SERVICES, "shop", lambda each: _proxies(each).get("programmed") == 2, seconds=90)
    client = namespace.client()

    report = client.load("http://shop/", seconds=3)

    assert condition(found, "Programmed") == "True"
    assert _proxies(found)["replicas"] == 2
    assert not report["failures"]
    assert len(report["pods"]) == 2


def test_from_gateway_to_sidecar_the_service_names_pods_and_only_living_ones(
    operator: Operator, namespace: Namespace
) -> None:
    namespace.backend("shop-v1", replicas=2)
    namespace.apply(balanced())
    namespace.wait(SERVICES, "shop", lambda each: _proxies(each).get("programmed") == 2, seconds=90)
    client = namespace.client()

    namespace.apply(balanced(proxy={"mode": "Sidecar"}))
    namespace.wait("v1/services", "shop", lambda each: each and "selector" not in each["spec"])
    namespace.wait("apps/v1/deployments", "shop-lb", lambda each: not each)
    pods = {each["metadata"]["name"] for each in namespace.list("v1/pods", app="shop-v1")}
    client.settle("http://shop/", pods)

    assert _entries(namespace) == pods
    namespace.kubectl("scale", "deployment/shop-v1", "--replicas=1")
    namespace.wait(SERVICES, "shop", lambda each: each["status"]["backends"][0]["active"] == 1)
    (left,) = [
        each["metadata"]["name"]
        for each in namespace.list("v1/pods", app="shop-v1")
        if "deletionTimestamp" not in each["metadata"]
    ]
    client.settle("http://shop/", {left})
    assert _entries(namespace) == {left}


def _entries(namespace: Namespace) -> set[str]:
    """Names of the pods in the slices of the Service `shop`."""
    slices = namespace.list("discovery.k8s.io/v1/endpointslices", **{"kubernetes.io__service_name": "shop"})
    return {entry["targetRef"]["name"] for each in slices for entry in each.get("endpoints") or []}


def _proxies(of: Object) -> Object:
    found: Object = of.get("status", {}).get("proxy") or {}
    return found
