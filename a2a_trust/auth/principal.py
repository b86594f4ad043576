"""The caller of a request: the identity from each credential, the principal from all of them, the token itself."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum, StrEnum
from types import MappingProxyType, NoneType
from typing import Any, ClassVar, Final, Generic, NoReturn, Protocol, TypeVar, final
from urllib.parse import quote
from uuid import UUID

from a2a_trust.errors import ConfigurationError, InvalidCredentialsError, KeySourceUnavailableError


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyBinding:
    """The keys that a credential is bound to: its sender must have all of them.

    ``jkt`` is the RFC 7638 thumbprint of the key that signs proofs (RFC 9449 6.1). ``x5t_s256`` is the SHA-256
    thumbprint of the client certificate (RFC 8705 3.1). Both are in base64url, or None if not required.
    """

    jkt: str | None = None
    x5t_s256: str | None = None

    def __post_init__(self) -> None:
        if self.jkt is None and self.x5t_s256 is None:
            raise ConfigurationError("KeyBinding: it names no key; leave bound_to out if a credential is not bound")


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """A party that acts for the subject of a token, by its own ``issuer`` and ``subject`` (RFC 8693 4.1)."""

    issuer: str
    subject: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The identity from one verified credential.

    - ``issuer`` and ``subject``: who issued the credential (an issuer URL, the name of a key store), and its owner.
      Together they identify the caller; no two callers share them.
    - ``scopes``: what the credential allows.
    - ``expires_at``: the credential is valid before this moment, in seconds since the epoch.
    - ``claims``: the rest, never the credential itself. Requests share them, so they are read-only: an object is a
      read-only mapping, a list is a tuple, a set is a frozenset.
    - ``bound_to``: keys that a request must prove, too. Without that proof, the guard rejects the request.
    - ``client_id``: the client that an access token was issued to, as its issuer names it; None if it is not known.
    - ``actors``: who acts for the subject, the current actor first (RFC 8693 4.1).

    ConfigurationError: a claim has a type that can be changed.
    """

    issuer: str
    subject: str
    scopes: frozenset[str] = frozenset()
    expires_at: float = float("inf")
    claims: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False, hash=False)
    bound_to: KeyBinding | None = None
    client_id: str | None = None
    actors: tuple[Actor, ...] = ()

    def __post_init__(self) -> None:
        if type(self.claims) is not _ReadOnly:
            object.__setattr__(self, "claims", read_only(self.claims))


