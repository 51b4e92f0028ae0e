"""What the API server says of an object, worked out from `crds/balancedservices.yaml` alone.

The order is its own: strict decoding (unknown fields), nulls, defaults, structural schema, list types, and the CEL
rules only if all the rest is in order. The functions that Kubernetes adds to CEL are handed in.
"""

from __future__ import annotations

import copy
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import cel
import jsonschema
import yaml

CRD = yaml.safe_load((Path(__file__).parents[3] / "crds" / "balancedservices.yaml").read_text())
SCHEMA: dict[str, Any] = CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
# What the API server itself demands of the parts that a CRD can't describe.
METADATA = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "maxLength": 253},
        "namespace": {"type": "string", "maxLength": 63, "pattern": LABEL},
        "labels": {"type": "object"},
        "annotations": {"type": "object"},
        "uid": {"type": "string"},
        "generation": {"type": "integer"},
        "resourceVersion": {"type": "string"},
        "creationTimestamp": {"type": "string"},
        "deletionTimestamp": {"type": "string"},
    },
}


class Refusal(NamedTuple):
    path: str  # as in `spec.backends[0].weight`
    message: str


def refusals(given: dict[str, Any]) -> list[Refusal]:
    """Every fault of the object; none when it is accepted."""
    found = [*_decoded(defaulted(given))]
    return found or [*_rules(defaulted(given), SCHEMA, "")]


def defaulted(given: dict[str, Any]) -> dict[str, Any]:
    """The object as it is stored: without nulls, with defaults."""
    found = copy.deepcopy(given)
    _default(found, SCHEMA)
    return found


def path_of(parts: Any) -> str:
    path = ""
    for part in parts:
        path += f"[{part}]" if isinstance(part, int) else f".{part}"
    return path.lstrip(".")


def _default(value: Any, schema: dict[str, Any]) -> None:
    if isinstance(value, dict):
        for name in [name for name, entry in value.items() if entry is None]:
            if name in schema.get("properties", {}) or "additionalProperties" in schema:
                del value[name]
        for name, field in schema.get("properties", {}).items():
            if "default" in field and name not in value:
                value[name] = copy.deepcopy(field["default"])
        for name, entry in value.items():
            _default(entry, schema.get("properties", {}).get(name) or schema.get("additionalProperties") or {})
    elif isinstance(value, list):
        for entry in value:
            _default(entry, schema.get("items", {}))


def _strict(schema: dict[str, Any], path: str = "") -> dict[str, Any]:
    """As JSON Schema: unknown fields refused, int-or-string spelt out, `$` the very end (as in RE2)."""
    if path == ".metadata":
        schema = METADATA
    if path == ".status":
        return {}
    plain = {name: value for name, value in schema.items() if not name.startswith("x-") and name != "default"}
    if schema.get("x-kubernetes-int-or-string"):
        plain["type"] = ["integer", "string"]
    if "pattern" in plain:
        plain["pattern"] = re.sub(r"\$$", r"\\Z", plain["pattern"])
    if "properties" in plain:
        plain["properties"] = {name: _strict(field, f"{path}.{name}") for name, field in plain["properties"].items()}
        plain["additionalProperties"] = False
    elif "additionalProperties" in plain:
        plain["additionalProperties"] = _strict(plain["additionalProperties"], f"{path}.*")
    if "items" in plain:
        plain["items"] = _strict(plain["items"], f"{path}[]")
    return plain


STRICT = jsonschema.Draft202012Validator(_strict(SCHEMA))


def _decoded(value: dict[str, Any]) -> Iterator[Refusal]:
    for error in STRICT.iter_errors(value):
        parts = list(error.absolute_path)
        instance: Any = error.instance
        match error.validator:
            case "required":
                missing = [name for name in error.validator_value if name not in instance]
                yield from (Refusal(path_of([*parts, name]), "Required value") for name in missing)
            case "additionalProperties":
                unknown = [name for name in instance if name not in error.schema["properties"]]
                yield from (Refusal(path_of([*parts, name]), "unknown field") for name in unknown)
            case _:
                yield Refusal(path_of(parts), error.message)
    yield from _duplicates(value, SCHEMA, [])


def _duplicates(value: Any, schema: dict[str, Any], parts: list[Any]) -> Iterator[Refusal]:
    if isinstance(value, dict):
        for name, entry in value.items():
            yield from _duplicates(entry, schema.get("properties", {}).get(name, {}), [*parts, name])
    elif isinstance(value, list):
        kind, keys = schema.get("x-kubernetes-list-type"), schema.get("x-kubernetes-list-map-keys", ())
        seen: list[Any] = []
        for index, entry in enumerate(value):
            yield from _duplicates(entry, schema.get("items", {}), [*parts, index])
            if kind == "map" and isinstance(entry, dict):
                identity: Any = [entry.get(key) for key in keys]
            elif kind == "set":
                identity = entry
            else:
                continue
            if identity in seen:
                yield Refusal(path_of([*parts, index]), "Duplicate value")
            seen.append(identity)


def _rules(value: Any, schema: dict[str, Any], path: str) -> Iterator[Refusal]:
    for rule in schema.get("x-kubernetes-validations", ()):
        context = cel.Context({"self": _escaped(value)}, FUNCTIONS)
        if PROGRAMS[rule["rule"]].execute(context) is not True:
            yield Refusal(f"{path}{rule.get('fieldPath', '')}".lstrip("."), rule["message"])
    if isinstance(value, dict):
        for name, entry in value.items():
            yield from _rules(entry, schema.get("properties", {}).get(name, {}), f"{path}.{name}")
    elif isinstance(value, list):
        for index, entry in enumerate(value):
            yield from _rules(entry, schema.get("items", {}), f"{path}[{index}]")


def _escaped(value: Any) -> Any:
    """CEL keeps some words for itself; Kubernetes offers a field of that name as `__name__`."""
    if isinstance(value, dict):
        names = {"namespace": "__namespace__"}
        return {names.get(name, name): _escaped(entry) for name, entry in value.items()}
    return [_escaped(entry) for entry in value] if isinstance(value, list) else value


def every_rule(schema: dict[str, Any] = SCHEMA) -> Iterator[dict[str, str]]:
    yield from schema.get("x-kubernetes-validations", ())
    children = [*schema.get("properties", {}).values(), schema.get("items"), schema.get("additionalProperties")]
    for child in children:
        if child:
            yield from every_rule(child)


def is_ip(text: str) -> bool:
    """netip.ParseAddr without zones and without IPv4-mapped addresses, as `isIP` of Kubernetes."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            packed = socket.inet_pton(family, text)
        except (OSError, ValueError):
            continue
        return not packed.startswith(bytes(10) + b"\xff\xff")
    return False


def is_cidr(text: str) -> bool:
    """netip.ParsePrefix with the same exceptions, as `isCIDR`."""
    address, _, bits = text.partition("/")
    if not is_ip(address) or not re.fullmatch("0|[1-9][0-9]*", bits, re.ASCII):
        return False
    return int(bits) <= (128 if ":" in address else 32)


FUNCTIONS = {"isIP": is_ip, "isCIDR": is_cidr, "substring": lambda text, start, end: text[start:end]}
PROGRAMS = {rule["rule"]: cel.compile(rule["rule"]) for rule in every_rule()}
