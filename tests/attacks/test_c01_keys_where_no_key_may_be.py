"""C1: a card chooses where a key travels, and a server sends the client on (A2A Java CVE-2026-111763, -111765).

What counts is what the servers recorded: a key stands in the place that the card names, if that is a safe one, and
no request but the first one has it.
"""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Any

import httpx
import pytest

from a2a_trust import TrustError, generate_signer
from a2a_trust.client import (
    ApiKey,
    AsyncVerifyingTransport,
    BasicCredentials,
    BearerToken,
    CardAuth,
    CredentialsError,
    CredentialsRejectedError,
    UnsafePassAnything,
    UnverifiedCardError,
    verifying_client,
)
from tests.attacks.calling import (
    KEY,
    PASSWORD,
    TOKEN,
    VICTIM,
    Ask,
    Servers,
    assert_got_nothing,
    card_with,
    key_scheme,
    leaks_in,
)
from tests.attacks.test_c05_traces_of_credentials import traces_of
from tests.client.agents import NEW, OWNER_TRUSTED, Asked, Page, card_of, signed, trusting
from tests.client.proofs import proof_in
from tests.tables import walk

SIGNER = generate_signer("ES256")

UNSAFE = [
    *("Host", "host", "Cookie", "Set-Cookie", "Authorization", "Proxy-Authorization", "DPoP", "dpop"),
    *("A2A-Version", "A2A-Extensions", "Connection", "Transfer-Encoding", "Content-Length", "Content-Type", "Upgrade"),
    *("Origin", "Referer", "Forwarded", "X-Forwarded-For", "X-Real-IP", "X-HTTP-Method-Override", "X-Original-URL"),
    *("Client-Cert", "X-SSL-Cert", "If-Match", "Range", "Expect", "TE", "User-Agent", "Accept", "Location"),
]
NOT_NAMES = [
    *("", " ", "X-API-Key ", " X-API-Key", "X API", "X-Key:", "X-Key: a", "X-Key\r\nHost", "X-Key\r\nX-Evil: a"),
    *("X-Key\n", "X\x00Key", "X_API_Key", "X-Schlüssel", "Хost", "X-Key\t", ":path", ":authority", "a\u2028b"),
]
NOT_PARAMETERS = ["", "a b", "a=b", "a&b", "a;b", "a,b", "a#b", "a?b", "a%62", "a+b", "a\r\nb", "a\x00b", "ключ", '"a"']


def ask_with_key(servers: Servers, asks: Ask, scheme: dict[str, Any]) -> None:
    card = card_with(servers.origin, {"s": scheme}, {"s": []})
    asks(CardAuth(card, {"s": ApiKey(KEY, origins=[servers.origin])}, trust=OWNER_TRUSTED), f"{servers.origin}/rpc")


@walk("name", [*UNSAFE, *NOT_NAMES], ids=ascii)
def test_a_key_stands_in_no_header_that_means_something_else(servers: Servers, asks: Ask, name: str) -> None:
    with pytest.raises(TrustError) as refused:
        ask_with_key(servers, asks, key_scheme(name))
    assert not servers.agent.asked
    assert leaks_in(str(refused.value)) == []


@walk("location", ["query", "cookie"])
@walk("name", NOT_PARAMETERS, ids=ascii)
def test_a_key_has_no_name_that_means_something_in_its_place(
    servers: Servers, asks: Ask, location: str, name: str
) -> None:
    with pytest.raises(TrustError):
        ask_with_key(servers, asks, key_scheme(name, location))
    assert not servers.agent.asked


@walk("location", ["", "body", "path", "Header", "header ", "cookie2", "authorization"])
def test_a_key_stands_in_no_place_that_there_is_not(servers: Servers, asks: Ask, location: str) -> None:
    with pytest.raises(TrustError):
        ask_with_key(servers, asks, key_scheme("X-API-Key", location))
    assert not servers.agent.asked


