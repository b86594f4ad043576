"""Client certificates: which authorities are trusted for them, whom a certificate names, and which of those may call.

::

    CertificateVerifier(
        ClientAuthority(
            name="partners",
            certificates="partners-ca.pem",
            identity=FromUri("partners.example"),
            allowed=OnlyIdentities({"spiffe://partners.example/agents/invoices"}),
        )
    )

A certificate counts when a chain leads from it to a trusted authority now, as RFC 5280 6 has it, every key and every
signature in it is strong, and its extended key usage names client authentication. Whom it names is told by one rule:
exactly one name of that kind, or nobody; the common name is never taken for a host. Files are looked at every second
and read again when they have changed.

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
from typing import Final, NamedTuple, Protocol, TypeVar

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.x509 import verification
from cryptography.x509.oid import ExtendedKeyUsageOID

from a2a_trust.auth.credentials import CertificateChain
from a2a_trust.auth.principal import CredentialKind, Identity
from a2a_trust.errors import (
    ConfigurationError,
    InvalidCredentialsError,
    KeySourceUnavailableError,
    MalformedError,
)
from a2a_trust.files.watched import Stamp, stamp_of_path
from a2a_trust.keys import base64url
from a2a_trust.keys.jwk import public_key_from_object

__all__ = [
    "AllIssued",
    "CertificateVerifier",
    "ClientAuthority",
    "FromDns",
    "FromEmail",
    "FromSubject",
    "FromUri",
    "IdentityRule",
    "OnlyIdentities",
    "OnlyThumbprints",
    "is_certificate",
    "subject_of",
]

MAX_CERTIFICATES: Final = 6
"""The most certificates that a client may show, its own included."""

MAX_CHAIN: Final = 49_152
"""The longest chain that is looked at, in bytes of DER."""

LOOK_SECONDS: Final = 1.0
"""How often files are looked at: so long, and as long as reading takes, may what changed in them still count."""

_MAX_FILE: Final = 4_194_304
_MEMORY_CERTIFICATES: Final = 1024
_LONGEST_NAME: Final = 2048

_CRLS: Final = re.compile(rb"-----BEGIN X509 CRL-----.*?-----END X509 CRL-----", re.DOTALL)
_HASHES: Final = frozenset({"sha256", "sha384", "sha512"})

#: What reading a broken certificate raises; Warning, since warnings about odd ones may be made errors.
_BROKEN: Final = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
    MalformedError,
    Warning,
)

_log: Final = logging.getLogger(__name__)


def is_certificate(der: bytes) -> bool:
    """Whether the bytes are exactly one certificate, DER."""
    try:
        x509.load_der_x509_certificate(der)
    except _BROKEN:
        return False
    return True


def subject_of(der: bytes) -> str | None:
    """The subject of one DER certificate as RFC 4514 writes it; None where it cannot be read."""
    try:
        return x509.load_der_x509_certificate(der).subject.rfc4514_string()
    except _BROKEN:
        return None


class IdentityRule(Protocol):
    """Whom a certificate names. ``kind`` is the rule's own word in the issuers of identities."""

    @property
    def kind(self) -> str: ...

    def name_in(self, certificate: x509.Certificate) -> str:
        """The name, in one spelling. InvalidCredentialsError: there is none of the kind, or several, or an odd one."""
        ...

    def spelled(self, name: str) -> str:
        """The one spelling of a name; InvalidCredentialsError for what is none."""
        ...


_SEGMENT: Final = r"(?!\.\.?(?:/|\Z))[A-Za-z0-9._-]+"
_TRUST_DOMAIN: Final = re.compile(r"[a-z0-9._-]{1,255}")
_HOST: Final = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)*"
)
_LOCAL_PART: Final = re.compile(r"(?=.{1,64}\Z)[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*")


