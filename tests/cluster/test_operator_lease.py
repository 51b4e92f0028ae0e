"""Two replicas: who writes, how soon the other does, and that status knows of every proxy, whoever has heard it."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.api import Cluster, Object, condition
from tests.cluster.audit import writes
from tests.cluster.deployed import OWN, SERVICES, Operator, balanced
from tests.cluster.faults import Process
from tests.cluster.namespace import Namespace
from tests.cluster.outside import AUDIENCE, token

LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{OWN}/leases/steelyard-controller"
SERVER = "steelyard-controller.steelyard-system.svc:19443"
FIXED: Object = {"backends": [{"name": "fixed", "addresses": ["192.0.2.1"]}], "proxy": {"mode": "External"}}


def test_after_a_kill_the_lease_moves_within_twenty_seconds(operator: Operator, namespace: Namespace) -> None:
    first = _settled(operator, namespace.cluster)

    Process(namespace.cluster, f"STEELYARD_POD={_pod(first)}").signal(signal.SIGKILL)
    begun = time.monotonic()
    namespace.cluster.wait(LEASE, lambda lease: _holder(lease) not in ("", first), seconds=40)
    took = time.monotonic() - begun

    print(f"lease taken {took:.1f} s after a kill")
    assert took < 20
    namespace.apply(balanced(**FIXED))
    namespace.wait(SERVICES, "shop", lambda found: condition(found, "Programmed") == "True")


def test_after_a_clean_stop_the_lease_moves_at_once(operator: Operator, namespace: Namespace) -> None:
    cluster = namespace.cluster
    first = _settled(operator, cluster)
    version = cluster.call("GET", LEASE)["metadata"]["resourceVersion"]

    begun, released = time.monotonic(), 0.0
    operator.kubectl("delete", "pod", _pod(first), "--wait=false")
    for event in cluster.watch(LEASE.rpartition("/")[0], 30, resourceVersion=version):
        released = released or (time.monotonic() if not _holder(event["object"]) else 0.0)
        if _holder(event["object"]) not in ("", first):
            break
    taken = time.monotonic()

    print(f"lease given back {released - begun:.1f} s after the deletion, taken {taken - released:.1f} s later")
    assert released > 0
    assert taken - released < 3
    assert taken - begun < 10


@pytest.mark.timeout(200, func_only=True)
def test_a_leader_that_stood_still_writes_nothing_once_another_has_taken_over(
    operator: Operator, namespace: Namespace
) -> None:
    """It is stopped amid its work, its connections half open, and comes back to changes that it would have to write.

    What no process can know of is left out: to be stopped between its last look at the clock and the sending.
    """
    cluster = namespace.cluster
    first = _settled(operator, cluster)
    names = [f"shop-{number}" for number in range(60)]
    process = Process(cluster, f"STEELYARD_POD={_pod(first)}")

    namespace.apply(*(balanced(name, **FIXED) for name in names))
    with process.stopped(waiting=True):
        lease = cluster.wait(LEASE, lambda lease: _holder(lease) not in ("", first), seconds=40)
        taken = datetime.fromisoformat(lease["spec"]["acquireTime"]).timestamp()
        _all_programmed(namespace, 1)
        namespace.apply(*(balanced(name, **(FIXED | {"algorithm": {"type": "Random"}})) for name in names))
    _all_programmed(namespace, 2)
    time.sleep(5)  # what is looked for comes late if at all

    found = [each for each in writes(cluster, taken) if each.resource not in ("tokenreviews", "events")]
    by_loser = [each for each in found if each.pod == _pod(first)]
    print(f"{len(found)} writes by the new leader since it took over, {len(by_loser)} by the one that stood still")
    assert by_loser == []
    assert len([each for each in found if each.resource == "balancedservices/status"]) >= len(names)


@pytest.mark.parametrize("replica", ["holder", "follower"])
def test_an_acknowledgement_counts_whichever_replica_has_heard_it(
    operator: Operator, namespace: Namespace, tmp_path: Path, replica: str
) -> None:
    """A stranger's proxy that speaks the wire: who is connected, and to whom, is then certain."""
    cluster = namespace.cluster
    holder = _settled(operator, cluster)
    addresses = {pod["metadata"]["name"]: pod["status"]["podIP"] for pod in _pods(cluster)}
    other = next(name for name in addresses if name != _pod(holder))
    address = addresses[_pod(holder) if replica == "holder" else other]
    namespace.apply(balanced(**FIXED))
    authority = namespace.wait("v1/configmaps", "steelyard-ca", bool)["data"]["ca.crt"]
    (tmp_path / "ca.crt").write_text(authority)
    proxy = _Proxy(namespace, address, tmp_path / "ca.crt")

    with proxy.stream() as frames:
        version = next(frame["version"] for frame in frames if frame["frame"] == "snapshot")
        proxy.report({"ack": {"version": version, "ok": True}, "health": {"fixed": {"known": 1, "usable": 1}}})
        begun = time.monotonic()
        namespace.wait(SERVICES, "shop", lambda found: _programmed(found) == (1, "True"), seconds=20)
        took = time.monotonic() - begun
        proxy.report({"ack": {"version": version, "ok": False, "error": "port 80 is taken"}})
        told = namespace.wait(SERVICES, "shop", lambda found: _programmed(found) == (0, "False"), seconds=20)

    print(f"acknowledged at the {replica}: in status after {took:.2f} s")
    assert took < 5
    assert "port 80 is taken" in json.dumps(told["status"]["conditions"])


