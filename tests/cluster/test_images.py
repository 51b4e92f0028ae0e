"""The project's images hold what they need and nothing else, and run under the strictest profile."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cluster.api import Images
from tests.cluster.local import images as builder
from tests.cluster.local.buildah import Image
from tests.cluster.local.machine import Say
from tests.cluster.namespace import Namespace
from tests.cluster.traffic import CONTAINER_SECURITY, POD_SECURITY

LOOK = """
import importlib.util, json, os, pathlib, shutil
files = list(pathlib.Path("/opt/steelyard").rglob("*"))
compiled = {pathlib.Path(importlib.util.source_from_cache(str(f))) for f in files if f.suffix == ".pyc"}
sources = {f for f in files if f.suffix == ".py"}
known = lambda name: importlib.util.find_spec(name) is not None
print(json.dumps({
    "modules": [name for name in ("controller", "aiohttp", "kopf", "kubernetes", "pip") if known(name)],
    "programs": [name for name in ("steelyard", "pip", "gcc", "cc") if shutil.which(name)],
    "user": os.getuid(),
    "megabytes": sum(f.lstat().st_size for f in files) / 1e6,
    "uncompiled": sorted(str(f) for f in sources - compiled)[:5],
    "modifiable": [path for path in ("/opt/steelyard", "/", "/usr") if os.access(path, os.W_OK)],
    "codec": known("controller.proxy.codec._native"),
}))
"""


NOTHING: dict[str, list[str]] = {"uncompiled": [], "modifiable": []}


@pytest.mark.parametrize(
    ("kind", "modules", "megabytes"),
    [("proxy", ["controller", "aiohttp"], 45), ("controller", ["controller", "aiohttp", "kopf", "kubernetes"], 210)],
)
def test_an_image_holds_its_own_and_runs_restricted(
    namespace: Namespace, images: Images, kind: str, modules: list[str], megabytes: int
) -> None:
    container = {
        "name": "look",
        "image": getattr(images, kind),
        "command": ["python", "-c", LOOK],
        "securityContext": CONTAINER_SECURITY,
    }
    spec = {"restartPolicy": "Never", "securityContext": POD_SECURITY, "containers": [container]}
    namespace.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "look"}, "spec": spec})
    pod = namespace.wait("v1/pods", "look", lambda found: found["status"].get("phase") in ("Succeeded", "Failed"))

    assert pod["status"]["phase"] == "Succeeded"
    found = json.loads(namespace.kubectl("logs", "look"))
    assert 1 < found.pop("megabytes") <= megabytes, "on top of the base image; kubernetes alone is 126"
    assert found == {"modules": modules, "programs": ["steelyard"], "user": 65532, "codec": True} | NOTHING


@pytest.mark.parametrize(("number", "title"), [(0, "steelyard-controller"), (1, "steelyard-proxy")])
def test_an_image_says_what_it_is_and_how_to_stop_it(say: Say, number: int, title: str) -> None:
    image = builder.project(say)[number]
    (manifest,) = json.loads((image.layout / "index.json").read_text())["manifests"]
    config = _blob(image, _blob(image, manifest["digest"])["config"]["digest"])["config"]

    assert config["User"] == "65532:65532", "a number, so that Kubernetes can see that it isn't root"
    assert config["Entrypoint"] == ["steelyard"]
    assert config["StopSignal"] == "SIGTERM"
    labels = {name.rpartition(".")[2]: value for name, value in config["Labels"].items() if "opencontainers" in name}
    assert labels.keys() >= {"title", "description", "licenses", "vendor"}
    assert labels["title"] == title


def _blob(image: Image, digest: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((image.layout / "blobs" / digest.replace(":", "/")).read_text())
    return found
