"""Certificates that someone else made, as the data of a kubernetes.io/tls Secret."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

HOST = "steelyard-controller.steelyard-system.svc"


class Authority:
    """Signs. `bundle`: what those trust that accept it, PEM; its own certificate, unless a `parent` has signed that."""

    def __init__(self, name: str = "given", parent: Authority | None = None) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        signer = parent or self
        builder = signer._builder(self._name, self._key, datetime.now(UTC), timedelta(days=30))
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        certificate = builder.sign(signer._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        self.bundle = parent.bundle if parent else certificate
        self._chain = certificate if parent else b""

    def secret(
        self,
        *names: str,
        life: timedelta = timedelta(days=1),
        password: bytes = b"",
        curve: ec.EllipticCurve = ec.SECP256R1(),  # noqa: B008 - it has no state
    ) -> dict[str, bytes]:
        """A new certificate for these names, by default HOST, and what goes with it."""
        key = ec.generate_private_key(curve)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "server")])
        alternatives = x509.SubjectAlternativeName([x509.DNSName(name) for name in names or (HOST,)])
        start = datetime.now(UTC) - timedelta(hours=1)
        builder = self._builder(subject, key, start, life).add_extension(alternatives, False)
        hidden = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
        return {
            "tls.crt": builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM) + self._chain,
            "tls.key": key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, hidden),
            "ca.crt": self.bundle,
        }

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, start: datetime, life: timedelta
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(start)
            .not_valid_after(start + life)
        )
