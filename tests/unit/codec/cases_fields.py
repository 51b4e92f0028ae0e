"""Lines that must pass byte for byte, both ways: names, values, order, number."""

from __future__ import annotations

from typing import NamedTuple


class Lines(NamedTuple):
    name: str
    came: list[bytes]
    goes: list[bytes]

    def __str__(self) -> str:
        return self.name


FIDELITY = [
    Lines(
        "case of names", [b"x-lower: 1", b"X-UPPER: 2", b"X-mIxEd: 3"], [b"x-lower: 1", b"X-UPPER: 2", b"X-mIxEd: 3"]
    ),
    Lines(
        "duplicates in order",
        [b"X-Dup: 1", b"Y: a", b"x-dup: 2", b"X-DUP: 1"],
        [b"X-Dup: 1", b"Y: a", b"x-dup: 2", b"X-DUP: 1"],
    ),
    Lines(
        "cookies apart",
        [b"Set-Cookie: a=1; Path=/", b"Set-Cookie: b=2"],
        [b"Set-Cookie: a=1; Path=/", b"Set-Cookie: b=2"],
    ),
    Lines(
        "bytes that are no text",
        [b"X: \xe9\xff\x80", b"Y: \xf0\x9f\x98\x80"],
        [b"X: \xe9\xff\x80", b"Y: \xf0\x9f\x98\x80"],
    ),
    Lines("blanks at the ends go", [b"X:1", b"Y: \t 2 \t ", b"Z:   a  b\tc   "], [b"X: 1", b"Y: 2", b"Z: a  b\tc"]),
    Lines("empty values", [b"X:", b"Y: ", b"Z: \t"], [b"X: ", b"Y: ", b"Z: "]),
    Lines("every byte of a name", [b"!#$%&'*+-.^_`|~09azAZ: 1"], [b"!#$%&'*+-.^_`|~09azAZ: 1"]),
    Lines(
        "punctuation in a value",
        [b'X: "a, b";q=0.5, (c) <d> {e} [f] \\ : ;'],
        [b'X: "a, b";q=0.5, (c) <d> {e} [f] \\ : ;'],
    ),
    Lines(
        "content",
        [b"Content-Encoding: gzip", b'ETag: W/"x"', b"Content-Range: bytes 0-1/2"],
        [b"Content-Encoding: gzip", b'ETag: W/"x"', b"Content-Range: bytes 0-1/2"],
    ),
    Lines(
        "names near ours",
        [b"Hosts: a", b"Connections: b", b"X-Forwarded: c", b"Dates: d"],
        [b"Hosts: a", b"Connections: b", b"X-Forwarded: c", b"Dates: d"],
    ),
]
