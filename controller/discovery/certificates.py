"""The operator's own certificate authority, as a value that renews itself (only the operator imports this).

A new authority is trusted for a day before it signs, and the old one for as long as it lives: at no moment does a
proxy meet a certificate whose issuer it has not been told of. Keys are ECDSA P-256 (RFC 5480).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_LIFE = timedelta(days=730)
LEAF_LIFE = timedelta(days=90)
ANNOUNCED = timedelta(days=1)  # how long a new authority is published before it signs
SKEW = timedelta(minutes=5)  # clocks of nodes differ
REMAINING = 1 / 3  # renew when this share of a life is left


class Pair(msgspec.Struct, frozen=True):
    """A certificate and its key, PEM."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return f"<Pair until {ends(self.certificate):%Y-%m-%d}>"


class Authority(msgspec.Struct, frozen=True):
    """What the Secret holds: who signs now, who will, whom to trust besides, and the server's leaf."""

    current: Pair
    leaf: Pair
    coming: Pair | None = None
    former: bytes | None = None

    @property
    def trusted(self) -> bytes:
        """The bundle that proxies are given, PEM."""
        parts = [self.current.certificate, self.coming.certificate if self.coming else b"", self.former or b""]
        return b"".join(parts)

    def data(self) -> dict[str, bytes]:
        """As the data of a Secret."""
        data = {"ca.crt": self.current.certificate, "ca.key": self.current.key}
        data |= {"tls.crt": self.leaf.certificate, "tls.key": self.leaf.key}
        if self.coming:
            data |= {"coming-ca.crt": self.coming.certificate, "coming-ca.key": self.coming.key}
        if self.former:
            data["former-ca.crt"] = self.former
        return data


def held(data: Mapping[str, bytes]) -> Authority | None:
    """The inverse of `Authority.data`; None where a part is missing, or no certificate."""
    try:
        authority = Authority(
            current=Pair(data["ca.crt"], data["ca.key"]),
            leaf=Pair(data["tls.crt"], data["tls.key"]),
            coming=Pair(data["coming-ca.crt"], data["coming-ca.key"]) if "coming-ca.crt" in data else None,
            former=data.get("former-ca.crt"),
        )
        x509.load_pem_x509_certificates(authority.trusted)
        x509.load_pem_x509_certificate(authority.leaf.certificate)
    except (KeyError, ValueError):
        return None
    return authority


def renewed(authority: Authority | None, names: Sequence[str], now: datetime) -> Authority:
    """The authority as it should be at `now` (UTC): the same value while nothing is due.

    What is not valid yet was made by a clock that was ahead, and is made anew.
    """
    if authority is None or _early(authority.current.certificate, now):
        current = _authority(now)
        return Authority(current=current, leaf=_leaf(current, names, now))
    current, coming, former = authority.current, authority.coming, authority.former
    if coming is not None and _early(coming.certificate, now):
        coming = None
    if coming is None and _due(current.certificate, now):
        coming = _authority(now)
    elif coming is not None and now - _starts(coming.certificate) >= ANNOUNCED + SKEW:
        former, current, coming = current.certificate, coming, None
    if former is not None and ends(former) <= now:
        former = None
    leaf = authority.leaf
    unfit = _early(leaf.certificate, now) or _due(leaf.certificate, now) or _names(leaf.certificate) != sorted(names)
    if unfit or current != authority.current:
        leaf = _leaf(current, names, now)
    return Authority(current=current, leaf=leaf, coming=coming, former=former)


def _authority(now: datetime) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"steelyard {now:%Y-%m-%d %H:%M:%S}")])
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return _pair(builder.sign(key, hashes.SHA256()), key)


def _leaf(authority: Pair, names: Sequence[str], now: datetime) -> Pair:
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    signer = serialization.load_pem_private_key(authority.key, None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "steelyard-discovery")]))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(min(now + LEAF_LIFE, ends(authority.certificate)))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in sorted(names)]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    return _pair(builder.sign(signer, hashes.SHA256()), key)


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    return Pair(
        certificate=certificate.public_bytes(serialization.Encoding.PEM),
        key=key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
    )


def _starts(certificate: bytes) -> datetime:
    return x509.load_pem_x509_certificate(certificate).not_valid_before_utc


def ends(certificate: bytes) -> datetime:
    """When it is no longer valid (UTC)."""
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc


def _early(certificate: bytes, now: datetime) -> bool:
    return _starts(certificate) > now


def _due(certificate: bytes, now: datetime) -> bool:
    last = ends(certificate)
    return last - now < (last - _starts(certificate)) * REMAINING


def _names(certificate: bytes) -> list[str]:
    extensions = x509.load_pem_x509_certificate(certificate).extensions
    names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return sorted(names.get_values_for_type(x509.DNSName))
