"""The chart renders what is written beside it, for a matrix of values, and nothing in it is of no effect."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.children.meta import labels
from controller.model.parsing import parse
from controller.model.service import BalancedService
from release.manifest import CHART, COPY, CRD, MANIFEST, PROJECT, manifest, render
from release.readme import UndocumentedError, readme, rows
from tests.golden.chart.objects import NEWEST, OLDEST, Object, of, rendered, understood, validate

HERE = Path(__file__).parent
CASES = sorted(HERE.glob("*.values.yaml"))


def hooks(helm: str, *options: str) -> list[Object]:
    argv = [helm, "template", "steelyard", str(CHART), "--show-only", "templates/tests/traffic.yaml", *options]
    return list(yaml.safe_load_all(subprocess.run(argv, check=True, capture_output=True, text=True).stdout))


def case(path: Path) -> str:
    return path.name.removesuffix(".values.yaml")


@pytest.mark.parametrize("values", CASES, ids=case)
def test_values_give_these_objects(helm: str, golden: Callable[[Path, str], None], values: Path) -> None:
    text = render(helm, "--values", str(values), "--set", "crds.enabled=false")

    golden(HERE / f"{case(values)}.golden.yaml", text)


@pytest.mark.parametrize("values", CASES, ids=case)
def test_helm_3_makes_the_same_of_it(helm: str, helm3: str, values: Path) -> None:
    """In another order, with other empty lines."""
    options = ("--values", str(values), "--kube-version", NEWEST)

    def named(program: str) -> dict[tuple[str, str], Object]:
        return {(each["kind"], each["metadata"]["name"]): each for each in rendered(program, *options)}

    assert named(helm3) == named(helm)


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("values", CASES, ids=case)
def test_every_object_is_valid_in_kubernetes(helm: str, values: Path, version: str) -> None:
    validate(rendered(helm, "--values", str(values)) + hooks(helm, "--values", str(values)), version)


@pytest.mark.parametrize("values", CASES, ids=case)
def test_helm_finds_no_fault_with_it(helm: str, values: Path) -> None:
    argv = [helm, "lint", "--strict", str(CHART), "--values", str(values)]

    done = subprocess.run(argv, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("contoller.replicas=3", "additional properties 'contoller' not allowed"),
        ("controller.replica=3", "additional properties 'replica' not allowed"),
        ("controller.replicas=0", "at '/controller/replicas': minimum: got 0, want 1"),
        ("controller.replicas=two", "at '/controller/replicas': got string, want integer"),
        (
            "image.pullPolicy=Sometimes",
            "at '/image/pullPolicy': value must be one of 'IfNotPresent', 'Always', 'Never'",
        ),
        ("proxy.image.digest=abc", "at '/proxy/image/digest': 'abc' does not match pattern"),
        ("injection.mode=Off", "at '/injection/mode': value must be one of 'Webhook', 'Policy', 'Disabled'"),
        ("upgrade.maxConcurrent=0", "at '/upgrade/maxConcurrent': minimum: got 0, want 1"),
        ("watchNamespaces={No_Name}", "at '/watchNamespaces/0': 'No_Name' does not match pattern"),
        ("serviceAccount.create=false", "at '/serviceAccount/name': minLength: got 0, want 1"),
        (
            "certificates.mode=Own",
            "at '/certificates/mode': value must be one of 'SelfManaged', 'Secret', 'CertManager'",
        ),
        ("certificates.mode=Secret", "at '/certificates/secretName': minLength: got 0, want 1"),
        ("certificates.caBundle=abc", "at '/certificates/caBundle': maxLength: got 3, want 0"),
        ("certificates.mode=Secret,certificates.caBundle=abc", "at '/certificates/caBundle': 'abc' does not match"),
        ("certificates.secretName=edge-tls", "at '/certificates/secretName': maxLength: got 8, want 0"),
        ("certificates.certManager.issuerRef.name=x", "certManager/issuerRef': maxProperties: got 1, want 0"),
        (
            "certificates.mode=Secret,certificates.secretName=edge-tls,certificates.certManager.issuerRef.name=x",
            "certManager/issuerRef': maxProperties: got 1, want 0",
        ),
        ("certificates.mode=CertManager,certificates.certManager.issuerRef.kind=X", "missing property 'name'"),
        (
            "certificates.mode=Secret,certificates.secretName=steelyard-controller",
            "certificates.secretName: steelyard-controller is the Secret that the operator keeps its own keys in",
        ),
    ],
)
def test_wrong_values_are_refused_by_name(helm: str, options: str, message: str) -> None:
    with pytest.raises(subprocess.CalledProcessError) as refused:
        render(helm, "--set", options)

    assert message in refused.value.stderr


def test_the_crd_is_the_source_byte_by_byte() -> None:
    assert CRD.read_bytes() == COPY.read_bytes()


def test_the_plain_manifest_is_what_the_chart_renders_by_default(helm: str) -> None:
    """`make chart` writes it."""
    assert MANIFEST.read_text() == manifest(helm)


@pytest.mark.parametrize(("keep", "policy"), [("true", "keep"), ("false", None)])
def test_the_crd_is_emitted_as_it_is(helm: str, keep: str, policy: str | None) -> None:
    found = of(rendered(helm, "--set", f"crds.keep={keep}"), "CustomResourceDefinition")
    source = yaml.safe_load(CRD.read_text())

    annotations = found["metadata"].pop("annotations", {})

    assert annotations.pop("helm.sh/resource-policy", None) == policy
    assert annotations == source["metadata"].pop("annotations", {})
    assert found == source


def test_without_the_crd_there_is_none(helm: str) -> None:
    assert "CustomResourceDefinition" not in {each["kind"] for each in rendered(helm, "--set", "crds.enabled=false")}


def test_the_versions_are_the_projects() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = re.search(r'(?m)^version = "(.*)"$', (PROJECT / "pyproject.toml").read_text())

    assert project is not None
    assert [chart["version"], chart["appVersion"]] == [project[1]] * 2
    named = re.findall(r"steelyard-(?:controller|proxy):([0-9.]+)", (PROJECT / "README.md").read_text())
    assert set(named) == {project[1]}


def test_the_readme_is_made_of_the_values() -> None:
    assert (CHART / "README.md").read_text() == readme()


def test_a_value_without_description_is_an_error() -> None:
    with pytest.raises(UndocumentedError, match=r"a\.b has no description"):
        list(rows("# -- Why.\nx: 1\na:\n  b: 2\n"))


def test_the_schema_knows_exactly_the_values() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert schema["properties"].pop("global")

    def compare(path: str, value: Any, node: Object) -> Iterator[str]:
        if "properties" not in node or path.endswith((".affinity", ".resources", ".issuerRef")):
            return
        assert node["additionalProperties"] is False, path
        yield from (f"{path}.{key}" for key in value.keys() ^ node["properties"].keys())
        for key in value.keys() & node["properties"].keys():
            yield from compare(f"{path}.{key}", value[key], node["properties"][key])

    assert list(compare("", values, schema)) == []


@pytest.mark.parametrize("values", CASES, ids=case)
def test_what_the_operator_is_told_it_understands(helm: str, values: Path) -> None:
    assert understood(rendered(helm, "--values", str(values)))


def test_with_watched_namespaces_only_what_has_no_namespace_is_cluster_wide(helm: str) -> None:
    objects = rendered(helm, "--set", "watchNamespaces={store,warehouse}", "--set", "rbac.aggregate=false")

    reviews, webhook = of(objects, "ClusterRole")["rules"]
    assert reviews == {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]}
    assert webhook["resourceNames"] == [of(objects, "MutatingWebhookConfiguration")["metadata"]["name"]]
    roles = {each["metadata"]["namespace"]: each for each in objects if each["kind"] == "Role"}
    assert roles.keys() == {"store", "warehouse", "steelyard-system"}


def test_no_rule_has_a_wildcard_and_secrets_are_named(helm: str) -> None:
    for each in rendered(helm):
        for rule in each.get("rules", ()) if each["kind"] in ("Role", "ClusterRole") else ():
            assert not any("*" in entry for field in rule.values() for entry in field)
            if "secrets" in rule["resources"]:
                assert each["kind"] == "Role"
                assert rule["verbs"] == ["create"] or rule["resourceNames"] == ["steelyard-controller"]


CERTIFIED = {
    "given": ("certificates.mode=Secret,certificates.secretName=given", "given", True),
    "given, bundle too": (
        "certificates.mode=Secret,certificates.secretName=given,"
        "certificates.caBundle=-----BEGIN CERTIFICATE-----YQ-----END CERTIFICATE-----",
        "given",
        False,
    ),
    "cert-manager": ("certificates.mode=CertManager", "steelyard-controller-tls", False),
}


@pytest.mark.parametrize(("values", "name", "ours"), CERTIFIED.values(), ids=CERTIFIED)
def test_a_given_certificate_costs_the_right_to_read_one_secret_more(
    helm: str, values: str, name: str, ours: bool
) -> None:
    """And the operator may no longer write the webhook's configuration where someone else tells whom to trust."""
    plain, objects = rendered(helm), rendered(helm, "--set", values)
    rules, usual = (of(each, "Role")["rules"] for each in (objects, plain))
    wide, widely = (of(each, "ClusterRole", "steelyard-system-steelyard-controller") for each in (objects, plain))
    read = {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [name], "verbs": ["get"]}
    environment = of(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]["env"]
    told = {entry["name"]: entry.get("value") for entry in environment}

    assert [each for each in rules if each not in usual] == [read]
    assert [each["resources"] for each in widely["rules"] if each not in wide["rules"]] == (
        [] if ours else [["mutatingwebhookconfigurations"]]
    )
    assert told["STEELYARD_TLS_SECRET"] == name
    assert ("STEELYARD_WEBHOOK_CONFIGURATION" in told) is ours
    (webhook,) = of(objects, "MutatingWebhookConfiguration")["webhooks"]
    assert ("caBundle" in webhook["clientConfig"]) is ("caBundle" in values)


