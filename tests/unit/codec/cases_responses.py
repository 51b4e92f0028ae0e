"""Response heads: what a backend may send, and what is its fault (502)."""

from __future__ import annotations

from .cases import SERVED, Message, response

RESPONSES = [
    Message("length and chunked", response(b"Content-Length: 3", b"Transfer-Encoding: chunked"), 502),
    Message("chunked and length", response(b"Transfer-Encoding: chunked", b"Content-Length: 3"), 502),
    Message("two equal lengths", response(b"Content-Length: 3", b"Content-Length: 3"), 502),
    Message("two lengths", response(b"Content-Length: 3", b"Content-Length: 4"), 502),
    *(
        Message(f"length {value!r}", response(b"Content-Length: " + value), 502)
        for value in [b"3, 3", b"+3", b"-1", b"0x3", b"", b"9223372036854775808", b"18446744073709551616"]
    ),
    *(
        Message(f"coding {value!r}", response(b"Transfer-Encoding: " + value), 502)
        for value in [b"gzip", b"gzip, chunked", b"identity", b"chunked, chunked", b"chunked;q=1", b"", b"xchunked"]
    ),
    Message("Chunked", response(b"Transfer-Encoding: Chunked"), SERVED),
    Message("chunked twice", response(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"), 502),
    Message("chunked in 1.0", response(b"Transfer-Encoding: chunked", start=b"HTTP/1.0 200 OK"), 502),
    Message("bare LF behind the status line", b"HTTP/1.1 200 OK\nX: y\r\n\r\n", 502),
    Message("bare LF behind a field", b"HTTP/1.1 200 OK\r\nX: y\n\r\n", 502),
    Message("bare LF at the end", b"HTTP/1.1 200 OK\r\nX: y\r\n\n", 502),
    Message("folded line", response(b"X: a", b" b"), 502),
    Message("NUL in a value", response(b"X: a\x00b"), 502),
    Message("NUL in the reason", response(start=b"HTTP/1.1 200 O\x00K"), 502),
    Message("blank behind a name", response(b"X : a"), 502),
    Message("blank behind the length's name", response(b"Content-Length : 3"), 502),
    *(
        Message(f"start {start!r}", response(start=start), status)
        for start, status in [
            (b"HTTP/0.9 200 OK", 502), (b"HTTP/2.0 200 OK", 502), (b"HTTP/1.2 200 OK", 502), (b"http/1.1 200 OK", 502),
            (b"HTTP/1.1 099 x", 502), (b"HTTP/1.1 000 x", 502), (b"HTTP/1.1 20 OK", 502), (b"HTTP/1.1 2000 OK", 502),
            (b"HTTP/1.1 +20 OK", 502), (b"HTTP/1.1  200 OK", 502), (b"HTTP/1.1 2x0 OK", 502), (b"HTTP/1.1", 502),
            (b"HTTP/1.1 200\tOK", 502), (b" HTTP/1.1 200 OK", 502), (b"ICY 200 OK", 502), (b"", 502),
            (b"HTTP/1.0 200 OK", SERVED), (b"HTTP/1.1 600 x", SERVED), (b"HTTP/1.1 999 x", SERVED),
            (b"HTTP/1.1 200", SERVED), (b"HTTP/1.1 200 ", SERVED), (b"HTTP/1.1 200 \xe9\xff\t!", SERVED),
            (b"HTTP/1.1 100 Continue", SERVED), (b"HTTP/1.1 103 Early Hints", SERVED),
        ]
    ),
    Message("unasked 101", response(b"Connection: Upgrade", b"Upgrade: x", start=b"HTTP/1.1 101 S"), 502),
    Message("underscored coding", response(b"Transfer_Encoding: chunked"), SERVED),
    Message("two cookies", response(b"Set-Cookie: a=1", b"Set-Cookie: b=2"), SERVED),
]  # fmt: skip

# Answers to a request that asked for an upgrade to `websocket`.
UPGRADES = [
    Message("accepted", response(b"Connection: Upgrade", b"Upgrade: websocket", start=b"HTTP/1.1 101 S"), SERVED),
    Message(
        "in other case", response(b"connection: x, UPGRADE", b"UPGRADE: WebSocket", start=b"HTTP/1.1 101 S"), SERVED
    ),
    Message("without Connection", response(b"Upgrade: websocket", start=b"HTTP/1.1 101 S"), 502),
    Message("without Upgrade", response(b"Connection: Upgrade", start=b"HTTP/1.1 101 S"), 502),
    Message("in 1.0", response(b"Connection: Upgrade", b"Upgrade: websocket", start=b"HTTP/1.0 101 S"), 502),
    Message("refused", response(b"Content-Length: 0", start=b"HTTP/1.1 403 Forbidden"), SERVED),
]
