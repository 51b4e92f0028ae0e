"""Chunked bodies: payload and trailers that pass, or the refusal."""

from __future__ import annotations

from typing import NamedTuple


class Chunked(NamedTuple):
    name: str
    raw: bytes
    payload: bytes = b""
    trailers: bytes = b""
    refused: bool = False

    def __str__(self) -> str:
        return self.name


END = b"0\r\n\r\n"

CHUNKED = [
    Chunked("nothing", END),
    Chunked("one chunk", b"3\r\nabc\r\n" + END, b"abc"),
    Chunked("two chunks", b"3\r\nabc\r\n2\r\nde\r\n" + END, b"abcde"),
    Chunked("size in either case", b"a\r\n0123456789\r\nA\r\n0123456789\r\n" + END, b"0123456789" * 2),
    Chunked("zeros before a size", b"00000000000000000000003\r\nabc\r\n000\r\n\r\n", b"abc"),
    Chunked("CRLF as data", b"4\r\n\r\n\r\n\r\n" + END, b"\r\n\r\n"),
    Chunked("a chunked message as data", b"5\r\n" + END + b"\r\n" + END, END),
    Chunked("extension", b"3;a=b\r\nabc\r\n0;c\r\n\r\n", b"abc"),
    Chunked("quoted extension", b'3;a="b;\\"c d"\r\nabc\r\n' + END, b"abc"),
    Chunked("several extensions", b"3;a;b=c;d\r\nabc\r\n" + END, b"abc"),
    Chunked("a trailer", b"0\r\nX-Sum: 1 \r\nx-sum:2\r\n\r\n", b"", b"X-Sum: 1\r\nx-sum: 2\r\n"),
    *(
        Chunked(f"trailer {line!r} is dropped", b"0\r\n" + line + b"\r\nX: y\r\n\r\n", b"", b"X: y\r\n")
        for line in [
            b"Host: b",
            b"Connection: close",
            b"Keep-Alive: x",
            b"TE: x",
            b"Trailer: x",
            b"Upgrade: x",
            b"Set-Cookie: a=b",
            b"Cookie: a=b",
            b"Authorization: x",
            b"Proxy-Authorization: x",
            b"WWW-Authenticate: x",
            b"Content-Type: a/b",
            b"Content-Encoding: gzip",
            b"X-Forwarded-For: 1.2.3.4",
            b"x_forwarded_for: 1.2.3.4",
            b"Forwarded: for=x",
            b"Steelyard-Hop: x",
            b"X-Request-Id: x",
            b"Expect: 100-continue",
            b"Max-Forwards: 1",
            b"Via: x",
        ]
    ),
    *(
        Chunked(f"refused: {name}", raw, refused=True)
        for name, raw in [
            ("size ended by LF", b"3\nabc\r\n" + END),
            ("size ended by CR", b"3\rabc\r\n" + END),
            ("0x3", b"0x3\r\nabc\r\n" + END),
            ("+3", b"+3\r\nabc\r\n" + END),
            ("-3", b"-3\r\nabc\r\n" + END),
            ("blank behind", b"3 \r\nabc\r\n" + END),
            ("blank before", b" 3\r\nabc\r\n" + END),
            ("tab behind", b"3\t\r\nabc\r\n" + END),
            ("no name behind ;", b"3;\r\nabc\r\n" + END),
            ("blank before ;", b"3 ;a\r\nabc\r\n" + END),
            ("no size", b"\r\nabc\r\n" + END),
            ("2^64", b"10000000000000000\r\nabc"),
            ("2^64 and more", b"fffffffffffffffff\r\nabc"),
            ("data too long", b"3\r\nabcd\r\n" + END),
            ("no CRLF behind the data", b"3\r\nabc3\r\nabc\r\n" + END),
            ("LF behind the data", b"3\r\nabc\n" + END),
            ("LF in an extension", b"3;a\nb\r\nabc\r\n" + END),
            ("NUL in an extension", b"3;a\x00\r\nabc\r\n" + END),
            ("LF in a quoted extension", b'3;a="\n"\r\nabc\r\n' + END),
            ("bare CR in an extension", b"3;a\rb\r\nabc\r\n" + END),
            ("last chunk ended by LF", b"0\n\r\n"),
            ("trailers ended by LF", b"0\r\n\n"),
            ("letter", b"g\r\n"),
            ("quoted size", b'"3"\r\nabc'),
            ("trailer length", b"0\r\nContent-Length: 3\r\n\r\n"),
            ("trailer coding", b"0\r\nTransfer-Encoding: chunked\r\n\r\n"),
            ("underscored trailer length", b"0\r\ncontent_length: 3\r\n\r\n"),
            ("folded trailer", b"0\r\nX: a\r\n b\r\n\r\n"),
            ("NUL in a trailer", b"0\r\nX: \x00\r\n\r\n"),
            ("no colon in a trailer", b"0\r\nX\r\n\r\n"),
            ("blank behind a trailer's name", b"0\r\nX : a\r\n\r\n"),
            ("a request as trailers", b"0\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"),
        ]
    ),
]
