"""Sidecars while their object changes its mode, and at the end of their pods. Every request counts."""

from __future__ import annotations

import json
import subprocess
import time

import pytest

from tests.cluster.api import Object
from tests.cluster.deployed import SERVICES, SLICES, Operator, balanced, patch, programmed
from tests.cluster.namespace import Namespace
from tests.cluster.traffic import client_pod

ASKS = {"steelyard.dev/inject": "enabled"}
WEBHOOK = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/steelyard-system-steelyard-controller"
STEADY = ("--rate", "100", "--concurrency", "64")
MANAGED_BY = "endpointslice.kubernetes.io/managed-by"


@pytest.fixture(autouse=True)
def webhook(operator: Operator, namespace: Namespace) -> None:
    """The operator's, once it is trusted."""
    namespace.cluster.wait(WEBHOOK, lambda found: found["webhooks"][0]["clientConfig"].get("caBundle"))


def addressed(namespace: Namespace) -> None:
    """Wait until a pod can be given a sidecar of it."""
    namespace.wait(SERVICES, "shop", lambda found: found.get("status", {}).get("sidecar", {}).get("address"))


@pytest.mark.timeout(420, func_only=True)
def test_a_change_of_mode_fails_no_request_of_any_client_and_leaves_nothing_of_the_mode_before(
    namespace: Namespace,
) -> None:
    namespace.backend("shop-v1", replicas=2)
    namespace.apply(balanced(proxy={"mode": "Sidecar"}))
    addressed(namespace)
    beside, plain = namespace.client("beside", labels=ASKS), namespace.client("plain")
    plain.settle("http://shop/", namespace.pods(app="shop-v1"))

    with (
        beside.loading("http://shop/", *STEADY) as first,
        plain.loading("http://shop/", *STEADY) as second,
        plain.loading("http://shop/", *STEADY, "--fresh") as third,
    ):
        for load in (first, second, third):
            load.begun()
        patch(namespace, {"proxy": {"mode": "Gateway"}})
        programmed(namespace, proxies=2, seconds=120)
        gateway = written(namespace, "endpointslice-controller.k8s.io", "shop-lb")
        patch(namespace, {"proxy": {"mode": "Sidecar"}})
        namespace.wait("apps/v1/deployments", "shop-lb", lambda found: not found)
        gone(namespace)
        sidecar = written(namespace, "steelyard.dev", "shop-v1")
        reports = [load.stop() for load in (first, second, third)]

    for report in reports:
        assert report["failures"] == []
        assert report["ok"] == report["requests"] > 500
        assert set(report["pods"]) == namespace.pods(app="shop-v1")
    assert len(gateway) == 2
    assert sidecar == namespace.pods(app="shop-v1")
    assert namespace.get("v1/endpoints", "shop") is None
    for resource, name in (("v1/serviceaccounts", "shop-lb"), ("policy/v1/poddisruptionbudgets", "shop-lb")):
        assert namespace.get(resource, name) is None
    front = namespace.get("v1/services", "shop")
    assert front is not None
    assert "selector" not in front["spec"]


def written(namespace: Namespace, writer: str, prefix: str) -> set[str]:
    """The pods in the slices of `shop`, once all of its slices are this writer's and name some: pods of that prefix."""
    end = time.monotonic() + 60
    while True:
        found = namespace.list(SLICES, **{"kubernetes.io__service_name": "shop"})
        pods = {each["targetRef"]["name"] for piece in found for each in piece.get("endpoints") or []}
        if pods and {piece["metadata"]["labels"][MANAGED_BY] for piece in found} == {writer}:
            assert all(pod.startswith(f"{prefix}-") for pod in pods), pods
            return pods
        assert time.monotonic() < end, found
        time.sleep(0.2)


def gone(namespace: Namespace) -> None:
    """Wait for the last of the proxies' pods."""
    for pod in namespace.list("v1/pods", **{"steelyard.dev__balancedservice": "shop"}):
        namespace.wait("v1/pods", pod["metadata"]["name"], lambda found: not found)


