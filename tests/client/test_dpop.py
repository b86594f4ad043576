"""Bound tokens: every request with a proof of its own, the server's nonces, and the token only where it belongs."""

from __future__ import annotations

import asyncio
import json
import pickle
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import httpx
import pytest

from a2a_trust import ConfigurationError, VerifiedCard, generate_signer, verify_card
from a2a_trust.base.net.fetcher import Fetcher
from a2a_trust.card.view import read_card
from a2a_trust.client import (
    BearerToken,
    CardAuth,
    ClientCredentials,
    ClientSecret,
    CredentialsError,
    CredentialsRejectedError,
    OAuthClient,
)
from a2a_trust.client.answer import Answer
from a2a_trust.client.credentials import CredentialValue, DPoPProofs, nonce_of
from a2a_trust.client.decisions import RejectingReply
from a2a_trust.client.messages import Reply, Request
from a2a_trust.errors import TokenRequestError
from a2a_trust.keys import PublicKey
from a2a_trust.keys.jwk import public_key_from_jwk
from tests.client.agents import OWNER_TRUSTED, Agent, Asked, Page, card_of, serving_agent, signed, trusting
from tests.client.proofs import Proof, ath_of, proof_in

SIGNER: Final = generate_signer("ES256")
TOKEN: Final = "Kz~8mXK1EalYznwH-LC-1fBAo.4Ljp~zsPE_NeO.gxU"  # that of RFC 9449 7.1
ATH: Final = "fUHyO2r2Z3DZ53EsNrWBb0xWXoaNy59IiKCAqksmQEo"  # as RFC 9449 7.1 has it for this token
AT_RESOURCE: Final = {"WWW-Authenticate": 'DPoP error="use_dpop_nonce", algs="ES256"'}
AT_TOKEN_ENDPOINT: Final = json.dumps({"error": "use_dpop_nonce", "error_description": "…"}).encode()

#: Made once: that takes longer than a test.
TLS: Final = ssl.create_default_context()

Ask = Callable[..., httpx.Response]


def ask_sync(auth: CardAuth, method: str, url: str, **more: Any) -> httpx.Response:
    with httpx.Client(auth=auth, verify=TLS, trust_env=False) as client:
        return client.request(method, url, **more)


def ask_async(auth: CardAuth, method: str, url: str, **more: Any) -> httpx.Response:
    async def asked() -> httpx.Response:
        async with httpx.AsyncClient(auth=auth, verify=TLS, trust_env=False) as client:
            return await client.request(method, url, **more)

    return asyncio.run(asked())


@pytest.fixture(params=[ask_sync, ask_async], ids=["sync", "async"])
def ask(request: pytest.FixtureRequest) -> Ask:
    asking: Ask = request.param
    return asking


@pytest.fixture
def server() -> Iterator[Agent]:
    """An agent on this machine, over http; it answers 404 until the test says what."""
    with serving_agent(None) as running:
        yield running


@pytest.fixture
def login() -> Iterator[Agent]:
    """An authorization server on this machine; it gives the token until the test says what."""
    with serving_agent(None) as running:
        running.pages["/token"] = Page(body=json.dumps({"access_token": TOKEN, "token_type": "DPoP"}).encode())
        yield running


def origin(server: Agent) -> str:
    return f"http://127.0.0.1:{server.port}"


def rpc(server: Agent) -> str:
    return f"{origin(server)}/rpc"


def verified(origin: str, *, token_url: str = "https://login.example.com/token", **members: Any) -> VerifiedCard:
    """The card of an agent there, which asks for a token."""
    flow = {"tokenUrl": token_url, "scopes": {}}
    scheme = {"oauth2SecurityScheme": {"flows": {"clientCredentials": flow}}}
    card = card_of(
        origin, securitySchemes={"login": scheme}, securityRequirements=[{"schemes": {"login": {}}}], **members
    )
    return verify_card(signed(card), trusting("127.0.0.1", "agent.example"), origin=origin)


