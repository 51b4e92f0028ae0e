"""The table of policies: `spec.algorithm.type` → what builds its picker. A new policy is one file and one line here."""

from __future__ import annotations

from collections.abc import Mapping

from controller.balancing.consistent_hash import consistent_hash
from controller.balancing.least_connections import least_connections
from controller.balancing.peak_ewma import peak_ewma
from controller.balancing.picker import PickerFactory
from controller.balancing.power_of_two import power_of_two
from controller.balancing.random import weighted_random
from controller.balancing.round_robin import round_robin
from controller.balancing.source_hash import source_hash

POLICIES: Mapping[str, PickerFactory] = {
    "RoundRobin": round_robin,
    "Random": weighted_random,
    "LeastConnections": least_connections,
    "SourceHash": source_hash,
    "PowerOfTwoChoices": power_of_two,
    "PeakEWMA": peak_ewma,
    "ConsistentHash": consistent_hash,
}
