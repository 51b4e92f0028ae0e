"""One JSON line per request or TCP connection, written in batches: a write per line would cost more than the line.

Fields: when, who, what, how it ended, where it went, how long to the head and to the end. What comes from the client
is decoded as Latin-1, so JSON escapes every unprintable byte.
"""

from __future__ import annotations

from time import time
from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from controller.proxy.causes import Cause
    from controller.proxy.forward import Exchange
    from controller.proxy.tcp import TcpFront

BATCH = 256  # lines; at most half a second's, since the process's tick flushes too
LAST = 1.0
_encode = msgspec.json.Encoder().encode


class Lines(Protocol):
    """Where whole lines go. It waits for nobody: what can't be had is lost, and counted."""

    lost: int  # lines

    def write(self, data: bytes) -> None: ...

    def close(self, seconds: float) -> None:
        """Write what there is, for so long at most."""
        ...


class AccessLog:
    """Gathers lines; a log costs no request, whether anybody reads it or not."""

    __slots__ = ("_lines", "_to")

    def __init__(self, to: Lines) -> None:
        self._to = to
        self._lines: list[bytes] = []

    @property
    def lost(self) -> int:
        """Lines."""
        return self._to.lost

    def add(self, service: str, exchange: Exchange, outcome: str, status: int, now: float) -> None:
        head, pool = exchange.head, exchange.pool
        self._add(
            {
                "time": round(time(), 3),
                "service": service,
                "id": exchange.request_id.decode("latin-1"),
                "client": exchange.front.peer,
                "method": head.method.decode("latin-1"),
                "target": head.target.decode("latin-1"),
                "host": head.host.decode("latin-1") if head.host is not None else None,
                "status": status,
                "outcome": outcome,
                "endpoint": pool.authority.decode() if pool is not None else None,
                "tries": exchange.tries,
                "received": exchange.received,
                "sent": exchange.sent,
                "head_seconds": round(exchange.headed - exchange.began, 6) if exchange.headed else None,
                "seconds": round(now - exchange.began, 6),
            }
        )

    def add_refusal(self, service: str, peer: str, cause: Cause, request_id: bytes) -> None:
        """An answer to what never became a request: nothing of it can be told but who sent it."""
        self._add(
            {
                "time": round(time(), 3),
                "service": service,
                "id": request_id.decode("latin-1"),
                "client": peer,
                "status": cause.status,
                "outcome": cause.reason,
            }
        )

    def add_connection(self, service: str, front: TcpFront, outcome: str, now: float) -> None:
        received, sent = front.carried
        self._add(
            {
                "time": round(time(), 3),
                "service": service,
                "client": front.peer,
                "outcome": outcome,
                "endpoint": front.pool.authority.decode() if front.pool is not None else None,
                "tries": front.tries,
                "received": received,
                "sent": sent,
                "connect_seconds": round(front.connected_after, 6) if front.connected_after is not None else None,
                "seconds": round(now - front.began, 6),
            }
        )

    def _add(self, fields: dict[str, object]) -> None:
        self._lines.append(_encode(fields))
        if len(self._lines) >= BATCH:
            self.flush()

    def flush(self) -> None:
        if self._lines:
            lines, self._lines = self._lines, []
            self._to.write(b"\n".join(lines) + b"\n")

    def close(self) -> None:
        """The last lines; who reads them has `LAST` seconds."""
        self.flush()
        self._to.close(LAST)
