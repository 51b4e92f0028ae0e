"""A message fed in any pieces, and all that can be seen of it, for comparing one cut with another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from controller.proxy.codec import (
    Body,
    Complete,
    Forwarding,
    Limits,
    Refused,
    RequestHead,
    RequestReader,
    ResponseHead,
    ResponseReader,
)

FORWARDING = Forwarding(hop="store.shop.steelyard", port=80)
PEER = "192.0.2.7"
ID = b"our-id"
AUTHORITY = b"10.0.0.1:8080"
DATE = b"Sun, 29 Nov 2026 12:00:00 GMT"

GET = b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"
CHUNKED_POST = b"POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNKED_OK = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def cuts(raw: bytes) -> Iterator[list[bytes]]:
    """Whole, byte by byte, and in two pieces at every offset."""
    yield [raw]
    yield [raw[at : at + 1] for at in range(len(raw))]
    for at in range(1, len(raw)):
        yield [raw[:at], raw[at:]]


def read_request(pieces: Iterable[bytes], limits: Limits | None = None) -> tuple[RequestHead | Refused | None, bytes]:
    """The first head, or its refusal, and what followed it in all pieces."""
    reader = RequestReader(limits or Limits())
    pieces = iter(pieces)
    for piece in pieces:
        answer = reader.feed(piece)
        if isinstance(answer, RequestHead):
            return answer, answer.take_rest() + b"".join(pieces)
        if answer is not None:
            return answer, b""
    return None, b""


def read_response(
    pieces: Iterable[bytes], request: RequestHead, limits: Limits | None = None
) -> tuple[ResponseHead | Refused | None, bytes]:
    reader = ResponseReader(limits or Limits())
    pieces = iter(pieces)
    for piece in pieces:
        answer = reader.feed(piece, request)
        if isinstance(answer, ResponseHead):
            return answer, answer.take_rest() + b"".join(pieces)
        if answer is not None:
            return answer, b""
    return None, b""


def request_of(raw: bytes) -> RequestHead:
    head, _ = read_request([raw])
    assert isinstance(head, RequestHead), head
    return head


def response_of(raw: bytes, request: RequestHead | None = None) -> ResponseHead:
    head, _ = read_response([raw], request or request_of(GET))
    assert isinstance(head, ResponseHead), head
    return head


def forwarded(head: RequestHead) -> bytes:
    return head.forward(FORWARDING, PEER, ID, AUTHORITY)


def answered(head: ResponseHead, *, close: bool = False, extra: bytes = b"") -> bytes:
    return head.forward(close, ID, DATE, extra)


def lines_of(head: bytes) -> list[bytes]:
    """The field lines of a head on the wire."""
    assert head.endswith(b"\r\n\r\n"), head
    return head[:-4].split(b"\r\n")[1:]


def carry(body: Body, pieces: Iterable[bytes], *, clean: bool = True) -> tuple[bytes, int, bool | Refused, bytes]:
    """-> (all that went out, payload bytes, complete or the refusal, what followed)."""
    out, payload = b"", 0
    pieces = iter(pieces)
    for piece in pieces:
        fed = body.feed(piece)
        if isinstance(fed, Refused):
            return out, payload, fed, b""
        written, count, ended, rest = fed
        out, payload = out + written, payload + count
        if ended:
            return out, payload, True, rest + b"".join(pieces)
    ending = body.eof(clean)
    if isinstance(ending, Complete):
        return out + ending.out, payload, True, b""
    return out, payload, False, b""


def unchunked(raw: bytes) -> tuple[list[bytes], bytes]:
    """A strict reading of a chunked body without extensions: its chunks, and its trailer lines."""
    chunks = []
    while True:
        size, raw = raw.split(b"\r\n", 1)
        assert size.isalnum(), size
        assert size == size.lower(), size
        length = int(size, 16)
        if length == 0:
            assert raw.endswith(b"\r\n"), raw
            return chunks, raw[:-2]
        chunks.append(raw[:length])
        assert raw[length : length + 2] == b"\r\n", raw
        raw = raw[length + 2 :]
