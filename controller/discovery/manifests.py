"""Manifests that pass through: read as kubectl reads them, and written so that it reads the same again. Pure.

More lenient than `documents`, since it's for kubectl to judge them: merge keys are followed, and of a key given twice
the last holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import yaml

from controller.discovery.words import MERGE, STRING, Loader, Word, plain, refusal, scalar, unreadable

_DEPTH = 200  # a CRD has 60; PyYAML writes no deeper than 300
_BREAKS = frozenset("\x85\u2028\u2029")  # PyYAML would fold lines at these


def read(data: bytes) -> list[tuple[int, Any]]:
    """Every document that is not empty, with its line. Raises Unreadable."""
    with unreadable():
        return list(_documents(data.decode("utf-8-sig")))


def _documents(text: str) -> Iterator[tuple[int, Any]]:
    for node in yaml.compose_all(text, Loader=Loader):
        value = _Reading().value(node, 0)
        if value is not None:
            yield node.start_mark.line + 1, value


class _Reading:
    def __init__(self) -> None:
        self._made: dict[int, object] = {}  # by node: an alias is the same value, so that aliases of aliases stay small

    def value(self, node: yaml.Node, depth: int) -> Any:
        if isinstance(node, yaml.ScalarNode):
            return scalar(node)
        if depth > _DEPTH:
            raise RecursionError
        if id(node) not in self._made:
            if isinstance(node, yaml.MappingNode):
                self._made[id(node)] = self._mapping(node, depth)
            else:
                self._made[id(node)] = [self.value(each, depth + 1) for each in node.value]
        return self._made[id(node)]

    def _mapping(self, node: yaml.MappingNode, depth: int) -> dict[Word, object]:
        found: dict[Word, object] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise refusal(key, "has a key that is no single word")
            if key.value == MERGE and key.style is None:
                # At its place: what stands before it gives way, too (go-yaml 2).
                for each in reversed(value.value) if isinstance(value, yaml.SequenceNode) else (value,):
                    found |= self._merged(each, depth)
            else:
                found[_key(scalar(key))] = self.value(value, depth + 1)
        return found

    def _merged(self, node: yaml.Node, depth: int) -> dict[Word, object]:
        if not isinstance(node, yaml.MappingNode):
            raise refusal(node, "is merged by <<, but is no mapping")
        found: dict[Word, object] = self.value(node, depth + 1)
        return found


def _key(word: Word) -> Word:
    """JSON has strings only, and in Python 1 and true would be one key."""
    if isinstance(word, bool):
        return str(word).lower()
    return str(word) if isinstance(word, int) else word


class _Dumper(yaml.SafeDumper):
    """Puts a string in quotes where PyYAML or kubectl would read it as something else."""

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> Any:
        found = super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]  # PyYAML's
        if found == STRING and kind is yaml.ScalarNode and implicit[0] and not isinstance(plain(value), str):
            return None
        return found


def _string(dumper: _Dumper, text: str) -> yaml.Node:
    style = '"' if _BREAKS.intersection(text) else "|" if "\n" in text else None
    return dumper.represent_scalar(STRING, text, style=style)


_Dumper.add_representer(str, _string)


def written(objects: Iterable[object]) -> bytes:
    """A document each."""
    return yaml.dump_all(objects, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120, encoding="utf-8")
