"""The newest frame of every object, and who waits for it.

One slot per subscriber and name, never a queue: a slow reader gets the newest and skips the rest. A frame is encoded
once, and every stream shares its bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import msgspec

from controller.discovery import frames
from controller.model.snapshot import Snapshot

Key = tuple[str, str]


class Published(msgspec.Struct, frozen=True):
    """What is being served of one object: its snapshot as JSON, and the frame that carries it."""

    version: str
    body: bytes
    keys: tuple[bytes, ...]
    frame: bytes

    def __repr__(self) -> str:
        return f"<Published {self.version}>"


class Subscriber:
    """One reader's slots: which of its names changed since it last looked."""

    def __init__(self, names: Iterable[Key]) -> None:
        self.names = frozenset(names)
        self._changed: dict[Key, None] = dict.fromkeys(sorted(self.names))
        self._wake = asyncio.Event()
        self._wake.set()

    def mark(self, key: Key) -> None:
        self._changed[key] = None
        self._wake.set()

    def take(self) -> list[Key]:
        """The names that changed, in the order of their changes; empties the slots."""
        taken, self._changed = list(self._changed), {}
        self._wake.clear()
        return taken

    async def changed(self) -> None:
        await self._wake.wait()

    def wake(self) -> None:
        self._wake.set()


class Hub:
    """Where the operator puts snapshots and the streams take them.

    Nothing is served, and nothing called gone, before `synced` is set: an unsynced cache looks like an empty cluster.
    What `exists` but was never published (its spec is not valid, or a bug is in the way) is passed over in silence: its
    proxies keep what an earlier operator has told them.
    """

    def __init__(self, exists: Callable[[Key], bool] = lambda _: False) -> None:
        self.synced = False
        self._exists = exists
        self.freshness = 0
        self._published: dict[Key, Published] = {}
        self._subscribers: dict[Key, set[Subscriber]] = {}
        self._all: set[Subscriber] = set()

    def put(self, snapshot: Snapshot, keys: tuple[bytes, ...] = (), freshness: int = 0) -> bool:
        """Publish; an equal snapshot with equal keys is no change. Returns whether it was one."""
        body = snapshot.encode()
        version = snapshot.version
        key = snapshot.key
        self.freshness = max(self.freshness, freshness)
        last = self._published.get(key)
        if last is not None and (last.version, last.keys) == (version, keys):
            return False
        frame = frames.encode(
            frames.SnapshotFrame(
                name=snapshot.name, version=version, snapshot=msgspec.Raw(body), freshness=self.freshness, keys=keys
            )
        )
        self._published[key] = Published(version=version, body=body, keys=keys, frame=frame)
        self._notify(key)
        return True

    def gone(self, key: Key) -> None:
        self._published.pop(key, None)
        self._notify(key)

    def sync(self) -> None:
        """Everything known has been put: start to serve."""
        self.synced = True
        for subscriber in self._all:
            subscriber.wake()

    def get(self, key: Key) -> Published | None:
        return self._published.get(key)

    def frame(self, key: Key) -> bytes | None:
        """What to tell of it now; None: nothing."""
        published = self._published.get(key)
        if published is not None:
            return published.frame
        return None if self._exists(key) else frames.encode(frames.Gone(name=key[1]))

    def subscribe(self, names: Iterable[Key]) -> Subscriber:
        subscriber = Subscriber(names)
        self._all.add(subscriber)
        for key in subscriber.names:
            self._subscribers.setdefault(key, set()).add(subscriber)
        return subscriber

    def unsubscribe(self, subscriber: Subscriber) -> None:
        self._all.discard(subscriber)
        for key in subscriber.names:
            waiting = self._subscribers.get(key)
            if waiting is not None:
                waiting.discard(subscriber)
                if not waiting:
                    del self._subscribers[key]

    def wake_all(self) -> None:
        for subscriber in self._all:
            subscriber.wake()

    def _notify(self, key: Key) -> None:
        for subscriber in self._subscribers.get(key, ()):
            subscriber.mark(key)

    def __repr__(self) -> str:
        return f"<Hub {len(self._published)} objects, {len(self._all)} subscribers, synced={self.synced}>"
