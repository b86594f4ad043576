"""Decisions about requests, as tables: values in, values out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from a2a_trust import CardVerificationError, FetchError, MalformedError, TrustError
from a2a_trust.card.view import read_card
from a2a_trust.client.answer import Answer
from a2a_trust.client.decisions import (
    Again,
    Purpose,
    RejectingReply,
    cards_in,
    check_head,
    no_card_names,
    once_more,
    place_of,
    purpose_of,
    unite,
)
from a2a_trust.client.destinations import Destination
from a2a_trust.client.messages import Reply, Request
from a2a_trust.errors import UnsignedCardError
from tests.client.agents import card_of
from tests.tables import walk

AGENT = "https://agent.example"
CALL = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "GetExtendedAgentCard"}).encode()


class Lines(dict[str, str]):
    """Headers with one line for each name."""

    def get_list(self, key: str) -> list[str]:
        return [self[key]] if key in self else []


def request(method: str = "GET", path: str = "/rpc", body: bytes | None = b"", **headers: str) -> Request:
    return Request(method=method, url=f"{AGENT}{path}", headers=headers, timeout={}, body=body)


@walk(
    ("asked", "purpose"),
    [
        (request(path="/.well-known/agent-card.json"), Purpose.CARD),
        (request(path="/a/.well-known/agent.json?x=1#y"), Purpose.CARD),
        (request("POST", "/.well-known/agent-card.json"), Purpose.CARD),
        (request(path="/?to=/.well-known/agent-card.json"), Purpose.CARD),
        (request(path="/cards/one?x=1"), Purpose.CARD),
        (request(path="/cards/two"), None),
        (request("HEAD", "/.well-known/agent-card.json"), None),
        (request("OPTIONS", "/.well-known/agent-card.json"), None),
        (request(path="/rest/extendedAgentCard"), Purpose.EXTENDED),
        (request("PUT", "/rest/extendedAgentCard"), None),
        (request("POST", body=CALL), Purpose.CALL),
        (request("POST", body=b"[1, %b]" % CALL), Purpose.CALL),
        (request("PUT", body=CALL), None),
        (request("POST", body=CALL, **{"content-type": "text/plain"}), None),
        (request("POST", body=CALL[:-1]), None),
        (request("POST", body=b"{}"), None),
        (request("POST", body=None), None),
    ],
)
def test_the_purpose_of_a_request(asked: Request, purpose: Purpose | None) -> None:
    assert purpose_of(asked, frozenset({f"{AGENT}/cards/one"})) is purpose


@walk(
    ("url", "place"),
    [
        (f"{AGENT}/cards/one/?x=1", f"{AGENT}/cards/one"),
        ("HTTPS://Agent.Example:443/a%7eb", f"{AGENT}/a~b"),
        (f"{AGENT}/a/%2e%2e/b?x", f"{AGENT}/a/%2e%2e/b?x"),  # it has no place
    ],
)
def test_the_place_of_a_url(url: str, place: str) -> None:
    assert place_of(url) == place


def test_the_cards_in_an_answer() -> None:
    assert cards_in(b'{"result": {"a": 1}}') == [{"a": 1}]
    assert cards_in(b'[{"result": {"a": 1}}, {"error": {}}, {"result": {"b": 2}}]') == [{"a": 1}, {"b": 2}]
    for body in (b"[]", b"{}", b"[1]", b'{"result": 1}', b'{"result": {}, "error": {}}', b"["):
        with pytest.raises(MalformedError):
            cards_in(body)


@walk(
    ("status", "headers"),
    [
        (302, {}),
        (304, {}),
        (199, {}),
        (200, {"content-encoding": "gzip"}),
        (200, {"content-type": "application/json; charset=utf-16"}),
        (200, {"content-type": "application/json; charset*=utf-7''utf-7"}),
    ],
)
def test_an_answer_that_is_not_a_whole_card(status: int, headers: dict[str, str]) -> None:
    with pytest.raises(MalformedError):
        check_head(Reply(status=status, headers=Lines(headers), handle=None))


@walk("headers", [{}, {"content-type": 'application/json; charset="UTF-8"'}, {"content-encoding": " Identity "}])
def test_control_an_answer_that_is_one(headers: dict[str, str]) -> None:
    check_head(Reply(status=200, headers=Lines(headers), handle=None))


@walk(
    ("outcome", "kind", "also"),
    [
        ("status 404", FetchError, True),
        (FetchError("no answer"), FetchError, True),
        (UnsignedCardError("it is not signed"), CardVerificationError, False),
    ],
)
def test_a_search_in_vain_names_the_option_that_admits_the_request(
    outcome: str | TrustError, kind: type[TrustError], also: bool
) -> None:
    refusal = no_card_names(Destination.of(f"{AGENT}/rpc?key=secret"), [(f"{AGENT}/card?key=secret", outcome)])
    assert type(refusal) is kind
    assert (f"also=['{AGENT}']" in str(refusal)) is also
    assert f"cards={{'{AGENT}/rpc': " in str(refusal)
    assert "secret" not in str(refusal)
    assert refusal.__cause__ is (outcome if isinstance(outcome, TrustError) else None)


@walk(
    ("status", "challenge", "tried", "expected"),
    [
        (401, "", (), Again.WITH_OTHER_VALUES),
        (401, "", (Again.WITH_OTHER_VALUES,), None),
        (401, 'DPoP error="use_dpop_nonce"', (), Again.WITH_OTHER_VALUES),  # no credential has proofs
        (403, "", (), None),
        (403, 'Bearer error="insufficient_scope", scope="more"', (), None),  # no credential may step up
        (403, 'Bearer error="insufficient_scope", scope="more"', (Again.WITH_MORE_SCOPES,), None),
    ],
)
def test_why_a_request_is_sent_once_more(status: int, challenge: str, tried: Any, expected: Again | None) -> None:
    reply = Reply(status=status, headers=Lines({"WWW-Authenticate": challenge, "DPoP-Nonce": "n"}), handle=None)
    view = read_card(card_of(AGENT))
    rejection = RejectingReply(view=view, demands=(), answer=Answer(), values=[], request=request(), reply=reply)
    assert once_more(rejection, {}, tried) == (expected, {})


def test_scopes_are_united_by_scheme() -> None:
    one, two = {"a": frozenset("x"), "b": frozenset("y")}, {"b": frozenset("z")}
    assert unite(one, two) == {"a": {"x"}, "b": {"y", "z"}}
