"""The CRD and `parse` are one contract: what one accepts the other accepts, and both name the same field."""

from __future__ import annotations

import re
from typing import Any

import pytest

from controller.model.parsing import encode, parse
from controller.model.service import BalancedService, Invalid
from tests.golden.crd.cases import ACCEPTED, DURATIONS, refused
from tests.golden.crd.evaluator import SCHEMA, defaulted, every_rule, refusals
from tests.golden.crd.spoiling import Case

REFUSED = list(refused())


@pytest.mark.parametrize("name", ACCEPTED)
def test_both_accept_what_is_valid(name: str) -> None:
    given = ACCEPTED[name]

    assert refusals(given) == []
    assert isinstance(parse(given), BalancedService), parse(given)


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_both_refuse_what_is_spoilt_and_name_the_field(case: Case) -> None:
    parsed = parse(case.object)

    assert isinstance(parsed, Invalid)
    assert case.path in [fault.path for fault in parsed.faults]
    assert case.path in [refusal.path for refusal in refusals(case.object)]


def test_the_messages_of_the_rules_are_the_same_and_every_rule_is_broken_once() -> None:
    rules = {rule["message"] for rule in every_rule()}
    said: set[str] = set()
    for case in REFUSED:
        by_crd = {tuple(each) for each in refusals(case.object) if each.message in rules}
        parsed = parse(case.object)
        assert isinstance(parsed, Invalid)
        if by_crd:
            assert by_crd == {(fault.path, fault.message) for fault in parsed.faults}, case.name
        said |= {message for _, message in by_crd}

    assert rules == said


@pytest.mark.parametrize("name", ACCEPTED)
def test_the_defaults_of_the_schema_are_those_of_the_model(name: str) -> None:
    stored = defaulted(ACCEPTED[name])

    assert parse(ACCEPTED[name]) == parse(stored)


def test_the_model_shows_every_default_of_the_schema() -> None:
    service = parse(ACCEPTED["minimal"])
    assert isinstance(service, BalancedService)

    shown = encode(service)["spec"]

    # Conditional defaults stand in the model alone.
    assert shown["proxy"].pop("acceptGrace") == "5s"
    assert shown["backends"][0].pop("weightPer") == "Backend"
    assert _seconds(defaulted(ACCEPTED["minimal"])["spec"]) == _seconds(shown)


def _seconds(value: Any) -> Any:
    """With durations that can be written in two ways brought to one."""
    if isinstance(value, dict):
        return {name: _seconds(entry) for name, entry in value.items()}
    return {"60s": "1m", "300s": "5m"}.get(value, value) if isinstance(value, str) else value


def test_the_samples_hold_every_field_of_the_spec() -> None:
    fields = set(_schema_paths(SCHEMA["properties"]["spec"], "spec"))
    held = {path for given in ACCEPTED.values() for path in _object_paths(given["spec"], "spec")}

    assert fields == fields & held


def test_every_field_is_described_and_bounded() -> None:
    for path, field in _fields(SCHEMA["properties"]["spec"], "spec"):
        kind = field.get("type", "string")  # int-or-string needs the bounds of a string
        bound = {"string": "maxLength", "array": "maxItems", "integer": "maximum", "number": "maximum"}.get(kind)
        assert field["description"].endswith("."), path
        assert bound is None or bound in field or "enum" in field, path
        assert "additionalProperties" not in field or "maxProperties" in field, path


def test_no_word_is_a_boolean_of_yaml_1_1() -> None:
    booleans = {"on", "off", "yes", "no", "true", "false", "y", "n"}
    for path, field in _fields(SCHEMA["properties"]["spec"], "spec"):
        words = {name.lower() for name in field.get("properties", {})}
        words |= {word.lower() for word in field.get("enum", ()) if isinstance(word, str)}
        assert not words & booleans, path


def test_every_duration_has_bounds_that_the_cases_try() -> None:
    durations = [
        path
        for path, field in _fields(SCHEMA["properties"]["spec"], "spec")
        if "(h|m|s|ms)" in str(field.get("pattern"))
    ]

    assert sorted(f"spec.{name}" for name in DURATIONS) == sorted(durations)


def _fields(schema: dict[str, Any], path: str) -> Any:
    yield path, schema
    for name, field in schema.get("properties", {}).items():
        yield from _fields(field, f"{path}.{name}")
    if "items" in schema:
        yield from _fields(schema["items"], f"{path}[]")


def _schema_paths(schema: dict[str, Any], path: str) -> list[str]:
    return [name for name, _ in _fields(schema, path)]


def _object_paths(value: Any, path: str) -> list[str]:
    if isinstance(value, dict):
        return [path, *(found for name, entry in value.items() for found in _object_paths(entry, f"{path}.{name}"))]
    if isinstance(value, list):
        return [path, *(found for entry in value for found in _object_paths(entry, f"{path}[]"))]
    return [path]


def test_only_functions_that_kubernetes_1_31_has_are_used() -> None:
    known = {
        "size",
        "matches",
        "exists",
        "all",
        "exists_one",
        "has",
        "type",
        "isIP",
        "isCIDR",
        "duration",
        "contains",
        "substring",
    }
    for rule in every_rule():
        assert set(re.findall(r"(\w+)\(", re.sub(r"'[^']*'", "''", rule["rule"]))) <= known, rule["rule"]
