"""Who may have a snapshot, what a reference that leads nowhere costs, and that each refusal can be seen."""

from __future__ import annotations

import base64
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.cluster.api import Cluster, CommandError, Object, condition
from tests.cluster.deployed import OWN, SERVICES, Operator, balanced, programmed
from tests.cluster.namespace import Namespace
from tests.cluster.outside import AUDIENCE, samples, token

SERVER = "steelyard-controller.steelyard-system.svc:19443"
FIXED: Object = {"backends": [{"name": "fixed", "addresses": ["192.0.2.1"]}], "proxy": {"mode": "External"}}
# Gateway API's CRD of ReferenceGrant, from its Go module.
MODULE, SUM = "sigs.k8s.io/gateway-api@v1.4.0", "h1:ZwlNM6zOHq0h3WUX2gfByPs2yAEsy/EenYJB78jpQfQ="
GRANTS = "config/crd/standard/gateway.networking.k8s.io_referencegrants.yaml"


class Replica:
    """One replica's discovery port and metrics, asked from the cluster's hub."""

    def __init__(self, cluster: Cluster, authority: Path) -> None:
        if cluster.local is None:
            pytest.skip("of the harness's own cluster")
        selector = "labelSelector=app.kubernetes.io/component=controller"
        pods = cluster.call("GET", f"/api/v1/namespaces/{OWN}/pods?{selector}")["items"]
        self.address: str = min(pod["status"]["podIP"] for pod in pods if "deletionTimestamp" not in pod["metadata"])
        self._cluster = cluster
        self._curl = ("curl", "-sS", "--cacert", str(authority), "--resolve", f"{SERVER}:{self.address}", "-m", "10")

    def status(self, path: str, credential: str | None = None, *options: str, scheme: str = "https") -> int:
        """The status of an answer; 0 without one."""
        header = ("-H", f"Authorization: Bearer {credential}") if credential is not None else ()
        words = (*self._curl, "-o", "/dev/null", "-w", "%{http_code}", *header, *options, f"{scheme}://{SERVER}{path}")
        try:
            return int(self._cluster.inside(*words))
        except CommandError:
            return 0

    def counted(self, event: str) -> float:
        text = self._cluster.inside("curl", "-sS", f"http://{self.address}:19902/metrics")
        return samples(text).get(f'steelyard_operator_discovery_total{{event="{event}"}}', 0.0)


@pytest.fixture
def replica(operator: Operator, namespace: Namespace, tmp_path: Path) -> Replica:
    """With an object `shop` that is External and a Gateway's `front` in the test's namespace."""
    operator.rolled_out()
    namespace.apply(balanced(**FIXED), balanced("front", backends=FIXED["backends"], proxy={"replicas": 0}))
    for name in ("shop", "front"):
        namespace.wait(SERVICES, name, lambda found: condition(found, "Accepted") == "True")
    authority = namespace.wait("v1/configmaps", "steelyard-ca", bool)["data"]["ca.crt"]
    (tmp_path / "ca.crt").write_text(authority)
    found = Replica(namespace.cluster, tmp_path / "ca.crt")
    deadline = time.monotonic() + 10
    good = token(namespace.cluster, namespace.name, "default", AUDIENCE)
    while found.status(_snapshot(namespace, "shop"), good) == 404 and time.monotonic() < deadline:
        time.sleep(0.1)  # this replica may hear of the object a little later than the one that wrote its status
    return found


def test_only_a_valid_token_of_the_right_account_gets_a_snapshot_and_every_refusal_is_counted(
    replica: Replica, namespace: Namespace
) -> None:
    cluster = namespace.cluster
    good = token(cluster, namespace.name, "default", AUDIENCE)
    proxy = token(cluster, namespace.name, "front-lb", AUDIENCE)
    foreign = token(cluster, "default", "default", AUDIENCE)
    refused = {
        "none": None,
        "garbage": "not-a-token",
        "for another audience": token(cluster, namespace.name, "default", "another"),
        "for the API server": token(cluster, namespace.name, "default"),
        "expired": _expired(cluster, good),
        "of a deleted account": _deleted(namespace),
    }
    before = {event: replica.counted(event) for event in ("unauthenticated", "forbidden")}

    found = {name: replica.status(_snapshot(namespace, "shop"), each) for name, each in refused.items()}
    forbidden = {
        "another namespace's": replica.status(_snapshot(namespace, "shop"), foreign),
        "another object's": replica.status(_snapshot(namespace, "front"), good),
        "a report": replica.status(f"/v1/reports/{namespace}", foreign, "--json", '{"shop": {}}'),
        "a relay": replica.status("/v1/relay", good, "--json", "[]"),
    }
    allowed = {
        "External": replica.status(_snapshot(namespace, "shop"), good),
        "Gateway": replica.status(_snapshot(namespace, "front"), proxy),
    }

    assert found == dict.fromkeys(refused, 401)
    assert forbidden == dict.fromkeys(forbidden, 403)
    assert allowed == dict.fromkeys(allowed, 200)
    counted = {event: replica.counted(event) - count for event, count in before.items()}
    assert counted == {"unauthenticated": len(refused), "forbidden": len(forbidden)}


def test_without_tls_nothing_is_served(replica: Replica, namespace: Namespace) -> None:
    good = token(namespace.cluster, namespace.name, "default", AUDIENCE)

    assert replica.status(_snapshot(namespace, "shop"), good) == 200
    assert replica.status(_snapshot(namespace, "shop"), good, scheme="http") in (0, 400)


