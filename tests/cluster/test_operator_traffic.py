"""Traffic through an object's proxies while the object, its endpoints or one process change. Every request counts.

A change must be in force some time after the API server has it: kubectl's return, or the event as a watch here sees
it. Requests sent later than that are told apart by when they began, on the one clock of the machine.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable

from tests.cluster.api import Object, condition
from tests.cluster.deployed import SERVICES, SLICES, Operator, balanced, example, patch, programmed
from tests.cluster.namespace import Namespace
from tests.cluster.traffic import Load, backend

SHOP = "http://shop/"
STEADY = ("--rate", "200", "--concurrency", "64", "--each")


def after(report: Object, moment: float) -> list[tuple[float, str, str]]:
    """(began, pod, version) of the requests that began later."""
    return [(at, pod, version) for at, _, pod, version in report["each"] if at > moment]


def sent_on(load: Load, until: float) -> Object:
    """The report, once requests have been sent until this moment."""
    time.sleep(max(0.0, until - time.time()))  # what is measured is what happens meanwhile
    return load.stop()


def test_the_example_is_programmed_and_its_weights_hold(
    operator: Operator, namespace: Namespace, app_image: str
) -> None:
    """Nine of ten, within five standard deviations of the binomial distribution."""
    requests, share = 20_000, 0.9
    namespace.apply(*example(app_image))
    programmed(namespace, seconds=15)
    programmed(namespace, endpoints="4/4", proxies=2)
    client = namespace.client()

    shown = namespace.kubectl("get", "bsvc", "shop").splitlines()[1].split()
    report = client.load(SHOP, "--count", str(requests), "--rate", "5000", "--concurrency", "32", seconds=120)

    assert shown[:4] == ["shop", "PowerOfTwoChoices", "4/4", "True"]
    assert report["failures"] == []
    assert report["ok"] == requests
    assert set(report["pods"]) == namespace.pods(app="shop")
    sigma = math.sqrt(requests * share * (1 - share))
    assert abs(report["versions"]["stable"] - requests * share) <= 5 * sigma


def test_weights_and_algorithm_change_within_two_seconds_and_replicas_within_fifteen(
    operator: Operator, namespace: Namespace, app_image: str
) -> None:
    namespace.apply(*example(app_image))
    programmed(namespace, endpoints="4/4", proxies=2)
    client = namespace.client()

    with client.loading(SHOP, *STEADY, "--header", "X-User:alice") as load:
        load.begun()
        patch(namespace, {"backends": weights(stable=0, canary=100)})
        weighted = time.time()
        programmed(namespace, seconds=15)
        time.sleep(max(0.0, weighted + 4 - time.time()))
        restored = time.time()
        patch(namespace, {"backends": weights(stable=100, canary=0)})
        by_user = {"hashOn": [{"header": "X-User"}], "boundedLoad": 0}
        patch(namespace, {"algorithm": {"type": "ConsistentHash", "consistentHash": by_user}})
        hashed = time.time()
        namespace.kubectl("scale", "bsvc/shop", "--replicas=3")
        scaled = time.monotonic()
        namespace.wait(SERVICES, "shop", lambda found: found["status"]["proxy"].get("programmed") == 3, seconds=15)
        took = time.monotonic() - scaled
        report = sent_on(load, hashed + 4)

    assert report["failures"] == []
    assert report["ok"] == report["requests"]
    only_canary = {version for at, _, version in after(report, weighted + 2) if at < restored}
    assert only_canary == {"canary"}
    assert len({pod for _, pod, _ in after(report, hashed + 2)}) == 1
    assert took < 15


def weights(**by_name: int) -> list[Object]:
    """The example's backends with other weights."""
    labels = {"app": "shop", "track": "canary"}
    return [
        {"name": "stable", "service": {"name": "shop-v1"}, "weight": by_name["stable"]},
        {"name": "canary", "selector": {"matchLabels": labels}, "weight": by_name["canary"]},
    ]


