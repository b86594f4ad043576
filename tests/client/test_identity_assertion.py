"""Identity assertions (ID-JAG): what goes to the provider and to the agent's server, and what they may answer.

Clients that authenticate with a JWT-SVID are here, too: both read a JWT before they send it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from a2a_trust import ConfigurationError, generate_signer
from a2a_trust.auth.principal import SubjectToken
from a2a_trust.base.net.fetcher import Fetcher
from a2a_trust.client import (
    ClientCredentials,
    ClientSecret,
    IdentityAssertion,
    JwtSvid,
    OAuthClient,
    PrivateKeyJwt,
)
from a2a_trust.client.flow import run, run_async
from a2a_trust.errors import TokenRequestError
from a2a_trust.keys.signer import sign_jwt
from tests.base.net.test_fetcher import Authority
from tests.client.agents import Agent, Asked, Page, serving_agent
from tests.client.test_oauth import NONE, READ, Clock, form_of, given, refused, shown

ORIGIN: Final = "https://api.chat.example"
ID_JAG: Final = "urn:ietf:params:oauth:token-type:id-jag"
IDP: Final = generate_signer("ES256", kid="idp")
NOW: Final = 1_000_000.0


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@dataclass
class Two:
    """The identity provider and the server of the agent. ``jag`` has the changes of the next assertion."""

    provider: Agent
    server: Agent
    authority: Authority
    jag: dict[str, Any]
    clock: Clock

    def client(self, of: Agent, client_id: str, **options: Any) -> OAuthClient:
        origin = of.origin("127.0.0.1")
        fetcher = Fetcher(private_origins=[origin], ssl_context=self.authority.client())
        return OAuthClient(
            **{
                "issuer": origin,
                "token_endpoint": f"{origin}/token",
                "client_id": client_id,
                "authentication": ClientSecret("s3cret"),
                "fetcher": fetcher,
                "clock": self.clock,
                **options,
            }
        )

    def credential(self, subject: Any, **options: Any) -> IdentityAssertion:
        return IdentityAssertion(
            options.pop("client", None) or self.client(self.server, "f53f191f9311af35"),
            subject,
            provider=options.pop("provider", None) or self.client(self.provider, "wiki"),
            **{"origins": [ORIGIN], "allowed_scopes": ["chat.read", "chat.history"], **options},
        )

    def assertion(self, asked: Asked) -> Page:
        """Another assertion each time."""
        form = form_of(asked)
        claims = {
            "jti": str(len(self.provider.asked)),
            "iss": self.provider.origin("127.0.0.1"),
            "sub": "U019488227",
            "aud": form["audience"],
            "client_id": "f53f191f9311af35",
            "exp": int(self.clock.now) + 300,
            "iat": int(self.clock.now),
            "scope": form.get("scope", ""),
            **{name: form[name] for name in ("resource",) if name in form},
            **self.jag,
        }
        header = {"alg": "ES256", "typ": claims.pop("typ", "oauth-id-jag+jwt")}
        about = {"issued_token_type": ID_JAG, "token_type": "N_A", "expires_in": 300, **claims.pop("answer", {})}
        claims = {name: value for name, value in claims.items() if value is not ...}
        return given(access_token=claims.pop("text", sign_jwt(header, claims, IDP)), **about)


@pytest.fixture
def two(authority: Authority) -> Iterator[Two]:
    with (
        serving_agent(authority.server("127.0.0.1")) as provider,
        serving_agent(authority.server("127.0.0.1")) as server,
    ):
        both = Two(provider, server, authority, {}, Clock())
        provider.pages["/token"] = both.assertion
        server.pages["/token"] = given(expires_in=86400)
        yield both


def token_of(two: Two, *scopes: str, text: str = "s0", issuer: str = "") -> SubjectToken:
    about: dict[str, Any] = {"issuer": issuer or two.provider.origin("127.0.0.1"), "subject": "ann"}
    return SubjectToken(text, expires_at=two.clock.now + 100, scopes=frozenset(scopes), **about)


CHAT: Final = frozenset({"chat.read", "chat.history"})


def test_the_requests_of_the_draft_with_an_id_token(two: Two) -> None:
    signer = generate_signer("ES256", kid="22")
    provider = two.client(two.provider, "wiki", authentication=PrivateKeyJwt(signer))
    credential = two.credential("eyJraWQiOiJzMTZ0cVNt", provider=provider, resource=f"{ORIGIN}/")
    assert run(credential.obtain(CHAT)).text == "t1"
    [exchange], [grant] = two.provider.asked, two.server.asked
    form = form_of(exchange)
    assert form.pop("client_assertion").count(".") == 2
    assert form == {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "requested_token_type": ID_JAG,
        "audience": two.server.origin("127.0.0.1"),
        "resource": f"{ORIGIN}/",
        "scope": "chat.history chat.read",
        "subject_token": "eyJraWQiOiJzMTZ0cVNt",
        "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
        "client_id": "wiki",
        "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
    }
    sent = form_of(grant)
    assert sent.pop("assertion").count(".") == 2
    assert sent == {
        "grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
        "scope": "chat.history chat.read",
        "resource": f"{ORIGIN}/",
    }
    assert grant.headers["authorization"].startswith("Basic ")


def test_the_token_of_a_caller_is_named_as_an_access_token(two: Two) -> None:
    run(two.credential(token_of(two, "chat.read")).obtain(frozenset({"chat.read"})))
    form = form_of(two.provider.asked[0])
    assert form["subject_token_type"] == "urn:ietf:params:oauth:token-type:access_token"
    assert (form["subject_token"], form["scope"]) == ("s0", "chat.read")


def test_each_token_has_an_assertion_of_its_own_and_is_cached(two: Two) -> None:
    credential = two.credential("id-token")
    value = run(credential.obtain(NONE))
    assert run(credential.obtain(NONE)) is value
    credential.renew(value)
    run(credential.obtain(NONE))
    run(credential.obtain(CHAT))
    sent = [form_of(asked)["assertion"] for asked in two.server.asked]
    assert (len(sent), len({*sent}), len(two.provider.asked)) == (3, 3, 3)


def test_a_nonce_of_the_server_takes_another_assertion(two: Two) -> None:
    pages = iter([Page(status=400, headers={"DPoP-Nonce": "n"}, body=b'{"error": "use_dpop_nonce"}')])
    two.server.pages["/token"] = lambda _: next(pages, given(token_type="DPoP"))
    client = two.client(two.server, "f53f191f9311af35", dpop=generate_signer("ES256"))
    run(two.credential("id-token", client=client).obtain(NONE))
    first, second = (form_of(asked)["assertion"] for asked in two.server.asked)
    assert first != second


def test_callers_and_providers_do_not_share_tokens(two: Two) -> None:
    texts = iter(["t1", "t2", "t3"])
    two.server.pages["/token"] = lambda _: given(access_token=next(texts))
    client = two.client(two.server, "f53f191f9311af35")
    others = [
        two.credential("ann", client=client),
        two.credential("bob", client=client),
        two.credential("ann", client=client, provider=two.client(two.provider, "other")),
    ]
    for _ in range(2):
        assert [run(each.obtain(NONE)).text for each in others] == ["t1", "t2", "t3"]


def test_a_token_that_may_have_more_scopes_is_not_used_where_fewer_are_allowed(two: Two) -> None:
    client = two.client(two.server, "f53f191f9311af35")
    two.server.pages["/token"] = given(scope="chat.read chat.history")
    run(two.credential("ann", client=client).obtain(frozenset({"chat.read"})))
    few = two.credential("ann", client=client, allowed_scopes=["chat.read"])
    with pytest.raises(
        TokenRequestError, match=r"granted more scopes than the caller and allowed_scopes allow: chat\.hist"
    ):
        run(few.obtain(frozenset({"chat.read"})))


def test_a_token_ends_with_that_of_the_caller(two: Two) -> None:
    credential = two.credential(token_of(two))
    value = run(credential.obtain(NONE))
    assert value.until == two.clock.now + 100
    two.clock.now += 100
    with pytest.raises(TokenRequestError, match="IdentityAssertion: the caller's token has expired; answer 401"):
        run(credential.obtain(NONE))
    assert len(two.provider.asked) == 1


def test_scopes_that_the_caller_does_not_have_are_not_asked_for(two: Two) -> None:
    credential = two.credential(token_of(two, "chat.read", "other"))
    with pytest.raises(TokenRequestError, match=r"the caller's token does not have 'chat\.history'.*answer 403"):
        run(credential.obtain(CHAT))
    assert not two.provider.asked


def test_a_token_of_another_issuer_is_not_sent_to_the_provider(two: Two) -> None:
    for issuer in ("https://other.example", two.provider.origin("127.0.0.1") + "/", two.server.origin("127.0.0.1")):
        with pytest.raises(TokenRequestError, match=f"the caller's token is by '{issuer}', not by the provider https"):
            run(two.credential(token_of(two, "chat.read", issuer=issuer)).obtain(NONE))
    assert not two.provider.asked


def test_one_credential_serves_all_callers(two: Two) -> None:
    two.server.pages["/token"] = lambda asked: given(access_token=str(len(two.server.asked)))
    subjects = iter(["ann", "bob", "ann"])

    async def subject() -> str:
        return next(subjects)

    async def texts() -> list[str]:
        credential = two.credential(subject)
        return [(await run_async(credential.obtain(NONE))).text for _ in range(3)]

    assert asyncio.run(texts()) == ["1", "2", "1"]


@pytest.mark.parametrize(
    ("jag", "why"),
    [
        ({"aud": "https://other.example"}, "its aud is 'https://other.example'"),
        ({"aud": ["https://other.example"]}, r"its aud is \['https://other.example'\]"),
        ({"aud": ...}, "its aud is None"),
        ({"client_id": "wiki"}, "its client_id is 'wiki', not 'f53f191f9311af35'; map it at the provider"),
        ({"client_id": ...}, "its client_id is None"),
        ({"typ": "at+jwt"}, "it is not a JWT with the typ oauth-id-jag"),
        ({"typ": "JWT"}, "it is not a JWT with the typ oauth-id-jag"),
        ({"text": "opaque"}, "it is not a JWT with the typ oauth-id-jag"),
        ({"text": "a.b.c"}, "it is not a JWT with the typ oauth-id-jag"),
        ({"scope": "chat.read admin"}, "its scope 'chat.read admin' is wider"),
        ({"scope": ["chat.read"]}, r"its scope \['chat.read'\] is wider"),
        ({"resource": "https://evil.example/"}, "its resource is 'https://evil.example/'"),
        ({"resource": [f"{ORIGIN}/", "https://evil.example/"]}, "its resource is"),
        ({"resource": {}}, "its resource is {}"),
        ({"answer": {"token_type": "Bearer"}}, "token_type is not N_A"),
        ({"answer": {"issued_token_type": "urn:ietf:params:oauth:token-type:access_token"}}, "does not name an ID-JAG"),
        (
            {"answer": {"scope": "chat.read admin"}},
            "granted more scopes than the caller and allowed_scopes allow: admin",
        ),
        ({"answer": {"scope": ""}}, "granted fewer scopes than were requested; missing: chat.read"),
    ],
)
def test_an_assertion_that_is_for_something_else_is_not_sent(two: Two, jag: dict[str, Any], why: str) -> None:
    two.jag |= jag
    credential = two.credential("s3cret-id-token", resource=f"{ORIGIN}/")
    with pytest.raises(TokenRequestError, match=why) as error:
        run(credential.obtain(frozenset({"chat.read"})))
    assert not two.server.asked
    assert "s3cret" not in shown(error.value)


@pytest.mark.parametrize(
    "jag", [{"resource": ...}, {"resource": []}, {"scope": ...}, {"aud": "list"}, {"typ": "media"}]
)
def test_spellings_of_a_good_assertion(two: Two, jag: dict[str, Any]) -> None:
    issuer = two.server.origin("127.0.0.1")
    two.jag |= {"aud": [issuer]} if "aud" in jag else {"typ": "application/OAuth-ID-JAG+JWT"} if "typ" in jag else jag
    assert run(two.credential("id", resource=f"{ORIGIN}/").obtain(frozenset({"chat.read"}))).text == "t1"


def test_errors_of_either_server_say_which(two: Two) -> None:
    two.server.pages["/token"] = refused("invalid_grant")
    with pytest.raises(TokenRequestError, match=r"rejects the token request of the client 'f53f191f9311af35'") as error:
        run(two.credential("id").obtain(NONE))
    assert error.value.error == "invalid_grant"
    two.provider.pages["/token"] = refused("invalid_target")
    with pytest.raises(TokenRequestError, match=r"rejects the token request of the client 'wiki'") as error:
        run(two.credential("id").obtain(NONE))
    assert error.value.error == "invalid_target"


def test_arguments(two: Two) -> None:
    client = two.client(two.server, "agent")
    with pytest.raises(ConfigurationError, match="provider is not an OAuthClient; write provider=OAuthClient"):
        IdentityAssertion(client, "s", provider=None, origins=[ORIGIN], allowed_scopes=[])  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="the first argument is not an OAuthClient"):
        IdentityAssertion("https://x", "s", provider=client, origins=[ORIGIN], allowed_scopes=[])  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="IdentityAssertion: the secret is not") as error:
        IdentityAssertion(client, "s3cret\n", provider=client, origins=[ORIGIN], allowed_scopes=[])
    assert "s3cret" not in shown(error.value)
    with pytest.raises(ConfigurationError, match="neither a SubjectToken nor a text of printable ASCII"):
        run(two.credential(lambda: None).obtain(NONE))
    assert "s3cret" not in repr(vars(two.credential("s3cret")))


# JWT-SVIDs


def svid(clock: Clock, issuer: str, **changes: Any) -> str:
    claims = {"sub": "spiffe://example.org/agent", "aud": [issuer], "exp": int(clock.now) + 300, **changes}
    return sign_jwt({"alg": "ES256", "kid": "spire", "typ": "JWT"}, claims, IDP)


def test_a_client_authenticates_by_the_request_of_the_draft(
    two: Two, tmp_path: Path, next_second: Callable[[], None]
) -> None:
    file, issuer = tmp_path / "jwt_svid.token", two.server.origin("127.0.0.1")
    texts = [svid(two.clock, issuer), svid(two.clock, issuer, aud=issuer, jti="2")]
    file.write_text(f"{texts[0]}\n")
    client = two.client(two.server, "agent", authentication=JwtSvid(file))
    credential = ClientCredentials(client, origins=[ORIGIN], allowed_scopes=["read"])
    run(credential.obtain(NONE))
    file.write_text(texts[1])
    next_second()
    run(credential.obtain(READ))
    assert [form_of(asked) for asked in two.server.asked] == [
        {
            "grant_type": "client_credentials",
            "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-spiffe",
            "client_assertion": text,
            **more,
        }
        for text, more in zip(texts, ({}, {"scope": "read"}), strict=True)
    ]
    assert "authorization" not in two.server.asked[0].headers


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"sub": "agent"}, "it is not a JWT-SVID: a JWT whose sub is a SPIFFE ID"),
        ({"sub": None}, "it is not a JWT-SVID"),
        ({"aud": "https://other.example"}, "its aud is 'https://other.example', and must be only 'https://127.0.0.1"),
        ({"aud": ["https://other.example"]}, "its aud is"),
        ({"exp": NOW}, "it has expired"),
        ({"exp": "soon"}, "it has expired"),
    ],
)
def test_a_file_without_a_good_svid_is_not_sent(two: Two, tmp_path: Path, changes: Any, why: str) -> None:
    file = tmp_path / "svid"
    text = svid(two.clock, two.server.origin("127.0.0.1"), **changes)
    file.write_text(text)
    client = two.client(two.server, "agent", authentication=JwtSvid(file))
    with pytest.raises(TokenRequestError, match=why) as error:
        run(ClientCredentials(client, origins=[ORIGIN], allowed_scopes=[]).obtain(NONE))
    assert "check the agent that writes the file" in str(error.value)
    assert text not in shown(error.value)
    assert text.split(".")[1] not in shown(error.value)
    assert not two.server.asked


def test_an_svid_for_several_audiences_is_not_sent(two: Two, tmp_path: Path) -> None:
    issuer = two.server.origin("127.0.0.1")
    (tmp_path / "svid").write_text(svid(two.clock, issuer, aud=[issuer, "https://other.example"]))
    client = two.client(two.server, "agent", authentication=JwtSvid(tmp_path / "svid"))
    with pytest.raises(TokenRequestError, match="and must be only"):
        run(ClientCredentials(client, origins=[ORIGIN], allowed_scopes=[]).obtain(NONE))
    assert not two.server.asked


def test_a_missing_file_is_found_at_start_and_no_repr_has_it(two: Two, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"svid: .*name a file"):
        JwtSvid(tmp_path / "svid")
    (tmp_path / "svid").write_text(svid(two.clock, "https://idp.example"))
    authentication = JwtSvid(tmp_path / "svid")
    assert repr(authentication) == f"JwtSvid(SecretFile({str(tmp_path / 'svid')!r}))"
    assert (tmp_path / "svid").read_text() not in repr(vars(authentication))
