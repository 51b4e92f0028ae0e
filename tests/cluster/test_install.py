"""A cluster's owner installs, upgrades under load, goes back, and leaves; on an empty cluster, by Helm.

Each test installs for itself and leaves nothing. The chart it upgrades from is charts/steelyard-0.0.9.tgz, with the
images of this checkout under a second name: another template for every pod, and so a rollout of everything.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cluster.api import Cluster, CommandError, Object, condition
from tests.cluster.conftest import CANNOT, CRD, PROJECT, own_cluster
from tests.cluster.local import cluster as local
from tests.cluster.local import images as builder
from tests.cluster.local.buildah import Image
from tests.cluster.local.layout import Layout
from tests.cluster.local.machine import Say
from tests.cluster.namespace import Namespace
from tests.cluster.traffic import Client

CHART = PROJECT / "charts" / "steelyard"
EARLIER = Path(__file__).parent / "charts" / "steelyard-0.0.9.tgz"
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

pytestmark = pytest.mark.timeout(300, func_only=True)


@pytest.fixture(scope="module")
def built(say: Say) -> tuple[Image, Image]:
    """The operator's and the proxies', once: a file of the checkout may change meanwhile."""
    return builder.project(say)


@pytest.fixture(scope="module")
def empty(say: Say, built: tuple[Image, Image]) -> Iterator[Cluster]:
    """A cluster that never saw Steelyard, with its images."""
    given = os.environ.get("STEELYARD_TEST_KUBECONFIG")
    if not given:
        with own_cluster(say, "empty-") as found:
            _load(found, built, say)
            yield found
        return
    layout = Layout(Path(given).resolve().parent)
    if not local.running(layout):
        pytest.skip(f"{CANNOT}: the chart's tests want images that only a local cluster is given")
    found = Cluster(Path(given), local.LocalCluster(layout, say))
    if found.get(f"{CRDS}/{CRD}"):
        pytest.skip(f"{CANNOT}: the chart's tests want one without our CRD")
    _load(found, built, say)
    yield found
    found.close()


def _load(cluster: Cluster, built: tuple[Image, Image], say: Say) -> None:
    assert cluster.local is not None
    renamed = [Image(f"{image.reference.rpartition(':')[0]}:before", image.layout) for image in built]
    cluster.local.load("project", [*built, *renamed])
    cluster.local.load("app", [builder.app(say)])


@pytest.fixture(scope="module")
def app(say: Say) -> str:
    return builder.app(say).reference


@pytest.fixture(scope="module")
def now(built: tuple[Image, Image]) -> list[str]:
    """Values that name the images of this checkout."""
    controller, proxy = (image.reference.rpartition(":")[2] for image in built)
    return _tags(controller, proxy)


def _tags(controller: str, proxy: str) -> list[str]:
    values = ("image.registry=localhost", f"controller.image.tag={controller}", f"proxy.image.tag={proxy}")
    return [word for value in values for word in ("--set", value)]


BEFORE = _tags("before", "before")


@pytest.fixture
def release(empty: Cluster) -> Iterator[Cluster]:
    """The cluster with a namespace for the release, enforced as `restricted`; empty again afterwards."""
    body: Object = {"metadata": {"name": OWN, "labels": RESTRICTED}}
    empty.call("POST", "/api/v1/namespaces", body)
    yield empty
    with suppress(CommandError):  # it may have uninstalled it itself
        empty.helm("uninstall", "steelyard", "-n", OWN, "--wait")
    empty.kubectl("delete", "crd", CRD, "--ignore-not-found", "--wait=true")
    empty.kubectl("delete", "namespace", OWN, "store", "elsewhere", "--ignore-not-found", timeout=120)


@pytest.fixture
def client(empty: Cluster, app: str) -> Iterator[Client]:
    """A pod that asks, in a namespace of its own."""
    asking = Namespace(empty, f"asking-{time.time_ns() % 10**9}", app)
    asking.create()
    yield asking.client()
    asking.delete()


def install(cluster: Cluster, *options: str, chart: Path = CHART) -> None:
    cluster.helm("install", "steelyard", str(chart), "-n", OWN, *options, timeout=180)


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


def left(cluster: Cluster, kinds: tuple[str, ...], *where: str) -> list[str]:
    """Names of what is there of ours, or of anything in the release's namespace that Kubernetes hasn't put there."""
    found = cluster.kubectl("get", ",".join(kinds), *where, "-o", "name", "--ignore-not-found").split()
    return [name for name in found if name not in ("serviceaccount/default", "configmap/kube-root-ca.crt")]


def test_an_empty_cluster_answers_within_a_minute(
    release: Cluster, client: Client, app: str, now: list[str], say: Say
) -> None:
    release.call("POST", "/api/v1/namespaces", {"metadata": {"name": "store", "labels": RESTRICTED}})
    begun = time.monotonic()

    install(release, *now)
    example(release, app)
    while not (report := client.load("http://shop.store/", "--count", "20", seconds=2))["ok"]:
        assert time.monotonic() - begun < 120, report["failures"][-1:]
    took = time.monotonic() - begun

    say(f"from helm install to answered requests: {took:.1f} s")
    assert took < 60
    shop(release)
    report = client.load("http://shop.store/", seconds=3)
    assert not report["failures"]
    assert report["versions"].keys() == {"stable", "canary"}


def test_its_own_check_passes_and_leaves_nothing(release: Cluster, now: list[str]) -> None:
    install(release, *now, "--wait")

    said = release.helm("test", "steelyard", "-n", OWN, "--logs", timeout=180)

    assert "100 of 100 requests answered by the backend" in said
    assert left(release, ("pods", "balancedservices"), "-n", OWN, "-l", "steelyard.dev/check") == []
    release.wait(f"/apis/apps/v1/namespaces/{OWN}/deployments/steelyard-test-lb", lambda found: not found)


def test_an_upgrade_and_a_rollback_under_load_fail_no_request(
    release: Cluster, client: Client, app: str, now: list[str], say: Say
) -> None:
    install(release, *BEFORE, "--wait", chart=EARLIER)
    example(release, app)
    shop(release)
    client.settle("http://shop.store/", _backends(release))

    with client.loading("http://shop.store/", "--rate", "200", "--concurrency", "128", "--timeout", "20") as load:
        release.helm("upgrade", "steelyard", str(CHART), "-n", OWN, *now, "--wait", timeout=180)
        proxies(release, _tag(now))
        release.helm("rollback", "steelyard", "1", "-n", OWN, "--wait", timeout=180)
        proxies(release, "before")
        report = load.stop()

    say(f"upgrade and rollback: {report['requests']} requests, {len(report['failures'])} failed, p99 {report['p99']} s")
    # By reason, since a machine that is short of everything shows in another way than a lost request.
    assert Counter(failure["reason"] for failure in report["failures"]) == {}
    assert report["requests"] > 1000


def _backends(cluster: Cluster) -> set[str]:
    pods = json.loads(cluster.kubectl("-n", "store", "get", "pods", "-l", "app=shop", "-o", "json"))["items"]
    return {pod["metadata"]["name"] for pod in pods}


def test_a_new_image_rolls_no_more_deployments_at_a_time_than_told(release: Cluster, now: list[str]) -> None:
    names = {f"shop-{number}-lb" for number in range(3)}
    install(release, *BEFORE, "--wait", chart=EARLIER)
    release.apply(*(_small(name.removesuffix("-lb")) for name in names))
    path = f"/apis/apps/v1/namespaces/{OWN}/deployments"
    for name in names:
        release.wait(f"{path}/{name}", lambda found: found and not rolling(found))
    version = release.call("GET", path)["metadata"]["resourceVersion"]

    release.helm("upgrade", "steelyard", str(CHART), "-n", OWN, *now, "--set", "upgrade.maxConcurrent=1", timeout=180)

    busy: set[str] = set()
    most, done = 0, set[str]()
    for event in release.watch(path, 150, resourceVersion=version, labelSelector="app.kubernetes.io/component=proxy"):
        found = event["object"]
        name = found["metadata"]["name"]
        busy = busy | {name} if rolling(found) else busy - {name}
        most = max(most, len(busy))
        if not rolling(found) and found["spec"]["template"]["spec"]["containers"][0]["image"].endswith(_tag(now)):
            done.add(name)
        if done == names:
            break
    assert done == names
    assert most == 1


def rolling(deployment: Object) -> bool:
    status, wanted = deployment.get("status", {}), deployment["spec"]["replicas"]
    if status.get("observedGeneration", 0) < deployment["metadata"]["generation"]:
        return True
    return [status.get(key, 0) for key in ("replicas", "updatedReplicas", "availableReplicas")] != [wanted] * 3


def _small(name: str) -> Object:
    spec = {"ports": [{"port": 80}], "backends": [{"name": "a", "addresses": ["192.0.2.1"]}], "proxy": {"replicas": 1}}
    meta = {"name": name, "namespace": OWN}
    return {"apiVersion": "steelyard.dev/v1alpha1", "kind": "BalancedService", "metadata": meta, "spec": spec}


def _tag(values: list[str]) -> str:
    return values[-1].rpartition("=")[2]


def test_leaving_keeps_the_objects_and_their_traffic(
    release: Cluster, client: Client, app: str, now: list[str]
) -> None:
    install(release, *now, "--wait")
    example(release, app)
    shop(release)

    with client.loading("http://shop.store/", "--rate", "50") as load:
        release.helm("uninstall", "steelyard", "-n", OWN, "--wait")
        release.wait(OPERATOR, lambda found: not found)
        release.wait(f"/api/v1/namespaces/{OWN}/secrets/steelyard-controller", lambda found: not found)
        release.wait(f"/apis/coordination.k8s.io/v1/namespaces/{OWN}/leases/steelyard-controller", lambda it: not it)
        report = load.stop()

    assert report["failures"] == []
    assert left(release, MADE, "-n", OWN) == []
    everywhere = ("clusterroles", "clusterrolebindings", "mutatingwebhookconfigurations")
    assert left(release, everywhere, "-l", "app.kubernetes.io/name=steelyard") == []
    assert client.load("http://shop.store/", seconds=2)["failures"] == []
    install(release, *now, "--wait")  # over what was kept
    shop(release)


def test_leaving_without_the_crd_leaves_no_trace(release: Cluster, app: str, now: list[str]) -> None:
    install(release, *now, "--set", "crds.keep=false", "--wait")
    example(release, app)
    shop(release)

    release.helm("uninstall", "steelyard", "-n", OWN, "--wait", timeout=180)

    release.wait(f"{CRDS}/{CRD}", lambda found: not found)
    for kind, name in (("apps/v1/deployments", "shop-lb"), ("v1/services", "shop"), ("v1/configmaps", "steelyard-ca")):
        Namespace(release, "store", app).wait(kind, name, lambda found: not found)
    ours = ("deployments", "services", "serviceaccounts", "configmaps", "poddisruptionbudgets", "endpointslices")
    assert left(release, ours, "-n", "store", "-l", "steelyard.dev/balancedservice") == []
    assert left(release, MADE, "-n", OWN) == []


def test_with_watched_namespaces_it_sees_no_other(release: Cluster, client: Client, app: str, now: list[str]) -> None:
    for name in ("store", "elsewhere"):
        release.call("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": RESTRICTED}})
    install(release, *now, "--set", "watchNamespaces={store}", "--wait")
    example(release, app)
    release.apply(
        {
            "apiVersion": "steelyard.dev/v1alpha1",
            "kind": "BalancedService",
            "metadata": {"name": "shop", "namespace": "elsewhere"},
            "spec": {"ports": [{"port": 80}], "backends": [{"name": "a", "addresses": ["192.0.2.1"]}]},
        }
    )

    shop(release)

    assert client.load("http://shop.store/", seconds=2)["failures"] == []
    assert "status" not in release.call(
        "GET", "/apis/steelyard.dev/v1alpha1/namespaces/elsewhere/balancedservices/shop"
    )
    account = ("--as", f"system:serviceaccount:{OWN}:steelyard-controller")
    assert _may(release, "list", "services", "-n", "store", *account)
    for verb, resource in (("list", "services"), ("list", "bsvc"), ("get", "secrets"), ("patch", "deployments")):
        assert not _may(release, verb, resource, "-n", "elsewhere", *account)
    assert not _may(release, "list", "services", "--all-namespaces", *account)
    assert not _may(release, "get", "secrets", "-n", OWN, *account)
    said = release.kubectl("-n", OWN, "logs", "-l", "app.kubernetes.io/component=controller", "--tail=-1")
    assert "permission missing" not in said
    assert " 403 " not in said
    assert "Failed" not in release.helm("test", "steelyard", "-n", OWN, timeout=180)


def _may(cluster: Cluster, *words: str) -> bool:
    try:
        return cluster.kubectl("auth", "can-i", *words).strip() == "yes"
    except CommandError:  # a "no" is an exit status, too
        return False


START = """
import os, signal, subprocess, sys, time, urllib.request
FILE = '''
apiVersion: steelyard.dev/v1alpha1
kind: BalancedService
metadata: {name: shop, namespace: store}
spec:
  ports: [{port: 18080}]
  backends: [{name: all, addresses: [127.0.0.1], port: 9}]
  proxy: {acceptGrace: 0s, drain: 1s}
'''
open("/tmp/shop.yaml", "w").write(FILE)
best = 1e9
for _ in range(5):
    begun = time.monotonic()
    process = subprocess.Popen(["steelyard", "proxy", "--file", "/tmp/shop.yaml", "--admin", "127.0.0.1:18081"])
    while True:
        try:
            urllib.request.urlopen("http://127.0.0.1:18081/readyz")
            break
        except OSError:
            time.sleep(0.005)
    best = min(best, time.monotonic() - begun)
    process.send_signal(signal.SIGTERM)
    process.wait()
resident = next(line for line in open("/proc/1/status") if line.startswith("VmRSS"))
print(best, int(resident.split()[1]) / 1024)
"""


SIZE = """
import os
print(sum(os.lstat(os.path.join(path, name)).st_size for path, _, names in os.walk("/opt/steelyard") for name in names))
"""


def test_a_proxy_is_ready_in_a_second_and_small(release: Cluster, app: str, now: list[str], say: Say) -> None:
    install(release, *now, "--wait")
    example(release, app)
    shop(release)

    said = release.kubectl("-n", "store", "exec", "deploy/shop-lb", "--", "python", "-c", START, timeout=120)

    start, resident = map(float, said.split()[-2:])
    say(f"a proxy's start to ready {start:.2f} s; an idle one's resident memory {resident:.1f} MiB")
    assert start <= 1.0
    assert resident <= 55
    for where, limit in ((("-n", "store", "exec", "deploy/shop-lb"), 45e6), (("-n", OWN, "exec", DEPLOYED), 210e6)):
        size = int(release.kubectl(*where, "--", "python", "-c", SIZE))
        say(f"{where[-1]}: {size / 1e6:.0f} MB on top of the base image")
        assert size <= limit
