"""Affinity tokens: an opaque cookie value that brings a client back to the same endpoint, in every proxy.

A token is `expiry ‖ name ‖ seal` in base64url: the name is a keyed hash of backend and endpoint identity (nobody can
confirm a guessed address by it), the seal an HMAC-SHA-256 (RFC 2104) over both, cut to 128 bits (RFC 2104 §5). All
proxies of an object hold the same two keys; the previous one is still honoured after a change.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable
from hmac import compare_digest, digest
from typing import Generic, NamedTuple, TypeVar

EXPIRY = 5  # bytes: seconds since the epoch, enough for 34 000 years; 0 = while the browser runs
NAME = 16
SEAL = 16
SIZE = EXPIRY + NAME + SEAL

T = TypeVar("T")


class Keys(NamedTuple):
    """32 bytes each. Never shown, never logged."""

    current: bytes
    previous: bytes | None = None

    def __repr__(self) -> str:
        return "<Keys>"


def token(key: bytes, backend: str, identity: str, expires: float | None = None) -> bytes:
    """`expires`: seconds since the epoch; None = no bound of its own."""
    expiry = int(expires).to_bytes(EXPIRY, "big") if expires is not None else bytes(EXPIRY)
    body = expiry + _name(key, backend, identity)
    return urlsafe_b64encode(body + _seal(key, body)).rstrip(b"=")


class Bindings(Generic[T]):
    """Finds what a token names among the targets bound last. One hash per target and key, kept while both stay."""

    def __init__(self, keys: Keys) -> None:
        self.keys = keys
        self._targets: dict[tuple[str, str], T] = {}
        self._names: dict[bytes, dict[bytes, tuple[str, str]]] = {}

    def rekey(self, keys: Keys) -> None:
        if keys != self.keys:
            self.keys = keys
            self._names = {}
            self.bind(dict(self._targets))

    def bind(self, targets: dict[tuple[str, str], T]) -> None:
        """`targets`: by backend and endpoint identity."""
        self._targets = targets
        self._names = {key: self._named(key, targets) for key in self._all_keys()}

    def find(self, value: bytes, wall: float) -> T | None:
        """The target; None for a token that is unknown, forged, expired, or not a token. `wall`: seconds, epoch."""
        try:
            raw = urlsafe_b64decode(value + b"=" * (-len(value) % 4))
        except (binascii.Error, ValueError):
            return None
        if len(raw) != SIZE:
            return None
        body, seal = raw[:-SEAL], raw[-SEAL:]
        for key in self._all_keys():
            if compare_digest(seal, _seal(key, body)):
                expiry = int.from_bytes(body[:EXPIRY], "big")
                if expiry and expiry <= wall:
                    return None
                named = self._names.get(key, {}).get(body[EXPIRY:])
                return self._targets[named] if named else None
        return None

    def _all_keys(self) -> list[bytes]:
        return [key for key in self.keys if key is not None]

    def _named(self, key: bytes, targets: Iterable[tuple[str, str]]) -> dict[bytes, tuple[str, str]]:
        known = {target: name for name, target in self._names.get(key, {}).items()}
        return {known.get(target) or _name(key, *target): target for target in targets}


def _name(key: bytes, backend: str, identity: str) -> bytes:
    return digest(key, f"name\0{backend}\0{identity}".encode(), "sha256")[:NAME]


def _seal(key: bytes, body: bytes) -> bytes:
    return digest(key, b"seal\0" + body, "sha256")[:SEAL]
