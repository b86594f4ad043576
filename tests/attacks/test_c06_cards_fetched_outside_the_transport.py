"""C6, by sockets: a program gets the card elsewhere (fasta2a, BeeAI), and sends its key through our transport.

The victim's agent and the attacker's are two servers. Nothing that could be a credential may reach a URL that no
verified card names: by no path, by no spelling of a URL, by no redirect, and not while the card is fetched.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import httpx
import pytest

from a2a_trust import (
    AsyncVerifyingTransport,
    CardVerificationError,
    Origins,
    TrustedKey,
    TrustStore,
    VerifyingTransport,
    generate_signer,
)
from a2a_trust.client import UnsafePassAnything, UnverifiedCardError, VolatileCardMemory
from a2a_trust.errors import RolledBackCardError
from tests.base.net.test_fetcher import Authority
from tests.client.agents import NEW, OLD, OWNER, Agent, Asked, Page, card_of, serving_agent, signed, trusting
from tests.tables import walk

VICTIM, EVIL = "127.0.0.1", "localhost"
SECRETS = {"X-API-Key": "secret-key", "Authorization": "Bearer secret-token", "Cookie": "session=secret-cookie"}
CALL = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"text": "secret-text"}}
ANSWER = b'{"jsonrpc": "2.0", "id": 1, "result": {}}'


class Program:
    """A program on httpx, of either kind, that sends its credentials with every request."""

    def __init__(self, kind: str, authority: Authority, trust: Any, **options: Any) -> None:
        self.is_async = kind == "async"
        self.loop = asyncio.new_event_loop()
        self.http: Any
        settings: Any = {"headers": SECRETS, "follow_redirects": True}
        tls = authority.client()
        if self.is_async:
            inner = httpx.AsyncHTTPTransport(verify=tls)
            self.http = httpx.AsyncClient(transport=AsyncVerifyingTransport(inner, trust, **options), **settings)
        else:
            transport = VerifyingTransport(httpx.HTTPTransport(verify=tls), trust, **options)
            self.http = httpx.Client(transport=transport, **settings)

    def ask(self, method: str, url: str, **options: Any) -> httpx.Response:
        asked = self.http.request(method, url, **options)
        answer: httpx.Response = self.loop.run_until_complete(asked) if self.is_async else asked
        return answer

    def call(self, url: str) -> httpx.Response:
        return self.ask("POST", url, json=CALL)

    def all_at_once(self, url: str, times: int) -> list[Any]:
        """What that many calls come to which begin at once."""
        if self.is_async:

            async def all_calls() -> list[Any]:
                calls = [self.http.post(url, json=CALL) for _ in range(times)]
                return await asyncio.gather(*calls, return_exceptions=True)

            return self.loop.run_until_complete(all_calls())
        barrier = Barrier(times)

        def one(_: int) -> Any:
            barrier.wait()
            try:
                return self.http.post(url, json=CALL)
            except UnverifiedCardError as error:
                return error

        with ThreadPoolExecutor(times) as threads:
            return list(threads.map(one, range(times)))

    def close(self) -> None:
        if self.is_async:
            self.loop.run_until_complete(self.http.aclose())
        else:
            self.http.close()
        self.loop.close()


Make = Callable[..., Program]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def agent(authority: Authority) -> Iterator[Agent]:
    """The victim's agent, with a signed card that names ``/rpc`` and ``/rest``."""
    with serving_agent(authority.server(VICTIM)) as running:
        running.pages = {NEW: signed(card_of(running.origin(VICTIM))), "/rpc": ANSWER, "/rest/message:send": b"{}"}
        yield running


@pytest.fixture
def impostor(authority: Authority) -> Iterator[Agent]:
    """The attacker's server, with an unsigned card of its own; it answers to every call."""
    with serving_agent(authority.server(EVIL)) as running:
        card = json.dumps(card_of(running.origin(EVIL))).encode()
        running.pages = {NEW: card, "/rpc": ANSWER, "/rest/message:send": b"{}"}
        yield running


