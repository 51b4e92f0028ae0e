"""Tokens: opaque, sealed, bound to what they name and to their time."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode

import pytest

from controller.balancing.affinity import Bindings, Keys, token

OLD, NEW, FOREIGN = b"o" * 32, b"n" * 32, b"f" * 32
TARGETS = {("stable", "uid-1"): "one", ("stable", "uid-2"): "two", ("canary", "uid-1"): "one as canary"}


def _bindings(keys: Keys = Keys(NEW, OLD)) -> Bindings[str]:  # noqa: B008 - immutable
    bindings: Bindings[str] = Bindings(keys)
    bindings.bind(TARGETS)
    return bindings


def test_a_token_finds_what_it_was_made_for() -> None:
    bindings = _bindings()

    assert {target: bindings.find(token(NEW, *target), 0) for target in TARGETS} == TARGETS


def test_every_proxy_with_the_key_understands_it() -> None:
    assert _bindings(Keys(NEW)).find(token(NEW, "stable", "uid-2"), 0) == "two"


def test_the_previous_key_is_still_honoured_and_an_older_one_is_not() -> None:
    assert _bindings().find(token(OLD, "stable", "uid-2"), 0) == "two"
    assert _bindings(Keys(NEW)).find(token(OLD, "stable", "uid-2"), 0) is None


def test_after_a_change_of_keys_the_old_one_becomes_the_previous() -> None:
    bindings = _bindings(Keys(OLD))
    before = token(OLD, "stable", "uid-1")

    bindings.rekey(Keys(NEW, OLD))
    bindings.rekey(Keys(NEW, OLD))

    assert bindings.find(before, 0) == "one"
    assert bindings.find(token(NEW, "stable", "uid-1"), 0) == "one"


def test_a_target_that_is_gone_is_unknown() -> None:
    bindings = _bindings()
    bindings.bind({("stable", "uid-2"): "two"})

    assert bindings.find(token(NEW, "stable", "uid-1"), 0) is None
    assert bindings.find(token(NEW, "stable", "uid-2"), 0) == "two"


def test_its_time_ends_it() -> None:
    value = token(NEW, "stable", "uid-1", expires=1000.9)

    assert _bindings().find(value, 999.9) == "one"
    assert _bindings().find(value, 1000.0) is None


@pytest.mark.parametrize("byte", range(37))
def test_no_bit_of_it_can_be_changed(byte: int) -> None:
    raw = bytearray(urlsafe_b64decode(token(NEW, "stable", "uid-1", expires=1000) + b"=="))
    raw[byte] ^= 1

    assert len(raw) == 37
    assert _bindings().find(urlsafe_b64encode(raw).rstrip(b"="), 0) is None


@pytest.mark.parametrize(
    "value",
    [b"", b"x", b"steelyard", b"\xff\xfe", "ü".encode() * 25, b"A" * 50, b"A" * 65536, b"A" * 49, b"=" * 50],
)
def test_what_is_no_token_is_ignored(value: bytes) -> None:
    assert _bindings().find(value, 0) is None


def test_a_foreign_key_seals_nothing_here() -> None:
    assert _bindings().find(token(FOREIGN, "stable", "uid-1"), 0) is None


def test_it_shows_neither_address_nor_backend() -> None:
    raw = urlsafe_b64decode(token(NEW, "stable", "10.0.0.1:8080") + b"==")

    assert b"10.0.0.1" not in raw
    assert b"stable" not in raw


def test_it_is_a_cookie_value_without_quoting() -> None:
    assert set(token(NEW, "stable", "uid-1")) <= set(
        b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    )


def test_keys_are_not_shown() -> None:
    assert repr(Keys(NEW, OLD)) == "<Keys>"
