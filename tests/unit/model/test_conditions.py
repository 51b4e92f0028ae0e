"""When a condition changes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import NamedTuple

import pytest

from controller.model.conditions import ConditionStatus, ConditionType, transition

NOON = datetime(2026, 5, 4, 12, 0, 0, tzinfo=UTC)
LATER = NOON + timedelta(minutes=5)


class A(NamedTuple):
    type: ConditionType = "Ready"
    status: ConditionStatus = "True"
    reason: str = "Ready"
    message: str = ""


def test_a_new_condition_begins_now() -> None:
    assert transition([], [A(message="fine")], 3, NOON) == [
        {
            "type": "Ready",
            "status": "True",
            "reason": "Ready",
            "message": "fine",
            "observedGeneration": 3,
            "lastTransitionTime": "2026-05-04T12:00:00Z",
        }
    ]


@pytest.mark.parametrize(
    ("fact", "since"),
    [
        (A(), "2026-05-04T12:00:00Z"),
        (A(reason="Other", message="another"), "2026-05-04T12:00:00Z"),
        (A(status="False"), "2026-05-04T12:05:00Z"),
        (A(status="Unknown"), "2026-05-04T12:05:00Z"),
    ],
)
def test_the_time_moves_only_with_the_status(fact: A, since: str) -> None:
    before = transition([], [A()], 1, NOON)

    (after,) = transition(before, [fact], 2, LATER)

    assert after["lastTransitionTime"] == since
    assert (after["reason"], after["message"], after["observedGeneration"]) == (fact.reason, fact.message, 2)


def test_conditions_of_others_and_broken_ones_are_not_taken_over() -> None:
    before = [{"type": "Theirs", "status": "True"}, {"type": "Ready", "status": "True"}, {}]

    (after,) = transition(before, [A()], 1, NOON)

    assert after["lastTransitionTime"] == "2026-05-04T12:00:00Z"


def test_conditions_come_in_the_order_of_the_facts_and_in_utc() -> None:
    east = NOON.astimezone(timezone(timedelta(hours=5)))

    found = transition([], [A("Programmed"), A("Accepted")], 1, east)

    assert [each["type"] for each in found] == ["Programmed", "Accepted"]
    assert found[0]["lastTransitionTime"] == "2026-05-04T12:00:00Z"