class _ReadOnly(Mapping[str, Any]):
    """A read-only mapping.

    Unlike ``MappingProxyType`` it can be copied and pickled, so identities can, too. It is not a dataclass, because
    ``asdict`` would convert it.
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

    def __reduce__(self) -> tuple[Any, ...]:
        return read_only, (dict(self._members),)


_FLAT: Final = frozenset({str, int, float, bool, type(None)})
_UNCHANGEABLE: Final = (str, int, float, NoneType, bytes, Decimal, date, time, timedelta, UUID, Enum)


def read_only(value: Any, name: str = "") -> Any:
    """A copy of a claim that is read-only at any depth. ConfigurationError: its type is not supported."""
    if type(value) is dict and _FLAT.issuperset(map(type, value.values())):
        return _ReadOnly(value.copy())
    if isinstance(value, _ReadOnly):
        return value
    if isinstance(value, Mapping):
        within = f"{name}." if name else ""
        return _ReadOnly(
            {key: item if type(item) in _FLAT else read_only(item, f"{within}{key}") for key, item in value.items()}
        )
    if isinstance(value, list | tuple | set | frozenset):
        items = [read_only(item, f"{name}[{index}]") for index, item in enumerate(value)]
        return tuple(items) if isinstance(value, list | tuple) else frozenset(items)
    if isinstance(value, bytearray):
        return bytes(value)
    if not isinstance(value, _UNCHANGEABLE):
        raise ConfigurationError(
            f"claims: {name} is of the type {type(value).__name__}, which requests cannot share; "
            "use a type of JSON, or a date, a Decimal, a UUID, bytes or a set"
        )
    return value


RECHECKS: Final = ContextVar("a2a_trust.rechecks", default=False)
"""Whether a credential was verified before, and is verified again because the answer to its request still runs. No
server is asked again then: ``UnchangedError``."""


class UnchangedError(Exception):
    """Nothing is known about a credential that was not known when its request was admitted."""


class TokenBinding(StrEnum):
    """Whether tokens must be sender-constrained (RFC 9700 2.2.1)."""

    OPTIONAL = "optional"
    """Bearer tokens are accepted, too. A token that is bound still needs the proof of its key."""

    REQUIRED = "required"
    """Only tokens that are bound to a key (RFC 9449) or a client certificate (RFC 8705) are accepted."""


class CredentialKind(Enum):
    """The kind of credential that a verifier is for, in its attribute ``kind``.

    The guard compares it with the card, so an agent with swapped verifiers does not start.
    """

    API_KEY = "API key"
    ACCESS_TOKEN = "access token"  # noqa: S105  a word
    ID_TOKEN = "ID token"  # noqa: S105
    CERTIFICATE = "client certificate"
    PASSWORD = "password"  # noqa: S105


Credential = TypeVar("Credential", contravariant=True)


class Verifier(Protocol[Credential]):
    """Verifies credentials of one kind: tokens of one issuer, keys of one store.

    A credential is a string from a header, a parameter or a cookie, or a chain of client certificates
    (``tuple[bytes, ...]``, DER, leaf first). Several verifiers may share a place, such as the Authorization header. All
    of them get the credential, and one that accepts it is enough. So a verifier must be certain that a credential is
    its own before it sends it to a server.

    Optional members:

    - ``kind``: the ``CredentialKind``; see also ``TokenVerifier``.
    - ``credential_name(credential)``: the public part of a credential, such as the id of a key. With it, failures are
      counted.
    - ``is_remembered(credential, now)``: whether this credential was verified a short while ago. Write it for
      credentials that can be guessed, such as passwords: after too many failures, only credentials that are cached
      and were verified for the same peer are verified.
    - ``stores_by_issuer``: the issuers of its identities, each with the object that names their subjects, such as
      ``{"partners": store}``. Two verifiers of one issuer need one such object, or the agent does not start: else two
      owners of one name would be one caller. Tokens need none, since their issuer names the subjects.
    - ``remembered(credential, now)``: the identity that ``verify`` would return now, if no wait is needed to know that;
      else None. With it, callers who were here before are answered faster. It is not called if a subclass overrides
      ``verify`` without it.
    - ``outage()``: why credentials cannot be verified now, as far as is known; "" if they can. It is for ``readiness``.

    These methods must return at once and must not raise.
    """

    async def verify(self, credential: Credential, now: float) -> Identity:
        """The identity that the credential proves at the moment ``now`` (seconds since the epoch).

        InvalidCredentialsError: it is not valid. UnrecognizedCredentialsError: it is of another kind or issuer.
        KeySourceUnavailableError: it cannot be verified now.
        """


class TokenVerifier(Verifier[str], Protocol):
    """A verifier of access tokens that names its issuers, for the metadata of the agent (RFC 9728) and the card."""

    @property
    def kind(self) -> CredentialKind:
        """ACCESS_TOKEN, which marks verifiers of access tokens."""

    @property
    def issuers(self) -> tuple[str, ...]:
        """The issuers whose tokens are accepted."""

    @property
    def binding(self) -> TokenBinding:
        """Whether tokens must be bound to a key."""

    @property
    def metadata_urls(self) -> tuple[str, ...]:
        """The URLs of the issuers' metadata; a URL in the card must be one of them. Empty if no metadata is used."""


