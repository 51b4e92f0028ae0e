"""`plain` is one question for several: it says exactly what they say together."""

from __future__ import annotations

from itertools import product

import pytest

from controller.proxy.codec import Limits, RequestHead, RequestReader, ResponseHead, ResponseReader
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


@pytest.mark.parametrize("behind", [b"", b"x", b"xx", b"xxx"])
def test_an_answer_is_plain_if_it_is_whole_and_says_nothing_of_the_endpoint_or_of_an_end(behind: bytes) -> None:
    for start, status, fields in product(CLIENTS, STATUSES, ANSWER_FIELDS):
        asked = request(start, "Connection: keep-alive\r\n" if "1.0" in start else "")
        head = ResponseReader(Limits()).feed(f"HTTP/1.1 {status} X\r\n{fields}\r\n".encode() + behind, asked)
        assert type(head) is ResponseHead
        whole = head.length == len(head.take_rest()) and head.keep_alive
        stays = asked.keep_alive and not head.ends_by_close
        silent = head.keep_alive_timeout == -1 and status < 500 and status != 429
        assert head.plain == (whole and stays and silent), head


def test_an_answer_to_a_client_that_leaves_is_not_plain() -> None:
    asked = request(CLIENTS[0], "Connection: close\r\n")
    head = ResponseReader(Limits()).feed(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", asked)
    assert type(head) is ResponseHead
    assert not head.plain


@pytest.mark.parametrize("extra", [b"", b"Set-Cookie: a=b\r\n"])
@pytest.mark.parametrize("behind", [b"", b"x", b"xx", b"xxx"])
def test_the_whole_of_a_plain_answer_is_its_head_and_its_body_and_no_other_answer_has_one(
    behind: bytes, extra: bytes
) -> None:
    seen = set()
    for start, status, fields in product(CLIENTS, STATUSES, ANSWER_FIELDS):
        asked = request(start, "Connection: keep-alive\r\n" if "1.0" in start else "")
        head = ResponseReader(Limits()).feed(f"HTTP/1.1 {status} X\r\n{fields}\r\n".encode() + behind, asked)
        assert type(head) is ResponseHead
        seen.add(head.plain)
        if head.plain:
            assert head.whole(ID, DATE, extra) == answered(head, extra=extra) + behind
        else:
            with pytest.raises(ValueError, match="plain"):
                head.whole(ID, DATE, extra)
    assert seen == ({True, False} if len(behind) in {0, 2} else {False})


def test_the_whole_is_had_once_and_holds_nothing_that_splits_it() -> None:
    def head() -> ResponseHead:
        answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nxx"
        head = ResponseReader(Limits()).feed(answer, request(CLIENTS[0], ""))
        assert type(head) is ResponseHead
        return head

    once = head()
    once.whole(ID, DATE)
    with pytest.raises(ValueError, match="taken"):
        once.whole(ID, DATE)
    for wrong in ((b"a\r\nb", DATE), (ID, b"a\nb"), (ID, DATE, b"X: y"), (ID, DATE, b"X: y\r\n\r\n")):
        with pytest.raises(ValueError, match=r"control byte|complete lines"):
            head().whole(*wrong)
