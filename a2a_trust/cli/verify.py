"""``a2a-sign verify``: verify cards with keys that the caller trusts, and report what is verified."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from a2a_trust.cli.agents import Agents, agents, received
from a2a_trust.cli.named_cards import is_url, named_cards
from a2a_trust.cli.report import (
    Exit,
    Results,
    class_of,
    exit_of,
    exit_of_setup,
    failed,
    mark,
    mark_verified,
    printable,
    printable_lines,
    put,
    said,
    warn,
    word_of,
)
from a2a_trust.cli.trusted import TrustedKeys, trusted_keys
from a2a_trust.errors import (
    CardVerificationError,
    ConfigurationError,
    FailureReason,
    PartialSignatureError,
    TrustError,
    UncoveredFieldsError,
)
from a2a_trust.signing.verify import VerifiedCard, verify_card

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    """Verify every card; the exit code is that of the first card that fails."""
    try:
        if options.trust is None and not (options.jwks or options.public_key or options.on_first_use):
            raise ConfigurationError("name the keys that you trust: --trust FILE, --jwks FILE or --public-key FILE")
        options.files = named_cards(options)
        keys = trusted_keys(options)
        asked = agents(options)
    except (TrustError, OSError) as error:
        return failed("verify", error, as_json=options.json, code=exit_of_setup(error))
    results = Results("verify", options.json)
    for name in options.files:
        try:
            verified = _verified(name, options, keys, asked)
        except (TrustError, OSError) as error:
            code = exit_of(error)
            results.add(_failure(name, error, code), code, class_of(code))
            if not options.json:
                _put_failure(name, error, code, keys)
        else:
            results.add(_success(name, verified), Exit.OK, "verified in part" if verified.unverified else "verified")
            if not (options.json or options.quiet):
                _put_success(name, verified, verbose=options.verbose)
    return results.put(quiet=options.quiet)


def _verified(name: str, options: argparse.Namespace, keys: TrustedKeys, asked: Agents | None) -> VerifiedCard:
    document = received(name, allow_private=options.allow_private)
    origin = keys.origin_of(name, document)
    trust = keys.store_for(document, origin)
    if asked is not None and is_url(name) and isinstance(origin, str):
        return asked.verify(document, name, origin, trust)
    return verify_card(document, trust, origin=origin, now=time.time())


def _success(name: str, verified: VerifiedCard) -> dict[str, Any]:
    return {
        "file": name,
        "ok": True,
        "class": "ok",
        "kid": verified.key.kid,
        "alg": verified.key.alg,
        "thumbprint": verified.key.thumbprint,
        "form": verified.form,
        "origin": verified.origin,
        "on_first_use": verified.on_first_use,
        "dropped": list(verified.dropped),
        "unverified": list(verified.unverified),
        "warnings": list(verified.warnings),
        "ignored": [_signature(failure) for failure in verified.ignored],
        "card": verified.card,
    }


def _failure(name: str, error: Exception, code: Exit) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "file": name,
        "ok": False,
        "class": class_of(code),
        "code": word_of(error),
        "message": error.message if isinstance(error, CardVerificationError) else said(error, name),
    }
    if isinstance(error, CardVerificationError):
        entry["failures"] = [_signature(failure) for failure in error.failures]
    if isinstance(error, UncoveredFieldsError):
        entry["pointers"] = list(error.pointers)
    return entry


def _signature(failure: Any) -> dict[str, Any]:
    return {"index": failure.index, "kid": failure.kid, "reason": failure.reason, "detail": failure.detail}


def _put_success(name: str, verified: VerifiedCard, *, verbose: bool) -> None:
    put(
        f"{printable(name)}: {mark_verified(in_part=bool(verified.unverified))}: "
        f"signed by {printable(verified.key.kid)} ({verified.key.alg}), form {verified.form}, "
        f"origin {verified.origin or 'not bound'}"
    )
    if verified.unverified:
        put(f"  {mark('unverified', 'yellow', sys.stdout)}: {', '.join(verified.unverified)}")
    for failure in verified.ignored if verbose else ():
        if failure.reason is not FailureReason.COMPANION:  # normal: a companion stands beside our full signatures
            put(f"  ignored: {printable(failure)}")
    for warning in verified.warnings:
        if not warning.startswith("origin:"):  # the line above says so
            warn(f"{name}: {warning}")


def _put_failure(name: str, error: Exception, code: Exit, keys: TrustedKeys) -> None:
    label, text = mark("NOT VERIFIED", "red", sys.stdout), said(error, name)
    if isinstance(error, CardVerificationError):  # a companion is always ignored, so it is not why the card fails
        others = [str(each) for each in error.failures if each.reason is not FailureReason.COMPANION]
        text = "\n  ".join([error.message, *others]) if others else text
    put(f"{printable(name)}: {label} ({class_of(code)}): {printable_lines(text)}")
    # A caller who named the signer knows how it signs, and needs no hint.
    if isinstance(error, PartialSignatureError) and keys.names_no_signer({each.kid for each in error.failures}):
        put('  accept it: --signer a2a-python or --signer a2a-js; in a trust file, signer = "a2a-python" in the entry')
    if isinstance(error.__cause__, TrustError):
        put(f"  cause:     {printable(error.__cause__)}")
