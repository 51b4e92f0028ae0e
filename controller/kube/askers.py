"""The pods that ask for a sidecar, by their metadata alone: who may read as one, and who has none.

A pod that was made while the webhook was away (`failurePolicy: Ignore`) runs without; nothing but a new pod mends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

import msgspec

from controller.injection import INJECTED
from controller.kube.api import Object
from controller.kube.events import Said
from controller.kube.table import Key, Table

NOTE = (
    "This pod asks for a sidecar and has none: when it was made, no webhook or policy could give it one, or its "
    "namespace had no BalancedService with mode Sidecar for it. Its requests go to the ordinary Services. A new pod "
    "gets one."
)


class Asker(msgspec.Struct, frozen=True):
    uid: str
    injected: bool


def asker_record(item: Object) -> Asker | None:
    """None for a pod that is going."""
    metadata = item["metadata"]
    if "deletionTimestamp" in metadata:
        return None
    return Asker(metadata["uid"], INJECTED in (metadata.get("annotations") or {}))


class Askers:
    def __init__(self, scopes: Collection[str | None]) -> None:
        self.table = Table[Asker]("pods", scopes, self._changed)
        self._news = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Askers {len(self.table.records)} pods, {self.missing} without a sidecar>"

    @property
    def missing(self) -> int:
        """Pods that run without the sidecar they ask for."""
        return sum(not pod.injected for pod in self.table.records.values())

    def has(self, namespace: str, pod: str, uid: str) -> bool:
        found = self.table.records.get((namespace, pod))
        return found is not None and found.uid == uid

    async def report(self, say: Callable[[Said], None]) -> None:
        """An Event on each pod without; for ever."""
        said: set[str] = set()
        while True:
            self._news.clear()
            missing = {pod.uid: key for key, pod in self.table.records.items() if not pod.injected}
            for uid in missing.keys() - said:
                say(Said(missing[uid], uid, "Warning", "NotInjected", "Inject", NOTE, ("v1", "Pod")))
            said = set(missing)
            await self._news.wait()

    def _changed(self, key: Key, old: Asker | None, new: Asker | None) -> None:
        self._news.set()
