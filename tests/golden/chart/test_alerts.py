"""Alerts and dashboard: they ask for what exists, and an alert about failures counts failures only."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from prometheus_client import generate_latest

from controller import operations
from controller.proxy import causes
from controller.proxy.answering import CLASSES
from controller.telemetry import Telemetry
from release.manifest import CHART

FILES = CHART / "files"
# The words of endings without a status: a new one belongs into one of the two.
ENDED_WELL = {causes.CLIENT_LEFT, causes.CLIENT_SLOW, causes.CARRIED, causes.SILENT}
FAILED = {causes.TRUNCATED, causes.CUT}


def refusals() -> list[causes.Cause]:
    named = [value for value in vars(causes).values() if isinstance(value, causes.Cause)]
    return [*named, *causes.REFUSALS.values()]


def words() -> set[str]:
    return {value for name, value in vars(causes).items() if name.isupper() and isinstance(value, str)}


def failures() -> dict[str, bool]:
    """Every value of the label `outcome`, and whether it is a failure of ours or of a backend.

    RFC 9110 §15: 4xx is the client's own fault, and a class that nobody knows is to be taken for 5xx.
    """
    classes = {each: each not in ("1xx", "2xx", "3xx", "4xx") for each in CLASSES}
    reasons = {each.reason: each.status >= 500 for each in refusals()}
    return classes | dict.fromkeys(ENDED_WELL, False) | dict.fromkeys(FAILED, True) | reasons


def counted(expression: str) -> set[str]:
    """Those of all outcomes that the matchers of a PromQL expression let through; each is anchored at both ends."""
    matchers = re.findall(r'outcome(=~|!~)"([^"]*)"', expression)

    def passes(outcome: str) -> bool:
        return all((re.fullmatch(pattern, outcome) is not None) is (how == "=~") for how, pattern in matchers)

    return {each for each in failures() if passes(each)}


def alert(name: str) -> str:
    (group,) = yaml.safe_load((FILES / "alerts.yaml").read_text())["groups"]
    (found,) = [rule["expr"] for rule in group["rules"] if rule["alert"] == name]
    return str(found)


def test_a_connection_that_ends_well_and_a_clients_own_fault_are_no_errors() -> None:
    assert counted(alert("SteelyardErrors")) == {outcome for outcome, failed in failures().items() if failed}


def test_of_each_ending_without_a_status_it_is_decided_whether_it_failed() -> None:
    assert words() == ENDED_WELL | FAILED


@pytest.mark.parametrize("file", [FILES / "alerts.yaml", FILES / "dashboard.json"], ids=lambda file: file.name)
def test_every_metric_asked_for_exists(file: Path) -> None:
    telemetry = Telemetry()
    telemetry.control = lambda: (True, 0.0)
    state = operations.Operations(
        synced=True,
        leading=True,
        objects=0,
        queued=0,
        streams=0,
        ages={"services": 0.0},
        counts=dict.fromkeys(operations.COUNTS, 0),
        wire={},
    )
    text = (generate_latest(telemetry.registry()) + generate_latest(operations.registry(lambda: state))).decode()
    exist = set(re.findall(r"(?m)^# TYPE (\S+)", text))

    asked = re.findall(r"\bsteelyard_[a-z_]+", file.read_text())

    assert asked
    assert {name.removesuffix("_bucket") for name in asked} - exist == set()
