"""Who the client is and what upstream learns of it. Each case: trust, peer, lines in, lines out, client, scheme."""

from __future__ import annotations

from typing import NamedTuple


class Forwarded(NamedTuple):
    name: str
    peer: str
    lines: list[bytes]
    out: list[bytes]
    client: str
    scheme: str = "http"
    trusted: tuple[str, ...] = ()
    pod_address: str | None = None

    def __str__(self) -> str:
        return self.name


def ours(peer: bytes, *, proto: bytes = b"http", host: bytes = b"a.example", port: bytes = b"80") -> list[bytes]:
    """The lines that a request gets when nothing is believed."""
    return [
        b"X-Forwarded-For: " + peer,
        b"X-Forwarded-Proto: " + proto,
        b"X-Forwarded-Host: " + host,
        b"X-Forwarded-Port: " + port,
    ]


TEN = ("10.0.0.0/8",)

FORWARDED = [
    Forwarded("nothing came", "192.0.2.1", [], ours(b"192.0.2.1"), "192.0.2.1"),
    Forwarded("an IPv6 peer", "2001:DB8:0::1", [], ours(b"2001:db8::1"), "2001:db8::1"),
    Forwarded("a mapped peer is IPv4", "::ffff:192.0.2.1", [], ours(b"192.0.2.1"), "192.0.2.1"),
    Forwarded(
        "nobody is trusted by default",
        "192.0.2.1",
        [
            b"X-Forwarded-For: 1.1.1.1",
            b"x-forwarded-for: 2.2.2.2",
            b"X-Forwarded-Proto: https",
            b"X-Forwarded-Host: evil",
            b"X-Forwarded-Port: 443",
            b"Forwarded: for=1.1.1.1",
        ],
        ours(b"192.0.2.1"),
        "192.0.2.1",
    ),
    Forwarded(
        "another peer than the trusted",
        "11.0.0.1",
        [b"X-Forwarded-For: 1.1.1.1"],
        ours(b"11.0.0.1"),
        "11.0.0.1",
        trusted=TEN,
    ),
    Forwarded("no line from a trusted peer", "10.0.0.1", [], ours(b"10.0.0.1"), "10.0.0.1", trusted=TEN),
    Forwarded(
        "one line from a trusted peer",
        "10.0.0.1",
        [b"X-Forwarded-For: 1.1.1.1"],
        ours(b"1.1.1.1, 10.0.0.1"),
        "1.1.1.1",
        trusted=TEN,
    ),
    Forwarded(
        "three lines from a trusted peer",
        "10.0.0.1",
        [b"X-Forwarded-For: 1.1.1.1", b"X-FORWARDED-FOR: 2.2.2.2, 10.0.0.3", b"X-Forwarded-For:10.0.0.2"],
        ours(b"1.1.1.1, 2.2.2.2, 10.0.0.3, 10.0.0.2, 10.0.0.1"),
        "2.2.2.2",
        trusted=TEN,
    ),
    Forwarded("an empty line", "10.0.0.1", [b"X-Forwarded-For: "], ours(b"10.0.0.1"), "10.0.0.1", trusted=TEN),
    Forwarded(
        "trusted hops only: the leftmost",
        "10.0.0.1",
        [b"X-Forwarded-For: 10.0.0.3, 10.0.0.2"],
        ours(b"10.0.0.3, 10.0.0.2, 10.0.0.1"),
        "10.0.0.3",
        trusted=TEN,
    ),
    Forwarded(
        "the walk ends at what is no address",
        "10.0.0.1",
        [b"X-Forwarded-For: 1.1.1.1, unknown, 10.0.0.2"],
        ours(b"1.1.1.1, unknown, 10.0.0.2, 10.0.0.1"),
        "10.0.0.2",
        trusted=TEN,
    ),
    Forwarded(
        "bytes that are no text",
        "10.0.0.1",
        [b"X-Forwarded-For: \xff"],
        ours(b"\xff, 10.0.0.1"),
        "10.0.0.1",
        trusted=TEN,
    ),
    Forwarded(
        "a mapped hop is IPv4",
        "::ffff:10.0.0.1",
        [b"X-Forwarded-For: 1.1.1.1, ::ffff:10.9.9.9"],
        ours(b"1.1.1.1, ::ffff:10.9.9.9, 10.0.0.1"),
        "1.1.1.1",
        trusted=TEN,
    ),
    Forwarded(
        "a mapped network is IPv4",
        "10.0.0.1",
        [b"X-Forwarded-For: 1.1.1.1"],
        ours(b"1.1.1.1, 10.0.0.1"),
        "1.1.1.1",
        trusted=("::ffff:10.0.0.0/104",),
    ),
    Forwarded(
        "an IPv6 network",
        "2001:db8::5",
        [b"X-Forwarded-For: 2001:db9::1"],
        ours(b"2001:db9::1, 2001:db8::5"),
        "2001:db9::1",
        trusted=("2001:db8::/32",),
    ),
    Forwarded(
        "a single address",
        "10.0.0.1",
        [b"X-Forwarded-For: 10.0.0.2"],
        ours(b"10.0.0.2, 10.0.0.1"),
        "10.0.0.2",
        trusted=("10.0.0.1",),
    ),
    Forwarded(
        "all of IPv4",
        "10.0.0.1",
        [b"X-Forwarded-For: ::1, 9.9.9.9"],
        ours(b"::1, 9.9.9.9, 10.0.0.1"),
        "::1",
        trusted=("0.0.0.0/0",),
    ),
    Forwarded(
        "a trusted peer's word is kept",
        "10.0.0.1",
        [b"x-forwarded-proto: https", b"X-Forwarded-Host: b.example", b"X-Forwarded-Port: 443"],
        [
            b"x-forwarded-proto: https",
            b"X-Forwarded-Host: b.example",
            b"X-Forwarded-Port: 443",
            b"X-Forwarded-For: 10.0.0.1",
        ],
        "10.0.0.1",
        "https",
        TEN,
    ),
    Forwarded(
        "https in capitals",
        "10.0.0.1",
        [b"X-Forwarded-Proto: HTTPS"],
        [
            b"X-Forwarded-Proto: HTTPS",
            b"X-Forwarded-For: 10.0.0.1",
            b"X-Forwarded-Host: a.example",
            b"X-Forwarded-Port: 80",
        ],
        "10.0.0.1",
        "https",
        TEN,
    ),
    Forwarded(
        "Forwarded gets our element",
        "10.0.0.1",
        [b"Forwarded: for=1.1.1.1;proto=https"],
        [b"Forwarded: for=1.1.1.1;proto=https, for=10.0.0.1", *ours(b"10.0.0.1")],
        "10.0.0.1",
        trusted=TEN,
    ),
    Forwarded(
        "the last Forwarded line gets it",
        "10.0.0.1",
        [b"Forwarded: for=a", b"forwarded: for=b"],
        [b"Forwarded: for=a", b"forwarded: for=b, for=10.0.0.1", *ours(b"10.0.0.1")],
        "10.0.0.1",
        trusted=TEN,
    ),
    Forwarded(
        "an IPv6 element is bracketed and quoted",
        "fd00::1",
        [b"Forwarded: for=x"],
        [b'Forwarded: for=x, for="[fd00::1]"', *ours(b"fd00::1")],
        "fd00::1",
        trusted=("fd00::/8",),
    ),
    Forwarded(
        "other forwarding fields pass",
        "192.0.2.1",
        [b"X-Forwarded-Prefix: /x"],
        [b"X-Forwarded-Prefix: /x", *ours(b"192.0.2.1")],
        "192.0.2.1",
    ),
    Forwarded(
        "a sidecar's loopback peer",
        "127.0.0.1",
        [b"X-Forwarded-For: 1.1.1.1"],
        ours(b"1.1.1.1, 10.1.2.3"),
        "10.1.2.3",
        pod_address="10.1.2.3",
    ),
    Forwarded(
        "a sidecar's IPv6 loopback peer",
        "::1",
        [b"X-Forwarded-Proto: https"],
        [
            b"X-Forwarded-Proto: https",
            b"X-Forwarded-For: 10.1.2.3",
            b"X-Forwarded-Host: a.example",
            b"X-Forwarded-Port: 80",
        ],
        "10.1.2.3",
        "https",
        pod_address="10.1.2.3",
    ),
    Forwarded(
        "a sidecar's strange peer",
        "192.0.2.9",
        [b"X-Forwarded-For: 1.1.1.1"],
        ours(b"192.0.2.9"),
        "10.1.2.3",
        pod_address="10.1.2.3",
    ),
]

BAD_NETWORKS = [
    "",
    "x",
    "10.0.0.0/33",
    "10.0.0.0/",
    "10.0.0.0/-1",
    "::/129",
    "10.0.0/8",
    "10.0.0.0/8/8",
    "10.0.0.0/99999999999",
]
