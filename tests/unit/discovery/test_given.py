"""What a given certificate must be, and how one follows another."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from controller.discovery.certificates import renewed
from controller.discovery.given import ANNOUNCED, Given, Shown, Succession, Unusable, given
from tests.authority import HOST, Authority

NOW = datetime.now(UTC)
AUTHORITY, OTHER = Authority(), Authority("other")
GOOD = AUTHORITY.secret()


def without(name: str) -> dict[str, bytes]:
    return {key: value for key, value in GOOD.items() if key != name}


def test_one_that_a_proxy_would_accept_is_taken() -> None:
    found = given(GOOD, HOST)

    assert found.leaf.certificate == GOOD["tls.crt"]
    assert found.trusted == AUTHORITY.bundle


def test_a_certificate_for_any_name_of_the_namespace_is_taken() -> None:
    assert given(AUTHORITY.secret("*.steelyard-system.svc"), HOST)


def test_one_of_an_intermediate_authority_comes_with_its_chain() -> None:
    data = Authority("intermediate", parent=AUTHORITY).secret()
    alone = data | {"tls.crt": data["tls.crt"][: data["tls.crt"].rindex(b"-----BEGIN")]}

    assert given(data, HOST).trusted == AUTHORITY.bundle
    with pytest.raises(Unusable, match="unable to get local issuer"):
        given(alone, HOST)


def test_nothing_but_certificates_is_published_of_the_bundle() -> None:
    data = GOOD | {"ca.crt": b"# ours\n" + GOOD["tls.key"] + OTHER.bundle + AUTHORITY.bundle}

    assert given(data, HOST).trusted == OTHER.bundle + AUTHORITY.bundle


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (None, "there is no such Secret"),
        (without("ca.crt"), "it has no ca.crt"),
        ({}, "it has no tls.crt and no tls.key and no ca.crt"),
        (GOOD | {"tls.crt": b"secret"}, "tls.crt is no certificate in PEM"),
        (GOOD | {"ca.crt": b"\xff"}, "ca.crt is no certificate in PEM"),
        (GOOD | {"tls.key": AUTHORITY.secret()["tls.key"]}, "tls.key is not the unencrypted key of tls.crt"),
        (GOOD | {"tls.key": b"secret"}, "tls.key is not the unencrypted key of tls.crt"),
        (AUTHORITY.secret(password=b"secret"), "tls.key is not the unencrypted key of tls.crt"),
        (GOOD | {"ca.crt": OTHER.bundle}, "a proxy would refuse tls.crt by ca.crt: unable to get local issuer"),
        (AUTHORITY.secret("shop.store.svc"), f"Hostname mismatch, certificate is not valid for '{HOST}'"),
        (AUTHORITY.secret(life=timedelta(minutes=30)), "certificate has expired"),
        (AUTHORITY.secret(curve=ec.SECP256K1()), "a proxy would refuse tls.crt by ca.crt: NO_"),  # TLS has no such key
    ],
)
def test_what_is_wrong_with_one_is_said(data: dict[str, bytes] | None, fault: str) -> None:
    with pytest.raises(Unusable) as refused:
        given(data, HOST)

    assert fault in str(refused.value)
    assert "secret" not in str(refused.value)


def one(authority: Authority = AUTHORITY) -> Given:
    return given(authority.secret(), HOST)


def alone(each: Given) -> Shown:
    return Shown(leaf=each.leaf, newest=each.leaf, trusted=each.trusted)


def test_without_one_nothing_is_shown() -> None:
    succession = Succession(HOST)

    assert succession.shown(NOW) is None
    assert not succession.settled


def test_a_renewed_one_of_the_same_authority_is_shown_at_once() -> None:
    first, second, succession = one(), one(), Succession(HOST)

    assert succession.follow(first, NOW)
    assert not succession.follow(first, NOW)
    assert succession.follow(second, NOW)
    assert succession.shown(NOW) == alone(second)
    assert succession.settled


def test_one_of_another_authority_is_announced_before_it_is_shown() -> None:
    first, second, succession = one(), one(OTHER), Succession(HOST)
    succession.follow(first, NOW)

    succession.follow(second, NOW)

    both = second.trusted + first.trusted
    moment = timedelta(seconds=1)
    assert succession.shown(NOW) == Shown(leaf=first.leaf, newest=second.leaf, trusted=both)
    assert succession.shown(NOW + ANNOUNCED - moment) == succession.shown(NOW)
    assert succession.shown(NOW + ANNOUNCED) == Shown(leaf=second.leaf, newest=second.leaf, trusted=both)
    assert not succession.settled
    assert succession.shown(NOW + 2 * ANNOUNCED) == alone(second)
    assert succession.settled


def test_one_that_ends_while_its_successor_is_announced_is_not_shown_any_more() -> None:
    first = given(AUTHORITY.secret(life=timedelta(hours=1, minutes=1)), HOST)
    second, succession = one(OTHER), Succession(HOST)
    succession.follow(first, NOW)
    succession.follow(second, NOW)

    shown = succession.shown(NOW + timedelta(minutes=2))

    assert shown is not None
    assert shown.leaf == second.leaf


def test_one_that_was_never_shown_is_passed_over() -> None:
    first, second, third, succession = one(), one(OTHER), one(Authority("third")), Succession(HOST)
    for each, when in ((first, NOW), (second, NOW), (third, NOW + ANNOUNCED / 2)):
        succession.follow(each, when)

    later = succession.shown(NOW + ANNOUNCED)

    assert later == Shown(leaf=first.leaf, newest=third.leaf, trusted=third.trusted + first.trusted)


def test_one_whose_authority_is_in_the_bundle_before_it_is_shown_at_once() -> None:
    data = AUTHORITY.secret()
    prepared = given(data | {"ca.crt": AUTHORITY.bundle + OTHER.bundle}, HOST)
    second, succession = one(OTHER), Succession(HOST)
    succession.follow(prepared, NOW)

    succession.follow(second, NOW)

    assert succession.shown(NOW) == alone(second)


def test_an_authority_of_our_own_gives_way_as_any_other() -> None:
    own = renewed(None, [HOST], NOW)
    before, second = Given(leaf=own.leaf, trusted=own.trusted), one()
    succession = Succession(HOST, before)
    assert succession.shown(NOW) == alone(before)
    assert not succession.settled

    succession.follow(second, NOW)

    assert succession.shown(NOW) == Shown(leaf=own.leaf, newest=second.leaf, trusted=second.trusted + own.trusted)
    assert succession.shown(NOW + 2 * ANNOUNCED) == alone(second)


def test_a_repr_of_a_succession_shows_no_key() -> None:
    succession = Succession(HOST, one())
    succession.follow(one(OTHER), NOW)

    assert "announced" in repr(succession)
    assert "PRIVATE" not in repr(succession)
    assert "PRIVATE" not in repr(succession.shown(NOW))
