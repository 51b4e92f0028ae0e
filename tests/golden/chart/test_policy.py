"""The policy's sidecar is the injector's, word by word: what is rendered as CEL reads as Python, too."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace
from typing import Any

import yaml

from controller.children import ChildSettings
from controller.injection import InjectionSettings, Target
from controller.injection import sidecar as injector
from controller.injection.wishes import PORTS
from release.manifest import NAMESPACE, render

SHOP = Target(namespace="store", name="shop", address="127.64.0.1", ports=((80, "HTTP", "http"), (9000, "TCP", "raw")))
VALUE = re.compile(r'op: "add", path: "([^"]*)", value: (\{.*\})\}\]')


def added(helm: str, *options: str) -> dict[str, list[Any]]:
    """What the first mutation adds to a pod without anything, by its path."""
    text = render(helm, "--set", "injection.mode=Policy", *options, "--show-only", "templates/policy.yaml")
    (policy,) = [each for each in yaml.safe_load_all(text) if each and each["kind"] == "MutatingAdmissionPolicy"]
    names = {
        "dyn": lambda value: value,
        "string": str,
        "true": True,
        "false": False,
        "request": SimpleNamespace(namespace="store"),
        "variables": SimpleNamespace(argument=f"--sidecar={SHOP.argument}", ports=list(PORTS.values())),
    }
    found: dict[str, list[Any]] = {}
    for each in policy["spec"]["mutations"][0]["jsonPatch"]["expression"].split("JSONPatch{"):
        if (patch := VALUE.match(each)) is not None:
            found.setdefault(patch[1], []).append(eval(patch[2], names))
    return found


def test_the_container_and_its_volumes_are_what_the_injector_makes(helm: str) -> None:
    settings = InjectionSettings(
        proxy=ChildSettings(
            image="mirror/steelyard-proxy:2",
            control=f"https://steelyard-controller.{NAMESPACE}.svc:19443",
            image_pull_policy="Always",
        ),
        version="0",
        cluster_domain="cluster.example",
        start_timeout=2.5,
    )
    values = {
        "image.registry": "mirror",
        "image.pullPolicy": "Always",
        "proxy.image.tag": "2",
        "clusterDomain": "cluster.example",
        "injection.startTimeout": 2.5,
    }

    found = added(helm, *(f"--set-json={name}={json.dumps(value)}" for name, value in values.items()))

    assert found["/spec/initContainers/0"] == [injector.container([SHOP], "store", PORTS, settings, {})]
    volumes = sorted(injector.volumes(settings), key=lambda each: str(each["name"]))
    assert sorted(found["/spec/volumes/-"], key=lambda each: str(each["name"])) == volumes
