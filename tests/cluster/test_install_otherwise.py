"""Other ways to install it: by Helm 3, with a certificate of one's own authority, beside the version before."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

import pytest

from tests.authority import Authority
from tests.cluster.api import ApiError, Cluster, Object, condition
from tests.cluster.deployed import SERVICES
from tests.cluster.installing import (
    CHART,
    CRDS,
    EARLIER,
    MADE,
    OPERATOR,
    OWN,
    collects,
    example,
    install,
    left,
    may,
    programmed,
    proxies,
    shop,
    tags,
    until,
)
from tests.cluster.namespace import Namespace
from tests.cluster.traffic import Client

pytestmark = pytest.mark.timeout(240, func_only=True)

WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
# Shown to whoever connects to the operator's pods by now: one certificate a line, in base64.
LOOK = """
import base64, ssl, sys
for address in sys.argv[1:]:
    shown = ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate((address, 19443), timeout=5))
    print(base64.b64encode(shown).decode())
"""
STREAMS = """
import re, urllib.request
text = urllib.request.urlopen("http://127.0.0.1:19901/metrics").read().decode()
print(re.search(r"^steelyard_operator_proxy_streams (.*)", text, re.M)[1])
"""


def test_helm_3_installs_upgrades_and_leaves(release: Cluster, client: Client, app: str, now: list[str]) -> None:
    assert release.run("helm3", "version", "--short").startswith("v3.")
    install(release, *now, "--wait", helm="helm3")
    example(release, app)
    shop(release)
    assert client.load("http://shop.store/", seconds=2)["failures"] == []

    values = ("--reuse-values", "--set", "controller.replicas=1", "--wait")
    release.run("helm3", "upgrade", "steelyard", str(CHART), "-n", OWN, *values, timeout=180)
    # Without --logs: Helm 3 asks for them when it has removed the pod, and for those of what is no pod.
    assert release.run("helm3", "test", "steelyard", "-n", OWN, timeout=180).count("Succeeded") == 2
    collects(release)
    release.run("helm3", "uninstall", "steelyard", "-n", OWN, "--wait", timeout=120)

    release.wait(f"/api/v1/namespaces/{OWN}/secrets/steelyard-controller", lambda found: not found)
    release.wait(f"/apis/coordination.k8s.io/v1/namespaces/{OWN}/leases/steelyard-controller", lambda it: not it)
    assert left(release, MADE, "-n", OWN) == []
    assert client.load("http://shop.store/", seconds=2)["failures"] == [], "the objects and their proxies are kept"


def test_a_given_certificate_is_shown_and_followed_without_a_lost_request(
    release: Cluster, client: Client, app: str, now: list[str]
) -> None:
    authority = Authority("the cluster's owner")
    first, second = authority.secret(), authority.secret()
    give(release, first)
    given = ("certificates.mode=Secret", "certificates.secretName=edge-tls", "injection.failurePolicy=Fail")
    install(release, *now, *(word for value in given for word in ("--set", value)), "--wait")
    example(release, app)
    shop(release)

    assert shown(release) == {der(first)}
    store = Namespace(release, "store", app)
    assert store.get("v1/configmaps", "steelyard-ca")["data"]["ca.crt"].encode() == authority.bundle
    own = release.get(f"/api/v1/namespaces/{OWN}/secrets/steelyard-controller")
    assert own is not None
    assert own["data"].keys() == {"session-key"}, "no authority of its own"
    account = ("--as", f"system:serviceaccount:{OWN}:steelyard-controller")
    assert may(release, "get", "secret/edge-tls", "-n", OWN, *account)
    assert not may(release, "update", "secret/edge-tls", "-n", OWN, *account)
    # The API server trusts the webhook by the same authority, or no pod with this label could be made.
    release.wait(f"{WEBHOOKS}/{OWN}-steelyard-controller", lambda found: trusts(found, authority))
    until(lambda: may_be_made(release), 20)

    with client.loading("http://shop.store/", "--rate", "100", "--timeout", "20") as load:
        give(release, second)
        until(lambda: shown(release) == {der(second)}, 40)
        before = ready(store)
        store.kubectl("delete", f"pod/{min(before)}", "--wait=false")
        until(lambda: len(ready(store) - before) == 1, 60)  # a new one, by the new certificate
        give(release, second | {"tls.crt": first["tls.crt"]})
        until(lambda: "tls.key is not the unencrypted key of tls.crt" in refusals(release), 40)
        report = load.stop()

    assert report["failures"] == []
    assert shown(release) == {der(second)}, "the last good one serves on"
    shop(release)


def test_a_namespace_that_is_taken_off_the_list_is_served_on(
    release: Cluster, client: Client, app: str, now: list[str]
) -> None:
    """Its proxies come to an operator that sees nothing of it any more: gone it is not."""
    release.call("POST", "/api/v1/namespaces", {"metadata": {"name": "elsewhere"}})
    install(release, *now, "--wait")
    example(release, app)
    shop(release)
    store, own = Namespace(release, "store", app), Namespace(release, OWN, app)
    before = ready(store)

    with client.loading("http://shop.store/", "--rate", "100", "--timeout", "20") as load:
        load.begun()
        values = ("--reuse-values", "--set", "watchNamespaces={elsewhere}", "--wait")
        release.helm("upgrade", "steelyard", str(CHART), "-n", OWN, *values, timeout=180)
        own.rolled_out("steelyard-controller")
        until(lambda: streams(own) == 2, 60)
        report = load.stop()

    assert report["failures"] == []
    assert client.load("http://shop.store/", seconds=2)["failures"] == []
    assert ready(store) == before


def streams(own: Namespace) -> int:
    """Of proxies, to all of the operator's pods."""
    pods = own.pods(**{"app.kubernetes.io/component": "controller"})
    return sum(int(float(own.exec(pod, "python", "-c", STREAMS))) for pod in pods)


