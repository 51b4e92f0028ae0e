"""Request heads that two parsers might read differently, and the one reading or refusal that we give them."""

from __future__ import annotations

from .cases import SERVED, Message, request

LENGTHS = [
    Message("length and chunked", request(b"Content-Length: 3", b"Transfer-Encoding: chunked"), 400),
    Message("chunked and length", request(b"Transfer-Encoding: chunked", b"Content-Length: 3"), 400),
    Message("two equal lengths", request(b"Content-Length: 3", b"Content-Length: 3"), 400),
    Message("two lengths", request(b"Content-Length: 3", b"content-length: 4"), 400),
    *(
        Message(f"length {value!r}", request(b"Content-Length: " + value), 400)
        for value in [
            b"3, 3", b"3,3", b"+3", b"-1", b"0x3", b"", b"3 3", b"3;", b"\xb2", b"1e3", b"3.0", b"NaN", b"1_000",
            b"18446744073709551616", b"18446744073709551615", b"9223372036854775808", b"9" * 400,
        ]
    ),
    Message("length with a blank behind", request(b"Content-Length: 3 "), SERVED),
    Message("length without a blank before", request(b"Content-Length:3"), SERVED),
    Message("length with zeros before", request(b"Content-Length: 003"), SERVED),
    Message("length 2^63-1", request(b"Content-Length: 9223372036854775807"), SERVED),
    Message("underscored length", request(b"Content_Length: 3"), 400),
    Message("underscored coding", request(b"Transfer_Encoding: chunked"), 400),
    Message("underscored coding in capitals", request(b"TRANSFER_ENCODING: chunked"), 400),
]  # fmt: skip

