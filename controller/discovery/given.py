"""A certificate that someone else makes: what must hold of it, and how one follows another (only for the operator).

It is checked as a proxy would check it: by a handshake. One that nobody trusts yet, since its authority is another one,
is not shown before proxies have heard of that authority; and the former one stays trusted until no replica shows it.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from controller.discovery.certificates import Pair
from controller.discovery.tls import use

PARTS = ("tls.crt", "tls.key", "ca.crt")
FLIGHTS = 10  # of a handshake, each way; TLS 1.3 has two, 1.2 three
ANNOUNCED = timedelta(minutes=3)  # a kubelet brings a changed ConfigMap into running pods within two


class Given(msgspec.Struct, frozen=True):
    """A server's certificate with its chain and key, and the authorities by which it is known, all PEM."""

    leaf: Pair
    trusted: bytes

    @property
    def ends(self) -> datetime:
        return x509.load_pem_x509_certificate(self.leaf.certificate).not_valid_after_utc


class Unusable(Exception):  # noqa: N818 - what the Secret is
    """What is wrong with it, for its author. Names no part of a key."""


def given(data: Mapping[str, bytes] | None, host: str) -> Given:
    """What a Secret's data (None: there is no Secret) holds, if a proxy that connects to `host` would accept it now.

    Raises Unusable.
    """
    if data is None:
        raise Unusable("there is no such Secret")
    missing = [name for name in PARTS if not data.get(name)]
    if missing:
        raise Unusable(f"it has no {' and no '.join(missing)}")
    _certificates(data, "tls.crt")
    # Nothing else that may stand there, a key by mistake say, is published.
    trusted = b"".join(each.public_bytes(Encoding.PEM) for each in _certificates(data, "ca.crt"))
    found = Given(leaf=Pair(data["tls.crt"], data["tls.key"]), trusted=trusted)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        use(server, found.leaf)
    except ssl.SSLError as error:
        raise Unusable(f"tls.key is not the unencrypted key of tls.crt ({error.reason})") from error
    fault = _refused(server, found.trusted, host)
    if fault:
        raise Unusable(f"a proxy would refuse tls.crt by ca.crt: {fault}")
    return found


def _certificates(data: Mapping[str, bytes], name: str) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(data[name])
    except ValueError as error:
        raise Unusable(f"{name} is no certificate in PEM") from error


def _refused(server: ssl.SSLContext, trusted: bytes, host: str) -> str:
    """Why a client that trusts `trusted` alone does not accept this server as `host`; "" if it does."""
    client = ssl.create_default_context(cadata=trusted.decode())
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(back, there, server_hostname=host),
        server.wrap_bio(there, back, server_side=True),
    )
    waiting = set(ends)
    for _ in range(FLIGHTS):
        for end in tuple(waiting):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError as error:
                return error.verify_message
            except ssl.SSLError as error:  # a kind of key that TLS does not know, say
                return error.reason or str(error)
            waiting.discard(end)
        if not waiting:
            return ""
    return "the handshake does not end"


class Shown(msgspec.Struct, frozen=True):
    """What is shown at a moment: `newest` to who is told by others whom to trust, `leaf` to who is told by us."""

    leaf: Pair
    newest: Pair
    trusted: bytes


class Succession:
    """`host` is what clients connect to. `former`: what proxies may know us by from before there was a given one."""

    def __init__(self, host: str, former: Given | None = None) -> None:
        self._host = host
        self._followed = False
        self._current: Given | None = former
        self._former: Given | None = None
        self._since: datetime | None = None  # when the authority of `_current` was first seen

    def __repr__(self) -> str:
        return f"<Succession {self._current!r}{' announced' if self._former else ''}>"

    @property
    def settled(self) -> bool:
        """There is a given one, and nothing else is shown or trusted any more."""
        return self._followed and self._former is None

    def follow(self, new: Given, now: datetime) -> bool:
        """Takes a checked one; whether it is another one."""
        if new == self._current:
            return False
        before, self._current, self._followed = self._current, new, True
        if before is None or before.trusted == new.trusted or self._known(new, before):
            return True
        if self._former is None or self._announced(now):
            self._former = before  # else the one in between was never shown
        self._since = now
        return True

    def shown(self, now: datetime) -> Shown | None:
        """None before there was one."""
        current, former = self._current, self._former
        if current is None:
            return None
        if former is None or self._since is None:
            return Shown(leaf=current.leaf, newest=current.leaf, trusted=current.trusted)
        if now - self._since >= 2 * ANNOUNCED:  # every replica has seen it meanwhile, and shows it
            self._former = None
            return self.shown(now)
        early = not self._announced(now) and former.ends > now
        return Shown(
            leaf=former.leaf if early else current.leaf,
            newest=current.leaf,
            trusted=current.trusted + former.trusted,
        )

    def _announced(self, now: datetime) -> bool:
        return self._since is not None and now - self._since >= ANNOUNCED

    def _known(self, new: Given, before: Given) -> bool:
        """Who knows `before` accepts `new`."""
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        use(server, new.leaf)
        return not _refused(server, before.trusted, self._host)
