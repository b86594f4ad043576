"""DPoPAuth: every request with a proof of its own, the server's nonces, and the token only where it belongs."""

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

from a2a_trust import ConfigurationError, DPoPAuth, generate_signer
from a2a_trust.client import DPoPAuthError
from a2a_trust.keys import PublicKey
from a2a_trust.keys.jwk import public_key_from_jwk
from tests.client.agents import Agent, Asked, Page, serving_agent
from tests.client.proofs import ath_of, proof_in

SIGNER: Final = generate_signer("ES256")
TOKEN: Final = "Kz~8mXK1EalYznwH-LC-1fBAo.4Ljp~zsPE_NeO.gxU"  # that of RFC 9449 7.1
AT_RESOURCE: Final = {"WWW-Authenticate": 'DPoP error="use_dpop_nonce", algs="ES256"'}
AT_TOKEN_ENDPOINT: Final = json.dumps({"error": "use_dpop_nonce", "error_description": "…"}).encode()

#: Made once: that takes longer than a test.
TLS: Final = ssl.create_default_context()

Ask = Callable[..., httpx.Response]


def ask_sync(auth: DPoPAuth, method: str, url: str, **more: Any) -> httpx.Response:
    with httpx.Client(auth=auth, verify=TLS, trust_env=False) as client:
        return client.request(method, url, **more)


def ask_async(auth: DPoPAuth, method: str, url: str, **more: Any) -> httpx.Response:
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
    """On this machine, over http; it answers 404 until the test says what."""
    with serving_agent(None) as running:
        yield running


def origin(server: Agent) -> str:
    return f"http://127.0.0.1:{server.port}"


def auth_for(server: Agent, **more: Any) -> DPoPAuth:
    return DPoPAuth(SIGNER, origins=[origin(server)], **{"token": TOKEN, **more})


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


# Proofs


@pytest.mark.parametrize("alg", ["ES256", "ES384", "ES512", "EdDSA", "RS256", "PS256"])
def test_a_proof_says_what_rfc_9449_wants_and_is_by_the_key_in_it(server: Agent, ask: Ask, alg: str) -> None:
    signer = generate_signer(alg, rsa_bits=2048)
    auth = DPoPAuth(signer, origins=[origin(server)], token=TOKEN, clock=lambda: 1562262616.9)
    ask(auth, "GET", f"{origin(server)}/tasks/%7E1?key=secret#part")
    (asked,) = server.asked
    proof = proof_in(asked)
    assert proof.header == {"typ": "dpop+jwt", "alg": alg, "jwk": dict(signer.public_key.jwk)}
    assert len(proof.claims.pop("jti")) >= 22  # 128 bits
    assert proof.claims == {
        "htm": "GET",
        "htu": f"{origin(server)}/tasks/%7E1",
        "iat": 1562262616,
        "ath": "fUHyO2r2Z3DZ53EsNrWBb0xWXoaNy59IiKCAqksmQEo",  # RFC 9449 7.1 has it for this token
    }
    assert asked.headers["authorization"] == f"DPoP {TOKEN}"
    assert proof.jkt == auth.jkt == signer.public_key.thumbprint


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

    auth = DPoPAuth(Elsewhere(), origins=["https://agent.example"])
    assert auth.jkt == "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"


@pytest.mark.parametrize(
    ("url", "htu"),
    [
        ("https://agent.example", "https://agent.example/"),
        ("https://agent.example:443/a", "https://agent.example/a"),
        ("HTTPS://Agent.Example/A", "https://agent.example/A"),
        ("https://agent.example/a?b=/c?d", "https://agent.example/a"),
        ("https://agent.example/a/../%2Fb//%41/", "https://agent.example/%2Fb//%41/"),
        ("https://ann:secret@agent.example/a", "https://agent.example/a"),
        ("https://agent.example/ü", "https://agent.example/%C3%BC"),
    ],
)
def test_the_url_of_a_proof_is_the_target_as_it_is_sent_and_holds_no_secrets(url: str, htu: str) -> None:
    auth = DPoPAuth(SIGNER, origins=["https://agent.example"])
    request = next(auth.sync_auth_flow(httpx.Request("POST", url)))
    proof = proof_in(Asked(request.method, "", dict(request.headers), b""))
    assert proof.claims["htu"] == htu
    assert htu.endswith(request.url.raw_path.decode().partition("?")[0])


def test_no_two_proofs_are_alike(server: Agent, ask: Ask) -> None:
    auth = auth_for(server, clock=lambda: 1.0)
    for _ in range(3):
        ask(auth, "GET", origin(server))
    assert len({proof_in(asked).claims["jti"] for asked in server.asked}) == 3


