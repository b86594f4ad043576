"""Verifies client certificates: trusted authorities, the name in a certificate, and the names that may call.

::

    CertificateVerifier(
        ClientAuthority(
            name="partners",
            certificates="partners-ca.pem",
            identity=FromUri("partners.example"),
            allowed=OnlyIdentities({"spiffe://partners.example/agents/invoices"}),
        )
    )

A certificate is valid if a chain leads from it to a trusted authority now (RFC 5280 6), every key and every signature
in the chain is strong, and its extended key usage has client authentication. One rule reads its name: it must have
exactly one name of that kind. The common name is never used as a host. Changed files are read within a second.

The identity's issuer is the rule and the authority's name, as in ``x509:uri:partners``: so the same name under another
authority, or by another rule, is another caller, and an authority can renew its certificates and keep its callers.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.x509 import verification
from cryptography.x509.oid import ExtendedKeyUsageOID

from a2a_trust.auth.certificate.identities import (
    BROKEN,
    LONGEST_NAME,
    AllIssued,
    Allowed,
    FromSubject,
    IdentityRule,
    OnlyIdentities,
    OnlyThumbprints,
    check_allowed,
    extension_of,
)
from a2a_trust.auth.credentials import CertificateChain
from a2a_trust.auth.principal import CredentialKind, Identity
from a2a_trust.base.cache import BoundedCache, SingleFlight
from a2a_trust.base.files.watched import Stamp, Watched, open_regular, stamp_of_path
from a2a_trust.errors import ConfigurationError, InvalidCredentialsError, KeySourceUnavailableError, MalformedError
from a2a_trust.keys import base64url
from a2a_trust.keys.jwk import public_key_from_object

MAX_CERTIFICATES: Final = 6
MAX_CHAIN: Final = 49_152
"""The most certificates that a client may show, its own included, and their most bytes of DER."""
LOOK_SECONDS: Final = 1.0
"""How often files are checked for changes."""
_CACHED_CERTIFICATES: Final = 1024
_MAX_FILE: Final = 4_194_304
_MAX_ISSUERS: Final = 1024
_CRLS: Final = re.compile(rb"-----BEGIN X509 CRL-----.*?-----END X509 CRL-----", re.DOTALL)
_HASHES: Final = frozenset({"sha256", "sha384", "sha512"})
_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientAuthority:
    """An authority that is trusted for client certificates.

    - ``name``: the operator's name for the authority. It is part of every identity, so do not change it.
    - ``certificates``: a file of CA certificates in PEM, roots or not. While the authority changes its key, put the old
      and the new certificate into the file.
    - ``identity``: which name of a certificate identifies the caller.
    - ``allowed``: which of these names may call.
    - ``crls``: files of revocation lists in PEM or DER. With them, a certificate is accepted only if its issuer has a
      current list, and so for all certificates up to the trusted one. A list for only a part is rejected.

    If a file is emptied or deleted, its last content stays in force. To stop trusting an authority, replace its file,
    or start the agent without it.
    """

    name: str
    certificates: Path | str
    identity: IdentityRule
    allowed: Allowed
    crls: Collection[Path | str] = field(default=())

    @property
    def issuer(self) -> str:
        """The issuer of the identities: the rule and the name."""
        return f"x509:{self.identity.kind}:{self.name}"

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", self.name):
            raise ConfigurationError('ClientAuthority: name is a word of letters, digits and . _ -, as in "partners"')
        for given in (self.identity, self.allowed):
            if isinstance(given, type):
                raise ConfigurationError(f"ClientAuthority {self.name}: write {given.__name__}(…), not the class")
        if isinstance(self.crls, str | Path):
            raise ConfigurationError(f"ClientAuthority {self.name}: crls must be a list of files; write crls=[…]")
        if isinstance(self.allowed, OnlyIdentities):
            for name in self.allowed.names:
                try:
                    is_spelled = self.identity.spelled(name) == name
                except InvalidCredentialsError:
                    is_spelled = False
                if not is_spelled:
                    raise ConfigurationError(
                        f"ClientAuthority {self.name}: {type(self.identity).__name__} never names {name[:128]!a}; "
                        "write the identity exactly as the rule spells it"
                    )
        elif not isinstance(self.allowed, OnlyThumbprints | AllIssued):
            raise ConfigurationError(
                f"ClientAuthority {self.name}: write allowed=OnlyIdentities({{…}}), OnlyThumbprints({{…}}) or "
                "AllIssued()"
            )


class RevocationList:
    """A revocation list. Its entries are walked once, and its signature is verified once for each issuer, so that
    requests cost the same with a large list."""

    def __init__(self, crl: x509.CertificateRevocationList) -> None:
        self._crl = crl
        self._serial_numbers = frozenset(entry.serial_number for entry in crl)
        self._is_of = BoundedCache[x509.Certificate, bool](max_entries=_MAX_ISSUERS)

    def names(self, certificate: x509.Certificate) -> bool:
        return certificate.serial_number in self._serial_numbers

    def end_for(self, issuer: x509.Certificate, now: float) -> float | None:
        """When the list expires; None if it is not by this issuer, or not in force now."""
        crl = self._crl
        if crl.issuer != issuer.subject or crl.next_update_utc is None:
            return None
        start, end = crl.last_update_utc.timestamp(), crl.next_update_utc.timestamp()
        usage = extension_of(issuer, x509.KeyUsage)
        if not start <= now < end or usage is None or not usage.crl_sign:
            return None
        is_valid = self._is_of.get(issuer)
        if is_valid is None:
            is_valid = crl.is_signature_valid(issuer.public_key())  # type: ignore[arg-type]
            self._is_of.put(issuer, is_valid)
        return end if is_valid else None


class _Files(NamedTuple):
    store: verification.Store
    crls: tuple[RevocationList, ...]


class WatchedAuthority:
    """An authority and its files, read again when they have changed.

    While a file cannot be read, its last content stays in force, and the log says so. Reading is tried again, also if
    the file has not changed.
    """

    def __init__(self, authority: ClientAuthority) -> None:
        """ConfigurationError: a file cannot be read, or has other content."""
        self.authority = authority
        self._paths = (Path(authority.certificates), *map(Path, authority.crls))
        self._watched = Watched(self._read, self._stamps, failures=(ConfigurationError,), tell=self._log_reload)
        self.files: _Files = self._watched.value()

    async def look_again(self) -> bool:
        """Whether the files have changed. A thread reads them: they may be large."""
        files = await asyncio.to_thread(self._watched.value)
        is_changed = files is not self.files
        self.files = files
        return is_changed

    def _stamps(self) -> tuple[Stamp | None, ...]:
        return tuple(map(stamp_of_path, self._paths))

    def _read(self) -> tuple[_Files, tuple[Stamp | None, ...]]:
        stamps = self._stamps()  # before: a change meanwhile is noticed the next time
        authorities, *lists = self._paths
        crls = tuple(crl for path in lists for crl in _read_crls(path))
        return _Files(verification.Store(_read_authorities(authorities)), crls), stamps

    def _log_reload(self, failure: Exception | None) -> None:
        if failure is None:
            _log.info("client authority %s: its files were reloaded", self.authority.name)
        else:
            _log.error("client authority %s: keeping the previous files: %s", self.authority.name, failure)


def _read_file(path: Path) -> bytes:
    try:
        with open_regular(path) as file:
            data = file.read(_MAX_FILE + 1)
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror or type(error).__name__}") from None
    if len(data) > _MAX_FILE:
        raise ConfigurationError(f"{path}: larger than {_MAX_FILE} bytes")
    return data


def _read_authorities(path: Path) -> list[x509.Certificate]:
    try:
        found = x509.load_pem_x509_certificates(_read_file(path))
        for certificate in found:
            _check_authority(certificate, path)
    except BROKEN as error:
        if isinstance(error, ConfigurationError):
            raise
        raise ConfigurationError(f"{path}: no CA certificates in PEM (BEGIN CERTIFICATE) that can be read") from None
    return found


def _check_authority(certificate: x509.Certificate, path: Path) -> None:
    """Report at once what the verification would reject in every chain that ends here."""
    where = f"{path}: the certificate with serial number {certificate.serial_number:x}"
    constraints = extension_of(certificate, x509.BasicConstraints)
    if constraints is None or not constraints.ca:
        raise ConfigurationError(
            f"{where} is not a CA certificate: it lacks basicConstraints CA:TRUE; name a file of CA certificates"
        )
    usage = extension_of(certificate, x509.KeyUsage)
    if usage is None or not usage.key_cert_sign:
        raise ConfigurationError(
            f"{where} is not for issuing; make it with keyUsage = critical, keyCertSign, cRLSign (RFC 5280 4.2.1.3)"
        )
    try:
        key = public_key_from_object(certificate.public_key())
    except MalformedError as error:
        raise ConfigurationError(f"{where}: {error}") from None
    if key.alg == "EdDSA":
        raise ConfigurationError(f"{where}: authorities with Ed25519 keys are not supported; use P-256, P-384 or RSA")


def _read_crls(path: Path) -> list[RevocationList]:
    data = _read_file(path)
    try:
        if b"-----BEGIN" in data[:LONGEST_NAME]:
            found = [x509.load_pem_x509_crl(block) for block in _CRLS.findall(data)]
        else:
            found = [x509.load_der_x509_crl(data)]
        partial = any(extension.critical for crl in found for extension in crl.extensions)
        strong = all(
            crl.signature_hash_algorithm is not None and crl.signature_hash_algorithm.name in _HASHES for crl in found
        )
        lists = list(map(RevocationList, found))
    except BROKEN:
        lists = []
    if not lists:
        raise ConfigurationError(f"{path}: it has no readable revocation list; write PEM (BEGIN X509 CRL) or DER")
    if not strong:
        raise ConfigurationError(f"{path}: a revocation list that is not signed over SHA-256, SHA-384 or SHA-512")
    if partial:
        # A critical extension says that the list is not complete: only changes, some reasons, or other issuers.
        raise ConfigurationError(f"{path}: its revocation list is only partial; name the complete one")
    return lists


class _Verified(NamedTuple):
    identity: Identity
    good_from: float
    good_until: float


class CertificateVerifier:
    """Verifies client certificates, whose keys TLS has proven. The first authority that issued the certificate decides.

    Verified certificates are cached until a file changes, or a certificate or a revocation list expires. The
    certificates above a client's are cached, too, because resumed TLS sessions have only the client's.
    """

    kind = CredentialKind.CERTIFICATE

    def __init__(self, *authorities: ClientAuthority) -> None:
        if not authorities:
            raise ConfigurationError("CertificateVerifier: there is no authority; pass ClientAuthority(…)")
        if len({authority.name for authority in authorities}) < len(authorities):
            raise ConfigurationError("CertificateVerifier: two authorities have the same name; give each its own")
        self.stores_by_issuer: Final[Mapping[str, object]] = {each.issuer: each for each in authorities}
        self._watched = tuple(map(WatchedAuthority, authorities))
        self._looked = float("-inf")
        self._looks = SingleFlight[None, None]()
        self._verified = BoundedCache[bytes, _Verified](max_entries=_CACHED_CERTIFICATES)
        self._above = BoundedCache[bytes, tuple[x509.Certificate, ...]](max_entries=_CACHED_CERTIFICATES)

    async def verify(self, credential: CertificateChain, now: float) -> Identity:
        """The identity in the certificates.

        InvalidCredentialsError: they are not valid. KeySourceUnavailableError: a current revocation list is missing.
        """
        if not 0 < len(credential) <= MAX_CERTIFICATES or sum(map(len, credential)) > MAX_CHAIN:
            raise InvalidCredentialsError(
                f"certificate: none, more than {MAX_CERTIFICATES}, or a chain that is too long"
            )
        if len(set(credential)) < len(credential):
            raise InvalidCredentialsError("certificate: one came twice")
        if not 0 <= now - self._looked < LOOK_SECONDS:
            self._looked = now
            if self._looks.running(None) is None:  # concurrent requests use the previous contents
                await self._looks.run(None, self._look_again)
        cache = self._verified  # a change of the files meanwhile replaces it
        # with the length of each certificate, so that no two chains have one digest
        digest = hashlib.sha256(b"".join(b"%d:%b" % (len(der), der) for der in credential)).digest()
        verified = cache.get(digest, now)
        if verified is None:
            try:
                verified = self._verify(credential, now)
            except BROKEN:
                raise InvalidCredentialsError("certificate: it is malformed") from None
            cache.put(digest, verified, since=verified.good_from, until=verified.good_until)
        return verified.identity

    async def _look_again(self) -> None:
        for watched in self._watched:
            if await watched.look_again():
                self._verified = BoundedCache(max_entries=_CACHED_CERTIFICATES)

    def _verify(self, credential: CertificateChain, now: float) -> _Verified:
        chain = [_certificate(der) for der in credential]
        leaf, above = chain[0], tuple(chain[1:])
        thumbprint = leaf.fingerprint(hashes.SHA256())
        above = above or self._above.get(thumbprint) or ()
        if len({each.subject.public_bytes() for each in above}) < len(above):
            # Certificates of one name may have issued each other, and the search for a path would try all orders.
            raise InvalidCredentialsError("certificate: two above it have the same name")
        _check_leaf(leaf, now)
        watched, path = self._path(leaf, above, now)
        authority = watched.authority
        name = authority.identity.name_in(leaf)
        good_from = max(each.not_valid_before_utc.timestamp() for each in path)
        expires_at = min(each.not_valid_after_utc.timestamp() for each in path)
        if not good_from <= now < expires_at:
            raise InvalidCredentialsError("certificate: one above it is not valid now")
        constrained = any(extension_of(each, x509.NameConstraints) is not None for each in path)
        if isinstance(authority.identity, FromSubject) and constrained:
            raise InvalidCredentialsError(
                "certificate: FromSubject cannot be used below an authority with name constraints; use FromUri or "
                "FromDns"
            )
        good_until = min(expires_at, _unrevoked_until(path, watched.files.crls, now)) if authority.crls else expires_at
        check_allowed(authority.allowed, name, thumbprint)
        self._above.put(thumbprint, above)
        identity = Identity(
            issuer=authority.issuer,
            subject=name,
            expires_at=expires_at,
            claims={"x5t#S256": base64url.encode(thumbprint)},
        )
        return _Verified(identity, good_from, good_until)

    def _path(
        self, leaf: x509.Certificate, above: Sequence[x509.Certificate], now: float
    ) -> tuple[WatchedAuthority, list[x509.Certificate]]:
        """The first authority that the certificate leads to, and the certificates from the leaf to the authority's."""
        reasons: list[str] = []
        for watched in self._watched:
            builder = verification.PolicyBuilder().store(watched.files.store).time(datetime.fromtimestamp(now, UTC))
            builder = builder.extension_policies(ca_policy=_AUTHORITIES, ee_policy=_LEAVES)
            try:
                return watched, builder.build_client_verifier().verify(leaf, list(above)).chain
            except verification.VerificationError as error:
                # The text in brackets comes from the certificate, and may be anything.
                reason = ascii(str(error).partition(" (")[0])[1:-1][:128]
                reasons.append(f"{watched.authority.name}: {reason}")
        raise InvalidCredentialsError(f"certificate: it is not issued by a trusted authority ({'; '.join(reasons)})")


