"""Client connections of an address that passes to another lane: the next request of each is the new lane's.

What is in service stays where it began. So does a connection of a TCP port, which is one request.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from controller.proxy.codec import Refused, RequestHead, RequestReader
from controller.proxy.hosting import Factory, Turned
from controller.proxy.lane import Lane
from controller.proxy.listener import Front
from controller.proxy.tcp import TcpFront


def move(fronts: Iterable[Front | TcpFront], turned: Sequence[Turned]) -> None:
    for port, before, factory in turned:
        for front in tuple(fronts):
            if isinstance(front, Front) and front.open and front.lane is before and _port(front) == port:
                _move(front, factory)


def _port(front: Front) -> int | None:
    name = front.transport.get_extra_info("sockname")
    return int(name[1]) if name else None


def _move(front: Front, factory: Factory) -> None:
    reader: object = front.reader
    if front.exchange is not None:
        if not isinstance(reader, _MovingReader):
            front.reader = cast(RequestReader, _MovingReader(front, factory))
    elif factory.lane.route.tcp:
        front.close_idle()
    else:
        _put(front, factory.lane)


def _put(front: Front, lane: Lane) -> None:
    front.move(lane)
    front.limits = lane.route.head_limits


class _MovingReader:
    """Reads the next head, and moves its connection to whoever has the address by then."""

    def __init__(self, front: Front, factory: Factory) -> None:
        self._front = front
        self._factory = factory
        self._reader = front.reader

    @property
    def started(self) -> bool:
        return self._reader.started

    def feed(self, data: bytes) -> RequestHead | Refused | None:
        head = self._reader.feed(data)
        lane = self._factory.lane
        if type(head) is RequestHead and not lane.route.tcp:
            self._front.reader = self._reader
            _put(self._front, lane)
        return head
