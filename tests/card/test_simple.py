"""The quick reader of cards beside the definition: whatever the quick one takes is the same."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from random import Random
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_trust import TrustStore, generate_signer, sign_card
from a2a_trust.base import strict_json
from a2a_trust.card import simple as module
from a2a_trust.card.ambiguity import Reader, UnambiguousCard, _are_simple_params, read_quickly
from a2a_trust.card.simple import SimpleCard, read_simple_card
from a2a_trust.errors import TrustError
from a2a_trust.signing.forms import Form, pointers_of, project
from a2a_trust.signing.verify import verify_document
from tests.signing.cards import Card, cards, full_card
from tests.signing.json_values import canonicalizable, write
from tests.signing.making import ANYWHERE, NOW, signed_in, trust_in, verify
from tests.tables import walk

SIGNATURE = {"protected": "e30", "signature": "AA"}


def usual(document: bytes) -> SimpleCard | None:
    return read_simple_card(document, _are_simple_params)


def is_right(document: bytes) -> bool:
    """Whether the quick way takes the document; then the definition takes it, too, and reads the same."""
    found = usual(document)
    if found is None:
        return False
    long, quick = UnambiguousCard(document), UnambiguousCard(document, found)
    assert (quick.generation, quick.has_one_form) == (long.generation, long.has_one_form)
    assert (quick.signatures, quick.interfaces) == (long.signatures, long.interfaces)
    assert quick.is_plain <= long.is_plain
    spec = project(long.card, Form.SPEC)
    assert (quick.payload, pointers_of(quick.dropped)) == (spec.payload, spec.dropped)
    for form in (Form.SERVED, Form.PRUNED) if quick.has_one_form else ():
        assert quick.payload == project(long.card, form).payload
    if quick.has_one_form and quick.is_printed_alike:
        assert quick.payload == project(long.card, Form.PRUNED_LEGACY).payload
    for form in (Form.PRUNED, Form.PRUNED_LEGACY):
        made, wanted = project(quick.card, form, simple=True), project(long.card, form)
        assert (made.payload, made.dropped, made.uncovered) == (wanted.payload, wanted.dropped, wanted.uncovered)
    assert json.dumps(quick.card) == json.dumps(long.card)  # in the same order, too
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


@walk(
    ("changes", "is_taken"),
    [
        ({"capabilities": {}}, True),
        ({"securityRequirements": [{"schemes": {"a/~b": {"list": []}, "b": {}, "c": {"list": ["x"]}}}]}, True),
        ({"securityRequirements": [{"schemes": {"b": {"list": []}}}, {"schemes": {"a": {"list": []}}}]}, True),
        ({"securitySchemes": {"a": {"mtlsSecurityScheme": {}}}}, False),
        ({"description": "a \\ b", "capabilities": {}}, True),
        ({"description": ":{}", "capabilities": {}}, True),
        ({"description": ":[]"}, True),
        ({"securityRequirements": [{"schemes": {"{}": {"list": ["[]", ":{}"]}}}], "capabilities": {}}, True),
        ({"description": '":{}', "capabilities": {"streaming": True}}, True),
        ({"capabilities": {"extensions": [{}]}}, False),
        ({"capabilities": {"extensions": [{"description": "no uri"}]}}, False),
        ({"securitySchemes": {"a": {"oauth2SecurityScheme": {"flows": {"implicit": {}}}}}}, False),
        ({"securitySchemes": {"a": {"oauth2SecurityScheme": {"flows": {"password": {}}}}}}, False),
        ({"securityRequirements": [{}]}, False),
        ({"securityRequirements": [{"schemes": {}}]}, False),
        ({"securityRequirements": []}, False),
        ({"securityRequirements": [{"schemes": {"a": {"list": [""]}}}]}, False),
        ({"defaultInputModes": []}, False),
        ({"skills": [{**full_card()["skills"][0], "securityRequirements": [{"schemes": {"a": {"list": []}}}]}]}, False),
        ({"skills": [{**full_card()["skills"][0], "securityRequirements": [{"schemes": {"a": {}}}]}]}, False),
        ({"skills": [{**full_card()["skills"][0], "securityRequirements": [{}]}]}, False),
    ],
    ids=repr,
)
def test_messages_and_lists_of_scopes_may_be_empty(changes: Card, is_taken: bool) -> None:
    assert is_right(json.dumps({**card(), **changes}).encode()) is is_taken


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


HEADERS: tuple[Any, ...] = (1e999, 10**400, {}, "x", [[1]])


@walk(
    "signatures",
    [
        *(None, {}, "x", 1, [None], [[]], ["x"], [1], [SIGNATURE, 1], [{"protected": "e30"}], [{}]),
        *(
            [{"protected": "e30", "signature": 1}],
            [{"protected": 1, "signature": "AA"}],
            [{"protected": "a", "x": "b"}],
        ),
        *([{**SIGNATURE, "header": value}] for value in HEADERS),
    ],
    ids=repr,
)
def test_each_signature_has_two_texts(signatures: Any) -> None:
    assert not is_right(json.dumps({**full_card(), "signatures": signatures}).encode())
    for number in range(3):
        assert is_right(json.dumps({**full_card(), "signatures": [SIGNATURE] * number}).encode())


ODD: tuple[Any, ...] = (
    *(["x", ""], ["", "x"], {"k": "x", "l": ""}, {"k": "x", "l": None}, ["x", None]),
    *(None, 0, 1.5, True, False, "", "x", [], {}, [""], ["x"], [1], [None], [["x"]], [{}], {"k": "x"}, {"k": ""}),
    *({"k": 1}, {"k": None}, {"k": ["x"]}, {"k": {}}, {"": "x"}, {"\u00e9": "x"}, {"\U0001f600": {"list": ["x"]}}),
    *([{"url": "x", "protocolBinding": "x"}], [{"protected": "e30", "signature": "AA", "header": {"n": 1.5}}]),
    *([{"protected": "e30", "signature": 1}], [{"protected": "e30"}], [{"protected": "e30", "x": "y"}], {"a": [1.0]}),
)


def changed_everywhere(card: Card) -> Iterator[None]:
    """Each odd value in each place of the card, one after the other."""
    stack: list[Any] = [card]
    while stack:
        container = stack.pop()
        keys = list(container) if type(container) is dict else list(range(len(container)))
        stack += [child for child in (container[key] for key in keys) if type(child) in (dict, list)]
        more = ["streaming", "x-vendor", "params", "required", "type", "icon_url", "Name"]
        for key in [*keys, *more] if type(container) is dict else keys:
            kept = copy.copy(container)
            for odd in ODD:
                container[key] = copy.deepcopy(odd)
                yield
            container.clear()
            container.update(kept) if type(container) is dict else container.extend(kept)


@pytest.mark.long
def test_no_odd_value_in_any_place_makes_the_two_ways_differ() -> None:
    given: Card = card()
    taken = [is_right(json.dumps(given).encode()) for _ in changed_everywhere(given)]
    assert len(taken) > 200 * len(ODD)
    assert sum(taken) > 50


PIECES = [
    *(b'"', b"\\", b"\\u0022", b"\\u005c", b"\\ud800", b"\\ud83d\\ude00", b"{}", b"[]", b'""', b"null", b"false"),
    *(b"true", b"0", b"1.5", b"1e999", b"{", b"}", b"[", b"]", b",", b":", b" ", b"\n", b"\x00", b"\xff"),
    *(b"\xed\xa0\x80", b"\xf0\x9f\x98\x80", b"\xef\xbf\xbf", b"\xc3\xa9", b"\xef\xbb\xbf"),
    *(b'"name":"x",', b'"signatures":[],', b'"list":[],', b'"list":[]', b'"capabilities":{},'),
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


@given(st.randoms(use_true_random=False), cards, st.data(), canonicalizable)
def test_no_change_makes_the_two_ways_differ(random: Random, other: Card, data: st.DataObject, value: Any) -> None:
    """Changes of the text of a card, any card, and any value in any place of a card."""
    given: Card = card()
    shown = given if random.random() < 0.5 else {**given, "capabilities": {"streaming": True}}  # without numbers
    text = write(shown, random) if random.random() < 0.5 else json.dumps(shown, separators=(",", ":"))
    for _ in range(20):
        is_right(_changed(text.encode("utf-8", "surrogatepass"), random))
    is_right(json.dumps(other).encode())
    place: Any = given
    while True:
        key = data.draw(st.sampled_from(list(place) if type(place) is dict else list(range(len(place)))))
        if type(place[key]) not in (dict, list) or not place[key] or data.draw(st.booleans()):
            break
        place = place[key]
    place[key] = value
    is_right(json.dumps(given).encode())
    with_params: Card = card()
    with_params["capabilities"]["extensions"][0]["params"] = {"value": value}
    is_right(json.dumps(with_params).encode())


def test_a_signed_card_and_each_change_of_it_have_the_same_end_on_both_ways() -> None:
    signer = generate_signer(kid="k")
    trust = trust_in(signer)
    scopeless = {**full_card(), "securityRequirements": [{"schemes": {"bearer": {"list": []}}}], "capabilities": {}}
    document = json.dumps(sign_card(full_card(), signer).card)
    signed = sign_card(scopeless, signer)
    plain = json.dumps({**scopeless, "signatures": signed.card["signatures"]})  # as a server may send it
    changed = [document, document.replace("Invoice", "Inv\\u006fice", 1), f" {document}\n", plain]
    changed += [json.dumps(signed_in(scopeless, form, signer)) for form in (Form.SERVED, Form.SPEC, Form.PRUNED)]
    changed += [document.replace(f'"{name}"', f'"{name}x"', 1) for name in json.loads(document)]
    changed += [document.replace(old, new, 1) for old, new in NOT_QUITE]
    changed += [document[: len(document) * part // 20] for part in range(20)]
    ends = [_end(each, trust, UnambiguousCard) for each in changed]
    assert [_end(each, trust, read_quickly) for each in changed] == ends
    assert [end.startswith("verified") for end in ends[:7]] == [*[True] * 6, False]
    assert "/securityRequirements/0/schemes/bearer/list" in ends[3]
    assert sum(end.startswith("verified") for end in ends) < len(changed) / 2


def _end(document: str, trust: TrustStore, read: Reader) -> str:
    try:
        verified = verify_document(document.encode("utf-8", "surrogatepass"), trust, ANYWHERE, NOW, read=read)
    except TrustError as error:
        return f"{type(error).__name__}: {error}"
    return f"verified {verified.payload!r} {verified.dropped}"


def test_programs_read_the_first_card_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who calls decides, not how many cards were read: tests/cli/test_startup.py has the commands for one card."""
    signer = generate_signer()
    document = json.dumps(sign_card(full_card(), signer).card).encode()
    reading = Mock(side_effect=read_simple_card)
    monkeypatch.setattr("a2a_trust.card.ambiguity._simple_reader", lambda: reading)
    verify(document, trust_in(signer))
    reading.assert_called_once()


