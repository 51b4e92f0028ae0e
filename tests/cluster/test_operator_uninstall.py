"""An install with the documented objects in it: they are accepted as they stand, and its end leaves nothing stuck."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.api import Cluster, condition
from tests.cluster.conftest import CRD, PROJECT
from tests.cluster.deployed import OWN, SERVICES, Operator
from tests.cluster.namespace import Namespace

# The contract's first page, word for word.
GLANCE = """
apiVersion: steelyard.dev/v1alpha1
kind: BalancedService
metadata: {name: shop, namespace: store}
spec:
  ports:
    - {name: http, port: 80, targetPort: 8080, protocol: HTTP}     # clients call http://shop/
  backends:
    - {name: stable, service: {name: shop-v1}, weight: 90}
    - {name: canary, selector: {matchLabels: {app: shop, track: canary}}, weight: 10}
    - {name: offsite, addresses: [192.0.2.10, 192.0.2.11], port: 8080, priority: 1}   # only when the others fail
  algorithm: {type: PowerOfTwoChoices}
"""
MINIMAL = """
apiVersion: steelyard.dev/v1alpha1
kind: BalancedService
metadata: {name: minimal, namespace: store}
spec:
  ports: [{port: 80}]
  backends: [{name: only, service: {name: shop-v1}}]
"""
# Each line of its tables that gives a whole value, at its place.
EVERYTHING = """
apiVersion: steelyard.dev/v1alpha1
kind: BalancedService
metadata: {name: everything, namespace: store}
spec:
  ports: [{name: http, port: 80, targetPort: 8080, protocol: HTTP}]
  backends:
    - {name: stable, service: {name: shop-v1}, weight: 90, weightPer: Backend}
    - {name: fixed, addresses: [192.0.2.10], weight: 2, weightPer: Endpoint, priority: 7}
    - {name: named, hostname: example.com, weight: 0}
  algorithm:
    type: ConsistentHash
    consistentHash:
      table: Auto
      boundedLoad: 125
      identity: Pod
    hashOn: [{header: X-User}, {cookie: sid}, {query: id}, {path: true}, {clientAddress: true}]
  affinity: {cookie: {name: steelyard, lifetime: Session, ttl: 1h, path: /, sameSite: Lax, secure: Auto}}
  retries: {attempts: 1, conditions: [ConnectFailure, Reset, 502], perTryTimeout: 0s,
            budget: {percent: 20, minPerSecond: 10}, maxBodyBytes: 65536, nonIdempotent: false}
  timeouts: {connect: 2s, requestHeaders: 15s, response: 60s, idle: 5m, tcpIdle: 1h, request: 0s}
  limits: {maxRequestsPerEndpoint: 0, queue: 1024, queueTimeout: 5s, maxConnections: 10000}
  requestHeaderBytes: 65536
  maxRequestBodyBytes: 0
  health:
    active: {path: /, interval: 5s, timeout: 1s, unhealthyThreshold: 3, healthyThreshold: 1,
             expectedStatuses: [200-399]}
    passive: {consecutiveFailures: 5, ejection: 30s, maxEjection: 300s, maxEjectedPercent: 50,
              successRate: {minRequests: 100, deviations: 1.9, minGapPercent: 10}}
    panicPercent: 50
    slowStart: {window: 0s, minPercent: 10, aggression: 1}
  locality: {prefer: Service}
  proxy: {mode: Gateway, replicas: 2, acceptGrace: 5s, drain: 30s, trustedProxies: [], accessLog: Disabled,
          serviceType: ClusterIP}
"""
EXAMPLES = {"shop": GLANCE, "minimal": MINIMAL, "everything": EVERYTHING}


@pytest.fixture
def store(operator: Operator, cluster: Cluster, app_image: str) -> Iterator[Namespace]:
    """The namespace that the examples name."""
    found = Namespace(cluster, "store", app_image)
    found.create()
    yield found
    found.delete()
    cluster.wait("/api/v1/namespaces/store", lambda each: not each)


@pytest.mark.timeout(300, func_only=True)
def test_documented_objects_are_accepted_and_an_uninstall_leaves_nothing_stuck(
    operator: Operator, store: Namespace, images: object
) -> None:
    cluster = store.cluster
    store.backend("shop-v1")

    for name, text in EXAMPLES.items():
        cluster.kubectl("apply", "--validate=strict", "-f", "-", stdin=text)
        store.wait(SERVICES, name, lambda found: condition(found, "Accepted") == "True")
    store.wait("apps/v1/deployments", "everything-lb", bool)
    served = {name: found for name in EXAMPLES if (found := store.get("apps/v1/deployments", f"{name}-lb"))}
    try:
        # The operator first, as people do; then objects without it, by hand and with their kind.
        cluster.kubectl("delete", "-f", str(PROJECT / "deploy" / "operator.yaml"), "--timeout=90s", timeout=100)
        kept = {each["metadata"]["name"] for each in store.list("apps/v1/deployments")}
        store.kubectl("delete", "bsvc/shop", "--timeout=20s")
        cluster.kubectl("delete", f"crd/{CRD}", "--timeout=60s", timeout=70)
        for name in EXAMPLES:
            for resource, child in (("apps/v1/deployments", f"{name}-lb"), ("v1/services", name)):
                store.wait(resource, child, lambda found: not found)
        store.wait("v1/configmaps", "steelyard-ca", lambda found: not found)
    finally:
        cluster.kubectl("apply", "--server-side", "-f", str(PROJECT / "crds" / "balancedservices.yaml"))
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{CRD}"
        cluster.wait(path, lambda found: condition(found, "Established") == "True")
        cluster.wait(f"/api/v1/namespaces/{OWN}", lambda each: not each or each["status"]["phase"] == "Active")
        operator.deploy()

    assert served.keys() == EXAMPLES.keys()
    assert {f"{name}-lb" for name in EXAMPLES} <= kept  # proxies outlive their operator