class BoundVerifier(ABC, Generic[Credential]):
    """The base of verifiers for credentials that may be bound to a key.

    A guard calls ``verify_bound`` only if ``verify`` is not overridden when the guard is made.
    """

    async def verify(self, credential: Credential, now: float) -> Identity:
        """As ``Verifier.verify``. A bound credential is rejected, because the key of its sender is not checked here.

        To add rules for all credentials, override ``verify_bound``.
        """
        identity = await self.verify_bound(credential, now)
        if identity.bound_to is not None:
            raise InvalidCredentialsError(
                "token: it is bound to a key (cnf), and proofs of keys are not accepted; pass dpop=DPoP(url=…) or "
                "client_certificates=… to protect"
            )
        return identity

    @abstractmethod
    async def verify_bound(self, credential: Credential, now: float) -> Identity:
        """As ``Verifier.verify``, for a sender that has the keys of ``bound_to``. The code that calls this must check
        those keys.
        """


def verification_of(verifier: Verifier[Credential]) -> Callable[[Credential, float], Awaitable[Identity]]:
    """The method that a guard calls: ``verify_bound`` of a ``BoundVerifier`` with the original ``verify``; else
    ``verify``.

    A ``verify`` that a subclass or an object overrides may reject more, so it must be called.
    """
    verify = verifier.verify
    if isinstance(verifier, BoundVerifier) and getattr(verify, "__func__", None) is BoundVerifier.verify:
        return verifier.verify_bound
    return verify


def cache_of(verifier: Verifier[Credential]) -> Callable[[Credential, float], Identity | None] | None:
    """``remembered`` of the verifier: the identity that its cache has for a credential now, else None, at once.

    None unless the class that has ``remembered`` also has the method of ``verification_of``: a subclass or an object
    that overrides that method may reject more, so it must be called.
    """
    method = getattr(verification_of(verifier), "__func__", None)
    for kind in type(verifier).__mro__:
        if "remembered" in vars(kind):
            is_own = method is not None and vars(kind).get(method.__name__) is method
            remembered: Callable[[Credential, float], Identity | None] = verifier.remembered  # type: ignore[attr-defined]
            return remembered if is_own and getattr(remembered, "__func__", None) is vars(kind)["remembered"] else None
    return None


def outage_of(part: Any) -> str:
    """Why a verifier or a part of it cannot be used now, as far as is known without a wait; "" if it can.

    Its method ``outage`` says so; without it, all of its ``parts`` that know it are lost.
    """
    if hasattr(part, "outage"):
        return str(part.outage())
    lost = [outage_of(each) for each in getattr(part, "parts", ()) if hasattr(each, "outage") or hasattr(each, "parts")]
    return "; ".join(lost) if all(lost) else ""


class _User:
    """The members of ``scope["user"]`` that Starlette and the a2a-sdk read: both have the ``id``."""

    __slots__ = ()

    @property
    def id(self) -> str:
        raise NotImplementedError

    @property
    def display_name(self) -> str:
        """The ``id``: the a2a-sdk stores tasks under this name."""
        return self.id

    @property
    def identity(self) -> str:
        """The ``id``, as ``BaseUser`` of Starlette has it. ``by_scheme`` finds the identity of a credential."""
        return self.id


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal(_User):
    """An authenticated caller: one identity for each security scheme of the alternative that admitted the request.

    - ``identities``: (scheme name, identity) in the order of the scheme names.
    - ``for_skills``: (scheme name, identity) of credentials that only skills demand. They change neither ``id`` nor
      ``scopes``. They count in comparisons, so equal principals show the same identities; compare owners by ``id``.
    - ``unverified``: (scheme name, reason) of credentials that only skills demand, and that cannot be verified now.
    - ``scopes``: what all ``identities`` allow, so that the scopes of one scheme never extend another.
    """

    is_authenticated: ClassVar[bool] = True
    identities: tuple[tuple[str, Identity], ...]
    for_skills: tuple[tuple[str, Identity], ...] = ()
    unverified: tuple[tuple[str, KeySourceUnavailableError], ...] = field(default=(), repr=False, compare=False)
    scopes: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        first, *others = [identity.scopes for _, identity in self.identities] or [frozenset[str]()]
        object.__setattr__(self, "scopes", first.intersection(*others))

    @property
    def id(self) -> str:
        """The unique text of this caller. Use it as the owner of data.

        It is ``subject@issuer`` of each identity, as in ``ann@https://idp.example``: each once, sorted, joined by
        commas. Names of schemes are not in it. Percent signs, commas, blanks, ``@``, and characters that are invisible
        or not ASCII are percent-encoded in both parts.
        """
        return ",".join(sorted({id_of(each) for _, each in self.identities}))

    @property
    def label(self) -> str:
        """A short text for people: the subjects. Callers may share it, so use it for no decision."""
        subjects = dict.fromkeys(each.subject for _, each in self.identities)
        text = ", ".join("".join(char if char.isprintable() else "?" for char in subject) for subject in subjects)
        return text if len(text) <= _LONGEST_LABEL else f"{text[: _LONGEST_LABEL - 1]}…"

    @property
    def client_id(self) -> str | None:
        """The client of the access token among ``identities``; None if there is no token, or it names no client."""
        return next((each.client_id for _, each in self.identities if each.client_id is not None), None)

    @property
    def actors(self) -> tuple[Actor, ...]:
        """The actors of the access token among ``identities``, the current one first; empty without actors."""
        return next((each.actors for _, each in self.identities if each.actors), ())

    def by_scheme(self, scheme: str) -> Identity | None:
        """The identity from that security scheme; None if the request has no credential for it, or needs none."""
        return next((identity for name, identity in (*self.identities, *self.for_skills) if name == scheme), None)