@dataclass(frozen=True, slots=True)
class FromUri:
    """The only URI among the alternative names, which is a SPIFFE ID of this trust domain, with a path.

    Source: SPIFFE ID 2, X509-SVID 2 and 5.2.
    """

    trust_domain: str

    def __post_init__(self) -> None:
        if not _TRUST_DOMAIN.fullmatch(self.trust_domain):
            raise ConfigurationError('FromUri: name the SPIFFE trust domain alone, as in FromUri("example.org")')

    @property
    def kind(self) -> str:
        return "uri"

    def name_in(self, certificate: x509.Certificate) -> str:
        return self.spelled(_only(certificate, x509.UniformResourceIdentifier, "URI"))

    def spelled(self, name: str) -> str:
        id_of_domain = rf"spiffe://{re.escape(self.trust_domain)}(?:/{_SEGMENT})+"
        if len(name) > _LONGEST_NAME or not re.fullmatch(id_of_domain, name):
            raise InvalidCredentialsError("certificate: its URI is no SPIFFE ID of the trust domain")
        return name


@dataclass(frozen=True, slots=True)
class FromDns:
    """The only DNS name among the alternative names, in lower case; wildcards name nobody."""

    @property
    def kind(self) -> str:
        return "dns"

    def name_in(self, certificate: x509.Certificate) -> str:
        return self.spelled(_only(certificate, x509.DNSName, "DNS name"))

    def spelled(self, name: str) -> str:
        host = name.lower()
        if not name.isascii() or not _HOST.fullmatch(host):
            raise InvalidCredentialsError("certificate: its DNS name is none of one host")
        return host


@dataclass(frozen=True, slots=True)
class FromEmail:
    """The only e-mail address among the alternative names, its domain in lower case."""

    @property
    def kind(self) -> str:
        return "email"

    def name_in(self, certificate: x509.Certificate) -> str:
        return self.spelled(_only(certificate, x509.RFC822Name, "e-mail address"))

    def spelled(self, name: str) -> str:
        local, _, domain = name.rpartition("@")
        domain = domain.lower()
        if not name.isascii() or not _LOCAL_PART.fullmatch(local) or not _HOST.fullmatch(domain):
            raise InvalidCredentialsError("certificate: its e-mail address is none")
        return f"{local}@{domain}"


@dataclass(frozen=True, slots=True)
class FromSubject:
    """The whole subject as RFC 4514 writes it, as in ``CN=Invoices,O=Example``.

    Name constraints are not applied to subjects, so an authority that has some names nobody by them.
    """

    @property
    def kind(self) -> str:
        return "subject"

    def name_in(self, certificate: x509.Certificate) -> str:
        return self.spelled(certificate.subject.rfc4514_string())

    def spelled(self, name: str) -> str:
        if not 0 < len(name) <= _LONGEST_NAME or not name.isprintable():
            raise InvalidCredentialsError("certificate: its subject is empty, too long or not printable")
        return name


def _only(certificate: x509.Certificate, kind: type[x509.GeneralName], called: str) -> str:
    names: list[str] = []
    for extension in certificate.extensions:
        if isinstance(extension.value, x509.SubjectAlternativeName):
            names += [name.value for name in extension.value if isinstance(name, kind)]
    if len(names) != 1:
        raise InvalidCredentialsError(f"certificate: it has {'several' if names else 'no'} alternative names: {called}")
    return names[0]


@dataclass(frozen=True, slots=True)
class OnlyIdentities:
    """Certificates that name one of these may call, spelled as the rule spells them; of an empty set, nobody."""

    names: Collection[str]

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", _words(self.names, "OnlyIdentities"))


@dataclass(frozen=True, slots=True)
class OnlyThumbprints:
    """These certificates may call: the SHA-256 of the DER in hex, as ``openssl x509 -fingerprint -sha256`` prints it.

    Of an empty set, nobody. A renewed certificate has another thumbprint.
    """

    thumbprints: Collection[str]

    def __post_init__(self) -> None:
        words = _words(self.thumbprints, "OnlyThumbprints")
        thumbprints = frozenset(word.replace(":", "").lower() for word in words)
        if not all(re.fullmatch("[0-9a-f]{64}", thumbprint) for thumbprint in thumbprints):
            raise ConfigurationError(
                "OnlyThumbprints: one is no SHA-256 in hex; take it from openssl x509 -noout -fingerprint -sha256"
            )
        object.__setattr__(self, "thumbprints", thumbprints)


@dataclass(frozen=True, slots=True)
class AllIssued:
    """Whoever has a certificate for clients of this authority, or of those below it, may call.

    To take those of one issuer out of many, let its own certificate be the authority's.
    """


