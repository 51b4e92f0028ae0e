"""What the pages show can be applied as it stands, and is what the operator itself would make."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.children import ChildSettings, children
from controller.commands.proxy import proxy
from controller.model.endpoints import grant_record
from controller.model.names import CA_CONFIG_MAP
from controller.model.parsing import parse
from controller.model.service import GROUP, KIND, BalancedService
from controller.translate import gather, translate
from tests.golden.crd.evaluator import CRD, refusals
from tests.pages import DOCS, PROJECT, fenced

PAGES = [PROJECT / "README.md", *sorted(DOCS.glob("*.md"))]
VERSION = f"{GROUP}/{CRD['spec']['versions'][0]['name']}"
MINIMAL = {"ports": [{"port": 80}], "backends": [{"name": "all", "addresses": ["192.0.2.1"]}]}


def documents(page: Path) -> list[dict[str, Any]]:
    text = page.read_text()
    heredocs = [part.partition("\nYAML\n")[0] for part in text.split("<<'YAML'\n")[1:]]
    return [each for part in [*fenced(page, "yaml"), *heredocs] for each in yaml.safe_load_all(part)]


def whole(document: dict[str, Any]) -> dict[str, Any] | None:
    """The BalancedService that is shown, or one with the fields that are; None if it is something else."""
    if document.get("kind") == KIND:
        return document
    spec = document.get("spec") if "spec" in document else document if "backends" in document else None
    if "kind" in document or spec is None:
        return None
    return {"apiVersion": VERSION, "kind": KIND, "metadata": {"name": "shop"}, "spec": MINIMAL | spec}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_object_that_is_shown_is_valid(page: Path) -> None:
    for given in filter(None, map(whole, documents(page))):
        assert refusals(given) == []
        assert isinstance(parse(given), BalancedService)


# Proxies of someone else.


def shown(kind: str) -> dict[str, Any]:
    (found,) = [each for each in documents(DOCS / "external.md") if each.get("kind") == kind]
    return found


def of_the_operator(mode: str) -> dict[str, dict[str, Any]]:
    """What it makes for the object of the page in that mode, by kind."""
    given = shown(KIND) | {"spec": shown(KIND)["spec"] | {"proxy": {"mode": mode}}}
    inputs = gather([given])
    service = parse(given)
    assert isinstance(service, BalancedService)
    result = translate(inputs, service.key)
    assert result.snapshot is not None
    settings = ChildSettings(
        image=f"steelyard-proxy:{version()}", control="https://steelyard-controller.steelyard-system.svc:19443"
    )
    return {each["kind"]: each for each in children(service, result.snapshot, result.admitted, settings)}


def version() -> str:
    return str(yaml.safe_load((PROJECT / "charts" / "steelyard" / "Chart.yaml").read_text())["appVersion"])


def renamed(found: Any) -> Any:
    """With the page's names and labels in place of the operator's."""
    if isinstance(found, dict):
        if found.keys() == {f"{GROUP}/balancedservice"}:
            return {"app.kubernetes.io/instance": "shop-proxies"}
        return {name: renamed(each) for name, each in found.items()}
    if isinstance(found, list):
        return [renamed(each) for each in found]
    return "shop-proxies" if found == "shop-lb" else found


def test_the_pod_is_the_one_that_the_operator_makes() -> None:
    expected, found = renamed(of_the_operator("Gateway")["Deployment"]["spec"]), shown("Deployment")["spec"]
    labels = found["template"]["metadata"].pop("labels")

    theirs = expected["template"]["metadata"].pop("labels")

    assert found == expected
    assert found["selector"]["matchLabels"].items() <= labels.items()
    assert labels.items() - found["selector"]["matchLabels"].items() <= theirs.items()
    assert f"{GROUP}/balancedservice" not in labels


def test_so_are_its_account_and_its_budget() -> None:
    made = of_the_operator("Gateway")

    account = shown("ServiceAccount")
    assert account.pop("metadata")["name"] == shown("Deployment")["spec"]["template"]["spec"]["serviceAccountName"]
    assert account.items() <= made["ServiceAccount"].items()
    assert shown("PodDisruptionBudget")["spec"] == renamed(made["PodDisruptionBudget"]["spec"])


def test_the_operator_makes_nothing_of_that_for_an_external_object() -> None:
    assert of_the_operator("External") == {}


def test_the_service_leads_to_the_port_that_the_proxies_listen_on() -> None:
    (port,) = shown("Service")["spec"]["ports"]
    given = shown(KIND)
    result = translate(gather([given]), (given["metadata"]["namespace"], given["metadata"]["name"]))

    assert result.snapshot is not None
    assert [each.listen for each in result.snapshot.ports] == [port["targetPort"]]
    assert shown("Service")["spec"]["selector"] == shown("Deployment")["spec"]["selector"]["matchLabels"]


def test_the_arguments_are_the_commands() -> None:
    (container,) = shown("Deployment")["spec"]["template"]["spec"]["containers"]
    command, *arguments = container["args"]

    with proxy.make_context(command, arguments) as context:
        given = context.params

    assert (given["url"], given["namespace"], given["names"]) == (
        "https://steelyard-controller.steelyard-system.svc:19443",
        "store",
        ("shop",),
    )
    assert CA_CONFIG_MAP in (DOCS / "external.md").read_text()


# What else is shown.


def test_the_grant_permits_what_is_said_and_nothing_else() -> None:
    (given,) = [each for each in documents(DOCS / "troubleshooting.md") if each.get("kind") == "ReferenceGrant"]
    grant = grant_record(given)

    assert grant.namespace == "sales"
    assert grant.permits((GROUP, KIND, "store"), "cart")
    assert not grant.permits((GROUP, KIND, "store"), "other")
    assert not grant.permits((GROUP, KIND, "elsewhere"), "cart")
    del given["spec"]["to"][0]["name"]
    assert grant_record(given).permits((GROUP, KIND, "store"), "other")


def test_the_autoscaler_has_a_scale_to_set() -> None:
    found = documents(DOCS / "exposing.md")
    (scaler,) = [each for each in found if each.get("kind") == "HorizontalPodAutoscaler"]
    (target,) = [each for each in found if each.get("kind") == KIND]
    scale = CRD["spec"]["versions"][0]["subresources"]["scale"]

    assert scaler["spec"]["scaleTargetRef"] == {
        "apiVersion": VERSION,
        "kind": KIND,
        "name": target["metadata"]["name"],
    }
    assert scale["specReplicasPath"] == ".spec.proxy.replicas"
    assert "replicas" not in target["spec"]["proxy"]
