"""Snapshots on the wire."""

from __future__ import annotations

import json

import msgspec
import pytest

from controller.model.snapshot import Snapshot, decode


def a_snapshot() -> Snapshot:
    return Snapshot(namespace="store", name="shop")


def test_equal_snapshots_have_equal_versions_and_unequal_ones_do_not() -> None:
    assert a_snapshot().version == a_snapshot().version
    assert a_snapshot().version.startswith("sha256:")
    assert a_snapshot().version != msgspec.structs.replace(a_snapshot(), generation=2).version


def test_a_snapshot_survives_the_wire() -> None:
    assert decode(a_snapshot().encode()) == a_snapshot()
    assert a_snapshot().key == ("store", "shop")


def test_fields_of_a_newer_version_are_ignored() -> None:
    newer = json.loads(a_snapshot().encode()) | {"unheardOf": 1}

    assert decode(json.dumps(newer).encode()) == a_snapshot()


def test_what_is_no_snapshot_raises() -> None:
    with pytest.raises(msgspec.ValidationError):
        decode(b"{}")
    with pytest.raises(msgspec.DecodeError):
        decode(b"{")