@pytest.mark.timeout(240, func_only=True)
def test_what_a_pod_asks_at_its_end_is_answered_and_its_sidecar_leaves_after_it_in_time(
    namespace: Namespace, app_image: str
) -> None:
    namespace.backend("shop-v1", replicas=2)
    namespace.apply(balanced(proxy={"mode": "Sidecar"}))
    addressed(namespace)
    leaving = client_pod("leaving", app_image, labels=ASKS)
    container = leaving["spec"]["containers"][0]
    container["args"] = ["-c", LEAVING]
    container["lifecycle"] = {"preStop": {"exec": {"command": ["python", "-c", BEFORE]}}}
    leaving["spec"]["terminationGracePeriodSeconds"] = GRACE
    namespace.apply(leaving)
    namespace.wait("v1/pods", "leaving", lambda pod: pod.get("status", {}).get("phase") == "Running")
    command, environment = namespace.cluster.command(
        "kubectl", "-n", namespace.name, "logs", "-f", "leaving", "-c", "client"
    )
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as logs:
        assert logs.stdout is not None
        assert logs.stdout.readline() == "up\n"
        namespace.kubectl("delete", "pod/leaving", "--wait=false")
        ended, took = end_of(namespace, "leaving")
        # The kubelet ends the log of a container that is removed meanwhile with a complaint of its own.
        said = [json.loads(line) for line in logs.stdout if line.startswith("{")]

    assert [each["when"] for each in said] == ["preStop", "at once", "later", "slow"]
    assert {each["status"] for each in said} == {200}
    assert ended["steelyard"]["exitCode"] == 0
    assert ended["steelyard"]["finishedAt"] >= ended["client"]["finishedAt"]
    assert took < GRACE - 5


GRACE = 25  # seconds; the sidecar's own drain would last for 30
ASK = """
import json, signal, sys, time, urllib.request
def ask(when, path=""):
    with urllib.request.urlopen("http://shop/" + path, timeout=10) as answer:
        return json.dumps({"when": when, "status": answer.status})
"""
BEFORE = ASK + "open('/tmp/said', 'w').write(ask('preStop'))"
LEAVING = (
    ASK
    + """
def leave(*_):
    print(open("/tmp/said").read(), flush=True)
    print(ask("at once"), flush=True)
    time.sleep(2)
    print(ask("later"), flush=True)
    print(ask("slow", "slow/2"), flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
print("up", flush=True)
while True:
    signal.pause()
"""
)


def end_of(namespace: Namespace, name: str) -> tuple[dict[str, Object], float]:
    """How each container of the pod ended, and the seconds until the pod was gone."""
    ended: dict[str, Object] = {}
    begun = time.monotonic()
    for event in namespace.cluster.watch(namespace.path("v1/pods"), 90, fieldSelector=f"metadata.name={name}"):
        status = event["object"].get("status", {})
        for each in [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]:
            if "terminated" in each.get("state", {}):
                ended[each["name"]] = each["state"]["terminated"]
        if event["type"] == "DELETED":
            return ended, time.monotonic() - begun
    raise TimeoutError(f"pod {name} is still there")


def test_a_job_ends_with_its_sidecar(namespace: Namespace, app_image: str) -> None:
    namespace.backend("shop-v1", replicas=1)
    namespace.apply(balanced(proxy={"mode": "Sidecar"}))
    addressed(namespace)
    pod = client_pod("job", app_image, labels=ASKS)
    pod["spec"]["containers"][0]["args"] = ["/app/load.py", "http://shop/", "--count", "20"]
    template = {"metadata": {"labels": ASKS}, "spec": pod["spec"] | {"restartPolicy": "Never"}}

    namespace.apply(
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"}, "spec": {"template": template}}
    )
    namespace.wait("batch/v1/jobs", "job", lambda job: job.get("status", {}).get("succeeded"))

    (made,) = namespace.list("v1/pods", batch_kubernetes_io__job_name="job") or namespace.list(
        "v1/pods", job_name="job"
    )
    assert [each["name"] for each in made["spec"]["initContainers"]] == ["steelyard"]
    assert '"failures": []' in namespace.kubectl("logs", made["metadata"]["name"], "-c", "client")
