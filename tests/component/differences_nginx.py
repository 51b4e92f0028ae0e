"""Where nginx 1.22 of Debian 12 and we differ over our tables, and what the RFCs say to it. A table, hence long."""

from __future__ import annotations

from tests.component.differences import Difference, Group

NGINX = (
    Group(
        "either",
        ("RFC 9110 §8.6: any length is valid, and overflows MUST be prevented; none that large was ever sent."),
        (
            Difference(
                "length 2^63-1", "POST / HTTP/1.1 | content-length: 9223372036854775807 | host: a.example", "refused"
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
        "either",
        ("RFC 9112 §6.1, §7: an intermediary may decode a chunked body and say its length."),
        (
            Difference(
                "Chunked",
                "POST / HTTP/1.1 | host: a.example | transfer-encoding: chunked",
                "POST / HTTP/1.1 | content-length: 3 | host: a.example",
            ),
            Difference(
                "chunked with a blank behind",
                "POST / HTTP/1.1 | host: a.example | transfer-encoding: chunked",
                "POST / HTTP/1.1 | content-length: 3 | host: a.example",
            ),
        ),
    ),
    Group(
        "ours",
        ("RFC 9110 §5.5: tabs around a value are white space."),
        (
            Difference(
                "chunked with a tab before", "POST / HTTP/1.1 | host: a.example | transfer-encoding: chunked", "refused"
            ),
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
        ("RFC 9112 §2.2: a bare CR makes the element invalid, or MUST be replaced by a blank."),
        (
            Difference("two CRs", "refused", "POST / HTTP/1.1 | host: a.example"),
            Difference("bare CR before", "refused", "POST / HTTP/1.1 | host: a.example"),
        ),
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
        ("RFC 9112 §5: a field line has a colon."),
        (Difference("no colon", "refused", "POST / HTTP/1.1 | host: a.example"),),
    ),
    Group(
        "ours",
        (
            "RFC 9110 §5.1: a name is a token. nginx drops such a line instead, and a backend sees another"
            " message than was sent."
        ),
        (
            Difference("( in a name", "refused", "POST / HTTP/1.1 | host: a.example"),
            Difference(") in a name", "refused", "POST / HTTP/1.1 | host: a.example"),
            Difference("< in a name", "refused", "POST / HTTP/1.1 | host: a.example"),
            Difference("> in a name", "refused", "POST / HTTP/1.1 | host: a.example"),
            Difference("@ in a name", "refused", "POST / HTTP/1.1 | host: a.example"),
            Difference(", in a name", "refused", "POST / HTTP/1.1 | host: a.example"),
            Difference("; in a name", "refused", "POST / HTTP/1.1 | host: a.example"),
            Difference("\\ in a name", "refused", "POST / HTTP/1.1 | host: a.example"),
            Difference('" in a name', "refused", "POST / HTTP/1.1 | host: a.example"),
            Difference("/ in a name", "refused", "POST / HTTP/1.1 | host: a.example"),
            Difference("[ in a name", "refused", "POST / HTTP/1.1 | host: a.example"),
            Difference("] in a name", "refused", "POST / HTTP/1.1 | host: a.example"),
            Difference("? in a name", "refused", "POST / HTTP/1.1 | host: a.example"),
            Difference("= in a name", "refused", "POST / HTTP/1.1 | host: a.example"),
            Difference("{ in a name", "refused", "POST / HTTP/1.1 | host: a.example"),
            Difference("} in a name", "refused", "POST / HTTP/1.1 | host: a.example"),
            Difference("\x80 in a name", "refused", "POST / HTTP/1.1 | host: a.example"),
            Difference("ÿ in a name", "refused", "POST / HTTP/1.1 | host: a.example"),
        ),
    ),
    Group(
        "ours",
        ("RFC 9112 §3: a request line has a version; HTTP/0.9 isn't spoken."),
        (
            Difference("no version", "refused", "GET / HTTP/1.1"),
            Difference("no version, 0.9 style", "refused", "GET / HTTP/1.1"),
            Difference("no version, blank", "refused", "GET / HTTP/1.1"),
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
        "ours",
        ("RFC 9112 §2.3: a version is one digit, a dot, one digit."),
        (Difference("version HTTP/1.10", "refused", "GET / HTTP/1.1 | host: a.example"),),
    ),
    Group(
        "either",
        ("RFC 9112 §3: blanks MAY be read leniently, and trailing ones ignored."),
        (Difference("version HTTP/1.1 ", "refused", "GET / HTTP/1.1 | host: a.example"),),
    ),
    Group(
        "either",
        ("RFC 9110 §9.1, §15.6.2: methods are an open set, and one that isn't known may be answered 501."),
        (Difference("unknown method", "refused", "BREW / HTTP/1.1 | host: a.example"),),
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
        "either",
        ("RFC 9110 §9.1, §9.3.8: TRACE is optional."),
        (Difference("TRACE", "TRACE / HTTP/1.1 | host: a.example", "refused"),),
    ),
    Group(
        "either",
        ("RFC 9112 §3.2, §3.3: a 1.0 request needs no Host; its backend may be told our idea of it."),
        (Difference("1.0 without Host", "GET / HTTP/1.1 | host: 127.0.0.1:PORT", "GET / HTTP/1.1"),),
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
            Difference("Host b'a,b' in 1.0", "refused", "GET / HTTP/1.1 | host: a,b"),
            Difference("Host b'a:65536' in 1.0", "refused", "GET / HTTP/1.1 | host: a:65536"),
            Difference("Host b'a:' in 1.0", "refused", "GET / HTTP/1.1 | host: a:"),
            Difference("Host b'a:000080' in 1.0", "refused", "GET / HTTP/1.1 | host: a:000080"),
            Difference("Host b'[::1]:' in 1.0", "refused", "GET / HTTP/1.1 | host: [::1]:"),
            Difference("Host b'[v1.x]' in 1.0", "refused", "GET / HTTP/1.1 | host: [v1.x]"),
            Difference("Host b'a%20b' in 1.0", "refused", "GET / HTTP/1.1 | host: a%20b"),
            Difference("Host b'a;b' in 1.0", "refused", "GET / HTTP/1.1 | host: a;b"),
            Difference('Host b"a\'b" in 1.0', "refused", "GET / HTTP/1.1 | host: a'b"),
        ),
    ),
    Group(
        "ours",
        ("RFC 9112 §3.2: without Host, with two lines of it or with an invalid value a request MUST be answered 400."),
        (
            Difference("Host b'a@b'", "refused", "POST / HTTP/1.1 | host: a@b"),
            Difference("Host b'u:p@a'", "refused", "POST / HTTP/1.1 | host: u:p@a"),
            Difference("Host b'a:x'", "refused", "POST / HTTP/1.1 | host: a:x"),
            Difference("Host b'a:80:80'", "refused", "POST / HTTP/1.1 | host: a:80:80"),
            Difference("Host b'a:+80'", "refused", "POST / HTTP/1.1 | host: a:+80"),
            Difference("Host b'[::1'", "refused", "POST / HTTP/1.1 | host: [::1"),
            Difference("Host b'[::1]x'", "refused", "POST / HTTP/1.1 | host: [::1]x"),
            Difference("Host b'[]'", "refused", "POST / HTTP/1.1 | host: []"),
            Difference("Host b'[1.2.3.4]'", "refused", "POST / HTTP/1.1 | host: [1.2.3.4]"),
            Difference("Host b'[fe80::1%eth0]'", "refused", "POST / HTTP/1.1 | host: [fe80::1%eth0]"),
            Difference("Host b'a?b'", "refused", "POST / HTTP/1.1 | host: a?b"),
            Difference("Host b'a#b'", "refused", "POST / HTTP/1.1 | host: a#b"),
            Difference("Host b'\\xc3\\xa4'", "refused", "POST / HTTP/1.1 | host: Ã¤"),
            Difference("Host b'a\\\\b'", "refused", "POST / HTTP/1.1 | host: a\\b"),
            Difference("Host b'a@b' in 1.0", "refused", "GET / HTTP/1.1 | host: a@b"),
            Difference("Host b'u:p@a' in 1.0", "refused", "GET / HTTP/1.1 | host: u:p@a"),
            Difference("Host b'a:x' in 1.0", "refused", "GET / HTTP/1.1 | host: a:x"),
            Difference("Host b'a:80:80' in 1.0", "refused", "GET / HTTP/1.1 | host: a:80:80"),
            Difference("Host b'a:+80' in 1.0", "refused", "GET / HTTP/1.1 | host: a:+80"),
            Difference("Host b'[::1' in 1.0", "refused", "GET / HTTP/1.1 | host: [::1"),
            Difference("Host b'[::1]x' in 1.0", "refused", "GET / HTTP/1.1 | host: [::1]x"),
            Difference("Host b'[]' in 1.0", "refused", "GET / HTTP/1.1 | host: []"),
            Difference("Host b'[1.2.3.4]' in 1.0", "refused", "GET / HTTP/1.1 | host: [1.2.3.4]"),
            Difference("Host b'[fe80::1%eth0]' in 1.0", "refused", "GET / HTTP/1.1 | host: [fe80::1%eth0]"),
            Difference("Host b'a?b' in 1.0", "refused", "GET / HTTP/1.1 | host: a?b"),
            Difference("Host b'a#b' in 1.0", "refused", "GET / HTTP/1.1 | host: a#b"),
            Difference("Host b'\\xc3\\xa4' in 1.0", "refused", "GET / HTTP/1.1 | host: Ã¤"),
            Difference("Host b'a\\\\b' in 1.0", "refused", "GET / HTTP/1.1 | host: a\\b"),
        ),
    ),
    Group(
        "ours",
        ("RFC 9110 §4.2, §7.4: no http or https URI, or none with a valid port, is a resource of this server."),
        (
            Difference("GET b'http://b:65536/'", "refused", "GET / HTTP/1.1 | host: a.example"),
            Difference("GET b'ftp://b/'", "refused", "GET / HTTP/1.1 | host: a.example"),
            Difference("GET b'ws://b/'", "refused", "GET / HTTP/1.1 | host: a.example"),
            Difference("GET b'httpx://b/'", "refused", "GET / HTTP/1.1 | host: a.example"),
        ),
    ),
    Group(
        "ours",
        (
            "RFC 9112 §3.2, RFC 3986 §3.5: a fragment or a byte outside ASCII is no part of a target, which"
            " SHOULD be answered 400."
        ),
        (
            Difference("GET b'/a#b'", "refused", "GET /a#b HTTP/1.1 | host: a.example"),
            Difference("GET b'/\\xc3\\xa4'", "refused", "GET /Ã¤ HTTP/1.1 | host: a.example"),
            Difference("GET b'/\\xff'", "refused", "GET /ÿ HTTP/1.1 | host: a.example"),
        ),
    ),
    Group(
        "ours",
        ("RFC 9110 §7.7: a proxy MUST NOT change the path that it passes on, so that it need not understand it."),
        (
            Difference("GET b'/..'", "GET /.. HTTP/1.1 | host: a.example", "refused"),
            Difference("GET b'/a%00b'", "GET /a%00b HTTP/1.1 | host: a.example", "refused"),
            Difference("GET b'/%zz'", "GET /%zz HTTP/1.1 | host: a.example", "refused"),
            Difference("GET b'/%'", "GET /% HTTP/1.1 | host: a.example", "refused"),
            Difference("GET b'/%4'", "GET /%4 HTTP/1.1 | host: a.example", "refused"),
        ),
    ),
    Group(
        "ours",
        ("RFC 9112 §3.2.4: `*` is for OPTIONS, and only there; an intermediary passes it on."),
        (Difference("OPTIONS b'*'", "OPTIONS * HTTP/1.1 | host: a.example", "refused"),),
    ),
    Group(
        "ours",
        (
            "RFC 9112 §3.2.2: a proxy MUST ignore Host if the target is absolute, and put the target's authority"
            " in its place."
        ),
        (
            Difference(
                "GET b'http://b.example/x?y'",
                "GET /x?y HTTP/1.1 | host: b.example",
                "GET /x?y HTTP/1.1 | host: a.example",
            ),
            Difference(
                "GET b'http://b.example'", "GET / HTTP/1.1 | host: b.example", "GET / HTTP/1.1 | host: a.example"
            ),
            Difference(
                "GET b'http://b.example?x=1'",
                "GET /?x=1 HTTP/1.1 | host: b.example",
                "GET /?x=1 HTTP/1.1 | host: a.example",
            ),
            Difference(
                "GET b'HTTPS://B.example:8443//x'",
                "GET //x HTTP/1.1 | host: b.example:8443",
                "GET //x HTTP/1.1 | host: a.example",
            ),
            Difference(
                "GET b'http://[2001:db8::1]:80/'",
                "GET / HTTP/1.1 | host: [2001:db8::1]:80",
                "GET / HTTP/1.1 | host: a.example",
            ),
            Difference(
                "OPTIONS b'http://b.example'",
                "OPTIONS * HTTP/1.1 | host: b.example",
                "OPTIONS / HTTP/1.1 | host: a.example",
            ),
            Difference(
                "OPTIONS b'http://b.example/'",
                "OPTIONS / HTTP/1.1 | host: b.example",
                "OPTIONS / HTTP/1.1 | host: a.example",
            ),
            Difference(
                "OPTIONS b'http://b.example?x'",
                "OPTIONS /?x HTTP/1.1 | host: b.example",
                "OPTIONS /?x HTTP/1.1 | host: a.example",
            ),
            Difference(
                "GET b'http://b.example/a@b'",
                "GET /a@b HTTP/1.1 | host: b.example",
                "GET /a@b HTTP/1.1 | host: a.example",
            ),
        ),
    ),
)