def auth_for(server: Agent, token: Any = TOKEN) -> CardAuth:
    return CardAuth(
        verified(origin(server)),
        {"login": BearerToken(token, origins=[origin(server)], dpop=SIGNER)},
        trust=OWNER_TRUSTED,
    )


def auth_by(login: Agent, server: Agent) -> CardAuth:
    """With tokens that ``login`` issues."""
    client = OAuthClient(
        issuer=origin(login),
        token_endpoint=f"{origin(login)}/token",
        client_id="me",
        authentication=ClientSecret("s"),
        dpop=SIGNER,
        fetcher=Fetcher(private_origins=[origin(login)]),
    )
    credential = ClientCredentials(client, origins=[origin(server)], allowed_scopes=[])
    return CardAuth(
        verified(origin(server), token_url=f"{origin(login)}/token"), {"login": credential}, trust=OWNER_TRUSTED
    )


def wants(*nonces: str) -> Callable[[Asked], Page]:
    """A resource that takes the nonces one after the other, and says with every refusal which one it is."""
    left = list(nonces)

    def page(asked: Asked) -> Page:
        if proof_in(asked).claims.get("nonce") == left[0]:
            if len(left) > 1:
                left.pop(0)
            return Page()
        return Page(status=401, headers={**AT_RESOURCE, "DPoP-Nonce": left[0]})

    return page


def nonces(server: Agent) -> list[str | None]:
    """Those in the proofs that came."""
    return [proof_in(asked).claims.get("nonce") for asked in server.asked]


def proof_of(line: str) -> Proof:
    return proof_in(Asked("", "", {"dpop": line}, b""))


# Proofs


@pytest.mark.parametrize("alg", ["ES256", "ES384", "ES512", "EdDSA", "RS256", "PS256"])
def test_a_proof_says_what_rfc_9449_wants_and_is_by_the_key_in_it(alg: str) -> None:
    signer = generate_signer(alg, rsa_bits=2048)
    proofs = DPoPProofs(signer, clock=lambda: 1562262616.9)
    proof = proof_of(proofs.proof("GET", "https://agent.example", "/tasks/%7E1", ath_of(TOKEN)))
    assert proof.header == {"typ": "dpop+jwt", "alg": alg, "jwk": dict(signer.public_key.jwk)}
    assert len(proof.claims.pop("jti")) >= 22  # 128 bits
    assert proof.claims == {
        "htm": "GET",
        "htu": "https://agent.example/tasks/%7E1",
        "iat": 1562262616,
        "ath": ATH,
    }
    assert proof.jkt == signer.public_key.thumbprint


def test_without_a_token_a_proof_has_no_hash_of_one() -> None:
    assert "ath" not in proof_of(DPoPProofs(SIGNER).proof("POST", "https://login.example", "/token", None)).claims


def test_the_thumbprint_is_the_one_in_rfc_9449() -> None:
    """Sections 4.2 and 6.1: a key and its ``jkt``."""
    jwk = {
        "kty": "EC",
        "x": "l8tFrhx-34tV3hRICRDY9zCkDlpBhF42UQUfWVAWBFs",
        "y": "9VE4jf_Ok_o64zbTTlcuNJajHmt6v9TDVrU0CdvGRDA",
        "crv": "P-256",
    }

    class Elsewhere:
        """A signer whose key is somewhere else."""

        public_key: PublicKey = public_key_from_jwk(jwk, alg="ES256")
        alg, kid = "ES256", "rfc"

        def sign(self, data: bytes) -> bytes:
            raise NotImplementedError

    assert repr(DPoPProofs(Elsewhere())) == "DPoPProofs(jkt='0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I')"