def test_a_token_endpoint_gets_the_proof_alone_and_the_clients_own_authorization(server: Agent, ask: Ask) -> None:
    ask(auth_for(server, token=None), "POST", f"{origin(server)}/token", headers={"Authorization": "Basic YTpi"})
    (asked,) = server.asked
    assert asked.headers["authorization"] == "Basic YTpi"
    assert "ath" not in proof_in(asked).claims


def test_of_two_credentials_the_bound_one_is_sent(server: Agent, ask: Ask) -> None:
    ask(auth_for(server), "POST", origin(server), headers={"Authorization": f"Bearer {TOKEN}", "DPoP": "a.b.c"})
    (asked,) = server.asked
    assert asked.headers["authorization"] == f"DPoP {TOKEN}"
    assert proof_in(asked).claims["ath"] == ath_of(TOKEN)


# Tokens


def test_a_function_gives_the_token_of_each_request(server: Agent, ask: Ask) -> None:
    tokens = iter(["one", "two"])
    auth = auth_for(server, token=lambda: next(tokens))
    for token in ("one", "two"):
        ask(auth, "GET", origin(server))
        assert server.asked[-1].headers["authorization"] == f"DPoP {token}"
        assert proof_in(server.asked[-1]).claims["ath"] == ath_of(token)


async def give_token() -> str:
    await asyncio.sleep(0)
    return TOKEN


def test_an_asynchronous_function_may_give_it_to_an_asynchronous_client(server: Agent) -> None:
    ask_async(auth_for(server, token=give_token), "GET", origin(server))
    assert server.asked[0].headers["authorization"] == f"DPoP {TOKEN}"


def test_an_asynchronous_function_is_none_for_a_client_that_waits(server: Agent) -> None:
    with pytest.raises(ConfigurationError, match=r"async function is for httpx.AsyncClient"):
        ask_sync(auth_for(server, token=give_token), "GET", origin(server))
    assert server.asked == []


def test_the_token_of_a_refused_request_is_asked_for_once(server: Agent, ask: Ask) -> None:
    calls: list[None] = []

    def token() -> str:
        calls.append(None)
        return TOKEN

    server.pages["/"] = wants("n")
    assert ask(auth_for(server, token=token), "GET", origin(server)).status_code == 200
    assert len(calls) == 1


BAD_TOKENS: Final = ["", "Bearer abc", "se cret", "secret\r\nX-Evil: 1", "secrét", "=secret", b"secret", 7]


@pytest.mark.parametrize("token", [*BAD_TOKENS, None])
def test_what_is_no_token_is_not_sent_and_not_told(server: Agent, ask: Ask, token: Any) -> None:
    with pytest.raises(ConfigurationError, match="token: not the text of an access token") as raised:
        ask(auth_for(server, token=lambda: token), "GET", origin(server))
    assert server.asked == []
    assert "cret" not in str(raised.value)


@pytest.mark.parametrize("token", BAD_TOKENS)
def test_what_is_no_token_is_refused_at_the_start(token: Any) -> None:
    with pytest.raises(ConfigurationError, match="token: not the text of an access token"):
        DPoPAuth(SIGNER, origins=["https://agent.example"], token=token)


def test_nothing_that_is_printed_or_stored_holds_token_nonce_or_key(server: Agent, ask: Ask) -> None:
    server.pages["/"] = wants("the-nonce")
    auth = auth_for(server)
    ask(auth, "GET", origin(server))
    assert repr(auth) == f"DPoPAuth(jkt='{SIGNER.public_key.thumbprint}', origins=['{origin(server)}'])"
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(auth)


# Nonces


def test_a_refusal_for_want_of_a_nonce_is_answered_once_and_the_nonce_remembered(server: Agent, ask: Ask) -> None:
    server.pages["/"] = wants("n")
    auth = auth_for(server)
    assert ask(auth, "POST", origin(server), json={"a": 1}).status_code == 200
    assert nonces(server) == [None, "n"]
    for asked in server.asked:  # the second is as the first but for its proof
        assert (asked.body, asked.headers["authorization"]) == (b'{"a":1}', f"DPoP {TOKEN}")
        assert proof_in(asked).claims["ath"] == ath_of(TOKEN)
    assert ask(auth, "POST", origin(server), json={"a": 1}).status_code == 200
    assert nonces(server) == [None, "n", "n"]
    assert len({proof_in(asked).claims["jti"] for asked in server.asked}) == 3


