"""One question for several, and one answer for several: they say exactly what those say together."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest

from controller.proxy.codec import Limits, Refused, RequestHead, RequestReader, ResponseHead, ResponseReader
from tests.unit.codec.reading import DATE, ID, answered

CLIENTS = (
    "GET / HTTP/1.1\r\nHost: a\r\n",
    "HEAD / HTTP/1.1\r\nHost: a\r\n",
    "GET / HTTP/1.0\r\n",
    "OPTIONS * HTTP/1.1\r\nHost: a\r\n",
)
LENGTHS = ("Content-Length: 0\r\n", "Content-Length: 2\r\n", "Transfer-Encoding: chunked\r\n")
REQUEST_FIELDS = ("", *LENGTHS, "Steelyard-Hop: a.b.steelyard\r\n", "Max-Forwards: 3\r\n", "Connection: close\r\n")
STATUSES = (200, 204, 206, 301, 304, 404, 428, 429, 430, 499, 500, 503)
ANSWER_FIELDS = (
    "",
    *LENGTHS,
    "Content-Length: 2\r\nKeep-Alive: timeout=5\r\n",
    "Content-Length: 2\r\nConnection: close\r\n",
)


def request(start: str, fields: str, behind: bytes = b"") -> RequestHead:
    head = RequestReader(Limits()).feed(f"{start}{fields}\r\n".encode() + behind)
    assert type(head) is RequestHead
    return head


@pytest.mark.parametrize("behind", [b"", b"xx"])
def test_a_request_is_plain_if_nothing_has_to_be_decided_before_it_goes_on(behind: bytes) -> None:
    seen = set()
    for start, fields in product(CLIENTS, REQUEST_FIELDS):
        if "1.0" in start and "chunked" in fields:  # refused
            continue
        head = request(start, fields, behind)
        usual = head.length == 0 and head.take_rest() == b"" and head.hops == 0 and head.max_forwards == -1
        assert head.plain == usual, head
        seen.add(usual)
    assert seen == ({True, False} if not behind else {False})


def answers(behind: bytes) -> Iterator[tuple[RequestHead, bytes]]:
    for start, status, fields in product(CLIENTS, STATUSES, ANSWER_FIELDS):
        asked = request(start, "Connection: keep-alive\r\n" if "1.0" in start else "")
        yield asked, f"HTTP/1.1 {status} X\r\n{fields}\r\n".encode() + behind


@pytest.mark.parametrize("behind", [b"", b"x", b"xx", b"xxx"])
def test_an_answer_is_plain_if_it_is_whole_and_says_nothing_of_the_endpoint_or_of_an_end(behind: bytes) -> None:
    seen = set()
    for asked, raw in answers(behind):
        head = ResponseReader(Limits()).feed(raw, asked)
        assert type(head) is ResponseHead
        rest = head.take_rest()
        whole = head.length == len(rest) and head.keep_alive
        stays = asked.keep_alive and not head.ends_by_close
        silent = head.keep_alive_timeout == -1 and head.status < 500 and head.status != 429
        reader = ResponseReader(Limits())
        read = reader.read(raw, asked, ID, DATE)
        assert (type(read) is bytes) == (whole and stays and silent), head
        seen.add(type(read))
        if isinstance(read, bytes):
            assert read == answered(head) + rest
            assert (reader.status, reader.length) == (head.status, len(rest))
        else:
            assert isinstance(read, ResponseHead)
            assert (answered(read), read.take_rest()) == (answered(head), rest)
    assert seen == ({bytes, ResponseHead} if len(behind) in {0, 2} else {ResponseHead})


def test_an_answer_to_a_client_that_leaves_is_not_plain() -> None:
    asked = request(CLIENTS[0], "Connection: close\r\n")
    read = ResponseReader(Limits()).read(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", asked, ID, DATE)
    assert type(read) is ResponseHead


def test_a_plain_answer_may_come_in_pieces_and_behind_others() -> None:
    asked = request(CLIENTS[0], "")
    reader = ResponseReader(Limits())

    assert reader.read(b"HTTP/1.1 204 No", asked, ID, DATE) is None
    assert reader.read(b" Content\r\n\r\n", asked, ID, DATE) == (
        b"HTTP/1.1 204 No Content\r\nDate: " + DATE + b"\r\nX-Request-Id: " + ID + b"\r\n\r\n"
    )
    interim = reader.read(b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 404 X\r\n", asked, ID, DATE)
    assert type(interim) is ResponseHead
    assert reader.read(interim.take_rest(), asked, ID, DATE) is None
    read = reader.read(b"Content-Length: 1\r\n\r\ny", asked, ID, DATE)
    assert isinstance(read, bytes)
    assert read.endswith(b"\r\n\r\ny")
    assert (reader.status, reader.length) == (404, 1)


def test_what_is_refused_by_feed_is_refused_by_read() -> None:
    reader = ResponseReader(Limits())
    assert isinstance(reader.read(b"HTTP/3", request(CLIENTS[0], ""), ID, DATE), Refused)
    assert isinstance(reader.read(b"HTTP/1.1 200 OK\r\n\r\n", request(CLIENTS[0], ""), ID, DATE), Refused)


def test_nothing_of_ours_splits_a_plain_answer() -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nxx"
    for request_id, date in ((b"a\r\nb", DATE), (ID, b"a\nb")):
        with pytest.raises(ValueError, match="control byte"):
            ResponseReader(Limits()).read(answer, request(CLIENTS[0], ""), request_id, date)
