"""A state of the world from one YAML file: Kubernetes objects, and what is none in a document without `kind`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import yaml

from controller.translate import Inputs, ProxyReport, gather


def read_state(path: Path) -> Inputs:
    documents: list[dict[str, Any]] = [each for each in yaml.safe_load_all(path.read_text()) if each]
    rest: dict[str, Any] = {}
    for document in documents:
        if "kind" not in document:
            rest |= document
    items = [each for each in documents if "kind" in each]
    changes: dict[str, Any] = {}
    if "reports" in rest:
        changes["reports"] = {
            _key(text): msgspec.convert(reports, list[ProxyReport]) for text, reports in rest.pop("reports").items()
        }
    if "watched" in rest:
        changes["watched"] = frozenset(rest.pop("watched"))
    for field in ("conflicts", "replicas"):
        if field in rest:
            changes[field] = {_key(text): value for text, value in rest.pop(field).items()}
    inputs = gather(items, standalone=rest.pop("standalone", False))
    assert not rest, f"{path} holds what nobody reads: {', '.join(rest)}"
    return msgspec.structs.replace(inputs, **changes)


def _key(text: str) -> tuple[str, str]:
    namespace, _, name = text.partition("/")
    return namespace, name


def to_yaml(*documents: object) -> str:
    return yaml.safe_dump_all(documents, sort_keys=False, width=120, allow_unicode=True)
