"""The cluster's authority, the certificates it signs, and the kubeconfigs that carry them."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = timedelta(days=30)  # longer than any `make cluster` is left running


def _pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    pkcs8 = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, pkcs8, serialization.NoEncryption())


class Authority:
    """Signs certificates into one folder: NAME.crt and NAME.key, the authority's own as ca.crt and ca.key."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "steelyard-test-cluster")])
        self._sign("ca", self._key, self._name, [(x509.BasicConstraints(ca=True, path_length=None), True)])
        (folder / "sa.key").write_bytes(_pem(rsa.generate_private_key(public_exponent=65537, key_size=2048)))

    def server(self, name: str, hosts: list[str]) -> None:
        """A certificate for these names and addresses."""
        entries = [x509.IPAddress(ip_address(h)) if h[0].isdigit() else x509.DNSName(h) for h in hosts]
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._sign(
            name, ec.generate_private_key(ec.SECP256R1()), subject, [(x509.SubjectAlternativeName(entries), False)]
        )

    def kubeconfig(self, path: Path, server: str, user: str, group: str = "none") -> Path:
        """A kubeconfig for this user, whom Kubernetes reads from the certificate: CN is the user, O the group."""
        attributes = [(NameOID.ORGANIZATION_NAME, group), (NameOID.COMMON_NAME, user)]
        subject = x509.Name([x509.NameAttribute(oid, value) for oid, value in attributes])
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
        self._sign(path.stem, ec.generate_private_key(ec.SECP256R1()), subject, [(usage, False)])
        certificate, key = self._encoded(f"{path.stem}.crt"), self._encoded(f"{path.stem}.key")
        cluster = {"server": server, "certificate-authority-data": self._encoded("ca.crt")}
        credentials = {"client-certificate-data": certificate, "client-key-data": key}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": user, "user": credentials}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
        }
        path.write_text(json.dumps(content, indent=1))  # JSON is YAML, too
        return path

    def _encoded(self, name: str) -> str:
        return base64.b64encode((self._folder / name).read_bytes()).decode()

    def _sign(
        self,
        name: str,
        key: ec.EllipticCurvePrivateKey,
        subject: x509.Name,
        extensions: list[tuple[x509.ExtensionType, bool]],
    ) -> None:
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + LIFETIME)
        )
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical)
        certificate = builder.sign(self._key, hashes.SHA256())
        (self._folder / f"{name}.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        (self._folder / f"{name}.key").write_bytes(_pem(key))