def test_the_nonces_of_64_servers_are_remembered() -> None:
    proofs = DPoPProofs(SIGNER)
    for number in range(65):
        proofs.learn(f"https://{number}.example", [f"n{number}"])
        proofs.learn(f"https://{number}.example", [])
    found = [
        proof_of(proofs.proof("GET", f"https://{number}.example", "/", ath_of(TOKEN))).claims.get("nonce")
        for number in (0, 1, 64)
    ]
    assert found == [None, "n1", "n64"]
    assert "n64" not in repr(proofs)


@pytest.mark.parametrize(
    ("lines", "nonce"),
    [
        (["!#[]^~"], "!#[]^~"),
        (["a" * 1024], "a" * 1024),
        ([], None),
        ([""], None),
        (["a", "a"], None),
        (["a, a"], None),
        (["a" * 1025], None),
        (['a"'], None),
        (["a\\"], None),
        (["\x7f"], None),
        (["é"], None),
    ],
)
def test_a_nonce_is_one_line_of_nqchar(lines: list[str], nonce: str | None) -> None:
    assert nonce_of(lines) == nonce


@pytest.mark.parametrize(
    ("challenge", "wanted"),
    [
        ('DPoP error="use_dpop_nonce"', True),
        ("dpop error=use_dpop_nonce", True),
        ('Bearer, DPoP algs="ES256", error = "use_dpop_nonce"', True),
        ('DPoP error="invalid_token"', False),
        ('DPoP error="use_dpop_nonces"', False),
        ('Bearer error="use_dpop_nonce"', False),
        ('Basic realm="dpop", Bearer error="use_dpop_nonce"', False),
        ("", False),
    ],
)
def test_the_demand_for_a_nonce_names_scheme_and_error(challenge: str, wanted: bool) -> None:
    headers = {"WWW-Authenticate": challenge, "DPoP-Nonce": "n1"}
    request = Request(method="GET", url="https://agent.example/", headers={}, timeout={})
    response = httpx.Response(401, headers=headers)
    reply = Reply(status=401, headers=response.headers, handle=response)
    sent = [CredentialValue("t", DPoPProofs(SIGNER))]
    view = read_card(card_of("https://agent.example"))
    rejection = RejectingReply(view=view, demands=(), answer=Answer(), values=sent, request=request, reply=reply)
    assert rejection.wants_nonce is wanted


def test_a_request_carries_token_and_proof(server: Agent, ask: Ask) -> None:
    ask(auth_for(server), "GET", f"{origin(server)}/rest/tasks/%7E1?key=secret")
    (asked,) = server.asked
    proof = proof_in(asked)
    assert asked.headers["authorization"] == f"DPoP {TOKEN}"
    assert proof.jkt == SIGNER.public_key.thumbprint
    assert (proof.claims["htm"], proof.claims["htu"]) == ("GET", f"{origin(server)}/rest/tasks/%7E1")
    assert proof.claims["ath"] == ATH


@pytest.mark.parametrize(
    ("url", "htu"),
    [
        ("https://agent.example", "https://agent.example/"),
        ("https://agent.example/?a=b", "https://agent.example/"),
        ("https://agent.example:443/a", "https://agent.example/a"),
        ("HTTPS://Agent.Example/a", "https://agent.example/a"),
        ("https://agent.example/a?b=/c?d", "https://agent.example/a"),
        ("https://agent.example/a/", "https://agent.example/a/"),
        ("https://agent.example/b/../a", "https://agent.example/a"),
        ("https://ann:secret@agent.example/a", "https://agent.example/a"),
        ("https://agent.example/rest/tasks/%41;b%7e", "https://agent.example/rest/tasks/%41;b%7e"),
        ("https://agent.example/rest/tasks/ü", "https://agent.example/rest/tasks/%C3%BC"),
    ],
)
def test_the_url_of_a_proof_is_the_target_as_it_is_sent_and_holds_no_secrets(url: str, htu: str) -> None:
    here = "https://agent.example"
    places = [(here, "JSONRPC"), (f"{here}/a", "JSONRPC"), (f"{here}/rest", "HTTP+JSON")]
    card = verified(
        here,
        supportedInterfaces=[{"url": at, "protocolBinding": kind, "protocolVersion": "1.0"} for at, kind in places],
    )
    auth = CardAuth(card, {"login": BearerToken(TOKEN, origins=[here], dpop=SIGNER)}, trust=OWNER_TRUSTED)
    flow = auth.sync_auth_flow(httpx.Request("POST", url))
    request = next(flow)  # what is attached is there until the flow goes on
    proof = proof_of(dict(request.headers.raw)[b"dpop"].decode())
    assert proof.claims["htu"] == htu
    assert htu.endswith(request.url.raw_path.decode().partition("?")[0])


