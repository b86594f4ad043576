"""Who accepts whose signature on which kind of card: asked of the real SDKs, and printed into
docs/interop-tables.md.

``python -m tests.interop.matrix`` writes the tables; a test compares them with the answers of the SDKs.
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from a2a_trust import (
    CardVerificationError,
    MalformedError,
    TrustedKey,
    TrustStore,
    generate_signer,
    merged_card,
    sign_card,
    verify_card,
)
from a2a_trust.errors import PartialSignatureError, UncoveredFieldsError
from a2a_trust.keys import LocalSigner, SigningTool, UnsafeAnyOrigin
from a2a_trust.keys.jwk import private_key_to_jwk
from tests.interop.sdk_process import SdkProcess, node_sdk, python_sdk

__all__ = ["BEGIN", "DOCUMENT", "END", "SDK_NAMES", "WITHHELD", "Cell", "Table", "printed", "tables"]

DOCUMENT: Final = Path(__file__).resolve().parents[2] / "docs" / "interop-tables.md"
BEGIN: Final = "<!-- made by python -m tests.interop.matrix: begin -->"
END: Final = "<!-- made by python -m tests.interop.matrix: end -->"

SDK_NAMES: Final = ("python-1.3.0", "python-1.1.3", "python-1.0.0", "python-0.3.26", "js-1.3.0")
#: These print by json.dumps what later ones print by RFC 8785.
_BY_JSON_DUMPS: Final = ("python-1.1.3", "python-1.0.0")


# --- the cards


def _with(card: dict[str, Any], **members: Any) -> dict[str, Any]:
    return {**card, **members}


_OPEN: Final[dict[str, Any]] = {
    "name": "Invoice Agent",
    "description": "Reconciles invoices.",
    "supportedInterfaces": [
        {"url": "https://agent.example.com/a2a", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    ],
    "version": "1.0.0",
    "capabilities": {"streaming": True},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [{"id": "reconcile", "name": "Reconcile", "description": "Matches invoices", "tags": ["finance"]}],
}
_FLOWS: Final = {"clientCredentials": {"tokenUrl": "https://id.example.com/token", "scopes": {"read": "Read"}}}
_SCOPED: Final = _with(
    _OPEN,
    securitySchemes={"oauth": {"oauth2SecurityScheme": {"flows": _FLOWS}}},
    securityRequirements=[{"schemes": {"oauth": {"list": ["read"]}}}],
)
_OLD_INTERFACE: Final = {
    "url": "https://agent.example.com/v0.3",
    "protocolBinding": "JSONRPC",
    "protocolVersion": "0.3",
}

CARDS: Final[dict[str, dict[str, Any]]] = {
    "1.0, nothing empty, no security schemes": _OPEN,
    "1.0, nothing empty, a security scheme and a requirement with a scope": _SCOPED,
    "1.0, the same with a letter that is not ASCII": _with(_SCOPED, name="Rechnungsbüro"),
    "1.0, a requirement without scopes": _with(
        _OPEN,
        securitySchemes={"bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}},
        securityRequirements=[{"schemes": {"bearer": {}}}],
    ),
    "1.0, a mutual TLS scheme without description, and an empty allow-list in the params of an extension": _with(
        _SCOPED,
        capabilities={"extensions": [{"uri": "https://example.com/callers", "params": {"allow": []}}]},
        securitySchemes={**_SCOPED["securitySchemes"], "tls": {"mtlsSecurityScheme": {}}},
    ),
    "0.3": {
        "protocolVersion": "0.3.0",
        "url": "https://agent.example.com/a2a",
        "preferredTransport": "JSONRPC",
        **{name: value for name, value in _OPEN.items() if name != "supportedInterfaces"},
        "securitySchemes": {"oauth": {"type": "oauth2", "flows": _FLOWS}},
        "security": [{"oauth": ["read"]}],
    },
    "merged: 1.0 and 0.3 side by side": merged_card(
        _with(_SCOPED, supportedInterfaces=[*_OPEN["supportedInterfaces"], _OLD_INTERFACE])
    ),
}


# --- who signs, who verifies


@dataclass(frozen=True, kw_only=True)
class Signer:
    """One way that a card is signed: an SDK, what is given to it, and what a trust entry says of its key."""

    name: str
    sdk: str
    tool: SigningTool
    wire: str = "served"


OURS: Final = "a2a-trust"
WITHHELD: Final = f"{OURS}, by default"
TYPED: Final = "a2a-js, typed"
SIGNERS: Final = (
    Signer(name="a2a-python 1.3.0", sdk="python-1.3.0", tool=SigningTool.A2A_PYTHON),
    Signer(name="a2a-python 1.1.3", sdk="python-1.1.3", tool=SigningTool.A2A_PYTHON),
    Signer(name="a2a-python 1.0.0", sdk="python-1.0.0", tool=SigningTool.A2A_PYTHON),
    Signer(name="a2a-python 0.3.26", sdk="python-0.3.26", tool=SigningTool.A2A_PYTHON),
    Signer(name="a2a-js, plain", sdk="js-1.3.0", tool=SigningTool.A2A_JS),
    Signer(name=TYPED, sdk="js-1.3.0", tool=SigningTool.A2A_JS, wire="typed"),
)

NO_SIGNER: Final = "a2a-trust"
NAMED_SIGNER: Final = "signer named"
JS_RESOLVER: Final = "js resolver"
JS_PLAIN: Final = "js plain"
#: Column, then the SDK and how it reads the card.
SDK_COLUMNS: Final = {
    "python 1.3.0": ("python-1.3.0", "resolver"),
    "python 1.1.3": ("python-1.1.3", "resolver"),
    "python 1.0.0": ("python-1.0.0", "resolver"),
    "python 0.3.26": ("python-0.3.26", "resolver"),
    JS_PLAIN: ("js-1.3.0", "plain"),
    JS_RESOLVER: ("js-1.3.0", "resolver"),
}
COLUMNS: Final = (NO_SIGNER, NAMED_SIGNER, *SDK_COLUMNS)

#: What SDKs raise for a card that they cannot read at all.
_UNREADABLE: Final = ("ParseError", "ValidationError")


@dataclass(frozen=True, kw_only=True)
class Cell:
    """``verdict`` is one of those that docs/interop-tables.md explains; ``note`` is why, or what is not protected."""

    verdict: str
    note: str = ""

    @property
    def is_accepted(self) -> bool:
        return _is_accepted(self.verdict)


def _is_accepted(verdict: str) -> bool:
    return verdict.startswith("accepts")


@dataclass(frozen=True, kw_only=True)
class Table:
    """One kind of card: a row for every signer, its cells in the order of COLUMNS; None where it could not sign."""

    kind: str
    rows: dict[str, list[Cell] | None] = field(default_factory=dict)


# --- what they say

_REASONS: Final = {
    "partial": "`PartialSignatureError`: nothing shows that the signature covers the whole card, and the trust entry "
    "does not name the signer.",
    "unreadable": "a2a-python 0.3 reads only cards with the `url` of 0.3, and the served card has none.",
    "own form": "a2a-python 0.3 verifies only its own form: members of 0.3, without those at the default of its "
    "models. Its own signatures have this form, and so has the companion that a2a-trust adds to cards of 0.3.",
    "0.3 signed": "The signature is over members of 0.3. Readers of 1.0 drop them, or turn them into members of 1.0, "
    "before they verify.",
    "0.3 pruned": "a2a-js signs only those members of a card of 0.3 that 1.0 has, too: neither `url` nor `security`. "
    "a2a-python turns these into members of 1.0 before it verifies.",
    "encoders": "a2a-python before 1.1.4 signs and verifies the output of `json.dumps`, with ASCII escapes; the others "
    "use RFC 8785. The two differ in letters beyond ASCII, in whole numbers and in exponents.",
    "resolver": "The resolver of a2a-js turns a card with security schemes of 1.0 into its typed form. Its verifier "
    "then loses these schemes, so it accepts only a signature that does not cover them.",
    "typed": "a2a-js signs all members of a typed card except the security schemes, and serves the schemes. Only a "
    "reader that loses them, too, accepts the signature. Sign plain objects.",
    "withheld": "These SDKs verify the pruned form only, which would leave security members of this card open. So no "
    "companion is added, unless it is asked for.",
    "unsigned": "a2a-python 0.3 cannot read a card of 1.0, so it cannot sign it.",
}


def _reason(kind: str, signer: Signer | None, column: str, verdicts: Mapping[str, str]) -> str:
    """Why a card is rejected; the reasons were found by reading what each SDK canonicalizes."""
    verdict = verdicts[column]
    name = signer.name if signer else OURS
    sdk, _ = SDK_COLUMNS.get(column, ("", ""))
    if verdict == "unreadable":
        return "unreadable"
    if verdict == "partial":
        return "partial"
    if name == TYPED:
        return "typed"
    if sdk == "python-0.3.26":
        return "own form"
    if name == "a2a-python 0.3.26" or (kind == "0.3" and signer is None):
        return "0.3 signed"
    if kind == "0.3":
        return "0.3 pruned"
    if signer is None and verdicts[JS_PLAIN] == "rejects":
        return "withheld"
    by_json_dumps = signer is not None and signer.sdk in _BY_JSON_DUMPS
    if by_json_dumps is not (sdk in _BY_JSON_DUMPS) and (column != JS_RESOLVER or verdicts[JS_PLAIN] == "rejects"):
        return "encoders"
    assert column == JS_RESOLVER, f"{kind}: {name}'s card is rejected by {column}, and nobody knows why"
    return "resolver"


def tables(sdks: Mapping[str, SdkProcess]) -> list[Table]:
    """Every kind of card, signed by everybody, asked of everybody."""
    signer = generate_signer("ES256")
    private = private_key_to_jwk(signer.private_key, alg=signer.alg, kid=signer.kid)
    made = []
    for kind, card in CARDS.items():
        table = Table(kind=kind)
        made.append(table)
        signed = sign_card(card, signer)
        by_us = {f"{OURS}, {'with companion' if signed.companion else 'one signature'}": signed}
        if signed.withheld_for:
            by_us = {WITHHELD: signed, f"{OURS}, companion=True": sign_card(card, signer, companion=True)}
        for way, ours in by_us.items():
            table.rows[way] = _row(kind, ours.card, None, signer, sdks)
        for each in SIGNERS:
            text = sdks[each.sdk].sign(json.dumps(card), private, reader="resolver", wire=each.wire)
            table.rows[each.name] = None if text is None else _row(kind, json.loads(text), each, signer, sdks)
    return made


#: Asks one verifier about a card: the verdict, and a note about it.
_Ask: TypeAlias = Callable[[Any], tuple[str, str]]


def _row(
    kind: str, document: dict[str, Any], by: Signer | None, signer: LocalSigner, sdks: Mapping[str, SdkProcess]
) -> list[Cell]:
    ask: dict[str, _Ask] = {
        NO_SIGNER: partial(_ask_us, signer, None),
        NAMED_SIGNER: partial(_ask_us, signer, by.tool if by else SigningTool.A2A_TRUST),
    }
    for column, (name, reader) in SDK_COLUMNS.items():
        ask[column] = partial(_ask_sdk, sdks[name], reader, signer.public_key.to_jwk())
    answers = {column: ask[column](document) for column in COLUMNS}
    verdicts = {column: verdict for column, (verdict, _) in answers.items()}
    cells = []
    for column in COLUMNS:
        verdict, note = answers[column]
        if _is_accepted(verdict):
            lost = _removable(document, ask[column])
            if lost:
                note = "Each of these can be removed by the server of the card, and the card is still accepted: "
                note += f"{_listed(lost)}."
        elif not note:
            note = _REASONS[_reason(kind, by, column, verdicts)]
        cells.append(Cell(verdict=verdict, note=note))
    return cells


def _ask_us(signer: LocalSigner, tool: SigningTool | None, card: Any) -> tuple[str, str]:
    entry = TrustedKey(key=signer.public_key, origins=UnsafeAnyOrigin(), signer=tool)
    try:
        verified = verify_card(json.dumps(card).encode(), TrustStore([entry]), origin=UnsafeAnyOrigin())
    except PartialSignatureError:
        return "partial", ""
    except UncoveredFieldsError as error:
        return "in part", (
            "`UncoveredFieldsError` names members that are served and not signed; `Coverage.SIGNED_PART_ONLY` drops "
            f"them: {_listed(error.pointers)}."
        )
    except CardVerificationError:
        return "rejects", ""
    except MalformedError:
        return "unreadable", ""
    return ("accepts, unverified" if verified.unverified else "accepts"), ""


def _ask_sdk(sdk: SdkProcess, reader: str, key: dict[str, Any], card: Any) -> tuple[str, str]:
    refusal = sdk.refusal(json.dumps(card), key, reader=reader)
    if refusal is None:
        return "accepts", ""
    return ("unreadable" if refusal in _UNREADABLE else "rejects"), ""


def _removable(document: dict[str, Any], ask: _Ask) -> list[str]:
    """Pointers of the members, ``signatures`` apart, that can be taken out of the card one at a time, unnoticed."""
    found: list[str] = []
    for pointer, steps in _places(document, ()):
        if steps[0] == "signatures" or any(pointer.startswith(f"{other}/") for other in found):
            continue
        card = deepcopy(document)
        holder: Any = card
        for step in steps[:-1]:
            holder = holder[step]
        del holder[steps[-1]]
        if _is_accepted(ask(card)[0]):
            found.append(pointer)
    return found


def _places(value: Any, steps: tuple[str | int, ...]) -> Iterator[tuple[str, tuple[str | int, ...]]]:
    """Every member and element: JSON pointer and steps, what holds it first."""
    if steps:
        yield "".join(f"/{step}" for step in steps), steps
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, item in items:
        yield from _places(item, (*steps, step))


def _listed(pointers: list[str] | tuple[str, ...]) -> str:
    return ", ".join(f"`{pointer}`" for pointer in sorted(pointers))


# --- on paper


def printed(made: list[Table]) -> str:
    """The tables as Markdown, notes numbered below them in the order in which they are first needed."""
    notes: dict[str, int] = {}

    def cell(verdict: str, note: str) -> str:
        return f"{verdict} ({notes.setdefault(note, len(notes) + 1)})" if note else verdict

    lines = []
    for table in made:
        lines += [f"### {table.kind}", "", f"| signed by | {' | '.join(COLUMNS)} |", "|---" * (len(COLUMNS) + 1) + "|"]
        for name, cells in table.rows.items():
            if cells is None:
                texts = [cell("not signed", _REASONS["unsigned"]), *[""] * (len(COLUMNS) - 1)]
            else:
                texts = [cell(each.verdict, each.note) for each in cells]
            lines.append(f"| {name} | {' | '.join(texts)} |")
        lines.append("")
    lines += ["### Notes", "", *(_wrapped(f"{number}. ", note) for note, number in notes.items())]
    return "\n".join(lines)


def _wrapped(start: str, text: str) -> str:
    """An item of a list, in lines that are not too long."""
    indent = " " * len(start)
    return textwrap.fill(text, 120, initial_indent=start, subsequent_indent=indent, break_on_hyphens=False)


def main() -> None:
    with ExitStack() as stack:
        start = {name: node_sdk if name.startswith("js") else python_sdk for name in SDK_NAMES}
        text = printed(tables({name: stack.enter_context(start[name](name)) for name in SDK_NAMES}))
    document = DOCUMENT.read_text(encoding="utf-8")
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        sys.exit(f"{DOCUMENT}: the markers are missing:\n{BEGIN}\n{END}")
    DOCUMENT.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
