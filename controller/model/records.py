"""Mappings with known fields: unknown and missing ones, and the rules between them.

As in the API server, a field that is `null` is as good as absent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from controller.model.fields import BROKEN, Broken, Field, refuse, shown
from controller.model.service import Fault


class Rule(NamedTuple):
    """What must hold between fields of one record: the counterpart of a CEL rule on an object.

    Asked only when all of `needs` could be read; `holds` gets the fields that were given.
    """

    needs: tuple[str, ...]
    at: str  # the field that the fault is reported at; "" = the record
    message: str
    holds: Callable[[Mapping[str, Any]], bool]


class Group:
    """A mapping with known fields, kept as a dict with the object's own names."""

    def __init__(self, fields: Mapping[str, Field], required: Sequence[str] = (), rules: Sequence[Rule] = ()) -> None:
        self.fields, self.required, self.rules = fields, required, rules

    def read(self, value: object, path: str, faults: list[Fault]) -> dict[str, Any] | Broken:
        if not isinstance(value, Mapping):
            return refuse(faults, path, f"must be a mapping, not {shown(value)}")
        before = len(faults)
        given = {name: entry for name, entry in value.items() if entry is not None}
        read: dict[str, Any] = {}
        for name, entry in given.items():
            if name in self.fields:
                read[name] = self.fields[name].read(entry, f"{path}.{name}", faults)
            else:
                refuse(faults, f"{path}.{name}", f"is not a field; here are {', '.join(self.fields)}")
        for name in self.required:
            if name not in given:
                read[name] = refuse(faults, f"{path}.{name}", "must be given")
        for rule in self.rules:
            if all(read.get(name) is not BROKEN for name in rule.needs) and not rule.holds(read):
                refuse(faults, f"{path}.{rule.at}" if rule.at else path, rule.message)
        return read if len(faults) == before else BROKEN

    def write(self, value: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self.fields[name].write(entry) for name, entry in value.items()}


class Record:
    """A mapping that becomes a struct: its fields' names and defaults, and which are required, are the struct's own.

    `complete` is told what was given and adds the defaults that hang on other fields, by the struct's names.
    """

    def __init__(
        self,
        struct: type[msgspec.Struct],
        rules: Sequence[Rule] = (),
        complete: Callable[[dict[str, Any]], None] = lambda given: None,
        **fields: Field,
    ) -> None:
        self.struct, self.complete = struct, complete
        infos = {info.name: info for info in msgspec.structs.fields(struct)}
        completed: dict[str, Any] = {}
        complete(completed)
        self.attributes = {infos[name].encode_name: name for name in fields}
        self.group = Group(
            {infos[name].encode_name: field for name, field in fields.items()},
            [infos[name].encode_name for name in fields if infos[name].required and name not in completed],
            rules,
        )

    def read_given(self, value: object, path: str, faults: list[Fault]) -> dict[str, Any] | Broken:
        """What was given and what `complete` added, by the struct's names."""
        read = self.group.read(value, path, faults)
        if isinstance(read, Broken):
            return read
        given = {self.attributes[name]: entry for name, entry in read.items()}
        self.complete(given)
        return given

    def read(self, value: object, path: str, faults: list[Fault]) -> Any:
        given = self.read_given(value, path, faults)
        return given if isinstance(given, Broken) else self.struct(**given)

    def write(self, value: msgspec.Struct) -> dict[str, Any]:
        """Every field that is in force."""
        fields = self.group.fields
        entries = {name: getattr(value, attribute) for name, attribute in self.attributes.items()}
        written = {name: fields[name].write(entry) for name, entry in entries.items() if entry is not None}
        return {name: entry for name, entry in written.items() if entry is not None}