def test_no_two_proofs_are_alike(server: Agent, ask: Ask) -> None:
    auth = auth_for(server)
    for _ in range(3):
        ask(auth, "GET", rpc(server))
    assert len({proof_in(asked).claims["jti"] for asked in server.asked}) == 3


def test_of_two_credentials_the_bound_one_is_sent(server: Agent, ask: Ask) -> None:
    ask(auth_for(server), "POST", rpc(server), headers={"Authorization": f"Bearer {TOKEN}", "DPoP": "a.b.c"})
    (asked,) = server.asked
    assert asked.headers["authorization"] == f"DPoP {TOKEN}"
    assert proof_in(asked).claims["ath"] == ath_of(TOKEN)


# Tokens


def test_a_function_gives_the_token_of_each_request(server: Agent, ask: Ask) -> None:
    tokens = iter(["one", "two"])
    auth = auth_for(server, lambda: next(tokens))
    for token in ("one", "two"):
        ask(auth, "GET", rpc(server))
        assert server.asked[-1].headers["authorization"] == f"DPoP {token}"
        assert proof_in(server.asked[-1]).claims["ath"] == ath_of(token)


async def give_token() -> str:
    await asyncio.sleep(0)
    return TOKEN


def test_an_asynchronous_function_may_give_it_to_an_asynchronous_client(server: Agent) -> None:
    ask_async(auth_for(server, give_token), "GET", rpc(server))
    assert server.asked[0].headers["authorization"] == f"DPoP {TOKEN}"


def test_an_asynchronous_function_is_an_error_for_a_client_that_waits(server: Agent) -> None:
    with pytest.raises(ConfigurationError, match=r"async function is for AsyncClient"):
        ask_sync(auth_for(server, give_token), "GET", rpc(server))
    assert server.asked == []


def test_the_token_of_a_request_that_is_sent_again_with_a_nonce_is_asked_for_once(server: Agent, ask: Ask) -> None:
    calls: list[None] = []

    def token() -> str:
        calls.append(None)
        return TOKEN

    server.pages["/rpc"] = wants("n")
    assert ask(auth_for(server, token), "GET", rpc(server)).status_code == 200
    assert len(calls) == 1


BAD_TOKENS: Final = ["", "Bearer abc", "hid den", "hidden\r\nX-Evil: 1", "hiddén", "=hidden", b"hidden", 7]


@pytest.mark.parametrize("token", [*BAD_TOKENS, None])
def test_a_function_that_gives_no_token_is_an_error_and_nothing_is_sent(server: Agent, ask: Ask, token: Any) -> None:
    with pytest.raises(ConfigurationError, match="BearerToken: ") as raised:
        ask(auth_for(server, lambda: token), "GET", rpc(server))
    assert server.asked == []
    assert "hid" not in str(raised.value)


@pytest.mark.parametrize("token", BAD_TOKENS)
def test_a_text_that_is_no_token_is_an_error_at_the_start(token: Any) -> None:
    with pytest.raises(ConfigurationError, match="BearerToken: "):
        BearerToken(token, origins=["https://agent.example"], dpop=SIGNER)


