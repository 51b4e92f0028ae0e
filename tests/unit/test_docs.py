"""The documentation is complete where it lists something, and its links lead somewhere."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest
from prometheus_client import CollectorRegistry

from controller import operations
from controller.balancing.outlier import Cause
from controller.model.conditions import ConditionType, Reason
from controller.model.service import RetryCondition
from controller.proxy import causes
from controller.proxy.access_log import AccessLog
from controller.telemetry import BOUNDS, Telemetry
from tests.pages import DOCS, PROJECT, fenced, table

TEMPLATES = PROJECT / "charts" / "steelyard" / "templates"
GOOD = {*get_args(ConditionType)}  # the reasons of what is well carry the condition's name


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


def anchors(page: Path) -> set[str]:
    """By which a heading is linked to, on the usual forges."""
    headings = re.findall(r"(?m)^#+ (.*)$", page.read_text())
    return {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [PROJECT / "README.md", *sorted(DOCS.glob("*.md"))], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", page.read_text()):
        linked = page.parent / target if target else page
        assert linked.exists(), target
        assert not anchor or anchor in anchors(linked), (target, anchor)


def test_the_readme_of_the_documentation_names_every_page() -> None:
    named = {row[0].rpartition("(")[2].strip(")") for row in table("README.md") if "](" in row[0]}

    assert named >= {page.name for page in DOCS.glob("*.md")} - {"README.md"}


def test_what_a_log_is_said_to_say_it_says() -> None:
    text = (DOCS / "troubleshooting.md").read_text()
    section = text[text.index("## The operator is not ready") : text.index("## An upgrade does not go on")]
    places = [*(PROJECT / "controller" / "kube").glob("*.py"), PROJECT / "controller" / "certified.py"]
    source = "".join(path.read_text() for path in places)

    for cell in re.findall(r"(?m)^\| (`.*?) \|", section):
        for message in re.findall("`(.*?)`", cell):
            assert f'"{message}"' in source, message


def declared(registry: CollectorRegistry) -> set[tuple[str, str, tuple[str, ...]]]:
    """Name as it is scraped, type, labels."""
    return {
        (f"{each.name}_total" if each.type == "counter" else each.name, each.type, each._labelnames)
        for each in registry.collect()
    }


def listed(heading: str) -> set[tuple[str, str, tuple[str, ...]]]:
    rows = [row for row in table("metrics.md", heading) if row[0].startswith("`")]
    assert len({row[0] for row in rows}) == len(rows)
    return {(row[0].strip("`"), row[1], tuple(re.findall(r"`(\w+)`", row[2]))) for row in rows}


def test_every_metric_is_listed_with_its_type_and_labels() -> None:
    telemetry = Telemetry()
    telemetry.pass_through = 0  # as in a sidecar
    telemetry.control = lambda: (True, 0.0)  # as with an operator
    state = operations.Operations(
        synced=True, leading=True, objects=1, queued=0, streams=0, ages={}, counts={}, wire={}
    )

    assert listed("## Proxies") == declared(telemetry.registry())
    assert listed("## The operator") == declared(operations.registry(lambda: state))


def test_the_words_that_labels_have_are_told() -> None:
    text = (DOCS / "metrics.md").read_text()
    server = (PROJECT / "controller" / "discovery" / "server.py").read_text()
    injector = (PROJECT / "controller" / "kube" / "injector.py").read_text()
    words = {*get_args(Cause), *get_args(get_args(RetryCondition)[0])}
    words |= {*re.findall(r'_count\("(\w+)"\)', server), *re.findall(r'"(\w+)": 0', injector)}
    milliseconds = ", ".join(f"{1000 * bound:g}" for bound in BOUNDS if bound < 1)
    seconds = ", ".join(f"{bound:g}" for bound in BOUNDS if bound >= 1)

    assert {word for word in words if f"`{word}`" not in text} == set()
    assert f"{milliseconds} ms and {seconds} s" in text


class Written:
    """Lines in memory."""

    def __init__(self) -> None:
        self.lost = 0
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data

    def close(self, seconds: float) -> None:
        """Nothing waits."""


def logged(*, reached: bool) -> dict[str, dict[str, Any]]:
    """By its part of the page, one line of each kind; with an endpoint, or where nothing is known but who came."""
    pool = SimpleNamespace(authority=b"10.0.0.1:8080") if reached else None
    exchange: Any = SimpleNamespace(
        head=SimpleNamespace(method=b"GET", target=b"/cart", host=b"shop" if reached else None),
        pool=pool,
        front=SimpleNamespace(peer="192.0.2.1"),
        request_id=b"a-1",
        tries=int(reached),
        received=0,
        sent=2,
        headed=1.0 if reached else 0.0,
        began=0.5,
    )
    front: Any = SimpleNamespace(
        carried=(5, 6), peer="192.0.2.1", pool=pool, tries=1, connected_after=0.1 if reached else None, began=0.5
    )
    to = Written()
    log = AccessLog(to)
    log.add("store/shop", exchange, "2xx", 200, 2.0)
    log.add_refusal("store/shop", "192.0.2.1", causes.MALFORMED, b"a-2")
    log.add_connection("store/raw", front, "carried", 2.0)
    log.flush()
    return dict(zip(KINDS, map(json.loads, to.data.splitlines()), strict=True))


KINDS = ("## A request", "## What never became a request", "## A connection of a TCP port")
TYPES = {"string": str, "number": int | float, "null": type(None)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reached", [True, False], ids=["reached", "not reached"])
def test_each_field_of_the_access_log_is_told_with_its_type(kind: str, reached: bool) -> None:
    rows = {row[0].strip("`"): row[1] for row in table("access-log.md", kind) if row[0].startswith("`")}

    line = logged(reached=reached)[kind]

    assert list(rows) == list(line)
    assert "level" not in line  # by which the proxy's own log is told from it
    for field, told in rows.items():
        expected = [TYPES[word] for word in re.findall("string|number|null", told)]
        assert any(isinstance(line[field], each) for each in expected), field
        assert reached or (line[field] is None) == ("null" in told), field


def test_the_lines_that_are_shown_are_such_lines() -> None:
    shown = [json.loads(text) for text in fenced(DOCS / "access-log.md", "json")]

    assert [list(line) for line in shown] == [list(line) for line in logged(reached=True).values()]