def test_cert_manager_is_asked_for_the_certificate_that_the_operator_reads(helm: str) -> None:
    objects = rendered(helm, "--set", "certificates.mode=CertManager,clusterDomain=cluster.example")
    certificate = of(objects, "Certificate", "steelyard-controller")
    authority = of(objects, "Certificate", "steelyard-controller-ca")
    annotations = of(objects, "MutatingWebhookConfiguration")["metadata"]["annotations"]

    host = f"{of(objects, 'Service')['metadata']['name']}.steelyard-system.svc"
    assert certificate["spec"]["secretName"] == "steelyard-controller-tls"
    assert certificate["spec"]["dnsNames"] == [host, f"{host}.cluster.example"]
    assert annotations == {"cert-manager.io/inject-ca-from": "steelyard-system/steelyard-controller"}
    signer = of(objects, "Issuer", certificate["spec"]["issuerRef"]["name"])
    assert signer["spec"]["ca"]["secretName"] == authority["spec"]["secretName"]
    root = of(objects, "Issuer", authority["spec"]["issuerRef"]["name"])
    assert root["spec"] == {"selfSigned": {}}


def test_an_issuer_of_the_clusters_owner_signs_instead(helm: str) -> None:
    issuer = "certificates.certManager.issuerRef.name=corporate,certificates.certManager.issuerRef.kind=ClusterIssuer"

    objects = rendered(helm, "--set", f"certificates.mode=CertManager,{issuer}")

    assert "Issuer" not in {each["kind"] for each in objects}
    assert of(objects, "Certificate")["spec"]["issuerRef"] == {"name": "corporate", "kind": "ClusterIssuer"}