def test_nothing_that_is_printed_or_stored_holds_token_nonce_or_key(server: Agent, ask: Ask) -> None:
    server.pages["/rpc"] = wants("the-nonce")
    credential = BearerToken(TOKEN, origins=[origin(server)], dpop=SIGNER)
    auth = CardAuth(verified(origin(server)), {"login": credential}, trust=OWNER_TRUSTED)
    response = ask(auth, "GET", rpc(server))
    assert (repr(auth), repr(credential)) == (
        "CardAuth(…)",
        f"BearerToken(…, origins=['{origin(server)}'])",
    )
    assert TOKEN not in f"{response.request.headers!r} {dict(response.request.headers)}"
    for each in (auth, credential):
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(each)


# Nonces


def test_a_refusal_for_want_of_a_nonce_is_answered_once_and_the_nonce_remembered(server: Agent, ask: Ask) -> None:
    server.pages["/rpc"] = wants("n")
    auth = auth_for(server)
    assert ask(auth, "POST", rpc(server), json={"a": 1}).status_code == 200
    assert nonces(server) == [None, "n"]
    for asked in server.asked:  # the second is as the first but for its proof
        assert (asked.body, asked.headers["authorization"]) == (b'{"a":1}', f"DPoP {TOKEN}")
        assert proof_in(asked).claims["ath"] == ath_of(TOKEN)
    assert ask(auth, "POST", rpc(server), json={"a": 1}).status_code == 200
    assert nonces(server) == [None, "n", "n"]
    assert len({proof_in(asked).claims["jti"] for asked in server.asked}) == 3


def test_an_expired_nonce_is_replaced_by_the_one_that_comes(server: Agent, ask: Ask) -> None:
    server.pages["/rpc"] = wants("first", "second")
    auth = auth_for(server)
    for _ in range(3):
        assert ask(auth, "GET", rpc(server)).status_code == 200
    assert nonces(server) == [None, "first", "first", "second", "second"]


@pytest.mark.parametrize("status", [200, 201, 403, 404, 500])
def test_a_new_nonce_is_learned_from_any_answer(server: Agent, ask: Ask, status: int) -> None:
    server.pages["/rpc"] = lambda asked: Page(status=status, headers={"DPoP-Nonce": f"n{len(server.asked)}"})
    auth = auth_for(server)
    for _ in range(3):
        assert ask(auth, "GET", rpc(server)).status_code == status
    assert nonces(server) == [None, "n1", "n2"]


def test_a_server_that_is_never_content_is_asked_twice(server: Agent, ask: Ask) -> None:
    server.pages["/rpc"] = Page(status=401, headers={**AT_RESOURCE, "DPoP-Nonce": "n"})
    with pytest.raises(CredentialsRejectedError, match="answers 401"):
        ask(auth_for(server), "GET", rpc(server))
    assert nonces(server) == [None, "n"]


@pytest.mark.parametrize(
    "challenge",
    [
        'DPoP error="invalid_token"',
        'DPoP error="invalid_dpop_proof"',
        'Bearer error="use_dpop_nonce"',
        None,
    ],
)
def test_other_refusals_of_an_agent_are_final_and_teach_the_nonce(
    server: Agent, ask: Ask, challenge: str | None
) -> None:
    asked_for = {} if challenge is None else {"WWW-Authenticate": challenge}
    server.pages["/rpc"] = Page(status=401, headers={**asked_for, "DPoP-Nonce": "n"})
    auth = auth_for(server)
    for _ in range(2):
        with pytest.raises(CredentialsRejectedError, match="answers 401"):
            ask(auth, "GET", rpc(server))
    assert nonces(server) == [None, "n"]