@walk("location", ["header", "query", "cookie"])
def test_control_a_key_stands_where_the_card_says(servers: Servers, asks: Ask, location: str) -> None:
    ask_with_key(servers, asks, key_scheme("x-key.1", location))
    [asked] = servers.agent.asked
    places = {"header": asked.headers.get("x-key.1"), "query": asked.path, "cookie": asked.headers.get("cookie")}
    assert places == {"header": None, "query": "/rpc", "cookie": None} | {
        location: {"header": KEY, "query": f"/rpc?x-key.1={KEY}", "cookie": f"x-key.1={KEY}"}[location]
    }


@walk("location", ["header", "query", "cookie"])
@walk("text", ["secret-key\r\nX-Evil: 1", "secret-key\n", "", " secret-key", "sécret-key", "a\x00b"])
def test_a_key_that_a_function_gives_splits_no_header(servers: Servers, asks: Ask, location: str, text: str) -> None:
    card = card_with(servers.origin, {"s": key_scheme("key", location)}, {"s": []})
    with pytest.raises(TrustError) as refused:
        asks(
            CardAuth(card, {"s": ApiKey(lambda: text, origins=[servers.origin])}, trust=OWNER_TRUSTED),
            f"{servers.origin}/rpc",
        )
    assert not servers.agent.asked
    assert leaks_in(str(refused.value)) == []


@walk("text", ["secret-key;admin=1", "secret-key, b", 'secret"key', "secret\\key"])
def test_a_key_makes_no_second_cookie(servers: Servers, asks: Ask, text: str) -> None:
    card = card_with(servers.origin, {"s": key_scheme("key", "cookie")}, {"s": []})
    with pytest.raises(CredentialsError):
        asks(
            CardAuth(card, {"s": ApiKey(text, origins=[servers.origin])}, trust=OWNER_TRUSTED), f"{servers.origin}/rpc"
        )
    assert not servers.agent.asked


def test_a_key_makes_no_second_parameter(servers: Servers, asks: Ask) -> None:
    card = card_with(servers.origin, {"s": key_scheme("key", "query")}, {"s": []})
    auth = CardAuth(card, {"s": ApiKey("a&admin=1#b +%26", origins=[servers.origin])}, trust=OWNER_TRUSTED)
    asks(auth, f"{servers.origin}/rpc?k%65y=planted&KEY=2")
    assert servers.agent.paths() == ["/rpc?KEY=2&key=a%26admin%3D1%23b%20%2B%2526"]


@pytest.mark.parametrize("names", [("X-Key", "X-Key"), ("X-Key", "x-key")], ids=["the same", "another case"])
def test_two_keys_do_not_stand_in_one_header(servers: Servers, asks: Ask, names: tuple[str, str]) -> None:
    schemes = {"a": key_scheme(names[0]), "b": key_scheme(names[1])}
    card = card_with(servers.origin, schemes, {"a": [], "b": []})
    keys = {name: ApiKey(f"{KEY}-{name}", origins=[servers.origin]) for name in schemes}
    with pytest.raises(CredentialsError, match="need the same place in the request"):
        asks(CardAuth(card, keys, trust=OWNER_TRUSTED), f"{servers.origin}/rpc")
    assert not servers.agent.asked


def test_a_cookie_that_the_agent_sets_does_not_stand_beside_the_key(servers: Servers) -> None:
    servers.agent.pages["/rpc"] = Page(body=b"{}", headers={"Set-Cookie": "session=planted; Path=/"})
    with httpx.Client(auth=everything(servers), verify=servers.authority.client(), trust_env=False) as http:
        for _ in range(2):
            http.post(f"{servers.origin}/rpc", json={}, headers={"X-Key": "planted"})
        assert http.cookies["session"] == "planted"
    assert [asked.headers["cookie"] for asked in servers.agent.asked] == [f"session={KEY}"] * 2
    assert [asked.headers["x-key"] for asked in servers.agent.asked] == [KEY] * 2


# Redirects


