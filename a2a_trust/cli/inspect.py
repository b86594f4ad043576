"""``a2a-sign inspect``: show the content of a card to people: agent, URLs, authentication, skills, signatures."""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Sequence
from itertools import islice
from typing import Any, Final, TypeAlias

from a2a_trust.base import strict_json
from a2a_trust.base.strict_json import JSON, JSONObject
from a2a_trust.card.ambiguity import UnambiguousCard, check_card
from a2a_trust.card.view import (
    Alternative,
    ApiKeyScheme,
    CardView,
    HttpScheme,
    MutualTlsScheme,
    OAuth2Scheme,
    OpenIdConnectScheme,
    SecurityScheme,
    read_card,
)
from a2a_trust.cli.agents import check_private_origins, read_or_fetch
from a2a_trust.cli.moments import rfc3339
from a2a_trust.cli.named_cards import named_cards
from a2a_trust.cli.progress import note_results
from a2a_trust.cli.report import (
    Exit,
    Results,
    class_of,
    error_text,
    exit_of,
    mark,
    mark_verified,
    printable,
    put,
    put_table,
    report_failure,
    short_kid,
    word_of,
)
from a2a_trust.cli.trusted import TrustedKeys, trusted_keys
from a2a_trust.errors import (
    CardVerificationError,
    ConfigurationError,
    MalformedError,
    TrustError,
    UnsignedCardError,
)
from a2a_trust.keys.trust.origins import OriginFromCard, UnsafeAnyOrigin
from a2a_trust.keys.trust.store import TrustStore
from a2a_trust.signing.forms import UNVERIFIED_BY_PRUNING
from a2a_trust.signing.signature import MAX_SIGNATURES, parse_signature, signature_entries
from a2a_trust.signing.verify import report_of_error, verify_document, verify_each
from a2a_trust.signing.verify_signature import VerifiedSignature

_LONGEST: Final = 240
_LONGEST_NAME: Final = 64
_MOST_WAYS: Final = 16
_COLUMN: Final = 16
"""The column of the text after a label."""
_UNKNOWN: Final = "unknown: not verified by this signature"
_Trust: TypeAlias = tuple[TrustStore, str | OriginFromCard | UnsafeAnyOrigin]
"""The keys and the origin that a card is verified with."""
_NOT_CHECKED: Final = "NOT CHECKED; give --trust, --jwks or --public-key"


def run(options: argparse.Namespace) -> Exit:
    """Show every card. The first card that is unreadable or, with keys, not verified sets the exit code."""
    keys: TrustedKeys | None = None
    options.files = named_cards(options)
    check_private_origins(options)
    if options.trust is not None or options.jwks or options.public_key:
        keys = trusted_keys(options)
    elif any(
        vars(options)[name] not in (None, False)
        for name in ("origin", "origin_from_card", "any_origin", "signer", "kid", "alg")
    ):
        raise ConfigurationError(
            "--origin, --origin-from-card, --any-origin, --signer, --kid and --alg need keys to verify with; add "
            "--trust FILE, --jwks FILE or --public-key FILE"
        )
    results = Results("inspect", options.json)
    note_results(options, len(options.files), "cards shown", lambda: results.total)
    for name in options.files:
        try:
            entry, code = _inspect(read_or_fetch(name, options), keys, name)
        except (TrustError, OSError) as error:
            code = exit_of(error)
            entry = {"class": class_of(code), "code": word_of(error), "message": error_text(error, name)}
            if not options.json:
                report_failure("inspect", error, as_json=False, code=code, file=name)
        else:
            if not options.json:
                _put(name, entry)
        results.add({"file": name, "ok": code == Exit.OK, **entry}, code, class_of(code))
    return results.put()


