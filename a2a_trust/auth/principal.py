"""Who is asking: the identity that each credential gives, and the caller that they make together."""

from __future__ import annotations

import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum, StrEnum
from types import MappingProxyType, NoneType
from typing import Any, Final, Generic, Protocol, Self, TypeVar
from urllib.parse import quote
from uuid import UUID

from a2a_trust.errors import ConfigurationError, InvalidCredentialsError

__all__ = [
    "SCOPE",
    "Anonymous",
    "BoundVerifier",
    "CredentialKind",
    "Identity",
    "KeyBinding",
    "Principal",
    "TokenBinding",
    "TokenVerifier",
    "Verifier",
    "verification_of",
]

SCOPE: Final = re.compile(r"[!#-\[\]-~]+")
"""What a scope may be (RFC 6749 3.3, scope-token)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyBinding:
    """The keys that whoever shows a credential has to have, too: with several, all of them.

    ``jkt`` is the RFC 7638 thumbprint of the key that proofs are signed with (RFC 9449 6.1), ``x5t_s256`` the SHA-256
    thumbprint of the client certificate (RFC 8705 3.1), both in base64url; None where the credential does not ask.
    """

    jkt: str | None = None
    x5t_s256: str | None = None

    def __post_init__(self) -> None:
        if self.jkt is None and self.x5t_s256 is None:
            raise ConfigurationError("KeyBinding: it names no key; leave bound_to out where a credential is not bound")


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The identity that one verified credential gives.

    ``issuer`` says who vouches (an issuer URL, the name of a key store), ``subject`` whom they vouch for; together they
    name the caller, and no two callers share them. ``scopes`` are what the credential allows. It is good until just
    before ``expires_at`` (seconds since the epoch). ``claims`` hold the rest, never the credential itself. Requests
    share them, so they are read-only: an object is a mapping that cannot be changed, a list is a tuple, a set is a
    frozenset. With ``bound_to`` it proves nothing by itself: the guard admits no request that does not prove
    those keys, too. ConfigurationError: a claim has a type that may be changed.
    """

    issuer: str
    subject: str
    scopes: frozenset[str] = frozenset()
    expires_at: float = float("inf")
    claims: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False, hash=False)
    bound_to: KeyBinding | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "claims", _read_only(self.claims, ""))


