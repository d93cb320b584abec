"""The local cluster's certificate authority and the certificate of its API server.

The authority is kept in the state folder, so that a kubeconfig that names it holds across
restarts; the server's certificate is made anew at each start. Both pass strict RFC 5280 checks.
"""

import ipaddress
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CA_DAYS = 3650
# Clients of some platforms refuse server certificates that are valid for longer.
SERVER_DAYS = 397
_CLOCK_SKEW = timedelta(hours=1)
_RENEW_BEFORE = timedelta(days=SERVER_DAYS)

WriteFile = Callable[[Path, bytes], None]


@dataclass(frozen=True)
class Authority:
    """A certificate authority and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> bytes:
        """Return the certificate as PEM."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)


def load_authority(folder: Path, write: WriteFile) -> Authority:
    """Return the authority of a folder; one that is missing, unreadable or old is made anew.

    `write` puts a file in place, readable by its owner only.
    """
    certificate_path, key_path = folder / "ca.crt", folder / "ca.key"
    try:
        certificate = x509.load_pem_x509_certificate(certificate_path.read_bytes())
        key = serialization.load_pem_private_key(key_path.read_bytes(), password=None)
    except (OSError, ValueError):
        pass
    else:
        is_fresh = certificate.not_valid_after_utc - datetime.now(UTC) > _RENEW_BEFORE
        is_pair = key.public_key() == certificate.public_key()
        if is_fresh and is_pair and isinstance(key, ec.EllipticCurvePrivateKey):
            return Authority(certificate, key)
    authority = _make_authority()
    write(key_path, _private_pem(authority.key))
    write(certificate_path, authority.pem)
    return authority


def server_context(
    authority: Authority, folder: Path, write: WriteFile, *, name: str = "server"
) -> ssl.SSLContext:
    """Return the TLS context of a server on loopback, with a certificate of its own.

    `name` tells several apart, in the folder and in the certificate.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"telorunner-local-{name}")])
    names = [
        x509.DNSName("localhost"),
        x509.DNSName("kubernetes.default.svc"),
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
    ]
    issuer = authority.certificate
    certificate = (
        _builder(subject, issuer.subject, key.public_key(), SERVER_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(is_authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()),
            critical=False,
        )
        .sign(authority.key, hashes.SHA256())
    )
    certificate_path, key_path = folder / f"{name}.crt", folder / f"{name}.key"
    write(key_path, _private_pem(key))
    write(certificate_path, certificate.public_bytes(serialization.Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate_path, key_path)
    return context


def _make_authority() -> Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "telorunner-local-ca")])
    certificate = (
        _builder(name, name, key.public_key(), CA_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(is_authority=True), critical=True)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    return Authority(certificate, key)


def _builder(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def _key_usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