def _inspect(document: bytes, keys: TrustedKeys | None, name: str) -> tuple[dict[str, Any], Exit]:
    """The report on a card. MalformedError: it is not a JSON object."""
    card = strict_json.parse(document, what="card")
    if type(card) is not dict:
        raise MalformedError("card: not a JSON object")
    proof = None
    if keys is not None:
        origin = keys.origin_of(name)
        proof = keys.store_for(document, origin), origin
    problems = []
    view = None
    try:
        check_card(card)
    except MalformedError as error:
        problems.append(str(error))
    try:
        view = read_card(card)
    except MalformedError as error:
        problems.append(f"the authentication rules cannot be read: {error}")
    provider = card.get("provider")
    entry: dict[str, Any] = {
        "name": _text(card, "name"),
        "version": _text(card, "version"),
        "description": _text(card, "description"),
        "provider": _text(provider, "organization"),
        "provider_url": _text(provider, "url"),
        "problems": list(dict.fromkeys(problems)),
        "interfaces": None
        if view is None
        else [
            {"url": each.url, "binding": each.binding, "version": each.version or None, "tenant": each.tenant or None}
            for each in view.interfaces
        ],
        "authentication": None if view is None else _sentence(view.requirements, view),
        "anonymous": None if view is None else _admits_everybody(view),
        "extended_card": None if view is None else view.has_extended_card,
        "schemes": None if view is None else {name: _scheme(scheme) for name, scheme in view.schemes.items()},
        "skills": _skills(card, view),
        "checked": proof is not None,
        "signatures": _signatures(card, None if proof is None else _outcomes(document, proof)),
    }
    if proof is None:
        return {**entry, "verified": None, "message": _NOT_CHECKED}, Exit.OK
    verdict, code = _verdict(document, proof)
    if verdict.get("unverified") and view is not None:
        _leave_open(entry, view)
    return {**entry, **verdict}, code


def _leave_open(entry: dict[str, Any], view: CardView) -> None:
    """Weaken the rules for callers to those that a partial signature proves: others may have been removed."""
    if _admits_everybody(view):
        entry["authentication"], entry["anonymous"] = _UNKNOWN, None
    else:
        entry["authentication"] = f"at least {entry['authentication']}"
    for skill in entry["skills"]:
        skill["authentication"] = f"at least {skill['authentication']}" if skill["authentication"] else _UNKNOWN


def _text(members: JSON, name: str) -> str | None:
    value = members.get(name) if type(members) is dict else None
    return value if type(value) is str and value else None


def _admits_everybody(view: CardView) -> bool:
    return not view.requirements or any(alternative.is_anonymous for alternative in view.requirements)


def _skills(card: JSONObject, view: CardView | None) -> list[dict[str, Any]]:
    skills = card.get("skills")
    own = {} if view is None else {skill.id: skill.requirements for skill in view.skills}
    found = []
    for skill in skills if type(skills) is list else ():
        tags = skill.get("tags") if type(skill) is dict else None
        name = _text(skill, "id")
        demanded = own.get(name or "")
        found.append(
            {
                "id": name,
                "name": _text(skill, "name"),
                "tags": [tag for tag in tags if type(tag) is str] if type(tags) is list else [],
                "authentication": _sentence(demanded, view) if demanded and view is not None else None,
            }
        )
    return found


def _sentence(requirements: tuple[Alternative, ...] | None, view: CardView) -> str:
    if not requirements:
        return "nothing: the card requires no credential, so anybody may call"
    ways = dict.fromkeys(
        " and ".join(_credential(name, scopes, view) for name, scopes in alternative.schemes)
        or "nothing: anybody may call"
        for alternative in sorted(requirements, key=lambda each: not each.is_anonymous)
    )
    shown = list(islice(ways, _MOST_WAYS))
    if len(ways) > len(shown):
        shown.append(f"one of {len(ways) - len(shown)} more ways")
    return shown[0] if len(shown) == 1 else f"either {', or '.join(shown)}"


def _credential(name: str, scopes: frozenset[str], view: CardView) -> str:
    scheme = view.schemes.get(name)
    phrase = f"{name}, which the card does not declare" if scheme is None else _phrase(scheme)
    if not scopes:
        return phrase
    words = sorted(scopes)
    listed = words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
    return f"{phrase} with the scope{'s' if len(words) > 1 else ''} {listed}"


def _phrase(scheme: SecurityScheme) -> str:
    match scheme:
        case ApiKeyScheme(location=location, parameter=parameter):
            place = {"header": "header", "query": "query parameter", "cookie": "cookie"}[location]
            return f"an API key in the {place} {_cut(parameter, _LONGEST_NAME)}"
        case HttpScheme(scheme="bearer"):
            return "a bearer token"
        case HttpScheme(scheme="basic"):
            return "a user name and a password (HTTP basic)"
        case HttpScheme(scheme=word):
            return f"a credential for HTTP {_cut(word, _LONGEST_NAME)}"
        case OAuth2Scheme():
            return "an OAuth 2.0 token"
        case OpenIdConnectScheme():
            return "an OpenID Connect token"
        case MutualTlsScheme():
            return "a client certificate (mutual TLS)"
        case _:
            return f"a credential that the card only names: {scheme.name!r}"


