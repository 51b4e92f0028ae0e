"""Sidecars given by the chart's policy (`injection.mode: Policy`): the same as the pure function's, and no server."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import pytest
import yaml

from controller.children import ChildSettings
from controller.injecting import from_list
from controller.injection import Injected, InjectionSettings, Target, inject
from controller.kube.writers import covers
from tests.cluster.api import Cluster, CommandError, Images, Object
from tests.cluster.conftest import PROJECT
from tests.cluster.deployed import OWN, SERVICES, Operator, balanced
from tests.cluster.faults import until
from tests.cluster.namespace import Namespace
from tests.cluster.traffic import client_pod

ASKS = {"steelyard.dev/inject": "enabled"}
DEFAULTS = {"terminationMessagePath", "terminationMessagePolicy"}  # that the API server adds
ACCOUNT = "kube-api-access-"  # volumes that it adds
OURS = "app.kubernetes.io/name=steelyard"
POLICIES = (
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
)


@pytest.fixture(scope="module")
def policy(operator: Operator, crd: Cluster, images: Images) -> Iterator[Operator]:
    """The operator as the chart installs it in this mode. The webhook's configuration leads nowhere then."""
    if '"mutatingadmissionpolicies"' not in crd.kubectl("get", "--raw", "/apis/admissionregistration.k8s.io/v1"):
        pytest.skip("a cluster of before Kubernetes 1.36")
    registry, _, tag = images.proxy.rpartition("/steelyard-proxy:")
    values = ("injection.mode=Policy", "crds.enabled=false", f"image.registry={registry}", f"proxy.image.tag={tag}")
    options = [word for value in values for word in ("--set", value)]
    chart = str(PROJECT / "charts" / "steelyard")
    operator.deploy(crd.helm("template", "steelyard", chart, "-n", OWN, "--skip-tests", *options))
    yield operator
    crd.kubectl("delete", ",".join(POLICIES), "-l", OURS)
    operator.deploy()


@pytest.fixture
def services(policy: Operator, namespace: Namespace) -> list[Target]:
    """Three, once the policy gives a pod all of them."""
    namespace.apply(
        balanced(ports=[{"port": 80}, {"name": "raw", "port": 9000, "protocol": "TCP"}], proxy={"mode": "Sidecar"}),
        balanced("stock", ports=[{"port": 8080}], proxy={"mode": "Sidecar"}),
        balanced("wide", ports=[{"name": f"p{n}", "port": 7000 + n} for n in range(16)], proxy={"mode": "Sidecar"}),
        balanced("gate", ports=[{"port": 81}], proxy={"mode": "External"}),
    )
    found = [
        namespace.wait(SERVICES, name, lambda each: each.get("status", {}).get("sidecar", {}).get("address"))
        for name in ("shop", "stock", "wide")
    ]
    until(lambda: len(made(namespace, pod())["spec"].get("hostAliases", ())) == 3, 30)
    return from_list(found, "test")


def pod(annotations: dict[str, str] | None = None, **spec: Any) -> Object:
    found = client_pod("asking", "app", labels=ASKS, annotations=annotations)
    container = found["spec"]["containers"][0] | {"ports": spec.pop("ports", [])}
    return found | {"spec": found["spec"] | {"containers": [container]} | spec}


def made(namespace: Namespace, given: Object) -> Object:
    """The pod as the API server would keep it."""
    said = namespace.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", stdin=json.dumps(given))
    found: Object = json.loads(said)
    return found