@pytest.fixture(params=["sync", "async"])
def make(request: pytest.FixtureRequest, authority: Authority) -> Iterator[Make]:
    made: list[Program] = []

    def make_program(trust: Any = None, **options: Any) -> Program:
        made.append(Program(request.param, authority, trust or trusting(VICTIM), **options))
        return made[-1]

    yield make_program
    for program in made:
        program.close()


def assert_saw_no_secret(agent: Agent) -> None:
    """Neither in a header, nor in a path, nor in a body."""
    for asked in agent.asked:
        assert "secret" not in repr(asked), asked


def refused(program: Program, method: str, url: str, **options: Any) -> str:
    with pytest.raises(UnverifiedCardError) as caught:
        program.ask(method, url, **options)
    assert "secret" not in str(caught.value) + repr(caught.value.__cause__)
    return str(caught.value)


# --- the card was fetched outside ----------------------------------------------------------------------------------


def test_a_call_to_the_impostor_is_not_sent(make: Make, impostor: Agent) -> None:
    url = impostor.origin(EVIL)
    text = refused(make(), "POST", url + "/rpc?key=secret", json=CALL)
    assert "not sent: no verified card names" in text
    assert f"cards={{'{url}/rpc': " in text
    assert "also=" not in text  # an agent is there, and its card is not verified
    assert impostor.paths() == [f"/rpc{NEW}", f"/rpc{OLD}", NEW, OLD]
    assert_saw_no_secret(impostor)


@walk("method", ["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS"])
@walk("path", ["/", "/rpc", "/rest/message:send", "/rest/extendedAgentCard", "/v1/card", NEW])
def test_no_request_but_the_get_of_a_card_reaches_the_impostor(
    make: Make, impostor: Agent, method: str, path: str
) -> None:
    text = refused(make(), method, impostor.origin(EVIL) + path)
    assert ("not passed on" if (method, path) == ("GET", NEW) else "is not sent") in text
    assert {asked.method for asked in impostor.asked} == {"GET"}
    assert all(asked.endswith((NEW, OLD)) for asked in impostor.paths())
    assert_saw_no_secret(impostor)


def test_control_with_everything_passed_the_key_goes_to_the_impostor(make: Make, impostor: Agent) -> None:
    assert make(also=UnsafePassAnything()).call(impostor.origin(EVIL) + "/rpc").status_code == 200
    assert impostor.asked[0].headers["x-api-key"] == "secret-key"


def test_a_card_of_the_victim_that_the_impostor_serves_permits_nothing(
    make: Make, agent: Agent, impostor: Agent
) -> None:
    impostor.pages[NEW] = agent.pages[NEW]
    refused(make(), "POST", impostor.origin(EVIL) + "/rpc", json=CALL)
    assert_saw_no_secret(impostor)


def test_a_verified_card_permits_what_it_names_without_being_fetched_by_the_program(make: Make, agent: Agent) -> None:
    program, url = make(), agent.origin(VICTIM)
    assert program.call(url + "/rpc").content == ANSWER
    assert program.ask("POST", url + "/rest/message:send", json={}).status_code == 200
    assert agent.paths() == [f"/rpc{NEW}", f"/rpc{OLD}", NEW, "/rpc", "/rest/message:send"]
    assert agent.asked[-1].headers["x-api-key"] == "secret-key"
    agent.asked[:] = agent.asked[:3]
    assert_saw_no_secret(agent)


# --- the fetch of the card -----------------------------------------------------------------------------------------


def test_the_get_of_a_card_carries_no_credential(make: Make, impostor: Agent) -> None:
    """The program's own fetch, by the client that has the key in its headers."""
    program, url = make(), impostor.origin(EVIL)
    program.http.headers["X-Tenant"] = "secret-tenant"
    refused(program, "GET", url + NEW, auth=("ann", "secret"))
    refused(program, "GET", url + NEW, content=b"secret")
    assert impostor.paths() == [NEW, NEW]
    assert_saw_no_secret(impostor)
    refused(program, "GET", f"{url}{NEW}?key=secret")
    assert impostor.paths() == [NEW, NEW]