def test_selectors_find_what_they_are_for(helm: str) -> None:
    objects = rendered(helm, "--values", str(HERE / "everything.values.yaml"))
    operator = of(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]
    proxy = labels(
        BalancedService(namespace="store", name="shop", uid="u", generation=1, ports=(), backends=()), "proxy"
    )
    policy = of(objects, "NetworkPolicy")["spec"]
    peers = policy["ingress"][0]["from"]

    def selects(selector: dict[str, str], found: dict[str, str]) -> bool:
        return selector.items() <= found.items()

    assert selects(policy["podSelector"]["matchLabels"], operator)
    assert not selects(policy["podSelector"]["matchLabels"], proxy)
    assert selects(peers[0]["podSelector"]["matchLabels"], proxy)
    assert selects(peers[1]["podSelector"]["matchLabels"], operator)
    assert selects(of(objects, "Service")["spec"]["selector"], operator)
    assert selects(of(objects, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"], operator)


@pytest.mark.parametrize("mode", ["Webhook", "Policy", "Disabled"])
def test_sidecars_reach_the_operator_whoever_brought_them(helm: str, mode: str) -> None:
    """With `Disabled` it is `steelyard inject`."""
    objects = rendered(helm, "--set", f"networkPolicy.enabled=true,injection.mode={mode}")
    (rule,) = [
        each for each in of(objects, "NetworkPolicy")["spec"]["ingress"] if each["ports"][0]["port"] == "discovery"
    ]

    peer = {"namespaceSelector": {}, "podSelector": {"matchLabels": {"steelyard.dev/inject": "enabled"}}}
    assert peer in rule["from"]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ("crds.enabled=true", ["is installed in edge.\n", "metadata: {name: shop}", "kubectl get bsvc\n"]),
        (
            "watchNamespaces={store,warehouse}",
            [
                "in edge, for the namespaces store, warehouse.",
                "{name: shop, namespace: store}",
                "bsvc --namespace store",
            ],
        ),
    ],
)
def test_its_last_words_can_be_followed(helm: str, values: str, expected: list[str]) -> None:
    argv = [helm, "install", "steelyard", str(CHART), "--namespace", "edge", "--dry-run=client", "--set", values]

    notes = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.rpartition("NOTES:")[2]

    assert [words for words in expected if words not in notes] == []
    assert "helm test steelyard --namespace edge" in notes
    (shown,) = re.findall(r"(?s)<<END\n(.*?)\n    END", notes)
    made = yaml.safe_load(shown)
    meta = {"namespace": "x", "uid": "u", "generation": 1} | made["metadata"]
    assert isinstance(parse(made | {"metadata": meta}), BalancedService) is False, "the name is the reader's to fill in"
    made["spec"]["backends"][0]["service"]["name"] = "shop-v1"
    assert isinstance(parse(made | {"metadata": meta}), BalancedService)


def test_the_test_object_is_valid_and_its_pod_is_its_backend(helm: str) -> None:
    service, pod = (of(hooks(helm), kind) for kind in ("BalancedService", "Pod"))
    meta = {"namespace": "x", "uid": "u", "generation": 1} | service["metadata"]

    found = parse(service | {"metadata": meta})

    assert isinstance(found, BalancedService)
    (backend,) = service["spec"]["backends"]
    assert backend["selector"]["matchLabels"] == pod["metadata"]["labels"]
    compile(pod["spec"]["containers"][0]["command"][2], "check.py", "exec")


def test_the_test_object_is_where_the_operator_looks(helm: str) -> None:
    found = hooks(helm, "--set", "watchNamespaces={store}")

    assert [each["metadata"]["namespace"] for each in found] == ["store", "store"]
