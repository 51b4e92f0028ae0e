"""What the tables of this folder are made of. Shared by unit, component and differential tests."""

from __future__ import annotations

from typing import NamedTuple

SERVED = 0


class Message(NamedTuple):
    """A message and what becomes of it: `SERVED`, or the status that refuses it (502 for a response)."""

    name: str
    raw: bytes
    status: int = SERVED

    def __str__(self) -> str:
        return self.name


def request(*lines: bytes, start: bytes = b"POST / HTTP/1.1", host: bytes = b"Host: a.example\r\n") -> bytes:
    """A request head with a valid Host in front of the given lines."""
    return start + b"\r\n" + host + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


def response(*lines: bytes, start: bytes = b"HTTP/1.1 200 OK") -> bytes:
    return start + b"\r\n" + b"".join(line + b"\r\n" for line in lines) + b"\r\n"