def _words(words: Collection[str], where: str) -> frozenset[str]:
    if isinstance(words, str) or not all(isinstance(word, str) for word in words):
        raise ConfigurationError(f'{where}: give a set of strings, as in {where}({{"…"}})')
    return frozenset(words)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientAuthority:
    """An authority that is trusted for clients: by which certificates, for whom.

    ``certificates`` is a file of CA certificates in PEM. They are trusted as they are, roots or not; during a change of
    the authority's key it holds the old one and the new one. ``name`` is the operator's own word for the authority and
    a part of every identity that it vouches for: keep it. ``identity`` says whom a certificate names, ``allowed`` which
    of those may call.

    With ``crls``, files in PEM or DER, no certificate counts without a list by its issuer that is in force now, the
    certificates between the client's and the trusted one included. A list that covers a part only is refused.

    A file that is emptied or deleted leaves what it said last: to trust the last one no more, put another one in its
    place, or start the agent without.
    """

    name: str
    certificates: Path | str
    identity: IdentityRule
    allowed: OnlyIdentities | OnlyThumbprints | AllIssued
    crls: Collection[Path | str] = field(default=())

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", self.name):
            raise ConfigurationError('ClientAuthority: name is a word of letters, digits and . _ -, as in "partners"')
        for given in (self.identity, self.allowed):
            if isinstance(given, type):
                raise ConfigurationError(f"ClientAuthority {self.name}: write {given.__name__}(…), not the class")
        if isinstance(self.crls, str | Path):
            raise ConfigurationError(f"ClientAuthority {self.name}: crls are several files; write crls=[…]")
        if isinstance(self.allowed, OnlyIdentities):
            for name in self.allowed.names:
                if _spelled_or_none(self.identity, name) != name:
                    raise ConfigurationError(
                        f"ClientAuthority {self.name}: {type(self.identity).__name__} never names {name[:128]!a}; "
                        "write the identity exactly as the rule spells it"
                    )
        elif not isinstance(self.allowed, OnlyThumbprints | AllIssued):
            raise ConfigurationError(
                f"ClientAuthority {self.name}: write allowed=OnlyIdentities({{…}}), OnlyThumbprints({{…}}) or "
                "AllIssued()"
            )


def _spelled_or_none(rule: IdentityRule, name: str) -> str | None:
    try:
        return rule.spelled(name)
    except InvalidCredentialsError:
        return None


class _RevocationList:
    """A revocation list and what is known of it, so that requests cost the same with large ones.

    Its entries are walked once, when it is made, and its signature is verified once for each issuer.
    """

    def __init__(self, crl: x509.CertificateRevocationList) -> None:
        self._crl = crl
        self._serial_numbers = frozenset(entry.serial_number for entry in crl)
        self._is_of: dict[x509.Certificate, bool] = {}

    def names(self, certificate: x509.Certificate) -> bool:
        return certificate.serial_number in self._serial_numbers

    def end_for(self, issuer: x509.Certificate, now: float) -> float | None:
        """When the list's time is over; None when it is no list of this issuer that is in force now."""
        crl = self._crl
        if crl.issuer != issuer.subject or crl.next_update_utc is None:
            return None
        start, end = crl.last_update_utc.timestamp(), crl.next_update_utc.timestamp()
        usage = _extension(issuer, x509.KeyUsage)
        if not start <= now < end or usage is None or not usage.crl_sign:
            return None
        if issuer not in self._is_of:
            is_valid = crl.is_signature_valid(issuer.public_key())  # type: ignore[arg-type]
            _remember(self._is_of, issuer, is_valid)
        return end if self._is_of[issuer] else None


class _Files(NamedTuple):
    """What an authority's files say."""

    stamps: tuple[Stamp | None, ...]
    store: verification.Store
    crls: tuple[_RevocationList, ...]


