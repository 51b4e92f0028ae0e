"""Laws of the contract: the CRD accepts exactly what `parse` accepts, and `parse` never raises."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controller.model.durations import format_duration, parse_duration
from controller.model.parsing import encode, parse
from controller.model.service import BalancedService, Invalid
from tests.golden.crd.evaluator import defaulted, refusals
from tests.strategies import ANYTHING, api_objects, mutated_objects

SLOW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@SLOW
@given(api_objects())
def test_what_is_valid_is_accepted_by_both(valid: dict[str, Any]) -> None:
    assert refusals(valid) == []
    assert isinstance(parse(valid), BalancedService)


@SLOW
@given(mutated_objects())
def test_the_crd_accepts_exactly_what_parse_accepts(mutated: dict[str, Any]) -> None:
    by_crd = refusals(mutated)
    parsed = parse(mutated)

    assert (by_crd == []) == isinstance(parsed, BalancedService), (by_crd, parsed)


@SLOW
@given(api_objects())
def test_the_stored_object_parses_like_the_written_one(valid: dict[str, Any]) -> None:
    assert parse(defaulted(valid)) == parse(valid)


@SLOW
@given(api_objects())
def test_encode_is_the_inverse_of_parse_and_valid_itself(valid: dict[str, Any]) -> None:
    service = parse(valid)
    assert isinstance(service, BalancedService)

    assert parse(encode(service)) == service
    assert refusals(encode(service)) == []


@given(ANYTHING)
def test_parse_never_raises_and_an_invalid_object_has_a_fault(anything: Any) -> None:
    for document in (anything, {"metadata": anything, "spec": anything}, {"metadata": {"name": anything}, "spec": {}}):
        parsed = parse(document)

        assert isinstance(parsed, Invalid)
        assert parsed.faults
        assert all(fault.message for fault in parsed.faults)


@given(st.integers(0, 99_999 * 3_600_000))
def test_a_duration_survives_its_writing(milliseconds: int) -> None:
    assert parse_duration(format_duration(milliseconds / 1000)) == milliseconds / 1000
