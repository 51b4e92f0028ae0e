"""Fields that end at a proxy. Each case: the lines that come in, the version, and those of them that go out again."""

from __future__ import annotations

from typing import NamedTuple


class Hop(NamedTuple):
    name: str
    lines: list[bytes]
    passed: list[bytes]
    version: bytes = b"1.1"

    def __str__(self) -> str:
        return self.name


ALWAYS_DROPPED = [
    b"Keep-Alive: timeout=5",
    b"Proxy-Connection: keep-alive",
    b"Proxy-Authenticate: Basic",
    b"Proxy-Authorization: Basic eA==",
    b"TE: gzip",
    b"Trailer: X-Sum",
    b"Upgrade: x",
    b"X-Steelyard-Debug: key",  # the proxy's own: no backend may learn the key
]

# Named by Connection, and passed all the same: we or the backend rely on them.
PROTECTED = [
    b"Content-Type: a/b",
    b"Authorization: Basic eA==",
    b"Cookie: a=b",
    b"Set-Cookie: a=b",
    b"Via: 1.1 x",
    b"Steelyard-Hop: x",
    b"Traceparent: 00-1-2-00",
]

# What holds for requests and responses alike.
BOTH_WAYS = [
    *(Hop(f"{line.decode()} goes", [line, b"X: y"], [b"X: y"]) for line in ALWAYS_DROPPED),
    *(
        Hop(f"{line.decode()} stays though it is named", [b"Connection: " + line.split(b":")[0], line], [line])
        for line in PROTECTED
    ),
    Hop("a named field goes", [b"X-A: 1", b"Connection: x-a", b"X-B: 2"], [b"X-B: 2"]),
    Hop("all lines of a named field go", [b"X-A: 1", b"x-a: 2", b"Connection: X-A", b"X-A: 3"], []),
    Hop("lines of Connection are one list", [b"Connection: x-a", b"X-A: 1", b"connection: X-B ,", b"X-B: 2"], []),
    Hop("tokens are trimmed", [b"Connection: \t X-A\t , ,x-b", b"X-A: 1", b"X-B: 2", b"X-C: 3"], [b"X-C: 3"]),
    Hop("close beside a name", [b"Connection: close, X-A", b"X-A: 1"], []),
    Hop("keep-alive alone", [b"Connection: keep-alive", b"X-A: 1"], [b"X-A: 1"]),
    Hop("a name that isn't there", [b"Connection: x-z", b"X-A: 1"], [b"X-A: 1"]),
    Hop("a prefix is no name", [b"Connection: X-A", b"X-AB: 1", b"X-: 2"], [b"X-AB: 1", b"X-: 2"]),
    Hop(
        "many names",
        [b"Connection: " + b", ".join(b"x-%d" % n for n in range(2000)), b"X-7: 1", b"X-A: 2"],
        [b"X-A: 2"],
    ),
    Hop("Via passes", [b"Via: 1.1 x"], [b"Via: 1.1 x"]),
]

REQUESTS = [
    *BOTH_WAYS,
    Hop("TE: trailers is written anew", [b"TE: gzip, Trailers"], [b"Connection: TE", b"TE: trailers"]),
    Hop("TE, named as it should be", [b"Connection: TE", b"TE: trailers"], [b"Connection: TE", b"TE: trailers"]),
    Hop("TE on two lines", [b"TE: deflate", b"TE: trailers"], [b"Connection: TE", b"TE: trailers"]),
    Hop("TE of a 1.0 client", [b"TE: trailers"], [], b"1.0"),
    Hop("TE with a weight is another coding", [b"TE: trailers;q=0.5"], []),
    Hop(
        "upgrade",
        [b"Connection: keep-alive, UPGRADE", b"upgrade: WebSocket"],
        [b"Connection: Upgrade", b"Upgrade: WebSocket"],
    ),
    Hop(
        "upgrade with TE",
        [b"Connection: upgrade, te", b"Upgrade: a, b/1", b"TE: trailers"],
        [b"Connection: TE, Upgrade", b"TE: trailers", b"Upgrade: a, b/1"],
    ),
    Hop("upgrade that Connection doesn't name", [b"Upgrade: websocket"], []),
    Hop("upgrade of a 1.0 client", [b"Connection: upgrade", b"Upgrade: websocket"], [], b"1.0"),
    Hop(
        "upgrade with a body",
        [b"Connection: upgrade", b"Upgrade: websocket", b"Content-Length: 3"],
        [b"Content-Length: 3"],
    ),
    Hop(
        "upgrade with chunks",
        [b"Connection: upgrade", b"Upgrade: websocket", b"Transfer-Encoding: chunked"],
        [b"Transfer-Encoding: chunked"],
    ),
    Hop("h2c", [b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABkAAQA"], []),
    Hop("TLS", [b"Connection: Upgrade", b"Upgrade: TLS/1.0"], []),
    Hop("h2c among others", [b"Connection: Upgrade", b"Upgrade: H2C, x"], [b"Connection: Upgrade", b"Upgrade: x"]),
    Hop(
        "WebSocket's own fields pass untouched",
        [b"Connection: Upgrade", b"Sec-WebSocket-Key: dGhl==", b"Sec-WebSocket-Protocol: a, b", b"Upgrade: websocket"],
        [b"Sec-WebSocket-Key: dGhl==", b"Sec-WebSocket-Protocol: a, b", b"Connection: Upgrade", b"Upgrade: websocket"],
    ),
    Hop(
        "Trailer passes with chunks",
        [b"Trailer: X", b"Transfer-Encoding: Chunked"],
        [b"Trailer: X", b"Transfer-Encoding: chunked"],
    ),
    Hop("framing can't be named away", [b"Connection: Content-Length", b"Content-Length: 3"], [b"Content-Length: 3"]),
    Hop(
        "chunks can't be named away",
        [b"Connection: Transfer-Encoding", b"Transfer-Encoding: chunked"],
        [b"Transfer-Encoding: chunked"],
    ),
    Hop("Host can't be named away", [b"Connection: host"], []),
    Hop("Content-Length: 0 stays", [b"Content-Length: 0"], [b"Content-Length: 0"]),
    Hop(
        "Expect passes",
        [b"Expect: 100-continue", b"Content-Length: 3"],
        [b"Expect: 100-continue", b"Content-Length: 3"],
    ),
    Hop("Expect of a 1.0 client goes", [b"Expect: 100-continue", b"Content-Length: 3"], [b"Content-Length: 3"], b"1.0"),
    Hop(
        "underscored forwarding names go",
        [b"X_Forwarded_For: 1.2.3.4", b"x-forwarded_proto: https", b"X_Real_IP: 1.2.3.4"],
        [],
    ),
    Hop("underscored names of ours go", [b"X_Request_Id: a", b"STEELYARD_HOP: a", b"Proxy_Connection: x"], []),
    Hop("other underscored names pass", [b"X_A: 1"], [b"X_A: 1"]),
    Hop(
        "trace context passes",
        [b"traceparent: 00-a-b-01", b"tracestate: x=y", b"baggage: q"],
        [b"traceparent: 00-a-b-01", b"tracestate: x=y", b"baggage: q"],
    ),
]