def test_who_guesses_tokens_has_to_wait_and_who_has_been_known_does_not(replica: Replica, namespace: Namespace) -> None:
    good = token(namespace.cluster, namespace.name, "default", AUDIENCE)
    assert replica.status(_snapshot(namespace, "shop"), good) == 200
    before = replica.counted("limited")

    found = [replica.status(_snapshot(namespace, "shop"), f"guess-{number}") for number in range(40)]

    assert set(found) == {401, 429}
    assert replica.counted("limited") - before == found.count(429)
    assert replica.status(_snapshot(namespace, "shop"), good) == 200


def test_a_reference_that_leads_nowhere_costs_its_own_share_only(operator: Operator, namespace: Namespace) -> None:
    namespace.backend("shop-v1", replicas=2)
    backends = [
        {"name": "good", "service": {"name": "shop-v1"}, "weight": 1},
        {"name": "missing", "service": {"name": "nowhere"}, "weight": 1},
        {"name": "foreign", "service": {"name": "kubernetes", "namespace": "default"}, "weight": 1},
    ]
    namespace.apply(balanced(backends=backends), balanced("typo", ports=[{"port": 80, "targetPort": "htpp"}]))
    found = programmed(namespace, endpoints="2/2")
    typo = namespace.wait(SERVICES, "typo", lambda each: _reason(each, "ResolvedRefs") == "PortNotFound")
    client = namespace.client()

    report = client.load("http://shop/", seconds=3)

    assert report["failures"] == []
    assert report["ok"] == report["requests"]
    assert condition(found, "Accepted") == condition(found, "Ready") == "True"
    assert condition(found, "ResolvedRefs") == "False"
    told = {each["name"]: (each["resolved"], each["share"]) for each in found["status"]["backends"]}
    assert told == {"good": (True, "100.0%"), "missing": (False, "0.0%"), "foreign": (False, "0.0%")}
    messages = json.dumps(found["status"])
    assert "nowhere" in messages
    assert "ReferenceGrant" in messages
    assert "http" in json.dumps(typo["status"]["backends"])  # the ports that there are


@pytest.mark.timeout(240, func_only=True)
def test_another_namespaces_service_needs_its_grant_and_loses_it_at_once(
    operator: Operator, namespace: Namespace, app_image: str, reference_grants: None
) -> None:
    theirs = Namespace(namespace.cluster, f"{namespace}-theirs", app_image)
    theirs.create()
    try:
        theirs.backend("shop-v1", replicas=1)
        backend = {"name": "stable", "service": {"name": "shop-v1", "namespace": theirs.name}}
        namespace.apply(balanced(backends=[backend], proxy={"mode": "External"}))
        namespace.wait(SERVICES, "shop", lambda found: _reason(found, "ResolvedRefs") == "RefNotPermitted")

        theirs.apply(_grant(namespace))
        # The operator looks for the CRD every half a minute.
        granted = namespace.wait(SERVICES, "shop", lambda found: condition(found, "ResolvedRefs") == "True", 90)
        theirs.kubectl("delete", "referencegrant/shop")
        begun = time.monotonic()
        namespace.wait(SERVICES, "shop", lambda found: _reason(found, "ResolvedRefs") == "RefNotPermitted")
        took = time.monotonic() - begun
    finally:
        theirs.delete()

    print(f"a grant taken back is felt after {took:.2f} s")
    assert granted["status"]["backends"][0]["active"] == 1
    assert took < 5


@pytest.fixture
def reference_grants(cluster: Cluster) -> Iterator[None]:
    """The CRD, for one test: without it there are no grants, and the operator waits for it."""
    try:
        done = subprocess.run(
            ["go", "mod", "download", "-json", MODULE], capture_output=True, text=True, timeout=120, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"{MODULE} can't be had: {error}")
    found = json.loads(done.stdout)
    assert found["Sum"] == SUM
    path = str(Path(found["Dir"]) / GRANTS)
    cluster.kubectl("apply", "--server-side", "-f", path)
    name = "referencegrants.gateway.networking.k8s.io"
    crd = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"
    cluster.wait(crd, lambda each: condition(each, "Established") == "True")
    yield
    cluster.kubectl("delete", "-f", path)


def _snapshot(namespace: Namespace, name: str) -> str:
    return f"/v1/snapshots/{namespace}?names={name}"


def _reason(of: Object, kind: str) -> str:
    found = of.get("status", {}).get("conditions") or []
    return next((each["reason"] for each in found if each["type"] == kind), "")


def _grant(namespace: Namespace) -> Object:
    return {
        "apiVersion": "gateway.networking.k8s.io/v1beta1",
        "kind": "ReferenceGrant",
        "metadata": {"name": "shop"},
        "spec": {
            "from": [{"group": "steelyard.dev", "kind": "BalancedService", "namespace": namespace.name}],
            "to": [{"group": "", "kind": "Service"}],
        },
    }


def _deleted(namespace: Namespace) -> str:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "leaver"}}
    namespace.apply(account)
    found = token(namespace.cluster, namespace.name, "leaver", AUDIENCE)
    namespace.kubectl("delete", "serviceaccount/leaver")
    return found


def _expired(cluster: Cluster, good: str) -> str:
    """The same, signed anew by the cluster's own key, but of an hour ago."""
    assert cluster.local is not None
    header, payload, _ = good.split(".")
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    claims |= {name: claims[name] - 7200 for name in ("iat", "nbf", "exp")}
    signed = f"{header}.{_base64(json.dumps(claims).encode())}"
    key = serialization.load_pem_private_key((cluster.local.layout.pki / "sa.key").read_bytes(), None)
    assert isinstance(key, rsa.RSAPrivateKey)
    return f"{signed}.{_base64(key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