def everything(servers: Servers, *, token: bool = True) -> CardAuth:
    """What answers a card that wants a key in each of the three places, and a token that is bound to a key."""
    login = {"httpAuthSecurityScheme": {"scheme": "bearer" if token else "basic"}}
    schemes = {
        "header": key_scheme("X-Key"),
        "query": key_scheme("key", "query"),
        "cookie": key_scheme("session", "cookie"),
        "login": login,
    }
    card = card_with(servers.origin, schemes, {name: [] for name in schemes})
    origins = [servers.origin]
    key = ApiKey(KEY, origins=origins)
    held: Any = (
        BearerToken(TOKEN, origins=origins, dpop=SIGNER)
        if token
        else BasicCredentials("ann", PASSWORD, origins=origins)
    )
    return CardAuth(card, {"header": key, "query": key, "cookie": key, "login": held}, trust=OWNER_TRUSTED)


@walk("status", [301, 302, 303, 307, 308])
@walk("where", ["another name", "another port", "http", "here", "the same URL"])
@walk("token", [True, False], ids=["dpop", "basic"])
def test_nothing_goes_along_on_a_redirect(servers: Servers, asks: Ask, status: int, where: str, token: bool) -> None:
    elsewhere = {
        "another name": f"{servers.evil}/steal?x=1",
        "another port": f"{servers.thief.origin(VICTIM)}/steal?x=1",
        "http": f"http://{VICTIM}:{servers.thief.port}/steal?x=1",
        "here": f"{servers.origin}/steal?x=1",
        "the same URL": f"{servers.origin}/rpc?x=1",
    }[where]
    moved = Page(status=status, headers={"Location": elsewhere, "Set-Cookie": "session=planted; Path=/"})
    servers.agent.pages["/rpc"] = lambda asked: moved if len(servers.agent.asked) == 1 else Page(body=b"{}")
    nonce = {"DPoP-Nonce": "of-the-thief"}
    servers.agent.pages["/steal"] = servers.thief.pages["/steal"] = Page(body=b"{}", headers=nonce)
    auth = everything(servers, token=token)
    try:
        asks(auth, f"{servers.origin}/rpc?x=1")
    except httpx.TransportError:
        assert where == "http"  # the thief speaks TLS
    first, *others = servers.agent.asked
    assert first.path == f"/rpc?x=1&key={KEY}"
    assert (first.headers["x-key"], first.headers["cookie"]) == (KEY, f"session={KEY}")
    assert first.headers["authorization"].startswith("DPoP " if token else "Basic ")
    for asked in [*others, *servers.thief.asked]:
        assert asked.headers.get("cookie", "session=planted") == "session=planted"
        assert not {"authorization", "x-key", "dpop"} & asked.headers.keys()
        assert leaks_in(repr(asked)) == []
    if token and where not in ("http", "the same URL"):
        assert others or servers.thief.asked
        servers.agent.pages["/rpc"] = Page(body=b"{}")
        asks(auth, f"{servers.origin}/rpc")
        assert "nonce" not in proof_in(servers.agent.asked[-1]).claims  # it is not the thief who gives nonces here


@pytest.mark.parametrize("status", [401, 403])
def test_a_redirect_to_a_challenge_makes_no_further_request(servers: Servers, asks: Ask, status: int) -> None:
    servers.agent.pages["/rpc"] = Page(status=307, headers={"Location": f"{servers.evil}/steal"})
    challenge = 'DPoP error="use_dpop_nonce", Bearer error="insufficient_scope", scope="all"'
    servers.thief.pages["/steal"] = Page(status=status, headers={"WWW-Authenticate": challenge, "DPoP-Nonce": "n"})
    assert asks(everything(servers), f"{servers.origin}/rpc").status_code == status
    assert (len(servers.agent.asked), len(servers.thief.asked)) == (1, 1)
    assert_got_nothing(servers.thief)


