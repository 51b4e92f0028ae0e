"""The kinds of field that an object's schema is made of: each reads a value, collects every fault, and writes it back.

Belongs here: what a structural schema can say of one value: type, range, pattern, length, uniqueness. Mappings with
known fields are in `controller.model.records`; which fields there are stands in `controller.model.parsing`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from controller.model.durations import PATTERN, format_duration, parse_duration
from controller.model.service import Fault


class Broken:
    """Stands for a value that could not be read; its faults are in the list."""


BROKEN: Final = Broken()


class Field(Protocol):
    def read(self, value: object, path: str, faults: list[Fault]) -> Any:
        """The value for the model, or BROKEN after adding at least one fault. Never raises."""
        ...

    def write(self, value: Any) -> Any:
        """The inverse of `read`: the value for the object."""
        ...


class Plain:
    """A field whose value is the same in the object and in the model."""

    def write(self, value: Any) -> Any:
        return value


def shown(value: object) -> str:
    """The value as a message shows it: one line, short."""
    try:
        text = msgspec.json.encode(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."


def refuse(faults: list[Fault], path: str, message: str) -> Broken:
    faults.append(Fault(path, message))
    return BROKEN


class Integer(Plain):
    def __init__(self, low: int, high: int) -> None:
        self.low, self.high = low, high

    def read(self, value: object, path: str, faults: list[Fault]) -> int | Broken:
        if isinstance(value, float) and value.is_integer():
            value = int(value)  # JSON knows no difference between 80 and 80.0
        if isinstance(value, int) and not isinstance(value, bool) and self.low <= value <= self.high:
            return value
        return refuse(faults, path, f"must be a whole number from {self.low} to {self.high}, not {shown(value)}")


class Number:
    def __init__(self, low: float, high: float) -> None:
        self.low, self.high = low, high

    def read(self, value: object, path: str, faults: list[Fault]) -> float | Broken:
        if isinstance(value, int | float) and not isinstance(value, bool) and self.low <= value <= self.high:
            return float(value)
        return refuse(faults, path, f"must be a number from {self.low:g} to {self.high:g}, not {shown(value)}")

    def write(self, value: float) -> float | int:
        return int(value) if value.is_integer() else value


class Flag(Plain):
    def read(self, value: object, path: str, faults: list[Fault]) -> bool | Broken:
        return value if isinstance(value, bool) else refuse(faults, path, f"must be true or false, not {shown(value)}")


class Mark:
    """A flag that is either true or absent."""

    def read(self, value: object, path: str, faults: list[Fault]) -> bool | Broken:
        return True if value is True else refuse(faults, path, f"must be true or absent, not {shown(value)}")

    def write(self, value: bool) -> bool | None:
        return value or None


class Choice(Plain):
    def __init__(self, *words: str) -> None:
        self.words = words

    def read(self, value: object, path: str, faults: list[Fault]) -> str | Broken:
        if isinstance(value, str) and value in self.words:
            return value
        return refuse(faults, path, f"must be one of {', '.join(self.words)}, not {shown(value)}")


class Text(Plain):
    """A string that `pattern` matches as a whole. `what` completes "must be …"; a secret is never shown."""

    def __init__(self, what: str, high: int, pattern: str = r"(?s:.*)", low: int = 0, secret: bool = False) -> None:
        self.what, self.low, self.high, self.secret = what, low, high, secret
        self.pattern = re.compile(pattern, re.ASCII)

    def read(self, value: object, path: str, faults: list[Fault]) -> str | Broken:
        if isinstance(value, str) and self.low <= len(value) <= self.high and self.pattern.fullmatch(value):
            return value
        given = "" if self.secret else f", not {shown(value)}"
        return refuse(faults, path, f"must be {self.what}, at most {self.high} characters{given}")


class Checked:
    """Reads with `field`, then refuses with `message` what `holds` denies: the counterpart of a CEL rule on a value."""

    def __init__(self, field: Field, message: str, holds: Callable[[Any], bool]) -> None:
        self.field, self.message, self.holds = field, message, holds

    def read(self, value: object, path: str, faults: list[Fault]) -> Any:
        read = self.field.read(value, path, faults)
        return read if read is BROKEN or self.holds(read) else refuse(faults, path, self.message)

    def write(self, value: Any) -> Any:
        return self.field.write(value)


class Duration:
    """Seconds in the model, text in the object. `low` and `high` are durations."""

    def __init__(self, low: str, high: str) -> None:
        self.low, self.high = low, high

    def read(self, value: object, path: str, faults: list[Fault]) -> float | Broken:
        if not isinstance(value, str) or PATTERN.fullmatch(value) is None:
            return refuse(faults, path, f"must be a duration such as 500ms, 30s or 1h30m, not {shown(value)}")
        seconds = parse_duration(value)
        if parse_duration(self.low) <= seconds <= parse_duration(self.high):
            return seconds
        return refuse(faults, path, f"{path.rpartition('.')[2]} must be from {self.low} to {self.high}")

    def write(self, value: float) -> str:
        return format_duration(value)


class Either(Plain):
    """An integer or a string, each by its own field."""

    def __init__(self, integer: Field, text: Field) -> None:
        self.integer, self.text = integer, text

    def read(self, value: object, path: str, faults: list[Fault]) -> Any:
        if isinstance(value, str):
            return self.text.read(value, path, faults)
        return self.integer.read(value, path, faults)


class Converted:
    """Reads with `field`, then brings the value to the model's form."""

    def __init__(self, field: Field, take: Callable[[Any], Any], give: Callable[[Any], Any]) -> None:
        self.field, self.take, self.give = field, take, give

    def read(self, value: object, path: str, faults: list[Fault]) -> Any:
        read = self.field.read(value, path, faults)
        return BROKEN if read is BROKEN else self.take(read)

    def write(self, value: Any) -> Any:
        return self.field.write(self.give(value))


