"""A large cluster: with STEELYARD_LONG=1 1,000 objects before 2,000 Services with 10,000 endpoints, else a fifth of it.

The operator runs outside the cluster, alone and leading, so that its memory and CPU time can be read; its proxies are
clients in one process. Nothing runs a pod: the Services are headless and their slices written by hand, or every node's
kube-proxy would be measured as well.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.api import Cluster, Object
from tests.cluster.audit import Write, writes
from tests.cluster.deployed import SERVICES, SLICES, Operator, balanced
from tests.cluster.faults import until
from tests.cluster.fleet import command
from tests.cluster.namespace import Namespace
from tests.cluster.outside import AUDIENCE, Outside, samples, token

LONG = os.environ.get("STEELYARD_LONG") == "1"  # two minutes more
OBJECTS, PER_OBJECT, PER_SERVICE = 1000 if LONG else 200, 2, 5
START = 15.0  # seconds until it serves
MEGABYTES = 200.0
PROXIES = 100  # clients, two for each object that changes
RATE, SECONDS = 100, 10  # changes a second, for so long
NEWS = 0.5  # seconds from a change to a proxy, p99
CPU = 0.006  # seconds of the operator's for a change, with its acknowledgements and a share of a status
IDLE = 60.0 if LONG else 20.0
WRITERS = 8  # threads that fill the cluster
GATEWAYS = 50
SERVER = "steelyard-controller.steelyard-system.svc"


@pytest.fixture
def crowd(operator: Operator, namespace: Namespace) -> Iterator[Namespace]:
    """The namespace, full; and the deployed operator away."""
    until(lambda: not _ending(namespace.cluster), 240, 1.0)  # what earlier tests leave is written to as it goes
    operator.scale(0)
    numbers = range(OBJECTS * PER_OBJECT)
    _create(namespace, "v1/services", (_service(number) for number in numbers))
    _create(namespace, SLICES, (_slice(number) for number in numbers))
    _create(namespace, SERVICES, (_object(number) for number in range(OBJECTS)))
    yield namespace
    namespace.kubectl("delete", "bsvc", "--all", "--wait=false", timeout=120)
    operator.scale(2)


@pytest.mark.timeout(600, func_only=True)
def test_many_objects_are_served_soon_in_little_memory_and_every_change_is_known_at_once(
    crowd: Namespace, tmp_path: Path
) -> None:
    cluster = crowd.cluster
    with Outside(cluster, tmp_path) as outside:
        start = outside.ready()
        served = len([key for key in outside.published() if key.startswith(f"{crowd}/")])
        endpoints = sum(len(each) for each in _published_addresses(outside, crowd))
        until(lambda: _written(outside, crowd), 120, 1.0)
        with _Fleet(crowd, outside, tmp_path) as fleet:
            cpu = outside.cpu()
            news = fleet.hear_of_changes()
            cpu = (outside.cpu() - cpu) / (RATE * SECONDS)
        idle = _writes_while_idle(crowd)
        memory = outside.megabytes()
        metrics = outside.metrics()

    p50, p99 = news[len(news) // 2], news[int(0.99 * (len(news) - 1))]
    said = f"{fleet.rate:.0f} changes a second at {1000 * cpu:.1f} ms of CPU, {len(news)} news of them: "
    print(f"serving after {start:.1f} s; {memory:.0f} MB; {said}p50 {p50:.3f} s, p99 {p99:.3f} s; written idle: {idle}")
    assert served == OBJECTS
    assert endpoints == OBJECTS * PER_OBJECT * PER_SERVICE
    assert start < START
    assert memory < MEGABYTES
    assert len(news) >= PROXIES
    assert cpu < CPU
    if fleet.rate > 0.9 * RATE:  # a machine that is too busy to make the changes says nothing of their way
        assert p99 < NEWS
    assert idle == {}
    assert metrics["steelyard_operator_reconcile_failures_total"] == 0
    assert metrics["steelyard_operator_publish_failures_total"] == 0


@pytest.mark.timeout(300, func_only=True)
def test_fifty_gateways_get_their_children_once(operator: Operator, namespace: Namespace, tmp_path: Path) -> None:
    """Of no replicas each. What is written is counted by the audit log: one apply for each child, and no more."""
    operator.rolled_out()
    begun = time.time()
    backends = [{"name": "fixed", "addresses": ["192.0.2.1"]}]
    _create(
        namespace,
        SERVICES,
        (balanced(f"shop-{number}", backends=backends, proxy={"replicas": 0}) for number in range(GATEWAYS)),
    )

    for number in range(GATEWAYS):
        namespace.wait(SERVICES, f"shop-{number}", lambda found: bool(found.get("status", {}).get("address")))
    took = time.time() - begun
    children = {
        resource: len(namespace.list(resource))
        for resource in ("apps/v1/deployments", "v1/services", "policy/v1/poddisruptionbudgets")
    }
    children["v1/serviceaccounts"] = len(namespace.list("v1/serviceaccounts")) - 1  # the namespace's own
    time.sleep(3)  # what should not be written would come late
    wrote = [each for each in writes(namespace.cluster, begun) if each.namespace == namespace.name]
    applied = [(each.resource, each.name) for each in wrote if each.verb in ("create", "patch", "update")]
    # The ConfigMap that they share names each of them as an owner, so it is written as they come.
    passing = ("events", "balancedservices/status", "configmaps")
    of_children = [each for each in applied if each[0] not in passing]

    print(f"{GATEWAYS} Gateways after {took:.1f} s: {children}, {len(of_children)} writes of children")
    assert set(children.values()) <= {GATEWAYS, 0}
    assert children["apps/v1/deployments"] == children["v1/services"] == GATEWAYS
    assert len(of_children) == len(set(of_children))


# -- the proxies -------------------------------------------------------------------------------------------------------


class _Fleet:
    """Two clients for each of the first objects, in a process of their own."""

    def __init__(self, namespace: Namespace, outside: Outside, folder: Path) -> None:
        self.rate = 0.0  # of the changes that were made, a second
        self._namespace = namespace
        data = namespace.wait("v1/configmaps", "steelyard-ca", bool)["data"]
        (folder / "ca.crt").write_text(data["ca.crt"])
        (folder / "hosts").write_text(f"127.0.0.1 localhost {SERVER}\n")
        accounts = [f"proxy-{number}" for number in range(PROXIES)]
        _create(namespace, "v1/serviceaccounts", ({"metadata": {"name": name}} for name in accounts))
        for name in accounts:
            (folder / name).write_text(token(namespace.cluster, namespace.name, name, AUDIENCE))
        pipe = subprocess.PIPE
        words = command(folder, f"https://{SERVER}:{outside.discovery}", namespace.name, PROXIES)
        self._process = subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True)

    def __enter__(self) -> _Fleet:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "connected\n"
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._process.wait()

    def hear_of_changes(self) -> list[float]:
        """Seconds from a change's request to each news of it, sorted: RATE changes a second, each of an address of its
        own, so that it is known when it comes. A change that the next one overtakes is no news.
        """
        sent: dict[str, float] = {}
        heard: list[float] = []

        def change(number: int) -> None:
            service, address = number % (PROXIES // 2) * PER_OBJECT, f"198.18.{number // 250}.{number % 250}"
            endpoints = _slice(service)["endpoints"]
            endpoints[0]["addresses"] = [address]
            sent[address] = time.monotonic()
            path = self._namespace.path(SLICES, f"back-{service}")
            self._namespace.cluster.call("PATCH", path, {"endpoints": endpoints}, "application/merge-patch+json")

        def listen() -> None:
            assert self._process.stdout is not None
            for line in self._process.stdout:
                at, addresses = json.loads(line)
                heard.extend(at - sent[address] for address in addresses if address in sent)

        listener = threading.Thread(target=listen)
        listener.start()
        with ThreadPoolExecutor(WRITERS) as pool:
            begun, pending = time.monotonic(), []
            for number in range(RATE * SECONDS):
                time.sleep(max(0.0, begun + number / RATE - time.monotonic()))
                pending.append(pool.submit(change, number))
            for each in pending:
                each.result()
        self.rate = len(sent) / (time.monotonic() - begun)
        time.sleep(2)  # what is late is late
        assert self._process.stdin is not None
        self._process.stdin.close()
        listener.join()
        return sorted(heard)


# -- what is written ---------------------------------------------------------------------------------------------------


def _ending(cluster: Cluster) -> list[str]:
    """The namespaces of earlier tests that are still on their way out, object by object."""
    found: list[Object] = cluster.call("GET", "/api/v1/namespaces")["items"]
    return [each["metadata"]["name"] for each in found if "deletionTimestamp" in each["metadata"]]


def _written(outside: Outside, namespace: Namespace) -> bool:
    """Whether every status is, so that what follows starts from rest."""
    metrics = outside.metrics()
    if metrics["steelyard_operator_leading"] != 1 or metrics["steelyard_operator_queue_length"]:
        return False
    last, first = (namespace.get(SERVICES, f"shop-{number}") for number in (OBJECTS - 1, 0))
    return all(each is not None and "status" in each for each in (first, last))


def _writes_while_idle(namespace: Namespace) -> dict[str, Any]:
    """Of the operator, by the audit log; and of what it may write, by whomever, by the API server's own counters."""
    cluster = namespace.cluster
    # Proxies have left, which is one last change when none has come back; and Events are written one by one.
    until(lambda: not any(map(_proxies, namespace.list(SERVICES))), 120, 1.0)
    until(lambda: not _others(cluster, time.time() - 5), 120, 1.0)
    begun, before = time.time(), _requests(cluster)
    time.sleep(IDLE)
    after = _requests(cluster)
    found: dict[str, Any] = {name: count - before.get(name, 0.0) for name, count in after.items()}
    found = {name: count for name, count in found.items() if count}
    others = _others(cluster, begun)
    return found | ({"audit": others} if others else {})