def test_an_expired_nonce_is_replaced_by_the_one_that_comes(server: Agent, ask: Ask) -> None:
    server.pages["/"] = wants("first", "second")
    auth = auth_for(server)
    for _ in range(3):
        assert ask(auth, "GET", origin(server)).status_code == 200
    assert nonces(server) == [None, "first", "first", "second", "second"]


@pytest.mark.parametrize("status", [200, 201, 403, 404, 500])
def test_a_new_nonce_is_learned_from_any_answer(server: Agent, ask: Ask, status: int) -> None:
    server.pages["/"] = lambda asked: Page(status=status, headers={"DPoP-Nonce": f"n{len(server.asked)}"})
    auth = auth_for(server)
    for _ in range(3):
        ask(auth, "GET", origin(server))
    assert nonces(server) == [None, "n1", "n2"]


def test_a_token_endpoint_that_wants_a_nonce_gets_it(server: Agent, ask: Ask) -> None:
    server.pages["/token"] = lambda asked: (
        Page(body=b"{}")
        if proof_in(asked).claims.get("nonce") == "n"
        else Page(status=400, body=AT_TOKEN_ENDPOINT, headers={"DPoP-Nonce": "n"})
    )
    auth = auth_for(server, token=None)
    for _ in range(2):
        assert ask(auth, "POST", f"{origin(server)}/token", data={"grant_type": "client_credentials"}).text == "{}"
    assert nonces(server) == [None, "n", "n"]


@pytest.mark.parametrize(
    ("token", "page"),
    [
        (TOKEN, Page(status=401, headers={**AT_RESOURCE, "DPoP-Nonce": "n"})),
        (None, Page(status=401, headers={**AT_RESOURCE, "DPoP-Nonce": "n"})),
        (None, Page(status=400, body=AT_TOKEN_ENDPOINT, headers={"DPoP-Nonce": "n"})),
    ],
)
def test_a_server_that_is_never_content_is_asked_twice(server: Agent, ask: Ask, token: Any, page: Page) -> None:
    server.pages["/"] = page
    assert ask(auth_for(server, token=token), "GET", origin(server)).status_code == page.status
    assert nonces(server) == [None, "n"]


@pytest.mark.parametrize(
    "page",
    [
        Page(status=401, headers={"WWW-Authenticate": 'DPoP error="invalid_token"', "DPoP-Nonce": "n"}),
        Page(status=401, headers={"WWW-Authenticate": 'DPoP error="invalid_dpop_proof"', "DPoP-Nonce": "n"}),
        Page(status=401, headers={"WWW-Authenticate": 'Bearer error="use_dpop_nonce"', "DPoP-Nonce": "n"}),
        Page(status=401, headers={"DPoP-Nonce": "n"}),
        Page(status=403, headers={**AT_RESOURCE, "DPoP-Nonce": "n"}),
        Page(status=400, body=AT_TOKEN_ENDPOINT, headers={"DPoP-Nonce": "n"}),  # not the words of a resource
    ],
)
def test_other_refusals_of_a_resource_are_final_and_teach_the_nonce(server: Agent, ask: Ask, page: Page) -> None:
    server.pages["/"] = page
    auth = auth_for(server)
    for _ in range(2):
        assert ask(auth, "GET", origin(server)).status_code == page.status
    assert nonces(server) == [None, "n"]


@pytest.mark.parametrize(
    "body",
    [b'{"error":"invalid_grant"}', b"use_dpop_nonce", b'["use_dpop_nonce"]', b"", b'{"error":["use_dpop_nonce"]}'],
)
def test_other_refusals_of_a_token_endpoint_are_final(server: Agent, ask: Ask, body: bytes) -> None:
    """A code or a refresh token that is used twice may be revoked."""
    server.pages["/"] = Page(status=400, body=body, headers={"DPoP-Nonce": "n"})
    answer = ask(auth_for(server, token=None), "POST", origin(server))
    assert (answer.status_code, answer.content, len(server.asked)) == (400, body, 1)


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
    server.pages["/"] = Page(status=401, headers={"WWW-Authenticate": challenge, "DPoP-Nonce": "n"})
    ask(auth_for(server), "GET", origin(server))
    assert nonces(server) == [None, "n"]


