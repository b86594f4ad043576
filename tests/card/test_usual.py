"""The fast way to read a card beside the long way, which is the definition: whatever the fast one takes is the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from a2a_trust import TrustStore, generate_signer, sign_card, strict_json
from a2a_trust.card import ambiguity
from a2a_trust.card.ambiguity import UnambiguousCard, _are_usual_params, check_card
from a2a_trust.card.schema import Generation
from a2a_trust.card.usual import UsualCard, usual_card
from a2a_trust.errors import MalformedError, TrustError
from a2a_trust.signing.forms import Form, project
from tests.conftest import ROOT
from tests.signing.cards import Card, full_card
from tests.signing.json_values import canonicalizable, write
from tests.signing.making import trust_in, verify
from tests.tables import walk

SIGNATURE = {"protected": "e30", "signature": "AA"}


def usual(document: bytes) -> UsualCard | None:
    return usual_card(document, _are_usual_params)


def is_right(document: bytes) -> bool:
    """Whether the fast way takes the document; then the long way takes it, too, and reads the same."""
    found = usual(document)
    if found is None:
        return False
    card = strict_json.parse(document, what="card")  # with every check of the reader
    assert check_card(card) is True
    long = UnambiguousCard(document)
    assert (long.generation, long.has_one_form) == (Generation.V1_0, True)
    assert found.payload == project(card, Form.SERVED).payload
    assert found.payload == project(card, Form.SPEC).payload == project(card, Form.PRUNED).payload
    assert (found.signatures, found.interfaces) == (long.signatures, long.interfaces)
    assert found.is_plain <= long.is_plain
    fast = UnambiguousCard(document, found)
    if fast.is_printed_alike:
        assert found.payload == project(card, Form.PRUNED_LEGACY).payload
    assert fast.card == card
    assert json.dumps(fast.card) == json.dumps(card)  # in the same order
    return True


def card() -> Card:
    return {**full_card(), "signatures": [SIGNATURE, {"protected": "e31", "signature": "AB"}]}


@walk(
    "spelled",
    [
        lambda card: json.dumps(card),
        lambda card: json.dumps(card, separators=(",", ":")),
        lambda card: json.dumps(card, indent=2),
        lambda card: json.dumps(card, indent="\t", sort_keys=True).replace("\n", "\r\n"),
        lambda card: f" \n{json.dumps(card, ensure_ascii=False)}\t ",
        lambda card: json.dumps(card).replace("Invoice", "Inv\\u006fice").replace("/", "\\/"),
        lambda card: json.dumps({**card, "description": 'Says "hello", \\ and \b\f\n\r\t\x00\x1f\x7f\u2028 é 🚢'}),
        lambda card: json.dumps({**card, "description": "\ud83d\ude00"}, ensure_ascii=True),
        lambda card: json.dumps({key: card[key] for key in reversed(card)}),
    ],
)
def test_a_usual_card_is_taken_however_it_is_spelled(spelled: Callable[[Card], str]) -> None:
    assert is_right(spelled(card()).encode())


@walk(
    ("changes", "is_alike"),
    [({}, True), ({"description": "é"}, False), ({"description": "\x7f"}, False), ({"description": "\x00\n"}, True)],
)
def test_older_sdks_print_most_usual_cards_alike(changes: Card, is_alike: bool) -> None:
    given = card()
    del given["capabilities"]["extensions"]
    given |= changes
    document = json.dumps({**given, "securitySchemes": {"k": card()["securitySchemes"]["bearer"]}}).encode()
    found = UnambiguousCard(document, usual(document))
    assert (found.payload is not None, found.is_printed_alike) == (True, is_alike)
    assert is_right(document)
    assert UnambiguousCard(document).is_printed_alike is False  # the long way knows nothing of it


PARAMS: list[Any] = [
    {"n": 1}, {"n": -0.0, "m": 1e21, "o": 0.00025, "p": [17.5, 12.0]}, {"deep": [[{"a": ["x"]}]]}, {"é": "ü", "a": True}
]  # fmt: skip


@walk("params", PARAMS, ids=repr)
def test_params_are_read_by_the_definition(params: Any) -> None:
    given = card()
    given["capabilities"]["extensions"][0]["params"] = params
    assert is_right(json.dumps(given).encode())
    found = usual(json.dumps(given).encode())
    assert found is not None
    assert not found.is_plain


@walk(
    "text",
    [
        '{"n": 1, "n": 1}', '{"n": {"m": 1, "m": 2}}', '{"n": null}', '{"n": ""}', '{"n": []}', '{"n": {}}', "{}", "[]",
        '{"__proto__": 1}', '{"n": [{"__proto__": 1}]}', '{"n": 1e999}', '{"n": NaN}', '{"n": "\\ud800"}', '{"n": 01}',
        *('{"n": ' * depth + "1" + "}" * depth for depth in (125, 126, 127, 128)),
        '{"😀": 1, "\uffff": 2}', "[" * 200 + "]" * 200, '{"n": ' + '{"n": ' * 130 + "1" + "}" * 131, "1", "null",
    ],
    ids=lambda text: text[:24],
)  # fmt: skip
def test_other_params_are_left_to_the_definition(text: str) -> None:
    given = card()
    given["capabilities"]["extensions"][0]["params"] = "HERE"
    document = json.dumps(given).replace('"HERE"', text).encode()
    assert not is_right(document)


NOT_QUITE = (
    ('"name": "Invoice Agent"', '"name": "Invoice Agent", "name": "Invoice Agent"'),
    ('"name": "Invoice Agent"', '"name": "Other", "name": "Invoice Agent"'),
    ('"name": "Invoice Agent"', '"name": "Invoice Agent", "n\\u0061me": "Other"'),
    ('"name": "Invoice Agent"', '"name": "\\u0022Invoice\\u0022", "name": "\\u0022"'),
    ('"name": "Invoice Agent"', '"name": "\\u0022\\u0022Invoice Agent"'),
    ('"name": "Invoice Agent"', '"name": "Other", "name": "\\u0022\\u0022\\u0022\\u0022"'),  # as many marks
    ('"name": "Invoice Agent"', '"name": "Invoice Agent", "signatures": []'),
    ('"name": "Invoice Agent"', '"name": null'),
    ('"name": "Invoice Agent"', '"name": ""'),
    ('"name": "Invoice Agent", ', ""),
    ('"name": "Invoice Agent"', '"name": "\\ud800"'),
    ('"name": "Invoice Agent"', '"name": 1'),
    ('"name": "Invoice Agent"', '"Name": "Invoice Agent"'),
    ('"name": "Invoice Agent"', '"name": "Invoice Agent", "x-vendor": 1'),
    ('"e30"', '"e30", "header": {"n": 1}'),
    ('"e30"', '"e\\"0"'),
    ('"e30"', '"e30", "protected": "e30"'),
    ('"required": true', '"required": false'),
    ('"location": "header"', '"location": "header", "location": "query"'),
    ('"Bearer": {"apiKey', '"__proto__": {"apiKey'),
    ('"apiKeySecurityScheme": {', '"mtlsSecurityScheme": {"description": "x"}, "apiKeySecurityScheme": {'),
)


def test_a_card_that_is_not_quite_usual_is_left_to_the_definition() -> None:
    document = json.dumps(card())
    for old, new in NOT_QUITE:
        assert old in document, old
        assert not is_right(document.replace(old, new, 1).encode("utf-8", "surrogatepass")), new
    for broken in (f"\ufeff{document}", f"{document} 1", document[:-1], f"[{document}]", ""):
        assert not is_right(broken.encode())
    assert not is_right(document.encode("utf-16"))
    assert not is_right(document.replace("Invoice", "\xff").encode("latin-1"))
    assert not is_right(document.encode().replace(b"Invoice", b"\xed\xa0\x80"))
    assert not is_right(json.dumps({**card(), "description": "x" * strict_json.MAX_BYTES}).encode())
    assert is_right(document.encode())


PIECES = [
    *(b'"', b"\\", b"\\u0022", b"\\u005c", b"\\ud800", b"\\ud83d\\ude00", b"{}", b"[]", b'""', b"null", b"false"),
    *(b"true", b"0", b"1.5", b"1e999", b"{", b"}", b"[", b"]", b",", b":", b" ", b"\n", b"\x00", b"\xff"),
    *(b"\xed\xa0\x80", b"\xf0\x9f\x98\x80", b"\xef\xbf\xbf", b"\xc3\xa9", b"\xef\xbb\xbf"),
    *(b'"name":"x",', b'"signatures":[],'),
    *(b'"params":{"a":1},', b'"__proto__":"x",', b'"list":["x"],', b'"protected":"x",', b'"security":[],'),
    *(b'"supported_interfaces":[],', b'"Name":"x",', b'"required":false,', b'"streaming":false,'),
]  # fmt: skip


def _changed(document: bytes, random: Random) -> bytes:
    """A few changes of the text: pieces put in, parts cut out, copied or exchanged."""
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        at = random.randrange(len(document) + 1)
        if random.random() < 0.6:  # where a member or a value begins
            at = max(document.rfind(random.choice((b'{"', b',"', b'":', b"[")), 0, at), 0) + random.randrange(3)
        to = min(len(document), at + random.choice((0, 0, 1, 2, 5, 20)))
        kind = random.randrange(3)
        piece = random.choice(PIECES) if kind == 0 else document[at:to] if kind == 1 else b""
        document = document[:at] + piece + document[to if kind != 1 else at :]
    return document


@given(st.randoms(use_true_random=False))
def test_no_change_of_the_text_makes_the_two_ways_differ(random: Random) -> None:
    text = write(card(), random) if random.random() < 0.5 else json.dumps(card(), separators=(",", ":"))
    for _ in range(20):
        is_right(_changed(text.encode("utf-8", "surrogatepass"), random))


@given(st.data(), canonicalizable)
def test_no_value_in_any_place_makes_the_two_ways_differ(data: st.DataObject, value: Any) -> None:
    given = card()
    place: Any = given
    while True:
        key = data.draw(st.sampled_from(list(place) if type(place) is dict else list(range(len(place)))))
        if type(place[key]) not in (dict, list) or not place[key] or data.draw(st.booleans()):
            break
        place = place[key]
    place[key] = value
    is_right(json.dumps(given).encode())


@given(canonicalizable)
@example({"a": [1.5, {"b": "\U0001f600"}]})
def test_any_params_are_the_same_on_both_ways(value: Any) -> None:
    given = card()
    given["capabilities"]["extensions"][0]["params"] = {"value": value}
    is_right(json.dumps(given).encode())


def test_a_signed_card_and_each_change_of_it_have_the_same_end_without_the_fast_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    signer = generate_signer(kid="k")
    trust = trust_in(signer)
    document = json.dumps(sign_card(full_card(), signer).card)
    changed = [document, document.replace("Invoice", "Inv\\u006fice", 1), f" {document}\n"]
    changed += [document.replace(f'"{name}"', f'"{name}x"', 1) for name in json.loads(document)]
    changed += [document.replace(old, new, 1) for old, new in NOT_QUITE]
    changed += [document[: len(document) * part // 20] for part in range(20)]
    fast = [_end(each, trust) for each in changed]
    asked: list[bytes] = []
    monkeypatch.setattr(ambiguity, "_usual", asked.append)
    assert [_end(each, trust) for each in changed] == fast
    assert len(asked) >= len(changed) - 1
    verified = [each for each, end in zip(changed, fast, strict=True) if end == "verified"]
    assert verified[:3] == changed[:3]
    assert len(verified) < len(changed) / 2


def _end(document: str, trust: TrustStore) -> str:
    try:
        verify(document.encode("utf-8", "surrogatepass"), trust)
    except TrustError as error:
        return f"{type(error).__name__}: {error}"
    return "verified"


@pytest.mark.long
def test_attacks_and_vectors_have_the_same_end_without_the_fast_way() -> None:
    """The plugin takes the fast way out, for tests that otherwise go through it."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "tests.card.long_way"),
            *map(str, sorted((ROOT / "tests" / "attacks").glob("test_s*.py"))),
            *("tests/attacks/test_any_change.py", "tests/signing/test_verify.py", "tests/conformance"),
        ],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert "the fast way was asked, and knew nothing" in done.stdout


def test_the_long_way_refuses_what_it_always_refused() -> None:
    with pytest.raises(MalformedError, match="appears more than once"):
        UnambiguousCard(b'{"name": "x", "name": "y"}')
