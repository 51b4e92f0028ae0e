"""Conditions: their types and reasons, and when one of them changes. Positive polarity: `True` is good.

Kubernetes' conventions: `lastTransitionTime` moves only with `status`, and each condition says which generation of the
spec it tells of.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

ConditionType = Literal["Accepted", "ResolvedRefs", "Programmed", "Ready"]
ConditionStatus = Literal["True", "False", "Unknown"]

# Accepted, ResolvedRefs, Programmed and Ready are the reasons of what is well.
Reason = Literal[
    "Accepted",
    "Invalid",
    "Conflict",
    "Unsupported",
    "ResolvedRefs",
    "BackendNotFound",
    "PortNotFound",
    "RefNotPermitted",
    "Programmed",
    "Pending",
    "NoProxiesReady",
    "NoProxies",
    "Ready",
    "NoEndpoints",
    "AllEjected",
]


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """A condition without its times."""

    type: ConditionType
    status: ConditionStatus
    reason: Reason
    message: str = ""


def transition(
    previous: Iterable[Mapping[str, Any]], facts: Iterable[Fact], generation: int, now: datetime
) -> list[dict[str, Any]]:
    """The conditions of `facts` as the API has them, after the `previous` ones; in the order of `facts`."""
    known = {condition.get("type"): condition for condition in previous}
    moment = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    conditions = []
    for fact in facts:
        old = known.get(fact.type, {})
        same = old.get("status") == fact.status and "lastTransitionTime" in old
        conditions.append(
            {
                "type": fact.type,
                "status": fact.status,
                "reason": fact.reason,
                "message": fact.message,
                "observedGeneration": generation,
                "lastTransitionTime": old["lastTransitionTime"] if same else moment,
            }
        )
    return conditions
