"""What a word of YAML is; the table is what `kubectl label --local --output json` (1.37) makes of each."""

from __future__ import annotations

import math

import pytest
import yaml
from yaml.constructor import ConstructorError

from controller.discovery.words import Loader, Unreadable, Word, plain, scalar, unreadable

WORDS: list[tuple[str, Word]] = [
    ("22:22", "22:22"),
    ("12:30:45", "12:30:45"),
    ("1:30.5", "1:30.5"),
    ("2024-01-02", "2024-01-02"),
    ("2024-01-02T03:04:05Z", "2024-01-02T03:04:05Z"),
    ("0644", 420),
    ("0o644", 420),
    ("-0644", -420),
    ("08", 8.0),
    ("0_8", 8.0),
    ("1_000", 1000),
    ("0x1F", 31),
    ("0X1f", 31),
    ("-0b11", -3),
    ("+1", 1),
    ("-0", 0),
    ("0x", "0x"),
    ("0b", "0b"),
    ("+", "+"),
    ("-", "-"),
    ("_1", "_1"),
    ("18446744073709551615", (1 << 64) - 1),
    ("18446744073709551616", 1.8446744073709552e19),
    ("+18446744073709551615", 1.8446744073709552e19),
    ("-9223372036854775808", -(1 << 63)),
    ("123456789012345678901234567890", 1.2345678901234568e29),
    ("0xFFFFFFFFFFFFFFFFFF", "0xFFFFFFFFFFFFFFFFFF"),
    ("1e3", 1000.0),
    ("1.", 1.0),
    ("-.5", -0.5),
    (".5e3", 500.0),
    (".5_0", 0.5),
    (".5__0", ".5__0"),
    (".e5", ".e5"),
    ("1e400", "1e400"),
    (".inf", math.inf),
    ("-.INF", -math.inf),
    (".inf2", ".inf2"),
    ("y", True),
    ("YES", True),
    ("on", True),
    ("n", False),
    ("off", False),
    ("yEs", "yEs"),
    ("~", None),
    ("Null", None),
    ("", None),
    ("=", "="),
    ("<<", "<<"),
    ("127.0.0.1", "127.0.0.1"),
    ("v1", "v1"),
    ("１", "１"),
]


def value(text: str) -> Word:
    node = yaml.compose(text, Loader=Loader)
    assert isinstance(node, yaml.ScalarNode)
    return scalar(node)


@pytest.mark.parametrize(("word", "meant"), WORDS)
def test_a_word_is_what_it_is_to_kubectl(word: str, meant: Word) -> None:
    found = plain(word)

    assert (meant, type(meant)) == (found, type(found))


@pytest.mark.parametrize("word", [word for word, _ in WORDS])
def test_a_word_in_quotes_stays_a_string(word: str) -> None:
    assert word == value(f"'{word}'")


@pytest.mark.parametrize(
    ("text", "meant"), [("!!str 0644", "0644"), ('!!int "7"', 7), ("!!float 3", 3.0), ("!!timestamp '1'", "1")]
)
def test_a_tag_decides(text: str, meant: Word) -> None:
    found = value(text)

    assert (meant, type(meant)) == (found, type(found))


@pytest.mark.parametrize("text", ["!!int many", "!!bool 1", "!secret a", "!!binary aGk="])
def test_a_tag_that_does_not_fit_is_refused(text: str) -> None:
    with pytest.raises(ConstructorError, match=r"has the tag .*, which is not supported"):
        value(text)


def test_a_character_that_json_writes_as_two_is_one() -> None:
    assert value(r'"\ud83d\ude00"') == "😀"
    with pytest.raises(ConstructorError, match="half of a character"):
        value(r'"\ud83d"')


def test_text_that_cannot_be_read_is_told_with_its_line() -> None:
    with pytest.raises(Unreadable, match="is not UTF-8 text") as told, unreadable():
        b"a\nb\xff".decode()

    assert told.value.line == 2
