"""A small certificate authority, made anew for each run of the tests, and the certificates that it issues."""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["CLIENT", "SERVER", "Authority", "Leaf"]

CLIENT: Final = ExtendedKeyUsageOID.CLIENT_AUTH
SERVER: Final = ExtendedKeyUsageOID.SERVER_AUTH


@dataclass(frozen=True)
class Leaf:
    """A certificate and its key; ``above`` are the intermediate ones that go with it."""

    certificate: x509.Certificate
    key: CertificateIssuerPrivateKeyTypes
    above: tuple[x509.Certificate, ...] = ()

    @cached_property
    def der(self) -> bytes:
        return self.certificate.public_bytes(Encoding.DER)

    @property
    def pem(self) -> bytes:
        """The chain, leaf first."""
        return b"".join(each.public_bytes(Encoding.PEM) for each in (self.certificate, *self.above))

    @property
    def key_pem(self) -> bytes:
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def write(self, folder: Path, name: str) -> tuple[Path, Path]:
        """The files of the chain and of the key, for programs that want files."""
        chain, key = folder / f"{name}.pem", folder / f"{name}.key"
        chain.write_bytes(self.pem)
        key.write_bytes(self.key_pem)
        return chain, key

    def load_into(self, context: ssl.SSLContext, folder: Path) -> ssl.SSLContext:
        """The context, which shows this certificate from now on."""
        context.load_cert_chain(*self.write(folder, f"{self.certificate.serial_number:x}"))
        return context


class Authority:
    """A certificate authority: a root, or below another one."""

    def __init__(
        self,
        name: str = "Throw-away CA",
        issuer: Authority | None = None,
        *,
        key: CertificateIssuerPrivateKeyTypes | None = None,
        path_length: int | None = None,
        lifetime: timedelta = timedelta(days=1),
        extensions: Iterable[tuple[x509.ExtensionType, bool]] = (),
    ) -> None:
        """``extensions`` are further ones, and whether each is critical; one of a usual kind replaces it."""
        self.key = ec.generate_private_key(ec.SECP256R1()) if key is None else key
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        signer = self if issuer is None else issuer
        self.above: tuple[x509.Certificate, ...] = ()
        builder = _builder(self.name, signer, self.key, lifetime)
        usual = [(x509.BasicConstraints(ca=True, path_length=path_length), True), (_usage(for_authorities=True), True)]
        self.certificate = _sign(builder, signer.key, usual, extensions)
        if issuer is not None:
            self.above = (self.certificate, *issuer.above)

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    def issue(
        self,
        *names: x509.GeneralName,
        subject: x509.Name | str = "",
        usage: x509.ObjectIdentifier | None = CLIENT,
        lifetime: timedelta = timedelta(days=1),
        key: CertificateIssuerPrivateKeyTypes | None = None,
        extensions: Iterable[tuple[x509.ExtensionType, bool]] = (),
    ) -> Leaf:
        """A certificate that was issued a day and the lifetime ago at most; a negative lifetime is over.

        ``extensions`` are further ones, and whether each is critical; one of a usual kind replaces it.
        """
        key = ec.generate_private_key(ec.SECP256R1()) if key is None else key
        if isinstance(subject, str):
            subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)] if subject else [])
        usual: list[tuple[x509.ExtensionType, bool]] = [
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (_usage(for_authorities=False), True),
        ]
        if names:
            usual.append((x509.SubjectAlternativeName(names), not list(subject)))
        if usage is not None:
            usual.append((x509.ExtendedKeyUsage([usage]), False))
        builder = _builder(subject, self, key, lifetime)
        return Leaf(_sign(builder, self.key, usual, extensions), key, self.above)

    def revoke(self, *leaves: Leaf, lifetime: timedelta = timedelta(days=1)) -> x509.CertificateRevocationList:
        """A list with these certificates; one of a negative lifetime is over."""
        now = datetime.now(UTC)
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self.name)
            .last_update(now + min(lifetime, timedelta(0)) - timedelta(hours=1))
            .next_update(now + lifetime)
        )
        for leaf in leaves:
            entry = x509.RevokedCertificateBuilder().serial_number(leaf.certificate.serial_number).revocation_date(now)
            builder = builder.add_revoked_certificate(entry.build())
        return builder.sign(self.key, hashes.SHA256())


def _sign(
    builder: x509.CertificateBuilder,
    key: CertificateIssuerPrivateKeyTypes,
    usual: Iterable[tuple[x509.ExtensionType, bool]],
    further: Iterable[tuple[x509.ExtensionType, bool]],
) -> x509.Certificate:
    extensions = {each.oid: (each, critical) for each, critical in (*usual, *further)}
    for each, critical in extensions.values():
        builder = builder.add_extension(each, critical)
    return builder.sign(key, None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256())


def _builder(
    subject: x509.Name, signer: Authority, private: CertificateIssuerPrivateKeyTypes, lifetime: timedelta
) -> x509.CertificateBuilder:
    now, key = datetime.now(UTC), private.public_key()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(signer.name)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + min(lifetime, timedelta(0)) - timedelta(days=1))
        .not_valid_after(now + lifetime)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.key.public_key()), critical=False)
    )


def _usage(*, for_authorities: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not for_authorities,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=for_authorities,
        crl_sign=for_authorities,
        encipher_only=False,
        decipher_only=False,
    )
