"""The cluster that the harness makes is one, and its parts that other tests rely on work."""

from __future__ import annotations

import time

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
    pods = namespace.pods(app="shop")
    client.settle("http://shop/", pods)

    report = client.load("http://shop/", "--fresh", seconds=3)

    assert report["failures"] == []
    assert set(report["pods"]) == pods
    assert set(report["zones"]) == {"zone-a", "zone-b", "zone-c"}
    assert report["versions"] == {"v7": report["ok"]}


def test_an_unready_pod_gets_no_new_connections(namespace: Namespace) -> None:
    namespace.backend("shop", replicas=2)
    client = namespace.client()
    out, stays = namespace.pods(app="shop")
    client.settle("http://shop/", {out, stays})

    namespace.exec(out, "touch", "/tmp/unready")
    client.settle("http://shop/", {stays})

    namespace.exec(out, "rm", "/tmp/unready")
    client.settle("http://shop/", {out, stays})


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
    client.settle("http://shop/", namespace.pods(app="shop"))
    before = time.time()

    with client.loading("http://shop/status/503", "--rate", "20") as load:
        report = load.stop()

    assert report["ok"] == 0
    assert report["statuses"] == {"503": report["requests"]}
    assert all(before < failure["at"] < time.time() for failure in report["failures"])
    assert all(failure["reason"].startswith("503 ") for failure in report["failures"])


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
