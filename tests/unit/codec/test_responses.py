"""Response heads: each table, whole and cut everywhere, and what the client gets."""

from __future__ import annotations

import pytest

from controller.proxy.codec import Limits, Refused, ResponseHead, ResponseReader
from tests.unit.codec.cases import SERVED, Message, request, response
from tests.unit.codec.cases_fields import FIDELITY, Lines
from tests.unit.codec.cases_hop_by_hop import BOTH_WAYS, Hop
from tests.unit.codec.cases_responses import RESPONSES, UPGRADES
from tests.unit.codec.reading import (
    DATE,
    GET,
    ID,
    answered,
    cuts,
    lines_of,
    read_response,
    request_of,
    response_of,
)

UPGRADE = request(b"Connection: Upgrade", b"Upgrade: websocket", start=b"GET / HTTP/1.1")
OLD_GET = request(start=b"GET / HTTP/1.0")
OLD_KEPT_GET = request(b"Connection: keep-alive", start=b"GET / HTTP/1.0")
CLOSING_GET = request(b"Connection: close", start=b"GET / HTTP/1.1")
HEAD = request(start=b"HEAD / HTTP/1.1")

OURS = [b"Date: " + DATE, b"X-Request-Id: " + ID]


@pytest.mark.parametrize(
    ("case", "asked"),
    [*((case, GET) for case in RESPONSES), *((case, UPGRADE) for case in UPGRADES)],
    ids=lambda value: str(value) if isinstance(value, Message) else "",
)
def test_a_head_passes_or_is_the_backend_s_fault_however_it_is_cut(case: Message, asked: bytes) -> None:
    request_head = request_of(asked)
    outcomes = set()
    for pieces in cuts(case.raw):
        answer, rest = read_response(pieces, request_head)
        if case.status == SERVED:
            assert isinstance(answer, ResponseHead), (pieces, answer)
            assert rest == b""
            outcomes.add(answered(answer))
        else:
            assert isinstance(answer, Refused), (pieces, answer)
            assert answer.status == case.status
    assert len(outcomes) == (case.status == SERVED)


@pytest.mark.parametrize("case", BOTH_WAYS, ids=str)
def test_hop_by_hop_fields_end_here(case: Hop) -> None:
    head = response_of(response(b"Content-Length: 0", *case.lines))

    assert lines_of(answered(head)) == [b"Content-Length: 0", *case.passed, *OURS]


@pytest.mark.parametrize("case", FIDELITY, ids=str)
def test_fields_pass_byte_for_byte(case: Lines) -> None:
    head = response_of(response(b"Content-Length: 0", *case.came))

    assert lines_of(answered(head)) == [b"Content-Length: 0", *case.goes, *OURS]


@pytest.mark.parametrize(
    ("start", "out"),
    [
        (b"HTTP/1.1 200 OK", b"HTTP/1.1 200 OK\r\n"),
        (b"HTTP/1.0 404 Not  Found ", b"HTTP/1.1 404 Not  Found \r\n"),
        (b"HTTP/1.1 299", b"HTTP/1.1 299 \r\n"),
        (b"HTTP/1.1 999 \xe9\xff", b"HTTP/1.1 999 \xe9\xff\r\n"),
    ],
)
def test_status_and_reason_pass_and_our_version_is_1_1(start: bytes, out: bytes) -> None:
    assert answered(response_of(response(start=start))).startswith(out)


CHUNKED, LENGTH, CLOSE = b"Transfer-Encoding: chunked", b"Content-Length: 5", b"Connection: close"
KEPT = b"Connection: keep-alive"


@pytest.mark.parametrize(
    ("asked", "status", "came", "length", "framing_out", "ends_by_close"),
    [
        (GET, 200, [LENGTH], 5, [LENGTH], False),
        (GET, 200, [CHUNKED], -1, [CHUNKED], False),
        (GET, 200, [], -2, [CHUNKED], False),
        (GET, 200, [b"content-length: 0"], 0, [b"content-length: 0"], False),
        (CLOSING_GET, 200, [LENGTH], 5, [LENGTH, CLOSE], False),
        (CLOSING_GET, 200, [], -2, [CHUNKED, CLOSE], False),
        (OLD_GET, 200, [LENGTH], 5, [LENGTH, CLOSE], False),
        (OLD_GET, 200, [CHUNKED], -1, [CLOSE], True),
        (OLD_GET, 200, [], -2, [CLOSE], True),
        (OLD_KEPT_GET, 200, [LENGTH], 5, [LENGTH, KEPT], False),
        (OLD_KEPT_GET, 200, [CHUNKED], -1, [CLOSE], True),
        (OLD_KEPT_GET, 200, [], -2, [CLOSE], True),
        (OLD_KEPT_GET, 304, [], 0, [CLOSE], True),
        (OLD_KEPT_GET, 304, [LENGTH], 0, [LENGTH, KEPT], False),
        (HEAD, 200, [LENGTH], 0, [LENGTH], False),
        (HEAD, 200, [CHUNKED], 0, [], False),
        (HEAD, 200, [], 0, [], False),
        (GET, 304, [LENGTH], 0, [LENGTH], False),
        (GET, 304, [CHUNKED], 0, [], False),
        (GET, 204, [LENGTH], 0, [], False),
        (GET, 204, [CHUNKED], 0, [], False),
        (GET, 204, [], 0, [], False),
    ],
)
def test_the_framing_out_follows_from_what_was_read(
    asked: bytes, status: int, came: list[bytes], length: int, framing_out: list[bytes], ends_by_close: bool
) -> None:
    head = response_of(response(*came, start=b"HTTP/1.1 %d x" % status), request_of(asked))

    assert (head.length, head.ends_by_close) == (length, ends_by_close)
    assert lines_of(answered(head)) == [*framing_out, *OURS]


