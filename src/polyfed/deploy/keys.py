"""Certificates and keys: the federation's own small authority, the server's certificate, and each site's key and pass.

A site proves itself twice by the same key: in TLS, by a certificate that the operator issued for it, and in every
message, by Flower's signature. `ca.key`, with which certificates are issued, belongs to the operator alone.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import secrets
import ssl
import tempfile
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from polyfed.core.errors import PolyfedError

YEARS = 2
PEM, PLAIN = serialization.Encoding.PEM, serialization.NoEncryption()


def make_certificates(folder: Path, hosts: Sequence[str]) -> None:
    """`ca.pem` for everybody, `server.pem` and `server.key` for the server, valid for these hosts; `ca.key` issues."""
    folder.mkdir(parents=True, exist_ok=True)
    authority, own = _new_key(), _new_key()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "polyfed federation")])
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)  # signs certificates and CRLs
    root = (
        _certificate(name, name, authority.public_key())
        .add_extension(x509.BasicConstraints(True, 0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority.public_key()), critical=False)
        .sign(authority, hashes.SHA256())
    )
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0])])
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key())
    server = (
        _certificate(subject, name, own.public_key())
        .add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False)
        .add_extension(x509.BasicConstraints(False, None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(issuer, critical=False)
        .sign(authority, hashes.SHA256())
    )
    (folder / "ca.pem").write_bytes(root.public_bytes(PEM))
    (folder / "server.pem").write_bytes(server.public_bytes(PEM))
    for name, key in (("server.key", own), ("ca.key", authority)):
        private = key.private_bytes(PEM, serialization.PrivateFormat.TraditionalOpenSSL, PLAIN)
        _write_secret(folder / name, private)


def issue_site_certificate(folder: Path, site: str, public: ec.EllipticCurvePublicKey) -> bytes:
    """A certificate with which the owner of this key may speak to the server as `site`; signed with `ca.key`."""
    refuse_open(folder / "ca.key")
    try:
        authority = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
        root = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
    except (OSError, ValueError) as error:
        raise PolyfedError(f"{folder}: the authority's certificate and key cannot be read: {error}") from None
    if not isinstance(authority, ec.EllipticCurvePrivateKey):
        raise PolyfedError(f"{folder / 'ca.key'}: not the key of an elliptic curve")
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, site)])
    certificate = (
        _certificate(subject, root.subject, public)
        .add_extension(x509.BasicConstraints(False, None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), critical=False)
        .sign(authority, hashes.SHA256())
    )
    return certificate.public_bytes(PEM)


def read_public_key(path: Path) -> ec.EllipticCurvePublicKey:
    """A site's public key, as ssh-keygen writes it."""
    try:
        key = serialization.load_ssh_public_key(path.read_bytes())
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        raise PolyfedError(f"{path}: not a public key as ssh-keygen writes it: {error}") from None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise PolyfedError(f"{path}: expected a key of an elliptic curve (ssh-keygen -t ecdsa -b 384)")
    return key


def refuse_open(path: Path) -> None:
    """Refuse a file with a private key that others than its owner can read."""
    if os.name == "posix" and path.is_file() and path.stat().st_mode & 0o077:
        raise PolyfedError(f"{path}: others can read this private key; run chmod 600 {path}")


def read_private_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """A site's private key, as ssh-keygen writes it."""
    refuse_open(path)
    try:
        key = serialization.load_ssh_private_key(path.read_bytes(), None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise PolyfedError(f"{path}: not a private key without a password as ssh-keygen writes it: {error}") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise PolyfedError(f"{path}: expected a key of an elliptic curve (ssh-keygen -t ecdsa -b 384)")
    return key


def public_bytes(key: ec.EllipticCurvePublicKey) -> bytes:
    """A public key as Flower writes it."""
    return key.public_bytes(PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def site_context(authority: Path, certificate: Path, key: ec.EllipticCurvePrivateKey) -> ssl.SSLContext:
    """TLS from a site: it knows the server by `authority`, and proves itself by its certificate and key."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    password = secrets.token_hex(16)
    sealed = key.private_bytes(
        PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(password.encode())
    )
    with tempfile.NamedTemporaryFile() as file:  # ssl reads keys from files alone, and not in the form of OpenSSH
        file.write(sealed)
        file.flush()
        try:
            context.load_verify_locations(authority)
            context.load_cert_chain(certificate, file.name, password)
        except (OSError, ssl.SSLError) as error:
            raise PolyfedError(
                f"{authority} and {certificate} are not certificates that go with this site's key: {error}"
            ) from None
    return context


def make_site_key(private: Path) -> None:
    """A site's private key, and beside it `NAME.pub`, which the server needs."""
    key = _new_key()
    private.parent.mkdir(parents=True, exist_ok=True)
    _write_secret(private, key.private_bytes(PEM, serialization.PrivateFormat.OpenSSH, PLAIN))
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    private.with_name(f"{private.name}.pub").write_bytes(public + b"\n")


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP384R1())


def _certificate(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=365 * YEARS))
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write_secret(path: Path, data: bytes) -> None:
    """A file that only its owner can read, from the first byte on."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
