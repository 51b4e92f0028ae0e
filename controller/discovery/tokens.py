"""Who asks: service account tokens, reviewed by the API server, cached by hash, and what an identity may read.

The review itself is handed in (`kube` makes it). Tokens are never logged or kept, only their SHA-256.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec

POSITIVE_SECONDS = 60.0  # how long a deleted pod's token may still be believed
NEGATIVE_SECONDS = 5.0  # a token can't become valid; this only bounds the load of a misconfigured proxy
CACHE = 8192  # tokens remembered; a stranger can't grow it past this
FAILURES = 20  # refused attempts a source may make in a burst
REFILL = 1.0  # and a second after it


class Identity(msgspec.Struct, frozen=True):
    """Whom a token belongs to, as TokenReview says."""

    username: str  # system:serviceaccount:NAMESPACE:NAME
    pod: str = ""
    pod_uid: str = ""
    node: str = ""

    @property
    def namespace(self) -> str:
        parts = self.username.split(":")
        return parts[2] if len(parts) == 4 and parts[:2] == ["system", "serviceaccount"] else ""

    @property
    def account(self) -> str:
        return self.username.rpartition(":")[2] if self.namespace else ""

    @property
    def proxy(self) -> str:
        """What acknowledgements are kept by: the pod's uid, else the account."""
        return self.pod_uid or self.username


Review = Callable[[str], Awaitable[Identity | None]]
Refusal = Literal["unauthenticated", "limited"]


def expiry(token: str) -> float:
    """The `exp` of a JWT in Unix seconds, for bounding a cache only (the API server judged it); inf if unreadable."""
    try:
        payload = token.split(".")[1]
        claims = msgspec.json.decode(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return float(claims["exp"])
    except (IndexError, KeyError, TypeError, ValueError, binascii.Error, msgspec.DecodeError):
        return math.inf


class Authenticator:
    """Reviews bearer tokens: positive answers are kept at most 60 s and never past `exp`, refusals briefly.

    `clock` is Unix time in seconds, since tokens end by it. Sources with many refusals wait (answer `limited`).
    """

    def __init__(self, review: Review, clock: Callable[[], float]) -> None:
        self._review = review
        self._clock = clock
        self._known: OrderedDict[bytes, tuple[float, Identity | None]] = OrderedDict()
        self._allowance: OrderedDict[str, tuple[float, float]] = OrderedDict()  # source: (failures left, at)

    async def identify(self, token: str, source: str) -> Identity | Refusal:
        now = self._clock()
        digest = hashlib.sha256(token.encode()).digest()
        until, identity = self._known.get(digest, (0.0, None))
        if until > now and identity is not None:
            return identity
        if not self._may_fail(source, now):
            return "limited"
        if until <= now:
            identity = await self._review(token) if token else None
            lifetime = POSITIVE_SECONDS if identity else NEGATIVE_SECONDS
            self._remember(digest, min(now + lifetime, expiry(token) if identity else math.inf), identity)
        if identity is None:
            left, _ = self._allowance.get(source, (FAILURES, now))
            self._allowance[source] = (left - 1, now)
            self._allowance.move_to_end(source)
            return "unauthenticated"
        return identity

    def _may_fail(self, source: str, now: float) -> bool:
        left, at = self._allowance.get(source, (float(FAILURES), now))
        left = min(float(FAILURES), left + max(0.0, now - at) * REFILL)  # a clock may be set back
        if source in self._allowance:
            self._allowance[source] = (left, now)
        while len(self._allowance) > CACHE:
            self._allowance.popitem(last=False)
        return left >= 1

    def _remember(self, digest: bytes, until: float, identity: Identity | None) -> None:
        self._known[digest] = (until, identity)
        self._known.move_to_end(digest)
        while len(self._known) > CACHE:
            self._known.popitem(last=False)