def test_a_redirect_that_the_program_follows_by_itself_has_nothing(servers: Servers) -> None:
    servers.agent.pages["/rpc"] = Page(status=307, headers={"Location": f"{servers.evil}/steal"})
    with httpx.Client(auth=everything(servers), verify=servers.authority.client(), trust_env=False) as http:
        further = http.post(f"{servers.origin}/rpc").next_request
        assert further is not None
        assert leaks_in(f"{further.headers.raw!r} {further.url.raw_path!r}") == []
        http.send(further)
        http.send(further, auth=None)
    assert len(servers.thief.asked) == 2
    assert_got_nothing(servers.thief)


def test_a_request_that_the_program_sends_again_elsewhere_has_nothing(servers: Servers) -> None:
    """As clients do that turn to another server when one is down."""
    request = httpx.Request("POST", f"{servers.origin}/rpc", json={})
    auth = everything(servers)
    with httpx.Client(auth=auth, verify=servers.authority.client(), trust_env=False) as http:
        http.send(request)
        for given in (auth, None):
            request.url = httpx.URL(f"{servers.evil}/steal")
            http.send(request, auth=given)
    assert [len(servers.agent.asked), len(servers.thief.asked)] == [1, 2]
    assert_got_nothing(servers.thief)


def test_a_request_that_failed_has_nothing_any_more(servers: Servers) -> None:
    request = httpx.Request("POST", f"{servers.origin}/rpc", json={})
    with (
        httpx.Client(auth=everything(servers), trust_env=False) as http,  # it does not trust the authority
        pytest.raises(httpx.ConnectError),
    ):
        http.send(request)
    assert leaks_in(f"{request.headers.raw!r} {request.url.raw_path!r}") == []


def test_no_copy_of_a_request_has_a_credential(servers: Servers) -> None:
    """Those of hooks, caches and recorders, which see it on its way."""
    told: list[str] = []

    def look(request: httpx.Request) -> None:
        headers, url = request.headers, request.url
        told.extend(map(repr, (request, headers, dict(headers), headers.multi_items(), url, str(url), url.params)))
        told.extend(map(repr, (headers.get("x-key"), request.extensions, vars(headers), vars(url), vars(request))))
        for again in (copy(request), pickle.loads(pickle.dumps(request)), httpx.Request("GET", url, headers=headers)):
            if again.headers is not headers:
                told.extend([repr(again.headers.raw), repr(again.url.raw_path)])
        told.extend([repr(copy(headers).raw), repr(pickle.loads(pickle.dumps(headers)).raw)])
        told.extend([repr(copy(url).raw_path), repr(pickle.loads(pickle.dumps(url)).raw_path)])
        told.append(repr([pickle.dumps(each) for each in (request, headers, url)]))

    with httpx.Client(
        auth=everything(servers), verify=servers.authority.client(), event_hooks={"request": [look]}
    ) as http:
        answer = http.post(f"{servers.origin}/rpc")
    look(answer.request)
    assert servers.agent.asked[0].headers["x-key"] == KEY
    assert len(told) > 30
    assert [each for each in told if leaks_in(each)] == []
    assert leaks_in(f"{answer.request.headers.raw!r} {answer.request.url.raw_path!r}") == []


def test_a_verifying_transport_sends_a_request_for_a_card_with_its_key(servers: Servers) -> None:
    """Control: what hides the key from redirects does not lose it where the transport writes the request again."""
    schemes = {"header": key_scheme("X-Key"), "query": key_scheme("key", "query")}
    card = card_with(servers.origin, schemes, {name: [] for name in schemes})
    servers.agent.pages["/rest/extendedAgentCard"] = Page(status=404)
    auth = CardAuth(card, {name: ApiKey(KEY, origins=[servers.origin]) for name in schemes}, trust=OWNER_TRUSTED)

    async def ask() -> None:
        inner = httpx.AsyncHTTPTransport(verify=servers.authority.client())
        transport = AsyncVerifyingTransport(inner, trusting(VICTIM), also=UnsafePassAnything())
        async with httpx.AsyncClient(transport=transport, auth=auth) as http:
            await http.get(f"{servers.origin}/rest/extendedAgentCard")

    asyncio.run(ask())
    assert [(each.path, each.headers["x-key"]) for each in servers.agent.asked] == [
        (f"/rest/extendedAgentCard?key={KEY}", KEY)
    ]


