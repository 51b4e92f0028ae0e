"""Slow start: a new or returned endpoint is given its share step by step.

Envoy's form: the factor grows with age to the power of 1/aggression. It moves load inside a share group only; what a
backend is due stays what its weight says.
"""

from __future__ import annotations

from controller.model.service import SlowStart

# An age of nothing would make the power 0 for every aggression; a millisecond is below any real window.
YOUNGEST = 0.001


def factor(age: float, slow_start: SlowStart) -> float:
    """Part of its weight, in (0, 1], that an endpoint `age` seconds old is given."""
    if age >= slow_start.window:
        return 1.0
    grown: float = (max(age, YOUNGEST) / slow_start.window) ** (1.0 / slow_start.aggression)
    return min(1.0, max(slow_start.min_percent / 100, grown))
