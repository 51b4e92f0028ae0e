"""One test's namespace, with the Pod Security level `restricted` on it, and what tests do in one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from urllib3.exceptions import HTTPError

from tests.cluster.api import ApiError, Cluster, CommandError, Object
from tests.cluster.traffic import Client, backend, client_pod

LABELS = {"pod-security.kubernetes.io/enforce": "restricted", "steelyard.dev/test": "true"}


class Namespace:
    """A namespace's name, and the cluster's methods with it filled in. Resources: `apps/v1/deployments`, `v1/pods`."""

    def __init__(self, cluster: Cluster, name: str, app_image: str) -> None:
        self.cluster = cluster
        self.name = name
        self._app_image = app_image

    def __str__(self) -> str:
        return self.name

    def create(self) -> None:
        """Make it, and wait for the service account without which no pod starts."""
        self.cluster.call("POST", "/api/v1/namespaces", {"metadata": {"name": self.name, "labels": LABELS}})
        self.wait("v1/serviceaccounts", "default", bool)

    def delete(self) -> None:
        """Have it removed, with all that is in it; does not wait."""
        self.cluster.call("DELETE", f"/api/v1/namespaces/{self.name}")

    def path(self, resource: str, name: str = "") -> str:
        """The API path of a collection, or of an object in it."""
        version, _, plural = resource.rpartition("/")
        root = "/api/v1" if version == "v1" else f"/apis/{version}"
        return f"{root}/namespaces/{self.name}/{plural}" + (f"/{name}" if name else "")

    def kubectl(self, *argv: str, stdin: str | None = None, timeout: float = 60.0) -> str:
        return self.cluster.kubectl("-n", self.name, *argv, stdin=stdin, timeout=timeout)

    def apply(self, *objects: Object) -> str:
        return self.cluster.apply(*objects, options=("-n", self.name))

    def get(self, resource: str, name: str) -> Object | None:
        return self.cluster.get(self.path(resource, name))

    def list(self, resource: str, **labels: str) -> list[Object]:
        """The objects of a collection that have these labels (`__` stands for `/`, `_` for `-`)."""
        wanted = ",".join(f"{key.replace('__', '/').replace('_', '-')}={value}" for key, value in labels.items())
        found: list[Object] = self.cluster.call("GET", f"{self.path(resource)}?labelSelector={wanted}")["items"]
        return found

    def wait(self, resource: str, name: str, until: Callable[[Object], Any], seconds: float = 60.0) -> Object:
        """As `Cluster.wait`: the object, once `until` holds of it; `{}` is asked while there is none."""
        return self.cluster.wait(self.path(resource, name), until, seconds)

    def exec(self, pod: str, *argv: str, stdin: str | None = None, timeout: float = 60.0) -> str:
        """Run a command in a pod (`deployment/NAME` takes one of its pods)."""
        return self.kubectl(
            "exec", pod, *(("-i",) if stdin is not None else ()), "--", *argv, stdin=stdin, timeout=timeout
        )

    def rolled_out(self, deployment: str, seconds: float = 90.0) -> Object:
        """The Deployment, once every replica is of its newest template and available, and none else is left."""
        return self.wait("apps/v1/deployments", deployment, _rolled_out, seconds)

    def backend(self, name: str, **options: Any) -> None:
        """Run the test application as a Deployment and Service NAME (see `traffic.backend`), and wait for it."""
        self.apply(*backend(name, self._app_image, **options))
        self.rolled_out(name)

    def described(self) -> str:
        """Pods, events and the last lines of every log: what a person asks for first when a test has failed."""
        commands = [("get", "all,endpointslices", "-o", "wide"), ("events",)]
        try:
            pods = self.list("v1/pods")
        except (ApiError, HTTPError) as error:  # the failure must be told nevertheless
            return f"the API server does not answer: {error}"
        for pod in pods:
            name = pod["metadata"]["name"]
            commands.append(("logs", name, "--all-containers", "--prefix", "--tail=40", "--ignore-errors"))
        shown = []
        for command in commands:
            try:
                shown.append(self.kubectl(*command))
            except CommandError as error:  # a pod that has gone meanwhile
                shown.append(str(error))
        return "\n".join(shown)

    def pods(self, **labels: str) -> set[str]:
        """The names of the pods with these labels that are not about to go."""
        found = self.list("v1/pods", **labels)
        return {pod["metadata"]["name"] for pod in found if "deletionTimestamp" not in pod["metadata"]}

    def client(self, name: str = "client", **options: Any) -> Client:
        """A pod that sends requests (see `traffic.client_pod`), running."""
        self.apply(client_pod(name, self._app_image, **options))
        self.wait("v1/pods", name, lambda pod: pod.get("status", {}).get("phase") == "Running")
        return Client(self.cluster, self.name, name)


def _rolled_out(deployment: Object) -> bool:
    status = deployment.get("status", {})
    if not deployment or status.get("observedGeneration", 0) < deployment["metadata"]["generation"]:
        return False
    wanted = deployment["spec"]["replicas"]
    counts = [status.get(key, 0) for key in ("replicas", "updatedReplicas", "availableReplicas")]
    return counts == [wanted] * 3
