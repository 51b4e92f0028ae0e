"""The table of policies: `spec.algorithm.type` → what builds its picker. A new policy is one file and one line here."""

from __future__ import annotations

from collections.abc import Mapping

from controller.balancing.least_connections import least_connections
from controller.balancing.picker import PickerFactory
from controller.balancing.power_of_two import power_of_two
from controller.balancing.round_robin import round_robin

POLICIES: Mapping[str, PickerFactory] = {
    "RoundRobin": round_robin,
    "LeastConnections": least_connections,
    "PowerOfTwoChoices": power_of_two,
}