def test_the_get_of_a_card_that_is_redirected_carries_nothing_on(make: Make, agent: Agent, impostor: Agent) -> None:
    agent.pages = {NEW: Page(status=307, headers={"Location": impostor.origin(EVIL) + "/rpc"})}
    refused(make(), "GET", agent.origin(VICTIM) + NEW)
    assert impostor.asked == []


@walk("status", [301, 302, 303, 307, 308])
def test_a_redirect_with_a_verified_card_as_its_body_leads_nowhere(
    make: Make, agent: Agent, impostor: Agent, status: int
) -> None:
    """The client would follow it, and get a card that nobody has verified."""
    url, elsewhere = agent.origin(VICTIM), impostor.origin(EVIL)
    agent.pages[NEW] = Page(status=status, body=signed(card_of(url)), headers={"Location": f"{elsewhere}/card"})
    impostor.pages["/card"] = impostor.pages[NEW]
    refused(make(also=[elsewhere]), "GET", url + NEW)
    assert impostor.asked == []


def test_only_the_program_says_which_card_may_have_credentials(make: Make, agent: Agent) -> None:
    """A verified card may be a copy: where it came from is not where its agent is."""
    url = agent.origin(VICTIM)
    for also, sent in (((), False), ([url + NEW], True)):
        program = make(also=also)
        for _ in range(2):
            assert program.ask("GET", url + NEW).status_code == 200
            assert ("x-api-key" in agent.asked[-1].headers) is sent


@pytest.mark.parametrize("is_signed", [False, True])
def test_a_server_without_a_verified_card_plants_no_cookie_for_its_siblings(is_signed: bool) -> None:
    """``Domain=`` makes httpx send the cookie of one host to every other host below the domain."""
    cookies = [("Set-Cookie", "session=planted; Domain=example.com; Path=/"), ("Set-Cookie", "more=planted; Path=/")]
    sent: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        if request.url.host == "agent.example.com":
            return httpx.Response(200, content=signed(card_of("https://agent.example.com")))
        card = signed(card_of("https://evil.example.com"))
        return httpx.Response(200 if is_signed else 404, headers=cookies, content=card)

    trust = trusting("agent.example.com", "evil.example.com")
    with httpx.Client(transport=VerifyingTransport(httpx.MockTransport(answer), trust)) as http:
        assert http.get(f"https://evil.example.com{NEW}").is_success is is_signed
        assert http.post("https://agent.example.com/rpc", json=CALL).status_code == 200
        assert "cookie" not in sent[-1].headers
        assert not http.cookies


def test_a_server_without_a_verified_card_gets_no_digest_of_the_password(make: Make, impostor: Agent) -> None:
    challenge = {"WWW-Authenticate": 'Digest realm="a", nonce="b", qop="auth"', "Retry-After": "7"}
    impostor.pages[NEW] = Page(status=401, headers=challenge)
    answer = make().ask("GET", impostor.origin(EVIL) + NEW, auth=httpx.DigestAuth("ann", "secret"))
    assert (answer.status_code, answer.headers["retry-after"]) == (401, "7")
    assert "www-authenticate" not in answer.headers
    assert impostor.paths() == [NEW]


def test_a_permitted_server_may_ask_for_a_digest(make: Make, agent: Agent) -> None:
    challenge = {"WWW-Authenticate": 'Digest realm="a", nonce="b", qop="auth"'}
    card, url = signed(card_of(agent.origin(VICTIM))), agent.origin(VICTIM) + NEW

    def page(asked: Asked) -> Page:
        is_answered = asked.headers["authorization"].startswith("Digest ")
        return Page(body=card) if is_answered else Page(status=401, headers=challenge)

    agent.pages[NEW] = page
    assert make(also=[url]).ask("GET", url, auth=httpx.DigestAuth("ann", "secret")).content == card


# --- interfaces and redirects elsewhere ----------------------------------------------------------------------------


@pytest.fixture
def both() -> TrustStore:
    """One operator has both hosts."""
    return trusting(VICTIM, EVIL)