def test_a_rejected_request_is_not_sent_on_by_the_error(servers: Servers, asks: Ask) -> None:
    servers.agent.pages["/rpc"] = Page(status=401, headers={"WWW-Authenticate": "Bearer"})
    with pytest.raises(CredentialsRejectedError) as refused:
        asks(everything(servers), f"{servers.origin}/rpc")
    request = refused.value.request
    assert leaks_in(f"{request.headers.raw!r} {request.url.raw_path!r} {pickle.dumps(request)!r}") == []


# Redirects of a client that has its credentials below httpx


async def one_line(servers: Servers, bundle: Path, *calls: Callable[[httpx.AsyncClient], Any], **options: Any) -> None:
    """What a client of one agent does, whose card wants a key in each place, and a token that is bound to a key."""
    schemes = {
        "header": key_scheme("X-Key"),
        "query": key_scheme("key", "query"),
        "cookie": key_scheme("session", "cookie"),
        "login": {"httpAuthSecurityScheme": {"scheme": "bearer"}},
    }
    demanded: list[Any] = [{"schemes": {name: {"list": []} for name in schemes}}]
    document = card_of(servers.origin, securitySchemes=schemes, securityRequirements=demanded)
    servers.agent.pages[NEW] = signed(document)
    origins = [servers.origin]
    key = ApiKey(KEY, origins=origins)
    held = {"header": key, "query": key, "cookie": key, "login": BearerToken(TOKEN, origins=origins, dpop=SIGNER)}
    trust, own = trusting(VICTIM), {"authorities": bundle, **options}
    async with verifying_client(servers.origin, trust=trust, credentials=held, **own) as http:
        for call in calls:
            await call(http)


def is_with_credentials(asked: Asked) -> bool:
    """All of them came; AssertionError: only some."""
    shown = {*leaks_in(repr(asked)), *({"authorization", "x-key", "dpop"} & asked.headers.keys())}
    assert not shown or shown == {KEY, TOKEN, "authorization", "x-key", "dpop"}
    return bool(shown)


@walk("status", [301, 302, 303, 307, 308])
@walk("where", ["a URL of the card", "the same URL", "another name", "another port"])
def test_a_redirect_has_no_credential_of_the_client_also_where_its_card_leads(
    servers: Servers, bundle: Path, status: int, where: str
) -> None:
    elsewhere = {
        "a URL of the card": f"{servers.origin}/rest/message:send?x=1",
        "the same URL": f"{servers.origin}/rpc?x=1",
        "another name": f"{servers.evil}/steal?x=1",
        "another port": f"{servers.thief.origin(VICTIM)}/steal?x=1",
    }[where]
    moved = Page(status=status, headers={"Location": elsewhere})

    def rpc(asked: Asked) -> Page:
        return moved if servers.agent.paths().count(asked.path) == 1 and "?x=1" not in asked.path else Page(body=b"{}")

    servers.agent.pages |= {"/rpc": rpc, "/rest/message:send": Page(body=b"{}", headers={"DPoP-Nonce": "of-another"})}
    servers.thief.pages["/steal"] = Page(body=b"{}")
    also = [servers.evil, servers.thief.origin(VICTIM)]

    async def call(http: httpx.AsyncClient) -> None:
        answer = await http.post(f"{servers.origin}/rpc", json={}, follow_redirects=True)
        assert answer.status_code == 200
        assert len(answer.history) == 1

    asyncio.run(one_line(servers, bundle, call, also=also))
    first, *others = [asked for asked in servers.agent.asked if asked.path != NEW]
    assert is_with_credentials(first)
    assert others or servers.thief.asked
    assert not [asked for asked in [*others, *servers.thief.asked] if is_with_credentials(asked)]