class _Watched:
    """An authority and its files, read again when they have changed.

    Files that cannot be read any more leave what they said last in its place, and the log says so: revocation lists go
    on until they are over.
    """

    def __init__(self, authority: ClientAuthority) -> None:
        self.authority = authority
        self._paths = (Path(authority.certificates), *map(Path, authority.crls))
        self.files = self._read(self.stamps())

    def stamps(self) -> tuple[Stamp | None, ...]:
        return tuple(map(stamp_of_path, self._paths))

    async def read_again(self, stamps: tuple[Stamp | None, ...]) -> bool:
        """Whether the files, which have changed, say something else now. They are read in a thread: they may be large.

        ``stamps`` were taken before: a change meanwhile is noticed the next time.
        """
        try:
            self.files = await asyncio.to_thread(self._read, stamps)
        except ConfigurationError as error:
            self.files = self.files._replace(stamps=stamps)  # one attempt, and one line, for each change
            _log.error("client authority %s: the last files go on: %s", self.authority.name, error)
            return False
        _log.info("client authority %s: its files were read again", self.authority.name)
        return True

    def _read(self, stamps: tuple[Stamp | None, ...]) -> _Files:
        authorities, *lists = self._paths
        crls = tuple(crl for path in lists for crl in _read_crls(path))
        return _Files(stamps, verification.Store(_read_authorities(authorities)), crls)


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_FILE + 1)
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror or type(error).__name__}") from None
    if len(data) > _MAX_FILE:
        raise ConfigurationError(f"{path}: larger than {_MAX_FILE} bytes")
    return data


def _read_authorities(path: Path) -> list[x509.Certificate]:
    try:
        found = x509.load_pem_x509_certificates(_content(path))
        for certificate in found:
            _check_authority(certificate, path)
    except _BROKEN as error:
        if isinstance(error, ConfigurationError):
            raise
        raise ConfigurationError(f"{path}: no CA certificates in PEM (BEGIN CERTIFICATE) that can be read") from None
    return found


def _check_authority(certificate: x509.Certificate, path: Path) -> None:
    """What the verification would refuse of every chain that ends here is said at once."""
    where = f"{path}: the certificate with serial number {certificate.serial_number:x}"
    constraints = _extension(certificate, x509.BasicConstraints)
    if constraints is None or not constraints.ca:
        raise ConfigurationError(f"{where} is no authority's: it lacks basicConstraints CA:TRUE")
    usage = _extension(certificate, x509.KeyUsage)
    if usage is None or not usage.key_cert_sign:
        raise ConfigurationError(
            f"{where} is not for issuing; make it with keyUsage = critical, keyCertSign, cRLSign (RFC 5280 4.2.1.3)"
        )
    try:
        key = public_key_from_object(certificate.public_key())
    except MalformedError as error:
        raise ConfigurationError(f"{where}: {error}") from None
    if key.alg == "EdDSA":
        raise ConfigurationError(f"{where}: authorities with Ed25519 keys are not taken; use P-256, P-384 or RSA")


def _read_crls(path: Path) -> list[_RevocationList]:
    data = _content(path)
    try:
        if b"-----BEGIN" in data[:_LONGEST_NAME]:
            found = [x509.load_pem_x509_crl(block) for block in _CRLS.findall(data)]
        else:
            found = [x509.load_der_x509_crl(data)]
        partial = any(extension.critical for crl in found for extension in crl.extensions)
        strong = all(
            crl.signature_hash_algorithm is not None and crl.signature_hash_algorithm.name in _HASHES for crl in found
        )
        lists = list(map(_RevocationList, found))
    except _BROKEN:
        lists = []
    if not lists:
        raise ConfigurationError(f"{path}: no revocation list (BEGIN X509 CRL, or DER) that can be read")
    if not strong:
        raise ConfigurationError(f"{path}: a revocation list that is not signed over SHA-256, SHA-384 or SHA-512")
    if partial:
        # Critical are what says that others are needed beside it: of changes only, for some reasons, of other issuers.
        raise ConfigurationError(f"{path}: a revocation list of a part of what was revoked; give the whole one")
    return lists


_T = TypeVar("_T", bound=x509.ExtensionType)


def _extension(certificate: x509.Certificate, kind: type[_T]) -> _T | None:
    return next((each.value for each in certificate.extensions if isinstance(each.value, kind)), None)


_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def _remember(memory: dict[_Key, _Value], key: _Key, value: _Value) -> None:
    if len(memory) >= _MEMORY_CERTIFICATES:
        memory.clear()
    memory[key] = value


