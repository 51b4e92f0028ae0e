"""Request targets: what goes upstream, byte for byte, and what is refused."""

from __future__ import annotations

from typing import NamedTuple


class Target(NamedTuple):
    method: bytes
    came: bytes
    goes: bytes
    host: bytes = b"a.example"

    def __str__(self) -> str:
        return f"{self.method.decode()} {self.came.decode('latin-1')[:40]}"


# Paths that are often decoded, requoted or normalised by mistake.
RAW = [
    b"/", b"//", b"///a//", b"/a/../b", b"/..", b"/.", b"/a/./b", b"/a/%2e%2e/b", b"/%2F", b"/%2f", b"/a%00b", b"/%zz",
    b"/%", b"/%4", b"/a;p=1;q", b"/a|b", b"/<a>", b"/{x}", b"/^", b"/`", b'/"', b"/\\..\\", b"/a?b", b"/?", b"/??",
    b"/?a=b&a=c", b"/?a=%20+b", b"/?a=/../", b"/a:b@c", b"/~a", b"/a,b", b"/$&'()*+!", b"/[::1]", b"//evil.example/x",
    b"/http://b/c", b"/a?http://b", b"/%c3%a4", b"/a=b", b"/*",
]  # fmt: skip

TARGETS = [
    *(Target(b"GET", raw, raw) for raw in RAW),
    Target(b"OPTIONS", b"*", b"*"),
    Target(b"OPTIONS", b"/a", b"/a"),
    Target(b"GET", b"http://b.example/x?y", b"/x?y", b"b.example"),
    Target(b"GET", b"http://b.example", b"/", b"b.example"),
    Target(b"GET", b"http://b.example?x=1", b"/?x=1", b"b.example"),
    Target(b"GET", b"HTTPS://B.example:8443//x", b"//x", b"B.example:8443"),
    Target(b"GET", b"http://[2001:db8::1]:80/", b"/", b"[2001:db8::1]:80"),
    Target(b"OPTIONS", b"http://b.example", b"*", b"b.example"),
    Target(b"OPTIONS", b"http://b.example/", b"/", b"b.example"),
    Target(b"OPTIONS", b"http://b.example?x", b"/?x", b"b.example"),
    Target(b"GET", b"http://b.example/a@b", b"/a@b", b"b.example"),
]

REFUSED = [
    (b"GET", target)
    for target in [
        b"*", b"a", b"a/b", b"?a", b"a.example:443", b"http:/a", b"http://", b"http:///a", b"http://u@b/", b"http://u:p@b/",
        b"http://b:x/", b"http://b:65536/", b"http://[::1/", b"ftp://b/", b"ws://b/", b"httpx://b/", b"http://b,c/", b"http://b\\c/",
        b"/a#b", b"#", b"/a\x00", b"/a\x01b", b"/a\x7f", b"/a\tb", b"/a b", b"/\xc3\xa4", b"/\xff", b"http://\xe4/", b"http://b|c/",
    ]
]  # fmt: skip