GIVEN: Object = {
    "name": "steelyard",
    "image": "theirs",
    "resources": {"limits": {"memory": "200Mi"}, "requests": {"cpu": "50m", "memory": "200Mi"}},
    "securityContext": client_pod("", "")["spec"]["containers"][0]["securityContext"] | {"runAsUser": 1234},
}
SETUP: Object = GIVEN | {"name": "setup"}
PODS = {
    "nothing": pod(),
    "init containers": pod(initContainers=[SETUP]),
    "what its author set on the sidecar": pod(initContainers=[SETUP, GIVEN]),
    "one service": pod({"steelyard.dev/services": " stock, "}),
    "excluded ports": pod({"steelyard.dev/exclude-ports": "80, 1"}),
    "a service's port": pod(ports=[{"containerPort": 8080}, {"containerPort": 80, "protocol": "UDP"}]),
    "so many containers that they cost the policy's budget": pod(
        containers=[
            pod(ports=[{"containerPort": 1000 + 20 * c + p} for p in range(20)])["spec"]["containers"][0]
            | {"name": f"app-{c}"}
            for c in range(50)
        ]
    ),
    "ports of its own": pod({"steelyard.dev/health-port": "8080", "steelyard.dev/admin-port": "15"}),
    "volumes and names": pod(
        {"cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes": "tmp"},
        volumes=[{"name": "tmp", "emptyDir": {}}, {"name": "steelyard-ca", "emptyDir": {}}],
        hostAliases=[{"ip": "192.0.2.1", "hostnames": ["elsewhere"]}],
    ),
}


@pytest.mark.timeout(300, func_only=True)
def test_the_policy_makes_of_a_pod_what_the_webhook_makes_of_it_and_only_once(
    services: list[Target], policy: Operator, namespace: Namespace, images: Images
) -> None:
    control = f"https://steelyard-controller.{OWN}.svc:19443"
    settings = InjectionSettings(proxy=ChildSettings(image=images.proxy, control=control), version=version("steelyard"))
    policy.scale(0)  # nobody is asked

    try:
        for name, given in PODS.items():
            expected = inject(given, namespace.name, services, settings)
            found = made(namespace, given)
            again = made(namespace, found | {"metadata": kept(found), "status": {}})
            assert isinstance(expected, Injected), expected
            assert differences(found, expected.pod) == [], name
            assert differences(again, expected.pod) == [], name
            assert again["spec"] == found["spec"], name
    finally:
        policy.scale(2)


def kept(pod: Object) -> Object:
    return {name: pod["metadata"][name] for name in ("name", "namespace", "labels", "annotations")}


def differences(found: Object, wanted: Object) -> list[str]:
    """Where the pod of the API server is another than the function's, but for what the server adds, and for order."""
    spec, expected = found["spec"], wanted["spec"]
    sidecar, its = dict(spec["initContainers"][0]), expected["initContainers"][0]
    sidecar["args"] = sorted(sidecar["args"])
    mounts = [each for each in sidecar["volumeMounts"] if not each["name"].startswith(ACCOUNT)]
    volumes = [each for each in spec["volumes"] if not each["name"].startswith(ACCOUNT)]
    names = [each["name"] for each in spec["initContainers"]]
    checks = {
        "sidecar": covers(sidecar | {"volumeMounts": mounts}, its | {"args": sorted(its["args"])}),
        "more": sidecar.keys() - DEFAULTS == its.keys(),
        "mounts": mounts == its["volumeMounts"],
        "resources": sidecar["resources"] == its["resources"],
        "security": sidecar["securityContext"] == its["securityContext"],
        "order": names == [each["name"] for each in expected["initContainers"]],
        "volumes": covers(volumes, expected["volumes"]) and len(volumes) == len(expected["volumes"]),
        "aliases": aliases(spec) == aliases(expected),
        "annotations": found["metadata"]["annotations"] == wanted["metadata"]["annotations"],
    }
    return [name for name, holds in checks.items() if not holds]


def aliases(spec: Object) -> list[tuple[str, list[str]]]:
    return sorted((each["ip"], each["hostnames"]) for each in spec["hostAliases"])