def test_a_closing_connection_says_so() -> None:
    head = response_of(response(LENGTH))

    assert lines_of(answered(head, close=True)) == [LENGTH, CLOSE, *OURS]


@pytest.mark.parametrize(
    ("start", "lines", "keep_alive"),
    [
        (b"HTTP/1.1", [LENGTH], True),
        (b"HTTP/1.1", [CHUNKED], True),
        (b"HTTP/1.1", [], False),
        (b"HTTP/1.1", [LENGTH, b"connection: x, CLOSE"], False),
        (b"HTTP/1.0", [LENGTH], False),
        (b"HTTP/1.0", [LENGTH, b"Connection: Keep-Alive"], True),
        (b"HTTP/1.0", [b"Connection: Keep-Alive"], False),
    ],
)
def test_an_upstream_connection_is_kept_only_if_the_end_is_sure(
    start: bytes, lines: list[bytes], keep_alive: bool
) -> None:
    assert response_of(response(*lines, start=start + b" 200 OK")).keep_alive is keep_alive


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(b"timeout=5", 5), (b"max=100, Timeout=12", 12), (b"timeout=x", -1), (b"timeout=", -1), (b"max=3", -1), (b"", -1)],
)
def test_the_backend_s_keep_alive_time_is_read(value: bytes, seconds: int) -> None:
    assert response_of(response(LENGTH, b"Keep-Alive: " + value)).keep_alive_timeout == seconds


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (b"120", 120.0),
        (b"0", 0.0),
        (b"Sun, 29 Nov 2026 12:00:00 GMT", -1.0),
        (b"-1", -1.0),
        (b"1.5", -1.0),
        (b"", -1.0),
    ],
)
def test_retry_after_is_read_in_seconds(value: bytes, seconds: float) -> None:
    head = response_of(response(b"Retry-After: " + value))

    assert head.retry_after == seconds
    assert head.field(b"RETRY-after") == value


def test_a_date_that_came_stays_and_a_request_id_that_came_goes() -> None:
    head = response_of(response(LENGTH, b"date: then", b"X-Request-Id: theirs"))

    assert lines_of(answered(head)) == [LENGTH, b"date: then", b"X-Request-Id: our-id"]


def test_extra_lines_are_added() -> None:
    cookie = b"Set-Cookie: steelyard=x; HttpOnly"

    assert lines_of(answered(response_of(response(LENGTH)), extra=cookie + b"\r\n")) == [LENGTH, *OURS, cookie]


@pytest.mark.parametrize("extra", [b"X: y", b"X: y\n", b"X: y\r\n\r\n"])
def test_extra_lines_must_be_whole_lines(extra: bytes) -> None:
    with pytest.raises(ValueError, match="complete lines"):
        answered(response_of(response()), extra=extra)


def test_trailer_is_announced_only_where_trailers_can_follow() -> None:
    lines = [CHUNKED, b"Trailer: X-Sum"]

    assert lines_of(answered(response_of(response(*lines)))) == [*lines, *OURS]
    assert lines_of(answered(response_of(response(*lines), request_of(OLD_GET)))) == [CLOSE, *OURS]
    assert lines_of(answered(response_of(response(*lines), request_of(HEAD)))) == OURS
    assert lines_of(answered(response_of(response(lines[1])))) == [CHUNKED, *OURS]


def test_an_upgrade_is_answered_with_its_fields_written_anew() -> None:
    raw = response(
        b"Connection: Upgrade, X-A",
        b"X-A: 1",
        b"Upgrade: websocket",
        b"Sec-WebSocket-Accept: x",
        start=b"HTTP/1.1 101 S",
    )
    head, rest = read_response([raw + b"\x81\x00"], request_of(UPGRADE))

    assert isinstance(head, ResponseHead)
    assert (head.upgrade, head.length, head.keep_alive, rest) == (True, 0, False, b"\x81\x00")
    assert lines_of(answered(head)) == [
        b"Sec-WebSocket-Accept: x",
        b"Connection: Upgrade",
        b"Upgrade: websocket",
        *OURS,
    ]


def test_interim_heads_come_one_by_one_and_get_nothing_of_ours() -> None:
    early = b"HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\nX-Request-Id: x\r\nContent-Length: 3\r\n\r\n"
    reader, asked = ResponseReader(Limits()), request_of(GET)

    first = reader.feed(early + response(LENGTH) + b"body", asked)
    assert isinstance(first, ResponseHead)
    assert (first.status, first.length) == (103, 0)
    assert answered(first, close=True) == b"HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\n"

    second = reader.feed(first.take_rest(), asked)
    assert isinstance(second, ResponseHead)
    assert (second.status, second.take_rest()) == (200, b"body")


def test_started_tells_whether_a_byte_of_a_head_has_come() -> None:
    reader = ResponseReader(Limits())
    assert not reader.started

    reader.feed(b"H", request_of(GET))

    assert reader.started