class _ReadOnly(Mapping[str, Any]):
    """A mapping that nobody can change.

    Unlike ``MappingProxyType`` it can be copied and pickled, so identities can. It is no dataclass: ``asdict`` would
    take it apart.
    """

    __slots__ = ("_members",)
    _members: MappingProxyType[str, Any]

    def __init__(self, members: dict[str, Any]) -> None:
        object.__setattr__(self, "_members", MappingProxyType(members))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("claims are read-only: requests share them")

    def __getitem__(self, name: str) -> Any:
        return self._members[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def __repr__(self) -> str:
        return repr(dict(self._members))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _read_only, (dict(self._members), "")


_FLAT: Final = frozenset({str, int, float, bool, type(None)})
_UNCHANGEABLE: Final = (str, int, float, NoneType, bytes, Decimal, date, time, timedelta, UUID, Enum)


def _read_only(value: Any, name: str) -> Any:
    """A copy of a claim that nobody can change, at any depth. ConfigurationError: it is of another type."""
    if isinstance(value, _ReadOnly):
        return value
    if isinstance(value, Mapping):
        within = f"{name}." if name else ""
        return _ReadOnly(
            {key: item if type(item) in _FLAT else _read_only(item, f"{within}{key}") for key, item in value.items()}
        )
    if isinstance(value, list | tuple | set | frozenset):
        items = [_read_only(item, f"{name}[{index}]") for index, item in enumerate(value)]
        return tuple(items) if isinstance(value, list | tuple) else frozenset(items)
    if isinstance(value, bytearray):
        return bytes(value)
    if not isinstance(value, _UNCHANGEABLE):
        raise ConfigurationError(
            f"claims: {name} is of the type {type(value).__name__}, which requests cannot share; "
            "put what JSON knows there, or a date, a Decimal, a UUID, bytes or a set"
        )
    return value


class TokenBinding(StrEnum):
    """Whether tokens have to be sender-constrained (RFC 9700 2.2.1)."""

    OPTIONAL = "optional"
    """Bearer tokens are taken, too. A token that is bound needs the proof of its key all the same."""

    REQUIRED = "required"
    """Only tokens that are bound to a key (RFC 9449) or a client certificate (RFC 8705) are taken."""


class CredentialKind(Enum):
    """What kind of credential a verifier is for, if it says so in ``kind``.

    The guard compares it with the card: verifiers that were swapped do not start.
    """

    API_KEY = "API key"
    ACCESS_TOKEN = "access token"  # noqa: S105  a word
    ID_TOKEN = "ID token"  # noqa: S105
    CERTIFICATE = "client certificate"
    PASSWORD = "password"  # noqa: S105


Credential = TypeVar("Credential", contravariant=True)


class Verifier(Protocol[Credential]):
    """Something that verifies credentials of one kind: tokens of one issuer, keys of one store.

    A credential is a string, as it came in a header, a parameter or a cookie, or a chain of client certificates
    (``tuple[bytes, ...]``, DER, leaf first). Several verifiers may share a place, such as the Authorization header: all
    of them are asked, and one that accepts the credential is enough. So a verifier must be sure that a credential is
    its own before it asks anybody else.

    A verifier may say in ``kind`` what kind of credential it is for; see also ``TokenVerifier``.

    Its failures are counted if it has a method ``credential_name(credential)``, which returns the public part of a
    credential, such as the id of a key. If somebody might guess a credential, as a password, it also has
    ``is_remembered(credential, now)``: whether this one was verified a short while ago. Others are refused unverified
    while too many have failed. Both return at once and raise nothing.
    """

    async def verify(self, credential: Credential, now: float) -> Identity:
        """What the credential proves at the moment ``now`` (seconds since the epoch).

        InvalidCredentialsError: it is not good (UnrecognizedCredentialsError: it is not of the kind or the issuer that
        this verifier is for). KeySourceUnavailableError: nobody can tell now.
        """
        ...


class TokenVerifier(Verifier[str], Protocol):
    """A verifier of access tokens that says whose they are, for the metadata of the agent (RFC 9728) and the card."""

    @property
    def kind(self) -> CredentialKind:
        """ACCESS_TOKEN: by this it is told from other verifiers."""
        ...

    @property
    def issuers(self) -> tuple[str, ...]:
        """Whose tokens are accepted."""
        ...

    @property
    def binding(self) -> TokenBinding:
        """Whether tokens have to be bound to a key."""
        ...

    @property
    def metadata_urls(self) -> tuple[str, ...]:
        """Where the issuers publish their metadata, one of which the card must name, too; empty when none is used."""
        ...


class BoundVerifier(ABC, Generic[Credential]):
    """A verifier that also knows credentials which are bound to a key.

    Why this is a class: a guard asks ``verify_bound`` only if ``verify`` was the one that stands here when the guard
    was made.
    """

    async def verify(self, credential: Credential, now: float) -> Identity:
        """As ``Verifier.verify``. A bound credential is rejected: nothing here proves that its bearer has the key.

        To add rules for all credentials, override ``verify_bound``.
        """
        identity = await self.verify_bound(credential, now)
        if identity.bound_to is not None:
            raise InvalidCredentialsError("token: it is bound to a key (cnf), and no proof of that key is taken here")
        return identity

    @abstractmethod
    async def verify_bound(self, credential: Credential, now: float) -> Identity:
        """What the credential proves for a caller who has the keys of ``bound_to``: the caller of this must check them.

        InvalidCredentialsError, KeySourceUnavailableError.
        """


def verification_of(verifier: Verifier[Credential]) -> Callable[[Credential, float], Awaitable[Identity]]:
    """What a guard asks: ``verify_bound`` of a ``BoundVerifier`` whose ``verify`` nobody has replaced, else ``verify``.

    One that was put over it, in a subclass or on the object, may reject more, and must be asked.
    """
    verify = verifier.verify
    if isinstance(verifier, BoundVerifier) and getattr(verify, "__func__", None) is BoundVerifier.verify:
        return verifier.verify_bound
    return verify


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """The caller: one identity for each security scheme that let the request in.

    ``identities`` holds (scheme name, identity) in order of the scheme names.
    """

    identities: tuple[tuple[str, Identity], ...]

    @property
    def is_authenticated(self) -> bool:
        return True

    @property
    def display_name(self) -> str:
        """``scheme:subject@issuer`` for each identity, as in ``login:ann@https://idp.example``; several are joined by
        commas. Own things by it: it is the text of this caller and of no other.

        Percent signs, commas, blanks, what is not visible and not ASCII is percent-encoded in all parts, and so are
        colons in a scheme and ``@`` in a subject or an issuer.
        """
        return ",".join(
            f"{_quoted(scheme, _NOT_COLON)}:{_quoted(each.subject, _NOT_AT)}@{_quoted(each.issuer, _NOT_AT)}"
            for scheme, each in self.identities
        )

    @property
    def name(self) -> str:
        """A short text for people: the subjects. Never own things by it, because callers may share it."""
        subjects = dict.fromkeys(each.subject for _, each in self.identities)
        text = ", ".join("".join(char if char.isprintable() else "?" for char in subject) for subject in subjects)
        return text if len(text) <= _LONGEST_NAME else f"{text[: _LONGEST_NAME - 1]}…"

    @property
    def scopes(self) -> frozenset[str]:
        """The scopes that every identity has: one scheme's scopes never stand for another's."""
        (_, first), *others = self.identities
        return first.scopes.intersection(*[identity.scopes for _, identity in others]) if others else first.scopes

    def identity(self, scheme: str) -> Identity | None:
        """The identity by the credential of that security scheme; None when it played no part."""
        return next((identity for name, identity in self.identities if name == scheme), None)


_NOT_AT: Final = "!\"#$&'()*+/:;<=>?[\\]^`{|}"
_NOT_COLON: Final = _NOT_AT.replace(":", "@")
"""The visible characters that stay as they are in a part of a ``display_name``, beside letters, digits and ``_.-~``."""

_LONGEST_NAME: Final = 64


def _quoted(text: str, safe: str) -> str:
    return quote(text, safe=safe, errors="surrogatepass")


_ANONYMOUS_BYTES: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Anonymous:
    """A caller that the card admits without a credential. Every request is another one: nobody, the caller itself
    included, can claim later what it made."""

    display_name: str = field(default_factory=lambda: f"anonymous:{secrets.token_hex(_ANONYMOUS_BYTES)}")

    @property
    def is_authenticated(self) -> bool:
        return False

    @property
    def name(self) -> str:
        """A short text for people."""
        return "anonymous"

    def identity(self, scheme: str) -> Identity | None:  # noqa: ARG002
        """None: there is no credential."""
        return None

    @property
    def scopes(self) -> frozenset[str]:
        return frozenset()
