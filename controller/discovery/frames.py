"""What travels on the wire between operator and proxy: newline-delimited JSON frames down, reports up.

Down, on one stream per proxy: `hello` first, a whole `snapshot` per changed object, `gone`, `ping`, and `reconnect`
before the server ends. Up, by POST: a `Report` per object. Decoders ignore unknown fields and skip unknown frame
types, so operator and proxy of neighbouring versions work together.
"""

from __future__ import annotations

import msgspec

MEDIA_TYPE = "application/x-ndjson"
AUDIENCE = "steelyard.dev/discovery"
# A snapshot of 64 backends with 1 000 endpoints each is about 16 MiB; a longer line is not one of ours.
MAX_FRAME = 64 * 1024 * 1024
PING_SECONDS = 10.0  # a reader that hears nothing for three of them reconnects
FIRST_PING_SECONDS = 3.0  # a replica that lags has caught up by then; a reader waits for no other


class Hello(msgspec.Struct, frozen=True, tag_field="frame", tag="hello"):
    """Where the proxy runs, as the operator knows it; empty when unknown."""

    node: str = ""
    zone: str = ""


class SnapshotFrame(msgspec.Struct, frozen=True, tag_field="frame", tag="snapshot"):
    """One object's whole snapshot. `keys` sign affinity cookies, newest first; they are never shown or logged."""

    name: str
    version: str
    snapshot: msgspec.Raw
    freshness: int = 0  # the highest version of a slice that the server has seen
    keys: tuple[bytes, ...] = ()  # base64 in JSON

    def __repr__(self) -> str:
        return f"<SnapshotFrame {self.name} {self.version} freshness={self.freshness}>"


class Gone(msgspec.Struct, frozen=True, tag_field="frame", tag="gone"):
    """A synced operator says that no such object exists."""

    name: str


class Ping(msgspec.Struct, frozen=True, tag_field="frame", tag="ping"):
    """The server lives; the proxy answers with its reports."""


class Reconnect(msgspec.Struct, frozen=True, tag_field="frame", tag="reconnect"):
    """The server ends soon: connect anew, after a random pause."""


Frame = Hello | SnapshotFrame | Gone | Ping | Reconnect


class Ack(msgspec.Struct, frozen=True):
    version: str
    ok: bool
    error: str = ""


class BackendHealth(msgspec.Struct, frozen=True):
    known: int
    usable: int


class Report(msgspec.Struct, frozen=True):
    """What one proxy says of one object."""

    ack: Ack | None = None
    health: dict[str, BackendHealth] = {}


class Relayed(msgspec.Struct, frozen=True):
    """A report that a follower passes on to the lease's holder."""

    namespace: str
    name: str
    proxy: str
    report: Report


_ENCODER = msgspec.json.Encoder()
_FRAMES = msgspec.json.Decoder(Frame)
_TYPES = frozenset({"hello", "snapshot", "gone", "ping", "reconnect"})


class _AnyFrame(msgspec.Struct, frozen=True):
    frame: str


_ANY = msgspec.json.Decoder(_AnyFrame)


def encode(frame: Frame) -> bytes:
    return _ENCODER.encode(frame) + b"\n"


def decode(line: bytes) -> Frame | None:
    """One line without its newline; None for a frame type of a later version.

    Raises `msgspec.DecodeError` for what is no frame.
    """
    if _ANY.decode(line).frame not in _TYPES:
        return None
    return _FRAMES.decode(line)


class Lines:
    """Splits a byte stream at newlines. Raises ValueError past `MAX_FRAME` without one."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._held = 0

    def feed(self, data: bytes) -> list[bytes]:
        head, newline, rest = data.partition(b"\n")
        if not newline:
            self._hold(head)
            return []
        lines = [b"".join((*self._parts, head))]
        self._parts, self._held = [], 0
        *whole, tail = rest.split(b"\n")
        lines.extend(whole)
        self._hold(tail)
        return [line for line in lines if line]

    def _hold(self, data: bytes) -> None:
        self._held += len(data)
        if self._held > MAX_FRAME:
            raise ValueError(f"a frame of over {MAX_FRAME} bytes")
        if data:
            self._parts.append(data)
