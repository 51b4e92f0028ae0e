"""The proxy's side of the wire: keeps a stream to the operator, and the last good snapshots without it.

`events()` yields what to apply: first what the disk holds, then what the operator says. Only a synced operator's
`gone` forgets; every other failure keeps what is there. The CA is read again on every connect and the token for every
request, since both rotate: a token within the hour, which a stream outlives.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from random import Random

import aiohttp
import msgspec

from controller.discovery import frames
from controller.discovery.copy import Copies
from controller.model.snapshot import SCHEMA, Snapshot, decode

log = logging.getLogger(__name__)

# Seconds; jittered, so that a fleet does not come back in step. Not longer: an operator that is back must be heard
# within 5, and while it is away an attempt costs no more than a refused connection.
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 4.0


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the operator is and who we are. `url` is https://HOST:PORT; http is only for tests on loopback."""

    url: str
    namespace: str
    names: tuple[str, ...]
    token: Path | None = None
    ca: Path | None = None
    store: Path | None = None


class Update(msgspec.Struct, frozen=True):
    """Apply this, then acknowledge `version`."""

    snapshot: Snapshot
    version: str
    keys: tuple[bytes, ...] = ()
    stored: bool = False  # from the disk, not from the operator


class Forget(msgspec.Struct, frozen=True):
    name: str


class Placed(msgspec.Struct, frozen=True):
    """Where we run, as the operator sees it."""

    node: str
    zone: str


Event = Update | Forget | Placed


class Unavailable(Exception):  # noqa: N818 - a state of the operator, not a fault of ours
    """The operator can't be reached or refuses us; `str` says why."""