def test_an_interface_at_another_origin_is_permitted_by_the_card_that_names_it_only(
    make: Make, agent: Agent, impostor: Agent, both: TrustStore
) -> None:
    home, away = agent.origin(VICTIM), impostor.origin(EVIL)
    agent.pages[NEW] = signed(card_of(away))
    del impostor.pages[NEW]
    text = refused(make(both), "POST", away + "/rpc", json=CALL)
    assert_saw_no_secret(impostor)
    line = text.partition("write cards=")[2].partition("}")[0] + "}"
    cards = eval(line.replace("https://…/agent-card.json", home + NEW))
    assert make(both, cards=cards).call(away + "/rpc").content == ANSWER
    seen = make(both)
    assert seen.ask("GET", home + NEW).status_code == 200
    assert seen.call(away + "/rpc").content == ANSWER
    refused(seen, "POST", away + "/other", json=CALL)
    # The card names no URL of the origin that it is from.
    refused(seen, "POST", home + "/rpc", json=CALL)


def test_a_key_of_the_attackers_host_cannot_name_the_victims(make: Make, agent: Agent, impostor: Agent) -> None:
    mallory = generate_signer(kid="mallory")
    trust = TrustStore([TrustedKey(key=mallory.public_key, origins=Origins(EVIL))])
    impostor.pages[NEW] = signed(card_of(agent.origin(VICTIM)), by=mallory)
    refused(make(trust), "GET", impostor.origin(EVIL) + NEW)
    refused(make(trust), "POST", agent.origin(VICTIM) + "/rpc", json=CALL)
    assert_saw_no_secret(agent)


@walk("status", [301, 302, 303, 307, 308])
def test_a_redirect_leads_only_where_a_verified_card_says(
    make: Make, agent: Agent, impostor: Agent, status: int
) -> None:
    """httpx takes Authorization off at another origin, and leaves every other header."""
    agent.pages["/rpc"] = Page(status=status, headers={"Location": impostor.origin(EVIL) + "/rpc"})
    refused(make(), "POST", agent.origin(VICTIM) + "/rpc", json=CALL)
    assert_saw_no_secret(impostor)
    agent.pages["/rpc"] = Page(status=status, headers={"Location": agent.origin(VICTIM) + "/admin"})
    refused(make(), "POST", agent.origin(VICTIM) + "/rpc", json=CALL)
    assert "/admin" not in agent.paths()


# --- spellings -----------------------------------------------------------------------------------------------------


@walk(
    "path",
    [
        "/rpcx",
        "/rpc/x",
        "/rpc/../admin",
        "/rpc/%2e%2e/admin",
        "/rpc%2f..",
        "/rpc%2F..%2Fadmin",
        "/rpc%5C..%5Cadmin",
        "//rpc",
        "/rpc//",
        "/RPC",
        "/rpc;x",
        "/rest",
        "/rest/",
        "/restful/message:send",
        "/rest/admin",
        "/rest/a/b/message:send",
        "/rest/message:send/../../admin",
        "/rest/tasks/..%2f..%2fadmin",
        "/rest/tasks/%2e%2e",
        "/rest/tasks/..;",
        "/rest/tasks/..;x=y",
        "/rest/tasks/..%3b",
        "/rest/tasks/%2E%2e%3Bx",
        "/rest/tasks/..%253bx",
        "/rest/tasks/%252e%252E",
        "/rest/tasks/.%25252e",
        "/rest/tasks/..%252fadmin",
        "/rest/tasks/..%255Cadmin",
        "/rest/..;/message:send",
        "/rest/;/message:send",
        "/rest//message:send",
        "/message:send",
        "/",
    ],
)
def test_no_path_that_only_looks_like_one_of_the_card_is_permitted(make: Make, agent: Agent, path: str) -> None:
    program, url = make(), agent.origin(VICTIM)
    assert program.call(url + "/rpc").content == ANSWER
    agent.asked.clear()
    refused(program, "POST", url + path, json=CALL)
    assert_saw_no_secret(agent)


