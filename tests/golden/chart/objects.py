"""What the chart renders, as objects."""

from __future__ import annotations

from typing import Any

import yaml

from release.manifest import render

Object = dict[str, Any]


def rendered(helm: str, *options: str) -> list[Object]:
    return [each for each in yaml.safe_load_all(render(helm, *options)) if each]


def of(objects: list[Object], kind: str, name: str | None = None) -> Object:
    (found,) = [each for each in objects if each["kind"] == kind and name in (None, each["metadata"]["name"])]
    return found