@pytest.mark.parametrize(
    "page",
    [
        Page(status=403, headers={**AT_RESOURCE, "DPoP-Nonce": "n"}),
        Page(status=400, body=AT_TOKEN_ENDPOINT, headers={"DPoP-Nonce": "n"}),  # not the words of a resource
    ],
)
def test_other_answers_of_an_agent_are_passed_on_and_teach_the_nonce(server: Agent, ask: Ask, page: Page) -> None:
    server.pages["/rpc"] = page
    auth = auth_for(server)
    for _ in range(2):
        assert ask(auth, "GET", rpc(server)).status_code == page.status
    assert nonces(server) == [None, "n"]


@pytest.mark.parametrize(
    "challenge",
    [
        'DPoP error="use_dpop_nonce"',
        "dpop error=use_dpop_nonce",
        'Bearer, DPoP algs="ES256", error = "use_dpop_nonce"',
        'Bearer realm="a", DPoP realm="b", error_description="n", error="use_dpop_nonce", algs="ES256"',
    ],
)
def test_the_demand_is_found_among_other_challenges(server: Agent, ask: Ask, challenge: str) -> None:
    server.pages["/rpc"] = Page(status=401, headers={"WWW-Authenticate": challenge, "DPoP-Nonce": "n"})
    with pytest.raises(CredentialsRejectedError):
        ask(auth_for(server), "GET", rpc(server))
    assert nonces(server) == [None, "n"]


def test_the_nonce_of_one_server_is_not_sent_to_another(server: Agent, ask: Ask) -> None:
    with serving_agent(None) as other:
        server.pages["/rpc"], other.pages["/rpc"] = wants("here"), wants("there")
        credential = BearerToken(TOKEN, origins=[origin(server), origin(other)], dpop=SIGNER)
        for _ in range(2):
            for each in (server, other):
                auth = CardAuth(verified(origin(each)), {"login": credential}, trust=OWNER_TRUSTED)
                assert ask(auth, "GET", rpc(each)).status_code == 200
    assert nonces(server) == [None, "here", "here"]
    assert nonces(other) == [None, "there", "there"]


# Token endpoints


def test_a_token_endpoint_gets_the_proof_beside_the_clients_own_authorization(
    server: Agent, login: Agent, ask: Ask
) -> None:
    ask(auth_by(login, server), "GET", rpc(server))
    (asked,), (called,) = login.asked, server.asked
    assert asked.headers["authorization"] == "Basic bWU6cw=="
    proof = proof_in(asked)
    assert (proof.claims["htm"], proof.claims["htu"]) == ("POST", f"{origin(login)}/token")
    assert "ath" not in proof.claims
    assert called.headers["authorization"] == f"DPoP {TOKEN}"
    assert proof_in(called).jkt == proof.jkt == SIGNER.public_key.thumbprint


def test_a_token_endpoint_that_wants_a_nonce_gets_it_and_no_agent_does(server: Agent, login: Agent, ask: Ask) -> None:
    issued = iter(["one", "two"])

    def token(asked: Asked) -> Page:
        if proof_in(asked).claims.get("nonce") != "n":
            return Page(status=400, body=AT_TOKEN_ENDPOINT, headers={"DPoP-Nonce": "n"})
        return Page(body=json.dumps({"access_token": next(issued), "token_type": "DPoP"}).encode())

    def good_once(asked: Asked) -> Page:
        return Page(status=200 if asked.headers["authorization"] == "DPoP two" else 401)

    login.pages["/token"], server.pages["/rpc"] = token, good_once
    assert ask(auth_by(login, server), "GET", rpc(server)).status_code == 200
    assert nonces(login) == [None, "n", "n"]  # the second token is for the 401
    assert nonces(server) == [None, None]
    assert len({proof_in(asked).claims["jti"] for asked in login.asked}) == 3


def test_a_token_endpoint_that_is_never_content_is_asked_twice(server: Agent, login: Agent, ask: Ask) -> None:
    login.pages["/token"] = Page(status=400, body=AT_TOKEN_ENDPOINT, headers={"DPoP-Nonce": "n"})
    with pytest.raises(CredentialsError) as raised:
        ask(auth_by(login, server), "GET", rpc(server))
    assert isinstance(raised.value.__cause__, TokenRequestError)
    assert raised.value.__cause__.error == "use_dpop_nonce"
    assert (nonces(login), server.asked) == ([None, "n"], [])


