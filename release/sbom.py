"""What an image holds besides its base, as CycloneDX 1.6: `python -m release.sbom proxy` (or `controller`) prints it.

From the lock files, which the image is built from by hash: the same sources give the same bytes.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parents[1]
PINNED = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^ ;\\]+)", re.MULTILINE)

Component = dict[str, Any]


def bill(target: str) -> dict[str, Any]:
    """The whole document, for the image `target`. Raises FileNotFoundError for one that has no lock file."""
    version = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["version"]
    components = [
        *_python((PROJECT / "requirements" / f"{target}.txt").read_text()),
        *_rust((PROJECT / "controller" / "proxy" / "codec" / "Cargo.lock").read_text()),
    ]
    itself = {
        "type": "container",
        "bom-ref": f"steelyard-{target}",
        "name": f"steelyard-{target}",
        "version": version,
        "licenses": [{"license": {"id": "Apache-2.0"}}],
    }
    content = json.dumps([itself, components], sort_keys=True)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, content)}",
        "version": 1,
        "metadata": {"component": itself},
        "components": components,
    }


def _python(lock: str) -> Iterator[Component]:
    for found in PINNED.finditer(lock):
        name, version = re.sub(r"[-_.]+", "-", found["name"]).lower(), found["version"]
        yield _component(f"pkg:pypi/{name}@{version}", name, version)


def _rust(lock: str) -> Iterator[Component]:
    """What the codec's extension is compiled of; the workspace's own members have no source."""
    for package in tomllib.loads(lock)["package"]:
        if "source" in package:
            name, version = package["name"], package["version"]
            hashes = [{"alg": "SHA-256", "content": package["checksum"]}]
            yield _component(f"pkg:cargo/{name}@{version}", name, version) | {"hashes": hashes}


def _component(purl: str, name: str, version: str) -> Component:
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(bill(sys.argv[1]), indent=2) + "\n")