def test_the_nonce_of_one_server_is_not_sent_to_another(server: Agent, ask: Ask) -> None:
    with serving_agent(None) as other:
        server.pages["/"], other.pages["/"] = wants("here"), wants("there")
        auth = DPoPAuth(SIGNER, origins=[origin(server), origin(other)], token=TOKEN)
        for _ in range(2):
            for each in (server, other):
                assert ask(auth, "GET", origin(each)).status_code == 200
    assert nonces(server) == [None, "here", "here"]
    assert nonces(other) == [None, "there", "there"]


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
    server.pages["/"] = wants("n")
    auth = auth_for(server)
    with pytest.raises(DPoPAuthError, match="cannot be sent twice; the nonce is remembered: send the request again"):
        ask(auth, "POST", origin(server), content=body(), headers=headers)
    assert ask(auth, "POST", origin(server), content=body(), headers=headers).status_code == 200
    assert [asked.body for asked in server.asked] == [b"once", b"once"]
    assert nonces(server) == [None, "n"]


@pytest.mark.parametrize("status", [200, 400, 404])
def test_streams_are_not_read_before_the_program_does(server: Agent, status: int) -> None:
    server.pages["/"] = Page(status=status, body=b"data: 1\n\n", headers={"DPoP-Nonce": "n"})
    with (
        httpx.Client(auth=auth_for(server), verify=TLS, trust_env=False) as client,
        client.stream("GET", origin(server)) as answer,
    ):
        assert not answer.is_stream_consumed
        assert list(answer.iter_lines()) == ["data: 1", ""]


# Sharing


def test_threads_may_share_one(server: Agent) -> None:
    server.pages["/"] = wants("n")
    auth = auth_for(server)
    with httpx.Client(auth=auth, verify=TLS, trust_env=False) as client, ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: client.get(origin(server)), range(16)))
    check_shared(server, answers)


def test_tasks_may_share_one(server: Agent) -> None:
    server.pages["/"] = wants("n")
    auth = auth_for(server, token=give_token)

    async def ask_all() -> list[httpx.Response]:
        limits = httpx.Limits(max_connections=4)  # the server cannot have many waiting
        async with httpx.AsyncClient(auth=auth, verify=TLS, trust_env=False, limits=limits) as client:
            return await asyncio.gather(*(client.get(origin(server)) for _ in range(16)))

    check_shared(server, asyncio.run(ask_all()))


def check_shared(server: Agent, answers: list[httpx.Response]) -> None:
    assert [answer.status_code for answer in answers] == [200] * 16
    proofs = [proof_in(asked) for asked in server.asked]
    assert len({proof.claims["jti"] for proof in proofs}) == len(proofs)
    without = sum("nonce" not in proof.claims for proof in proofs)
    assert 1 <= without <= 16
    assert len(proofs) == 16 + without  # whoever had no nonce yet was sent once more


# Origins


@pytest.mark.parametrize(
    "origin",
    [
        "",
        "agent.example",
        "agent.example:443",
        "//agent.example",
        "https://",
        "https://agent.example/",
        "https://agent.example/a2a",
        "https://agent.example?a",
        "https://agent.example?",
        "https://agent.example#",
        "https://ann@agent.example",
        "https://agent.example:0x1bb",
        "https://*.example.com",
        "https://agent.example\\@evil.example",
        "https://agent example",
        "https://127.1",
        "ftp://agent.example",
        "wss://agent.example",
        "https://münchen.example",
    ],
)
def test_what_is_no_origin_is_refused_at_the_start(origin: str) -> None:
    with pytest.raises(ConfigurationError, match=r"origins: .*write scheme, host and port alone"):
        DPoPAuth(SIGNER, origins=[origin])


@pytest.mark.parametrize("origins", [[], "https://agent.example", ""])
def test_origins_are_a_list_of_one_or_more(origins: Any) -> None:
    with pytest.raises(ConfigurationError, match="origins: "):
        DPoPAuth(SIGNER, origins=origins)


@pytest.mark.parametrize("origin", ["http://agent.example", "http://10.0.0.1:8000", "http://localhost.example"])
def test_http_is_for_this_machine_only(origin: str) -> None:
    with pytest.raises(ConfigurationError, match="http is for this machine only"):
        DPoPAuth(SIGNER, origins=[origin])


@pytest.mark.parametrize(
    "here", ["http://127.0.0.1", "http://127.0.0.2:8000", "http://[::1]:8000", "http://localhost:8000", "https://[::1]"]
)
def test_this_machine_is_known_by_these_names(here: str) -> None:
    auth = DPoPAuth(SIGNER, origins=[here])
    request = next(auth.sync_auth_flow(httpx.Request("GET", f"{here}/a")))
    assert proof_in(Asked("GET", "", dict(request.headers), b"")).claims["htu"] == f"{here}/a"
