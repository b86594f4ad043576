"""Trusted keys: for which hosts and how long they are trusted, whose they are, and which tool signs with them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from a2a_trust.base.dates import date_of
from a2a_trust.errors import ConfigurationError
from a2a_trust.keys.jwk import PublicKey
from a2a_trust.keys.trust.origins import Origins, UnsafeAnyOrigin
from a2a_trust.keys.trust.policy import OriginPolicy, party_name


class SigningTool(StrEnum):
    """The tool that signs cards with a key. It decides how much a signature without a form marker proves.

    If the tool is not named, such a signature counts only if the signed bytes show that no member was dropped.
    """

    A2A_TRUST = "a2a-trust"
    """This package: only signatures with its form marker count."""
    A2A_PYTHON = "a2a-python"
    """The a2a-sdk for Python. It drops members before it signs, so its signatures prove a part of the card.
    It may write ``typ: JWT``, which is accepted for no other tool."""
    A2A_JS = "a2a-js"
    """@a2a-js/sdk. It drops members, too."""
    WHOLE = "whole"
    """A tool that signs the complete card, such as a2a-go from 2.6.0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustedKey:
    """A key, and the limits of the trust in it.

    - ``origins``: the hosts for which the key is trusted.
    - ``signer``: the tool that signs with it, if that is known.
    - ``name``: the party whose key it is. Keys with the same name belong to one party; policies name parties.
    - ``not_before``, ``not_after``: the key is valid from the first moment until just before the second one (seconds
      since the epoch). ``nbf`` and ``exp`` in its JWK limit this further; if the periods do not overlap, the key is
      never valid.
    - ``revoked``: no signature by the key counts, whenever it was made. ``revoked`` in its JWK means the same.
    """

    key: PublicKey
    origins: Origins | UnsafeAnyOrigin
    signer: SigningTool | None = None
    name: str | None = None
    not_before: float = float("-inf")
    not_after: float = float("inf")
    revoked: bool = False
    source: str | None = None
    """The URL of the key set that the key was fetched from; None for a key that the operator configured."""
    on_first_use: bool = False
    """The key comes from the agent's own origin only; ``TrustOnFirstUse`` makes such entries."""

    def __post_init__(self) -> None:
        if not isinstance(self.key, PublicKey):
            raise ConfigurationError(
                "TrustedKey: write key=read_jwks(data).keys[0], key=public_key_from_pem(pem) or key=signer.public_key"
            )
        if not isinstance(self.origins, Origins | UnsafeAnyOrigin):
            raise ConfigurationError('TrustedKey: write origins=Origins("host", …) or origins=UnsafeAnyOrigin()')
        if self.signer is not None:
            object.__setattr__(self, "signer", signing_tool(self.signer))
        if self.name is not None:
            party_name(self.name)
        if not self.not_before < self.not_after and not self.key.is_limited:  # the limits in its JWK may do this
            raise ConfigurationError("TrustedKey: not_before must be earlier than not_after")
        object.__setattr__(self, "not_before", max(self.not_before, self.key.not_before))
        object.__setattr__(self, "not_after", min(self.not_after, self.key.not_after))
        object.__setattr__(self, "revoked", self.revoked or self.key.revoked)

    def state(self, now: float) -> str:
        """The state of the key at that moment: ``trusted``, ``revoked``, ``expired on …`` or ``not valid before …``."""
        if self.revoked:
            return "revoked"
        if now < self.not_before:
            return f"not valid before {date_of(self.not_before)}"
        return "trusted" if now < self.not_after else f"expired on {date_of(self.not_after)}"


def signing_tool(text: object) -> SigningTool:
    """The signing tool of that name; ConfigurationError lists the names."""
    try:
        return SigningTool(text)  # type: ignore[arg-type]  # ValueError for every other type, too
    except ValueError:
        known = ", ".join(f'"{signer}"' for signer in SigningTool)
        raise ConfigurationError(f"signer: write one of {known}, or leave it out") from None


