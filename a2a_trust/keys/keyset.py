"""JSON Web Key Sets (RFC 7517 5): read the sets of others key by key, and publish our own public keys."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from a2a_trust.base import strict_json
from a2a_trust.base.strict_json import JSON
from a2a_trust.errors import ConfigurationError, MalformedError
from a2a_trust.keys.jwk import PublicKey, public_key_from_jwk, public_key_from_pem

MAX_KEYS: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedKey:
    """A key that was skipped when a key set was read: its ``index`` in the set, from 0, and the ``reason``."""

    index: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySet:
    """The usable public keys of a set, the skipped ones, and the thumbprints of all keys that the set revokes.

    A skipped key may be in ``revoked``. If you configured the set yourself, pass them on:
    ``TrustStore(…, revoked=key_set.revoked)``.
    """

    keys: tuple[PublicKey, ...]
    skipped: tuple[SkippedKey, ...] = ()
    revoked: frozenset[str] = frozenset()


def read_jwks(document: bytes) -> KeySet:
    """Read the signing keys of a JWK Set.

    - A key that is not understood is skipped and reported, as RFC 7517 5 requires.
    - If different keys share ``kid`` and type, all of them are skipped.
    - If one key is in the set twice under one ``kid``, it is valid only while both entries are valid.
    - A key that is revoked under one ``kid`` of the set is revoked under all of them, even if its JWK is skipped.
    - A set with a symmetric key is rejected as a whole: the set is secret, or it tries to confuse two algorithms.

    MalformedError: not a JWK Set, or a rejected one.
    """
    if not isinstance(document, bytes):
        raise ConfigurationError("read_jwks: pass the bytes of the document, as in Path('keys.jwks.json').read_bytes()")
    value = strict_json.parse(document, what="JWK Set")
    members = value.get("keys") if type(value) is dict else None
    if type(members) is not list:
        raise MalformedError('JWK Set: no list of keys; a set looks like {"keys": [{"kty": …}]}')
    if len(members) > MAX_KEYS:
        raise MalformedError(f"JWK Set: more than {MAX_KEYS} keys")
    if any(type(member) is dict and member.get("kty") == "oct" for member in members):
        raise MalformedError("JWK Set: it holds a symmetric key; publish only public keys")
    return _key_set(members)


def _key_set(members: list[JSON]) -> KeySet:
    found: list[tuple[int, PublicKey]] = []
    skipped: list[SkippedKey] = []
    revoked = set[str]()
    for index, member in enumerate(members):
        try:
            found.append((index, public_key_from_jwk(member)))
        except MalformedError as error:
            skipped.append(SkippedKey(index=index, reason=str(error)))
            revoked |= _thumbprint_of_revoked(member)
    revoked |= {key.thumbprint for _, key in found if key.revoked}
    named: dict[tuple[str, str], list[tuple[int, PublicKey]]] = {}
    for index, key in found:
        named.setdefault((key.kid, key.kty), []).append((index, key))
    keys: list[PublicKey] = []
    for entries in named.values():
        if len({(key.thumbprint, key.alg) for _, key in entries}) == 1:
            keys.append(
                replace(
                    min((key for _, key in entries), key=lambda key: len(key.algorithms)),
                    not_before=max(key.not_before for _, key in entries),
                    not_after=min(key.not_after for _, key in entries),
                    revoked=entries[0][1].thumbprint in revoked,
                )
            )
        else:
            reason = "JWK: another key has the same kid and type"
            skipped += [SkippedKey(index=index, reason=reason) for index, _ in entries]
    return KeySet(
        keys=tuple(keys),
        skipped=tuple(sorted(skipped, key=lambda key: key.index)),
        revoked=frozenset(revoked),
    )


def _thumbprint_of_revoked(jwk: object) -> set[str]:
    """The thumbprint of a revoked key with other members that are wrong: it may be in the set under another kid."""
    if type(jwk) is not dict or jwk.get("revoked") is None or jwk["revoked"] is False:
        return set()
    material = {name: jwk[name] for name in ("kty", "crv", "x", "y", "n", "e") if name in jwk}
    with suppress(MalformedError):
        return {public_key_from_jwk(material).thumbprint}
    return set()


def read_public_keys(document: bytes, *, kid: str | None = None) -> KeySet:
    """Read the public keys in a file: a JWK Set, a JWK, or PEM. ``kid`` names the key of a file with a single key.

    MalformedError: neither of these, or a private key. A revoked JWK with another mistake is a set without keys.
    """
    text = document.strip()
    if b"PRIVATE KEY-----" in text or (text.startswith(b"eyJ") and text.count(b".") == 4):
        raise MalformedError(
            "this is a private key, which only its signer needs; give the public key, which a2a-sign keygen writes as "
            "a JWK Set"
        )
    if text.startswith(b"-----BEGIN"):
        return KeySet(keys=(public_key_from_pem(text, kid=kid),))
    value = strict_json.parse(text, what="public keys")
    if type(value) is dict and "keys" in value:
        if kid is not None:
            raise MalformedError("JWK Set: its keys have their own names; leave kid out")
        return read_jwks(text)
    if type(value) is dict and kid is not None:
        value["kid"] = kid
    found = _key_set([value])
    if found.skipped and not found.revoked:
        raise MalformedError(found.skipped[0].reason)
    return found


def publish_jwks(keys: PublicKey | Iterable[PublicKey]) -> dict[str, Any]:
    """The JWK Set to serve for one public key or several, as a new dict. It has public members only.

    ConfigurationError: not public keys, or two keys share ``kid`` and type.
    """
    given = [keys] if isinstance(keys, PublicKey) else [*keys]
    if not all(isinstance(key, PublicKey) for key in given):
        raise ConfigurationError("publish_jwks: pass public keys, as in publish_jwks([signer.public_key])")
    members = [key.to_jwk() for key in given]
    if len({(member["kid"], member["kty"]) for member in members}) < len(members):
        raise ConfigurationError(
            "publish_jwks: two keys share kid and type, so verifiers ignore both; give one of them another kid"
        )
    return {"keys": members}
