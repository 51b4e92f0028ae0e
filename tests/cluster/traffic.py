"""The test application in pods: backends that say who answers, and clients that count the answers."""

from __future__ import annotations

import json
import subprocess
import time
from typing import Any

from tests.cluster.api import Cluster, CommandError, Object

PORT = 8080
LEAVE = 3  # seconds from a pod's end until its server is told: by then no proxy sends to it any more

# What the Pod Security level `restricted` asks of a pod; the user is the image's.
POD_SECURITY: Object = {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}}
CONTAINER_SECURITY: Object = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
RESOURCES: Object = {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "256Mi"}}
TMP: Object = {"volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}]}
ZONE = "metadata.labels['topology.kubernetes.io/zone']"


def backend(
    name: str,
    image: str,
    *,
    replicas: int = 1,
    version: str = "v1",
    port: int = 80,
    labels: dict[str, str] | None = None,
    service: bool = True,
) -> list[Object]:
    """A Deployment of servers, spread over the zones, and a Service NAME in front of them.

    Readiness is probed each second at /ready; `touch /tmp/unready` in a pod takes it out.
    """
    labels = {"app": name, **(labels or {})}
    fields = {"POD": "metadata.name", "NODE": "spec.nodeName", "ZONE": ZONE}
    container = {
        "name": "server",
        "image": image,
        "args": ["/app/server.py", str(PORT)],
        "ports": [{"name": "http", "containerPort": PORT}],
        "env": [
            {"name": "VERSION", "value": version},
            *({"name": key, "valueFrom": {"fieldRef": {"fieldPath": path}}} for key, path in fields.items()),
        ],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": PORT}, "periodSeconds": 1, "failureThreshold": 1},
        "lifecycle": {"preStop": {"sleep": {"seconds": LEAVE}}},
        "securityContext": CONTAINER_SECURITY,
        "resources": RESOURCES,
    }
    spread = {
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": labels},
    }
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": _pod(container) | {"topologySpreadConstraints": [spread], "terminationGracePeriodSeconds": 20},
            },
        },
    }
    front = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": labels, "ports": [{"name": "http", "port": port, "targetPort": "http"}]},
    }
    return [deployment, front] if service else [deployment]


def client_pod(
    name: str,
    image: str,
    *,
    zone: str | None = None,
    labels: dict[str, str] | None = None,
    annotations: Object | None = None,
) -> Object:
    """A pod that waits for commands, in this zone if it matters."""
    container = {
        "name": "client",
        "image": image,
        "args": ["-c", "import signal; signal.sigwait({signal.SIGTERM})"],
        "securityContext": CONTAINER_SECURITY,
        "resources": RESOURCES,
    }
    selector = {"nodeSelector": {"topology.kubernetes.io/zone": zone}} if zone else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {}, "annotations": annotations or {}},
        "spec": _pod(container) | selector | {"terminationGracePeriodSeconds": 5},
    }


def _pod(container: Object) -> Object:
    tmp = {"name": "tmp", "emptyDir": {}}
    return {"securityContext": POD_SECURITY, "containers": [container | TMP], "volumes": [tmp]}


class Load:
    """Requests under way in a client pod. `stop` ends them and returns the report (its fields: app/load.py)."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def __enter__(self) -> Load:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.returncode is None:
            self._process.kill()
            self._process.communicate()

    def begun(self) -> Load:
        """Wait for the first good answer."""
        assert self._process.stderr is not None
        line = self._process.stderr.readline()
        if line != "begun\n":
            raise CommandError(f"load client: {line}{self._process.communicate()}")
        return self

    def stop(self, timeout: float = 60.0) -> dict[str, Any]:
        """End it now and wait for what is in flight."""
        output, errors = self._process.communicate(timeout=timeout)  # closes its standard input
        if self._process.returncode != 0:
            raise CommandError(f"load client: {output}{errors}")
        report: dict[str, Any] = json.loads(output)
        return report


class Stream:
    """A response being followed. `pod` says whose it is; `end` waits for its end (result: app/stream.py)."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pod = self._line()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def end(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._line())
        return found

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()  # not `communicate`: it would lose what has been read ahead
        if not line:
            raise CommandError(f"stream client: {self._process.communicate()[1]}")
        return line.strip()


class Client:
    """A running client pod."""

    def __init__(self, cluster: Cluster, namespace: str, pod: str) -> None:
        self._cluster = cluster
        self._pod = ("-n", namespace, "exec", "-i", pod, "-c", "client", "--", "python")

    def python(self, code: str, *argv: str, timeout: float = 60.0) -> str:
        """Run a Python program in the pod; aiohttp is there. Returns its output."""
        return self._cluster.kubectl(*self._pod, "-c", code, *argv, timeout=timeout)

    def load(self, url: str, *options: str, seconds: float = 5.0) -> dict[str, Any]:
        """Send requests for this long (options, report: app/load.py)."""
        words = ("/app/load.py", url, "--seconds", str(seconds), *options)
        report: dict[str, Any] = json.loads(self._cluster.kubectl(*self._pod, *words, timeout=seconds + 60))
        return report

    def loading(self, url: str, *options: str) -> Load:
        """Send requests in the background, until `stop`, for ten minutes at most."""
        return Load(self._popen("/app/load.py", url, "--until-eof", "--seconds", "600", *options))

    def settle(self, url: str, pods: set[str], seconds: float = 60.0) -> None:
        """Return when, for a second, exactly these pods answer and nothing fails: nodes learn of changes one by one."""
        end = time.monotonic() + seconds
        while True:
            report = self.load(url, "--fresh", seconds=1)
            if set(report["pods"]) == pods and not report["failures"]:
                return
            if time.monotonic() > end:
                raise TimeoutError(f"{url}: {pods} should answer, after {seconds:.0f} s: {report}")

    def stream(self, address: str, path: str) -> dict[str, Any]:
        """Follow one response, chunk by chunk, from a raw socket (result: app/stream.py)."""
        with self.streaming(address, path) as found:
            return found.end()

    def streaming(self, address: str, path: str) -> Stream:
        """The same in the background; returns once the response's head is there."""
        return Stream(self._popen("/app/stream.py", address, path))

    def _popen(self, *argv: str) -> subprocess.Popen[str]:
        command, environment = self._cluster.command("kubectl", *self._pod, *argv)
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
