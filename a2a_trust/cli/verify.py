"""``a2a-sign verify``: prove cards with keys that the caller trusts, and say what is proven."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from a2a_trust.cli.report import Exit, class_of, exit_of, failed, mark, printable, printable_lines, put, put_json, warn
from a2a_trust.cli.sources import opened, read_input
from a2a_trust.errors import (
    CardVerificationError,
    ConfigurationError,
    FailureReason,
    MalformedError,
    TrustError,
    UncoveredFieldsError,
)
from a2a_trust.keys.files import read_private_key
from a2a_trust.keys.jwk import PublicKey, public_key_from_jwk, public_key_from_pem
from a2a_trust.keys.keyset import read_jwks
from a2a_trust.keys.origins import Origins, UnsafeAnyOrigin, host_of
from a2a_trust.keys.signer import LocalSigner
from a2a_trust.keys.trust import LOSSLESS_FORMS, Form, TrustedKey, TrustStore
from a2a_trust.signing.verify import VerifiedCard, verify_card
from a2a_trust.strict_json import parse

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    """Verify every card; the exit code is that of the first one that is not proven."""
    try:
        inputs = [*options.files, *options.jwks, *options.key]
        if inputs.count("-") > 1:
            raise ConfigurationError("- (standard input) can be read only once")
        origin: str | UnsafeAnyOrigin = UnsafeAnyOrigin()
        origins: Origins | UnsafeAnyOrigin = UnsafeAnyOrigin()
        if options.origin is not None:
            origin = _host(options.origin)
            origins = Origins(origin)
        trust = _trust(options, origins)
    except (TrustError, ConfigurationError, OSError) as error:
        # The keys are the operator's: what is wrong with them is no verdict on a card.
        code = exit_of(error) if isinstance(error, OSError) else Exit.USAGE
        return failed("verify", error, as_json=options.json, code=code)
    codes, entries = [], []
    for name in options.files:
        try:
            proven = verify_card(read_input(name), trust, origin=origin, now=time.time())
        except (TrustError, OSError) as error:
            code = exit_of(error)
            entries.append(_failure(name, error, code))
            if not options.json:
                _put_failure(name, error, code)
        else:
            code = Exit.OK
            entries.append(_success(name, proven))
            if not options.json:
                _put_success(name, proven)
        codes.append(code)
    worst = next((code for code in codes if code), Exit.OK)
    if options.json:
        put_json({"command": "verify", "ok": worst == Exit.OK, "exit": worst, "results": entries})
    return worst


def _host(origin: str) -> str:
    try:
        return host_of(origin)
    except MalformedError:
        raise ConfigurationError(
            "--origin: write the URL or the host of the agent, as in https://agent.example.com"
        ) from None


def _trust(options: argparse.Namespace, origins: Origins | UnsafeAnyOrigin) -> TrustStore:
    """The keys that the arguments name, each for the host of --origin, or for any."""
    keys: list[PublicKey] = []
    for name in options.jwks:
        found = read_jwks(read_input(name))
        for skipped in found.skipped:
            warn(f"{name}: key {skipped.index} skipped: {skipped.reason}")
        if not found.keys:
            raise ConfigurationError(f"{name}: no key in this JWK Set can verify a card")
        keys.extend(found.keys)
    keys.extend(_public_key(name, options.kid) for name in options.key)
    if not keys:
        raise ConfigurationError("name the keys that you trust: --jwks FILE or --key FILE")
    forms = LOSSLESS_FORMS | set(map(Form, options.form))
    return TrustStore(TrustedKey(key=key, origins=origins, forms=forms) for key in dict.fromkeys(keys))


def _public_key(name: str, kid: str | None) -> PublicKey:
    """The public key in a PEM or JWK file; of a private key, which may be encrypted, the public half."""
    data = read_input(name).strip()
    is_encrypted_jwk = data.startswith(b"eyJ") and data.count(b".") == 4
    if b"PRIVATE KEY-----" in data or is_encrypted_jwk:
        return opened(lambda passphrase: read_private_key(data, passphrase=passphrase, kid=kid), name).public_key
    if data.startswith(b"-----BEGIN"):
        return public_key_from_pem(data, kid=kid)
    jwk = parse(data, what=name)
    if isinstance(jwk, dict) and "keys" in jwk:
        raise ConfigurationError(f"{name} is a JWK Set; give it with --jwks")
    if isinstance(jwk, dict) and kid is not None:
        jwk["kid"] = kid
    if isinstance(jwk, dict) and "d" in jwk:
        return LocalSigner.from_jwk(jwk).public_key
    return public_key_from_jwk(jwk)


def _success(name: str, proven: VerifiedCard) -> dict[str, Any]:
    return {
        "file": name,
        "ok": True,
        "class": "ok",
        "kid": proven.key.kid,
        "alg": proven.key.alg,
        "thumbprint": proven.key.thumbprint,
        "form": proven.form,
        "origin": proven.origin,
        "dropped": list(proven.dropped),
        "unproven": list(proven.unproven),
        "warnings": list(proven.warnings),
        "ignored": [_signature(failure) for failure in proven.ignored],
        "card": proven.card,
    }


def _failure(name: str, error: Exception, code: Exit) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "file": name,
        "ok": False,
        "class": class_of(code),
        "message": error.message if isinstance(error, CardVerificationError) else str(error),
    }
    if isinstance(error, CardVerificationError):
        entry["failures"] = [_signature(failure) for failure in error.failures]
    if isinstance(error, UncoveredFieldsError):
        entry["pointers"] = list(error.pointers)
    return entry


def _signature(failure: Any) -> dict[str, Any]:
    return {"index": failure.index, "kid": failure.kid, "reason": failure.reason, "detail": failure.detail}


def _put_success(name: str, proven: VerifiedCard) -> None:
    put(f"{printable(name)}: {mark('verified', 'green', sys.stdout)}")
    put(f"  signed by: {printable(proven.key.kid)} ({proven.key.alg})")
    put(f"  form:      {proven.form}")
    put(f"  origin:    {proven.origin or 'not bound (give --origin to bind the card to its host)'}")
    if proven.unproven:
        put(f"  {mark('unproven', 'yellow', sys.stdout)}:  {', '.join(proven.unproven)}")
    for failure in proven.ignored:
        if failure.reason is not FailureReason.COMPANION:  # ours beside every full signature: nothing to tell people
            put(f"  ignored:   {printable(failure)}")


def _put_failure(name: str, error: Exception, code: Exit) -> None:
    label = mark("NOT VERIFIED", "red", sys.stdout)
    put(f"{printable(name)}: {label} ({class_of(code)}): {printable_lines(error)}")
