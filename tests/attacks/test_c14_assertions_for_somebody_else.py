"""C14: an identity provider, or who holds its answers, makes a client hand one server an assertion for another.

The agent's server could use what it gets: an assertion for another server, the caller's own token, or more scopes than
the caller gave. The provider here is the attacker, so nothing of its answer is taken as it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from a2a_trust.client import OAuthClient
from a2a_trust.client.flow import run
from a2a_trust.errors import FetchError, TokenRequestError, TrustError
from tests.base.net.test_fetcher import Authority
from tests.client.agents import Page, serving_agent
from tests.client.test_identity_assertion import CHAT, ID_JAG, Two, token_of
from tests.client.test_oauth import NONE, Clock, form_of, given
from tests.tables import walk


@pytest.fixture
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    authority = Authority(tmp_path_factory.mktemp("authority"))
    tls = authority.server("127.0.0.1")
    with serving_agent(tls) as provider, serving_agent(tls) as server:
        both = Two(provider, server, authority, {}, Clock())
        provider.pages["/token"] = both.assertion
        server.pages["/token"] = given()
        yield both


ANSWERS: list[dict[str, Any]] = [
    {"aud": "https://bank.example"},
    {"aud": ["https://bank.example", "SERVER"]},
    {"aud": ["SERVER", "https://bank.example"]},
    {"client_id": "another"},
    {"scope": "chat.read chat.history admin"},
    {"scope": {"chat.read": True}},
    {"resource": "https://bank.example/"},
    {"typ": "at+jwt"},
    {"typ": "JWT"},
    {"text": "s3cret-subject"},
    {"answer": {"issued_token_type": "urn:ietf:params:oauth:token-type:access_token", "token_type": "Bearer"}},
    {"answer": {"issued_token_type": ID_JAG, "token_type": "Bearer"}},
    {"answer": {"scope": "chat.read chat.history admin"}},
]


@walk("answer", ANSWERS)
def test_an_assertion_for_somebody_else_goes_nowhere(two: Two, answer: dict[str, Any]) -> None:
    issuer = two.server.origin("127.0.0.1")
    two.server.asked.clear()
    two.jag = json.loads(json.dumps(answer).replace("SERVER", issuer))
    credential = two.credential(token_of(two, *CHAT, text="s3cret-subject"), resource="https://api.chat.example/")
    with pytest.raises(TokenRequestError) as error:
        run(credential.obtain(CHAT))
    assert not two.server.asked
    assert "s3cret" not in str(error.value)


@walk("scopes", [["chat.read"], ["chat.history", "admin"], []])
def test_nobody_gets_scopes_that_the_caller_does_not_have(two: Two, scopes: list[str]) -> None:
    two.provider.asked.clear()
    with pytest.raises(TokenRequestError, match="the caller's token does not have"):
        run(two.credential(token_of(two, *scopes)).obtain(CHAT))
    assert not two.provider.asked


@walk("issuer", ["https://other.example", "SERVER", "PROVIDER/", "PROVIDER.evil.example"])
def test_no_provider_gets_the_token_of_another_issuer(two: Two, issuer: str) -> None:
    named = issuer.replace("SERVER", two.server.origin("127.0.0.1"))
    named = named.replace("PROVIDER", two.provider.origin("127.0.0.1"))
    with pytest.raises(TokenRequestError, match="not by the provider"):
        run(two.credential(token_of(two, *CHAT, issuer=named)).obtain(CHAT))
    assert not two.provider.asked


def test_the_agents_server_cannot_widen_the_token_either(two: Two) -> None:
    two.server.pages["/token"] = given(scope="chat.read admin")
    credential = two.credential(token_of(two, "chat.read"))
    with pytest.raises(TokenRequestError, match="granted more scopes than the caller and allowed_scopes allow: admin"):
        run(credential.obtain(frozenset({"chat.read"})))


def test_no_server_gets_what_is_for_the_other(two: Two) -> None:
    """The provider gets the caller's token and its own secret, the agent's server the assertion and its own secret."""
    origin = two.server.origin("127.0.0.1")
    two.server.pages["/token"] = Page(status=302, headers={"Location": f"{two.provider.origin('127.0.0.1')}/token"})
    with pytest.raises(FetchError):
        run(two.credential("s3cret-subject").obtain(NONE))
    assert len(two.provider.asked) == 1
    assert form_of(two.provider.asked[0])["audience"] == origin
    assert "s3cret-subject" not in two.server.asked[0].body.decode() + str(two.server.asked[0].headers)


def test_an_assertion_is_sent_once_also_after_an_outage_and_a_401(two: Two) -> None:
    pages = iter([Page(status=500), given(access_token="t1"), given(access_token="t2")])
    two.server.pages["/token"] = lambda _: next(pages)
    credential = two.credential("id-token")
    with pytest.raises(TrustError):
        run(credential.obtain(NONE))
    credential.renew(run(credential.obtain(NONE)))
    assert run(credential.obtain(NONE)).text == "t2"
    sent = [form_of(asked)["assertion"] for asked in two.server.asked]
    assert len(sent) == len({*sent}) == 3
    assert isinstance(credential._client, OAuthClient)
    assert not any(text in repr(vars(credential._client)) for text in sent)
