"""Request heads: each table, whole and cut everywhere."""

from __future__ import annotations

import pytest

from controller.proxy.codec import Identifiers, Limits, Refused, RequestHead, RequestReader
from tests.unit.codec.cases import SERVED, Message, request
from tests.unit.codec.cases_fields import FIDELITY, Lines
from tests.unit.codec.cases_hop_by_hop import REQUESTS as HOP_BY_HOP
from tests.unit.codec.cases_hop_by_hop import Hop
from tests.unit.codec.cases_smuggling import REQUESTS
from tests.unit.codec.cases_targets import REFUSED, TARGETS, Target
from tests.unit.codec.reading import (
    AUTHORITY,
    FORWARDING,
    GET,
    ID,
    PEER,
    cuts,
    forwarded,
    lines_of,
    read_request,
    request_of,
)

OURS = {b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host", b"x-forwarded-port", b"x-request-id", b"host"}
HOP_LINE = b"Steelyard-Hop: store.shop.steelyard"


def passed(head: RequestHead) -> list[bytes]:
    """What goes upstream besides what every request gets."""
    lines = lines_of(forwarded(head))
    assert lines[-1] == HOP_LINE
    return [line for line in lines[:-1] if line.split(b":")[0].lower() not in OURS]


@pytest.mark.parametrize("case", REQUESTS, ids=str)
def test_a_head_is_served_or_refused_however_it_is_cut(case: Message) -> None:
    for pieces in cuts(case.raw):
        answer, rest = read_request(pieces)
        if case.status == SERVED:
            assert isinstance(answer, RequestHead), (pieces, answer)
            assert rest == b""
        else:
            assert isinstance(answer, Refused), (pieces, answer)
            assert answer.status == case.status, (pieces, answer)


@pytest.mark.parametrize("case", [case for case in REQUESTS if case.status == SERVED], ids=str)
def test_a_head_goes_out_alike_however_it_came_in(case: Message) -> None:
    outcomes = set()
    for pieces in cuts(case.raw + b"rest"):
        head, rest = read_request(pieces)
        assert isinstance(head, RequestHead)
        assert rest == b"rest"
        outcomes.add(forwarded(head))
    assert len(outcomes) == 1


@pytest.mark.parametrize("case", HOP_BY_HOP, ids=str)
def test_hop_by_hop_fields_end_here(case: Hop) -> None:
    head = request_of(request(*case.lines, start=b"POST / HTTP/" + case.version))

    assert passed(head) == case.passed


@pytest.mark.parametrize("case", FIDELITY, ids=str)
def test_fields_pass_byte_for_byte(case: Lines) -> None:
    assert passed(request_of(request(*case.came))) == case.goes


@pytest.mark.parametrize("case", TARGETS, ids=str)
def test_targets_pass_byte_for_byte(case: Target) -> None:
    for pieces in cuts(request(start=case.method + b" " + case.came + b" HTTP/1.1")):
        head, _ = read_request(pieces)
        assert isinstance(head, RequestHead), (pieces, head)
        out = forwarded(head)
        assert out.startswith(case.method + b" " + case.goes + b" HTTP/1.1\r\nHost: " + case.host + b"\r\n")
        assert (head.target, head.host, head.path()) == (case.goes, case.host, case.goes.split(b"?")[0])


@pytest.mark.parametrize(("method", "target"), REFUSED)
def test_bad_targets_are_refused(method: bytes, target: bytes) -> None:
    for pieces in cuts(request(start=method + b" " + target + b" HTTP/1.1")):
        answer, _ = read_request(pieces)
        assert isinstance(answer, Refused), (pieces, answer)
        assert answer.status == 400


def test_a_1_0_request_without_host_gets_the_endpoint_s() -> None:
    head = request_of(request(start=b"GET / HTTP/1.0", host=b""))

    assert head.host is None
    assert b"Host: " + AUTHORITY in lines_of(forwarded(head))
    assert not any(line.lower().startswith(b"x-forwarded-host") for line in lines_of(forwarded(head)))


def test_an_absolute_target_gives_a_1_0_request_its_host() -> None:
    head = request_of(request(start=b"GET http://b/ HTTP/1.0", host=b""))

    assert b"Host: b" in lines_of(forwarded(head))


def test_the_host_line_stays_where_it_was() -> None:
    out = forwarded(request_of(b"GET http://b/x HTTP/1.1\r\nX: 1\r\nhOST: a\r\nY: 2\r\n\r\n"))

    assert out.startswith(b"GET /x HTTP/1.1\r\nX: 1\r\nhOST: b\r\nY: 2\r\n")


@pytest.mark.parametrize(
    ("start", "lines", "keep_alive"),
    [
        (b"1.1", [], True),
        (b"1.1", [b"Connection: close"], False),
        (b"1.1", [b"Connection: Keep-Alive, CLOSE"], False),
        (b"1.1", [b"Connection: x", b"connection: close"], False),
        (b"1.0", [], False),
        (b"1.0", [b"Connection: Keep-Alive"], True),
        (b"1.0", [b"Connection: keep-alive, close"], False),
        (b"1.0", [b"Proxy-Connection: keep-alive"], False),
    ],
)
def test_a_connection_persists_as_its_version_and_connection_say(
    start: bytes, lines: list[bytes], keep_alive: bool
) -> None:
    assert request_of(request(*lines, start=b"GET / HTTP/" + start)).keep_alive is keep_alive


@pytest.mark.parametrize(
    ("line", "length"),
    [(b"X: y", 0), (b"Content-Length: 0", 0), (b"Content-Length: 007", 7), (b"Transfer-Encoding: chunked", -1)],
)
def test_the_length_is_what_the_framing_says(line: bytes, length: int) -> None:
    assert request_of(request(line)).length == length


@pytest.mark.parametrize(
    ("came", "kept"),
    [
        ([], None),
        ([b"X-Request-Id: abc.DEF_1:2+3/4=5-6"], b"abc.DEF_1:2+3/4=5-6"),
        ([b"x-request-id: " + b"a" * 128], b"a" * 128),
        ([b"X-Request-Id: " + b"a" * 129], None),
        ([b"X-Request-Id: "], None),
        ([b"X-Request-Id: a b"], None),
        ([b'X-Request-Id: a"b'], None),
        ([b"X-Request-Id: a,b"], None),
        ([b"X-Request-Id: a", b"X-Request-Id: b"], None),
    ],
)
def test_a_harmless_request_id_is_kept(came: list[bytes], kept: bytes | None) -> None:
    head = request_of(request(*came))

    assert head.request_id == kept
    out = lines_of(head.forward(FORWARDING, PEER, kept or ID, AUTHORITY))
    assert [line.split(b": ")[1] for line in out if line.lower().startswith(b"x-request-id")] == [kept or ID]


def test_an_expected_continue_is_seen_only_where_a_body_follows() -> None:
    expect = b"Expect: 100-continue"

    assert request_of(request(expect, b"Content-Length: 3")).expect
    assert not request_of(request(expect)).expect
    assert not request_of(request(expect, b"Content-Length: 3", start=b"POST / HTTP/1.0")).expect


def test_identifiers_count_in_hexadecimal_digits_behind_their_prefix() -> None:
    identifiers = Identifiers(b"5f0c")

    made = [identifiers.next() for _ in range(300)]

    assert made == [b"5f0c-%x" % number for number in range(1, 301)]
    with pytest.raises(ValueError, match="control byte"):
        Identifiers(b"a\nb")


def test_a_request_is_identified_by_what_came_with_it_or_else_by_a_new_one() -> None:
    identifiers = Identifiers(b"5f0c")

    assert request_of(request(b"X-Request-Id: theirs")).identifier(identifiers) == b"theirs"
    assert request_of(request(b"X-Request-Id: no/good{}")).identifier(identifiers) == b"5f0c-1"
    assert request_of(request()).identifier(identifiers) == b"5f0c-2"


def test_max_forwards_is_read_for_options_and_trace_and_goes_out_one_less() -> None:
    line = b"max-forwards: 7"
    options = request_of(request(line, start=b"OPTIONS * HTTP/1.1"))

    assert options.max_forwards == 7
    assert request_of(request(line, start=b"TRACE / HTTP/1.1")).max_forwards == 7
    assert request_of(request(line, start=b"GET / HTTP/1.1")).max_forwards == -1
    assert request_of(request(start=b"OPTIONS * HTTP/1.1")).max_forwards == -1
    assert request_of(request(b"Max-Forwards: x", start=b"OPTIONS * HTTP/1.1")).max_forwards == -1
    assert b"max-forwards: 6" in lines_of(forwarded(options))
    assert line in lines_of(forwarded(request_of(request(line, start=b"GET / HTTP/1.1"))))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (b"sid", b"1"),
        (b"SID", b"3"),
        (b"b", b"x=y"),
        (b"c", b'"q"'),
        (b"empty", b""),
        (b"d", b"4"),
        (b"si", None),
        (b"", None),
    ],
)
def test_cookies_are_found_by_their_exact_name(name: bytes, value: bytes | None) -> None:
    head = request_of(
        request(b'Cookie: sid=1; sid=2;b=x=y ; c="q"; empty=', b"cookie: SID=3; d=4", b"Set-Cookie: si=0")
    )

    assert head.cookie(name) == value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (b"a", b"1"),
        (b"b", b"%20+"),
        (b"c", b""),
        (b"d", b"x=y"),
        (b"%61", b"2"),
        (b"e", None),
        (b"x", None),
        (b"f", b"?"),
    ],
)
def test_query_parameters_are_found_undecoded(name: bytes, value: bytes | None) -> None:
    head = request_of(request(start=b"GET /x=0?a=1&a=9&b=%20+&c&d=x=y&%61=2&f=?&ee=5 HTTP/1.1"))

    assert head.query(name) == value


