"""The operator away, the API server away, the history of a watch lost: who serves goes on, and what went stays gone.

AWAY is a third of a minute, since nothing that matters here takes longer; STEELYARD_LONG=1 makes it the whole one.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.api import Cluster, CommandError, Object, condition
from tests.cluster.deployed import OWN, SERVICES, Operator, balanced, patch, programmed
from tests.cluster.faults import API_SERVER, Process, Relay, restart_api_server, until
from tests.cluster.namespace import Namespace
from tests.cluster.outside import Outside, address

AWAY = 60.0 if os.environ.get("STEELYARD_LONG") == "1" else 20.0  # seconds
BACK = 5.0  # seconds until what changed meanwhile is in force
LOAD = Path(__file__).parent / "app" / "load.py"


@pytest.mark.timeout(300, func_only=True)
def test_without_the_operator_proxies_serve_restart_from_disk_and_catch_up_within_five_seconds(
    operator: Operator, namespace: Namespace
) -> None:
    """A slice that is gone by then must not make the operator that comes look older than the one that went."""
    namespace.backend("shop-v1", replicas=2)
    namespace.backend("shop-v2", version="v2")
    namespace.apply(balanced(), balanced("quiet", proxy={"replicas": 1}), _slice("passing"))
    programmed(namespace, endpoints="2/2")
    programmed(namespace, "quiet")
    client = namespace.client()
    namespace.kubectl("delete", "endpointslice/passing")
    restarted = _proxy(namespace, "quiet")

    with client.loading("http://shop/", "--rate", "100", "--each") as load:
        load.begun()
        operator.scale(0)
        gone = time.monotonic()
        Process(namespace.cluster, f"--identity={restarted['metadata']['uid']}").signal(signal.SIGKILL)
        name = restarted["metadata"]["name"]
        namespace.wait("v1/pods", name, lambda pod: _restarts(pod) == 1 and condition(pod, "Ready") == "True")
        from_disk = client.load(f"http://{restarted['status']['podIP']}:{_listen(namespace, 'quiet')}/", seconds=1)
        time.sleep(max(0.0, AWAY - (time.monotonic() - gone)))  # what is measured is what happens meanwhile
        patch(namespace, {"backends": [{"name": "stable", "service": {"name": "shop-v2"}}]})
        operator.scale(2)
        back = min(_since(pod, "Ready") for pod in _operators(namespace.cluster))
        programmed(namespace)
        report = load.stop()

    assert from_disk["failures"] == []
    assert from_disk["ok"] > 0
    assert report["failures"] == []
    assert report["ok"] == report["requests"]
    applied = min(at for at, _, _, version in report["each"] if version == "v2") - back
    print(f"operator away for {AWAY:.0f} s: {report['ok']} requests, applied {applied:.1f} s after it was ready again")
    assert applied < BACK


@pytest.mark.timeout(300, func_only=True)
def test_without_the_api_server_proxies_serve_restart_from_disk_and_the_operator_stays(
    operator: Operator, namespace: Namespace
) -> None:
    namespace.backend("shop-v1", replicas=2)
    namespace.backend("shop-v2", version="v2")
    namespace.apply(balanced(), balanced("quiet", proxy={"replicas": 1}))
    shop = programmed(namespace, endpoints="2/2")["status"]["address"]
    programmed(namespace, "quiet")
    restarted = _proxy(namespace, "quiet")
    directly = f"http://{restarted['status']['podIP']}:{_listen(namespace, 'quiet')}/"
    process = Process(namespace.cluster, f"--identity={restarted['metadata']['uid']}")
    before = {pod["metadata"]["uid"]: _restarts(pod) for pod in _operators(namespace.cluster)}

    with _loading(namespace.cluster, f"http://{shop}/") as load:
        with Process(namespace.cluster, API_SERVER).stopped():
            begun = time.monotonic()
            process.signal(signal.SIGKILL)
            until(lambda: _answers(namespace.cluster, directly), 30)
            time.sleep(max(0.0, AWAY - (time.monotonic() - begun)))  # what is measured is what happens meanwhile
        patch(namespace, {"backends": [{"name": "stable", "service": {"name": "shop-v2"}}]})
        back = time.time()
        programmed(namespace)
        report = _stopped(load)

    assert report["failures"] == []
    assert report["ok"] == report["requests"]
    applied = min(at for at, _, _, version in report["each"] if version == "v2") - back
    print(f"API server away for {AWAY:.0f} s: {report['ok']} requests, applied {applied:.1f} s after the next change")
    assert applied < BACK
    assert {pod["metadata"]["uid"]: _restarts(pod) for pod in _operators(namespace.cluster)} == before


@pytest.mark.timeout(300, func_only=True)
def test_what_went_while_a_watch_was_cut_off_and_its_history_lost_is_gone_within_five_seconds(
    operator: Operator, namespace: Namespace, tmp_path: Path
) -> None:
    """Half-open connections first, as of a broken link; then an API server that knows no version from before."""
    cluster = namespace.cluster
    names = [f"shop-{number}" for number in range(3)]
    backends = [{"name": "stable", "service": {"name": "front"}, "port": 80}]
    namespace.apply(_front("front"), *(_slice(f"front-{number}", "front", number) for number in range(3)))
    namespace.apply(*(balanced(name, backends=backends, proxy={"mode": "External"}) for name in names))
    keys = {f"{namespace}/{name}" for name in names}

    with (
        Relay(address(cluster)) as relay,
        Outside(cluster, tmp_path, f"--watch-namespace={namespace}", api=("127.0.0.1", relay.port)) as outside,
    ):
        outside.ready()
        until(lambda: outside.published().keys() == keys and len(_addresses(outside, f"{namespace}/shop-0")) == 3, 30)
        relay.freeze()
        namespace.kubectl("delete", "endpointslice/front-1", "bsvc/shop-1", "bsvc/shop-2")
        restart_api_server(cluster)
        kept = outside.published().keys()
        relay.cut()
        took = until(lambda: outside.published().keys() == {f"{namespace}/shop-0"}, 30)
        took = max(took, until(lambda: len(_addresses(outside, f"{namespace}/shop-0")) == 2, 30))

        assert kept == keys
        assert "history lost" in outside.log
    print(f"ghosts gone {took:.1f} s after the connections were cut")
    assert took < BACK


# -- what is asked of pods and proxies ---------------------------------------------------------------------------------


def _operators(cluster: Cluster) -> list[Object]:
    selector = "labelSelector=app.kubernetes.io/component=controller"
    found: list[Object] = cluster.call("GET", f"/api/v1/namespaces/{OWN}/pods?{selector}")["items"]
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


def _proxy(namespace: Namespace, name: str) -> Object:
    path = f"{namespace.path('v1/pods')}?labelSelector=steelyard.dev/balancedservice={name}"
    (pod,) = namespace.cluster.call("GET", path)["items"]
    found: Object = pod
    return found


def _listen(namespace: Namespace, name: str) -> int:
    found = namespace.get(SERVICES, name)
    assert found is not None
    port: int = found["status"]["proxy"]["ports"][0]["listen"]
    return port


def _restarts(pod: Object) -> int:
    statuses = pod.get("status", {}).get("containerStatuses") or [{"restartCount": 0}]
    count: int = statuses[0]["restartCount"]
    return count


def _since(pod: Object, kind: str) -> float:
    """When a condition of a pod became what it is, as Unix time; whole seconds, so up to one too early."""
    found = next(each for each in pod["status"]["conditions"] if each["type"] == kind)
    return datetime.fromisoformat(found["lastTransitionTime"]).timestamp()


def _addresses(outside: Outside, key: str) -> set[str]:
    snapshot = outside.published()[key]
    ports = snapshot["ports"]
    return {each["address"] for port in ports for backend in port["backends"] for each in backend["endpoints"]}


# -- objects -----------------------------------------------------------------------------------------------------------


def _front(name: str) -> Object:
    ports = [{"name": "http", "port": 80}]
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"ports": ports}}


def _slice(name: str, service: str = "", number: int = 0) -> Object:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": service or name}},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 80}],
        "endpoints": [{"addresses": [f"192.0.2.{number + 1}"]}],
    }


# -- requests from the cluster's hub: `kubectl exec` would need the API server -----------------------------------------


@contextmanager
def _loading(cluster: Cluster, url: str) -> Iterator[subprocess.Popen[str]]:
    assert cluster.local is not None
    words = (sys.executable, str(LOAD), url, "--rate", "100", "--each", "--seconds", "600", "--until-eof")
    pipe = subprocess.PIPE
    with subprocess.Popen(cluster.local.enter(*words), stdin=pipe, stdout=pipe, stderr=pipe, text=True) as load:
        try:
            assert load.stderr is not None
            assert load.stderr.readline().strip() == "begun"
            yield load
        finally:
            load.kill()


def _stopped(load: subprocess.Popen[str]) -> dict[str, Any]:
    output, errors = load.communicate(timeout=60)
    assert load.returncode == 0, errors
    report: dict[str, Any] = json.loads(output)
    return report


def _answers(cluster: Cluster, url: str) -> bool:
    code = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=2).status)"
    try:
        return cluster.inside(sys.executable, "-c", code, url).strip() == "200"
    except CommandError:
        return False