def _scheme(scheme: SecurityScheme) -> str:
    """A declared scheme: the kind of credential, and where to get one."""
    match scheme:
        case OAuth2Scheme(flows=flows, metadata_url=metadata_url):
            places = [f"{flow.kind}: {', '.join(url for _, url in flow.urls)}" for flow in flows]
            places += [] if metadata_url is None else [f"metadata: {metadata_url}"]
            return "; ".join([_phrase(scheme), *places])
        case OpenIdConnectScheme(discovery_url=url):
            return f"{_phrase(scheme)}; {url}"
        case _:
            return _phrase(scheme)


def _outcomes(document: bytes, proof: _Trust) -> list[VerifiedSignature | str]:
    """The outcome for each signature of the card by itself, without policies: verified, or why it is rejected."""
    try:
        _, _, verified, failures = verify_each(document, *proof, time.time(), UnambiguousCard)
    except (CardVerificationError, MalformedError) as error:
        return [str(error)] * MAX_SIGNATURES
    found: dict[int, VerifiedSignature | str] = {failure.index: failure.detail for failure in failures}
    found |= {each.position: each for each in sorted(verified, key=lambda each: each.openness, reverse=True)}
    return [found[position] for position in range(len(found))]


def _signatures(card: JSONObject, outcomes: Sequence[VerifiedSignature | str] | None) -> list[dict[str, Any]]:
    """The report on each signature; ``outcomes`` is None if there are no keys to check them."""
    try:
        entries = signature_entries(card.get("signatures"))
    except (UnsignedCardError, MalformedError) as error:
        given = card.get("signatures")
        return [] if given is None or given == [] else [{"problem": str(error)}]
    return [_signature(entry, None if outcomes is None else outcomes[at]) for at, entry in enumerate(entries)]


def _signature(entry: JSON, outcome: VerifiedSignature | str | None) -> dict[str, Any]:
    try:
        signature = parse_signature(entry)
    except MalformedError as error:
        return {"problem": str(error)}
    header = signature.header
    report: dict[str, Any] = {
        "kid": signature.kid,
        "alg": header["alg"],
        "jku": header.get("jku") if type(header.get("jku")) is str else None,
        "issued": rfc3339(header.get("iat")),
        "not_before": rfc3339(header.get("nbf")),
        "expires": rfc3339(header.get("exp")),
        "companion": signature.is_companion,
        "good": None,
    }
    if outcome is None:
        return report
    if isinstance(outcome, str):
        return {**report, "good": False, "reason": outcome}
    return {
        **report,
        "good": True,
        "form": outcome.projection.form,
        "uncovered": [] if outcome.is_whole else list(outcome.projection.dropped),
        "unverified": [] if outcome.is_whole else list(UNVERIFIED_BY_PRUNING),
        "key_expires": rfc3339(outcome.trusted.key.not_after),
    }


def _verdict(document: bytes, proof: _Trust) -> tuple[dict[str, Any], Exit]:
    try:
        verified = verify_document(document, *proof, time.time(), read=UnambiguousCard)
    except TrustError as error:
        code = exit_of(error)
        return {"verified": False, "class": class_of(code), **report_of_error(error, str(error))}, code
    return {
        "verified": True,
        "class": "ok",
        "signed_by": [key.kid for key in verified.keys],
        "origin": verified.origin,
        "unverified": list(verified.unverified),
    }, Exit.OK