class Client:
    """One stream for all names. `health` is asked for a report's numbers at every ping and change."""

    def __init__(
        self,
        settings: Settings,
        clock: Callable[[], float],
        random: Random,
        health: Callable[[str], Mapping[str, frames.BackendHealth]],
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._random = random
        self._health = health
        self._copies = Copies(settings.store)
        self._versions: dict[str, str] = {}
        self._keys: dict[str, tuple[bytes, ...]] = {}  # they change without a new version, too
        self._bodies: dict[str, tuple[bytes, tuple[bytes, ...]]] = {}
        self._acks: dict[str, frames.Ack] = {}
        self._held: dict[str, frames.SnapshotFrame] = {}
        self._report = asyncio.Event()
        self._due: set[str] = set()  # names to report; what has nothing new is told of at pings only
        self._freshness: dict[str, int] = {}
        self.connected = False
        self.heard = clock()  # when the operator last said anything: the age of the configuration
        self.failures = 0
        self.error = ""

    async def events(self) -> AsyncIterator[Event]:
        for name in self._settings.names:
            stored = self._copies.load(name)
            if stored is not None:
                self._versions[name], self._keys[name] = stored.version, stored.keys
                yield Update(snapshot=stored.snapshot, version=stored.version, keys=stored.keys, stored=True)
        pause = FIRST_PAUSE
        while True:
            started = self._clock()
            try:
                async for event in self._connection():
                    yield event
            except (aiohttp.ClientError, OSError, TimeoutError, Unavailable, msgspec.DecodeError, ValueError) as error:
                self.failures += 1
                self.error = str(error) or type(error).__name__
                log.log(
                    logging.WARNING if pause == FIRST_PAUSE else logging.DEBUG,
                    "no stream from the operator; serving what we have",
                    extra={"url": self._settings.url, "error": self.error},
                )
            finally:
                was, self.connected = self.connected, False
            if was and self._clock() - started > LONGEST_PAUSE:
                pause = FIRST_PAUSE
            await asyncio.sleep(self._random.uniform(pause / 10, pause))
            pause = min(LONGEST_PAUSE, pause * 2)

    def ack(self, name: str, version: str, error: str = "") -> None:
        """Say that `version` is in force, or why it was refused. An applied one is also kept on disk."""
        if not error and name in self._bodies and self._versions.get(name) == version:
            body, keys = self._bodies.pop(name)
            self._copies.save(name, body, version, keys)
        self._acks[name] = frames.Ack(version=version, ok=not error, error=error[:1000])
        self._due.add(name)
        self._report.set()

    def changed(self) -> None:
        """A backend became usable or unusable: report at once, of all names."""
        self._due.update(self._settings.names)
        self._report.set()

    async def _connection(self) -> AsyncIterator[Event]:
        settings = self._settings
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=3 * frames.PING_SECONDS)
        connector = aiohttp.TCPConnector(ssl=self._tls(), limit=4)
        async with aiohttp.ClientSession(
            connector=connector,
            timeout=timeout,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
        ) as session:
            url = f"{settings.url}/v1/snapshots/{settings.namespace}"
            async with session.get(
                url,
                params={"names": ",".join(settings.names)},
                headers={"Accept": frames.MEDIA_TYPE, **self._headers()},
                allow_redirects=False,
            ) as response:
                if response.status != 200:
                    raise Unavailable(
                        f"{response.status} {(await response.content.read(300)).decode(errors='replace').strip()}"
                    )
                self.connected, self.error = True, ""
                reporter = asyncio.create_task(self._reporting(session), name="discovery-reports")
                reporter.add_done_callback(lambda _: response.close())
                try:
                    lines = frames.Lines()
                    async for chunk in response.content.iter_any():
                        self.heard = self._clock()
                        for line in lines.feed(chunk):
                            frame = frames.decode(line)
                            if isinstance(frame, frames.Reconnect):
                                return
                            if frame is not None:
                                for event in self._understood(frame):
                                    yield event
                except aiohttp.ClientError:
                    if reporter.done():
                        await reporter  # it has closed the stream, and raises why
                    raise
                finally:
                    reporter.cancel()
                    await asyncio.gather(reporter, return_exceptions=True)

    def _understood(self, frame: frames.Frame) -> list[Event]:
        match frame:
            case frames.Hello(node=node, zone=zone):
                self._held.clear()
                self.changed()
                return [Placed(node=node, zone=zone)]
            case frames.Gone(name=name):
                self._versions.pop(name, None)
                self._keys.pop(name, None)
                self._bodies.pop(name, None)
                self._acks.pop(name, None)
                self._freshness.pop(name, None)
                self._held.pop(name, None)
                self._copies.drop(name)
                return [Forget(name=name)]
            case frames.Ping():
                self.changed()
                held, self._held = self._held, {}
                return [event for late in held.values() for event in self._accept(late)]
            case frames.SnapshotFrame():
                return self._snapshot(frame)
        return []

    def _snapshot(self, frame: frames.SnapshotFrame) -> list[Event]:
        known = self._freshness.get(frame.name, 0)
        if self._versions.get(frame.name) == frame.version and self._keys.get(frame.name) == frame.keys:
            self._freshness[frame.name] = max(known, frame.freshness)
            self._acks.setdefault(frame.name, frames.Ack(version=frame.version, ok=True))
            self._held.pop(frame.name, None)
            self._due.add(frame.name)
            self._report.set()
            return []
        if frame.freshness < known:
            # A replica that lags behind the one we came from: what it says is taken only if it still says so at
            # its next ping, by when it has caught up or is right.
            self._held[frame.name] = frame
            return []
        return self._accept(frame)

    def _accept(self, frame: frames.SnapshotFrame) -> list[Event]:
        self._held.pop(frame.name, None)
        self._freshness[frame.name] = frame.freshness
        body = bytes(frame.snapshot)
        try:
            snapshot = decode(body)
        except msgspec.DecodeError as error:
            self.ack(frame.name, frame.version, f"can't be read: {error}")
            return []
        if snapshot.schema != SCHEMA:
            self.ack(frame.name, frame.version, f"schema {snapshot.schema} is not {SCHEMA}, which this proxy reads")
            return []
        self._versions[frame.name], self._keys[frame.name] = frame.version, frame.keys
        self._bodies[frame.name] = (body, frame.keys)
        return [Update(snapshot=snapshot, version=frame.version, keys=frame.keys)]

    async def _reporting(self, session: aiohttp.ClientSession) -> None:
        """For ever. Raises Unavailable where the operator does not know us any more."""
        url = f"{self._settings.url}/v1/reports/{self._settings.namespace}"
        while True:
            await self._report.wait()
            self._report.clear()
            due, self._due = self._due, set()
            reports = {
                name: frames.Report(ack=self._acks[name], health=dict(self._health(name)))
                for name in self._settings.names
                if name in due and name in self._acks
            }
            if not reports:
                continue
            try:
                timeout = aiohttp.ClientTimeout(total=5)
                body, headers = msgspec.json.encode(reports), self._headers()
                async with session.post(url, data=body, headers=headers, timeout=timeout) as response:
                    if response.status == 204:
                        continue
                    refused = response.status
            except (aiohttp.ClientError, TimeoutError, Unavailable) as error:
                log.debug("a report was not delivered", extra={"error": str(error)})
            else:
                if refused == 401:
                    raise Unavailable("401 to a report")
                log.debug("a report was refused", extra={"status": refused})
            self._due |= due

    def _headers(self) -> dict[str, str]:
        if self._settings.token is None:
            return {}
        try:
            return {"Authorization": f"Bearer {self._settings.token.read_text().strip()}"}
        except OSError as error:
            raise Unavailable(f"no token: {error}") from error

    def _tls(self) -> ssl.SSLContext | bool:
        if not self._settings.url.startswith("https:"):
            return True
        try:
            return ssl.create_default_context(cafile=self._settings.ca)
        except (OSError, ssl.SSLError) as error:
            raise Unavailable(f"no usable CA at {self._settings.ca}: {error}") from error
