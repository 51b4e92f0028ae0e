"""Whether a failed attempt may be made again, and when. Pure: the budget and the pick are asked by the caller."""

from __future__ import annotations

from random import Random

from controller.model.service import Retries, RetryCondition

FIRST_PAUSE = 0.025  # seconds
LONGEST_PAUSE = 0.25


def allowed(
    retries: Retries,
    condition: RetryCondition | None,
    *,
    tries: int,
    idempotent: bool,
    handed: bool,
    replayable: bool,
) -> bool:
    """Whether the contract lets this request be tried again after `tries` attempts.

    `handed`: a byte of it was given to a connection. `replayable`: its body is none, or wholly kept.
    """
    return (
        condition in retries.conditions
        and tries <= retries.attempts
        and (idempotent or not handed or retries.non_idempotent)
        and replayable
    )


def pause(earlier: int, random: Random) -> float:
    """Seconds before a retry that is not the first, or goes where one has failed: full jitter, doubling (AWS)."""
    return random.uniform(0.0, min(LONGEST_PAUSE, FIRST_PAUSE * (1 << min(earlier, 8))))
