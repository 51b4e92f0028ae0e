"""Every way in which one field of a valid object can break the structural schema, made from the schema itself."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.golden.crd.evaluator import SCHEMA, path_of


class Case(NamedTuple):
    name: str
    object: dict[str, Any]
    path: str  # where the refusal points


def spoilt(sample: str, valid: dict[str, Any]) -> Iterator[Case]:
    """Copies of `valid`, each with one fault in `spec`."""
    for parts, schema in _fields(valid["spec"], SCHEMA["properties"]["spec"], ["spec"]):
        value = _get(valid, parts)
        for fault, wrong in _wrong_values(value, schema):
            yield Case(f"{sample}: {path_of(parts)} {fault}", _with(valid, parts, wrong), path_of(parts))
        for name in schema.get("required", ()):
            without = copy.deepcopy(valid)
            del _get(without, parts)[name]
            yield Case(f"{sample}: {path_of(parts)} lacks {name}", without, path_of([*parts, name]))
        if "properties" in schema:
            unknown = [*parts, "unheardOf"]
            yield Case(f"{sample}: {path_of(unknown)} is unknown", _with(valid, unknown, 1), path_of(unknown))
        if schema.get("x-kubernetes-list-type") in ("map", "set"):
            twice = [*value, value[0]]
            if len(twice) <= schema["maxItems"]:
                yield Case(
                    f"{sample}: {path_of(parts)} repeats", _with(valid, parts, twice), path_of([*parts, len(value)])
                )


def _fields(value: Any, schema: dict[str, Any], parts: list[Any]) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    yield parts, schema
    if isinstance(value, dict):
        for name, entry in value.items():
            child = schema.get("properties", {}).get(name) or schema["additionalProperties"]
            yield from _fields(entry, child, [*parts, name])
    elif isinstance(value, list):
        for index, entry in enumerate(value):
            yield from _fields(entry, schema["items"], [*parts, index])


def _wrong_values(value: Any, schema: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    kind = "int-or-string" if schema.get("x-kubernetes-int-or-string") else schema["type"]
    for name, other in WRONG_TYPES.items():
        if name not in FITS[kind]:
            yield f"is {name}", other
    if "enum" in schema and kind == "string":
        yield "is none of the words", "Nonsense"
        yield "is in lower case", schema["enum"][0].lower() + "x"
    if "enum" in schema and kind == "boolean":
        yield "is false", False
    if "pattern" in schema and not isinstance(value, int):
        yield "breaks the pattern", " x;"
        yield "ends with a line break", f"{value}\n"
    if "minimum" in schema and not isinstance(value, str):
        yield "is too small", schema["minimum"] - 1
    if "maximum" in schema and not isinstance(value, str):
        yield "is too large", schema["maximum"] + 1
    if "maxLength" in schema and isinstance(value, str):
        yield "is too long", "a" * (schema["maxLength"] + 1)
    if schema.get("minLength"):
        yield "is empty", ""
    if "minItems" in schema:
        yield "has no entries", []
    if "maxItems" in schema:
        yield "has too many entries", [value[0]] * (schema["maxItems"] + 1)
    if "minProperties" in schema:
        yield "has no entries", {}
    if "maxProperties" in schema:
        entry = next(iter(value.values()))
        yield "has too many entries", {f"key-{number}": entry for number in range(schema["maxProperties"] + 1)}


WRONG_TYPES: dict[str, Any] = {
    "a word": "word",
    "a number in quotes": "7",
    "a broken number": 7.5,
    "true": True,
    "a list": ["word"],
    "a mapping": {"word": "word"},
}
# Which of them may be right, or are refused for another reason than their type.
FITS = {
    "string": {"a word", "a number in quotes"},
    "integer": set(),
    "number": {"a broken number"},
    "boolean": {"true"},
    "array": {"a list"},
    "object": {"a mapping"},
    "int-or-string": {"a word", "a number in quotes"},
}


def _get(value: Any, parts: list[Any]) -> Any:
    for part in parts:
        value = value[part]
    return value


def _with(valid: dict[str, Any], parts: list[Any], value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(valid)
    _get(changed, parts[:-1])[parts[-1]] = copy.deepcopy(value)
    return changed
