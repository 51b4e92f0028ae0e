"""Every way a request can end without a backend's answer: status, reason, retry and blame, in one table.

502: an endpoint was tried and failed. 504: tried, and time ran out. 503: not tried, or not for the endpoint's fault.
The sentences are fixed: nothing of the request is reflected, and no version is told.
"""

from __future__ import annotations

import errno
from http import HTTPStatus
from typing import Final

import msgspec

from controller.balancing.node import Kind
from controller.model.service import RetryCondition


class Cause(msgspec.Struct, frozen=True):
    """One way to fail, or to be refused by the proxy itself."""

    reason: str  # the word in logs and metrics: bounded, never made from input
    status: int
    text: str
    close: bool = False  # the client's connection can't go on after it
    retry_after: bool = False  # asks the client to come again
    kind: Kind = Kind.CANCELLED  # what the endpoint learns of it, if one was tried
    retry: RetryCondition | None = None  # the entry of `retries.conditions` that allows another try


def _refusal(reason: str, status: int, text: str) -> Cause:
    return Cause(reason, status, text, close=True)


MALFORMED: Final = _refusal("malformed_request", 400, "The request is malformed.")
REQUEST_TIMEOUT: Final = _refusal("request_timeout", 408, "The request took too long to arrive.")
BODY_TOO_LARGE: Final = _refusal("body_too_large", 413, "The request body is too large.")
BUG: Final = _refusal("internal_error", 500, "The proxy failed.")
LOOP: Final = Cause("loop", 508, "The request came through this proxy too often.")
TRACE_LAST_HOP: Final = Cause("last_hop", 405, "Max-Forwards is used up.")
OPTIONS_LAST_HOP: Final = Cause("last_hop", 200, "")

NO_ENDPOINTS: Final = Cause("no_endpoints", 503, "No endpoint is available.", retry_after=True)
SERVICE_GONE: Final = Cause("service_gone", 503, "ServiceGone: the BalancedService has been deleted.")
QUEUE_FULL: Final = Cause("queue_full", 503, "Too many requests are waiting.", retry_after=True)
QUEUE_TIMEOUT: Final = Cause("queue_timeout", 503, "No endpoint became free in time.", retry_after=True)
MEMORY: Final = Cause("memory", 503, "The proxy is short of memory.", retry_after=True)
CONNECTIONS: Final = Cause("max_connections", 503, "Too many connections.", close=True, retry_after=True)
DRAINED: Final = Cause("drain_cut", 503, "The proxy is going away.", close=True, retry_after=True)
SHORTAGE: Final = Cause("shortage", 503, "The proxy is short of resources.", retry_after=True)

CONNECT: Final = Cause(
    "connect_failure", 502, "The endpoint can't be reached.", kind=Kind.CONNECT, retry="ConnectFailure"
)
CONNECT_TIMEOUT: Final = Cause(
    "connect_timeout", 504, "The endpoint can't be reached in time.", kind=Kind.CONNECT, retry="ConnectFailure"
)
RESET: Final = Cause("reset", 502, "The endpoint closed the connection.", kind=Kind.RESET, retry="Reset")
BAD_RESPONSE: Final = Cause("malformed_response", 502, "The endpoint's answer is malformed.", kind=Kind.ERROR)
RESPONSE_TIMEOUT: Final = Cause(
    "response_timeout", 504, "The endpoint didn't answer in time.", kind=Kind.TIMEOUT, retry=504
)
TOTAL_TIMEOUT: Final = Cause("total_timeout", 504, "The request took too long.", kind=Kind.TIMEOUT)

# How an exchange ended when nothing of ours was answered: words for logs and metrics only.
CLIENT_LEFT: Final = "client_left"
CLIENT_SLOW: Final = "client_slow"
TRUNCATED: Final = "truncated"
CARRIED: Final = "carried"  # a TCP connection that its two ends have ended
SILENT: Final = "idle"  # a TCP connection without a byte for `tcpIdle`
CUT: Final = DRAINED.reason

REFUSALS: Final = {
    400: MALFORMED,
    403: _refusal(
        "unknown_service", 403, "This sidecar answers for its own services only, by http://NAME:PORT/ and longer names."
    ),
    413: BODY_TOO_LARGE,
    414: _refusal("target_too_long", 414, "The request target is too long."),
    417: _refusal("unknown_expectation", 417, "The expectation can't be met."),
    431: _refusal("head_too_large", 431, "The request head is too large."),
    501: _refusal("not_implemented", 501, "The method or transfer coding is not implemented."),
    505: _refusal("version", 505, "The protocol version is not supported."),
}

# The proxy's own shortages are never the endpoint's fault, and no other endpoint would mend them.
SHORTAGES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL})


def of_connect(error: OSError) -> Cause:
    """What a failed connect means."""
    if isinstance(error, TimeoutError):
        return CONNECT_TIMEOUT
    return SHORTAGE if error.errno in SHORTAGES else CONNECT


def render(cause: Cause, request_id: bytes, date: bytes, *, close: bool, bodyless: bool, extra: bytes = b"") -> bytes:
    """The whole answer as bytes; `bodyless` answers a HEAD. `extra`: complete lines, each with its CRLF."""
    text = cause.text.encode() + b"\n" if cause.text else b""
    lines = [b"HTTP/1.1 %d %s" % (cause.status, HTTPStatus(cause.status).phrase.encode())]
    if text:
        lines.append(b"Content-Type: text/plain")
    lines += (b"Content-Length: %d" % len(text), b"Date: " + date, b"X-Request-Id: " + request_id)
    if cause.retry_after:
        lines.append(b"Retry-After: 1")
    if close:
        lines.append(b"Connection: close")
    return b"\r\n".join(lines) + b"\r\n" + extra + b"\r\n" + (b"" if bodyless else text)
