"""What a word of YAML is to kubectl: the rules of go-yaml 2, neither YAML 1.1's nor 1.2's. Pure.

`y` is true, `0644` and `0o644` are 420, `08` and `1e3` are numbers; dates, `1:30` and `=` are strings.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import yaml
from yaml.constructor import ConstructorError

Word = None | bool | int | float | str

_TAG = "tag:yaml.org,2002:"
STRING, MERGE = f"{_TAG}str", "<<"
_TAGS: dict[type, str] = {type(None): "null", bool: "bool", int: "int", float: "float", str: "str"}
_NAMED: dict[str, Word] = {"": None}
_NAMED |= {
    word: value
    for value, words in (
        (True, "y Y yes Yes YES true True TRUE on On ON"),
        (False, "n N no No NO false False FALSE off Off OFF"),
        (None, "~ null Null NULL"),
        (math.nan, ".nan .NaN .NAN"),
        (math.inf, ".inf .Inf .INF +.inf +.Inf +.INF"),
        (-math.inf, "-.inf -.Inf -.INF"),
    )
    for word in words.split()
}
_OCTAL = re.compile(r"[-+]?0[oO]?[0-7]+")
_WHOLE = re.compile(r"[-+]?(0[bB][01]+|0[xX][0-9a-fA-F]+|0|[1-9][0-9]{0,19})")
_BROKEN = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_POINT_FIRST = re.compile(r"\.[0-9]+(_[0-9]+)*([eE][-+]?[0-9]+(_[0-9]+)*)?")


class Unreadable(Exception):  # noqa: N818 - what the text is
    """The message is for the author."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line  # 1 is the first; 0 = the text as a whole


@contextmanager
def unreadable() -> Iterator[None]:
    """What decoding and PyYAML raise, as Unreadable."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise Unreadable(error.object[: error.start].count(b"\n") + 1, "is not UTF-8 text") from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark is not None else 0
        what = "" if isinstance(error, ConstructorError) else "is not YAML: "
        raise Unreadable(line, f"{what}{error.problem}") from error
    except yaml.YAMLError as error:
        raise Unreadable(0, f"is not YAML: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise Unreadable(0, "is nested too deeply") from error


class Loader(yaml.SafeLoader):
    """Gives what has no tag the one that it has to kubectl."""

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> Any:
        if kind is yaml.ScalarNode:
            return _TAG + _TAGS[type(plain(value))] if implicit[0] else STRING
        return super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]  # PyYAML's


def plain(text: str) -> Word:
    """Of a word without quotes and tag."""
    if text in _NAMED:
        return _NAMED[text]
    if text[0] == ".":
        return _finite(text) if _POINT_FIRST.fullmatch(text) else text
    if text[0] not in "+-0123456789":
        return text
    digits = text.replace("_", "")
    whole = int(digits, 8) if _OCTAL.fullmatch(digits) else int(digits, 0) if _WHOLE.fullmatch(digits) else None
    # int64, or without a sign uint64
    if whole is not None and -(1 << 63) <= whole < 1 << (63 if digits[0] in "+-" else 64):
        return whole
    number = _finite(digits) if _BROKEN.fullmatch(digits) else text
    return number if isinstance(number, float) else text


def _finite(text: str) -> float | str:
    number = float(text)
    return number if math.isfinite(number) else text


def scalar(node: yaml.ScalarNode) -> Word:
    """Raises ConstructorError for a tag that kubectl doesn't know, or that the value doesn't fit."""
    kind = node.tag.removeprefix(_TAG)
    if kind in ("str", "timestamp"):
        return _joined(node)
    value = plain(node.value)
    if kind == "float" and type(value) is int:
        return float(value)
    if kind != _TAGS[type(value)]:
        raise refusal(node, f"has the tag {node.tag}, which is not supported: remove it")
    return value


def _joined(node: yaml.ScalarNode) -> str:
    r"""JSON may write a character as two: "\ud83d\ude00"."""
    text: str = node.value
    try:
        return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise refusal(node, "has half of a character, as in \\ud83d") from None


def refusal(node: yaml.Node, message: str) -> ConstructorError:
    return ConstructorError(None, None, message, node.start_mark)
