"""What the operator shows of itself: its certificate, whom to trust for it, and the keys of affinity cookies.

Keys, and by default an authority of the operator's own, are in one Secret that it makes and renews. With
`tls_secret` the certificate comes from a Secret that someone else keeps; a bad one is told, and the last good one
serves on.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import ssl
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

import aiohttp
import msgspec

from controller.discovery import certificates, session_keys
from controller.discovery.given import Given, Shown, Succession, Unusable, given
from controller.discovery.tls import use
from controller.kube.api import Api, ApiError, Object
from controller.kube.secrets import OwnSecret, read_secret
from controller.settings import OperatorSettings

log = logging.getLogger(__name__)

UNREACHABLE = (ApiError, aiohttp.ClientError, TimeoutError, OSError)
RETRY = 2.0  # seconds between attempts at the start, when nothing can be served yet
REFUSED = "CertificateRefused"  # reason of the Event


class Told(msgspec.Struct, frozen=True):
    """The rest of the operator, as callables: whether this replica leads; keys or bundle are others now; a Warning."""

    now: Callable[[], datetime]  # UTC
    leading: Callable[[], bool]
    changed: Callable[[], None]
    warn: Callable[[str, str], None]  # reason, note


class Certified:
    """`names`: how clients call the operator, the first is what they connect to. `owner`: see OwnSecret."""

    def __init__(
        self, settings: OperatorSettings, api: Api, owner: Object | None, names: Sequence[str], told: Told
    ) -> None:
        self.discovery = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.webhook = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.peers = ssl.create_default_context()  # trusts other replicas, once the bundle is known
        self.trusted = b""  # the bundle by which proxies know us, PEM; b"" before there is one
        self.retold = asyncio.Event()  # set when the bundle changes; whoever waits clears it
        self._settings = settings
        self._api = api
        self._names = names
        self._told = told
        self._own = OwnSecret(api, settings.namespace, settings.secret, owner, self._renewed)
        self._data: Mapping[str, bytes] = {}
        self._shown: Shown | None = None
        self._succession: Succession | None = None
        self._fault = self._warned = ""

    def __repr__(self) -> str:
        return f"<Certified {self._shown.newest if self._shown else 'not yet'!r}>"

    @property
    def period(self) -> float:
        """Seconds between two looks."""
        return self._settings.tls_secret_period if self._settings.tls_secret else self._settings.secret_period

    @property
    def ends(self) -> float:
        """When the newest certificate does, a Unix time; 0.0 before there is one."""
        return certificates.ends(self._shown.newest.certificate).timestamp() if self._shown else 0.0

    def keys(self, uid: str) -> tuple[bytes, ...]:
        """Those that sign the affinity cookies of an object."""
        return session_keys.derived(self._data, uid)

    async def first(self) -> None:
        """Until something can be shown."""
        while True:
            if await self.look():
                return
            await asyncio.sleep(RETRY)

    async def look(self) -> bool:
        """Read what there is, and show it; whether anything is shown."""
        name = self._settings.secret
        try:
            data = await self._own.read(may_renew=self._told.leading())
            name = self._settings.tls_secret
            theirs = await read_secret(self._api, self._settings.namespace, name) if name else None
        except UNREACHABLE as error:
            log.warning("secret not read", extra={"secret": name, "error": str(error)})
            return self._shown is not None
        shown = self._given(data, theirs) if name else self._made(data)
        if shown is not None:
            self._show(shown, data)
        return self._shown is not None

    def _made(self, data: Mapping[str, bytes]) -> Shown | None:
        found = certificates.held(data)
        if found is None:
            log.error("the secret holds no authority", extra={"secret": self._settings.secret})
            return None
        return Shown(leaf=found.leaf, newest=found.leaf, trusted=found.trusted)

    def _given(self, own: Mapping[str, bytes], theirs: Mapping[str, bytes] | None) -> Shown | None:
        now = self._told.now()
        if self._succession is None:
            before = certificates.held(own)  # proxies know us by it, if we have had one of our own
            known = Given(leaf=before.leaf, trusted=before.trusted) if before else None
            self._succession = Succession(self._names[0], known if known and known.ends > now else None)
        fields = {"secret": self._settings.tls_secret}
        try:
            found = given(theirs, self._names[0])
        except Unusable as unusable:
            self._refuse(str(unusable), serving=self._succession.shown(now) is not None)
        else:
            self._fault = self._warned = ""
            if self._succession.follow(found, now):
                log.info("a given certificate is taken", extra=fields | {"until": found.ends.isoformat()})
        return self._succession.shown(now)

    def _refuse(self, fault: str, *, serving: bool) -> None:
        meanwhile = "the last good certificate serves on" if serving else "nothing can be served"
        if fault != self._fault:
            log.error(
                "the given certificate is refused",
                extra={"secret": self._settings.tls_secret, "error": fault, "meanwhile": meanwhile},
            )
        self._fault = fault
        if fault != self._warned and self._told.leading():  # one of the replicas says it
            self._warned = fault
            self._told.warn(REFUSED, f"Secret {self._settings.tls_secret}: {fault}; {meanwhile}")

    def _show(self, shown: Shown, data: Mapping[str, bytes]) -> None:
        before, self._shown = self._shown, shown
        if before is None or before.leaf != shown.leaf:
            use(self.discovery, shown.leaf)
        # Who is told of our authority by others hears of a new one at once.
        ours = bool(self._settings.webhook_configuration)
        if before is None or before != shown:
            use(self.webhook, shown.leaf if ours else shown.newest)
        keys = dict(data) != dict(self._data)
        self._data = data
        if shown.trusted != self.trusted:
            self.trusted = shown.trusted
            self.peers = ssl.create_default_context(cadata=shown.trusted.decode())
            self.retold.set()
            keys = True
        if keys:
            self._told.changed()

    def _renewed(self, data: Mapping[str, bytes] | None) -> Mapping[str, bytes]:
        authority = certificates.held(data or {})
        keys = session_keys.masters(data, secrets.token_bytes)
        if not self._settings.tls_secret:
            return certificates.renewed(authority, self._names, self._told.now()).data() | keys
        # One of our own is kept, from before there was a given one, until that one has taken its place.
        overtaken = self._succession is not None and self._succession.settled
        return keys if authority is None or overtaken else authority.data() | keys
