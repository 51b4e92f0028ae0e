"""The cluster that the harness makes is one, and its parts that other tests rely on work."""

from __future__ import annotations

import pytest

from tests.cluster.api import ApiError, Cluster
from tests.cluster.namespace import Namespace


def test_three_nodes_are_ready_in_three_zones(cluster: Cluster) -> None:
    if cluster.local is None:
        pytest.skip("of the harness's own cluster")

    nodes = cluster.call("GET", "/api/v1/nodes")["items"]

    ready = {
        n["metadata"]["name"]
        for n in nodes
        for c in n["status"]["conditions"]
        if (c["type"], c["status"]) == ("Ready", "True")
    }
    assert ready == {"n1", "n2", "n3"}
    assert {n["metadata"]["labels"]["topology.kubernetes.io/zone"] for n in nodes} == {"zone-a", "zone-b", "zone-c"}


def test_a_client_reaches_every_pod_of_a_service_by_its_name(namespace: Namespace) -> None:
    namespace.backend("shop", replicas=3, version="v7")
    client = namespace.client()

    report = client.load("http://shop/", "--fresh", seconds=3)

    pods = {pod["metadata"]["name"] for pod in namespace.list("v1/pods", app="shop")}
    assert report["failures"] == []
    assert pods == set(report["pods"])
    assert {"zone-a", "zone-b", "zone-c"} == set(report["zones"])
    assert {"v7": report["ok"]} == report["versions"]


def test_an_unready_pod_gets_no_new_connections(namespace: Namespace) -> None:
    namespace.backend("shop", replicas=2)
    client = namespace.client()
    out, stays = (pod["metadata"]["name"] for pod in namespace.list("v1/pods", app="shop"))

    namespace.exec(out, "touch", "/tmp/unready")
    namespace.wait("apps/v1/deployments", "shop", lambda found: found["status"].get("readyReplicas") == 1)
    report = client.load("http://shop/", "--fresh", seconds=3)

    assert list(report["pods"])[-1] == stays
    assert report["pods"][stays] > 0.8 * report["ok"]


def test_a_stream_arrives_piece_by_piece(namespace: Namespace) -> None:
    namespace.backend("shop")
    client = namespace.client()

    found = client.stream("shop:80", "/stream/5/0.3")

    assert (found["status"], found["complete"], found["error"]) == (200, True, None)
    assert [text for _, text in found["pieces"]] == ["0\n", "1\n", "2\n", "3\n", "4\n"]
    assert found["pieces"][-1][0] - found["pieces"][0][0] > 1.0


def test_a_stopped_load_reports_what_failed_when_and_why(namespace: Namespace) -> None:
    namespace.backend("shop")
    client = namespace.client()

    with client.loading("http://shop/status/503", "--rate", "20") as load:
        namespace.exec("deployment/shop", "touch", "/tmp/unready")
        report = load.stop()

    assert report["ok"] == 0
    assert report["failures"]
    assert all(failure["reason"].startswith(("503", "Client")) for failure in report["failures"])


def test_the_namespace_refuses_what_the_restricted_level_forbids(namespace: Namespace) -> None:
    pod = {"metadata": {"name": "root"}, "spec": {"containers": [{"name": "root", "image": "none:1"}]}}

    with pytest.raises(ApiError, match="violates PodSecurity") as refused:
        namespace.cluster.call("POST", namespace.path("v1/pods"), pod)

    assert refused.value.status == 403


def test_a_watch_tells_what_happens_after_it_began(namespace: Namespace) -> None:
    path = namespace.path("v1/configmaps")
    version = namespace.cluster.call("GET", path)["metadata"]["resourceVersion"]

    namespace.kubectl("create", "configmap", "one")
    events = namespace.cluster.watch(path, 30, resourceVersion=version)
    seen = [next(e for e in events if e["object"]["metadata"]["name"] == "one")["type"]]
    namespace.kubectl("delete", "configmap", "one")
    seen.append(next(e for e in events if e["object"]["metadata"]["name"] == "one")["type"])
    events.close()

    assert seen == ["ADDED", "DELETED"]
