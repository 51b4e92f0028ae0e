"""The codec beside llhttp: what both serve they read alike, and each difference is a rule that we can name."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable

from hypothesis import example, given, settings
from hypothesis import strategies as st

from controller.proxy.codec import Body, Limits, Refused, ResponseHead
from tests.unit.codec.cases_chunked import CHUNKED
from tests.unit.codec.cases_smuggling import REQUESTS
from tests.unit.codec.llhttp import Seen
from tests.unit.codec.reading import (
    CHUNKED_POST,
    GET,
    carry,
    forwarded,
    lines_of,
    read_request,
    read_response,
    request_of,
    unchunked,
)

MANY = 200  # of each kind; thousands were run when the codec was written
METHODS = b"GET POST PUT HEAD OPTIONS DELETE TRACE PATCH PROPFIND M-SEARCH get FOO".split()
TARGETS = [*b"/ /a?b=c * http://b/ http://u@b/ /%zz /| /# /\xff a:1 //".split(), b"/a b", b""]
VERSIONS = b"HTTP/1.1 HTTP/1.1 HTTP/1.1 HTTP/1.1 HTTP/1.0 HTTP/0.9 HTTP/2.0 HTTP/1.2 RTSP/1.0 ICE/1.0 http/1.1".split()
LINES = [
    b"Host: a", b"Host: b", b"Host:", b"Content-Length: 3", b"Content-Length: 0", b"Content-Length: 3 ",
    b"Content-Length: +3", b"Content-Length: 9223372036854775808", b"Content_Length: 3", b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding: gzip", b"Transfer-Encoding: Chunked ",
    b"Transfer-Encoding: xchunked", b"Transfer_Encoding: chunked", b"Connection: close", b"Connection: keep-alive",
    b"Connection: Upgrade", b"Connection: x-a", b"Upgrade: websocket", b"Upgrade: h2c", b"Expect: 100-continue",
    b"Expect: x", b"TE: trailers", b"X-A: 1", b"x-a:  2\t", b"X-B:", b"X-C: \xe9\xff", b"X_D: 3", b": x", b"X-E : 4",
    b" X-F: 5", b"X-G", b"X-H: a\rb", b"X-I: a\x00b", b"X-J: a\x0bb", b"Trailer: X-A", b"Proxy-Connection: close",
]  # fmt: skip
ENDS = [b"\r\n"] * 40 + [b"\n", b"\r", b"\r\r\n", b"\n\r"]
BODIES = [
    b"",
    b"abc",
    b"3\r\nabc\r\n0\r\n\r\n",
    b"0\r\n\r\n",
    b"3;a=b\r\nabc\r\n0\r\nX-T: 1\r\n\r\n",
    b"3\nabc\r\n0\r\n\r\n",
    b"0x3\r\nabc\r\n0\r\n\r\n",
]
STATUS_LINES = [*[b"HTTP/1.1 200 OK"] * 5, b"HTTP/1.0 200 OK", b"HTTP/1.1 404", b"HTTP/1.1 099 x", b"HTTP/2.0 200 OK"]


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """Mostly sound requests out of odd parts, at times with a byte changed, put in or taken out."""
    start = b" ".join([draw(st.sampled_from(METHODS)), draw(st.sampled_from(TARGETS)), draw(st.sampled_from(VERSIONS))])
    lines = draw(st.lists(st.sampled_from(LINES), max_size=6))
    if draw(st.integers(0, 4)):
        lines.insert(0, b"Host: a")
    raw = b"".join(line + draw(st.sampled_from(ENDS)) for line in [start, *lines, b""])
    return mutated(draw, raw + draw(st.sampled_from(BODIES)))


@st.composite
def chunked_bodies(draw: st.DrawFn) -> bytes:
    bodies = draw(st.lists(st.sampled_from(CHUNKED), min_size=1, max_size=2))
    return mutated(draw, b"".join(case.raw for case in bodies))


@st.composite
def responses(draw: st.DrawFn) -> bytes:
    start = draw(st.sampled_from(STATUS_LINES))
    lines = [line for line in draw(st.lists(st.sampled_from(LINES), max_size=6)) if not line.startswith(b"Upgrade")]
    raw = b"".join(line + draw(st.sampled_from(ENDS)) for line in [start, *lines, b""])
    return mutated(draw, raw + draw(st.sampled_from(BODIES)))


def mutated(draw: st.DrawFn, raw: bytes) -> bytes:
    if raw and not draw(st.integers(0, 3)):
        at = draw(st.integers(0, len(raw) - 1))
        byte = draw(st.binary(max_size=1))
        raw = raw[:at] + byte + raw[at + draw(st.integers(0, 1)) :]
    return raw


def first_line(raw: bytes) -> bytes:
    return raw.lstrip(b"\r\n").split(b"\r\n")[0]


def is_host(value: bytes) -> bool:
    name = re.fullmatch(r"(?a:[\w.~-]+|\[([^%\]]+)\])(?::([0-9]{1,5}))?", value.decode("latin-1"))
    if name is None or int(name[2] or 0) > 65535:
        return False
    try:
        return name[1] is None or bool(ipaddress.IPv6Address(name[1]))
    except ValueError:
        return False


# Why we refuse what llhttp serves: each reason with a test of the message that doesn't ask the codec.
STRICTER: dict[str, Callable[[bytes, Seen], bool]] = {
    "no host": lambda _, seen: not seen.values(b"host"),
    "two hosts": lambda _, seen: len(seen.values(b"host")) > 1,
    "host": lambda _, seen: not is_host(seen.values(b"host")[0]),
    "transfer-coding": lambda _, seen: b"," in b",".join(seen.values(b"transfer-encoding")),
    "transfer-encoding": lambda _, seen: b",".join(seen.values(b"transfer-encoding")).lower() != b"chunked",
    "transfer-encoding in 1.0": lambda _, seen: seen.version == "1.0",
    "content-length": lambda _, seen: int(seen.values(b"content-length")[0]) >= 1 << 63,
    "underscored framing name": lambda _, seen: any(
        name.lower() in (b"content_length", b"transfer_encoding") for name, _ in seen.fields
    ),
    "expectation": lambda _, seen: seen.values(b"expect") != [b"100-continue"],
    "trace with a body": lambda _, seen: seen.method == b"TRACE",
    "version": lambda raw, _: not re.search(rb" HTTP/1\.[01]$", first_line(raw)),
    "no version": lambda raw, _: b" HTTP/" not in first_line(raw),
    "target": lambda raw, seen: not re.fullmatch(rb"/[!\"$-~]*|https?://[a-z]/", seen.target),
    "connect": lambda _, seen: seen.method == b"CONNECT",
    "unknown method": lambda _, seen: seen.method in (b"CONNECT", b"SOURCE", b"PRI", b"DESCRIBE"),
    "method": lambda raw, _: raw[:1] in b"\r\n",
    "line end": lambda raw, _: raw[:1] in b"\r\n",
}


@settings(max_examples=MANY, deadline=None)
@given(requests())
def test_requests_that_both_serve_are_read_alike(raw: bytes) -> None:
    compare_request(raw)


def test_the_smuggling_table_is_read_alike_or_for_a_reason() -> None:
    for case in REQUESTS:
        compare_request(case.raw)


def compare_request(raw: bytes) -> None:
    seen = Seen(raw)
    head, rest = read_request([raw])
    if isinstance(head, Refused):
        if seen.served:
            assert STRICTER[head.reason](raw, seen), (head, raw, seen.__dict__)
        return
    if head is None:
        assert not seen.served, raw
        return
    assert seen.head_complete, (raw, seen.error)
    assert head.method == seen.method
    assert head.target == seen.target or seen.target.startswith(b"http")
    assert head.version == int(seen.version.replace(".", ""))
    for name, _ in seen.fields:
        assert head.field(name) == seen.values(name.lower())[0]
    kept = [line for line in lines_of(forwarded(head)) if line[:3].lower() == b"x-a"]
    dropped = b"x-a" in b",".join(seen.values(b"connection")).lower()
    assert kept == (
        [] if dropped else [name + b": " + value.strip(b" \t") for name, value in seen.fields if name.lower() == b"x-a"]
    )
    body = Body(head, None, Limits())
    compare_body(head.length, body, rest, seen)


def compare_body(length: int, body: Body, rest: bytes, seen: Seen) -> None:
    if body.ended:
        assert seen.body == b""
        return
    out, payload, end, _ = carry(body, [rest])
    if length == -1 and end is True:
        out = b"".join(unchunked(out)[0])
    if end is True:
        assert seen.complete, seen.error
        assert (out, payload) == (seen.body, len(seen.body))
    elif end is False:
        assert not seen.complete


# What llhttp serves of a response's head and we don't: codings, versions and lengths that can't be trusted.
STRICTER_OF_RESPONSES = {
    "transfer-encoding",
    "transfer-coding",
    "transfer-encoding in 1.0",
    "content-length",
    "status",
    "reason",
    "version",
}


# llhttp allows these in an extension, which we drop: a blank, and what a token can't hold.
def in_extension(raw: bytes) -> bool:
    return re.search(rb"[0-9a-fA-F];[^\r\n]*\r\n", raw) is not None


@settings(max_examples=MANY, deadline=None)
@given(chunked_bodies())
@example(b"3;a=b\r\nabc\r\n0\r\n\r\n")
def test_chunks_that_both_serve_are_read_alike(raw: bytes) -> None:
    compare_chunks(raw)


def test_the_chunk_table_is_read_alike_or_for_a_reason() -> None:
    for case in CHUNKED:
        compare_chunks(case.raw)


def compare_chunks(raw: bytes) -> None:
    seen = Seen(CHUNKED_POST + raw)
    out, payload, end, _ = carry(Body(request_of(CHUNKED_POST), None, Limits()), [raw])
    if end is True:
        assert seen.complete, seen.error
        assert (b"".join(unchunked(out)[0]), payload) == (seen.body, len(seen.body))
    elif isinstance(end, Refused) and seen.complete:
        if end.reason == "framing in trailers":
            assert re.search(rb"(?i)content_length|transfer_encoding", raw)
        else:
            assert in_extension(raw), (raw, end)
    elif end is False:
        assert not seen.complete


@settings(max_examples=MANY, deadline=None)
@given(responses())
def test_responses_that_both_serve_are_read_alike(raw: bytes) -> None:
    seen = Seen(raw, response=True)
    asked = request_of(GET)
    head, rest = read_response([raw], asked)
    if isinstance(head, Refused):
        assert not seen.head_complete or head.reason in STRICTER_OF_RESPONSES, (raw, head)
    if not isinstance(head, ResponseHead):
        return
    assert seen.head_complete, (raw, seen.error)
    assert head.status == seen.status
    for name, _ in seen.fields:
        assert head.field(name) == seen.values(name.lower())[0]
    if head.length != -2:
        compare_body(head.length, Body(head, None, Limits()), rest, seen)
