"""Fixtures for tests on a real Kubernetes cluster: three nodes in three zones, made for the run and gone after it.

    cluster     (session) `api.Cluster`: kubectl, helm, apply, call, get, watch, wait, inside
    crd         (session) the same cluster, with the project's CRD established
    operator    (session) `deployed.Operator`: running in the cluster, under the permissions of deploy/operator.yaml
    images      (session) `Images`: references of the project's controller and proxy image, built from the checkout as
                it is and known to every node
    namespace   (each test) `namespace.Namespace`: its own, under Pod Security level `restricted`; apply, get, list,
                wait, exec, kubectl as above, and
                    namespace.backend("shop-v1", replicas=3, version="v1")      a Deployment and Service that answer
                    client = namespace.client(zone="zone-a")                    a pod that asks
                    report = client.load("http://shop-v1/", seconds=5)          counts by pod, zone, version; failures
                    client.settle("http://shop-v1/", namespace.pods(app="shop-v1"))     waits for the nodes
                    with client.loading("http://shop-v1/") as load: ...; report = load.stop()

    empty       (module) another cluster, which never saw Steelyard, for tests that install it by Helm: with `release`,
                `client`, `now`, `app` and the functions of `installing`

The test itself runs outside: it speaks to the API server through a loopback port, and to pods through a client pod.
Wait on states (`namespace.wait`), never sleep. A failed test's report ends with its namespace's pods, events and logs.

Every test here is marked `cluster` and has two minutes, not counting its fixtures; `@pytest.mark.timeout` sets other
limits. The cluster's programs and images are built once and kept in ~/.cache/steelyard by content: the first time on a
machine takes about half an hour, later ones seconds. Where a machine can't run it, the tests are skipped, with one
line that says why.

    STEELYARD_REQUIRE_CLUSTER=1         fail instead of skipping
    STEELYARD_TEST_KUBECONFIG=PATH      use the cluster of this kubeconfig. `make cluster` leaves one running, which
                                        saves its start; the current images are loaded into it
    STEELYARD_TEST_IMAGES=PREFIX        another cluster only: it can pull PREFIX/steelyard-controller:test,
                                        PREFIX/steelyard-proxy:test and PREFIX/steelyard-test-app:test

The cluster ends with pytest, also by Ctrl-C or kill -9, and leaves nothing behind; `local` says how.
"""

from __future__ import annotations

import os
import re
import secrets
import tempfile
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

import pytest

from tests.cluster.api import Cluster, CommandError, Images, Object, condition
from tests.cluster.deployed import Operator
from tests.cluster.installing import CRDS, OWN, RESTRICTED, tags
from tests.cluster.local import cluster as local
from tests.cluster.local import images as builder
from tests.cluster.local.buildah import Image
from tests.cluster.local.layout import Layout
from tests.cluster.local.machine import Say, UnavailableError
from tests.cluster.namespace import Namespace
from tests.cluster.traffic import Client

HERE = Path(__file__).parent
PROJECT = HERE.parents[1]
CANNOT = "no cluster here"
LIMIT = 120  # seconds for a test, without its fixtures
CRD = "balancedservices.steelyard.dev"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.cluster)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(LIMIT, func_only=True))


@pytest.fixture(scope="session")
def say(request: pytest.FixtureRequest) -> Say:
    """Says what takes long, past pytest's capture."""
    capture = request.config.pluginmanager.get_plugin("capturemanager")
    assert capture is not None

    def line(text: str) -> None:
        with capture.global_and_fixture_disabled():
            print(f"\ncluster: {text}", end="", flush=True)

    return line


@pytest.fixture(scope="session")
def cluster(say: Say) -> Iterator[Cluster]:
    given = os.environ.get("STEELYARD_TEST_KUBECONFIG")
    if given:
        layout = Layout(Path(given).resolve().parent)
        found = Cluster(Path(given), local.LocalCluster(layout, say) if local.running(layout) else None)
        yield found
        found.close()
        return
    with own_cluster(say) as found:
        yield found