@pytest.mark.parametrize(
    "body",
    [b'{"error":"invalid_grant"}', b"use_dpop_nonce", b'["use_dpop_nonce"]', b"", b'{"error":["use_dpop_nonce"]}'],
)
def test_other_refusals_of_a_token_endpoint_are_final(server: Agent, login: Agent, ask: Ask, body: bytes) -> None:
    """A refresh token that is used twice may be revoked."""
    login.pages["/token"] = Page(status=400, body=body, headers={"DPoP-Nonce": "n"})
    with pytest.raises(CredentialsError, match="rejects the token request"):
        ask(auth_by(login, server), "GET", rpc(server))
    assert (len(login.asked), server.asked) == (1, [])


# Bodies


def one_shot() -> Iterator[bytes]:
    yield b"once"


async def one_shot_async() -> AsyncIterator[bytes]:
    yield b"once"


@pytest.mark.parametrize(("ask", "body"), [(ask_sync, one_shot), (ask_async, one_shot_async)], ids=["sync", "async"])
def test_a_body_that_cannot_be_sent_twice_is_an_error_and_then_sent_with_the_nonce(
    server: Agent, ask: Ask, body: Callable[[], Any]
) -> None:
    # The server reads bodies by their length.
    headers = {"Content-Length": "4"}
    server.pages["/rpc"] = wants("n")
    auth = auth_for(server)
    with pytest.raises(CredentialsRejectedError, match="which cannot be sent twice: make the request again"):
        ask(auth, "POST", rpc(server), content=body(), headers=headers)
    assert ask(auth, "POST", rpc(server), content=body(), headers=headers).status_code == 200
    assert [asked.body for asked in server.asked] == [b"once", b"once"]
    assert nonces(server) == [None, "n"]


@pytest.mark.parametrize("status", [200, 400, 404])
def test_streams_are_not_read_before_the_program_does(server: Agent, status: int) -> None:
    server.pages["/rpc"] = Page(status=status, body=b"data: 1\n\n", headers={"DPoP-Nonce": "n"})
    with (
        httpx.Client(auth=auth_for(server), verify=TLS, trust_env=False) as client,
        client.stream("GET", rpc(server)) as answer,
    ):
        assert not answer.is_stream_consumed
        assert list(answer.iter_lines()) == ["data: 1", ""]


# Sharing


def test_threads_may_share_one(server: Agent) -> None:
    server.pages["/rpc"] = wants("n")
    auth = auth_for(server)
    with httpx.Client(auth=auth, verify=TLS, trust_env=False) as client, ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: client.get(rpc(server)), range(16)))
    check_shared(server, answers)


def test_tasks_may_share_one(server: Agent) -> None:
    server.pages["/rpc"] = wants("n")
    auth = auth_for(server, give_token)

    async def ask_all() -> list[httpx.Response]:
        limits = httpx.Limits(max_connections=4)  # the server cannot have many waiting
        async with httpx.AsyncClient(auth=auth, verify=TLS, trust_env=False, limits=limits) as client:
            return await asyncio.gather(*(client.get(rpc(server)) for _ in range(16)))

    check_shared(server, asyncio.run(ask_all()))


def check_shared(server: Agent, answers: list[httpx.Response]) -> None:
    assert [answer.status_code for answer in answers] == [200] * 16
    proofs = [proof_in(asked) for asked in server.asked]
    assert len({proof.claims["jti"] for proof in proofs}) == len(proofs)
    without = sum("nonce" not in proof.claims for proof in proofs)
    assert 1 <= without <= 16
    assert len(proofs) == 16 + without  # whoever had no nonce yet was sent once more
