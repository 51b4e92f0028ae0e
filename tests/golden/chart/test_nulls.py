"""`--set VALUE=null`, by which Helm drops a default: it leaves nothing, or is refused by the value's name."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from release.manifest import CHART
from tests.golden.chart.objects import Object, rendered, understood, validate
from tests.golden.chart.test_policy import added

OPTIONS = ("--values", str(Path(__file__).parent / "everything.values.yaml"), "--set", "certificates.mode=CertManager")
# Maps that are handed on as they are: Kubernetes needs nothing in them.
FREE = (
    "controller.resources",
    "controller.podSecurityContext",
    "controller.securityContext",
    "proxy.resources",
    "injection.resources",
    "monitoring.dashboard.labels",
)


def values(node: Object, path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in node.items():
        yield f"{path}{key}", value
        if isinstance(value, dict):
            yield from values(value, f"{path}{key}.")


DEFAULTS = dict(values(yaml.safe_load((CHART / "values.yaml").read_text())))
MAPS = {path for path, value in DEFAULTS.items() if isinstance(value, dict)}
OTHERS = {path for path in DEFAULTS.keys() - MAPS if not path.startswith(FREE)}
DROPPABLE = {path for path, value in DEFAULTS.items() if value in ("", [], {}) or path.startswith(FREE)}


def template(helm: str, *nulls: str) -> subprocess.CompletedProcess[str]:
    dropped = ",".join(f"{path}=null" for path in nulls)
    argv = [helm, "template", "edge", str(CHART), *OPTIONS, "--set", f"crds.enabled=false,{dropped}"]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def check(done: subprocess.CompletedProcess[str]) -> None:
    """That it rendered, each object is as Kubernetes and the operator want it, and nothing in it is null."""
    assert done.returncode == 0, done.stderr
    objects = [each for each in yaml.safe_load_all(done.stdout) if each]
    assert [path for each in objects for path, value in found(each) if value is None or value == "null"] == []
    validate(objects)
    understood(objects)


def found(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    yield path, node
    for key, value in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        yield from found(value, f"{path}/{key}")


def missed(done: subprocess.CompletedProcess[str]) -> set[str]:
    """The values whose absence the schema complains of."""
    complaints = re.findall(r"at '(.*)': missing propert(?:y|ies) (.*)", done.stderr)
    return {f"{at}/{key}"[1:].replace("/", ".") for at, keys in complaints for key in re.findall(r"'(\w+)'", keys)}


@pytest.mark.parametrize("path", sorted(MAPS & DROPPABLE))
def test_a_map_can_be_dropped(helm: str, path: str) -> None:
    check(template(helm, path))


@pytest.mark.parametrize("path", sorted(MAPS - DROPPABLE))
def test_a_map_that_must_be_there_is_missed_by_its_name(helm: str, path: str) -> None:
    assert missed(template(helm, path)) == {path}


def test_all_that_is_empty_by_default_can_be_dropped(helm: str) -> None:
    check(template(helm, *OTHERS & DROPPABLE))


def test_all_else_is_missed_by_its_name(helm: str) -> None:
    assert missed(template(helm, *OTHERS - DROPPABLE)) == OTHERS - DROPPABLE


def test_proxies_and_sidecars_without_resources_have_none(helm: str) -> None:
    options = ("--set", "proxy.resources=null,injection.resources=null")
    told = understood(rendered(helm, *options))
    (sidecar,) = added(helm, *options)["/spec/initContainers/0"]

    assert told["STEELYARD_PROXY_RESOURCES"] == told["STEELYARD_SIDECAR_RESOURCES"] == sidecar["resources"] == {}
