"""The rules for secrets: for each a bad card and a good one."""

from __future__ import annotations

import json
from pathlib import Path
from re import _parser  # type: ignore[attr-defined]

import pytest

from a2a_trust.lint.findings import Rule
from a2a_trust.lint.linter import lint_card
from a2a_trust.lint.rules import rules_of, secrets
from a2a_trust.lint.secret_shapes import _KINDS, secret_kind
from tests.lint.cards import OAUTH, Example, check_examples, clean_card, having, old_card, rules_found
from tests.signing.cards import Card
from tests.tables import walk

#: Split, so that no scanner takes this file for a leak.
SECRETS = {
    "PEM": "-----BEGIN PRIVATE" + " KEY-----\nMIGHAgEAMBMGByqGSM49",
    "JWT": "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxMjM0NTY" + ".SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c",
    "password in a URL": "https://ann:" + "hunter2@agents.acme.net/a2a",
    "AWS": "AKIA" + "Z7VRS4KTQ2MHW9PL",
    "Google": "AIza" + "SyD9tSrke72PouQMnMX-a7eZSW0jkFMBWYQ",
    "GitHub": "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a",
    "Slack": "xoxb-" + "263594206564-FGqddMF8t08v8N7Oq4i57vs1",
    "Stripe": "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc",
    "OpenAI": "sk-proj-" + "T3BlbkFJ9aQ2mZx7Lw0vK4uR8nHs6DyE1cGb",
    "Hugging Face": "hf_" + "QmZkRtYpLwXvNcBhJdFgSaEuOiTrWqKy",
    "npm": "npm_" + "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3zA5",
    "SendGrid": "SG.ngeVfQFYQlKU0ufo8x5d1A" + ".TwL2iGABf9DHoTf09kqeF8tAmbihYzrnopKc",
    "ours": "a2a_3kTMd9QxL0aB_" + "7Hq2mZx7Lw0vK4uR8nHs6DyE1cGbT3Zw0pK1Xe",
}
PUBLIC_JWK = {"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}
RANDOM = "Zk9vQ2xRt7LmXw" + "4Hs1BvN8cJdE5gYpUaTi03qK6z"
HEX = "9f86d081884c7d659a2feaa0c55ad015" + "a3bf4f1b2b0b822c"

RULES = rules_of(secrets)
EXAMPLES: dict[str, list[Example]] = {
    "secret": [
        *(
            Example(having(("/skills/0/description", f"Call it with {secret}.")), "/skills/0/description", clean_card())
            for secret in SECRETS.values()
        ),
        Example(
            having(("/capabilities/extensions/0/params", {"jwk": {**PUBLIC_JWK, "d": "nWGx"}})),
            "/capabilities/extensions/0/params/jwk/d",
            having(("/capabilities/extensions/0/params", {"jwk": PUBLIC_JWK})),
        ),
        Example(
            having(("/supportedInterfaces/0/url", SECRETS["password in a URL"])),
            "/supportedInterfaces/0/url",
            having(("/skills/0/description", "Write https://{user}:{password}@host/ and AKIAIOSFODNN7EXAMPLE.")),
        ),
        Example(
            having(("/capabilities/extensions/0/params", {"apiKey": "Xk7pQ2mZ9vLt"})),
            "/capabilities/extensions/0/params/apiKey",
            having(("/capabilities/extensions/0/params", {"apiKey": "X-API-Key", "publicKey": RANDOM})),
        ),
        Example(
            having(("/authentication", {"schemes": ["bearer"], "credentials": "Xk7pQ2mZ9vLt"})),
            "/authentication/credentials",
            having(("/iconUrl", f"https://cdn.acme.net/{RANDOM}")),
        ),
        Example(
            having(("/documentationUrl", "https://docs.acme.net/?lang=en&api_key=Xk7pQ2mZ9vLt")),
            "/documentationUrl",
            having(("/documentationUrl", "https://docs.acme.net/?page=Xk7pQ2mZ9vLt&key=your-key-goes-here")),
        ),
        Example(
            having(("/documentationUrl", f"https://docs.acme.net/?api_key={HEX}")),
            "/documentationUrl",
            having(("/documentationUrl", f"https://docs.acme.net/?page={HEX}")),
        ),
        *(
            Example(
                having((pointer, value), card=old_card),
                pointer if type(value) is str else f"{pointer}/{[*value][-1]}",
                having((pointer, "see https://docs.acme.net/keys"), card=old_card),
            )
            for pointer, value in (
                ("/credentials", {"apiKey": HEX}),
                ("/authentication", {"schemes": ["bearer"], "credentials": f"api_key={HEX}"}),
                ("/securitySchemes/key/value", HEX),
                ("/securitySchemes/key/value", "9f86d081-884c-4d65-9a2f-eaa0c55ad015"),
            )
        ),
    ],
    "possible-secret": [
        Example(
            having(("/skills/0/examples", [f"Call it with {RANDOM}"])),
            "/skills/0/examples/0",
            having(("/skills/0/examples", ["Check " + "0123456789abcdef" * 4])),
        ),
    ],
}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_every_rule_finds_the_bad_card_and_lets_the_good_one_be(rule: Rule) -> None:
    check_examples(rule, EXAMPLES[rule.id])


def placed(secret: str) -> dict[str, Card | bytes]:
    return {
        "value": having(("/description", secret)),
        "name": having((f"/capabilities/extensions/0/params/{secret.replace('~', '~0').replace('/', '~1')}", 1)),
        "scheme": {**clean_card(), "securityRequirements": [{"schemes": {secret: {"list": ["r"]}}}]},
        "unread": {**clean_card(), "securitySchemes": {secret: {"type": "magic"}}},
        "ambiguous": {**clean_card(), "securitySchemes": {secret: 1}},
        "unknown": {**clean_card(), secret: "a"},
        "twice": b"{%b: 1, %b: 2}" % (json.dumps(secret).encode(), json.dumps(secret).encode()),
        "flow": having((f"{OAUTH}/authorizationCode/scopes", {secret: "R", secret.upper(): "A"})),
        "empty": {**clean_card(), "capabilities": {"extensions": [{"uri": "u", "params": {secret: ""}}]}},
    }


@walk("kind", SECRETS)
def test_no_finding_repeats_a_secret(kind: str) -> None:
    secret = SECRETS[kind]
    for place, card in placed(secret).items():
        findings = lint_card(card)
        if place != "twice":
            assert "secret" in {finding.rule for finding in findings}, place
        for finding in findings:
            for text in (finding.pointer, finding.message, finding.fix):
                assert secret[:12] not in text, place
                assert secret[-12:] not in text, place


def test_no_real_card_is_taken_to_hold_a_secret(vectors: Path) -> None:
    for path in sorted((vectors / "cards" / "files").glob("*.json")):
        assert not rules_found(path.read_bytes()) & {"secret", "possible-secret"}, path.name


def test_no_kind_of_secret_is_shorter_than_the_texts_that_are_searched() -> None:
    shortest = {kind: _parser.parse(pattern).getwidth()[0] for kind, pattern in _KINDS if "://" not in pattern}
    assert min(shortest.values()) == 15
    assert len(shortest) == len(_KINDS) - 1
    assert secret_kind("xoxb-Xk7pQ2mZ9v") == "a token of Slack"
    assert secret_kind("ftp://a:b@c") == "a password in a URL"
