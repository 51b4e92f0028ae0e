"""What passes through is to kubectl what it was; the table is what `kubectl label --local -o json` (1.37) reads."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given

from controller.discovery import manifests
from controller.discovery.words import Unreadable
from tests.strategies import MANIFESTS

DOCUMENTS: list[tuple[str, list[Any]]] = [
    ('{a: "yes", b: "1e3", c: "0644", d: "y", e: "2024-01-02", f: "=", g: "<<"}',
     [{"a": "yes", "b": "1e3", "c": "0644", "d": "y", "e": "2024-01-02", "f": "=", "g": "<<"}]),
    ("{a: yes, b: 1e3, c: 0644, d: y, e: 2024-01-02, f: =, g: <<}",
     [{"a": True, "b": 1000, "c": 420, "d": True, "e": "2024-01-02", "f": "=", "g": "<<"}]),
    ("{1: a, true: b, on: c, 0644: d, 2024-01-02: e, 1.5: f}",
     [{"1": "a", "true": "c", "420": "d", "2024-01-02": "e", 1.5: "f"}]),
    ("{a: &x {b: 1}, c: *x}", [{"a": {"b": 1}, "c": {"b": 1}}]),
    ("{a: &x {b: 1}, c: {<<: *x, d: 2}}", [{"a": {"b": 1}, "c": {"b": 1, "d": 2}}]),
    ("{a: &x {b: 1}, c: {b: 2, <<: *x}}", [{"a": {"b": 1}, "c": {"b": 1}}]),
    ("{a: &x {b: 1}, c: {<<: *x, b: 2}}", [{"a": {"b": 1}, "c": {"b": 2}}]),
    ("c: {<<: [{a: 1}, {a: 2, b: 3}]}", [{"c": {"a": 1, "b": 3}}]),
    ('c: {"<<": {a: 1}}', [{"c": {"<<": {"a": 1}}}]),
    ("{a: 1, a: 2}", [{"a": 2}]),
    ("a: |\n  #!/bin/sh\n    b\n\nc: >-\n  d\n  e\n", [{"a": "#!/bin/sh\n  b\n", "c": "d e"}]),
    (r'"a\x85b": "c\u2028d\te"', [{"a\x85b": "c\u2028d\te"}]),
    (r'{"\ud83d\ude00": "größe"}', [{"😀": "größe"}]),
    ("\ufeffa: 1\n---\n# nothing\n---\n---\nb: 2\n...\n", [{"a": 1}, {"b": 2}]),
    ("", []),
]  # fmt: skip


@pytest.mark.parametrize(("text", "meant"), DOCUMENTS)
def test_a_manifest_is_what_it_is_to_kubectl(text: str, meant: list[Any]) -> None:
    found = [document for _, document in manifests.read(text.encode())]

    assert meant == found


@pytest.mark.parametrize("text", [text for text, _ in DOCUMENTS])
def test_a_manifest_is_the_same_again_when_it_is_written(text: str) -> None:
    once = [document for _, document in manifests.read(text.encode())]
    twice = [document for _, document in manifests.read(manifests.written(once))]

    assert repr(once) == repr(twice)


@given(MANIFESTS)
def test_whatever_is_written_is_read_the_same_by_kubectls_rules_and_by_yamls(document: dict[str, Any]) -> None:
    text = manifests.written([document])

    assert repr([document]) == repr([found for _, found in manifests.read(text)])
    assert repr(document) == repr(yaml.safe_load(text))


def test_aliases_of_aliases_stay_small() -> None:
    bomb = "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True):
        bomb += f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n"

    ((_, document),) = manifests.read(bomb.encode())

    assert len(manifests.written([document])) < 3 * len(bomb)


def test_a_document_has_the_line_that_it_begins_in() -> None:
    assert [line for line, _ in manifests.read(b"---\na: 1\n---\n# b\nb: 1\n")] == [2, 5]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (b"a: 1\nb: \xff\n", 2, "is not UTF-8 text"),
        (b"a: 1\nb: [\n", 3, "is not YAML: expected the node content, but found '<stream end>'"),
        (b"a: 1\nb: !secret c\n", 2, "has the tag !secret, which is not supported: remove it"),
        (b"a: 1\n? [b]\n: c\n", 2, "has a key that is no single word"),
        (b"a: 1\n<<: b\n", 2, "is merged by <<, but is no mapping"),
        (b"a: &a [*a]\n", 0, "is nested too deeply"),
        (b"[" * 5000, 0, "is nested too deeply"),
        (b"{a: " * 190 + b"1" + b"}" * 190, None, ""),
    ],
)
def test_what_cannot_be_read_is_told_with_its_line(text: bytes, line: int | None, message: str) -> None:
    try:
        manifests.written([document for _, document in manifests.read(text)])
    except Unreadable as error:
        found = (error.line, str(error))
    else:
        found = (None, "")

    assert (line, message) == found
