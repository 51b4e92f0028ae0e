"""When a failed attempt may be made again, and after what pause."""

from __future__ import annotations

from itertools import product
from random import Random

from controller.model.service import Retries
from controller.proxy.retries import FIRST_PAUSE, LONGEST_PAUSE, allowed, pause


def test_every_condition_of_the_contract_must_hold() -> None:
    for idempotent, handed, non_idempotent, replayable, tries in product(*[(False, True)] * 4, (1, 2)):
        retries = Retries(attempts=1, non_idempotent=non_idempotent)
        expected = tries == 1 and replayable and (idempotent or not handed or non_idempotent)

        found = allowed(retries, "Reset", tries=tries, idempotent=idempotent, handed=handed, replayable=replayable)

        assert found == expected


def test_only_a_named_cause_is_tried_again() -> None:
    retries = Retries(conditions=("ConnectFailure", 503))

    assert [
        allowed(retries, cause, tries=1, idempotent=True, handed=True, replayable=True)
        for cause in ("ConnectFailure", "Reset", 503, 504, None)
    ] == [True, False, True, False, False]


def test_pauses_are_drawn_from_a_range_that_doubles_up_to_its_bound() -> None:
    random = Random(1)

    for earlier in range(12):
        bound = min(LONGEST_PAUSE, FIRST_PAUSE * 2**earlier)
        drawn = [pause(earlier, random) for _ in range(2000)]
        assert 0 <= min(drawn) < bound * 0.01
        assert bound * 0.99 < max(drawn) <= bound