def test_a_pod_that_is_not_ready_gets_nothing_new_and_keeps_its_stream(
    operator: Operator, namespace: Namespace
) -> None:
    namespace.backend("shop-v1", replicas=3)
    namespace.apply(balanced())
    programmed(namespace, endpoints="3/3", proxies=2)
    client = namespace.client()

    with client.loading(SHOP, *STEADY) as load, client.streaming("shop:80", "/stream/40/0.5") as stream:
        load.begun()
        pod = stream.pod
        namespace.exec(pod, "touch", "/tmp/unready")
        out = turned(namespace, pod, ready=False)
        time.sleep(3)
        namespace.exec(pod, "rm", "/tmp/unready")
        back = turned(namespace, pod, ready=True)
        report = sent_on(load, back + 3)
        followed = stream.end()

    assert report["failures"] == []
    assert report["ok"] == report["requests"]
    absent = [at - out for at, name, _ in after(report, out + 1) if name == pod and at < back]
    assert absent == []
    assert min(at for at, name, _ in after(report, back) if name == pod) < back + 1
    assert (followed["complete"], len(followed["pieces"])) == (True, 40)


def turned(namespace: Namespace, pod: str, *, ready: bool) -> float:
    """When a watch saw the pod's endpoint become so."""
    for event in namespace.cluster.watch(namespace.path(SLICES), 60):
        seen = time.time()
        if ready in readiness(event["object"], pod):
            return seen
    raise TimeoutError(f"{pod} did not turn ready={ready}")


def readiness(found: Object, pod: str) -> Iterable[bool]:
    for each in found.get("endpoints") or []:
        if each.get("targetRef", {}).get("name") == pod:
            yield each["conditions"]["ready"]


def test_a_killed_backend_fails_only_what_it_had_and_of_that_only_what_may_not_be_repeated(
    operator: Operator, namespace: Namespace, app_image: str
) -> None:
    servers = backend("shop-v1", app_image, replicas=3)
    servers[0]["spec"]["template"]["spec"]["containers"][0]["args"] = ["-c", PARENT]
    namespace.apply(*servers, balanced())
    namespace.rolled_out("shop-v1")
    programmed(namespace, endpoints="3/3", proxies=2)
    client = namespace.client()
    victim = sorted(namespace.pods(app="shop-v1"))[0]

    asked = client.loading(f"{SHOP}slow/0.05", *STEADY)
    told = client.loading(f"{SHOP}slow/0.2", "--rate", "100", "--concurrency", "64", "--method", "POST")
    with asked, told:
        asked.begun()
        told.begun()
        killed = float(namespace.exec(victim, "python", "-c", KILL))
        namespace.wait("v1/pods", victim, lambda pod: restarts(pod) == 1 and condition(pod, "Ready") == "True")
        gets, posts = sent_on(asked, time.time() + 2), told.stop()

    assert gets["failures"] == []
    assert gets["ok"] == gets["requests"]
    assert 0 < len(posts["failures"]) < 64
    assert posts["ok"] + len(posts["failures"]) == posts["requests"]
    for failure in posts["failures"]:
        assert failure["reason"].startswith("502 ")
        assert failure["at"] - NOTICED < killed < failure["at"] + failure["after"]


NOTICED = 0.1  # seconds within which a proxy must know that a connection is no more

# A container's first process can't be killed from inside, its child can.
PARENT = "import subprocess, sys; sys.exit(subprocess.call([sys.executable, '/app/server.py', '8080']))"

KILL = """
import os, signal, time
found = [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and pid not in ("1", str(os.getpid()))]
server = next(pid for pid in found if b"server.py" in open(f"/proc/{pid}/cmdline", "rb").read())
print(time.time(), flush=True)
os.kill(server, signal.SIGKILL)
"""


def restarts(pod: Object) -> int:
    found: int = pod["status"]["containerStatuses"][0]["restartCount"]
    return found
