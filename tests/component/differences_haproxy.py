"""Where HAProxy 2.6 of Debian 12 and we differ over our tables, and what the RFCs say to it. A table, hence long."""

from __future__ import annotations

from tests.component.differences import Difference, Group

HAPROXY = (
    Group(
        "either",
        (
            "RFC 9112 §6.3: Transfer-Encoding wins over Content-Length and the latter MUST go, or the message is"
            " refused: it ought to be handled as an error."
        ),
        (
            Difference(
                "length and chunked", "refused", "POST / HTTP/1.1 | host: a.example | transfer-encoding: chunked"
            ),
            Difference(
                "chunked and length", "refused", "POST / HTTP/1.1 | host: a.example | transfer-encoding: chunked"
            ),
        ),
    ),
    Group(
        "either",
        ("RFC 9110 §8.6: a repeated equal length is refused or made one."),
        (
            Difference("two equal lengths", "refused", "POST / HTTP/1.1 | content-length: 3 | host: a.example"),
            Difference("length b'3, 3'", "refused", "POST / HTTP/1.1 | content-length: 3 | host: a.example"),
            Difference("length b'3,3'", "refused", "POST / HTTP/1.1 | content-length: 3 | host: a.example"),
        ),
    ),
    Group(
        "either",
        ("RFC 9110 §8.6: any length is valid, and overflows MUST be prevented; none that large was ever sent."),
        (
            Difference(
                "length b'18446744073709551616'",
                "refused",
                "POST / HTTP/1.1 | content-length: 18446744073709551616 | host: a.example",
            ),
            Difference(
                "length b'18446744073709551615'",
                "refused",
                "POST / HTTP/1.1 | content-length: 18446744073709551615 | host: a.example",
            ),
        ),
    ),
    Group(
        "either",
        ("RFC 9110 §8.6: leading zeros change nothing. We write the number anew."),
        (
            Difference(
                "length with zeros before",
                "POST / HTTP/1.1 | content-length: 3 | host: a.example",
                "POST / HTTP/1.1 | content-length: 003 | host: a.example",
            ),
        ),
    ),
    Group(
        "theirs",
        (
            "RFC 9110 §5.6.2: it is another, harmless name. CGI-style backends read `_` as `-`, so it is refused"
            " here; nginx drops the line."
        ),
        (
            Difference("underscored length", "refused", "POST / HTTP/1.1 | host: a.example"),
            Difference("underscored coding", "refused", "POST / HTTP/1.1 | host: a.example"),
            Difference("underscored coding in capitals", "refused", "POST / HTTP/1.1 | host: a.example"),
        ),
    ),
    Group(
        "theirs",
        ("RFC 9110 §5.6.1.2: empty list elements are ignored. Parsers of framing differ in them: refused here."),
        (
            Difference(
                "coding b'chunked,'", "refused", "POST / HTTP/1.1 | host: a.example | transfer-encoding: chunked,"
            ),
            Difference(
                "an empty line, then chunked",
                "refused",
                "POST / HTTP/1.1 | host: a.example | transfer-encoding:  | transfer-encoding: chunked",
            ),
        ),
    ),
    Group(
        "ours",
        ("RFC 9112 §6.1: Transfer-Encoding in a 1.0 message MUST be handled as faulty framing."),
        (Difference("chunked in 1.0", "refused", "POST / HTTP/1.0 | host: a.example | transfer-encoding: chunked"),),
    ),
    Group(
        "either",
        ("RFC 9112 §5.2: folding MUST be refused or replaced by blanks."),
        (
            Difference("blank before the coding's name", "refused", "POST / HTTP/1.1 | host: a.example"),
            Difference("folded coding", "refused", "POST / HTTP/1.1 | host: a.example | transfer-encoding: chunked"),
            Difference("folded line", "refused", "POST / HTTP/1.1 | host: a.example"),
            Difference("line folded by a tab", "refused", "POST / HTTP/1.1 | host: a.example"),
        ),
    ),
    Group(
        "either",
        (
            "RFC 9112 §2.2: a recipient MAY take a bare LF for the end of a line. Two readings of one head are"
            " what smuggling lives on, so it is refused here."
        ),
        (
            Difference("bare LF behind the request line", "refused", "GET / HTTP/1.1 | host: a"),
            Difference("bare LF behind a field", "refused", "GET / HTTP/1.1 | host: a"),
            Difference("bare LF at the end", "refused", "GET / HTTP/1.1 | host: a"),
        ),
    ),
    Group(
        "ours",
        ("RFC 9110 §5.5: NUL in a value MUST be refused or replaced."),
        (Difference("byte 0x00 in a value", "refused", "POST / HTTP/1.1 | host: a.example"),),
    ),
    Group(
        "either",
        (
            "RFC 9110 §5.5: control bytes in a value are invalid, but MAY be kept where that is safe; a proxy"
            " can't know."
        ),
        (
            Difference("byte 0x01 in a value", "refused", "POST / HTTP/1.1 | host: a.example"),
            Difference("byte 0x08 in a value", "refused", "POST / HTTP/1.1 | host: a.example"),
            Difference("byte 0x0b in a value", "refused", "POST / HTTP/1.1 | host: a.example"),
            Difference("byte 0x0c in a value", "refused", "POST / HTTP/1.1 | host: a.example"),
            Difference("byte 0x1b in a value", "refused", "POST / HTTP/1.1 | host: a.example"),
            Difference("byte 0x1f in a value", "refused", "POST / HTTP/1.1 | host: a.example"),
            Difference("byte 0x7f in a value", "refused", "POST / HTTP/1.1 | host: a.example"),
        ),
    ),
    Group(
        "ours",
        ("RFC 9110 §15.6.6: another major version is answered 505."),
        (
            Difference("version HTTP/0.9", "refused", "GET / HTTP/0.9 | host: a.example"),
            Difference("version HTTP/2.0", "refused", "GET / HTTP/1.1 | host: a.example"),
            Difference("version HTTP/3.0", "refused", "GET / HTTP/1.1 | host: a.example"),
        ),
    ),
    Group(
        "theirs",
        (
            "RFC 9110 §2.5: a higher minor version SHOULD be read as the highest that is known. Nobody sends one;"
            " refused here, as by llhttp."
        ),
        (Difference("version HTTP/1.2", "refused", "GET / HTTP/1.1 | host: a.example"),),
    ),
    Group(
        "either",
        ("RFC 9110 §9.1, §15.6.2: methods are an open set, and one that isn't known may be answered 501."),
        (
            Difference("unknown method", "refused", "BREW / HTTP/1.1 | host: a.example"),
            Difference("method in lower case", "refused", "get / HTTP/1.1 | host: a.example"),
        ),
    ),
    Group(
        "either",
        ("RFC 9110 §9.3.6: CONNECT is for proxies that clients have chosen; elsewhere most refuse it."),
        (Difference("CONNECT", "refused", "CONNECT a:443 HTTP/1.1 | host: a"),),
    ),
    Group(
        "either",
        ("RFC 9112 §3: blanks MAY be read leniently, and trailing ones ignored."),
        (
            Difference("tab behind the method", "refused", "GET / HTTP/1.1 | host: a"),
            Difference("tab behind the target", "refused", "GET / HTTP/1.1 | host: a"),
        ),
    ),
    Group(
        "either",
        (
            "RFC 9112 §2.2: an empty line, CRLF, before a request SHOULD be ignored; a bare LF is none that a"
            " sender may write."
        ),
        (Difference("bare LF before", "refused", "POST / HTTP/1.1 | host: a.example"),),
    ),
    Group(
        "ours",
        ("RFC 9110 §9.3.8: a TRACE has no content."),
        (
            Difference("TRACE with a body", "refused", "TRACE / HTTP/1.1 | content-length: 3 | host: a.example"),
            Difference(
                "TRACE with chunks", "refused", "TRACE / HTTP/1.1 | host: a.example | transfer-encoding: chunked"
            ),
        ),
    ),
    Group(
        "either",
        ("RFC 9112 §3.2, §3.3: a 1.0 request needs no Host; its backend may be told our idea of it."),
        (Difference("1.0 without Host", "GET / HTTP/1.1 | host: 127.0.0.1:PORT", "GET / HTTP/1.0"),),
    ),
    Group(
        "either",
        ("RFC 9110 §10.1.1: an expectation that isn't known MAY be answered 417."),
        (
            Difference("unknown expectation", "refused", "POST / HTTP/1.1 | content-length: 3 | host: a.example"),
            Difference("two expectations", "refused", "POST / HTTP/1.1 | content-length: 3 | host: a.example"),
        ),
    ),
    Group(
        "ours",
        ("RFC 9110 §2.5, RFC 9112 §2.3: an intermediary sends its own version, not the client's."),
        (
            Difference(
                "unknown expectation in 1.0", "POST / HTTP/1.1 | host: a.example", "POST / HTTP/1.0 | host: a.example"
            ),
        ),
    ),
    Group(
        "ours",
        ("RFC 9112 §3.2: without Host, with two lines of it or with an invalid value a request MUST be answered 400."),
        (
            Difference("no Host", "refused", "POST / HTTP/1.1"),
            Difference("two equal Hosts", "refused", "POST / HTTP/1.1 | host: a.example"),
            Difference("Host b''", "refused", "POST / HTTP/1.1 | host: "),
            Difference("Host b'a b'", "refused", "POST / HTTP/1.1 | host: a b"),
            Difference("Host b'a/b'", "refused", "POST / HTTP/1.1 | host: a/b"),
            Difference("Host b'a@b'", "refused", "POST / HTTP/1.1 | host: a@b"),
            Difference("Host b'u:p@a'", "refused", "POST / HTTP/1.1 | host: u:p@a"),
            Difference("Host b'a:x'", "refused", "POST / HTTP/1.1 | host: a:x"),
            Difference("Host b'a:80:80'", "refused", "POST / HTTP/1.1 | host: a:80:80"),
            Difference("Host b'a:+80'", "refused", "POST / HTTP/1.1 | host: a:+80"),
            Difference("Host b':80'", "refused", "POST / HTTP/1.1 | host: :80"),
            Difference("Host b'::1'", "refused", "POST / HTTP/1.1 | host: ::1"),
            Difference("Host b'[::1'", "refused", "POST / HTTP/1.1 | host: [::1"),
            Difference("Host b'[::1]x'", "refused", "POST / HTTP/1.1 | host: [::1]x"),
            Difference("Host b'[]'", "refused", "POST / HTTP/1.1 | host: []"),
            Difference("Host b'[1.2.3.4]'", "refused", "POST / HTTP/1.1 | host: [1.2.3.4]"),
            Difference("Host b'[fe80::1%eth0]'", "refused", "POST / HTTP/1.1 | host: [fe80::1%eth0]"),
            Difference("Host b'a?b'", "refused", "POST / HTTP/1.1 | host: a?b"),
            Difference("Host b'a#b'", "refused", "POST / HTTP/1.1 | host: a#b"),
            Difference("Host b'\\xc3\\xa4'", "refused", "POST / HTTP/1.1 | host: Ã¤"),
            Difference("Host b'a\\\\b'", "refused", "POST / HTTP/1.1 | host: a\\b"),
            Difference("Host b'http://a'", "refused", "POST / HTTP/1.1 | host: http://a"),
            Difference("Host b'a\\tb'", "refused", "POST / HTTP/1.1 | host: a\tb"),
            Difference("Host b'' in 1.0", "refused", "GET / HTTP/1.0 | host: "),
            Difference("Host b'a b' in 1.0", "refused", "GET / HTTP/1.0 | host: a b"),
            Difference("Host b'a/b' in 1.0", "refused", "GET / HTTP/1.0 | host: a/b"),
            Difference("Host b'a@b' in 1.0", "refused", "GET / HTTP/1.0 | host: a@b"),
            Difference("Host b'u:p@a' in 1.0", "refused", "GET / HTTP/1.0 | host: u:p@a"),
            Difference("Host b'a:x' in 1.0", "refused", "GET / HTTP/1.0 | host: a:x"),
            Difference("Host b'a:80:80' in 1.0", "refused", "GET / HTTP/1.0 | host: a:80:80"),
            Difference("Host b'a:+80' in 1.0", "refused", "GET / HTTP/1.0 | host: a:+80"),
            Difference("Host b':80' in 1.0", "refused", "GET / HTTP/1.0 | host: :80"),
            Difference("Host b'::1' in 1.0", "refused", "GET / HTTP/1.0 | host: ::1"),
            Difference("Host b'[::1' in 1.0", "refused", "GET / HTTP/1.0 | host: [::1"),
            Difference("Host b'[::1]x' in 1.0", "refused", "GET / HTTP/1.0 | host: [::1]x"),
            Difference("Host b'[]' in 1.0", "refused", "GET / HTTP/1.0 | host: []"),
            Difference("Host b'[1.2.3.4]' in 1.0", "refused", "GET / HTTP/1.0 | host: [1.2.3.4]"),
            Difference("Host b'[fe80::1%eth0]' in 1.0", "refused", "GET / HTTP/1.0 | host: [fe80::1%eth0]"),
            Difference("Host b'a?b' in 1.0", "refused", "GET / HTTP/1.0 | host: a?b"),
            Difference("Host b'a#b' in 1.0", "refused", "GET / HTTP/1.0 | host: a#b"),
            Difference("Host b'\\xc3\\xa4' in 1.0", "refused", "GET / HTTP/1.0 | host: Ã¤"),
            Difference("Host b'a\\\\b' in 1.0", "refused", "GET / HTTP/1.0 | host: a\\b"),
            Difference("Host b'http://a' in 1.0", "refused", "GET / HTTP/1.0 | host: http://a"),
            Difference("Host b'a\\tb' in 1.0", "refused", "GET / HTTP/1.0 | host: a\tb"),
        ),
    ),
    Group(
        "theirs",
        (
            "RFC 3986 §3.2.2, §3.2.3 allow it: sub-delimiters, an empty or a long port, IPvFuture. No DNS name"
            " has it, and what backends make of it differs: refused here."
        ),
        (
            Difference("Host b'a,b'", "refused", "POST / HTTP/1.1 | host: a,b"),
            Difference("Host b'a:65536'", "refused", "POST / HTTP/1.1 | host: a:65536"),
            Difference("Host b'a:'", "refused", "POST / HTTP/1.1 | host: a:"),
            Difference("Host b'a:000080'", "refused", "POST / HTTP/1.1 | host: a:000080"),
            Difference("Host b'[::1]:'", "refused", "POST / HTTP/1.1 | host: [::1]:"),
            Difference("Host b'[v1.x]'", "refused", "POST / HTTP/1.1 | host: [v1.x]"),
            Difference("Host b'a%20b'", "refused", "POST / HTTP/1.1 | host: a%20b"),
            Difference("Host b'a;b'", "refused", "POST / HTTP/1.1 | host: a;b"),
            Difference('Host b"a\'b"', "refused", "POST / HTTP/1.1 | host: a'b"),
            Difference("Host b'a,b' in 1.0", "refused", "GET / HTTP/1.0 | host: a,b"),
            Difference("Host b'a:65536' in 1.0", "refused", "GET / HTTP/1.0 | host: a:65536"),
            Difference("Host b'a:' in 1.0", "refused", "GET / HTTP/1.0 | host: a:"),
            Difference("Host b'a:000080' in 1.0", "refused", "GET / HTTP/1.0 | host: a:000080"),
            Difference("Host b'[::1]:' in 1.0", "refused", "GET / HTTP/1.0 | host: [::1]:"),
            Difference("Host b'[v1.x]' in 1.0", "refused", "GET / HTTP/1.0 | host: [v1.x]"),
            Difference("Host b'a%20b' in 1.0", "refused", "GET / HTTP/1.0 | host: a%20b"),
            Difference("Host b'a;b' in 1.0", "refused", "GET / HTTP/1.0 | host: a;b"),
            Difference('Host b"a\'b" in 1.0', "refused", "GET / HTTP/1.0 | host: a'b"),
        ),
    ),
    Group(
        "ours",
        ("RFC 9112 §3.2.4: `*` is for OPTIONS, and only there; an intermediary passes it on."),
        (Difference("GET b'*'", "refused", "GET * HTTP/1.1 | host: a.example"),),
    ),
    Group(
        "ours",
        ("RFC 9110 §4.2.1: an http URI without a host is invalid and MUST be refused."),
        (
            Difference("GET b'http://'", "refused", "GET http:// HTTP/1.1 | host: a.example"),
            Difference("GET b'http:///a'", "refused", "GET http:///a HTTP/1.1 | host: a.example"),
        ),
    ),
    Group(
        "ours",
        (
            "RFC 9112 §3.2.2: a proxy MUST ignore Host if the target is absolute, and put the target's authority"
            " in its place."
        ),
        (
            Difference("GET b'http://b.example/x?y'", "GET /x?y HTTP/1.1 | host: b.example", "refused"),
            Difference("GET b'http://b.example'", "GET / HTTP/1.1 | host: b.example", "refused"),
            Difference("GET b'http://b.example?x=1'", "GET /?x=1 HTTP/1.1 | host: b.example", "refused"),
            Difference("GET b'HTTPS://B.example:8443//x'", "GET //x HTTP/1.1 | host: b.example:8443", "refused"),
            Difference("GET b'http://[2001:db8::1]:80/'", "GET / HTTP/1.1 | host: [2001:db8::1]:80", "refused"),
            Difference("OPTIONS b'http://b.example'", "OPTIONS * HTTP/1.1 | host: b.example", "refused"),
            Difference("OPTIONS b'http://b.example/'", "OPTIONS / HTTP/1.1 | host: b.example", "refused"),
            Difference("OPTIONS b'http://b.example?x'", "OPTIONS /?x HTTP/1.1 | host: b.example", "refused"),
            Difference("GET b'http://b.example/a@b'", "GET /a@b HTTP/1.1 | host: b.example", "refused"),
        ),
    ),
)
