"""What connected proxies said, by object: the newest of each, with its age as of now."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Protocol

import msgspec

from controller.model.snapshot import Snapshot
from controller.translate.fleet import SILENT
from controller.translate.inputs import BackendHealth, Key, ProxyReport

FORGOTTEN = 120.0  # seconds of silence after which a proxy without a stream to this replica is dropped
# Seconds in which a proxy whose stream has ended comes back: its client pauses for 4 at most. Of a Gateway's proxies
# slices say sooner that they are gone, and they are waited for as long as for those that were only relayed to us.
RETURN = 5.0
VERSIONS = 32  # of one object, whose generation is remembered: a proxy may be some behind


class _Timer(Protocol):
    def cancel(self) -> None: ...


Later = Callable[[float, Callable[[], None]], _Timer]


def _on_loop(seconds: float, call: Callable[[], None]) -> _Timer:
    return asyncio.get_running_loop().call_later(seconds, call)


class _Heard(msgspec.Struct):
    streams: int = 0  # its streams to this replica; 0: it is known by what others passed on, or may come back
    version: str = ""
    error: str = ""
    health: dict[str, BackendHealth] = {}
    at: float = 0.0
    end: _Timer | None = None  # when it is dropped, while it has no stream


class Reports(Mapping[Key, Collection[ProxyReport]]):
    """`changed(key)` is called when what is known of an object's proxies changes; signs of life alone don't count.

    What a proxy said outlives its stream, which ends once an hour with its token: it is back at once, and the same.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, later: Later = _on_loop) -> None:
        self.changed: Callable[[Key], None] = lambda _: None
        self._clock = clock
        self._later = later
        self._gateways: set[Key] = set()
        self._heard: dict[Key, dict[str, _Heard]] = {}
        self._generations: dict[Key, OrderedDict[str, int]] = {}

    def __repr__(self) -> str:
        return f"<Reports of {sum(map(len, self._heard.values()))} proxies on {len(self._heard)} objects>"

    def published(self, snapshot: Snapshot) -> None:
        """So that an acknowledgement of its version tells the generation."""
        (self._gateways.add if snapshot.mode == "Gateway" else self._gateways.discard)(snapshot.key)
        known = self._generations.setdefault(snapshot.key, OrderedDict())
        known[snapshot.version] = snapshot.generation
        known.move_to_end(snapshot.version)
        while len(known) > VERSIONS:
            known.popitem(last=False)

    def gone(self, key: Key) -> None:
        """The object is: its versions and who has left are forgotten; the other proxies are once they leave."""
        self._generations.pop(key, None)
        self._gateways.discard(key)
        for proxy in [proxy for proxy, heard in self._heard.get(key, {}).items() if not heard.streams]:
            self._drop(key, proxy)

    def connected(self, key: Key, proxy: str, here: bool) -> None:
        """A stream came or ended."""
        heard = self._heard.setdefault(key, {}).setdefault(proxy, _Heard(at=self._clock()))
        heard.streams += 1 if here else -1
        if here:
            heard.at = self._clock()
            self._expect(key, proxy, None)
            self.changed(key)
        elif not heard.streams:
            self._expect(key, proxy, FORGOTTEN if key in self._gateways else RETURN)

    def here(self, key: Key, proxy: str) -> bool:
        """Whether it has a stream to this replica."""
        heard = self._heard.get(key, {}).get(proxy)
        return heard is not None and heard.streams > 0

    def count(self, key: Key) -> int:
        """How many proxies of that object are known."""
        return len(self._heard.get(key, ()))

    def reported(
        self, key: Key, proxy: str, ack: tuple[str, str] | None, health: Mapping[str, tuple[int, int]]
    ) -> None:
        """`ack` is (version, error), None while there is none; `health` is (known, usable) by backend."""
        proxies = self._heard.setdefault(key, {})
        heard = proxies.setdefault(proxy, _Heard())
        known = {name: BackendHealth(known=known, usable=usable) for name, (known, usable) in health.items()}
        before = (heard.version, heard.error, heard.health)
        heard.version, heard.error = ack or (heard.version, heard.error)
        heard.health = known
        silent = self._clock() - heard.at
        heard.at = self._clock()
        if not heard.streams:
            self._expect(key, proxy, FORGOTTEN)
        if (heard.version, heard.error, heard.health) != before or silent > SILENT:
            self.changed(key)

    def __getitem__(self, key: Key) -> Collection[ProxyReport]:
        now, proxies = self._clock(), self._heard[key]
        generations: Mapping[str, int] = self._generations.get(key, {})
        return [
            ProxyReport(
                proxy=name,
                version=heard.version,
                generation=generations.get(heard.version, 0),
                error=heard.error,
                age=now - heard.at,
                health=heard.health,
            )
            for name, heard in proxies.items()
        ]

    def __iter__(self) -> Iterator[Key]:
        return iter(self._heard)

    def __len__(self) -> int:
        return len(self._heard)

    def _expect(self, key: Key, proxy: str, seconds: float | None) -> None:
        """Drop it after so many seconds; None: not while its stream lasts."""
        heard = self._heard[key][proxy]
        if heard.end is not None:
            heard.end.cancel()
        heard.end = None if seconds is None else self._later(seconds, lambda: self._over(key, proxy))

    def _over(self, key: Key, proxy: str) -> None:
        self._drop(key, proxy)
        self.changed(key)

    def _drop(self, key: Key, proxy: str) -> None:
        self._expect(key, proxy, None)
        del self._heard[key][proxy]
        if not self._heard[key]:
            del self._heard[key]