#: Leaves of private authorities may have no alternative name, and need not name their issuer's key.
_LEAVES: Final = (
    verification.ExtensionPolicy.webpki_defaults_ee()
    .may_be_present(x509.SubjectAlternativeName, verification.Criticality.AGNOSTIC, None)
    .may_be_present(x509.AuthorityKeyIdentifier, verification.Criticality.NON_CRITICAL, None)
)
_AUTHORITIES: Final = verification.ExtensionPolicy.webpki_defaults_ca()


def _certificate(der: bytes) -> x509.Certificate:
    """The certificate, whose last octets are its signature.

    ``cryptography`` reads a signature also if its BIT STRING says that bits at its end are unused: another text of the
    same certificate (X.690 11.2).
    """
    certificate = x509.load_der_x509_certificate(der)
    if der[-len(certificate.signature) - 1]:
        raise ValueError("the signature has unused bits")
    return certificate


def _check_leaf(leaf: x509.Certificate, now: float) -> None:
    """Demands on the client's own certificate that the verification of chains does not make."""
    if now < leaf.not_valid_before_utc.timestamp():
        raise InvalidCredentialsError("certificate: it is not valid yet")
    if now >= leaf.not_valid_after_utc.timestamp():
        raise InvalidCredentialsError("certificate: it has expired")
    purposes = extension_of(leaf, x509.ExtendedKeyUsage)
    if purposes is None or ExtendedKeyUsageOID.CLIENT_AUTH not in purposes:
        raise InvalidCredentialsError("certificate: it is not for client authentication (extended key usage)")
    usage = extension_of(leaf, x509.KeyUsage)
    if usage is not None and not usage.digital_signature:
        raise InvalidCredentialsError("certificate: its key is not for signing (key usage)")
    try:
        public_key_from_object(leaf.public_key())
    except MalformedError:
        raise InvalidCredentialsError("certificate: its key is weak, or of a kind that is not accepted") from None


def _unrevoked_until(path: Iterable[x509.Certificate], crls: Sequence[RevocationList], now: float) -> float:
    """The moment until which current lists show that no certificate is revoked."""
    until = float("inf")
    for certificate, issuer in pairwise(path):
        ends = []
        for crl in crls:
            end = crl.end_for(issuer, now)
            if end is None:
                continue
            if crl.names(certificate):
                raise InvalidCredentialsError("certificate: it, or one above it, is revoked")
            ends.append(end)
        if not ends:
            raise KeySourceUnavailableError(
                "certificate: its issuer has no current revocation list; renew the files in crls"
            )
        until = min(until, *ends)
    return until
