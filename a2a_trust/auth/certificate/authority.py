"""An authority that is trusted for client certificates, and its files: CA certificates and revocation lists."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.x509 import verification

from a2a_trust.auth.certificate.identities import (
    BROKEN,
    LONGEST_NAME,
    AllIssued,
    Allowed,
    IdentityRule,
    OnlyIdentities,
    OnlyThumbprints,
    extension_of,
)
from a2a_trust.base.cache import BoundedCache
from a2a_trust.base.files.watched import Stamp, Watched, open_regular, stamp_of_path
from a2a_trust.errors import ConfigurationError, InvalidCredentialsError, MalformedError
from a2a_trust.keys.jwk import public_key_from_object

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
