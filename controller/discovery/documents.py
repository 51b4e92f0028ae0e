"""YAML documents as kubectl reads them, with the line of every field. Pure.

Stricter where a file would surprise its author: duplicate keys, merge keys and foreign tags are faults.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import yaml
from yaml.constructor import ConstructorError

from controller.discovery.words import MERGE, Loader, scalar
from controller.model.service import Fault

_NODES = 200_000  # visited; aliases of aliases could make a small file endless


class Document(msgspec.Struct):
    """One document: its value, the line of each path (as in `spec.backends[0].weight`), and what is wrong with it."""

    value: object
    line: int
    lines: dict[str, int]
    faults: list[Fault]

    def line_of(self, path: str) -> int:
        """The line of the field, or of the nearest thing around it that is there."""
        while path and path not in self.lines:
            path = re.sub(r"(\.[^.\[]*|\[\d+\]|^[^.\[]*)$", "", path)
        return self.lines.get(path, self.line)


def documents(text: str) -> Iterator[Document]:
    """Each document that is not empty.

    Raises `yaml.YAMLError` for what is no YAML, and RecursionError for what is nested too deeply.
    """
    for node in yaml.compose_all(text, Loader=Loader):
        document = Document(None, node.start_mark.line + 1, {}, [])
        document.value = _Reading(document).value(node, "")
        if document.value is not None or document.faults:
            yield document


class _Reading:
    def __init__(self, document: Document) -> None:
        self.document = document
        self.visited = 0
        self.open: set[int] = set()

    def value(self, node: yaml.Node, path: str) -> object:
        self.visited += 1
        if self.visited > _NODES:
            if self.visited == _NODES + 1:
                self._refuse("", f"has more than {_NODES} values")
            return None
        self.document.lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        if id(node) in self.open:
            self._refuse(path, "refers to itself")
            return None
        self.open.add(id(node))
        if isinstance(node, yaml.MappingNode):
            found: object = self._mapping(node, path)
        else:
            found = [self.value(entry, f"{path}[{index}]") for index, entry in enumerate(node.value)]
        self.open.discard(id(node))
        return found

    def _mapping(self, node: yaml.MappingNode, path: str) -> dict[Any, object]:
        found: dict[Any, object] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._refuse(path, "has a key that is no single word")
                continue
            if key_node.value == MERGE and key_node.style is None:
                self._refuse(path, "uses <<, which is not supported: write the fields out")
                continue
            before = len(self.document.faults)
            key = self._scalar(key_node, path)
            if len(self.document.faults) > before:
                continue
            place = f"{path}.{key}" if path else str(key)
            line = key_node.start_mark.line + 1
            if key in found:
                self._refuse(place, f"is given twice, again in line {line}: remove one")
                continue
            self.document.lines[place] = line
            found[key] = self.value(value_node, place)
        return found

    def _scalar(self, node: yaml.ScalarNode, path: str) -> Any:
        try:
            return scalar(node)
        except ConstructorError as error:
            return self._refuse(path, str(error.problem))

    def _refuse(self, path: str, message: str) -> None:
        self.document.faults.append(Fault(path, message))