class _Proven(NamedTuple):
    identity: Identity
    good_from: float
    good_until: float


class CertificateVerifier:
    """Verifies certificates whose keys the callers have proven to have; the first authority that vouches decides.

    Why this is a class: it remembers what it has proven, until a file changes, a certificate or a revocation list is
    over. It also remembers the certificates above a client's, since resumed TLS sessions show the client's alone.
    """

    kind = CredentialKind.CERTIFICATE

    def __init__(self, *authorities: ClientAuthority) -> None:
        """ConfigurationError: a file cannot be read, or is not what it is given for."""
        if not authorities:
            raise ConfigurationError("CertificateVerifier: no authority is trusted; pass ClientAuthority(…)")
        if len({authority.name for authority in authorities}) < len(authorities):
            raise ConfigurationError("CertificateVerifier: two authorities have one name; give each its own")
        self._watched = tuple(map(_Watched, authorities))
        self._looked = float("-inf")
        self._reading: asyncio.Task[None] | None = None
        self._proven: dict[bytes, _Proven] = {}
        self._above: dict[bytes, tuple[x509.Certificate, ...]] = {}

    async def verify(self, credential: CertificateChain, now: float) -> Identity:
        """Whom the certificates name.

        InvalidCredentialsError. KeySourceUnavailableError: no revocation list is in force that would tell.
        """
        _check_chain(credential)
        if not 0 <= now - self._looked < LOOK_SECONDS:
            self._looked = now
            await self._look()
        memory = self._proven  # before anything is judged: what changes meanwhile drops it
        digest = _digest(credential)
        proven = memory.get(digest)
        if proven is None or not proven.good_from <= now < proven.good_until:
            try:
                proven = self._prove(credential, now)
            except _BROKEN:
                raise InvalidCredentialsError("certificate: it cannot be read") from None
            _remember(memory, digest, proven)
        return proven.identity

    async def _look(self) -> None:
        """Let files that have changed be read. Requests that come meanwhile are judged by what they said before."""
        changed = {each: stamps for each in self._watched if (stamps := each.stamps()) != each.files.stamps}
        reading = self._reading
        is_reading = reading is not None and not reading.done() and reading.get_loop() is asyncio.get_running_loop()
        if changed and not is_reading:
            self._reading = asyncio.create_task(self._read_again(changed))
            await asyncio.shield(self._reading)  # that this request is given up must not end it

    async def _read_again(self, changed: Mapping[_Watched, tuple[Stamp | None, ...]]) -> None:
        for watched, stamps in changed.items():
            if await watched.read_again(stamps):
                self._proven = {}

    def _prove(self, credential: CertificateChain, now: float) -> _Proven:
        chain = list(map(x509.load_der_x509_certificate, credential))
        leaf, above = chain[0], tuple(chain[1:])
        thumbprint = leaf.fingerprint(hashes.SHA256())
        above = above or self._above.get(thumbprint, ())
        if len({each.subject.public_bytes() for each in above}) < len(above):
            # Those of one name may all have issued each other, and the search for a path would try them in all orders.
            raise InvalidCredentialsError("certificate: two of those above it have the same name")
        _check_leaf(leaf, now)
        watched, path = self._path(leaf, above, now)
        authority = watched.authority
        name = authority.identity.name_in(leaf)
        good_from = max(each.not_valid_before_utc.timestamp() for each in path)
        expires_at = min(each.not_valid_after_utc.timestamp() for each in path)
        if not good_from <= now < expires_at:
            raise InvalidCredentialsError("certificate: one above it is not valid now")
        good_until = expires_at
        if isinstance(authority.identity, FromSubject) and any(map(_has_name_constraints, path)):
            raise InvalidCredentialsError("certificate: subjects name nobody below an authority with name constraints")
        if authority.crls:
            good_until = min(expires_at, _unrevoked_until(path, watched.files.crls, now))
        _check_allowed(authority.allowed, name, thumbprint)
        _remember(self._above, thumbprint, above)
        identity = Identity(
            issuer=f"x509:{authority.identity.kind}:{authority.name}",
            subject=name,
            expires_at=expires_at,
            claims={"x5t#S256": base64url.encode(thumbprint)},
        )
        return _Proven(identity, good_from, good_until)

    def _path(
        self, leaf: x509.Certificate, above: Sequence[x509.Certificate], now: float
    ) -> tuple[_Watched, list[x509.Certificate]]:
        """The first authority that vouches, and the certificates from the leaf to its own."""
        reasons: list[str] = []
        for watched in self._watched:
            builder = verification.PolicyBuilder().store(watched.files.store).time(datetime.fromtimestamp(now, UTC))
            builder = builder.extension_policies(ca_policy=_AUTHORITIES, ee_policy=_LEAVES)
            try:
                return watched, builder.build_client_verifier().verify(leaf, list(above)).chain
            except verification.VerificationError as error:
                # What follows in brackets is of the certificate, and its text may be anything.
                reason = ascii(str(error).partition(" (")[0])[1:-1][:128]
                reasons.append(f"{watched.authority.name}: {reason}")
        raise InvalidCredentialsError(f"certificate: no authority vouches for it ({'; '.join(reasons)})")


