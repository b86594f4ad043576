"""S3: a card names the address of the key that shall verify it. Whoever follows it trusts the attacker.

Seen in A2A issue 2096: ``jku`` has no rule in the specification that says whose it may be.
"""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from a2a_trust import CardVerifier, TrustStore, publish_jwks
from a2a_trust.errors import CardVerificationError, FailureReason, UntrustedCardError
from a2a_trust.keys import LocalSigner
from a2a_trust.signing import Coverage
from tests.attacks.forgery import JSONObject, b64, entry, served, signs
from tests.attacks.recording import events_outside
from tests.attacks.verifying import NOW, ORIGIN, refusal, verified
from tests.tables import walk


class KeyServer(http.server.ThreadingHTTPServer):
    """The attacker's server: it publishes his keys, and remembers who asked for them."""

    def __init__(self, document: bytes) -> None:
        self.document = document
        self.asked: list[str] = []
        super().__init__(("127.0.0.1", 0), Answer)


class Answer(http.server.BaseHTTPRequestHandler):
    disable_nagle_algorithm = True  # else each answer in two parts takes 40 ms
    server: KeyServer

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        self.send_response(200)
        self.send_header("Content-Type", "application/jwk-set+json")
        self.end_headers()
        self.wfile.write(self.server.document)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def published(mallory: LocalSigner, owner: LocalSigner) -> bytes:
    """The attacker's key, under his own kid and under the owner's."""
    own = publish_jwks([mallory.public_key])["keys"][0]
    return json.dumps({"keys": [own, {**own, "kid": owner.kid}]}).encode()


@pytest.fixture(scope="module")
def key_server(published: bytes) -> Iterator[KeyServer]:
    server = KeyServer(published)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture(params=["http", "file", "data", "text", "list"])
def jku(request: pytest.FixtureRequest, key_server: KeyServer, published: bytes, tmp_path: Path) -> object:
    """Every way to say where the attacker's keys are."""
    place = tmp_path / "jwks.json"
    place.write_bytes(published)
    return {
        "http": f"http://127.0.0.1:{key_server.server_address[1]}/jwks.json",
        "file": place.as_uri(),
        "data": f"data:application/json;base64,{b64(published)}",
        "text": published.decode(),
        "list": [f"http://127.0.0.1:{key_server.server_address[1]}/"],
    }[request.param]


@walk("where", ["protected", "unprotected"])
@walk(
    ("kid", "error", "reason"),
    [
        ("mallory", UntrustedCardError, FailureReason.UNKNOWN_KEY),
        ("owner", CardVerificationError, FailureReason.BAD_SIGNATURE),
    ],
)
def test_a_jku_is_neither_fetched_nor_trusted(
    card: JSONObject,
    payload: bytes,
    mallory: LocalSigner,
    trust: TrustStore,
    key_server: KeyServer,
    jku: object,
    where: str,
    kid: str,
    error: type[CardVerificationError],
    reason: FailureReason,
) -> None:
    header: JSONObject = {"alg": "ES256", "kid": kid, "typ": "JOSE"}
    sign = signs(mallory.private_key, "ES256")
    if where == "protected":
        forged = entry({**header, "jku": jku}, payload, sign)
    else:
        forged = entry(header, payload, sign, header={"jku": jku})
    document = served(card, forged)
    with events_outside() as events:
        refusal(error, document, trust, reason)
        refusal(error, document, trust, reason, coverage=Coverage.SIGNED_PART_ONLY)
        with pytest.raises(error):
            CardVerifier(trust, clock=lambda: NOW).verify(document, origin=ORIGIN)
    assert events == []
    assert key_server.asked == []


def test_the_owners_own_jku_is_not_followed_either(
    card: JSONObject, payload: bytes, owner: LocalSigner, trust: TrustStore, key_server: KeyServer, jku: object
) -> None:
    """Control: the same header from the owner is a good signature, by the key of the trust store."""
    header = {"alg": "ES256", "kid": "owner", "typ": "JOSE", "jku": jku}
    document = served(card, entry(header, payload, signs(owner.private_key, "ES256")))
    with events_outside() as events:
        result = verified(document, trust)
    assert (result.key, result.card) == (owner.public_key, card)
    assert (events, key_server.asked) == ([], [])


def test_control_the_watch_sees_who_does_ask(key_server: KeyServer, tmp_path: Path) -> None:
    import urllib.request

    with events_outside() as events:
        with urllib.request.urlopen(f"http://127.0.0.1:{key_server.server_address[1]}/seen") as answer:
            assert json.loads(answer.read())["keys"]
        (tmp_path / "x").write_text("x")
    assert any(event.startswith("socket.connect") for event in events)
    assert any(event.startswith("open") for event in events)
    assert key_server.asked.pop() == "/seen"
