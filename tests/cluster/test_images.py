"""The project's images hold what they need and nothing else, and run under the strictest profile."""

from __future__ import annotations

import json

import pytest

from tests.cluster.api import Images
from tests.cluster.namespace import Namespace
from tests.cluster.traffic import CONTAINER_SECURITY, POD_SECURITY

LOOK = """
import importlib.util, json, os, pathlib, shutil
known = lambda name: importlib.util.find_spec(name) is not None
print(json.dumps({
    "modules": [name for name in ("controller", "aiohttp", "kopf", "kubernetes", "pip") if known(name)],
    "programs": [name for name in ("steelyard", "pip", "gcc", "cc") if shutil.which(name)],
    "user": os.getuid(),
    "megabytes": sum(f.lstat().st_size for f in pathlib.Path("/opt/steelyard").rglob("*")) / 1e6,
    "codec": known("controller.proxy.codec._native"),
}))
"""


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
    assert found == {"modules": modules, "programs": ["steelyard"], "user": 65532, "codec": True}