def test_fields_are_found_in_any_case() -> None:
    head = request_of(request(b"X-User: a", b"x-user: b"))

    assert head.field(b"x-USER") == b"a"
    assert head.field(b"x-use") is None


def test_a_reader_goes_on_with_the_next_head() -> None:
    reader = RequestReader(Limits())
    first = reader.feed(GET + GET[:7])
    assert isinstance(first, RequestHead)
    assert not reader.started

    assert reader.feed(first.take_rest()) is None
    assert reader.started
    second = reader.feed(GET[7:] + b"x")

    assert isinstance(second, RequestHead)
    assert second.take_rest() == b"x"


def test_empty_lines_alone_are_no_request() -> None:
    reader = RequestReader(Limits())

    assert reader.feed(b"\r\n\r") is None
    assert not reader.started


def test_a_reader_that_refused_refuses_for_ever() -> None:
    reader = RequestReader(Limits())

    assert isinstance(reader.feed(b"\x00"), Refused)
    assert isinstance(reader.feed(GET), Refused)


@pytest.mark.parametrize("prefix", [b"\x16", b"GET /\x00", b"GET / HTTP/1.2", b"BREW ", GET[:-2] + b"X Y"])
def test_a_refusal_does_not_wait_for_the_rest(prefix: bytes) -> None:
    assert isinstance(RequestReader(Limits()).feed(prefix), Refused)


def test_loops_count_our_own_hops_only() -> None:
    head = request_of(request(b"Steelyard-Hop: store.shop.steelyard", b"steelyard-hop: x, store.shop.steelyard"))

    assert (head.hops, head.loops(FORWARDING)) == (3, 2)
    assert lines_of(forwarded(head))[1:3] == [
        b"Steelyard-Hop: store.shop.steelyard",
        b"steelyard-hop: x, store.shop.steelyard",
    ]


@pytest.mark.parametrize("value", [b"a\r\nX: y", b"\x00", b"a\n"])
def test_what_we_add_can_not_split_the_head(value: bytes) -> None:
    head = request_of(GET)
    with pytest.raises(ValueError, match="request_id holds a control byte"):
        head.forward(FORWARDING, PEER, value, AUTHORITY)
    with pytest.raises(ValueError, match="authority holds a control byte"):
        head.forward(FORWARDING, PEER, ID, value)
