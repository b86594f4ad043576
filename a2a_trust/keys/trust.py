"""Which keys are trusted, for which hosts, when, and in which canonical forms."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Final, Protocol

from a2a_trust.errors import ConfigurationError
from a2a_trust.keys.jwk import PublicKey
from a2a_trust.keys.origins import Origins, UnsafeAnyOrigin
from a2a_trust.keys.policy import OriginPolicy

__all__ = ["LOSSLESS_FORMS", "Form", "TrustSource", "TrustStore", "TrustedKey"]


class Form(StrEnum):
    """A canonical form of a card, by name; ``a2a_trust.signing.forms`` says what each one drops."""

    SERVED = "served"
    SPEC = "spec"
    PRUNED = "pruned"
    PRUNED_LEGACY = "pruned-legacy"
    V0_3_PYTHON = "v0.3-python"

    @property
    def is_lossy(self) -> bool:
        """Whether the form drops what says something, so that its absence from a signed payload proves nothing."""
        return self is not Form.SERVED and self is not Form.SPEC

    __hash__ = str.__hash__  # that of Enum is written in Python, and forms are looked up for every card


LOSSLESS_FORMS: Final = frozenset({Form.SERVED, Form.SPEC})
"""The forms that a key may speak in unless its entry says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustedKey:
    """One key and how far it is trusted.

    ``origins`` are the hosts that it may speak for. It is valid from ``not_before`` until just before ``not_after``
    (seconds since the epoch), and no longer than the key says itself; where these do not meet, it is never valid. A key
    that is revoked, here or by itself, proves nothing, whenever it signed. A form in ``forms`` that drops
    members (``pruned``, ``pruned-legacy``, ``v0.3-python``) makes whatever the key signs a proof with open ends: name
    one only for keys of SDKs that cannot do better.
    """

    key: PublicKey
    origins: Origins | UnsafeAnyOrigin
    forms: frozenset[Form] = LOSSLESS_FORMS
    not_before: float = float("-inf")
    not_after: float = float("inf")
    revoked: bool = False
    source: str | None = None
    """The URL of the key set that the key is from. A signature's ``jku`` selects among keys by it, and does no more."""
    on_first_use: bool = False
    """Nobody vouches for the key but the agent's own origin; ``TrustOnFirstUse`` makes such entries."""

    def __post_init__(self) -> None:
        if not isinstance(self.key, PublicKey):
            raise ConfigurationError("TrustedKey: key must be a PublicKey, as read_jwks or public_key_from_pem give it")
        if not isinstance(self.origins, Origins | UnsafeAnyOrigin):
            raise ConfigurationError('TrustedKey: write origins=Origins("host", …) or origins=UnsafeAnyOrigin()')
        if not self.forms:
            raise ConfigurationError("TrustedKey: forms is empty, so the key could prove nothing; leave it out")
        try:
            object.__setattr__(self, "forms", frozenset(map(Form, self.forms)))
        except ValueError:
            raise ConfigurationError(f"TrustedKey: forms are among {', '.join(Form)}") from None
        if not self.not_before < self.not_after and not self.key.is_limited:  # else the key's own limits may say so
            raise ConfigurationError("TrustedKey: not_before must be earlier than not_after")
        object.__setattr__(self, "not_before", max(self.not_before, self.key.not_before))
        object.__setattr__(self, "not_after", min(self.not_after, self.key.not_after))
        object.__setattr__(self, "revoked", self.revoked or self.key.revoked)

    def state(self, now: float) -> str:
        """What the key is at that moment: ``trusted``, ``revoked``, ``expired on …`` or ``not valid before …``."""
        if self.revoked:
            return "revoked"
        if now < self.not_before:
            return f"not valid before {_date(self.not_before)}"
        return "trusted" if now < self.not_after else f"expired on {_date(self.not_after)}"


def _date(moment: float) -> str:
    try:
        return datetime.fromtimestamp(int(moment), UTC).isoformat().replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return repr(moment)


@dataclass(frozen=True, slots=True)
class TrustStore:
    """The trusted keys, and what cards of certain hosts need beyond one good signature. An empty store trusts nobody.

    ``TrustFile`` reads one from a file that people edit.
    """

    keys: tuple[TrustedKey, ...]
    policies: tuple[OriginPolicy, ...]
    spoken_for: tuple[Origins | UnsafeAnyOrigin, ...]
    """The hosts for which it is said whom to trust: also by a key set that cannot be reached now, or is empty."""
    revoked: frozenset[str]
    """Kids and thumbprints that prove nothing, also those of keys that are not listed any more."""
    _by_name: dict[tuple[str, str], tuple[TrustedKey, ...]] = field(init=False, repr=False, compare=False)

    def __init__(
        self,
        keys: Iterable[TrustedKey],
        policies: Iterable[OriginPolicy] = (),
        *,
        spoken_for: Iterable[Origins | UnsafeAnyOrigin] = (),
        revoked: Iterable[str] = (),
    ) -> None:
        """The hosts of the keys and of the policies are spoken for, and revoked keys are revoked, without more words.

        ``spoken_for`` and ``revoked`` (kids or thumbprints) add what no key tells.
        """
        entries = tuple(dict.fromkeys(keys))  # one entry given twice is one entry
        for entry in entries:
            if not isinstance(entry, TrustedKey):
                raise ConfigurationError("TrustStore: give TrustedKey objects")
        # It is a key that is revoked, not one of its names: under another one it proves nothing either.
        names = frozenset(revoked)
        # A fetched set that says that a key is revoked says so for itself, not for others who list the same key.
        local = [entry for entry in entries if entry.revoked and not (entry.key.revoked and entry.source is not None)]
        gone = {entry.key.thumbprint for entry in entries if names & {entry.key.kid, entry.key.thumbprint}}
        gone |= {entry.key.thumbprint for entry in local}
        entries = tuple(replace(entry, revoked=True) if entry.key.thumbprint in gone else entry for entry in entries)
        by_name: dict[tuple[str, str], tuple[TrustedKey, ...]] = {}
        for entry in entries:
            name = (entry.key.kid, entry.key.kty)
            by_name[name] = (*by_name.get(name, ()), entry)
        object.__setattr__(self, "keys", entries)
        object.__setattr__(self, "policies", tuple(policies))
        hosts = [*[entry.origins for entry in entries], *[each.origins for each in self.policies], *spoken_for]
        object.__setattr__(self, "spoken_for", tuple(dict.fromkeys(hosts)))
        object.__setattr__(self, "revoked", names | gone | {entry.key.kid for entry in local})
        object.__setattr__(self, "_by_name", by_name)

    def named(self, kid: str, kty: str) -> tuple[TrustedKey, ...]:
        """All entries of that ``kid`` and key type, over all origins."""
        return self._by_name.get((kid, kty), ())

    @classmethod
    def load(cls, path: Path | str) -> TrustStore:
        """The store that a trust file describes; ``TrustFile`` also follows its changes and fetches key sets.

        OSError: a file cannot be read. ConfigurationError: it is wrong somewhere, or names key sets on the network.
        """
        from a2a_trust.keys.trust_file import TrustFile

        return TrustFile(path).trust_store()

    def trust_store(self) -> TrustStore:
        """Itself: a store is a source that never changes."""
        return self

    def knows(self, kid: str) -> bool:
        """Whether any entry has that ``kid``, whatever its key type."""
        return any(name == kid for name, _ in self._by_name)


class TrustSource(Protocol):
    """Something that knows which keys are trusted now: a ``TrustStore``, or a file that may change."""

    def trust_store(self) -> TrustStore:
        """The trusted keys; the same object as before while nothing has changed."""
        ...