_VISIBLE: Final = "!\"#$&'()*+/:;<=>?[\\]^`{|}"
"""The visible characters that stay unchanged in a part of an ``id``, with letters, digits and ``_.-~``."""

_LONGEST_LABEL: Final = 64


def id_of(party: Identity | Actor) -> str:
    """``subject@issuer``, encoded so that no two pairs share it. It has no comma."""
    subject, issuer = (quote(text, safe=_VISIBLE, errors="surrogatepass") for text in (party.subject, party.issuer))
    return f"{subject}@{issuer}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Anonymous(_User):
    """A caller that the card admits without a credential. Every request is a new caller, with a new ``id``, so no later
    request can claim its data."""

    is_authenticated: ClassVar[bool] = False
    label: ClassVar[str] = "anonymous"
    scopes: ClassVar[frozenset[str]] = frozenset()
    client_id: ClassVar[None] = None
    actors: ClassVar[tuple[Actor, ...]] = ()
    identities: ClassVar[tuple[tuple[str, Identity], ...]] = ()
    for_skills: tuple[tuple[str, Identity], ...] = ()
    unverified: tuple[tuple[str, KeySourceUnavailableError], ...] = field(default=(), repr=False, compare=False)
    id: str = field(default_factory=lambda: f"anonymous:{secrets.token_hex(16)}")

    def by_scheme(self, scheme: str) -> Identity | None:
        """The identity from a security scheme that only skills demand; None if the request has no credential for it."""
        return next((identity for name, identity in self.for_skills if name == scheme), None)


@final
class SubjectToken:
    """The verified access token of a caller, as the ``subject_token`` of a token exchange (RFC 8693 2.1).

    ``issuer`` is the authorization server that issued it, ``subject`` is the subject of the caller's identity,
    ``scopes`` are what it allows. It is valid before ``expires_at`` (seconds since the epoch). If the token is bound to
    a key of the caller (``Identity.bound_to``), the authorization server decides whether it exchanges it. Only
    ``reveal`` gives the text: the repr does not have it, and copying and pickling raise TypeError.
    """

    __slots__ = ("_text", "expires_at", "issuer", "scopes", "subject")

    def __init__(
        self, text: str, *, issuer: str, subject: str, expires_at: float, scopes: frozenset[str] = frozenset()
    ) -> None:
        self._text: Final = text
        self.issuer: Final = issuer
        self.subject: Final = subject
        self.expires_at: Final = expires_at
        self.scopes: Final = scopes

    def reveal(self) -> str:
        """The text of the token, a secret. Send it to the authorization server, and do not store or log it."""
        return self._text

    def __repr__(self) -> str:
        return f"SubjectToken(issuer={self.issuer!r}, subject={self.subject!r}, expires_at={self.expires_at!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a SubjectToken is not pickled or copied: it holds an access token; pass on the object itself")
