"""The operator of this checkout, deployed by deploy/operator.yaml, and what tests ask of the objects it keeps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.api import Cluster, Images, Object
from tests.cluster.namespace import Namespace

PROJECT = Path(__file__).parents[2]
OWN = "steelyard-system"
OPERATOR = f"/apis/apps/v1/namespaces/{OWN}/deployments/steelyard-controller"
SERVICES = "steelyard.dev/v1alpha1/balancedservices"
SLICES = "discovery.k8s.io/v1/endpointslices"


class Operator:
    """Its Deployment: two replicas, under the permissions of the manifest and no others."""

    def __init__(self, cluster: Cluster, images: Images) -> None:
        self._cluster = cluster
        self._images = images

    def deploy(self, manifest: str = "") -> None:
        """Apply the manifest, or this one, with the images of this checkout, and wait for every replica."""
        text = manifest or (PROJECT / "deploy" / "operator.yaml").read_text()
        objects = [each for each in yaml.safe_load_all(text) if each]
        for each in objects:
            if each["kind"] == "Deployment":
                container = each["spec"]["template"]["spec"]["containers"][0]
                container["image"] = self._images.controller
                image = next(entry for entry in container["env"] if entry["name"] == "STEELYARD_PROXY_IMAGE")
                image["value"] = self._images.proxy
        self._cluster.apply(*objects, options=("--server-side", "--force-conflicts"))
        self.rolled_out()

    def kubectl(self, *argv: str, timeout: float = 60.0) -> str:
        return self._cluster.kubectl("-n", OWN, *argv, timeout=timeout)

    def scale(self, replicas: int) -> None:
        """To 0: returns once no pod of it is left."""
        self.kubectl("scale", "deployment/steelyard-controller", f"--replicas={replicas}")
        self.rolled_out()

    def metric(self, name: str) -> set[float]:
        """What its replicas say."""
        names = self.kubectl("get", "pods", "-l", "app.kubernetes.io/component=controller", "-o", "name").split()
        found: set[float] = set()
        for pod in names:
            path = f"/api/v1/namespaces/{OWN}/{pod.replace('pod/', 'pods/')}:19902/proxy/metrics"
            lines = self._cluster.kubectl("get", "--raw", path).splitlines()
            found.update(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name} "))
        return found

    def rolled_out(self) -> None:
        """Wait until every replica is of the newest template and available, and no other is left, ending ones too."""
        self._cluster.wait(OPERATOR, _settled, seconds=120)


def _settled(deployment: Object) -> bool:
    status = deployment.get("status", {})
    if not deployment or status.get("observedGeneration", 0) < deployment["metadata"]["generation"]:
        return False
    wanted = deployment["spec"]["replicas"]
    counts = [status.get(key, 0) for key in ("replicas", "updatedReplicas", "availableReplicas")]
    return counts == [wanted] * 3 and not status.get("terminatingReplicas", 0)


def balanced(name: str = "shop", **spec: Any) -> Object:
    """A BalancedService with one port, 80, before the Service shop-v1, unless told otherwise."""
    defaults = {"ports": [{"port": 80}], "backends": [{"name": "stable", "service": {"name": "shop-v1"}}]}
    return {
        "apiVersion": "steelyard.dev/v1alpha1",
        "kind": "BalancedService",
        "metadata": {"name": name},
        "spec": defaults | spec,
    }


def example(image: str) -> list[Object]:
    """examples/shop.yaml for any namespace, its servers on an image that the nodes have."""
    text = (PROJECT / "examples" / "shop.yaml").read_text().replace("python:3.11-slim", image)
    objects = [each for each in yaml.safe_load_all(text) if each["kind"] != "Namespace"]
    for each in objects:
        del each["metadata"]["namespace"]
    return objects


def programmed(
    namespace: Namespace, name: str = "shop", *, endpoints: str = "", proxies: int = 1, seconds: float = 60.0
) -> Object:
    """The object once its ready proxies, at least so many, have acknowledged its newest spec.

    And once so many of its endpoints are usable ("4/4").
    """

    def holds(found: Object) -> bool:
        status = found.get("status", {})
        facts = [each for each in status.get("conditions") or [] if each["type"] == "Programmed"]
        newest = [("True", found["metadata"]["generation"])] if found else []
        told = [(fact["status"], fact["observedGeneration"]) for fact in facts]
        enough = status.get("proxy", {}).get("programmed", 0) >= proxies and endpoints in ("", status.get("endpoints"))
        return bool(told) and told == newest and enough

    return namespace.wait(SERVICES, name, holds, seconds)


def patch(namespace: Namespace, spec: Object, name: str = "shop") -> None:
    """`kubectl patch` of a BalancedService's spec."""
    namespace.kubectl("patch", f"bsvc/{name}", "--type=merge", "-p", json.dumps({"spec": spec}))