def _leaves() -> verification.ExtensionPolicy:
    """Leaves of private authorities may have no alternative name, and need not name their issuer's key."""
    policy = verification.ExtensionPolicy.webpki_defaults_ee()
    policy = policy.may_be_present(x509.SubjectAlternativeName, verification.Criticality.AGNOSTIC, None)
    return policy.may_be_present(x509.AuthorityKeyIdentifier, verification.Criticality.NON_CRITICAL, None)


_LEAVES: Final = _leaves()
_AUTHORITIES: Final = verification.ExtensionPolicy.webpki_defaults_ca()


def _digest(chain: CertificateChain) -> bytes:
    """One for each chain: every certificate counts with its length."""
    digest = hashlib.sha256()
    for der in chain:
        digest.update(b"%d:" % len(der))
        digest.update(der)
    return digest.digest()


def _check_chain(chain: CertificateChain) -> None:
    if not 0 < len(chain) <= MAX_CERTIFICATES or sum(map(len, chain)) > MAX_CHAIN:
        raise InvalidCredentialsError(f"certificate: none, more than {MAX_CERTIFICATES}, or a chain that is too long")
    if len(set(chain)) < len(chain):
        raise InvalidCredentialsError("certificate: one came twice")


def _check_leaf(leaf: x509.Certificate, now: float) -> None:
    """What the verification of chains does not demand of the client's own certificate."""
    if now < leaf.not_valid_before_utc.timestamp():
        raise InvalidCredentialsError("certificate: it is not valid yet")
    if now >= leaf.not_valid_after_utc.timestamp():
        raise InvalidCredentialsError("certificate: it has expired")
    purposes = _extension(leaf, x509.ExtendedKeyUsage)
    if purposes is None or ExtendedKeyUsageOID.CLIENT_AUTH not in purposes:
        raise InvalidCredentialsError("certificate: it is not for client authentication (extended key usage)")
    usage = _extension(leaf, x509.KeyUsage)
    if usage is not None and not usage.digital_signature:
        raise InvalidCredentialsError("certificate: its key is not for signing (key usage)")
    try:
        public_key_from_object(leaf.public_key())
    except MalformedError:
        raise InvalidCredentialsError("certificate: its key is weak, or of a kind that is not taken") from None


def _has_name_constraints(certificate: x509.Certificate) -> bool:
    return _extension(certificate, x509.NameConstraints) is not None


def _unrevoked_until(path: Iterable[x509.Certificate], crls: Sequence[_RevocationList], now: float) -> float:
    """The moment until which the lists that are in force say of every certificate that it is not revoked."""
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
                "certificate: no revocation list of its issuer is in force; renew the files in crls"
            )
        until = min(until, *ends)
    return until


def _check_allowed(allowed: OnlyIdentities | OnlyThumbprints | AllIssued, name: str, thumbprint: bytes) -> None:
    if isinstance(allowed, AllIssued):
        return
    if name in allowed.names if isinstance(allowed, OnlyIdentities) else thumbprint.hex() in allowed.thumbprints:
        return
    raise InvalidCredentialsError("certificate: it is good, and not among those that are allowed")
