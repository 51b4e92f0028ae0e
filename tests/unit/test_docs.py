"""The documentation is complete where it lists something, and its links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from controller.model.conditions import ConditionType, Reason
from controller.proxy import causes

PROJECT = Path(__file__).parents[2]
DOCS = PROJECT / "docs"
TEMPLATES = PROJECT / "charts" / "steelyard" / "templates"
GOOD = {*get_args(ConditionType)}  # the reasons of what is well carry the condition's name


def table(name: str) -> list[list[str]]:
    """The rows of all tables of a page, without heads and rules."""
    lines = (DOCS / name).read_text().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("| ")]
    return [row for row in rows if not row[0].startswith("---")]


def test_every_reason_that_a_condition_can_have_has_its_mend() -> None:
    told = {row[1].strip("`") for row in table("troubleshooting.md") if row[0].strip("`") in GOOD}

    assert told == set(get_args(Reason)) - GOOD


def test_every_answer_of_the_proxys_own_has_its_mend() -> None:
    named = [value for value in vars(causes).values() if isinstance(value, causes.Cause)]
    known = {(str(each.status), f"`{each.reason}`"): each for each in (*named, *causes.REFUSALS.values())}
    told = {tuple(row[:2]): row[2] for row in table("troubleshooting.md") if len(row) == 4 and row[0].isdecimal()}

    for words, cause in known.items():
        if cause.status >= 400:
            said = told.pop(words)
            assert cause.text.startswith(said.removesuffix(" …")), cause
    assert told == {}


def test_every_permission_is_explained_as_it_is() -> None:
    told: dict[str, list[str]] = {}
    for row in table("rbac.md"):
        told.setdefault(row[0].strip("`"), []).append(row[1])

    rules = re.findall(r"resources: \[(.*?)\]\n\s+verbs: \[(.*?)\]", (TEMPLATES / "_rules.tpl").read_text())

    assert rules
    for resources, verbs in rules:
        for resource in resources.split(", "):
            assert verbs in told[resource], resource


def test_every_permission_in_the_operators_own_namespace_is_explained() -> None:
    text = (DOCS / "rbac.md").read_text()
    section = text[text.index("## In the operator's own namespace") : text.index("## For people")]
    told: dict[str, set[str]] = {}
    for resource, verbs in re.findall(r"(?m)^\| `(\w+)` \| ([^|]+) \|", section):
        told.setdefault(resource, set()).update(re.findall(r"create|get|update|patch|list|watch|delete", verbs))

    given: dict[str, set[str]] = {}
    rules = r"resources: \[(\w+)\]\n(?:\s+resourceNames: .*\n)?\s+verbs: \[(.*?)\]"
    for resource, verbs in re.findall(rules, (TEMPLATES / "rbac.yaml").read_text()):
        given.setdefault(resource, set()).update(verbs.split(", "))

    assert given.keys() == {"leases", "secrets", "deployments", "events"}
    assert told == given


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_what_a_log_is_said_to_say_it_says() -> None:
    text = (DOCS / "troubleshooting.md").read_text()
    section = text[text.index("## The operator is not ready") : text.index("## An upgrade does not go on")]
    places = [*(PROJECT / "controller" / "kube").glob("*.py"), PROJECT / "controller" / "certified.py"]
    source = "".join(path.read_text() for path in places)

    for cell in re.findall(r"(?m)^\| (`.*?) \|", section):
        for message in re.findall("`(.*?)`", cell):
            assert f'"{message}"' in source, message
