"""What fuzzing has found worth keeping, through the codec that the proxy loads: one verdict however it is cut."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from controller.proxy.codec import Body, Limits, Refused, RequestHead, ResponseHead
from tests.bench.fuzz import corpus
from tests.unit.codec.reading import (
    CHUNKED_POST,
    GET,
    answered,
    carry,
    forwarded,
    read_request,
    read_response,
    request_of,
)


def bytewise(raw: bytes) -> list[bytes]:
    return [raw[at : at + 1] for at in range(len(raw))]


def request_seen(pieces: list[bytes]) -> object:
    head, rest = read_request(pieces)
    if isinstance(head, RequestHead):
        return forwarded(head), head.length, rest
    return head.reason if isinstance(head, Refused) else None


def response_seen(pieces: list[bytes]) -> object:
    head, rest = read_response(pieces, request_of(GET))
    if isinstance(head, ResponseHead):
        return answered(head), head.length, rest
    return head.reason if isinstance(head, Refused) else None


def chunks_seen(pieces: list[bytes]) -> object:
    _, payload, end, rest = carry(Body(request_of(CHUNKED_POST), None, Limits()), pieces)
    return (end.reason, b"") if isinstance(end, Refused) else (payload, end, rest)


@pytest.mark.parametrize(
    ("target", "seen"), [("request", request_seen), ("response", response_seen), ("chunked", chunks_seen)]
)
def test_the_kept_corpus_is_judged_alike_whole_and_bytewise(target: str, seen: Callable[[list[bytes]], object]) -> None:
    inputs = [raw for raw in corpus(target).values() if raw]
    assert len(inputs) > 50
    for raw in inputs:
        assert seen([raw]) == seen(bytewise(raw)), raw
