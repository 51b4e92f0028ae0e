"""The table of causes, and the answers made of it."""

from __future__ import annotations

import errno

import pytest

from controller.balancing.node import Kind
from controller.proxy import causes
from controller.proxy.causes import Cause

ALL = [cause for cause in vars(causes).values() if isinstance(cause, Cause)] + list(causes.REFUSALS.values())


@pytest.mark.parametrize("cause", ALL, ids=lambda cause: cause.reason)
def test_an_answer_has_a_fixed_sentence_and_its_length(cause: Cause) -> None:
    answer = causes.render(cause, b"id-1", b"Sun, 06 Nov 1994 08:49:37 GMT", close=cause.close, bodyless=False)
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")

    assert lines[0].startswith(b"HTTP/1.1 %d " % cause.status)
    assert b"Content-Length: %d" % len(body) in lines
    assert b"X-Request-Id: id-1" in lines
    assert (b"Retry-After: 1" in lines) == cause.retry_after
    assert (b"Connection: close" in lines) == cause.close
    assert not any(line.startswith(b"Server") for line in lines)


def test_an_answer_to_head_has_no_body_but_its_length() -> None:
    answer = causes.render(causes.RESET, b"i", b"d", close=False, bodyless=True)

    assert answer.endswith(b"\r\n\r\n")
    assert b"Content-Length: %d\r\n" % (len(causes.RESET.text) + 1) in answer


def test_blame_follows_the_status() -> None:
    for cause in ALL:
        if cause.status in (502, 504) and cause is not causes.TOTAL_TIMEOUT:
            assert cause.kind in (Kind.CONNECT, Kind.RESET, Kind.ERROR, Kind.TIMEOUT), cause
        if cause.status in (400, 413, 414, 417, 431, 501, 503, 505, 508):
            assert cause.kind is Kind.CANCELLED, cause


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), causes.CONNECT),
        (OSError(errno.EHOSTUNREACH, "unreachable"), causes.CONNECT),
        (TimeoutError(), causes.CONNECT_TIMEOUT),
        (OSError(errno.EMFILE, "files"), causes.SHORTAGE),
        (OSError(errno.EADDRNOTAVAIL, "ports"), causes.SHORTAGE),
    ],
)
def test_our_own_shortage_is_not_the_endpoints_fault(error: OSError, cause: Cause) -> None:
    assert causes.of_connect(error) is cause
    assert causes.SHORTAGE.retry is None
