"""What the chart renders, as objects, and whether they are understood."""

from __future__ import annotations

from typing import Any

import kubernetes_validate
import yaml

from controller.__main__ import main as command
from release.manifest import render

Object = dict[str, Any]

OLDEST, NEWEST = "1.31.0", kubernetes_validate.latest_version()
SINCE_1_36 = ("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding")
# Kinds that only their CRD describes.
FOREIGN = ("apiextensions.k8s.io/", "cert-manager.io/", "monitoring.coreos.com/", "steelyard.dev/")


def rendered(helm: str, *options: str) -> list[Object]:
    return [each for each in yaml.safe_load_all(render(helm, *options)) if each]


def of(objects: list[Object], kind: str, name: str | None = None) -> Object:
    (found,) = [each for each in objects if each["kind"] == kind and name in (None, each["metadata"]["name"])]
    return found


def validate(objects: list[Object], version: str = NEWEST) -> None:
    """Raises for what this version of Kubernetes would refuse."""
    for each in objects:
        if not each["apiVersion"].startswith(FOREIGN) and (version != OLDEST or each["kind"] not in SINCE_1_36):
            kubernetes_validate.validate(each, version, strict=True)


def understood(objects: list[Object]) -> Object:
    """What the operator makes of its environment, by the variables' names. Raises for what it would refuse."""
    container = of(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    known = {parameter.envvar: parameter for parameter in command.commands["controller"].params}
    context = command.make_context("steelyard", ["controller"], resilient_parsing=True)

    def read(name: str, value: str) -> Any:
        return known[name].type_cast_value(context, value.split() if known[name].multiple else value)

    assert {entry["name"] for entry in container["env"]} <= known.keys()
    return {entry["name"]: read(entry["name"], entry["value"]) for entry in container["env"] if "value" in entry}
