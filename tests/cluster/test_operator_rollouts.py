"""Nothing fails while pods are replaced on purpose, at two hundred requests a second.

Half of them come over connections that stay open, as from a client with a pool; half over a new connection each, as
from one without.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.cluster.api import Cluster
from tests.cluster.deployed import Operator, balanced, patch, programmed
from tests.cluster.namespace import Namespace
from tests.cluster.traffic import Client

SHOP = "http://shop/"
HALF = ("--rate", "100", "--concurrency", "64")
pytestmark = pytest.mark.timeout(240, func_only=True)  # several rounds of pods, each with its grace period
PROXIES = {"steelyard.dev/balancedservice": "shop"}


def served(namespace: Namespace, **client: str) -> Client:
    """Three backends behind two proxies, all in force, and a client."""
    namespace.backend("shop-v1", replicas=3)
    namespace.apply(balanced())
    programmed(namespace, endpoints="3/3", proxies=2)
    return namespace.client(**client)


@contextmanager
def unharmed(client: Client) -> Iterator[None]:
    """Requests go on during the block, until all that it did is done; none of them fails."""
    with client.loading(SHOP, *HALF) as pooled, client.loading(SHOP, *HALF, "--fresh") as fresh:
        pooled.begun()
        fresh.begun()
        yield
        reports = [pooled.stop(), fresh.stop()]
    assert [report["failures"] for report in reports] == [[], []]
    assert [report["ok"] for report in reports] == [report["requests"] for report in reports]


def test_backends_are_rolled_out_and_deleted_one_by_one(operator: Operator, namespace: Namespace) -> None:
    client = served(namespace)
    surge = '{"spec": {"strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}}}'
    namespace.kubectl("patch", "deployment/shop-v1", "-p", surge)
    before = namespace.pods(app="shop-v1")

    with unharmed(client):
        namespace.kubectl("rollout", "restart", "deployment/shop-v1")
        namespace.rolled_out("shop-v1")
        between = namespace.pods(app="shop-v1")
        for pod in sorted(between):
            namespace.kubectl("delete", "pod", pod)
            namespace.rolled_out("shop-v1")

    assert not before & between
    assert not between & namespace.pods(app="shop-v1")


def test_proxies_are_rolled_out(operator: Operator, namespace: Namespace) -> None:
    client = served(namespace)
    before = namespace.pods(**PROXIES)

    with unharmed(client):
        namespace.kubectl("rollout", "restart", "deployment/shop-lb")
        namespace.rolled_out("shop-lb")
        for pod in before:
            namespace.wait("v1/pods", pod, lambda found: not found)

    assert len(namespace.pods(**PROXIES) - before) == 2


def test_the_operator_is_rolled_out(operator: Operator, namespace: Namespace) -> None:
    client = served(namespace)

    with unharmed(client):
        operator.kubectl("rollout", "restart", "deployment/steelyard-controller")
        operator.rolled_out()
        patch(namespace, {"algorithm": {"type": "RoundRobin"}})
        programmed(namespace)


def test_a_node_is_drained(operator: Operator, namespace: Namespace, cluster: Cluster) -> None:
    """It has a proxy and a backend, and not the client, which nothing would make anew."""
    client = served(namespace, zone="zone-a")
    nodes = {pod["spec"]["nodeName"]: pod["metadata"]["name"] for pod in namespace.list("v1/pods", **PROXIES)}
    asking = namespace.get("v1/pods", "client")
    assert asking is not None
    node = max(set(nodes) - {asking["spec"]["nodeName"]})
    nobody_else(cluster, namespace)

    try:
        with unharmed(client):
            cluster.kubectl("drain", node, "--delete-emptydir-data", "--ignore-daemonsets", timeout=100)
            namespace.rolled_out("shop-v1")
            namespace.rolled_out("shop-lb")
            operator.rolled_out()
    finally:
        cluster.kubectl("uncordon", node)

    assert namespace.get("v1/pods", nodes[node]) is None


def nobody_else(cluster: Cluster, namespace: Namespace) -> None:
    """Wait until other tests' namespaces are gone: kubectl drains no node with pods that nothing makes anew."""
    for each in cluster.call("GET", "/api/v1/namespaces?labelSelector=steelyard.dev/test=true")["items"]:
        name = each["metadata"]["name"]
        if name != namespace.name:
            cluster.wait(f"/api/v1/namespaces/{name}", lambda found: not found, seconds=90)