def _proxies(found: Object) -> int:
    """That the status knows of."""
    count: int = found["status"]["proxy"].get("replicas", 0)
    return count


def _others(cluster: Cluster, since: float) -> list[Write]:
    return [each for each in writes(cluster, since) if each.resource not in ("leases", "tokenreviews")]


def _requests(cluster: Cluster) -> dict[str, float]:
    """Writes that the API server has counted, of the kinds that the operator owns."""
    owned = ("balancedservices", "configmaps", "deployments", "poddisruptionbudgets", "serviceaccounts", "services")
    found: dict[str, float] = {}
    for name, value in samples(cluster.kubectl("get", "--raw", "/metrics")).items():
        if name.startswith("apiserver_request_total{"):
            labels = dict(part.split("=", 1) for part in name.partition("{")[2].rstrip("}").split(",") if "=" in part)
            kind, verb = labels["resource"].strip('"'), labels["verb"].strip('"')
            if kind in owned and verb in ("POST", "PUT", "PATCH", "APPLY", "DELETE"):
                found[f"{verb} {kind}"] = found.get(f"{verb} {kind}", 0.0) + value
    return found


def _published_addresses(outside: Outside, namespace: Namespace) -> Iterator[list[str]]:
    for key, snapshot in outside.published().items():
        if key.startswith(f"{namespace}/"):
            backends = snapshot["ports"][0]["backends"]
            yield [each["address"] for backend in backends for each in backend["endpoints"]]


