"""Reads X.509 certificates: rules for the name in one, and for the names that may call."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar, Final, Protocol, TypeAlias, TypeVar

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm

from a2a_trust.errors import ConfigurationError, InvalidCredentialsError, MalformedError

LONGEST_NAME: Final = 2048
"""The longest name of a holder, in characters."""

#: The exceptions of reading a broken certificate; Warning, since warnings may be made errors.
BROKEN: Final = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
    MalformedError,
    Warning,
)


def is_certificate(der: bytes) -> bool:
    try:
        x509.load_der_x509_certificate(der)
    except BROKEN:
        return False
    return True


def subject_of(der: bytes) -> str | None:
    """The subject of one DER certificate as RFC 4514 writes it; None where it cannot be read."""
    try:
        return x509.load_der_x509_certificate(der).subject.rfc4514_string()
    except BROKEN:
        return None


_T = TypeVar("_T", bound=x509.ExtensionType)


def extension_of(certificate: x509.Certificate, kind: type[_T]) -> _T | None:
    return next((each.value for each in certificate.extensions if isinstance(each.value, kind)), None)


class IdentityRule(Protocol):
    """The rule that reads the caller's name in a certificate. ``kind`` is its word in the issuers of identities."""

    @property
    def kind(self) -> str: ...

    def name_in(self, certificate: x509.Certificate) -> str:
        """The name, in one spelling. InvalidCredentialsError: there is no such name, or several, or it is malformed."""

    def spelled(self, name: str) -> str:
        """The one spelling of a name; InvalidCredentialsError: it is malformed."""


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

    kind: ClassVar[str] = "uri"
    trust_domain: str

    def __post_init__(self) -> None:
        if not _TRUST_DOMAIN.fullmatch(self.trust_domain):
            raise ConfigurationError('FromUri: write only the SPIFFE trust domain, as in FromUri("example.org")')

    def name_in(self, certificate: x509.Certificate) -> str:
        return self.spelled(_only(certificate, x509.UniformResourceIdentifier, "URI"))

    def spelled(self, name: str) -> str:
        id_of_domain = rf"spiffe://{re.escape(self.trust_domain)}(?:/{_SEGMENT})+"
        if len(name) > LONGEST_NAME or not re.fullmatch(id_of_domain, name):
            raise InvalidCredentialsError("certificate: its URI is not a SPIFFE ID of the trust domain")
        return name


@dataclass(frozen=True, slots=True)
class FromDns:
    """The only DNS name among the alternative names, in lower case; wildcards are rejected."""

    kind: ClassVar[str] = "dns"

    def name_in(self, certificate: x509.Certificate) -> str:
        return self.spelled(_only(certificate, x509.DNSName, "DNS name"))

    def spelled(self, name: str) -> str:
        host = name.lower()
        if not name.isascii() or not _HOST.fullmatch(host):
            raise InvalidCredentialsError("certificate: its DNS name is not the name of one host")
        return host


@dataclass(frozen=True, slots=True)
class FromEmail:
    """The only e-mail address among the alternative names, its domain in lower case."""

    kind: ClassVar[str] = "email"

    def name_in(self, certificate: x509.Certificate) -> str:
        return self.spelled(_only(certificate, x509.RFC822Name, "e-mail address"))

    def spelled(self, name: str) -> str:
        local, _, domain = name.rpartition("@")
        domain = domain.lower()
        if not name.isascii() or not _LOCAL_PART.fullmatch(local) or not _HOST.fullmatch(domain):
            raise InvalidCredentialsError("certificate: its e-mail address is malformed")
        return f"{local}@{domain}"


@dataclass(frozen=True, slots=True)
class FromSubject:
    """The whole subject as RFC 4514 writes it, as in ``CN=Invoices,O=Example``.

    Name constraints are not applied to subjects, so an authority with constraints identifies no caller by subject.
    """

    kind: ClassVar[str] = "subject"

    def name_in(self, certificate: x509.Certificate) -> str:
        return self.spelled(certificate.subject.rfc4514_string())

    def spelled(self, name: str) -> str:
        if not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
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
    """Certificates with one of these names may call, as the identity rule spells them. An empty set admits none."""

    names: Collection[str]

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", _words(self.names, "OnlyIdentities"))


@dataclass(frozen=True, slots=True)
class OnlyThumbprints:
    """These certificates may call: the SHA-256 of the DER in hex, as ``openssl x509 -fingerprint -sha256`` prints it.

    An empty set admits no certificate. A renewed certificate has another thumbprint.
    """

    thumbprints: Collection[str]

    def __post_init__(self) -> None:
        words = _words(self.thumbprints, "OnlyThumbprints")
        thumbprints = frozenset(word.replace(":", "").lower() for word in words)
        if not all(re.fullmatch("[0-9a-f]{64}", thumbprint) for thumbprint in thumbprints):
            raise ConfigurationError(
                "OnlyThumbprints: one is not a SHA-256 in hex; take it from openssl x509 -noout -fingerprint -sha256"
            )
        object.__setattr__(self, "thumbprints", thumbprints)


@dataclass(frozen=True, slots=True)
class AllIssued:
    """Every client certificate of this authority, or of an authority below it, may call.

    To accept only one issuer of many, use its own certificate as the authority's.
    """


def _words(words: Collection[str], where: str) -> frozenset[str]:
    if isinstance(words, str) or not all(isinstance(word, str) for word in words):
        raise ConfigurationError(f'{where}: give a set of strings, as in {where}({{"…"}})')
    return frozenset(words)


Allowed: TypeAlias = OnlyIdentities | OnlyThumbprints | AllIssued


def check_allowed(allowed: Allowed, name: str, thumbprint: bytes) -> None:
    if isinstance(allowed, AllIssued):
        return
    if name in allowed.names if isinstance(allowed, OnlyIdentities) else thumbprint.hex() in allowed.thumbprints:
        return
    raise InvalidCredentialsError("certificate: it is valid, but not allowed to call (allowed=…)")
