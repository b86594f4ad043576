"""What lint finds: for every rule a bad card and a good one, and what holds for every card."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_trust.card.ambiguity import check_card
from a2a_trust.card.merge import merged_card
from a2a_trust.card.view import read_card
from a2a_trust.errors import ConfigurationError, MalformedError
from a2a_trust.keys.signer import generate_signer
from a2a_trust.lint.document import at
from a2a_trust.lint.findings import Finding, Severity
from a2a_trust.lint.lint_card import MAX_OF_A_RULE, lint_card, mend_card
from a2a_trust.lint.rules.table import RULES
from a2a_trust.signing.forms import Form, project
from a2a_trust.signing.sign import sign_card
from a2a_trust.strict_json.pointer import steps_of
from tests.conftest import ROOT
from tests.signing import cards as made
from tests.signing.cards import Card
from tests.signing.json_values import canonicalizable, documents, nested, texts

OAUTH = "/securitySchemes/oauth/oauth2SecurityScheme/flows"

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


OLDEST = (("/authentication", {"schemes": ["key"]}), ("/security", None))
FLAT = {"type": "openIdConnect", "openIdConnectUrl": "https://id.example.com/"}


def clean_card() -> Card:
    """A card of 1.0 in which lint finds nothing."""
    card = made.full_card()
    card["securitySchemes"].pop("Bearer")
    flow = card["securitySchemes"]["oauth"]["oauth2SecurityScheme"]["flows"]["authorizationCode"]
    flow["scopes"] = {"read": "Read"}
    card["capabilities"]["extensions"][0]["params"] = {"limit": 3}
    return card


def old_card() -> Card:
    """A card of 0.3 in which lint finds nothing."""
    return {
        "protocolVersion": "0.3.0",
        "name": "Old Agent",
        "description": "Reads invoices.",
        "url": "https://old.example.com/a2a",
        "preferredTransport": "JSONRPC",
        "version": "1.0.0",
        "capabilities": {"streaming": False},
        "securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "X-API-Key"}},
        "security": [{"key": []}],
        "defaultInputModes": [],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "s", "name": "S", "description": "", "tags": []}],
    }


GONE = object()


def put(card: Card, pointer: str, value: Any) -> Card:
    """A copy with another value at the pointer, or without it."""
    changed = copy.deepcopy(card)
    *way, last = steps_of(pointer)
    around: Any = changed
    for step in way:
        around = around[int(step)] if isinstance(around, list) else around[step]
    if value is GONE:
        del around[last]
    else:
        around[int(last) if isinstance(around, list) else last] = value
    return changed


def having(*changes: tuple[str, Any], card: Callable[[], Card] = clean_card) -> Card:
    changed = card()
    for pointer, value in changes:
        changed = put(changed, pointer, value)
    return changed


class Example(NamedTuple):
    """Cards that a rule is about: ``bad`` has the finding at ``pointer``, ``good`` comes near and has none."""

    bad: Card | bytes
    pointer: str
    good: Card | bytes


SKILL: Card = {"id": "Reconcile", "name": "R", "description": "Again.", "tags": ["finance"]}
PUBLIC_JWK = {"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}
RANDOM = "Zk9vQ2xRt7LmXw" + "4Hs1BvN8cJdE5gYpUaTi03qK6z"

EXAMPLES: dict[str, list[Example]] = {
    "unreadable-document": [
        Example(b'{"name": 1, "name": 2}', "", json.dumps(clean_card()).encode()),
        Example(b"\xef\xbb\xbf{}", "", b"{}"),
        Example(b"[]", "", b"{}"),
        Example(b"{", "", b"{}"),
    ],
    "ambiguous-member": [
        Example(having(("/capabilities/streaming", "true")), "/capabilities/streaming", clean_card()),
        Example(having(("/Name", "A")), "/Name", having(("/title", "A"))),
        Example(having(("/default_input_modes", ["a"])), "/default_input_modes", clean_card()),
    ],
    "missing-member": [
        Example(having(("/version", GONE)), "/version", clean_card()),
        Example(having(("/skills/0/tags", None)), "/skills/0/tags", having(("/provider", None))),
        Example(having(("/url", GONE), card=old_card), "/url", old_card()),
        Example({"name": "my-package", "version": "1.0.0"}, "/supportedInterfaces", clean_card()),
        Example(having(("/version", GONE), card=old_card), "/version", old_card()),
        Example(
            having(*OLDEST, ("/name", GONE), card=old_card),
            "/name",
            having(*OLDEST, ("/skills/0/tags", GONE), card=old_card),
        ),
    ],
    "empty-member": [
        Example(having(("/skills", [])), "/skills", clean_card()),
        Example(having(("/description", "")), "/description", having(("/documentationUrl", ""))),
    ],
    "proto-name": [
        Example(
            having(
                ("/security_requirements", [{"schemes": {"bearer": {"list": ["r"]}}}]), ("/securityRequirements", GONE)
            ),
            "/security_requirements",
            clean_card(),
        )
    ],
    "unknown-member": [
        Example(having(("/title", "Invoices")), "/title", having(("/url", "https://invoice.example.com/"))),
        Example(
            having(("/supportedInterfaces/0/x-region", "eu")),
            "/supportedInterfaces/0/x-region",
            having(("/capabilities/extensions/0/params/region", "eu")),
        ),
    ],
    "unsafe-integer": [
        Example(
            having(("/capabilities/extensions/0/params/limit", 2**53)),
            "/capabilities/extensions/0/params/limit",
            having(("/capabilities/extensions/0/params/limit", 2**53 - 1)),
        )
    ],
    "explicit-default": [
        Example(having(("/documentationUrl", None)), "/documentationUrl", having(("/documentationUrl", GONE))),
        Example(
            having(("/capabilities/extensions/0/required", False)),
            "/capabilities/extensions/0/required",
            having(("/capabilities/streaming", False)),
        ),
        Example(having(("/signatures", None), ("/iconUrl", None)), "/iconUrl", having(("/signatures", None))),
    ],
    "several-forms": [
        Example(
            having(("/securityRequirements", [{"schemes": {"bearer": {}}}])), "/securityRequirements", clean_card()
        ),
        Example(
            having(("/securitySchemes/bearer", {"mtlsSecurityScheme": {}})),
            "/securitySchemes/bearer",
            having(("/securitySchemes/bearer", {"mtlsSecurityScheme": {"description": "A certificate of ours."}})),
        ),
        Example(
            having(("/capabilities/extensions/0/params", {"allow": []})),
            "/capabilities/extensions/0/params",
            having(("/capabilities/extensions/0/params", {"allow": ["a"]})),
        ),
    ],
    "empty-value": [
        Example(having(("/documentationUrl", "")), "/documentationUrl", having(("/documentationUrl", GONE))),
        Example(having(("/capabilities", {})), "/capabilities", having(("/capabilities", {"streaming": False}))),
    ],
    "python-rewrites": [
        Example(
            having(("/security", [{"oauth": ["read"]}]), ("/securityRequirements", GONE)),
            "/security",
            having(("/security", [{"oauth": ["read"]}])),
        ),
        Example(
            having(("/skills/0/security", [{"bearer": ["write"]}]), ("/skills/0/securityRequirements", GONE)),
            "/skills/0/security",
            having(("/skills/0/security", [{"bearer": []}]), ("/skills/0/securityRequirements", GONE)),
        ),
        Example(
            having(("/securitySchemes/bearer", {"type": "http", "scheme": "Bearer", "bearerFormat": "JWT"})),
            "/securitySchemes/bearer",
            having(
                ("/securitySchemes/bearer/type", "http"),
                ("/securitySchemes/bearer/scheme", "Bearer"),
                ("/securitySchemes/bearer/bearerFormat", "JWT"),
            ),
        ),
        Example(
            having(("/supportsAuthenticatedExtendedCard", True), ("/capabilities/extendedAgentCard", GONE)),
            "/supportsAuthenticatedExtendedCard",
            having(("/supportsAuthenticatedExtendedCard", True)),
        ),
        Example(
            having(("/security", [{"oauth": ["read"]}]), ("/securityRequirements", GONE)),
            "/security",
            having(("/security", [{"key": ["read"]}]), card=old_card),
        ),
    ],
    "unread-member": [
        Example(
            having(("/security", [{"bearer": ["read"]}])), "/security", having(("/security", [{"oauth": ["read"]}]))
        ),
        Example(
            having(("/securitySchemes/bearer/type", "apiKey")),
            "/securitySchemes/bearer/location",
            having(("/securitySchemes/bearer/type", "http"), ("/securitySchemes/bearer/scheme", "bearer")),
        ),
        Example(
            having(("/supportsAuthenticatedExtendedCard", False)),
            "/supportsAuthenticatedExtendedCard",
            having(("/supportsAuthenticatedExtendedCard", True)),
        ),
    ],
    "requirement-spelling": [
        Example(having(("/securityRequirements/0", {"oauth": ["read"]})), "/securityRequirements/0", clean_card()),
        Example(
            having(("/skills/0/securityRequirements/0", {"schemes": {"bearer": ["write"]}})),
            "/skills/0/securityRequirements/0/schemes/bearer",
            having(("/skills/0/securityRequirements/0", {"schemes": {"bearer": {"list": ["write"]}}})),
        ),
    ],
    "missing-twin": [
        Example(
            having(("/security", [{"oauth": ["read"]}]), ("/securityRequirements", GONE)),
            "/security",
            having(("/security", [{"oauth": ["read"]}])),
        ),
        Example(having(("/url", "https://invoice.example.com/")), "/securityRequirements", merged_card(clean_card())),
        Example(
            {**old_card(), "security": None, "security_requirements": [{"schemes": {"key": {"list": ["r"]}}}]},
            "/security_requirements",
            old_card(),
        ),
        Example(
            having(("/securitySchemes/bearer", {"type": "http", "scheme": "bearer"})),
            "/securitySchemes/bearer",
            having(("/securitySchemes/key", FLAT), card=old_card),
        ),
    ],
    "undeclared-scheme": [
        Example(
            having(("/securityRequirements/0/schemes", {"baerer": {"list": ["r"]}})),
            "/securityRequirements/0",
            clean_card(),
        ),
        Example(having(("/skills/0/security", [{"kee": []}]), card=old_card), "/skills/0/security/0", old_card()),
    ],
    "unused-scheme": [
        Example(
            having(("/securitySchemes/old", {"httpAuthSecurityScheme": {"scheme": "Basic"}})),
            "/securitySchemes/old",
            having(("/securityRequirements", [{"schemes": {"bearer": {"list": ["r"]}, "oauth": {"list": ["r"]}}}])),
        )
    ],
    "anonymous-alternative": [
        Example(having(("/securityRequirements/0", {})), "/securityRequirements/0", clean_card()),
        Example(having(("/skills/0/security", [{"key": []}, {}]), card=old_card), "/skills/0/security/1", old_card()),
    ],
    "missing-requirements": [
        Example(having(("/securityRequirements", GONE)), "/securitySchemes", clean_card()),
        Example(having(("/security", []), card=old_card), "/securitySchemes", old_card()),
    ],
    "no-authentication": [
        Example(having(("/security", GONE), ("/securitySchemes", GONE), card=old_card), "", old_card()),
    ],
    "unguarded-extended-card": [
        Example(
            having(("/securityRequirements", GONE)),
            "/capabilities/extendedAgentCard",
            having(("/securityRequirements", GONE), ("/capabilities/extendedAgentCard", False)),
        ),
        Example(
            having(("/security", [{}]), ("/supportsAuthenticatedExtendedCard", True), card=old_card),
            "/supportsAuthenticatedExtendedCard",
            having(("/supportsAuthenticatedExtendedCard", True), card=old_card),
        ),
    ],
    "duplicate-scope": [
        Example(
            having(("/securityRequirements/0/schemes/oauth/list", ["read", "write", "read"])),
            "/securityRequirements/0/schemes/oauth/list/2",
            having(("/securityRequirements/0/schemes/oauth/list", ["read", "write"])),
        ),
        Example(having(("/security/0/key", ["a", "a"]), card=old_card), "/security/0/key/1", old_card()),
    ],
    "http-url": [
        Example(
            having(("/supportedInterfaces/0/url", "HTTP://i.example.com/")),
            "/supportedInterfaces/0/url",
            clean_card(),
        ),
        Example(
            having((f"{OAUTH}/authorizationCode/tokenUrl", "http://id.example.com/token")),
            f"{OAUTH}/authorizationCode/tokenUrl",
            having(("/provider/url", "http://example.com")),
        ),
    ],
    "http-link": [
        Example(having(("/iconUrl", "http://example.com/icon.png")), "/iconUrl", clean_card()),
    ],
    "private-url": [
        *(
            Example(having(("/supportedInterfaces/1/url", url)), "/supportedInterfaces/1/url", clean_card())
            for url in (
                "localhost:50051",
                "https://agent:8443/a2a",
                "https://agent.svc.cluster.local/",
                "https://10.1.2.3/",
                "https://169.254.169.254/",
                "https://[::1]/",
                "https://idp.internal/",
            )
        ),
        Example(
            having(("/provider/url", "https://intranet/")),
            "/provider/url",
            having(("/provider/url", "https://8.8.8.8/")),
        ),
    ],
    "unclear-url": [
        *(
            Example(having(("/supportedInterfaces/0/url", url)), "/supportedInterfaces/0/url", clean_card())
            for url in (
                "/a2a",
                "https://good.example.com\\@evil.example.com/",
                "https://127.1/",
                "https://[::ffff:8.8.8.8]/",
                "https://exämple.com/",
                "dns:///agent.example.com:443",
                "unix:443",
                "agent.example.com",
            )
        ),
        Example(
            having(("/supportedInterfaces/0/url", "https://ann@example.com/")),
            "/supportedInterfaces/0/url",
            having(("/documentationUrl", "/docs")),
        ),
    ],
    "implicit-flow": [
        Example(
            having((OAUTH, {"implicit": {"authorizationUrl": "https://id.example.com/a", "scopes": {"read": "R"}}})),
            f"{OAUTH}/implicit",
            clean_card(),
        )
    ],
    "password-flow": [
        Example(
            having((OAUTH, {"password": {"tokenUrl": "https://id.example.com/t", "scopes": {"read": "R"}}})),
            f"{OAUTH}/password",
            having((OAUTH, {"clientCredentials": {"tokenUrl": "https://id.example.com/t", "scopes": {"read": "R"}}})),
        )
    ],
    "control-character": [
        Example(having(("/description", "a\x1b[31mred")), "/description", having(("/description", "two\n\tlines\r\n"))),
        Example(having(("/x\n", "a")), "/x\n", having(("/x", "a\n"))),
        Example(having(("/description", "a\x9bm")), "/description", having(("/description", "a\xa0m"))),
    ],
    "bidirectional-character": [
        Example(having(("/name", "Invoice\u202etnegA")), "/name", having(("/name", "وكيل الفواتير"))),
        Example(
            having(("/capabilities/extensions/0/params/a\u2066", 1)),
            "/capabilities/extensions/0/params/a\u2066",
            clean_card(),
        ),
    ],
    "invisible-character": [
        Example(
            having(("/skills/0/description", "Books." + "".join(chr(0xE0000 + ord(char)) for char in "pay me"))),
            "/skills/0/description",
            having(("/skills/0/description", "Books \N{MAN}\N{ZERO WIDTH JOINER}\N{PERSONAL COMPUTER} hours.")),
        ),
        Example(having(("/name", "Invoice\u200bAgent")), "/name", clean_card()),
        # Variation selectors carry texts of any length, and blank letters of Hangul and Braille look like blanks.
        Example(having(("/name", "Invoice" + "".join(map(chr, (0xFE01, 0xE0100, 0xE01EF))))), "/name", clean_card()),
        Example(having(("/name", "Invoice\u3164Agent")), "/name", having(("/name", "Invoice \u2764\ufe0f"))),
        Example(having(("/name", "Invoice\u2800Agent")), "/name", clean_card()),
    ],
    "case-only-names": [
        Example(
            having(("/securitySchemes/Bearer", {"httpAuthSecurityScheme": {"scheme": "Basic"}})),
            "/securitySchemes/Bearer",
            having(("/securitySchemes/bearer2", {"httpAuthSecurityScheme": {"scheme": "Basic"}})),
        ),
        Example(
            having((f"{OAUTH}/authorizationCode/scopes", {"read": "R", "READ": "A"})),
            f"{OAUTH}/authorizationCode/scopes/READ",
            having(("/capabilities/extensions/0/params", {"read": 1, "READ": 2})),
        ),
        Example(
            having(("/skills", [clean_card()["skills"][0], SKILL])),
            "/skills/1/id",
            having(("/skills", [clean_card()["skills"][0], {**SKILL, "id": "book"}])),
        ),
        Example(
            having(("/securityRequirements/0/schemes/oauth/list", ["read", "Read"])),
            "/securityRequirements/0/schemes/oauth/list/1",
            having(("/securityRequirements/0/schemes/oauth/list", ["read", "read"])),
        ),
    ],
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
    ],
    "possible-secret": [
        Example(
            having(("/skills/0/examples", [f"Call it with {RANDOM}"])),
            "/skills/0/examples/0",
            having(("/skills/0/examples", ["Check " + "0123456789abcdef" * 4])),
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
    ],
}


def found(card: Card | bytes) -> set[tuple[str, str]]:
    return {(finding.rule, finding.pointer) for finding in lint_card(card)}


def rules_found(card: Card | bytes) -> set[str]:
    return {rule for rule, _ in found(card)}


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_finds_the_bad_card_and_lets_the_good_one_be(rule: str) -> None:
    for example in EXAMPLES[rule]:
        assert (rule, example.pointer) in found(example.bad)
        assert rule not in rules_found(example.good)


def test_no_example_is_left_of_a_rule_that_is_gone() -> None:
    assert EXAMPLES.keys() == RULES.keys()
    assert all(EXAMPLES.values())


@pytest.mark.parametrize("rule", RULES)
def test_every_finding_says_what_is_wrong_and_what_to_write(rule: str) -> None:
    for example in EXAMPLES[rule]:
        for finding in lint_card(example.bad):
            assert finding.severity is RULES[finding.rule].severity
            assert finding.message
            assert not finding.message.endswith(".")
            assert finding.mend.endswith(".")
            # SARIF takes braces for placeholders, and brackets for links.
            assert not set("{}[]") & set(finding.message + finding.mend)


def test_errors_come_first() -> None:
    card = having(("/title", "A"), ("/version", GONE), ("/name", "a\u202e"))
    assert [finding.severity for finding in lint_card(card)] == [Severity.ERROR, Severity.WARNING, Severity.NOTE]


# Cards that are fine


@pytest.mark.parametrize(
    ("url", "severity"),
    [
        *((f"{scheme}://{host}/a", Severity.WARNING)
          for scheme in ("http", "ws")
          for host in ("localhost", "LOCALHOST:9999", "a.localhost", "127.0.0.1:80", "127.9.9.9", "[::1]:8080")),
        *((f"http://{host}/a", Severity.ERROR)
          for host in ("0.0.0.0:9999", "10.0.0.1", "localhost.example.com", "notlocalhost", "127.0.0.1.example.com",
                       "[::ffff:127.0.0.1]", "127.1", "0x7f.1", "localhost@example.com", "agent.example.com")),
    ],
)  # fmt: skip
def test_a_connection_that_is_not_encrypted_is_a_warning_within_one_machine(url: str, severity: Severity) -> None:
    card = clean_card()
    card["supportedInterfaces"][0]["url"] = url
    found = [finding for finding in lint_card(card) if finding.rule == "http-url"]
    assert [(finding.severity, finding.pointer) for finding in found] == [(severity, "/supportedInterfaces/0/url")]


def test_a_clean_card_of_either_generation_has_no_findings() -> None:
    assert lint_card(clean_card()) == ()
    assert lint_card(old_card()) == ()


def test_a_merged_card_whose_twins_agree_has_no_findings() -> None:
    assert lint_card(merged_card(clean_card())) == ()


def test_signing_a_clean_card_leaves_it_clean() -> None:
    assert lint_card(sign_card(clean_card(), generate_signer()).card) == ()


def test_bytes_and_objects_are_judged_alike() -> None:
    card = made.many_formed_card()
    assert lint_card(json.dumps(card).encode()) == lint_card(card)


# Cards that cannot be read


def test_all_that_the_gate_refuses_is_told_at_once_with_the_pointers_of_the_card() -> None:
    card = having(
        ("/capabilities/streaming", "yes"),
        ("/skills", [{**SKILL, "tags": "one"}, {**SKILL, "id": 7}, {**SKILL, "name": None, "NAME": "B"}]),
    )
    assert {pointer for rule, pointer in found(card) if rule == "ambiguous-member"} == {
        "/capabilities/streaming",
        "/skills/0/tags",
        "/skills/1/id",
        "/skills/2/NAME",
    }


def test_a_requirement_that_cannot_be_read_is_never_told_as_missing() -> None:
    card = having(("/securityRequirements", [{"schemes": {"oauth": {"lists": ["read"]}}}]))
    assert rules_found(card) >= {"unread-member"}
    assert not rules_found(card) & {"missing-requirements", "no-authentication", "anonymous-alternative"}


def test_a_scheme_that_cannot_be_read_is_not_told_as_undeclared() -> None:
    card = having(("/securitySchemes/oauth", {"type": "magic"}))
    assert "unread-member" in rules_found(card)
    assert "undeclared-scheme" not in rules_found(card)


def test_an_object_that_is_not_json_is_refused() -> None:
    with pytest.raises(MalformedError):
        lint_card({"name": float("nan")})
    with pytest.raises(MalformedError):
        lint_card({"name": {1, 2}})
    with pytest.raises(TypeError, match="give the bytes"):
        lint_card("card.json")  # type: ignore[arg-type]


def test_a_twin_that_is_missing_hides_no_form() -> None:
    card = having(("/url", "https://invoice.example.com/"), ("/securityRequirements", [{"schemes": {"bearer": {}}}]))
    assert {"several-forms", "missing-twin"} <= rules_found(card)


# Secrets


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


@pytest.mark.parametrize("kind", SECRETS)
def test_no_finding_repeats_a_secret(kind: str) -> None:
    secret = SECRETS[kind]
    for place, card in placed(secret).items():
        findings = lint_card(card)
        if place != "twice":
            assert "secret" in {finding.rule for finding in findings}, place
        for finding in findings:
            for text in (finding.pointer, finding.message, finding.mend):
                assert secret[:12] not in text, place
                assert secret[-12:] not in text, place


# Bounds


def test_the_findings_of_one_rule_are_bounded() -> None:
    card = {f"x{number}": number for number in range(3 * MAX_OF_A_RULE)}
    assert sum(finding.rule == "unknown-member" for finding in lint_card(card)) == MAX_OF_A_RULE


def test_pointers_are_bounded_too() -> None:
    name = "n" * 100_000
    card = {**clean_card(), "capabilities": {"extensions": [{"params": {name: [None] * 500}}]}, name: 1}
    findings = lint_card(card)
    assert findings
    assert all(len(finding.pointer) <= 512 and len(finding.message) < 1000 for finding in findings)


def test_a_document_that_is_refused_everywhere_ends() -> None:
    card = {"skills": [{"id": number} for number in range(500)], **dict.fromkeys(made.full_card(), 1)}
    card["skills"] = [{"id": 1, "name": 2, "tags": 3} for _ in range(100)]
    assert "ambiguous-member" in rules_found(card)


def test_the_deepest_card_that_is_read_is_linted() -> None:
    card = {**clean_card(), "x": nested(120, None, kind="both")}
    assert ("unknown-member", "/x") in found(card)


# What holds for every card


@given(st.dictionaries(texts, documents, max_size=6))
def test_lint_never_fails_on_any_object(card: dict[str, Any]) -> None:
    for finding in lint_card(card):
        assert finding.rule in RULES


@given(
    st.binary(max_size=60)
    | st.text(max_size=60).map(str.encode)
    | documents.map(lambda value: json.dumps(value).encode())
)
def test_lint_never_fails_on_any_bytes(data: bytes) -> None:
    assert all(isinstance(finding, Finding) for finding in lint_card(data))


POINTERS = st.sampled_from(
    [
        f"{pointer}/{name}"
        for base in (clean_card(), merged_card(clean_card()), old_card())
        for pointer, members in [
            ("", base),
            ("/capabilities", base["capabilities"]),
            ("/skills/0", base["skills"][0]),
            *((f"/securitySchemes/{name}", scheme) for name, scheme in base["securitySchemes"].items()),
        ]
        for name in [*members, "security", "securityRequirements", "type", "url", "security_requirements"]
    ]
)


@given(
    st.sampled_from([clean_card, old_card, lambda: merged_card(clean_card())]),
    st.lists(st.tuples(POINTERS, canonicalizable), min_size=1, max_size=4),
)
def test_lint_never_fails_on_a_card_with_members_of_any_kind(
    base: Callable[[], Card], changes: list[tuple[str, Any]]
) -> None:
    card = base()
    for pointer, value in changes:
        try:
            card = put(card, pointer, value)
        except (KeyError, IndexError, TypeError, ValueError):
            continue
    rules = rules_found(card)
    assert ("ambiguous-member" in rules) == refuses(check_card, card)
    if "ambiguous-member" not in rules and refuses(read_card, card):
        assert rules & {"unread-member", "missing-member"}


def refuses(check: Callable[[Card], object], card: Card) -> bool:
    try:
        check(card)
    except MalformedError:
        return True
    return False


FORM_RULES = {
    "explicit-default",
    "several-forms",
    "empty-value",
    "empty-member",
    "unknown-member",
    "proto-name",
    "requirement-spelling",
    "missing-twin",
}


@given(made.cards)
def test_a_card_that_has_several_forms_never_goes_without_a_finding(card: Card) -> None:
    payloads = {project(card, form).payload for form in (Form.SERVED, Form.SPEC, Form.PRUNED)}
    rules = rules_found(card)
    assert "ambiguous-member" not in rules
    assert len(payloads) == 1 or rules & FORM_RULES


@given(made.cards)
def test_findings_point_to_members_that_are_there_or_missing_from_an_object_that_is(card: Card) -> None:
    for finding in lint_card(card):
        if len(finding.pointer) < 512 and finding.pointer:
            around = at(card, finding.pointer.rpartition("/")[0])
            assert isinstance(around, dict | list), finding


# Mending


@given(made.cards)
def test_mending_changes_no_meaning_and_once_is_enough(card: Card) -> None:
    before = copy.deepcopy(card)
    mended, dropped = mend_card(card)
    assert card == before
    assert project(mended, Form.SPEC).payload == project(card, Form.SPEC).payload
    assert mend_card(mended) == (mended, ())
    assert "explicit-default" not in rules_found(mended)
    assert bool(dropped) == ("explicit-default" in rules_found(card))


def test_mending_changes_nothing_in_a_card_of_0_3() -> None:
    assert mend_card(made.legacy_card()) == (made.legacy_card(), ())


def test_mending_refuses_a_signed_card_and_says_why() -> None:
    signed = sign_card(clean_card(), generate_signer()).card
    assert mend_card(signed) == (signed, ())
    with pytest.raises(ConfigurationError, match="break its signatures"):
        mend_card({**signed, "documentationUrl": None})


def test_mending_refuses_what_the_gate_refuses() -> None:
    with pytest.raises(MalformedError, match="/capabilities/streaming"):
        mend_card(having(("/capabilities/streaming", "yes")))


# The documentation, and the cards of others


def test_the_documentation_lists_exactly_the_rules() -> None:
    text = (ROOT / "docs" / "lint.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert rows == [
        f"| `{rule.id}` | {rule.severity} | {rule.description}{' Mended by `--fix`.' if rule.is_fixable else ''} "
        f"| {rule.section} |"
        for rule in sorted(RULES.values(), key=lambda rule: list(Severity).index(rule.severity))
    ]


def test_every_real_card_is_linted(vectors: Path) -> None:
    paths = sorted((vectors / "cards" / "files").glob("*.json"))
    assert len(paths) >= 98
    for path in paths:
        for finding in lint_card(path.read_bytes()):
            card = json.loads(path.read_text(encoding="utf-8"))
            assert finding.rule != "unreadable-document", path.name
            assert not finding.pointer or at(card, finding.pointer.rpartition("/")[0]) is not None, (path.name, finding)


def test_no_real_card_is_taken_to_hold_a_secret(vectors: Path) -> None:
    for path in sorted((vectors / "cards" / "files").glob("*.json")):
        assert not rules_found(path.read_bytes()) & {"secret", "possible-secret"}, path.name