class Listing:
    """A list of `low` to `high` items; a tuple in the model. With `key`, no two items may have the same one."""

    def __init__(self, item: Field, low: int, high: int, key: Callable[[Any], object] | None = None) -> None:
        self.item, self.low, self.high, self.key = item, low, high, key

    def read(self, value: object, path: str, faults: list[Fault]) -> tuple[Any, ...] | Broken:
        if not isinstance(value, Sequence) or isinstance(value, str | bytes):
            return refuse(faults, path, f"must be a list, not {shown(value)}")
        if not self.low <= len(value) <= self.high:
            return refuse(faults, path, f"must have {self.low} to {self.high} entries, not {len(value)}")
        before = len(faults)
        items: list[Any] = []
        seen: dict[object, str] = {}
        for index, entry in enumerate(value):
            place = f"{path}[{index}]"
            item = self.item.read(entry, place, faults)
            if item is not BROKEN and self.key is not None:
                first = seen.setdefault(self.key(item), place)
                if first != place:
                    refuse(faults, place, f"{shown(self.key(item))} is already taken by {first}: change one")
            items.append(item)
        return tuple(items) if len(faults) == before else BROKEN

    def write(self, value: Sequence[Any]) -> list[Any]:
        return [self.item.write(item) for item in value]


class Table:
    """A mapping from any string to values of one kind, with `low` to `high` entries."""

    def __init__(self, value: Field, high: int, low: int = 0) -> None:
        self.value, self.low, self.high = value, low, high

    def read(self, value: object, path: str, faults: list[Fault]) -> dict[str, Any] | Broken:
        if not isinstance(value, Mapping):
            return refuse(faults, path, f"must be a mapping, not {shown(value)}")
        before = len(faults)
        entries = {name: entry for name, entry in value.items() if entry is not None}
        if not self.low <= len(entries) <= self.high:
            return refuse(faults, path, f"must have {self.low} to {self.high} entries, not {len(entries)}")
        for name in entries:
            if not isinstance(name, str):
                refuse(faults, f"{path}.{name}", "must have a string as its key: put it in quotes")
        read = {name: self.value.read(entry, f"{path}.{name}", faults) for name, entry in entries.items()}
        return read if len(faults) == before else BROKEN

    def write(self, value: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self.value.write(entry) for name, entry in value.items()}