@pytest.fixture
def certificate_kinds(empty: Cluster) -> Iterator[None]:
    """The kinds of cert-manager, without anyone who looks at them: that part is the test's."""
    names = {"certificates": "Certificate", "issuers": "Issuer"}
    version = {"name": "v1", "served": True, "storage": True}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    for plural, kind in names.items():
        spec = {
            "group": "cert-manager.io",
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind},
            "versions": [version | {"schema": schema}],
        }
        meta = {"name": f"{plural}.cert-manager.io"}
        made = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": meta}
        empty.apply(made | {"spec": spec})
        empty.wait(f"{CRDS}/{plural}.cert-manager.io", lambda found: condition(found, "Established") == "True")
    yield
    empty.kubectl("delete", "crd", *(f"{plural}.cert-manager.io" for plural in names))


def test_it_waits_for_the_certificate_that_cert_manager_makes(
    release: Cluster, now: list[str], certificate_kinds: None
) -> None:
    authority = Authority("cert-manager's")

    install(release, *now, "--set", "certificates.mode=CertManager", "--set", "injection.failurePolicy=Fail")

    until(lambda: "Secret steelyard-controller-tls: there is no such Secret" in refusals(release), 60)
    assert not release.call("GET", OPERATOR)["status"].get("readyReplicas")
    asked = release.call("GET", f"/apis/cert-manager.io/v1/namespaces/{OWN}/certificates/steelyard-controller")["spec"]
    data = authority.secret(*asked["dnsNames"])
    give(release, data, asked["secretName"])
    release.wait(OPERATOR, lambda found: found["status"].get("readyReplicas") == 2)
    assert shown(release) == {der(data)}

    name = f"{OWN}-steelyard-controller"
    configuration = release.call("GET", f"{WEBHOOKS}/{name}")
    assert "caBundle" not in configuration["webhooks"][0]["clientConfig"], "it has no permission to"
    assert not may_be_made(release)
    bundle = {"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": encoded(authority.bundle)}
    release.kubectl("patch", "mutatingwebhookconfiguration", name, "--type=json", "-p", json.dumps([bundle]))
    until(lambda: may_be_made(release), 20)
    said = release.kubectl("-n", OWN, "logs", "-l", "app.kubernetes.io/component=controller", "--tail=-1")
    assert "permission missing" not in said
    assert " 403 " not in said


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def give(cluster: Cluster, data: dict[str, bytes], secret: str = "edge-tls") -> None:
    values = {name: encoded(value) for name, value in data.items()}
    meta = {"name": secret, "namespace": OWN}
    cluster.apply({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": meta, "data": values})


def der(data: dict[str, bytes]) -> str:
    return "".join(data["tls.crt"].decode().split("-----")[2].split())


def shown(cluster: Cluster) -> set[str]:
    """What each of the operator's pods shows."""
    assert cluster.local is not None
    pods = cluster.kubectl("-n", OWN, "get", "pods", "-l", "app.kubernetes.io/component=controller", "-o", "json")
    addresses = [pod["status"]["podIP"] for pod in json.loads(pods)["items"]]
    assert len(addresses) == 2
    return set(cluster.inside("python3", "-c", LOOK, *addresses).split())


def trusts(configuration: Object, authority: Authority) -> bool:
    (webhook,) = configuration["webhooks"]
    return base64.b64decode(webhook["clientConfig"].get("caBundle", "")) == authority.bundle


def may_be_made(cluster: Cluster) -> bool:
    """A pod that asks for a sidecar."""
    asks = {"name": "asks", "labels": {"steelyard.dev/inject": "enabled"}}
    pod: Object = {"metadata": asks, "spec": {"containers": [{"name": "app", "image": "app:1"}]}}
    try:
        cluster.call("POST", "/api/v1/namespaces/default/pods?dryRun=All", pod)
    except ApiError as error:
        if "failed calling webhook" in error.message:
            return False
        raise
    return True


def ready(namespace: Namespace) -> set[str]:
    """Names of the proxies that are."""
    found = namespace.kubectl("get", "pods", "-l", "steelyard.dev/balancedservice=shop", "-o", "json")
    pods = [pod for pod in json.loads(found)["items"] if condition(pod, "Ready") == "True"]
    return {pod["metadata"]["name"] for pod in pods if "deletionTimestamp" not in pod["metadata"]}


def refusals(cluster: Cluster) -> str:
    """What Events of the operator's Deployment say."""
    return cluster.kubectl("-n", OWN, "events", "--for", "deployment/steelyard-controller", "--types", "Warning")


def test_an_operator_and_proxies_of_neighbouring_versions_understand_each_other(
    release: Cluster, client: Client, app: str, now: list[str]
) -> None:
    controller, proxy = (value.rpartition("=")[2] for value in now[3::2])
    store = Namespace(release, "store", app)

    install(release, *tags("before", proxy), "--wait", chart=EARLIER)
    example(release, app)
    shop(release)
    proxies(release, proxy)
    heard(store, client, {"stable"}, canary=0)

    release.helm("upgrade", "steelyard", str(CHART), "-n", OWN, *tags(controller, "before"), "--wait", timeout=180)
    proxies(release, "before")
    heard(store, client, {"stable", "canary"}, canary=50)


def heard(store: Namespace, client: Client, versions: set[str], canary: int) -> None:
    """The proxies acknowledge a change, and report on their endpoints; requests go as it says."""
    backends = shop(store.cluster)["spec"]["backends"]
    for each in backends:
        each["weight"] = canary if each["name"] == "canary" else 50
    store.kubectl("patch", "bsvc/shop", "--type=merge", "-p", json.dumps({"spec": {"backends": backends}}))

    def told(found: Object) -> bool:
        return programmed(found) and condition(found, "Ready") == "True" and _generation(found)

    store.wait(SERVICES, "shop", told)
    report = client.load("http://shop.store/", seconds=3)
    assert report["failures"] == []
    assert report["versions"].keys() == versions


def _generation(found: Object) -> bool:
    facts = {each["type"]: each["observedGeneration"] for each in found["status"]["conditions"]}
    return bool(facts["Programmed"] == found["metadata"]["generation"])
