"""What connected proxies said, by object: the newest of each, with its age as of now."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping

import msgspec

from controller.model.snapshot import Snapshot
from controller.translate.fleet import SILENT
from controller.translate.inputs import BackendHealth, Key, ProxyReport

FORGOTTEN = 120.0  # seconds of silence after which a proxy that was only relayed to us is dropped
VERSIONS = 32  # of one object, whose generation is remembered: a proxy may be some behind


class _Heard(msgspec.Struct):
    streams: int = 0  # its streams to this replica; 0: it is known by what others passed on
    version: str = ""
    error: str = ""
    health: dict[str, BackendHealth] = {}
    at: float = 0.0


class Reports(Mapping[Key, Collection[ProxyReport]]):
    """`changed(key)` is called when what is known of an object's proxies changes; signs of life alone don't count."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.changed: Callable[[Key], None] = lambda _: None
        self._clock = clock
        self._heard: dict[Key, dict[str, _Heard]] = {}
        self._generations: dict[Key, OrderedDict[str, int]] = {}

    def __repr__(self) -> str:
        return f"<Reports of {sum(map(len, self._heard.values()))} proxies on {len(self._heard)} objects>"

    def published(self, snapshot: Snapshot) -> None:
        """So that an acknowledgement of its version tells the generation."""
        known = self._generations.setdefault(snapshot.key, OrderedDict())
        known[snapshot.version] = snapshot.generation
        known.move_to_end(snapshot.version)
        while len(known) > VERSIONS:
            known.popitem(last=False)

    def gone(self, key: Key) -> None:
        """The object is: its versions are forgotten; its proxies are once they leave."""
        self._generations.pop(key, None)

    def connected(self, key: Key, proxy: str, here: bool) -> None:
        """A stream came or ended."""
        proxies = self._heard.setdefault(key, {})
        heard = proxies.setdefault(proxy, _Heard(at=self._clock()))
        heard.streams += 1 if here else -1
        if here:
            heard.at = self._clock()
        elif heard.streams <= 0:
            del proxies[proxy]
            if not proxies:
                del self._heard[key]
        self.changed(key)

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
        if (heard.version, heard.error, heard.health) != before or silent > SILENT:
            self.changed(key)

    def __getitem__(self, key: Key) -> Collection[ProxyReport]:
        now, proxies = self._clock(), self._heard[key]
        generations: Mapping[str, int] = self._generations.get(key, {})
        for name in [name for name, heard in proxies.items() if not heard.streams and now - heard.at > FORGOTTEN]:
            del proxies[name]
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
