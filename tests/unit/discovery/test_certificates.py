import itertools
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from controller.discovery.certificates import ANNOUNCED, AUTHORITY_LIFE, LEAF_LIFE, SKEW, Authority, held, renewed

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = ["steelyard.steelyard-system.svc"]


def issued_by(certificate: bytes, authority: bytes) -> bool:
    leaf, issuer = x509.load_pem_x509_certificate(certificate), x509.load_pem_x509_certificate(authority)
    try:
        leaf.verify_directly_issued_by(issuer)
    except ValueError:
        return False
    return True


def test_nothing_changes_while_nothing_is_due():
    first = renewed(None, NAMES, NOW)

    assert issued_by(first.leaf.certificate, first.current.certificate)
    assert renewed(first, NAMES, NOW + LEAF_LIFE / 2) == first


def test_a_leaf_is_renewed_in_the_last_third_of_its_life_by_the_same_authority():
    first = renewed(None, NAMES, NOW)

    later = renewed(first, NAMES, NOW + LEAF_LIFE * 0.7)

    assert later.current == first.current
    assert later.leaf != first.leaf
    assert issued_by(later.leaf.certificate, first.current.certificate)


def test_other_names_make_another_leaf():
    first = renewed(None, NAMES, NOW)

    assert renewed(first, [*NAMES, "more.svc"], NOW).leaf != first.leaf


def test_a_new_authority_is_trusted_before_it_signs_and_the_old_one_after():
    moment, authority = NOW, renewed(None, NAMES, NOW)
    steps: list[tuple[datetime, Authority]] = [(moment, authority)]
    while moment < NOW + 2 * AUTHORITY_LIFE:
        moment += timedelta(hours=12)
        authority = renewed(authority, NAMES, moment)
        steps.append((moment, authority))

    for (_, before), (when, after) in itertools.pairwise(steps):
        signer = after.current.certificate
        assert issued_by(after.leaf.certificate, signer)
        assert signer in before.trusted, f"a proxy that read the bundle before {when} would refuse the leaf"
        assert issued_by(before.leaf.certificate, before.current.certificate)
        assert before.current.certificate in after.trusted
    assert len({step.current.certificate for _, step in steps}) >= 3
    assert steps[-1][1].current.certificate != steps[0][1].current.certificate


def test_an_authority_that_has_ended_is_no_longer_trusted():
    first = renewed(None, NAMES, NOW)
    due = NOW + AUTHORITY_LIFE * 0.7
    coming = renewed(first, NAMES, due)
    swapped = renewed(coming, NAMES, due + ANNOUNCED + SKEW)

    assert swapped.former == first.current.certificate
    assert renewed(swapped, NAMES, NOW + AUTHORITY_LIFE + SKEW).former is None


def test_a_repr_shows_no_key():
    assert "PRIVATE" not in repr(renewed(None, NAMES, NOW))


def test_a_secret_holds_an_authority_whole_or_not_at_all():
    first = renewed(None, NAMES, NOW)
    coming = renewed(first, NAMES, NOW + AUTHORITY_LIFE * 0.7)
    swapped = renewed(coming, NAMES, NOW + AUTHORITY_LIFE * 0.7 + ANNOUNCED + SKEW)

    for authority in (first, coming, swapped):
        assert held(authority.data()) == authority
    assert held({}) is None
    assert held(first.data() | {"tls.crt": b"no certificate"}) is None


@pytest.mark.parametrize("ahead", [SKEW * 2, LEAF_LIFE, AUTHORITY_LIFE])
def test_what_was_signed_by_a_clock_that_was_ahead_is_made_anew_once_it_is_right(ahead: timedelta):
    """Nobody trusts what is not valid yet, and it is far from its end."""
    first = renewed(None, NAMES, NOW)
    hasty = renewed(first, NAMES, NOW + ahead)

    for found in (renewed(hasty, NAMES, NOW), renewed(renewed(None, NAMES, NOW + ahead), NAMES, NOW)):
        assert issued_by(found.leaf.certificate, found.current.certificate)
        for certificate in (found.leaf.certificate, found.current.certificate):
            assert x509.load_pem_x509_certificate(certificate).not_valid_before_utc <= NOW
        assert (
            found.coming is None or x509.load_pem_x509_certificate(found.coming.certificate).not_valid_before_utc <= NOW
        )
        assert renewed(found, NAMES, NOW) == found
