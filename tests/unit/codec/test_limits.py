"""Sizes at the limit and one beyond it, whole and byte by byte."""

from __future__ import annotations

import pytest

from controller.proxy.codec import Body, Limits, Refused, RequestHead, ResponseHead, ResponseReader
from tests.unit.codec.cases import request, response
from tests.unit.codec.reading import (
    CHUNKED_OK,
    CHUNKED_POST,
    GET,
    carry,
    read_request,
    read_response,
    request_of,
    response_of,
)

LIMITS = Limits(head_bytes=1000, fields=10, informational=3)


def padded(raw: bytes, size: int) -> bytes:
    """`raw` with PAD grown until the whole has `size` bytes."""
    return raw.replace(b"PAD", b"a" * (size - len(raw) + 3))


def pieces(raw: bytes) -> list[list[bytes]]:
    return [[raw], [raw[at : at + 1] for at in range(len(raw))], [raw[:999], raw[999:]], [raw[:1000], raw[1000:]]]


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (request(b"X: PAD"), 431),
        (request(b"PAD: x"), 431),
        (b"GET /PAD HTTP/1.1\r\nHost: a\r\n\r\n", 431),
        (b"\r\n" * 300 + request(b"X: PAD"), 431),
    ],
)
def test_a_request_head_may_have_this_many_bytes_and_no_more(raw: bytes, status: int) -> None:
    for cut in pieces(padded(raw, 1000)):
        assert isinstance(read_request(cut, LIMITS)[0], RequestHead)
    for cut in pieces(padded(raw, 1001)):
        answer, _ = read_request(cut, LIMITS)
        assert isinstance(answer, Refused), cut
        assert answer.status == status


@pytest.mark.parametrize("raw", [b"GET /PAD", b"GET " + b" " * 997, b"PAD"])
def test_a_target_that_has_not_ended_is_too_long(raw: bytes) -> None:
    for cut in pieces(padded(raw, 1001) if b"PAD" in raw else raw):
        answer, _ = read_request(cut, LIMITS)
        assert isinstance(answer, Refused)
        assert answer.status == 414


def test_empty_lines_before_a_request_are_counted() -> None:
    for cut in pieces(b"\r\n" * 501):
        answer, _ = read_request(cut, LIMITS)
        assert isinstance(answer, Refused)
        assert answer.status == 431


def test_a_head_may_have_this_many_fields_and_no_more() -> None:
    asked = request_of(GET)

    assert isinstance(read_request([request(*[b"X: y"] * 9)], LIMITS)[0], RequestHead)
    assert isinstance(read_response([response(*[b"X: y"] * 10)], asked, LIMITS)[0], ResponseHead)

    too_many, _ = read_request([request(*[b"X: y"] * 10)], LIMITS)
    assert isinstance(too_many, Refused)
    assert too_many.status == 431
    too_many, _ = read_response([response(*[b"X: y"] * 11)], asked, LIMITS)
    assert isinstance(too_many, Refused)
    assert too_many.status == 502


@pytest.mark.parametrize("raw", [response(b"X: PAD"), b"HTTP/1.1 200 PAD\r\n\r\n"])
def test_a_response_head_may_have_this_many_bytes_and_no_more(raw: bytes) -> None:
    asked = request_of(GET)
    for cut in pieces(padded(raw, 1000)):
        assert isinstance(read_response(cut, asked, LIMITS)[0], ResponseHead)
    for cut in pieces(padded(raw, 1001)):
        answer, _ = read_response(cut, asked, LIMITS)
        assert isinstance(answer, Refused), cut
        assert answer.status == 502


def test_what_follows_a_head_does_not_count() -> None:
    answer, rest = read_request([GET + b"x" * 5000], LIMITS)

    assert isinstance(answer, RequestHead)
    assert len(rest) == 5000


def test_interim_responses_are_counted_per_request() -> None:
    reader, asked = ResponseReader(LIMITS), request_of(GET)
    interim = response(start=b"HTTP/1.1 103 x")
    for _ in range(2):
        for _ in range(3):
            assert isinstance(reader.feed(interim, asked), ResponseHead)
        assert isinstance(reader.feed(response(), asked), ResponseHead)
    for _ in range(3):
        reader.feed(interim, asked)

    answer = reader.feed(interim, asked)

    assert isinstance(answer, Refused)
    assert (answer.status, answer.reason) == (502, "too many interim responses")


def bodies() -> list[tuple[Body, int]]:
    asked = request_of(GET)
    return [
        (Body(request_of(CHUNKED_POST), None, LIMITS), 400),
        (Body(response_of(CHUNKED_OK, asked), asked, LIMITS), 502),
    ]


@pytest.mark.parametrize(
    ("raw", "tail"),
    [
        (b"3;a=PAD\r\n", b"abc\r\n0\r\n\r\n"),
        (b'3;a="PAD"\r\n', b"abc\r\n0\r\n\r\n"),
        (b"3\r\nabc\r\n0\r\nX: PAD\r\n\r\n", b""),
        (b"3\r\nabc\r\n0;PAD\r\nX: y\r\n\r\n", b""),
    ],
)
def test_what_lies_between_body_bytes_is_limited(raw: bytes, tail: bytes) -> None:
    before = len(b"3\r\nabc") if b"abc" in raw else 0
    for index in range(2):
        for cut in pieces(padded(raw, 1000 + before) + tail):
            body, _ = bodies()[index]
            assert carry(body, cut)[2] is True, cut
        for cut in pieces(padded(raw, 1001 + before) + tail):
            body, status = bodies()[index]
            end = carry(body, cut)[2]
            assert isinstance(end, Refused), cut
            assert end.status == status


def test_body_bytes_start_the_count_anew() -> None:
    raw = (b"1;" + b"x" * 900 + b"\r\na\r\n") * 5 + b"0\r\n\r\n"

    for body, _ in bodies():
        assert carry(body, [raw])[2] is True


def test_endless_zeros_of_a_size_are_refused() -> None:
    for body, status in bodies():
        end = carry(body, [b"0" * 1001])[2]
        assert isinstance(end, Refused)
        assert end.status == status


def test_a_trailer_part_may_have_this_many_fields_and_no_more() -> None:
    for (enough, _), (too_many, status) in zip(bodies(), bodies(), strict=True):
        assert carry(enough, [b"0\r\n" + b"X: y\r\n" * 10 + b"\r\n"])[2] is True
        end = carry(too_many, [b"0\r\n" + b"X: y\r\n" * 11 + b"\r\n"])[2]
        assert isinstance(end, Refused)
        assert end.status == status
