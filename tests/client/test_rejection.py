"""What clients make of 401 and 403, and which requests are never sent or never sent again."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import anyio
import httpx
import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from a2a_trust import ConfigurationError, Origins, TrustedKey, TrustStore, VerifiedCard, generate_signer, verify_card
from a2a_trust.client import (
    ApiKey,
    BearerToken,
    CardAuth,
    CredentialsError,
    CredentialsRejectedError,
    verifying_client,
)
from a2a_trust.client.adapters import _Awaiting
from a2a_trust.client.certificates import CertificateInMemory
from a2a_trust.client.messages import Send
from tests.base.net.test_fetcher import Authority
from tests.client.agents import NEW, OLD, OWNER, OWNER_TRUSTED, Agent, Page, card_of, signed, trusting

pytestmark = pytest.mark.anyio

KEY: Final = "K3Y-4F1B9D"
Ask = Callable[..., Awaitable[httpx.Response]]


def card(agent: Agent, **members: Any) -> VerifiedCard:
    origin = agent.origin("127.0.0.1")
    return verify_card(signed(card_of(origin, **members)), trusting("127.0.0.1"), origin=origin)


@pytest.fixture
def auth(agent: Agent) -> CardAuth:
    return CardAuth(card(agent), {"key": ApiKey(lambda: KEY, origins=[agent.origin("127.0.0.1")])}, trust=OWNER_TRUSTED)


@pytest.fixture(params=["sync", "async"])
def ask(request: pytest.FixtureRequest, agent: Agent, authority: Authority) -> Ask:
    """Sends a request with either client."""
    url = f"{agent.origin('127.0.0.1')}/rpc"

    async def asked(auth: CardAuth, **options: Any) -> httpx.Response:
        options = {"url": url, "content": b"{}", **options}
        if request.param == "async":
            async with httpx.AsyncClient(verify=authority.client(), auth=auth) as http:
                return await http.post(**options)
        with httpx.Client(verify=authority.client(), auth=auth) as http:
            return http.post(**options)

    return asked


async def test_a_403_without_a_challenge_is_the_programs_affair(agent: Agent, auth: CardAuth, ask: Ask) -> None:
    for headers in ({}, {"WWW-Authenticate": 'Bearer error="invalid_token"'}):
        agent.pages["/rpc"] = Page(status=403, body=b"not yours", headers=headers)
        answer = await ask(auth)
        assert (answer.status_code, answer.content) == (403, b"not yours")
    assert len(agent.asked) == 2


async def test_a_401_tells_what_the_agent_asks_for(agent: Agent, auth: CardAuth, ask: Ask) -> None:
    challenge = 'Bearer scope="b a", resource_metadata="https://x.example/m", Basic realm="r"'
    agent.pages["/rpc"] = Page(status=401, headers={"WWW-Authenticate": challenge}, body=b"x" * 1000)
    with pytest.raises(CredentialsRejectedError) as refused:
        await ask(auth)
    error = refused.value
    assert (error.schemes, error.scopes, error.resource_metadata) == (("key",), ("a", "b"), "https://x.example/m")
    assert "answers 401 to a request with 'key'. In the card, 'key' asks for an API key in the header X-API-Key" in str(
        error
    )
    assert "The agent asks for basic, bearer, scopes a b, metadata at https://x.example/m" in str(error)
    assert (error.response.status_code, error.response.content) == (401, b"")
    assert len(agent.asked) == 1


@pytest.mark.parametrize(
    "challenge", [f'Bearer scope="{KEY}"', f'Bearer resource_metadata="https://x/?{KEY}"', KEY, f"{KEY} a=b"]
)
async def test_a_challenge_that_repeats_the_credential_is_not_shown(
    agent: Agent, auth: CardAuth, ask: Ask, challenge: str
) -> None:
    agent.pages["/rpc"] = Page(status=401, headers={"WWW-Authenticate": challenge})
    with pytest.raises(CredentialsRejectedError, match="something that repeats a credential") as refused:
        await ask(auth)
    error = refused.value
    assert KEY.lower() not in f"{error} {error.scopes} {error.resource_metadata}".lower()


async def test_a_stream_is_sent_once(agent: Agent, ask: Ask, request: pytest.FixtureRequest) -> None:
    keys = iter("abcdef")
    credential = ApiKey(lambda: next(keys), origins=[agent.origin("127.0.0.1")])
    agent.pages["/rpc"] = lambda asked: Page(status=200 if asked.headers["x-api-key"] == "c" else 401)

    def parts() -> Iterator[bytes]:
        yield b"{}"

    async def later() -> AsyncIterator[bytes]:
        yield b"{}"

    content = later() if "[async]" in request.node.name else parts()
    auth = CardAuth(card(agent), {"key": credential}, trust=OWNER_TRUSTED)
    with pytest.raises(CredentialsRejectedError, match="the body is a stream, which cannot be sent twice"):
        await ask(auth, content=content, headers={"Content-Length": "2"})
    assert len(agent.asked) == 1
    assert (await ask(auth)).status_code == 200
    assert [each.headers["x-api-key"] for each in agent.asked] == ["a", "c"]  # "b" was never sent


async def test_a_key_that_no_cookie_can_have_is_not_sent(agent: Agent, ask: Ask) -> None:
    schemes = {"key": {"apiKeySecurityScheme": {"location": "cookie", "name": "key"}}}
    auth = CardAuth(
        card(agent, securitySchemes=schemes),
        {"key": ApiKey("s3cret;x", origins=[agent.origin("127.0.0.1")])},
        trust=OWNER_TRUSTED,
    )
    with pytest.raises(CredentialsError, match="the key has characters that a cookie must not have") as refused:
        await ask(auth)
    assert "s3cret" not in str(refused.value)
    assert not agent.asked


async def test_an_expired_card_answers_nothing(agent: Agent, ask: Ask) -> None:
    verified, now = card(agent), [time.time()]
    key = ApiKey(KEY, origins=[agent.origin("127.0.0.1")])
    until = TrustedKey(key=OWNER.public_key, origins=Origins("127.0.0.1"), not_after=now[0] + 60)
    agent.pages["/rpc"] = Page()
    auth = CardAuth(verified, {"key": key}, trust=TrustStore([until]), clock=lambda: now[0])
    assert (await ask(auth)).status_code == 200
    now[0] += 60
    with pytest.raises(CredentialsError, match=r"not verified any more; call fetch_card again(.|\n)*expired"):
        await ask(auth)
    assert len(agent.asked) == 1


async def test_other_urls_get_nothing(agent: Agent, auth: CardAuth, ask: Ask) -> None:
    agent.pages.update({"/other": Page(), "/rpc": Page()})
    for url in (f"{agent.origin('127.0.0.1')}/other", f"{agent.origin('localhost')}/rpc"):
        assert (await ask(auth, url=url)).status_code == 200
        assert "x-api-key" not in agent.asked[-1].headers


async def test_a_url_that_can_be_read_in_two_ways_is_not_asked(agent: Agent, auth: CardAuth, ask: Ask) -> None:
    with pytest.raises(CredentialsError, match="servers read differently"):
        await ask(auth, url=f"{agent.origin('127.0.0.1')}/a%2f..%2frpc")
    assert not agent.asked


def test_arguments(agent: Agent) -> None:
    with pytest.raises(ConfigurationError, match="it is not a VerifiedCard"):
        CardAuth(card_of("https://agent.example"), {}, trust=OWNER_TRUSTED)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="skills: write a list"):
        CardAuth(card(agent), {}, skills="ask", trust=OWNER_TRUSTED)
    assert (
        repr(CardAuth(card(agent), {"key": ApiKey(KEY, origins=["https://a.example"])}, trust=OWNER_TRUSTED))
        == "CardAuth(…)"
    )


# The client that fetches the card itself


@pytest.fixture
async def one_line(agent: Agent, authority: Authority, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    path = tmp_path / "authority.pem"
    path.write_bytes(authority.certificate.public_bytes(Encoding.PEM))
    origin = agent.origin("127.0.0.1")
    agent.pages.update({NEW: signed(card_of(origin)), "/rpc": Page(body=b"{}")})
    credentials = {"key": ApiKey(lambda: KEY, origins=[origin]), "bearer": BearerToken("t1", origins=[origin])}
    async with verifying_client(
        origin, trust=trusting("127.0.0.1"), credentials=credentials, authorities=path
    ) as client:
        yield client


async def test_a_rejected_key_makes_the_client_look_at_the_card_again(
    agent: Agent, one_line: httpx.AsyncClient
) -> None:
    origin = agent.origin("127.0.0.1")
    assert (await one_line.post(f"{origin}/rpc")).status_code == 200
    assert (await one_line.post(f"{origin}/rpc")).status_code == 200
    assert agent.paths() == [NEW, "/rpc", "/rpc"]
    bearer = {"bearer": {"httpAuthSecurityScheme": {"scheme": "bearer"}}}
    demands: list[dict[str, Any]] = [{"schemes": {"bearer": {}}}]
    agent.pages[NEW] = signed(card_of(origin, securitySchemes=bearer, securityRequirements=demands))
    agent.pages["/rpc"] = lambda asked: Page(status=200 if "authorization" in asked.headers else 401)
    with pytest.raises(CredentialsRejectedError):
        await one_line.post(f"{origin}/rpc")
    assert (await one_line.post(f"{origin}/rpc")).status_code == 200
    assert "x-api-key" not in agent.asked[-1].headers


async def test_the_card_is_looked_for_at_both_places(agent: Agent, one_line: httpx.AsyncClient) -> None:
    agent.pages[OLD] = agent.pages.pop(NEW)
    assert (await one_line.post(f"{agent.origin('127.0.0.1')}/rpc")).status_code == 200
    assert agent.paths() == [NEW, OLD, "/rpc"]


@pytest.mark.parametrize("status", [401, 404, 500])
async def test_a_card_that_cannot_be_had(agent: Agent, one_line: httpx.AsyncClient, status: int) -> None:
    agent.pages[NEW] = agent.pages[OLD] = Page(status=status)
    with pytest.raises(CredentialsError, match=f"cannot fetch the card of the agent: .* answers with status {status}"):
        await one_line.post(f"{agent.origin('127.0.0.1')}/rpc")
    assert {each.path for each in agent.asked} <= {NEW, OLD}
    assert not [each for each in agent.asked if "x-api-key" in each.headers]


async def test_the_card_itself_is_asked_for_without_a_credential(agent: Agent, one_line: httpx.AsyncClient) -> None:
    assert (await one_line.get(f"{agent.origin('127.0.0.1')}{NEW}")).status_code == 200
    assert "x-api-key" not in agent.asked[-1].headers


async def test_tasks_that_begin_at_once(agent: Agent, one_line: httpx.AsyncClient) -> None:
    answers: list[int] = []

    async def one() -> None:
        answers.append((await one_line.post(f"{agent.origin('127.0.0.1')}/rpc")).status_code)

    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(one)
    assert answers == [200] * 10
    assert all(each.headers["x-api-key"] == KEY for each in agent.asked if each.path == "/rpc")


def test_two_certificates_for_one_connection() -> None:
    certificate = CertificateInMemory(b"", generate_signer("ES256"), origins=["https://agent.example.com"])
    with pytest.raises(ConfigurationError, match="a connection uses one"):
        verifying_client(
            "https://agent.example", trust=trusting("agent.example"), credentials={"a": certificate, "b": certificate}
        )


async def test_an_agent_that_moves_is_asked_for_its_card_again(agent: Agent, one_line: httpx.AsyncClient) -> None:
    origin = agent.origin("127.0.0.1")
    assert (await one_line.post(f"{origin}/rpc")).status_code == 200
    moved = [{"url": f"{origin}/new", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]
    agent.pages[NEW] = signed(card_of(origin, supportedInterfaces=moved))
    agent.pages["/new"] = lambda asked: Page(status=200 if asked.headers.get("x-api-key") == KEY else 401)
    assert [(await one_line.post(f"{origin}/new")).status_code for _ in range(3)] == [200, 200, 200]


async def test_other_refusals_do_not_ask_for_the_card_again(agent: Agent, one_line: httpx.AsyncClient) -> None:
    agent.pages["/rpc"] = Page(status=403)
    for _ in range(3):
        assert (await one_line.post(f"{agent.origin('127.0.0.1')}/rpc")).status_code == 403
    assert agent.paths() == [NEW, "/rpc", "/rpc", "/rpc"]


async def test_the_next_request_has_the_scopes_that_a_stream_lacked(agent: Agent, authority: Authority) -> None:
    origin = agent.origin("127.0.0.1")
    asked_for: list[frozenset[str]] = []

    class Granted(BearerToken):
        def obtain(self, scopes: frozenset[str]) -> Any:
            asked_for.append(scopes)
            return super().obtain(scopes)

        def may_step_up(self, scopes: frozenset[str]) -> frozenset[str] | None:
            return scopes

    async def later() -> AsyncIterator[bytes]:
        yield b"{}"

    flow = {"tokenUrl": "https://login.example.com/token", "scopes": {"more": ""}}
    scheme = {"oauth2SecurityScheme": {"flows": {"clientCredentials": flow}}}
    demanding = card(agent, securitySchemes={"login": scheme}, securityRequirements=[{"schemes": {"login": {}}}])
    auth = CardAuth(demanding, {"login": Granted("t", origins=[origin])}, trust=OWNER_TRUSTED)
    agent.pages["/rpc"] = Page(
        status=403, headers={"WWW-Authenticate": 'Bearer error="insufficient_scope", scope="more"'}
    )
    async with httpx.AsyncClient(verify=authority.client(), auth=auth) as http:
        with pytest.raises(CredentialsRejectedError, match="make the request again"):
            await http.post(f"{origin}/rpc", content=later(), headers={"Content-Length": "2"})
    assert asked_for == [frozenset(), frozenset({"more"})]


async def test_a_cancelled_request_leaves_nobody_waiting(
    agent: Agent, one_line: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A traceback that somebody keeps must not keep the exchange open."""
    url = f"{agent.origin('127.0.0.1')}/rpc"
    kept: list[BaseException] = []
    began, impatience = anyio.Event(), list[anyio.CancelScope]()

    take = _Awaiting.take

    async def take_later(driver: _Awaiting, step: Any) -> Any:
        if isinstance(step, Send) and not began.is_set():
            began.set()
            await anyio.sleep_forever()
        return await take(driver, step)

    monkeypatch.setattr(_Awaiting, "take", take_later)

    async def impatient() -> None:
        try:
            with anyio.fail_after(60) as scope:
                impatience.append(scope)
                await one_line.post(url)
        except TimeoutError as error:
            kept.append(error)

    async def patient() -> None:
        assert (await one_line.post(url)).status_code == 200

    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(impatient)
            await began.wait()
            tasks.start_soon(patient)
            for _ in range(100):  # until it waits for its turn
                await anyio.sleep(0)
            impatience[0].deadline = -math.inf
    assert len(kept) == 1
