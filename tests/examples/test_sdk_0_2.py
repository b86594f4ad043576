"""The example of a2a-sdk 0.2.16, by the commands of examples/README.md, in an environment of that version."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest

from a2a_trust.errors import TrustError
from tests.examples.readme import Typed, typed
from tests.servers.environments import python_of
from tests.serving_cards.conftest import verified

EXTENDED = "/agent/authenticatedExtendedCard"
PARAMS = {"message": {"messageId": "1", "role": "user", "parts": [{"kind": "text", "text": "hi"}]}}
CALL = {"jsonrpc": "2.0", "id": "1", "method": "message/send", "params": PARAMS}
pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Typed]:
    python = python_of("server-0.2.16")
    with typed("sdk_0_2", "9999", python, tmp_path_factory.mktemp("sdk_0_2")) as running:
        yield running


def test_the_client_of_the_sdk_prints_what_the_readme_shows(session: Typed) -> None:
    assert session.printed == session.expected != ""


@pytest.mark.parametrize("key", [None, "a2a_guessed"])
def test_a_stranger_gets_the_public_card_only(session: Typed, key: str | None) -> None:
    headers = {"X-API-Key": key} if key else {}
    with httpx.Client(base_url=session.url, headers=headers) as http:
        card = http.get("/.well-known/agent.json").raise_for_status().json()
        assert card["description"] == "Greets."
        assert card["security"] == [{"key": []}]
        assert card["securitySchemes"] == {"key": {"type": "apiKey", "in": "header", "name": "X-API-Key"}}
        assert http.get(EXTENDED).status_code == 401
        assert http.post("/", json=CALL).status_code == 401


def test_both_cards_are_signed_by_the_key_of_the_agent(session: Typed) -> None:
    jwks = (session.folder / "card.jwks.json").read_bytes()
    assert (
        httpx.get(f"{session.url}/.well-known/jwks.json").json()["keys"][0]["kid"] == json.loads(jwks)["keys"][0]["kid"]
    )
    key = (session.folder / "you.key").read_text().strip()
    public = httpx.get(f"{session.url}/.well-known/agent.json").content
    extended = httpx.get(session.url + EXTENDED, headers={"X-API-Key": key}).content
    for card, skills in ((public, 1), (extended, 2)):
        found = verified(card, jwks, session.url)
        assert (len(found["skills"]), found["security"]) == (skills, [{"key": []}])
        changed = card.replace(b"Says hello.", b"Says adieu.")
        assert changed != card
        with pytest.raises(TrustError):
            verified(changed, jwks, session.url)