REFUSED = {
    "a pod with hostNetwork can't have a sidecar": pod(hostNetwork=True),
    "annotation steelyard.dev/health-port: 'x' is no port (1 to 65535)": pod({"steelyard.dev/health-port": "x"}),
    "annotation steelyard.dev/admin-port: '70000' is no port": pod({"steelyard.dev/admin-port": "70000"}),
    "annotation steelyard.dev/exclude-ports: '80;81' is no list of ports": pod(
        {"steelyard.dev/exclude-ports": "80;81"}
    ),
    "the sidecar's own ports must differ": pod({"steelyard.dev/health-port": "19911"}),
    "a container declares one of the sidecar's own ports": pod(ports=[{"containerPort": 19912}]),
    "annotation steelyard.dev/services: no BalancedService shpo with mode Sidecar": pod(
        {"steelyard.dev/services": "shop,shpo"}
    ),
}


@pytest.mark.timeout(240, func_only=True)
def test_a_pod_that_can_have_no_sidecar_is_refused_with_the_reason_and_one_that_keeps_a_name_is_warned(
    services: list[Target], namespace: Namespace
) -> None:
    # The level `restricted` would refuse the host's network before anybody else.
    namespace.cluster.kubectl(
        "label", "--overwrite", f"namespace/{namespace}", "pod-security.kubernetes.io/enforce=privileged"
    )

    for message, given in REFUSED.items():
        with pytest.raises(CommandError) as refused:
            made(namespace, given)
        assert message in str(refused.value)
    assert "Warning: " in (said := warnings(namespace, PODS["a service's port"]))
    assert "stock goes by its ordinary Service in this pod, not by the sidecar: port 8080" in said
    assert warnings(namespace, PODS["nothing"]) == ""


def warnings(namespace: Namespace, given: Object) -> str:
    command, environment = namespace.cluster.command(
        "kubectl", "-n", namespace.name, "create", "--dry-run=server", "-f", "-"
    )
    done = subprocess.run(
        command, env=environment, input=json.dumps(given), capture_output=True, text=True, check=True, timeout=60
    )
    return done.stderr


@pytest.mark.timeout(300, func_only=True)
def test_a_pod_made_by_the_policy_is_answered_by_way_of_its_sidecar_and_others_are_left_alone(
    policy: Operator, namespace: Namespace
) -> None:
    namespace.backend("shop-v1", replicas=2)
    namespace.apply(balanced(proxy={"mode": "Sidecar"}))
    namespace.wait(SERVICES, "shop", lambda found: found.get("status", {}).get("sidecar", {}).get("address"))
    until(lambda: "hostAliases" in made(namespace, pod())["spec"], 30)

    plain = namespace.client("plain")
    client = namespace.client("client", labels=ASKS)
    report = client.load("http://shop/", "--count=100", seconds=5)
    served = client.python(SERVED)
    others = plain.load("http://shop/", "--count=20", seconds=5)

    assert report["failures"] == others["failures"] == []
    assert set(report["pods"]) == namespace.pods(app="shop-v1")
    assert int(float(served)) == report["requests"]
    found = namespace.get("v1/pods", "plain")
    assert found is not None
    assert "initContainers" not in found["spec"]
    assert "NotInjected" not in namespace.kubectl("get", "events", "-o", "yaml")


SERVED = """
import urllib.request
text = urllib.request.urlopen("http://127.0.0.1:19911/metrics", timeout=5).read().decode()
print(sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith("steelyard_requests_total{")))
"""


def test_the_policies_are_such_as_the_api_server_can_type(policy: Operator, crd: Cluster) -> None:
    found = yaml.safe_load(crd.kubectl("get", "validatingadmissionpolicies", "-l", OURS, "-o", "yaml"))["items"]

    assert [each["metadata"]["name"] for each in found] == [
        f"{OWN}-steelyard-controller{end}" for end in ("", "-warnings")
    ]
    for each in found:
        path = f"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/{each['metadata']['name']}"
        crd.wait(path, lambda policy: policy.get("status", {}).get("typeChecking") == {})