def test_no_text_of_a_card_is_shorter_than_the_printed_one() -> None:
    """``read_simple_card`` relies on it: a document as long as its print has no member twice, and none at a default."""
    letters = [chr(point) for point in range(0x110000) if not 0xD800 <= point < 0xE000]
    raw = "".join(letter for letter in letters if letter >= " " and letter not in '"\\')
    escaped = "".join(letter for letter in letters if letter not in raw[:1000] and letter < "\x7f")
    assert len(raw) + len(escaped) == len(letters)
    assert len(module._encode(raw)) == len(raw.encode()) + 2
    assert len(module._encode(escaped)) == len(json.dumps(escaped)) == 2 * 7 + 6 * 27 + 2


@walk(
    ("old", "new"),
    [
        ('"name":"', '"name":"x","name":"'),
        ('"description":"', '"description":"","description":"'),
        ('"uri":"x:y"', '"uri":"x:y","required":false'),
        ('"version":"', '"version":"0","version":"'),
        ('{"protected":"e30"', '{"protected":"e30","protected":"e30"'),
    ],
    ids=range(5),
)
def test_a_printed_card_with_one_more_member_is_not_simple(old: str, new: str) -> None:
    plain: Card = {**card(), "capabilities": {"streaming": True, "extensions": [{"uri": "x:y"}]}}
    document = json.dumps(plain, separators=(",", ":"), ensure_ascii=False)
    found = usual(document.encode())
    assert found is not None
    assert len(document.encode()) == len(found.payload) + module._length(found.signatures)
    assert document.count(old) > 0
    assert usual(document.replace(old, new, 1).encode()) is None


THREADS = """
import sys
from threading import Barrier, Thread
from a2a_trust.card import simple

document, start, read = sys.stdin.buffer.read(), Barrier(12), []
sys.setswitchinterval(1e-6)

def read_first() -> None:
    start.wait()
    read.append(simple.read_simple_card(document, lambda _: True) is not None)

for _ in range(100):
    simple._decoder.cache_clear()
    simple._struct.cache_clear()
    threads = [Thread(target=read_first) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print(read.count(True))
"""


def test_threads_that_read_their_first_card_at_once_do_not_crash_the_process() -> None:
    """msgspec crashes when two threads make a decoder for one Struct at once."""
    done = subprocess.run([sys.executable, "-c", THREADS], input=json.dumps(card()).encode(), capture_output=True)
    assert (done.returncode, done.stdout) == (0, b"1200\n"), done.stderr