CODINGS = [
    *(
        Message(f"coding {value!r}", request(b"Transfer-Encoding: " + value), 400)
        for value in [
            b"xchunked", b"identity", b"gzip", b"chunked;q=1", b'"chunked"', b"\x0bchunked", b"chunked,",
            b"chunked, chunked", b"", b",chunked", b"chunked, gzip", b"chunked\x00", b"chunked\x0b", b"chu nked",
            b"chunked;", b"x", b"\xa0chunked", b"chunked, identity", b"gzip,, chunked",
        ]
    ),
    Message("chunked on two lines", request(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"), 400),
    Message("chunked, then gzip on a line", request(b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip"), 400),
    Message("an empty line, then chunked", request(b"Transfer-Encoding:", b"Transfer-Encoding: chunked"), 400),
    Message("gzip, chunked", request(b"Transfer-Encoding: gzip, chunked"), 501),
    Message("identity, chunked", request(b"Transfer-Encoding: identity, chunked"), 501),
    Message("gzip, then chunked on a line", request(b"Transfer-Encoding: gzip", b"Transfer-Encoding: chunked"), 501),
    Message("Chunked", request(b"Transfer-Encoding: Chunked"), SERVED),
    Message("chunked with a blank behind", request(b"Transfer-Encoding: chunked "), SERVED),
    Message("chunked with a tab before", request(b"Transfer-Encoding:\tchunked"), SERVED),
    Message("chunked in 1.0", request(b"Transfer-Encoding: chunked", start=b"POST / HTTP/1.0"), 400),
    Message("gzip, chunked in 1.0", request(b"Transfer-Encoding: gzip, chunked", start=b"POST / HTTP/1.0"), 400),
    Message("blank behind the coding's name", request(b"Transfer-Encoding : chunked"), 400),
    Message("tab behind the coding's name", request(b"Transfer-Encoding\t: chunked"), 400),
    Message("blank before the coding's name", request(b"X: y", b" Transfer-Encoding: chunked"), 400),
    Message("folded coding", request(b"Transfer-Encoding:", b" chunked"), 400),
]  # fmt: skip

LINES = [
    Message("folded line", request(b"X: a", b" b"), 400),
    Message("line folded by a tab", request(b"X: a", b"\tb"), 400),
    Message("blank at the first line's start", b"GET / HTTP/1.1\r\n Host: a\r\n\r\n", 400),
    Message("bare LF behind the request line", b"GET / HTTP/1.1\nHost: a\r\n\r\n", 400),
    Message("bare LF behind a field", b"GET / HTTP/1.1\r\nHost: a\n\r\n", 400),
    Message("bare LF at the end", b"GET / HTTP/1.1\r\nHost: a\r\n\n", 400),
    Message("bare CR behind the request line", b"GET / HTTP/1.1\rHost: a\r\n\r\n", 400),
    Message("bare CR in a value", request(b"X: a\rb"), 400),
    Message("two CRs", request(b"X: a\r"), 400),
    Message("bare CR at the end", b"GET / HTTP/1.1\r\nHost: a\r\n\rX", 400),
    *(
        Message(f"byte {byte:#04x} in a value", request(b"X: a%cb" % byte), 400)
        for byte in [0, 1, 8, 11, 12, 27, 31, 127]
    ),
    Message("empty name", request(b": a"), 400),
    Message("no colon", request(b"X"), 400),
    Message("blank in a name", request(b"X Y: a"), 400),
    *(Message(f"{chr(byte)} in a name", request(b"X%cY: a" % byte), 400) for byte in b'()<>@,;\\"/[]?={}\x80\xff\x00'),
]  # fmt: skip

START_LINES = [
    Message("no version", b"GET /\r\nHost: a\r\n\r\n", 400),
    Message("no version, 0.9 style", b"GET /\r\n", 400),
    Message("no version, blank", b"GET / \r\n\r\n", 400),
    *(
        Message(f"version {version.decode()}", request(start=b"GET / " + version), status)
        for version, status in [
            (b"HTTP/0.9", 505), (b"HTTP/2.0", 505), (b"HTTP/3.0", 505), (b"HTTP/1.2", 400), (b"HTTP/1.10", 400),
            (b"http/1.1", 400), (b"Http/1.1", 400), (b"HTTP/1", 400), (b"HTTP/1.", 400), (b"HTTP/11", 400),
            (b"HTTP/01.1", 400), (b"HTTP/1.1 ", 400), (b"HTTP/1.1x", 400), (b"HTTP 1.1", 400), (b"XTTP/1.1", 400),
            (b"RTSP/1.0", 400), (b"HTTP/1,1", 400), (b"HTTP/+1.1", 400), (b"HTTP/1.1\t", 400),
        ]
    ),
    Message("HTTP/2 preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    Message("PRI in 1.1", request(start=b"PRI * HTTP/1.1"), 501),
    Message("unknown method", request(start=b"BREW / HTTP/1.1"), 501),
    Message("method in lower case", request(start=b"get / HTTP/1.1"), 501),
    Message("CONNECT", b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n\x16\x03", 501),
    Message("SOURCE", request(start=b"SOURCE / ICE/1.0"), 501),
    Message("DESCRIBE", request(start=b"DESCRIBE / RTSP/1.0"), 501),
    Message("TLS hello", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    Message("method with a slash", b"G/T / HTTP/1.1\r\n\r\n", 400),
    Message("no method", b" / HTTP/1.1\r\n\r\n", 400),
    Message("tab behind the method", b"GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    Message("tab behind the target", b"GET /\tHTTP/1.1\r\nHost: a\r\n\r\n", 400),
    Message("two blanks in the request line", request(start=b"GET  /  HTTP/1.1"), SERVED),
    Message("empty lines before", b"\r\n\r\n" + request(), SERVED),
    Message("bare LF before", b"\n" + request(), 400),
    Message("bare CR before", b"\r" + request(), 400),
    Message("TRACE with a body", request(b"Content-Length: 3", start=b"TRACE / HTTP/1.1"), 400),
    Message("TRACE with chunks", request(b"Transfer-Encoding: chunked", start=b"TRACE / HTTP/1.1"), 400),
    Message("TRACE", request(start=b"TRACE / HTTP/1.1"), SERVED),
    Message("GET with a body", request(b"Content-Length: 3", start=b"GET / HTTP/1.1"), SERVED),
    Message("1.0 without Host", request(start=b"GET / HTTP/1.0", host=b""), SERVED),
    Message("unknown expectation", request(b"Expect: 200-ok", b"Content-Length: 3"), 417),
    Message("two expectations", request(b"Expect: 100-continue, x", b"Content-Length: 3"), 417),
    Message("Expect in capitals", request(b"Expect: 100-CONTINUE", b"Content-Length: 3"), SERVED),
    Message("unknown expectation in 1.0", request(b"Expect: x", start=b"POST / HTTP/1.0"), SERVED),
]  # fmt: skip

# A Host with each of these values, in 1.1 and in 1.0.
GOOD_HOSTS = [
    b"a", b"a.example", b"A-b_c~d.9", b"a.example:80", b"a:0", b"a:65535", b"192.0.2.1", b"192.0.2.1:8080",
    b"[::1]", b"[2001:db8::1]:80", b"[::ffff:192.0.2.1]", b"a.example.",
]  # fmt: skip
BAD_HOSTS = [
    b"", b"a b", b"a,b", b"a/b", b"a@b", b"u:p@a", b"a:x", b"a:65536", b"a:", b"a:80:80", b"a:+80", b"a:000080", b":80",
    b"::1", b"[::1", b"[::1]x", b"[::1]:", b"[]", b"[1.2.3.4]", b"[fe80::1%eth0]", b"[v1.x]", b"a?b", b"a#b", b"a%20b",
    b"\xc3\xa4", b"a\\b", b"a;b", b"a'b", b"http://a", b"a\tb",
]  # fmt: skip

HOSTS = [
    Message("no Host", request(host=b""), 400),
    Message("two Hosts", request(b"Host: b"), 400),
    Message("two equal Hosts", request(b"Host: a.example"), 400),
    Message("two Hosts in 1.0", request(b"HOST: b", start=b"GET / HTTP/1.0"), 400),
    Message("blank behind Host's name", request(host=b"Host : a\r\n"), 400),
    *(Message(f"Host {host!r}", request(host=b"Host: " + host + b"\r\n"), SERVED) for host in GOOD_HOSTS),
    *(Message(f"Host {host!r}", request(host=b"Host: " + host + b"\r\n"), 400) for host in BAD_HOSTS),
    *(
        Message(f"Host {host!r} in 1.0", request(start=b"GET / HTTP/1.0", host=b"Host: " + host + b"\r\n"), 400)
        for host in BAD_HOSTS
    ),
]

REQUESTS = [*LENGTHS, *CODINGS, *LINES, *START_LINES, *HOSTS]
