"""When a condition changes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from controller.model.conditions import ConditionStatus, ConditionType, Fact, Reason, transition

NOON = datetime(2026, 5, 4, 12, 0, 0, tzinfo=UTC)
LATER = NOON + timedelta(minutes=5)


def a_fact(
    kind: ConditionType = "Ready", status: ConditionStatus = "True", reason: Reason = "Ready", message: str = ""
) -> Fact:
    return Fact(type=kind, status=status, reason=reason, message=message)


def test_a_new_condition_begins_now() -> None:
    assert transition([], [a_fact(message="fine")], 3, NOON) == [
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
        (a_fact(), "2026-05-04T12:00:00Z"),
        (a_fact(reason="NoEndpoints", message="another"), "2026-05-04T12:00:00Z"),
        (a_fact(status="False"), "2026-05-04T12:05:00Z"),
        (a_fact(status="Unknown"), "2026-05-04T12:05:00Z"),
    ],
)
def test_the_time_moves_only_with_the_status(fact: Fact, since: str) -> None:
    before = transition([], [a_fact()], 1, NOON)

    (after,) = transition(before, [fact], 2, LATER)

    assert after["lastTransitionTime"] == since
    assert (after["reason"], after["message"], after["observedGeneration"]) == (fact.reason, fact.message, 2)


def test_conditions_of_others_and_broken_ones_are_not_taken_over() -> None:
    before = [{"type": "Theirs", "status": "True"}, {"type": "Ready", "status": "True"}, {}]

    (after,) = transition(before, [a_fact()], 1, NOON)

    assert after["lastTransitionTime"] == "2026-05-04T12:00:00Z"


def test_conditions_come_in_the_order_of_the_facts_and_in_utc() -> None:
    east = NOON.astimezone(timezone(timedelta(hours=5)))

    found = transition([], [a_fact("Programmed"), a_fact("Accepted")], 1, east)

    assert [each["type"] for each in found] == ["Programmed", "Accepted"]
    assert found[0]["lastTransitionTime"] == "2026-05-04T12:00:00Z"