def test_one_url_has_one_spelling(make: Make, agent: Agent, impostor: Agent, both: TrustStore) -> None:
    program, url = make(both), agent.origin(VICTIM)
    assert program.call(url.replace("https", "HTTPS") + "/rpc").content == ANSWER
    for same in ("/r%70c", "/rpc/", "/rpc?tenant=a"):
        agent.pages["/rpc/"] = agent.pages["/r%70c"] = ANSWER
        assert program.call(url + same).content == ANSWER
    asked = len(agent.asked)
    for other in (
        url.replace(VICTIM, f"{VICTIM}.") + "/rpc",
        url.replace(VICTIM, "127.1") + "/rpc",
        url.replace("https://", "http://") + "/rpc",
        url.replace(f":{agent.port}", "") + "/rpc",
        f"https://{VICTIM}:{agent.port}@{EVIL}:{impostor.port}/rpc",
    ):
        with pytest.raises(httpx.RequestError):
            program.call(other)
    assert len(agent.asked) == asked
    assert_saw_no_secret(impostor)


@pytest.mark.parametrize("also", [(), [f"https://{VICTIM}"], UnsafePassAnything()])
def test_the_url_that_is_judged_is_the_one_that_is_sent(also: Any) -> None:
    """httpx writes the first of these as ``https://127.0.0.1/rpc``, and sends it to no host at all."""
    sent: list[httpx.URL] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request.url)
        return httpx.Response(200, content=signed(card_of(f"https://{VICTIM}")))

    inner = httpx.MockTransport(answer)
    with httpx.Client(transport=VerifyingTransport(inner, trusting(VICTIM), also=also)) as http:
        assert http.get(f"https://{VICTIM}{NEW}").status_code == 200
        sent.clear()
        for url in (f"https:////{VICTIM}/rpc", f"https:////{VICTIM}{NEW}", f"https:///{VICTIM}/rpc", "https:/rpc"):
            with pytest.raises(UnverifiedCardError, match="no host"):
                http.send(httpx.Request("POST", url, headers=SECRETS))
        with pytest.raises(UnverifiedCardError, match="target"):
            http.post(f"https://{VICTIM}/rpc", extensions={"target": b"/admin"})
    assert sent == []


# --- older cards ---------------------------------------------------------------------------------------------------


def legacy(origin: str, **members: Any) -> dict[str, Any]:
    return {
        "name": "Ledger",
        "description": "Books invoices.",
        "version": "1.0.0",
        "protocolVersion": "0.3.0",
        "url": f"{origin}/a2a/rpc",
        "preferredTransport": "JSONRPC",
        "additionalInterfaces": [{"url": f"{origin}/a2a/rest", "transport": "HTTP+JSON"}],
        "capabilities": {},
        "security": [],
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [],
        **members,
    }


def test_the_older_name_and_the_older_shape_of_a_card_permit_what_they_name(make: Make, agent: Agent) -> None:
    url = agent.origin(VICTIM)
    agent.pages = {OLD: signed(legacy(url))}
    paths = ["/a2a/rpc", "/a2a/rest/v1/message:send", "/a2a/rest/v1/card", "/a2a/agent/authenticatedExtendedCard"]
    for path in paths:
        program = make()
        program.ask("POST", url + path, json=CALL)
        assert agent.asked[-1].path == path
        assert agent.asked[-1].headers["x-api-key"] == "secret-key"
    agent.asked.clear()
    for path in ("/a2a", "/rpc", "/a2a/rest/v1/other", "/agent"):
        refused(make(), "POST", url + path, json=CALL)
    assert_saw_no_secret(agent)


def test_an_unsigned_older_card_permits_nothing(make: Make, impostor: Agent) -> None:
    url = impostor.origin(EVIL)
    impostor.pages = {OLD: json.dumps(legacy(url)).encode()}
    assert "the card is not signed" in refused(make(), "POST", url + "/a2a/rpc", json=CALL)
    assert_saw_no_secret(impostor)


def test_the_search_ends(make: Make, impostor: Agent) -> None:
    impostor.pages = {}
    refused(make(), "POST", impostor.origin(EVIL) + "/a/b/c/d/e/f/g/h", json=CALL)
    folders = ["/a/b/c/d/e/f/g/h", "/a/b/c/d/e/f/g", "/a/b/c/d/e/f", ""]
    assert impostor.paths() == [folder + name for folder in folders for name in (NEW, OLD)]


# --- many calls, and time ------------------------------------------------------------------------------------------