@dataclass(frozen=True, slots=True)
class TrustStore:
    """The trusted keys, and the policies for cards of certain hosts. An empty store trusts no key."""

    keys: tuple[TrustedKey, ...]
    policies: tuple[OriginPolicy, ...]
    spoken_for: tuple[Origins | UnsafeAnyOrigin, ...]
    """The hosts for which trust is configured, even if their key set is unreachable now, or empty."""
    revoked: frozenset[str]
    """The kids and thumbprints of revoked keys, even of keys that are no longer listed."""
    names: frozenset[str]
    """The names of the parties, even of parties without a key now."""
    _by_name: dict[tuple[str, str], tuple[TrustedKey, ...]] = field(init=False, repr=False, compare=False)
    _kids: frozenset[str] = field(init=False, repr=False, compare=False)

    def __init__(
        self,
        keys: Iterable[TrustedKey],
        policies: Iterable[OriginPolicy] = (),
        *,
        spoken_for: Iterable[Origins | UnsafeAnyOrigin] = (),
        revoked: Iterable[str] = (),
        names: Iterable[str] = (),
    ) -> None:
        """Make a store of these keys and policies.

        ``spoken_for``, ``revoked`` (kids or thumbprints) and ``names`` add hosts, revoked keys and parties to those
        that the keys name.

        A revoked key that the operator configured revokes its thumbprint, so the key is revoked under every kid. A
        revoked key that was fetched revokes only its own entry, because its publisher chose the kid.
        """
        for option, value in (("revoked", revoked), ("names", names)):
            if isinstance(value, str):
                raise ConfigurationError(f"TrustStore: {option} is a list; write {option}=[{value[:64]!r}]")
        source: Any = keys
        given: list[Any] = [*source] if isinstance(source, Iterable) else [None]
        if not all(isinstance(entry, TrustedKey) for entry in given):
            raise ConfigurationError(
                'TrustStore: write a list of trusted keys: TrustStore([TrustedKey(key=…, origins=Origins("host"))])'
            )
        gone = frozenset(revoked)
        gone |= {
            entry.key.thumbprint for entry in given if entry.source is None and (entry.revoked or entry.key.kid in gone)
        }
        entries = tuple(
            replace(entry, revoked=True) if gone & {entry.key.kid, entry.key.thumbprint} else entry
            for entry in dict.fromkeys(given)  # an entry that is given twice counts once
        )
        by_name: dict[tuple[str, str], list[TrustedKey]] = {}
        for entry in entries:
            by_name.setdefault((entry.key.kid, entry.key.kty), []).append(entry)
        object.__setattr__(self, "keys", entries)
        object.__setattr__(self, "policies", tuple(policies))
        if not all(isinstance(each, OriginPolicy) for each in self.policies):
            raise ConfigurationError("TrustStore: policies are OriginPolicy(origins=…, policy=…)")
        hosts = [*[entry.origins for entry in entries], *[each.origins for each in self.policies], *spoken_for]
        object.__setattr__(self, "spoken_for", tuple(dict.fromkeys(hosts)))
        object.__setattr__(self, "revoked", gone)
        object.__setattr__(self, "names", frozenset(names) | {entry.name for entry in entries if entry.name})
        object.__setattr__(self, "_by_name", {name: tuple(found) for name, found in by_name.items()})
        object.__setattr__(self, "_kids", frozenset(kid for kid, _ in by_name))

    def named(self, kid: str, kty: str) -> tuple[TrustedKey, ...]:
        """All entries with that ``kid`` and key type, for all origins."""
        return self._by_name.get((kid, kty), ())

    def trust_store(self) -> TrustStore:
        """The store itself: as a ``TrustSource`` it never changes."""
        return self

    def knows(self, kid: str) -> bool:
        """Whether any entry has that ``kid``, whatever its key type."""
        return kid in self._kids


class TrustSource(Protocol):
    """A source of trusted keys: a ``TrustStore``, or a file that may change, such as a ``TrustFile``."""

    def trust_store(self) -> TrustStore:
        """The keys that are trusted now; the same object as before while nothing has changed."""
        ...


@runtime_checkable
class KeyFetcher(TrustSource, Protocol):
    """A source of trusted keys some of which are on the network: ``TrustFile`` and its like."""

    async def fetch(self, origin: str | None = None) -> TrustStore:
        """The trusted keys; those for that URL are fetched if needed, and are in ``trust_store`` from then on."""
        ...


def check_trust_source(
    trust: object, text: str = "trust: write TrustFile('trust.toml'), or a TrustStore of keys"
) -> None:
    """ConfigurationError with that text unless it is a ``TrustSource``."""
    if not callable(getattr(trust, "trust_store", None)):
        raise ConfigurationError(text)