def _put(name: str, entry: dict[str, Any]) -> None:
    title = " ".join(filter(None, (entry["name"] or "(no name)", entry["version"])))
    put(f"{printable(name)}: {_one_line(title)}")
    by = " ".join(filter(None, (entry["provider"], entry["provider_url"])))
    for label, text in (("by:", by), ("says:", entry["description"])):
        if text:
            _put_line(label, _wrap(text))
    for problem in entry["problems"]:
        put(f"  {mark('unreadable:', 'red', sys.stdout)}   {_wrap(problem)}")
    if entry["authentication"] is not None:
        color = "green" if entry["anonymous"] is False else "yellow"
        _put_line("callers need:", mark(_wrap(entry["authentication"]), color, sys.stdout))
    for scheme, phrase in (entry["schemes"] or {}).items():
        _put_line("scheme:", _wrap(f"{scheme} is {phrase}"))
    if entry["extended_card"]:
        _put_line("more:", "an extended card for authenticated callers")
    if entry["interfaces"]:
        _put_rows(
            "where", ("URL", "BINDING", "VERSION", "TENANT"), entry["interfaces"], "url", "binding", "version", "tenant"
        )
    skills = [{**skill, "tags": ", ".join(skill["tags"])} for skill in entry["skills"]]
    if skills:
        _put_rows("skills", ("ID", "NAME", "TAGS", "ALSO NEEDS"), skills, "id", "name", "tags", "authentication")
    _put_signatures(entry)


def _put_line(label: str, text: str) -> None:
    put(f"  {label:<{_COLUMN - 2}}{text}")


def _put_rows(label: str, headings: Sequence[str], rows: list[dict[str, Any]], *members: str) -> None:
    shown = [[_one_line(row[member] or "") for member in members] for row in rows]
    used = [at for at in range(len(headings)) if at == 0 or any(row[at] for row in shown)]
    put(f"  {label}:")
    put_table([headings[at] for at in used], [[row[at] for at in used] for row in shown], indent="    ")


def _put_signatures(entry: dict[str, Any]) -> None:
    if not entry["signatures"]:
        _put_line("signed:", mark("no", "yellow", sys.stdout))
    for signature in entry["signatures"]:
        if "problem" in signature:
            _put_line("signed:", f"{mark('unreadable', 'red', sys.stdout)}: {_one_line(signature['problem'])}")
            continue
        times = " ".join(
            f"{word} {signature[member]}"
            for word, member in (("on", "issued"), ("from", "not_before"), ("until", "expires"))
            if signature[member]
        )
        kind = "a companion for SDKs; others ignore it" if signature["companion"] else ""
        about = ", ".join(
            filter(None, (signature["alg"], times, f"jku {signature['jku']}" if signature["jku"] else "", kind))
        )
        kid = short_kid(signature["kid"])
        if entry["checked"]:
            _put_line("signed:", _wrap(f"{kid} ({about})"))
        else:
            not_checked = mark(_NOT_CHECKED, "yellow", sys.stdout)
            _put_line("signed:", f"claims to be signed by {kid}: {not_checked}")
            _put_line("", _wrap(about))
        if signature["good"] is not None and not signature["companion"]:
            _put_outcome(signature)
    if entry["checked"]:
        if entry["verified"]:
            bound = f"for {entry['origin']}" if entry["origin"] else "origin not bound"
            _put_line("trusted:", f"{mark_verified(in_part=bool(entry['unverified']))}, {_one_line(bound)}")
        else:
            label = f"{mark('NOT VERIFIED', 'red', sys.stdout)} ({entry['class']})"
            _put_line("trusted:", f"{label}: {_one_line(entry['message'].rstrip(':'))}")


def _put_outcome(signature: dict[str, Any]) -> None:
    if not signature["good"]:
        _put_line("", f"{mark('rejected', 'red', sys.stdout)}: {_one_line(signature['reason'])}")
        return
    covers = "a part of the card" if signature["unverified"] else "the whole card"
    covers += f", without {', '.join(signature['uncovered'])}" if signature["uncovered"] else ""
    _put_line("", f"valid in the form {signature['form']}; covers {_one_line(covers)}")
    if signature["key_expires"]:
        _put_line("", f"the key is valid until {signature['key_expires']}")
    if signature["unverified"]:
        _put_line("", f"{mark('unverified', 'yellow', sys.stdout)}: {_one_line(', '.join(signature['unverified']))}")


def _one_line(text: object) -> str:
    """The text as one printable line, cut to a length, without blanks that push text into the next line."""
    line = re.sub(" {2,}", " ", printable(text))
    return _cut(line, _LONGEST)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _wrap(text: object) -> str:
    """As ``_one_line``, for text after a label. A terminal shows its further lines indented: none looks like a line of
    this report."""
    if not sys.stdout.isatty():
        return _one_line(text)
    width = max(shutil.get_terminal_size().columns, _COLUMN + 24) - _COLUMN
    return f"\n{'':<{_COLUMN}}".join(textwrap.wrap(_one_line(text), width))