# -- objects -----------------------------------------------------------------------------------------------------------


def _create(namespace: Namespace, resource: str, objects: Iterator[Object]) -> None:
    path = namespace.path(resource)

    def create(each: Object) -> None:
        namespace.cluster.call("POST", path, each)

    with ThreadPoolExecutor(WRITERS) as pool:
        for _ in pool.map(create, objects):
            pass


def _service(number: int) -> Object:
    return {
        "metadata": {"name": f"back-{number}"},
        "spec": {"clusterIP": "None", "ports": [{"name": "http", "port": 80}]},
    }


def _slice(number: int) -> Object:
    name = f"back-{number}"
    labels = {"kubernetes.io/service-name": name, "service.kubernetes.io/headless": ""}
    return {
        "metadata": {"name": name, "labels": labels},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 80}],
        "endpoints": [
            {
                "addresses": [f"10.{number >> 8}.{number & 255}.{1 + each}"],
                "nodeName": f"n{each % 3 + 1}",
                "zone": f"zone-{each % 3}",
                "conditions": {"ready": True},
            }
            for each in range(PER_SERVICE)
        ],
    }


def _object(number: int) -> Object:
    names = [f"back-{number * PER_OBJECT + each}" for each in range(PER_OBJECT)]
    backends = [{"name": name, "service": {"name": name}} for name in names]
    return balanced(f"shop-{number}", backends=backends, proxy={"mode": "External"})