def test_first_calls_that_begin_at_once_fetch_the_card_once(make: Make, agent: Agent) -> None:
    card = signed(card_of(agent.origin(VICTIM)))

    def slow(_: Asked) -> Page:
        time.sleep(0.05)
        return Page(body=card)

    agent.pages[NEW] = slow
    answers = make().all_at_once(agent.origin(VICTIM) + "/rpc", 8)
    assert [answer.content for answer in answers] == [ANSWER] * 8
    assert sorted(agent.paths()) == sorted([f"/rpc{NEW}", f"/rpc{OLD}", NEW, *["/rpc"] * 8])


def test_a_failure_is_kept_for_ten_seconds(make: Make, impostor: Agent) -> None:
    now = [time.time()]
    program, url = make(trusting(EVIL), clock=lambda: now[0]), impostor.origin(EVIL)
    first, *others = program.all_at_once(url + "/rpc", 8)
    assert {str(each) for each in others} == {str(first)}
    assert len(impostor.asked) == 4
    impostor.pages[NEW] = signed(card_of(url))
    now[0] += 9.5
    assert refused(program, "POST", url + "/rpc", json=CALL) == str(first)
    assert len(impostor.asked) == 4
    now[0] += 1
    assert program.call(url + "/rpc").content == ANSWER


def test_an_older_card_permits_nothing(make: Make, agent: Agent) -> None:
    url, memory = agent.origin(VICTIM), VolatileCardMemory()
    assert make(memory=memory).call(url + "/rpc").content == ANSWER
    agent.pages[NEW] = signed(card_of(url), iat=time.time() - 1000)
    agent.asked.clear()
    program = make(memory=memory)
    with pytest.raises(UnverifiedCardError) as caught:
        program.call(url + "/rpc")
    assert isinstance(caught.value.__cause__, CardVerificationError)
    assert isinstance(caught.value.__cause__.__cause__, RolledBackCardError)
    assert_saw_no_secret(agent)


class Trust:
    """A source of trust that changes, as a trust file does."""

    def __init__(self, store: TrustStore) -> None:
        self.store = store

    def trust_store(self) -> TrustStore:
        return self.store


def test_a_revoked_key_ends_the_permission(make: Make, agent: Agent) -> None:
    trust = Trust(trusting(VICTIM))
    program, url = make(trust), agent.origin(VICTIM)
    assert program.call(url + "/rpc").content == ANSWER
    trust.store = TrustStore(
        [TrustedKey(key=OWNER.public_key, origins=Origins(VICTIM))], revoked=[OWNER.public_key.thumbprint]
    )
    agent.asked.clear()
    assert "revoked" in refused(program, "POST", url + "/rpc", json=CALL)
    assert_saw_no_secret(agent)


def test_a_change_of_trust_that_leaves_the_key_fetches_nothing(make: Make, agent: Agent) -> None:
    trust = Trust(trusting(VICTIM))
    program, url = make(trust), agent.origin(VICTIM)
    assert program.call(url + "/rpc").content == ANSWER
    trust.store, agent.pages[NEW] = trusting(VICTIM, "other.test"), Page(status=500)
    assert program.call(url + "/rpc").content == ANSWER
    assert agent.paths()[-2:] == ["/rpc", "/rpc"]


def test_the_permission_ends_with_the_proof(make: Make, agent: Agent) -> None:
    now = [time.time()]
    key = TrustedKey(key=OWNER.public_key, origins=Origins(VICTIM), not_after=now[0] + 100)
    program, url = make(TrustStore([key]), clock=lambda: now[0]), agent.origin(VICTIM)
    assert program.call(url + "/rpc").content == ANSWER
    agent.asked.clear()
    now[0] += 101
    refused(program, "POST", url + "/rpc", json=CALL)
    assert_saw_no_secret(agent)


def test_an_impostor_that_hangs_up_is_refused_once_for_all_who_wait(make: Make, authority: Authority) -> None:
    with serving_agent(authority.server(EVIL)) as gone:
        url = gone.origin(EVIL)
    answers = make().all_at_once(url + "/rpc", 4)
    assert {type(answer) for answer in answers} == {UnverifiedCardError}
    assert "ConnectError" in str(answers[0])
