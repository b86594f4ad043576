"""Cards in JSON Lines: what a line may say, and the verification of lines as a function of its arguments."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from a2a_trust.base import strict_json
from a2a_trust.errors import ConfigurationError, MalformedError
from a2a_trust.keys.signer import generate_signer
from a2a_trust.keys.trust.origins import OriginFromCard, UnsafeAnyOrigin
from a2a_trust.signing.lines import MAX_LINE_BYTES, CardLine, read_line, verify_lines
from a2a_trust.signing.sign import sign_card
from a2a_trust.signing.verify import verify_card
from tests.signing.json_values import canonicalizable
from tests.signing.making import NOW, served, trust_in
from tests.signing.test_many import card
from tests.tables import walk

ALICE = generate_signer(kid="alice")
SIGNED = json.dumps(sign_card(card(0), ALICE).card)
HOST = "agent-0.agents.example.com"


def trust_text(*hosts: str) -> str:
    jwk = ", ".join(f"{name} = {json.dumps(value)}" for name, value in ALICE.public_key.to_jwk().items())
    return f"version = 1\n[[trust]]\norigins = {json.dumps(hosts)}\njwk = {{ {jwk} }}\n"


TRUST = trust_text("*.agents.example.com")


@walk(
    ("line", "expected"),
    [
        ('{"name": "a"}', CardLine(b'{"name": "a"}')),
        ('{"card": {"name": "a"}}', CardLine(b'{"name": "a"}', is_card=False)),
        (
            '{"origin":"https://a.example.com","name":"x y","card":{ "a" : 1 }}',
            CardLine(b'{ "a" : 1 }', "x y", "https://a.example.com", is_card=False),
        ),
        ('{"card": 1, "name": "\\u00e9"}', CardLine(b"1", "é", is_card=False)),
        ('{"c\\u0061rd": {}}', CardLine(b"{}", is_card=False)),
    ],
)
def test_a_line_is_a_card_or_has_one(line: str, expected: CardLine) -> None:
    assert read_line(line.encode()) == expected
    assert json.loads(expected.with_card(b'{"new": 1}')) == (
        {"new": 1} if expected.is_card else {**json.loads(line), "card": {"new": 1}}
    )


@walk(
    ("line", "what"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ('{"\ud800": {}}', "is not UTF-8"),
        ("[]", "line: not a JSON object; write one card in each line"),
        ('"card"', "not a JSON object"),
        ('{"card": {}} {}', "not JSON"),
        ('{"card": {}, "url": "https://a.example.com"}', "'url' beside card"),
        ('{"card": {}, "card": {}}', "a member that occurs twice"),
        ('{"origin": "a.example.com", "card": {}, "origin": "b.example.com"}', "a member that occurs twice"),
        ('{"origin": "a.example.com", "card": {}, "\\u006frigin": "b.example.com"}', "a member that occurs twice"),
        ('{"card": {}, "origin": 1}', "origin must be a string"),
        ('{"card": {}, "origin": ""}', "origin must be a string that is not empty"),
        ('{"card": {}, "origin": null}', "origin must be a string"),
        ('{"card": {}, "origin": "a b"}', "line: origin: "),
        ('{"card": {}, "origin": "https://[::ffff:192.0.2.1]"}', "line: origin: "),
        ('{"card": {}, "name": "\\ud800"}', "surrogate"),
        ("[" * 100_000, "line"),
        ('{"a":' * 100_000, "line"),
        ('{"card": "' + "x" * MAX_LINE_BYTES + '"}', "longer than"),
    ],
)
def test_any_other_line_is_refused(line: str, what: str) -> None:
    with pytest.raises(MalformedError) as refused:
        read_line(line.encode("utf-8", "surrogatepass"))
    assert what in str(refused.value)


@given(st.lists(st.tuples(st.sampled_from(["name", "origin", "card", "Card", 'c"ard']), canonicalizable), max_size=5))
@example([("card", {"a": 'quotes " and \\" more'}), ("name", 'a "b"')])
def test_a_line_is_read_as_the_strict_reader_reads_it(members: list[tuple[str, Any]]) -> None:
    text = f"{{{','.join(f'{json.dumps(name)}: {json.dumps(value)}' for name, value in members)}}}".encode()
    try:
        line = read_line(text)
    except MalformedError:
        return
    names = [name for name, _ in members]
    if line.is_card:
        assert "card" not in names
        assert line.card == text
        return
    read = strict_json.parse(text)
    assert set(read) <= {"card", "name", "origin"}
    assert strict_json.parse(line.card) == read["card"]
    assert (line.name, line.origin) == (read.get("name"), read.get("origin"))


def test_lines_become_reports_in_their_order() -> None:
    lines: list[str | bytes] = [
        f'{{"name": "one", "origin": "https://{HOST}", "card": {SIGNED}}}\n',
        "\n",
        f'{{"origin": "https://{HOST}", "card": {json.dumps(card(0))}}}'.encode(),
        f'{{"name": "three", "origin": "other.example.com", "card": {SIGNED}}}',
        SIGNED,
        "x",
    ]
    reports = [json.loads(report) for report in verify_lines(lines, TRUST, now=NOW)]
    assert [(report["name"], report["ok"], report.get("code")) for report in reports] == [
        ("one", True, None),
        (None, False, "unsigned"),
        ("three", False, "untrusted"),
        (None, False, "malformed"),
        (None, False, "malformed"),
    ]
    verified = verify_card(served(json.loads(SIGNED)), trust_in(ALICE), origin=HOST, now=NOW)
    assert reports[0]["card"] == verified.card
    assert (reports[0]["origin"], reports[0]["kid"], reports[0]["form"]) == (HOST, "alice", "spec")
    assert reports[2]["failures"][0]["reason"] == "wrong-origin"
    assert "origin=OriginFromCard()" in reports[3]["message"]


def test_an_argument_may_say_where_the_other_cards_are_from() -> None:
    for origin, bound in ((OriginFromCard(), HOST), (UnsafeAnyOrigin(), None)):
        (report,) = map(json.loads, verify_lines([SIGNED], TRUST, origin=origin, now=NOW))
        assert (report["ok"], report["origin"]) == (True, bound)
    (report,) = map(json.loads, verify_lines([SIGNED], trust_text("other.example.com"), origin=OriginFromCard()))
    assert (report["ok"], report["code"]) == (False, "untrusted")


@pytest.mark.parametrize("where", ['keys = "keys.json"', 'jwks_url = "https://example.com/keys.json"'])
def test_a_trust_document_that_names_other_places_is_refused(where: str) -> None:
    text = f'version = 1\n[[trust]]\norigins = ["example.com"]\n{where}\n'
    with pytest.raises(ConfigurationError, match="it names key files or URLs"):
        verify_lines([SIGNED], text)


def test_a_wrong_trust_document_is_an_error_even_without_lines() -> None:
    with pytest.raises(ConfigurationError):
        verify_lines([], "version = 2")