@contextmanager
def own_cluster(say: Say, name: str = "") -> Iterator[Cluster]:
    """A cluster of this run's own, for a test that wants an empty one; `name` makes it differ from the session's."""
    # The write end of this pipe is this process's alone. When it is no more, by whatever cause, the cluster ends.
    lifeline, owner = os.pipe()
    layout = Layout(Path(tempfile.gettempdir()) / f"{local.PREFIX}{name}{os.getpid()}")
    try:
        own = local.start(layout, say, lifeline)
    except UnavailableError as reason:
        _cannot(str(reason))
    found = Cluster(layout.kubeconfig, own)
    yield found
    found.close()
    own.stop()
    os.close(lifeline)
    os.close(owner)


def _cannot(reason: str) -> NoReturn:
    if os.environ.get("STEELYARD_REQUIRE_CLUSTER") == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(f"{CANNOT}: {reason}")


@pytest.fixture(scope="session")
def crd(cluster: Cluster) -> Cluster:
    cluster.kubectl("apply", "--server-side", "-f", str(PROJECT / "crds" / "balancedservices.yaml"))
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{CRD}"
    cluster.wait(path, lambda found: condition(found, "Established") == "True")
    return cluster


@pytest.fixture(scope="session")
def images(cluster: Cluster, say: Say) -> Images:
    if cluster.local is None:
        return Images(_given("steelyard-controller"), _given("steelyard-proxy"))
    built = builder.project(say)
    cluster.local.load("project", built)
    return Images(*(image.reference for image in built))


@pytest.fixture(scope="session")
def operator(crd: Cluster, images: Images) -> Operator:
    deployed = Operator(crd, images)
    deployed.deploy()
    return deployed


@pytest.fixture(scope="session")
def app_image(cluster: Cluster, say: Say) -> str:
    if cluster.local is None:
        return _given("steelyard-test-app")
    built = builder.app(say)
    if os.environ.get("STEELYARD_TEST_KUBECONFIG"):  # it may have started with an older one
        cluster.local.load("app", [built])
    return built.reference


def _given(name: str) -> str:
    prefix = os.environ.get("STEELYARD_TEST_IMAGES")
    if not prefix:
        _cannot("STEELYARD_TEST_IMAGES must say where the cluster of STEELYARD_TEST_KUBECONFIG pulls the images from")
    return f"{prefix}/{name}:test"


@pytest.fixture(scope="module")
def built(say: Say) -> tuple[Image, Image]:
    """The operator's and the proxies', once: a file of the checkout may change meanwhile."""
    return builder.project(say)


@pytest.fixture(scope="module")
def empty(say: Say, built: tuple[Image, Image]) -> Iterator[Cluster]:
    """A cluster that never saw Steelyard, with its images, and those of an earlier version under the tag `before`."""
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
    old = builder.earlier(say)
    renamed = [Image(f"{image.reference.rpartition(':')[0]}:before", image.layout) for image in old]
    cluster.local.load("project", [*built, *renamed])
    cluster.local.load("app", [builder.app(say)])


@pytest.fixture(scope="module")
def app(say: Say) -> str:
    return builder.app(say).reference


@pytest.fixture(scope="module")
def now(built: tuple[Image, Image]) -> list[str]:
    """Values that name the images of this checkout."""
    controller, proxy = (image.reference.rpartition(":")[2] for image in built)
    return tags(controller, proxy)


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


@pytest.fixture
def namespace(cluster: Cluster, app_image: str, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    stem = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower()).strip("-")[:40].strip("-")
    own = Namespace(cluster, f"{stem}-{secrets.token_hex(3)}", app_image)
    own.create()
    yield own
    own.delete()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and isinstance(report.longrepr, tuple) and CANNOT in report.longrepr[2]:
        report.longrepr = (__file__, 1, report.longrepr[2])  # from one place, so that pytest says it once
    own = getattr(item, "funcargs", {}).get("namespace")
    if report.when == "call" and report.failed and isinstance(own, Namespace):
        report.sections.append((f"namespace {own}", own.described()))
    return report
