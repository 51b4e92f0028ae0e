"""What a TCP port asks of its sockets: probes while they are silent, and whether the peer has reset one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from socket import IPPROTO_TCP, SO_KEEPALIVE, SOL_SOCKET, TCP_INFO, TCP_KEEPCNT, TCP_KEEPIDLE, TCP_KEEPINTVL
from typing import cast

from controller.settings import ProxySettings

CLOSED = 7  # TCP_CLOSE of the kernel's tcp_states.h: reset, or timed out


class Dialled(asyncio.Protocol):
    """A new connection to an endpoint, until it is taken over: at once, before its first byte."""

    __slots__ = ("_connected",)

    def __init__(self, connected: Callable[[asyncio.Transport], None]) -> None:
        self._connected = connected

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._connected(cast(asyncio.Transport, transport))


def prepare(transport: asyncio.Transport, settings: ProxySettings) -> None:
    """Bound what is buffered, and let the kernel find out about a peer that is gone without a word."""
    transport.set_write_buffer_limits(settings.write_high, settings.write_low)
    sock = transport.get_extra_info("socket")
    sock.setsockopt(SOL_SOCKET, SO_KEEPALIVE, 1)
    for option, value in zip((TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT), settings.tcp_keepalive, strict=True):
        sock.setsockopt(IPPROTO_TCP, option, value)


def descriptor(transport: asyncio.Transport) -> int:
    """Its socket's, of a transport that isn't closing."""
    return int(transport.get_extra_info("socket").fileno())


def has_left(transport: asyncio.Transport) -> bool:
    """Whether the peer has reset the connection: while nothing is read, no event tells."""
    sock = transport.get_extra_info("socket")
    return transport.is_closing() or bool(sock.getsockopt(IPPROTO_TCP, TCP_INFO, 1)[0] == CLOSED)
