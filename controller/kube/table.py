"""The records of one kind, kept by its reflectors; tells who listens what changed, and only that."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Generic, TypeVar

R = TypeVar("R")
Key = tuple[str, str]  # (namespace, name)


class Table(Generic[R]):
    """A reflector's sink. `changed(key, old, new)` is called for each record that differs, None for absence.

    `scopes` are the namespaces that each have a reflector, or (None,) for one over all; `complete` once each of them
    had a whole list.
    """

    def __init__(
        self,
        name: str,
        scopes: Collection[str | None],
        changed: Callable[[Key, R | None, R | None], None],
    ) -> None:
        self.name = name
        self.records: dict[Key, R] = {}
        self.completed: Callable[[], None] = lambda: None
        self._missing = set(scopes)
        self._changed = changed

    def __repr__(self) -> str:
        return f"<Table {self.name} {len(self.records)} {'complete' if self.complete else 'incomplete'}>"

    @property
    def complete(self) -> bool:
        return not self._missing

    def replace(self, scope: str | None, items: Mapping[Key, R]) -> None:
        before = {key: old for key, old in self.records.items() if scope is None or key[0] == scope}
        for key in before.keys() - items.keys():
            del self.records[key]
        self.records.update(items)
        # Additions first: an object that moved to another name is then never absent in between.
        for key, new in items.items():
            if before.get(key) != new:
                self._changed(key, before.get(key), new)
        for key in before.keys() - items.keys():
            self._changed(key, before[key], None)
        if scope in self._missing:
            self._missing.remove(scope)
            self.completed()

    def put(self, key: Key, record: R) -> None:
        old = self.records.get(key)
        if old != record:
            self.records[key] = record
            self._changed(key, old, record)

    def drop(self, key: Key) -> None:
        old = self.records.pop(key, None)
        if old is not None:
            self._changed(key, old, None)
