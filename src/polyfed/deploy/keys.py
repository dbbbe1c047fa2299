"""Certificates and keys: the federation's own small authority, the server's certificate, and each site's key and pass.

A site proves itself in TLS, by a certificate that the operator issued for its key. `ca.key`, with which certificates
are issued, belongs to the operator alone.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import re
import secrets
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from polyfed.core.errors import PolyfedError
from polyfed.core.files import write_text

YEARS = 2
"""For which certificates are good."""
WARNED = 30
"""Days before the end of a certificate from which on it is said."""
DAY = 86400.0
RENEW = "`polyfed deploy renew`"
HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,61}[A-Za-z0-9])?")
"""At most 64 letters, which is what a certificate has room for as the name of its subject."""
PEM, PLAIN = serialization.Encoding.PEM, serialization.NoEncryption()


def make_certificates(folder: Path, hosts: Sequence[str]) -> None:
    """`ca.pem` for everybody, `server.pem` and `server.key` for the server, valid for these hosts; `ca.key` issues."""
    names = x509.SubjectAlternativeName([as_general_name(host) for host in hosts])
    folder.mkdir(parents=True, exist_ok=True)
    authority, own = _new_key(), _new_key()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "polyfed federation")])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0])])
    (folder / "ca.pem").write_bytes(_root(name, authority).public_bytes(PEM))
    (folder / "server.pem").write_bytes(_for_server(subject, names, name, own.public_key(), authority))
    for name, key in (("server.key", own), ("ca.key", authority)):
        private = key.private_bytes(PEM, serialization.PrivateFormat.TraditionalOpenSSL, PLAIN)
        _write_secret(folder / name, private)


def _root(name: x509.Name, authority: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)  # signs certificates and CRLs
    return (
        _certificate(name, name, authority.public_key())
        .add_extension(x509.BasicConstraints(True, 0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority.public_key()), critical=False)
        .sign(authority, hashes.SHA256())
    )


def _for_server(
    subject: x509.Name,
    names: x509.SubjectAlternativeName,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    authority: ec.EllipticCurvePrivateKey,
) -> bytes:
    by = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key())
    certificate = (
        _certificate(subject, issuer, key)
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(False, None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(by, critical=False)
        .sign(authority, hashes.SHA256())
    )
    return certificate.public_bytes(PEM)


def renew_certificates(folder: Path) -> None:
    """`ca.pem` and `server.pem` anew, with the keys and names that they have: certificates of before stay good."""
    authority, root = _authority(folder)
    old = read_certificate(folder / "server.pem")
    key = old.public_key()
    try:
        names = old.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        names = None
    if names is None or not isinstance(key, ec.EllipticCurvePublicKey):
        raise PolyfedError(f"{folder / 'server.pem'}: not a certificate of `polyfed deploy init`")
    write_text(folder / "server.pem", _for_server(old.subject, names, root.subject, key, authority).decode())
    write_text(folder / "ca.pem", _root(root.subject, authority).public_bytes(PEM).decode())


def read_certificate(path: Path) -> x509.Certificate:
    """A certificate in PEM."""
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        raise PolyfedError(f"{path}: not a certificate: {error}") from None


def ending(paths: Iterable[Path], now: datetime.datetime | None = None) -> list[str]:
    """A sentence for each certificate that has ended, or will within `WARNED` days; one that is not there has none."""
    now = now or datetime.datetime.now(datetime.UTC)
    sentences = []
    for path in paths:
        if not path.is_file():
            continue
        end = read_certificate(path).not_valid_after_utc
        left = (end - now).days
        if left < WARNED:
            when = f"ended on {end:%Y-%m-%d}" if end < now else f"ends on {end:%Y-%m-%d}, in {left} days"
            sentences.append(f"{path}: this certificate {when}; the server's operator makes new ones: {RENEW}")
    return sentences


def warn_daily(paths: Sequence[Path], say: Callable[[str], None]) -> None:
    """Say now and every day, in a thread, which certificates end soon."""

    def watch() -> None:
        while True:
            for sentence in ending(paths):
                say(sentence)
            time.sleep(DAY)

    threading.Thread(target=watch, daemon=True).start()


def _authority(folder: Path) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    """The key with which certificates are issued, and its own certificate."""
    refuse_open(folder / "ca.key")
    try:
        authority = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
        root = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
    except (OSError, ValueError) as error:
        raise PolyfedError(f"{folder}: the authority's certificate and key cannot be read: {error}") from None
    if not isinstance(authority, ec.EllipticCurvePrivateKey):
        raise PolyfedError(f"{folder / 'ca.key'}: not the key of an elliptic curve")
    return authority, root


def issue_site_certificate(folder: Path, site: str, public: ec.EllipticCurvePublicKey) -> bytes:
    """A certificate with which the owner of this key may speak to the server as `site`; signed with `ca.key`."""
    authority, root = _authority(folder)
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
    """A public key in PEM, by which it is compared."""
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


def as_general_name(host: str) -> x509.GeneralName:
    """The server's host as a certificate names it; refused if it is no address."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        if not HOST.fullmatch(host):
            raise PolyfedError(
                f"the server's host must be a name as in an address, or an IP address, found {host!r}"
            ) from None
        return x509.DNSName(host)


def _write_secret(path: Path, data: bytes) -> None:
    """A file that only its owner can read, from the first byte on."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
