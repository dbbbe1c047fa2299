"""Certificates and keys: the federation's own small authority, the server's certificate, and a key for each site."""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

YEARS = 2
PEM, PLAIN = serialization.Encoding.PEM, serialization.NoEncryption()


def make_certificates(folder: Path, hosts: Sequence[str]) -> None:
    """`ca.pem` for everybody, `server.pem` and `server.key` for the server, valid for these names and addresses."""
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
    private = own.private_bytes(PEM, serialization.PrivateFormat.TraditionalOpenSSL, PLAIN)
    _write_secret(folder / "server.key", private)


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
