"""What the parent and its workers say to each other over a socketpair, and how: length-prefixed MessagePack."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar, cast

import msgspec

from controller.model.snapshot import Snapshot
from controller.proxy.upstream import Standing
from controller.settings import ProxySettings

LENGTH = 4  # bytes, big-endian, before each message
SOCKETS = 64  # descriptors sent at a time, of the 253 that the kernel allows

Key = tuple[str, str]  # namespace, name
SlotMap = dict[str, dict[str, int]]  # upstream → endpoint → slot


class Message(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A frozen value on the wire; the kind comes first."""


# From the parent.


class Begin(Message, frozen=True):
    """The first one: who the worker is. The block's descriptor comes with the sockets."""

    settings: ProxySettings
    worker: int
    slots: int


class State(msgspec.Struct, frozen=True, array_like=True):
    """One object, its hostnames resolved."""

    snapshot: Snapshot
    keys: tuple[bytes, bytes | None]
    slots: SlotMap
    withdrawn: bool = False  # the snapshot is of an object that is gone


class Change(Message, frozen=True):
    """What is put in force at once; answered by `Done`.

    The listeners of `addresses` have been sent before, in this order.
    """

    number: int
    states: tuple[State, ...] = ()
    gone: tuple[Key, ...] = ()
    addresses: tuple[tuple[str, int], ...] = ()
    stopped: bool = False  # the parent listens no more: its workers don't, either


class Rekey(Message, frozen=True):
    key: Key
    keys: tuple[bytes, bytes | None]


class Placed(Message, frozen=True):
    zone: str
    node: str


class Stand(Message, frozen=True):
    """What checks and ejection say."""

    upstream: str
    standings: dict[str, Standing]


class Leave(Message, frozen=True):
    """Drain, then end; sent again: end the drain."""


# From a worker.


class Done(Message, frozen=True):
    """Change `number` is in force. (It can't be refused: the parent has applied it and made the sockets.)"""

    number: int


class Heard(Message, frozen=True):
    """Outcomes that matter for ejection, in order: upstream, endpoint, when, kind, its seconds, good answers before."""

    outcomes: tuple[tuple[str, str, float, str, float, int], ...]


class Counts(msgspec.Struct, array_like=True):
    """One row of `Telemetry.by_backend`."""

    service: str
    backend: str
    outcomes: dict[str, int]
    buckets: list[int]
    seconds: float
    received: int
    sent: int


class ServiceGauges(msgspec.Struct, array_like=True):
    """What a worker holds of one service now."""

    service: str
    in_flight: int
    waiting: int
    clients: int
    idle: int


class Report(Message, frozen=True):
    """All counters of a worker, since it began."""

    requests: tuple[Counts, ...] = ()
    services: tuple[ServiceGauges, ...] = ()
    pools: tuple[tuple[str, int, int], ...] = ()  # service, connects, races
    retries: tuple[tuple[str, str, int], ...] = ()
    refused_connections: int = 0
    drain_cut: int = 0
    bugs: int = 0
    log_lost: int = 0
    held: int = 0
    memory_refused: int = 0
    memory_unkept: int = 0
    idle: dict[str, dict[str, int]] = {}  # idle connections: upstream → endpoint


FromParent = Begin | Change | Rekey | Placed | Stand | Leave
FromWorker = Done | Heard | Report

M = TypeVar("M")


class Channel(asyncio.Protocol, Generic[M]):
    """One end. `hear` gets each message, in order; `ended` is called once, when the other end is gone."""

    def __init__(self, kind: object, hear: Callable[[M], None], ended: Callable[[], None]) -> None:
        self._decode: msgspec.msgpack.Decoder[M] = msgspec.msgpack.Decoder(kind)
        self._hear = hear
        self._ended = ended
        self._buffer = bytearray()
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= LENGTH:
            end = LENGTH + int.from_bytes(self._buffer[:LENGTH], "big")
            if len(self._buffer) < end:
                return
            message = bytes(self._buffer[LENGTH:end])
            del self._buffer[:end]
            self._hear(self._decode.decode(message))

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended()

    def send(self, message: Message) -> None:
        if not self._transport.is_closing():
            data = _encode(message)
            self._transport.write(len(data).to_bytes(LENGTH, "big") + data)

    @property
    def unsent(self) -> int:
        """Bytes that the other end hasn't read."""
        return self._transport.get_write_buffer_size()

    def close(self) -> None:
        self._transport.close()


_encode = msgspec.msgpack.Encoder().encode
