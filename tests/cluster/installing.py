"""What a cluster's owner does with the chart, and what tests ask afterwards: install, the example, what is left."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

from tests.cluster.api import Cluster, CommandError, Object, condition

PROJECT = Path(__file__).parents[2]
CHART = PROJECT / "charts" / "steelyard"
EARLIER = Path(__file__).parent / "earlier" / "chart.tgz"
OWN = "steelyard-system"
OPERATOR = f"/apis/apps/v1/namespaces/{OWN}/deployments/steelyard-controller"
DEPLOYED = "deploy/steelyard-controller"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
MADE = (
    "deployments",
    "services",
    "serviceaccounts",
    "secrets",
    "leases",
    "configmaps",
    "poddisruptionbudgets",
    "roles",
)


def tags(controller: str, proxy: str) -> list[str]:
    """Values that name images of the harness."""
    values = ("image.registry=localhost", f"controller.image.tag={controller}", f"proxy.image.tag={proxy}")
    return [word for value in values for word in ("--set", value)]


BEFORE = tags("before", "before")


def install(cluster: Cluster, *options: str, chart: Path = CHART, helm: str = "helm") -> None:
    cluster.run(helm, "install", "steelyard", str(chart), "-n", OWN, *options, timeout=180)


def example(cluster: Cluster, image: str, namespace: str = "store") -> None:
    """`kubectl apply -f examples/shop.yaml`, with the image that this cluster has for its Python."""
    text = (PROJECT / "examples" / "shop.yaml").read_text().replace("python:3.11-slim", image)
    cluster.kubectl("apply", "-f", "-", stdin=text.replace("namespace: store", f"namespace: {namespace}"))


def proxies(cluster: Cluster, tag: str) -> Object:
    """The example's Deployment of proxies, once all of them are of this image and ready."""

    def done(found: Object) -> bool:
        status = found.get("status", {})
        if not found or status.get("observedGeneration", 0) < found["metadata"]["generation"]:
            return False
        image = found["spec"]["template"]["spec"]["containers"][0]["image"]
        counts = [status.get(key, 0) for key in ("replicas", "updatedReplicas", "availableReplicas")]
        return bool(image.endswith(f":{tag}")) and counts == [2, 2, 2]

    return cluster.wait("/apis/apps/v1/namespaces/store/deployments/shop-lb", done, seconds=150)


def programmed(of: Object) -> bool:
    return condition(of, "Programmed") == "True" and of["status"]["proxy"].get("programmed") == 2


def shop(cluster: Cluster, until: Callable[[Object], object] = programmed, seconds: float = 120.0) -> Object:
    return cluster.wait("/apis/steelyard.dev/v1alpha1/namespaces/store/balancedservices/shop", until, seconds)


def collects(cluster: Cluster) -> None:
    """Wait until Kubernetes' garbage collector knows the objects' kind: it looks for new ones twice a minute, and what
    objects own stays for as long when they go before; for ever, when the kind has gone, too."""
    owner = {"apiVersion": "steelyard.dev/v1alpha1", "kind": "BalancedService", "name": "none", "uid": str(uuid4())}
    orphan = {"metadata": {"name": "orphan", "namespace": "default", "ownerReferences": [owner]}}
    cluster.call("POST", "/api/v1/namespaces/default/configmaps", orphan)
    cluster.wait("/api/v1/namespaces/default/configmaps/orphan", lambda found: not found, seconds=120)


def left(cluster: Cluster, kinds: tuple[str, ...], *where: str) -> list[str]:
    """Names of what is there of ours, or of anything in the release's namespace that Kubernetes hasn't put there.

    What is owned goes in the background: it has half a minute.
    """
    end = time.monotonic() + 30
    while (found := _left(cluster, kinds, *where)) and time.monotonic() < end:
        time.sleep(1)
    return found


def _left(cluster: Cluster, kinds: tuple[str, ...], *where: str) -> list[str]:
    found = cluster.kubectl("get", ",".join(kinds), *where, "-o", "name", "--ignore-not-found").split()
    return [name for name in found if name not in ("serviceaccount/default", "configmap/kube-root-ca.crt")]


def may(cluster: Cluster, *words: str) -> bool:
    try:
        return cluster.kubectl("auth", "can-i", *words).strip() == "yes"
    except CommandError:  # a "no" is an exit status, too
        return False


def until(holds: Callable[[], bool], seconds: float) -> None:
    """Asks again and again, what can't be watched."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.5)
