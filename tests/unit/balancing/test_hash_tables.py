"""Rendezvous, Maglev and ring: golden vectors, balance, and exactly which keys a change moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from math import sqrt
from random import Random

import pytest
from xxhash import xxh64_intdigest

from controller.balancing.maglev import SIZE, Maglev, fill
from controller.balancing.rendezvous import RECENT, Rendezvous
from controller.balancing.ring import Ring
from controller.balancing.tables import AUTO_RENDEZVOUS, Scheme, Table, table

FIVE = tuple(f"10.0.0.{number}:8080" for number in range(1, 6))
KEYS = [b"user-%d" % number for number in range(20_000)]


def _even(count: int) -> tuple[int, ...]:
    return (1,) * count


def _identities(count: int) -> tuple[str, ...]:
    return tuple(sorted(f"shop-{number}:8080" for number in range(count)))


def _homes(found: Table, identities: Sequence[str], keys: Sequence[bytes] = KEYS) -> list[str]:
    return [identities[found.first(key)] for key in keys]


@pytest.mark.parametrize(
    ("key", "digest", "rendezvous", "maglev", "ring"),
    [
        (b"user-1", "a173746b114c6be8", [4, 5, 1, 3, 2], 2, 4),
        (b"user-2", "7395dd9943ab55e9", [2, 1, 4, 3, 5], 1, 3),
        (b"user-3", "ae654a4bf3937dde", [1, 3, 4, 2, 5], 4, 5),
        (b"user-4", "3227a16a6007f168", [4, 2, 5, 1, 3], 4, 5),
        (b"user-5", "76af3591662752eb", [4, 3, 1, 5, 2], 5, 3),
    ],
)
def test_the_golden_vectors(key: bytes, digest: str, rendezvous: list[int], maglev: int, ring: int) -> None:
    assert f"{xxh64_intdigest(key):016x}" == digest
    assert [at + 1 for at in table("Rendezvous", FIVE, _even(5), 0).order(key)] == rendezvous
    assert table("Maglev", FIVE, _even(5), 0).first(key) + 1 == maglev
    assert table("Ring", FIVE, _even(5), 0).first(key) + 1 == ring


@pytest.mark.parametrize("scheme", ["Rendezvous", "Maglev", "Ring"])
@pytest.mark.parametrize("weights", [(1,) * 7, (1, 2, 3, 4, 5, 6, 7)])
def test_the_order_begins_at_home_and_holds_each_member_once(scheme: Scheme, weights: tuple[int, ...]) -> None:
    found = table(scheme, _identities(7), weights, 0)

    for key in KEYS[:300]:
        order = list(found.order(key))
        assert order[0] == found.first(key)
        assert sorted(order) == list(range(7))


@pytest.mark.parametrize("scheme", ["Rendezvous", "Ring"])
@pytest.mark.parametrize("weights", [(3,) * 10, (1, 1, 2, 2, 3, 3, 4, 4, 5, 5)])
def test_removing_one_moves_its_own_keys_only(scheme: Scheme, weights: tuple[int, ...]) -> None:
    identities = _identities(10)
    before = table(scheme, identities, weights, 5)
    left = [at for at in range(10) if at != 4]
    after = table(
        scheme,
        tuple(identities[at] for at in left),
        tuple(weights[at] for at in left),
        5,
    )

    for key in KEYS[:5000]:
        order = list(before.order(key))
        expected = order[1] if order[0] == 4 else order[0]
        assert expected == left[after.first(key)], "the old second choice is the new first"


def test_the_heaviest_may_leave_a_ring_without_moving_other_keys() -> None:
    """Points go by the greatest weight configured, not by the greatest present."""
    identities, weights = _identities(4), (1, 1, 1, 4)
    before, after = Ring(identities, weights, 4), Ring(identities[:3], weights[:3], 4)

    for key in KEYS[:3000]:
        assert before.first(key) in (after.first(key), 3)


def test_an_added_endpoint_only_gains_keys() -> None:
    identities = _identities(10)
    schemes: tuple[Scheme, ...] = ("Rendezvous", "Ring")
    for scheme in schemes:
        before = _homes(table(scheme, identities[:9], _even(9), 0), identities)
        after = _homes(table(scheme, identities, _even(10), 0), identities)
        assert {identities[9]} == {new for old, new in zip(before, after, strict=True) if old != new}


def test_rendezvous_shares_follow_weights_and_reweighting_moves_the_minimum() -> None:
    """Weights 1, 2, 4, 8; changing 8 to 6 must move 8/15 - 6/13 = 7.18 % of the keys, and none between the others."""
    identities = _identities(4)
    before = _homes(Rendezvous(identities, (1, 2, 4, 8)), identities)
    after = _homes(Rendezvous(identities, (1, 2, 4, 6)), identities)

    counts, size = Counter(before), len(KEYS)
    for identity, weight in zip(identities, (1, 2, 4, 8), strict=True):
        share = weight / 15
        assert abs(counts[identity] - size * share) <= 5 * sqrt(size * share * (1 - share))
    moved = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
    assert {identities[3]} == {old for old, _ in moved}
    least = 8 / 15 - 6 / 13
    assert abs(len(moved) - size * least) <= 5 * sqrt(size * least)


def test_weighted_bids_with_equal_weights_rank_as_the_raw_hashes() -> None:
    even, weighted = Rendezvous(FIVE, _even(5)), Rendezvous((*FIVE, "light"), (10**9,) * 5 + (1,))

    for key in KEYS[:500]:
        assert list(even.order(key)) == [at for at in weighted.order(key) if at < 5]


def test_rendezvous_gives_equal_hashes_to_the_first_and_forgets_no_answer() -> None:
    """Two pods under one name, as while a StatefulSet replaces one; and more keys than are kept, long ones too."""
    twins = Rendezvous(("a", "a", "b"), _even(3))
    keys = [*KEYS[: 2 * RECENT], b"x" * 65536]

    first = [twins.first(key) for key in keys]

    assert 1 not in first
    assert first == [twins.first(key) for key in keys] == [next(twins.order(key)) for key in keys]


@pytest.mark.parametrize(("count", "spread"), [(5, 1.05), (50, 1.2)])
def test_rendezvous_is_even(count: int, spread: float) -> None:
    identities = _identities(count)
    counts = Counter(_homes(Rendezvous(identities, _even(count)), identities))

    assert max(counts.values()) / (len(KEYS) / count) <= spread


def test_the_maglev_papers_example() -> None:
    x, y, z = (3, 4), (0, 2), (3, 1)

    assert "".join("xyz"[at] for at in fill(7, [x, y, z], [1, 1, 1])) == "yxyxzzx"
    assert "".join("xz"[at] for at in fill(7, [x, z], [1, 1])) == "xxxxzzz"


def test_maglev_slots_differ_by_at_most_one_and_follow_weights() -> None:
    even = Counter(Maglev(_identities(10), _even(10))._table)
    assert max(even.values()) - min(even.values()) <= 1
    assert sum(even.values()) == SIZE

    assert Counter(Maglev(("a", "b"), (1, 2))._table) == {0: 21_846, 1: 43_691}

    weights = (1, 2, 3, 5, 9)
    counts = Counter(Maglev(_identities(5), weights)._table)
    assert all(abs(counts[at] - SIZE * weight / 20) <= 1 for at, weight in enumerate(weights))


@pytest.mark.parametrize(("size", "collateral"), [(5, 0.0007), (10, 0.0031), (50, 0.0045), (100, 0.0057)])
def test_maglev_moves_little_more_than_the_removed_ones_keys(size: int, collateral: float) -> None:
    """The part of all keys that moves although its endpoint stayed: one and a half of what was measured, at most."""
    identities = sorted(f"10.0.0.{number}:8080" for number in range(1, size + 1))
    before = Maglev(identities, _even(size))._table
    after = Maglev(identities[1:], _even(size - 1))._table

    moved = sum(old not in (0, new + 1) for old, new in zip(before, after, strict=True))

    assert moved / SIZE <= 1.5 * collateral


def test_maglev_refuses_more_members_than_slots() -> None:
    with pytest.raises(ValueError, match="room for 65537 endpoints, not for 65538"):
        Maglev([str(number) for number in range(SIZE + 1)], [1] * (SIZE + 1))


@pytest.mark.parametrize("points", [1, 10, 100])
def test_the_shares_of_a_ring_deviate_by_one_over_the_root_of_its_points(points: int) -> None:
    """Of the arcs of 300 members, within a fifth."""
    ring = Ring(_identities(300), _even(300), 1, points)
    arcs: Counter[int] = Counter()
    for (before, _), (point, owner) in pairwise(zip(ring._points, ring._owners, strict=True)):
        arcs[owner] += point - before
    arcs[ring._owners[0]] += ring._points[0] + 2**64 - ring._points[-1]
    mean = 2**64 / 300

    deviation = sqrt(sum((arcs[at] / mean - 1) ** 2 for at in range(300)) / 300)

    assert deviation == pytest.approx(1 / sqrt(points), rel=0.2)


def test_a_key_beyond_the_last_point_goes_to_the_first() -> None:
    ring = Ring(("a", "b"), (1, 1), 1, 1)
    random = Random(10)
    beyond = next(
        key for key in (random.randbytes(8) for _ in range(10_000)) if xxh64_intdigest(key) > ring._points[-1]
    )

    assert ring.first(beyond) == ring._owners[0]
    assert list(ring.order(beyond)) == ring._owners


def test_auto_goes_by_the_number_of_members() -> None:
    small, large = _identities(AUTO_RENDEZVOUS), _identities(AUTO_RENDEZVOUS + 1)

    assert isinstance(table("Auto", small, _even(len(small)), 0), Rendezvous)
    assert isinstance(table("Auto", large, _even(len(large)), 0), Maglev)


def test_a_table_is_built_once_for_the_same_members() -> None:
    assert table("Maglev", FIVE, _even(5), 0) is table("Maglev", FIVE, _even(5), 0)
