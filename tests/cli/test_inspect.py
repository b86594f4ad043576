"""inspect: what a card says, in words for people, whatever the card is."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_trust.cli.main import main
from a2a_trust.keys.jwk import publish_jwks
from a2a_trust.keys.signer import generate_signer
from a2a_trust.signing.sign import sign_card
from tests.cli.conftest import CARD, Run
from tests.cli.test_verify import pruned

ANN, BOB = generate_signer(kid="ann"), generate_signer(kid="bob")
KEY = {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}}
MTLS: dict[str, Any] = {"mtlsSecurityScheme": {}}
OAUTH = {
    "oauth2SecurityScheme": {
        "flows": {
            "clientCredentials": {"tokenUrl": "https://id.example.com/token", "scopes": {"read": "", "write": ""}}
        }
    }
}
OIDC = {"openIdConnectSecurityScheme": {"openIdConnectUrl": "https://id.example.com/.well-known/openid-configuration"}}


def demanding(*ways: dict[str, list[str]]) -> list[dict[str, Any]]:
    return [{"schemes": {name: {"list": scopes} for name, scopes in way.items()}} for way in ways]


def inspected(run: Run, folder: Path, card: Any, *arguments: str) -> str:
    (folder / "card.json").write_text(card if isinstance(card, str) else json.dumps(card))
    done = run("inspect", "card.json", *arguments)
    assert "Traceback" not in done.err
    return done.out


@pytest.mark.parametrize(
    ("schemes", "requirements", "sentence"),
    [
        ({"k": KEY}, demanding({"k": []}), "an API key in the header X-API-Key"),
        ({"o": OAUTH}, demanding({"o": ["read"]}), "an OAuth 2.0 token with the scope read"),
        ({"o": OAUTH}, demanding({"o": ["write", "read"]}), "an OAuth 2.0 token with the scopes read and write"),
        (
            {"k": KEY, "o": OAUTH, "m": MTLS},
            demanding({"k": []}, {"o": ["read"], "m": []}),
            "either an API key in the header X-API-Key, or a client certificate (mutual TLS) and an OAuth 2.0 token "
            "with the scope read",
        ),
        ({"c": OIDC}, demanding({"c": []}), "an OpenID Connect token"),
        ({"b": {"httpAuthSecurityScheme": {"scheme": "Basic"}}}, demanding({"b": []}), "a user name and a password"),
        ({"b": {"httpAuthSecurityScheme": {"scheme": "Digest"}}}, demanding({"b": []}), "a credential for HTTP digest"),
        ({}, demanding({"lost": []}), "lost, which the card does not declare"),
        ({"k": KEY}, [], "nothing: the card requires no credential, so anybody may call"),
        (
            {"k": KEY},
            [*demanding({"k": []}), {}],
            "either nothing: anybody may call, or an API key in the header X-API-Key",
        ),
    ],
)
def test_how_to_authenticate_is_a_sentence(
    run: Run, tmp_path: Path, schemes: dict[str, Any], requirements: Any, sentence: str
) -> None:
    card = {**CARD, "securitySchemes": schemes, "securityRequirements": requirements}
    assert f"callers need: {sentence}" in inspected(run, tmp_path, card)


@pytest.mark.parametrize(
    ("card", "sentence"),
    [
        (
            {"name": "Old", "url": "https://a.example", "authentication": {"schemes": ["apiKey"]}},
            "a credential that the card only names: 'apiKey'",
        ),
        (
            {
                "name": "Old",
                "url": "https://a.example",
                "protocolVersion": "0.3.0",
                "securitySchemes": {"k": {"type": "apiKey", "in": "cookie", "name": "sid"}},
                "security": [{"k": []}],
            },
            "an API key in the cookie sid",
        ),
    ],
)
def test_cards_of_every_generation_are_read(run: Run, tmp_path: Path, card: Any, sentence: str) -> None:
    assert sentence in inspected(run, tmp_path, card)


def test_it_says_who_where_and_what_for(run: Run, tmp_path: Path) -> None:
    skill = {**CARD["skills"][0], "securityRequirements": demanding({"bearer": ["pay"]})}
    provider = {"organization": "Example Ltd", "url": "https://example.com"}
    shown = inspected(
        run, tmp_path, {**CARD, "skills": [skill], "provider": provider, "capabilities": {"extendedAgentCard": True}}
    )
    assert shown.splitlines()[0] == "card.json: Invoice Agent 2.4.1"
    for line in (
        "  by:           Example Ltd https://example.com",
        "  says:         Reads and reconciles supplier invoices.",
        "  callers need: a bearer token with the scope read",
        "  more:         an extended card for authenticated callers",
        "    https://invoice.example.com/a2a/v1  JSONRPC  1.0",
        "    reconcile  Reconcile  finance  a bearer token with the scope pay",
        "  signed:       no",
    ):
        assert line in shown.splitlines()


def trusting(folder: Path, *more: str) -> str:
    jwk = ", ".join(f'{name} = "{value}"' for name, value in ANN.public_key.to_jwk().items())
    lines = ["version = 1", "[[trust]]", 'origins = ["invoice.example.com"]', f"jwk = {{ {jwk} }}", *more]
    (folder / "trust.toml").write_text("\n".join(lines))
    return "trust.toml"


def test_each_signature_is_judged_alone(run: Run, tmp_path: Path) -> None:
    loose = {**CARD, "securityRequirements": demanding({"bearer": []})}
    card = dict(
        sign_card(
            dict(sign_card(loose, BOB, companion=True).card),
            ANN,
            jku="https://a.example/k",
            iat=1_700_000_000,
            exp=4e9,
            companion=True,
        ).card
    )
    card["signatures"] = [*card["signatures"], {"protected": "e30", "signature": "AA"}]
    (tmp_path / "card.json").write_text(json.dumps(card))
    done = run("inspect", "card.json", "--trust", trusting(tmp_path), "--origin", "https://invoice.example.com")
    assert done.code == 0
    assert (
        "signed:       ann (ES256, on 2023-11-14T22:13:20Z until 2096-10-02T07:06:40Z, jku https://a.example/k)"
        in done.out
    )
    assert "valid in the form spec; covers the whole card" in done.out
    assert "rejected: no trusted EC key has this kid" in done.out
    assert "a companion for SDKs; others ignore it" in done.out
    assert "signed:       unreadable: protected header: alg is missing or not a string" in done.out
    assert "trusted:      verified, for invoice.example.com" in done.out
    report = run("inspect", "card.json", "--trust", "trust.toml", "--json", "--any-origin").json
    (entry,) = report["results"]
    assert (entry["ok"], entry["verified"], entry["signed_by"], entry["origin"]) == (True, True, ["ann"], None)
    assert [signature.get("good") for signature in entry["signatures"]] == [False, False, True, False, None]


PARTIES = f'parties = ["{ANN.public_key.thumbprint}", "{BOB.public_key.thumbprint}"]'


@pytest.mark.parametrize(
    ("more", "code", "what"),
    [
        (["[[revoked]]", 'kid = "ann"'], 4, "the key is revoked"),
        (["[[policy]]", 'origins = ["invoice.example.com"]', PARTIES], 4, "1 of the 2 parties"),
    ],
)
def test_what_the_trust_file_refuses_is_told_and_is_the_exit_code(
    run: Run, tmp_path: Path, more: list[str], code: int, what: str
) -> None:
    (tmp_path / "card.json").write_text(json.dumps(sign_card(CARD, ANN).card))
    done = run("inspect", "card.json", "--trust", trusting(tmp_path, *more), "--any-origin")
    assert done.code == code
    assert "NOT VERIFIED" in done.out
    assert what in done.out


def test_what_a_form_leaves_open_is_told(run: Run, tmp_path: Path) -> None:
    (tmp_path / "key.json").write_text(json.dumps(publish_jwks([ANN.public_key])))
    card = sign_card({**CARD, "securityRequirements": demanding({"bearer": []})}, ANN).card
    (tmp_path / "card.json").write_text(json.dumps(card))
    done = run("inspect", "card.json", "--jwks", "key.json", "--signer", "a2a-js", "--json", "--any-origin")
    full = done.json["results"][0]["signatures"][0]
    assert (full["form"], full["uncovered"], full["unverified"]) == ("spec", [], [])
    (tmp_path / "card.json").write_bytes(pruned(CARD, ANN))
    done = run("inspect", "card.json", "--jwks", "key.json", "--any-origin")
    assert done.code == 5
    assert "rejected: a valid signature, but nothing shows that it covers the whole card" in done.out
    shown = run("inspect", "card.json", "--jwks", "key.json", "--signer", "a2a-js", "--any-origin").out
    assert "valid in the form pruned; covers a part of the card" in shown
    assert "unverified: /securityRequirements" in shown


@pytest.mark.parametrize(
    ("card", "what"),
    [
        ({**CARD, "securityRequirements": [{"schemes": "bearer"}]}, "unreadable:"),
        ({**CARD, "skills": [5, {"id": 7}, {"id": "ok", "tags": "no"}]}, "unreadable:"),
        ({**CARD, "supportedInterfaces": [1]}, "unreadable:"),
        ({**CARD, "signatures": "none"}, "signed:       unreadable"),
        ({**CARD, "provider": []}, "unreadable:"),
        ({}, "(no name)"),
    ],
)
def test_what_cannot_be_read_is_told_and_the_rest_shown(run: Run, tmp_path: Path, card: Any, what: str) -> None:
    shown = inspected(run, tmp_path, card)
    assert what in shown
    assert shown.startswith(f"card.json: {card.get('name', '(no name)')}")


def test_nothing_in_a_card_steers_the_terminal(run: Run, tmp_path: Path) -> None:
    evil = "x\x1b[2J\r\n  trusted: verified\u202e\x07"
    card = {**CARD, "name": evil, "description": evil, "skills": [{**CARD["skills"][0], "id": evil, "tags": [evil]}]}
    shown = inspected(run, tmp_path, card)
    assert not {"\x1b", "\x07", "\r", "\u202e"} & set(shown)
    assert "  trusted: verified" not in shown.splitlines()


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (
            ["card.json", "--origin", "https://a.example"],
            "--any-origin, --signer, --kid and --alg need keys to verify with",
        ),
        (["-", "-"], "can be read only once"),
        (["card.json", "--trust", "t.toml", "--jwks", "k.json"], "--trust already names keys"),
    ],
)
def test_arguments_that_mean_nothing_are_refused(run: Run, tmp_path: Path, arguments: list[str], what: str) -> None:
    (tmp_path / "card.json").write_text(json.dumps(CARD))
    done = run("inspect", *arguments)
    assert done.code == 2
    assert what in done.err


def test_what_is_no_card_is_an_error(run: Run, tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "card.json").write_text(json.dumps(CARD))
    done = run("inspect", "list.json", "missing.json", "card.json")
    assert done.code == 1
    assert "not a JSON object" in done.err
    assert "missing.json" in done.err
    assert "Invoice Agent" in done.out


def test_every_real_card_is_shown(vectors: Path) -> None:
    cards = sorted((vectors / "cards").rglob("*.json"))
    assert len(cards) >= 98
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        for card in cards:
            assert main(["inspect", str(card)]) in (0, 1), card
    assert out.getvalue().count("callers need:") > 90


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["url", "schemes", "list", "id", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(
    st.dictionaries(st.sampled_from([*CARD, "signatures", "provider", "security", "url", "authentication"]), anything)
)
def test_whatever_a_card_holds_it_is_shown_or_refused(
    tmp_path_factory: pytest.TempPathFactory, members: dict[str, Any]
) -> None:
    path = tmp_path_factory.mktemp("cards") / "card.json"
    path.write_text(json.dumps({**CARD, **members}))
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        assert main(["inspect", str(path)]) in (0, 1)
        assert main(["inspect", str(path), "--json"]) in (0, 1)