class _Proxy:
    """curl, with a token of the namespace's default account, at one replica's own address."""

    def __init__(self, namespace: Namespace, address: str, authority: Path) -> None:
        local = namespace.cluster.local
        if local is None:
            pytest.skip("of the harness's own cluster")
        credential = token(namespace.cluster, namespace.name, "default", AUDIENCE)
        self._cluster = namespace.cluster
        self._namespace = namespace.name
        self._curl = (
            *("curl", "-sS", "--fail-with-body", "--cacert", str(authority), "--resolve", f"{SERVER}:{address}"),
            *("-H", f"Authorization: Bearer {credential}"),
        )

    @contextmanager
    def stream(self) -> Iterator[Iterator[Any]]:
        assert self._cluster.local is not None
        url = f"https://{SERVER}/v1/snapshots/{self._namespace}?names=shop"
        command = self._cluster.local.enter(*self._curl, "-N", "-H", "Accept: application/x-ndjson", url)
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            try:
                assert process.stdout is not None
                yield map(json.loads, process.stdout)
            finally:
                process.kill()

    def report(self, report: Object) -> None:
        url = f"https://{SERVER}/v1/reports/{self._namespace}"
        self._cluster.inside(*self._curl, "--json", json.dumps({"shop": report}), url)


def _settled(operator: Operator, cluster: Cluster) -> str:
    """The holder, once both replicas are there."""
    operator.rolled_out()
    return _holder(cluster.wait(LEASE, _holder))


def _holder(lease: Object) -> str:
    return str(lease.get("spec", {}).get("holderIdentity") or "")


def _pod(identity: str) -> str:
    return identity.partition("@")[0].rpartition("-")[0]


def _pods(cluster: Cluster) -> list[Object]:
    selector = "labelSelector=app.kubernetes.io/component=controller"
    found: list[Object] = cluster.call("GET", f"/api/v1/namespaces/{OWN}/pods?{selector}")["items"]
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


def _programmed(found: Object) -> tuple[int, str]:
    return found.get("status", {}).get("proxy", {}).get("programmed", 0), condition(found, "Programmed")


def _all_programmed(namespace: Namespace, generation: int) -> None:
    for found in namespace.list(SERVICES):
        namespace.wait(SERVICES, found["metadata"]["name"], lambda each: _told(each) == generation)


def _told(found: Object) -> int:
    generation: int = found.get("status", {}).get("observedGeneration", 0)
    return generation