def test_a_redirect_that_the_program_follows_has_no_credential_of_the_client(servers: Servers, bundle: Path) -> None:
    servers.agent.pages |= {
        "/rpc": Page(status=307, headers={"Location": f"{servers.origin}/rest/message:send"}),
        "/rest/message:send": Page(status=401),
    }

    async def call(http: httpx.AsyncClient) -> None:
        further = (await http.post(f"{servers.origin}/rpc")).next_request
        assert further is not None
        for again in (further, further):
            assert (await http.send(again)).status_code == 401  # it is passed on: there is nothing else to send

    asyncio.run(one_line(servers, bundle, call))
    shown = [(asked.path.partition("?")[0], is_with_credentials(asked)) for asked in servers.agent.asked]
    assert shown == [(NEW, False), ("/rpc", True), *[("/rest/message:send", False)] * 2]


def test_control_a_request_that_the_program_sends_again_has_its_credentials(servers: Servers, bundle: Path) -> None:
    servers.agent.pages |= {"/rpc": Page(body=b"{}"), "/rest/message:send": Page(body=b"{}")}

    async def call(http: httpx.AsyncClient) -> None:
        request = http.build_request("POST", f"{servers.origin}/rpc", json={})
        for _ in range(2):
            await http.send(request)
        request.url = httpx.URL(f"{servers.origin}/rest/message:send")
        await http.send(request)
        request.url = httpx.URL(f"{servers.evil}/steal")
        with pytest.raises(UnverifiedCardError):
            await http.send(request)

    asyncio.run(one_line(servers, bundle, call))
    shown = [(asked.path.partition("?")[0], is_with_credentials(asked)) for asked in servers.agent.asked]
    assert shown == [(NEW, False), ("/rpc", True), ("/rpc", True), ("/rest/message:send", True)]
    assert_got_nothing(servers.thief)


def test_nothing_above_the_wire_has_a_credential_of_the_client(
    servers: Servers, bundle: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hooks, answers, errors and logs; and what the program has of a request while it is sent."""
    caplog.set_level("DEBUG")
    statuses, told = iter([200, 401]), list[str]()
    under_way, wires = list[httpx.Request](), list[httpx.Request]()
    servers.agent.pages["/rpc"] = lambda _: Page(status=next(statuses))

    async def look(message: httpx.Request | httpx.Response) -> None:
        request = message.request if isinstance(message, httpx.Response) else message
        seen = (message, request.headers, request.headers.raw, request.url.raw_path, request.extensions, vars(request))
        told.extend([*map(repr, seen), repr(pickle.dumps(request))])

    handle = httpx.AsyncHTTPTransport.handle_async_request

    async def send_while_the_program_looks(network: httpx.AsyncHTTPTransport, wire: httpx.Request) -> httpx.Response:
        for request in under_way:
            await look(request)
        assert wire.content == (b"" if wire.method == "GET" else b"{}")  # control: it has what the program wrote
        wires.append(wire)
        return await handle(network, wire)

    async def remember(request: httpx.Request) -> None:
        under_way.append(request)

    async def call(http: httpx.AsyncClient) -> None:
        http.event_hooks = {"request": [look, remember], "response": [look]}
        await look(await http.post(f"{servers.origin}/rpc", json={}))
        with pytest.raises(CredentialsRejectedError) as refused:
            await http.post(f"{servers.origin}/rpc", json={})
        await look(refused.value.request)
        await look(refused.value.response)
        told.extend(traces_of(refused.value))

    monkeypatch.setattr(httpx.AsyncHTTPTransport, "handle_async_request", send_while_the_program_looks)
    asyncio.run(one_line(servers, bundle, call))
    assert [is_with_credentials(asked) for asked in servers.agent.asked if asked.path != NEW] == [True, True]
    assert len(told) > 60
    told += [repr([wire.headers.raw, wire.url.raw_path]) for wire in wires]  # an error may keep what was sent
    assert [each for each in [*told, caplog.text] if leaks_in(each)] == []
