"""Client-side balancing on a real cluster: pods with a sidecar, given by the webhook and by the command line."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
import yaml

from controller.balancing.picker import PickRequest
from controller.model.endpoints import Endpoint
from controller.model.service import Algorithm
from controller.model.snapshot import Snapshot, SnapshotBackend, SnapshotPort
from controller.proxy.hash_key import address_key
from controller.proxy.seat import Seat
from controller.proxy.upstreams import Upstreams
from tests.cluster.api import CommandError, Images, Object, condition
from tests.cluster.deployed import Operator, balanced
from tests.cluster.namespace import Namespace
from tests.cluster.traffic import Client, client_pod
from tests.component.hand_clock import HandTimers

SERVICES = "steelyard.dev/v1alpha1/balancedservices"
ASKS = {"steelyard.dev/inject": "enabled"}
WEBHOOK = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/steelyard-system-steelyard-controller"
SIDECAR = {"mode": "Sidecar"}


@pytest.fixture
def webhook(operator: Operator, namespace: Namespace) -> Iterator[Operator]:
    """The operator with its webhook trusted; it is there again afterwards."""
    namespace.cluster.wait(WEBHOOK, lambda found: found["webhooks"][0]["clientConfig"].get("caBundle"))
    yield operator
    operator.scale(2)


def addressed(namespace: Namespace, name: str = "shop") -> Object:
    """The object once the operator has given it the sidecars' address."""
    return namespace.wait(SERVICES, name, lambda found: found.get("status", {}).get("sidecar", {}).get("address"))


def running(namespace: Namespace, name: str) -> Object:
    return namespace.wait("v1/pods", name, lambda pod: pod.get("status", {}).get("phase") == "Running")


def sidecars(pod: Object) -> list[str]:
    return [each["name"] for each in pod["spec"].get("initContainers", ())]


