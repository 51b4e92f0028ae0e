"""Bodies on their way: every framing in, the announced framing out, however the input is cut."""

from __future__ import annotations

import pytest

from controller.proxy.codec import Body, Complete, Limits, Refused, Truncated
from tests.unit.codec.cases import request, response
from tests.unit.codec.cases_chunked import CHUNKED, END, Chunked
from tests.unit.codec.reading import (
    CHUNKED_OK,
    CHUNKED_POST,
    GET,
    carry,
    cuts,
    request_of,
    response_of,
    unchunked,
)

OLD_GET = request(start=b"GET / HTTP/1.0")
TE_GET = request(b"TE: trailers", start=b"GET / HTTP/1.1")


def request_body() -> Body:
    return Body(request_of(CHUNKED_POST), None, Limits())


def response_body(head: bytes = CHUNKED_OK, asked: bytes = GET) -> Body:
    request_head = request_of(asked)
    return Body(response_of(head, request_head), request_head, Limits())


@pytest.mark.parametrize("case", CHUNKED, ids=str)
def test_chunks_pass_or_are_refused_however_they_are_cut(case: Chunked) -> None:
    for body, status in [(request_body, 400), (lambda: response_body(asked=TE_GET), 502)]:
        for pieces in cuts(case.raw + (b"" if case.refused else b"next")):
            out, payload, end, rest = carry(body(), pieces)
            if case.refused:
                assert isinstance(end, Refused), (pieces, out)
                assert end.status == status
            else:
                assert end is True, (pieces, end)
                chunks, trailers = unchunked(out)
                assert (b"".join(chunks), trailers, payload, rest) == (
                    case.payload,
                    case.trailers,
                    len(case.payload),
                    b"next",
                )


@pytest.mark.parametrize("case", [case for case in CHUNKED if not case.refused], ids=str)
def test_a_body_cut_short_never_looks_whole(case: Chunked) -> None:
    for at in range(len(case.raw)):
        for clean in [True, False]:
            out, _, end, _ = carry(request_body(), [case.raw[:at]], clean=clean)
            assert end is False
            assert not out.endswith(b"0\r\n\r\n") or b"0\r\n\r\n" in case.payload


def test_many_chunks_of_one_read_leave_as_one() -> None:
    raw = b"".join(b"1\r\n%c\r\n" % byte for byte in b"abcdefghij")

    assert request_body().feed(raw) == (b"a\r\nabcdefghij\r\n", 10, False, b"")


def test_what_needs_no_change_is_the_same_object() -> None:
    chunk, last = b"3\r\nabc\r\n", b"3\r\nabc\r\n0\r\n\r\n"
    fixed = Body(request_of(request(b"Content-Length: 10")), None, Limits())
    until_close = response_body(response(), OLD_GET)
    old = response_body(asked=OLD_GET)
    old.feed(b"5\r\n")

    for body, data in [
        (request_body(), chunk),
        (request_body(), last),
        (fixed, chunk),
        (until_close, chunk),
        (old, b"abc"),
    ]:
        fed = body.feed(data)
        assert not isinstance(fed, Refused)
        assert fed[0] is data


def test_an_enormous_size_allocates_nothing() -> None:
    assert request_body().feed(b"ffffffffffffffff\r\nabc") == (b"3\r\nabc\r\n", 3, False, b"")


def test_a_fixed_length_ends_with_its_last_byte() -> None:
    body = Body(request_of(request(b"Content-Length: 5")), None, Limits())

    assert body.feed(b"") == (b"", 0, False, b"")
    assert body.feed(b"abc") == (b"abc", 3, False, b"")
    assert not body.ended
    assert body.feed(b"defg") == (b"de", 2, True, b"fg")
    assert body.ended
    assert body.feed(b"h") == (b"", 0, True, b"h")


def test_no_body_has_ended_at_once() -> None:
    assert Body(request_of(GET), None, Limits()).ended
    assert response_body(response(b"Content-Length: 5"), request(start=b"HEAD / HTTP/1.1")).ended
    assert response_body(response(start=b"HTTP/1.1 204 x")).ended


def test_a_close_delimited_body_leaves_in_chunks_to_1_1() -> None:
    body = response_body(response())

    assert body.feed(b"") == (b"", 0, False, b"")
    assert body.feed(b"x" * 26) == (b"1a\r\n" + b"x" * 26 + b"\r\n", 26, False, b"")
    ending = body.eof(True)
    assert isinstance(ending, Complete)
    assert ending.out == END
    assert isinstance(body.eof(False), Truncated)


def test_a_close_delimited_body_passes_to_1_0() -> None:
    body = response_body(response(), OLD_GET)

    assert body.feed(b"abc") == (b"abc", 3, False, b"")
    ending = body.eof(True)
    assert isinstance(ending, Complete)
    assert ending.out == b""
    assert isinstance(body.eof(False), Truncated)


def test_chunks_are_taken_off_for_1_0() -> None:
    for pieces in cuts(b"3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nX: y\r\n\r\n"):
        assert carry(response_body(asked=OLD_GET), pieces) == (b"abcde", 5, True, b"")


@pytest.mark.parametrize(
    ("asked", "head", "trailers"),
    [
        (GET, CHUNKED_OK, b""),
        (TE_GET, CHUNKED_OK, b"X: y\r\n"),
        (GET, response(b"Transfer-Encoding: chunked", b"Trailer: x"), b"X: y\r\n"),
    ],
)
def test_trailers_pass_to_clients_that_read_them_or_were_told(asked: bytes, head: bytes, trailers: bytes) -> None:
    out, _, _, _ = carry(response_body(head, asked), [b"0\r\nX: y\r\n\r\n"])

    assert out == b"0\r\n" + trailers + b"\r\n"


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    "came", [b"", b"5", b"5\r\n", b"5\r\nabcde", b"5\r\nabcde\r\n", b"5\r\nabcde\r\n0\r\n", b"0\r\nX: y\r\n"]
)
def test_chunks_end_only_with_their_trailer_part(came: bytes, clean: bool) -> None:
    body = response_body()
    body.feed(came)

    assert isinstance(body.eof(clean), Truncated)


@pytest.mark.parametrize("clean", [True, False])
def test_the_end_of_the_connection_means_nothing_to_a_whole_body(clean: bool) -> None:
    body = response_body()
    body.feed(END)

    assert isinstance(body.eof(clean), Complete)


@pytest.mark.parametrize("clean", [True, False])
def test_a_short_fixed_length_is_truncated(clean: bool) -> None:
    body = response_body(response(b"Content-Length: 5"))
    body.feed(b"abcd")

    assert isinstance(body.eof(clean), Truncated)


def test_a_body_that_was_refused_stays_refused() -> None:
    body = request_body()

    assert isinstance(body.feed(b"x"), Refused)
    assert isinstance(body.feed(END), Refused)
    assert isinstance(body.eof(True), Truncated)