def injected(namespace: Namespace, images: Images, pod: Object) -> Object:
    """What `steelyard inject` makes of it, asking the API server."""
    command = (sys.executable, "-m", "controller", "inject", "-n", namespace.name, "--proxy-image", images.proxy)
    _, environment = namespace.cluster.command("kubectl")
    done = subprocess.run(
        (*command, "--kubeconfig", environment["KUBECONFIG"]),
        input=yaml.safe_dump(pod),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    found: Object = yaml.safe_load(done.stdout)
    return found


def events(namespace: Namespace, reason: str) -> list[str]:
    found = json.loads(namespace.kubectl("get", "events", "-o", "json"))["items"]
    return [each["involvedObject"]["name"] for each in found if each["reason"] == reason]


@pytest.mark.timeout(420, func_only=True)
def test_pods_injected_either_way_go_on_through_a_rollout_and_without_the_operator(
    webhook: Operator, namespace: Namespace, app_image: str, images: Images
) -> None:
    namespace.backend("shop-v1", replicas=2, version="v1")
    namespace.backend("shop-v2", replicas=1, version="v2")
    backends = [
        {"name": "stable", "service": {"name": "shop-v1"}, "weight": 80},
        {"name": "canary", "service": {"name": "shop-v2"}, "weight": 20},
    ]
    namespace.apply(balanced(backends=backends, proxy=SIDECAR))
    addressed(namespace)

    hooked = namespace.client("hooked", labels=ASKS)
    namespace.apply(injected(namespace, images, client_pod("piped", app_image)))
    namespace.apply(client_pod("plain", app_image))
    pods = {name: running(namespace, name) for name in ("hooked", "piped", "plain")}
    piped = Client(namespace.cluster, namespace.name, "piped")

    assert {name: sidecars(pod) for name, pod in pods.items()} == {
        "hooked": ["steelyard"],
        "piped": ["steelyard"],
        "plain": [],
    }
    arguments = [pods[name]["spec"]["initContainers"][0]["args"] for name in ("hooked", "piped")]
    assert arguments[0] == arguments[1]

    with hooked.loading("http://shop/") as first, piped.loading(f"http://shop.{namespace}.svc/") as second:
        first.begun()
        second.begun()
        namespace.kubectl("rollout", "restart", "deployment/shop-v1")
        namespace.rolled_out("shop-v1", seconds=150)
        webhook.scale(0)
        namespace.apply(client_pod("late", app_image, labels=ASKS))
        late = running(namespace, "late")
        webhook.scale(2)
        reports = [first.stop(), second.stop()]

    for report in reports:
        assert report["failures"] == []
        share = report["versions"]["v2"] / report["ok"]
        assert abs(share - 0.2) < 0.05, report["versions"]
    assert sidecars(late) == []
    until_said(namespace, "NotInjected", "late")
    assert webhook.metric("steelyard_operator_pods_without_sidecar") == {1.0}
    # Without a sidecar the name still leads somewhere: to the ordinary Service.
    plain = Client(namespace.cluster, namespace.name, "plain").load("http://shop/", seconds=1)
    assert plain["failures"] == []


def until_said(namespace: Namespace, reason: str, name: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/events"
    namespace.cluster.wait(f"/api/v1/namespaces/{namespace}/pods/{name}", bool)
    found = events(namespace, reason)
    if name not in found:
        for event in namespace.cluster.watch(path, 60.0):
            item = event["object"]
            if item["reason"] == reason and item["involvedObject"]["name"] == name:
                return
        raise AssertionError(f"no Event {reason} on {name}")


@pytest.mark.timeout(240, func_only=True)
def test_what_an_author_says_of_the_sidecar_is_heard(webhook: Operator, namespace: Namespace, app_image: str) -> None:
    namespace.backend("shop-v1", replicas=1)
    namespace.apply(balanced(ports=[{"port": 8080}], proxy=SIDECAR))
    addressed(namespace)

    with pytest.raises(CommandError, match=r"annotation steelyard\.dev/services: no BalancedService shpo"):
        namespace.apply(client_pod("bad", app_image, labels=ASKS, annotations={"steelyard.dev/services": "shpo"}))

    listening = client_pod("listening", app_image, labels=ASKS)
    server = listening["spec"]["containers"][0]
    listening["spec"]["containers"][0] = server | {
        "args": ["/app/server.py", "8080"],
        "ports": [{"containerPort": 8080}],
    }
    said = namespace.kubectl("apply", "-f", "-", stdin=json.dumps(listening))
    pod = running(namespace, "listening")
    report = Client(namespace.cluster, namespace.name, "listening").load("http://shop:8080/", "--count=5", seconds=5)

    assert "listening" in said
    assert sidecars(pod) == []
    assert report["failures"] == []
    assert set(report["pods"]) == namespace.pods(app="shop-v1")


def chosen(address: str, pods: list[Object]) -> str:
    """The name of the pod to which SourceHash sends a client: by the proxies' own function."""
    endpoints = tuple(
        Endpoint(
            id=pod["metadata"]["uid"],
            address=pod["status"]["podIP"],
            port=8080,
            pod="/".join((pod["metadata"]["namespace"], pod["metadata"]["name"])),
        )
        for pod in pods
    )
    backend = SnapshotBackend(name="stable", weight=1, weight_per="Backend", endpoints=endpoints)
    port = SnapshotPort(name="http", port=80, listen=80, backends=(backend,))
    snapshot = Snapshot(namespace="x", name="shop", ports=(port,), algorithm=Algorithm(type="SourceHash"))
    upstreams = Upstreams(Seat(identity="test"), HandTimers(), lambda u, n: None, lambda u, n: None)
    upstreams.apply(snapshot)
    upstream = upstreams.get(snapshot.key, "http")
    assert upstream is not None
    return upstream.pick(PickRequest(0.0, address_key(address))).endpoint.pod.partition("/")[2]


@pytest.mark.timeout(300, func_only=True)
def test_the_client_is_the_pod_and_keeps_what_its_address_gives(webhook: Operator, namespace: Namespace) -> None:
    namespace.backend("shop-v1", replicas=3)
    namespace.apply(balanced(proxy=SIDECAR, algorithm={"type": "SourceHash"}))
    addressed(namespace)
    pods = namespace.list("v1/pods", app="shop-v1")

    for name in ("one", "two"):
        client = namespace.client(name, labels=ASKS)
        address = running(namespace, name)["status"]["podIP"]
        report = client.load("http://shop/", "--count=20", seconds=5)
        said = json.loads(client.python(ASK, "http://shop/"))

        assert report["failures"] == []
        assert set(report["pods"]) == {chosen(address, pods)}
        assert dict(said["headers"])["X-Forwarded-For"] == f"192.0.2.7, {address}"
        by_proxy = json.loads(client.python(ASK_BY_PROXY, f"http://shop.{namespace}/"))
        assert by_proxy["pod"] == chosen(address, pods)


ASK = """
import sys, urllib.request
request = urllib.request.Request(sys.argv[1], headers={"X-Forwarded-For": "192.0.2.7"})
print(urllib.request.urlopen(request, timeout=5).read().decode())
"""
ASK_BY_PROXY = """
import sys, urllib.request
opener = urllib.request.build_opener(urllib.request.ProxyHandler({"http": "http://127.0.0.1:19915"}))
print(opener.open(sys.argv[1], timeout=5).read().decode())
"""


@pytest.mark.timeout(300, func_only=True)
def test_no_request_leaves_its_zone_while_an_endpoint_of_it_is_there(webhook: Operator, namespace: Namespace) -> None:
    namespace.backend("shop-v1", replicas=3)
    namespace.apply(balanced(proxy=SIDECAR, locality={"prefer": "Zone"}))
    addressed(namespace)
    client = namespace.client("client", zone="zone-a", labels=ASKS)

    with client.loading("http://shop/", "--each") as load:
        load.begun()
        near = client.load("http://shop/", "--count=30", seconds=5)
        (local,) = near["pods"]
        at = time.time()
        namespace.exec(local, "python", "-c", "open('/tmp/unready', 'w')")
        namespace.wait("v1/pods", local, lambda pod: condition(pod, "Ready") == "False")
        unready = time.time()
        client.settle("http://shop/", namespace.pods(app="shop-v1") - {local})
        report = load.stop()

    crossed = [when for when, _, pod, _ in report["each"] if pod != local]
    stayed = [when for when, _, pod, _ in report["each"] if pod == local]
    assert near["zones"].keys() == {"zone-a"}
    assert report["failures"] == []
    assert at <= min(crossed)
    assert max(stayed) <= unready + 1.0


@pytest.mark.timeout(300, func_only=True)
def test_a_pod_starts_without_the_operator_and_is_told_when_its_service_is_gone(
    webhook: Operator, namespace: Namespace, app_image: str, images: Images
) -> None:
    namespace.backend("shop-v1", replicas=2)
    namespace.apply(balanced(proxy=SIDECAR))
    addressed(namespace)
    namespace.wait(SERVICES, "shop", lambda found: found["status"].get("address"))
    made = injected(namespace, images, client_pod("client", app_image))
    webhook.scale(0)

    namespace.apply(made)
    running(namespace, "client")
    client = Client(namespace.cluster, namespace.name, "client")
    alone = client.load("http://shop/", seconds=2)
    passing = client.python(ASK, "http://127.0.0.1:19911/metrics")
    with client.loading("http://shop/") as load:
        load.begun()
        webhook.scale(2)
        report = load.stop()
    heard = client.python(UNTIL, "http://127.0.0.1:19911/metrics", "steelyard_pass_through 0.0")
    namespace.kubectl("delete", "bsvc/shop", "--wait")
    gone = client.python(UNTIL, "http://shop/", "ServiceGone")

    assert alone["failures"] == []
    assert set(alone["pods"]) <= namespace.pods(app="shop-v1")
    assert "steelyard_pass_through 1.0" in passing
    assert report["failures"] == []
    assert heard.strip() == "200"
    assert gone.strip() == "503"


# Asks until the answer has these words; prints its status.
UNTIL = """
import sys, time, urllib.error, urllib.request
end = time.monotonic() + 30
while time.monotonic() < end:
    try:
        with urllib.request.urlopen(sys.argv[1], timeout=5) as answer:
            status, text = answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        status, text = error.code, error.read().decode()
    if sys.argv[2] in text:
        print(status)
        break
    time.sleep(0.1)
"""
