"""C6: the agent that ``verifying_client`` asks for its card is the attacker's, or leads the client on.

The client has everything that the victim's agent wants. The request for the card goes out first, and has none of it.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from a2a_trust import TrustStore, VerifiedCard, generate_signer
from a2a_trust.client import (
    ApiKey,
    BearerToken,
    ClientCredentials,
    CredentialsError,
    CredentialsRejectedError,
    UnverifiedCardError,
    VolatileCardMemory,
    verifying_client,
    verifying_clients,
)
from a2a_trust.client.memory import AdmittedCard
from a2a_trust.errors import TrustError
from tests.attacks.calling import (
    EVIL,
    KEY,
    TOKEN,
    VICTIM,
    Servers,
    assert_got_nothing,
    key_scheme,
    oauth_scheme,
    tokens,
)
from tests.client.agents import NEW, OLD, Page, card_of, signed, trusting
from tests.tables import walk

SIGNER: Final = generate_signer("ES256")
MALLORY: Final = generate_signer("ES256", kid="mallory")


def document_of(servers: Servers, origin: str, **members: Any) -> dict[str, Any]:
    """A card that wants a key, a token of the program, and one of the victim's authorization server."""
    schemes = {
        "key": key_scheme("X-Key"),
        "query": key_scheme("key", "query"),
        "login": oauth_scheme(servers.token_endpoint),
    }
    demanded: list[Any] = [{"schemes": {name: {"list": []} for name in schemes}}]
    return card_of(origin, **{"securitySchemes": schemes, "securityRequirements": demanded, **members})


@pytest.fixture(autouse=True)
def _tokens(servers: Servers) -> None:
    servers.login.pages["/token"] = lambda _: Page(body=tokens(access_token=f"{TOKEN}-{len(servers.login.asked)}"))


def client_for(servers: Servers, url: str, bundle: Path, **options: Any) -> httpx.AsyncClient:
    origins = [servers.origin]
    login = ClientCredentials(servers.client(), origins=origins, allowed_scopes=[])
    credentials = {"key": ApiKey(KEY, origins=origins), "query": ApiKey(KEY, origins=origins), "login": login}
    return verifying_client(url, trust=trusting(VICTIM), credentials=credentials, authorities=bundle, **options)


def calls(http: httpx.AsyncClient, *urls: str) -> list[httpx.Response | Exception]:
    """What comes of a call to each URL, by a program that follows redirects."""

    async def called() -> list[httpx.Response | Exception]:
        outcomes: list[httpx.Response | Exception] = []
        async with http:
            http.follow_redirects = True
            for url in urls:
                try:
                    outcomes.append(await http.post(url, json={"text": "call"}))
                except (TrustError, httpx.HTTPError) as error:
                    outcomes.append(error)
        return outcomes

    return asyncio.run(called())


def test_control_the_right_agent_gets_what_it_demands(servers: Servers, bundle: Path) -> None:
    servers.agent.pages[NEW] = signed(document_of(servers, servers.origin))
    [answer] = calls(client_for(servers, servers.origin, bundle), f"{servers.origin}/rpc")
    assert isinstance(answer, httpx.Response)
    card, call = servers.agent.asked[0], servers.agent.asked[-1]
    assert (card.path, call.path) == (NEW, f"/rpc?key={KEY}")
    assert (call.headers["x-key"], call.headers["authorization"]) == (KEY, f"Bearer {TOKEN}-1")
    assert leftovers(servers, but=call) == []


def leftovers(servers: Servers, *, but: Any) -> list[Any]:
    """The requests to the agent that have a credential although they are not the call."""
    return [asked for asked in servers.agent.asked if asked is not but and (KEY in repr(asked) or TOKEN in repr(asked))]


@walk("card", ["unsigned", "by a stranger", "of another host", "no JSON", "none", "changed"])
def test_without_a_verified_card_nothing_is_sent(servers: Servers, bundle: Path, card: str) -> None:
    document = document_of(servers, servers.origin)
    changed = json.loads(signed(document)) | {"securityRequirements": [{"schemes": {}}]}
    pages: dict[str, Page | bytes] = {
        "unsigned": json.dumps(document).encode(),
        "by a stranger": signed(document, by=MALLORY),
        "of another host": signed(document_of(servers, servers.evil), by=MALLORY),
        "no JSON": b"[",
        "none": Page(status=404),
        "changed": json.dumps(changed).encode(),
    }
    servers.agent.pages[NEW] = pages[card]
    [refused] = calls(client_for(servers, servers.origin, bundle), f"{servers.origin}/rpc")
    assert isinstance(refused, TrustError)
    assert {asked.path for asked in servers.agent.asked} <= {NEW, OLD}
    assert_got_nothing(servers.agent, servers.thief, servers.login)
    assert servers.login.asked == []


@walk("status", [301, 302, 303, 307, 308])
@walk("path", [NEW, "/rpc"])
def test_a_redirect_leads_neither_to_a_card_nor_to_a_credential(
    servers: Servers, bundle: Path, status: int, path: str
) -> None:
    servers.agent.pages[NEW] = signed(document_of(servers, servers.origin))
    servers.agent.pages[path] = Page(status=status, headers={"Location": f"{servers.evil}{path}"})
    servers.thief.pages[NEW] = signed(document_of(servers, servers.evil), by=MALLORY)
    [refused] = calls(client_for(servers, servers.origin, bundle), f"{servers.origin}/rpc")
    assert isinstance(refused, UnverifiedCardError)
    assert_got_nothing(servers.thief)
    assert not [asked for asked in servers.thief.asked if asked.method == "POST"]


def test_other_urls_get_neither_credentials_nor_calls(servers: Servers, bundle: Path) -> None:
    servers.agent.pages[NEW] = signed(document_of(servers, servers.origin))
    servers.thief.pages[NEW] = signed(document_of(servers, servers.evil), by=MALLORY)
    urls = [f"{servers.evil}/rpc", f"{servers.thief.origin(VICTIM)}/rpc", f"{servers.origin}/other"]
    outcomes = calls(client_for(servers, servers.origin, bundle), *urls)
    assert [type(each) for each in outcomes] == [UnverifiedCardError] * 3
    assert_got_nothing(servers.thief, servers.agent)
    assert not [each for each in [*servers.thief.asked, *servers.agent.asked] if each.method == "POST"]


@walk("also", [True, False], ids=["permitted", "searched for"])
def test_the_card_of_another_agent_of_the_host_gets_no_credential(servers: Servers, bundle: Path, also: bool) -> None:
    """It is verified, and demands the schemes by the names that the client has credentials for."""
    neighbour = f"{servers.origin}/neighbour"
    servers.agent.pages |= {
        NEW: signed(document_of(servers, servers.origin)),
        f"/neighbour{NEW}": signed(document_of(servers, neighbour)),
        "/neighbour/rpc": Page(body=b"{}"),
    }
    permitted = [f"{neighbour}/rpc"] if also else []
    http = client_for(servers, servers.origin, bundle, also=permitted)
    urls = [f"{neighbour}/rpc", f"{servers.origin}/rpc", f"{neighbour}/rpc"]
    assert [getattr(each, "status_code", each) for each in calls(http, *urls)] == [200] * 3
    to_the_agent = [asked for asked in servers.agent.asked if asked.path.startswith("/rpc?")]
    assert [asked.headers["x-key"] for asked in to_the_agent] == [KEY]
    assert leftovers(servers, but=to_the_agent[0]) == []


def test_a_card_that_names_its_own_url_is_fetched_without_credentials(servers: Servers, bundle: Path) -> None:
    named = [
        {"url": f"{servers.origin}{path}", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        for path in (NEW, "/rpc")
    ]
    servers.agent.pages[NEW] = signed(document_of(servers, servers.origin, supportedInterfaces=named))

    async def get_often() -> None:
        async with client_for(servers, servers.origin, bundle) as http:
            for _ in range(2):
                assert (await http.get(f"{servers.origin}{NEW}")).is_success
            assert (await http.post(f"{servers.origin}/rpc")).is_success

    asyncio.run(get_often())
    assert servers.agent.paths() == [NEW, NEW, f"/rpc?key={KEY}"]
    assert leftovers(servers, but=servers.agent.asked[-1]) == []


def test_an_agent_whose_key_is_revoked_while_its_card_comes_gets_nothing(servers: Servers, bundle: Path) -> None:
    """Also where the program permits the URL: what the card demands is unknown by then."""

    class Trust:
        store = trusting(VICTIM)

        def trust_store(self) -> TrustStore:
            return self.store

    class Memory(VolatileCardMemory):
        def admit(self, verified: VerifiedCard, url: str, *, now: float | None = None) -> AdmittedCard:
            Trust.store = TrustStore([])
            return super().admit(verified, url, now=now)

    servers.agent.pages[NEW] = signed(document_of(servers, servers.origin))
    http = verifying_client(
        servers.origin, trust=Trust(), credentials={}, authorities=bundle, memory=Memory(), also=[servers.origin]
    )
    [refused] = calls(http, f"{servers.origin}/rpc")
    assert isinstance(refused, CredentialsError)
    assert servers.agent.paths() == [NEW]


def test_a_card_at_a_url_of_its_own_is_fetched_without_credentials(servers: Servers, bundle: Path) -> None:
    servers.agent.pages["/cards/ledger.json"] = signed(document_of(servers, servers.origin))
    http = client_for(servers, f"{servers.origin}/cards/ledger.json", bundle)
    [answer] = calls(http, f"{servers.origin}/rpc")
    assert isinstance(answer, httpx.Response)
    assert leftovers(servers, but=servers.agent.asked[-1]) == []


@pytest.mark.parametrize("status", [401, 403])
def test_endless_rejections_cost_a_bounded_number_of_requests(servers: Servers, bundle: Path, status: int) -> None:
    servers.agent.pages[NEW] = signed(document_of(servers, servers.origin))
    challenge = 'Bearer error="insufficient_scope", scope="read"'
    servers.agent.pages["/rpc"] = Page(status=status, headers={"WWW-Authenticate": challenge})
    outcomes = calls(client_for(servers, servers.origin, bundle), *[f"{servers.origin}/rpc"] * 3)
    assert [type(each) for each in outcomes] == [CredentialsRejectedError] * 3
    paths = [path.partition("?")[0] for path in servers.agent.paths()]
    assert paths.count("/rpc") <= 6
    assert paths.count(NEW) <= 6
    assert len(servers.login.asked) <= 6


def test_a_card_that_changes_its_mind_gets_no_more_than_before(servers: Servers, bundle: Path) -> None:
    """After a 401 the card is fetched again; the new one leads to the attacker's authorization server."""
    servers.agent.pages[NEW] = signed(document_of(servers, servers.origin))
    evil_schemes = {"login": oauth_scheme(f"{servers.evil}/token"), "key": key_scheme("Host")}
    evil = document_of(
        servers,
        servers.origin,
        securitySchemes=evil_schemes,
        securityRequirements=[{"schemes": {name: {"list": []}}} for name in evil_schemes],
    )

    def rpc(asked: Any) -> Page:
        servers.agent.pages[NEW] = signed(evil)
        return Page(status=401)

    servers.agent.pages["/rpc"] = rpc
    first, second = calls(client_for(servers, servers.origin, bundle), *[f"{servers.origin}/rpc"] * 2)
    assert isinstance(first, CredentialsRejectedError)
    assert isinstance(second, CredentialsError)
    assert servers.thief.asked == []
    assert len([path for path in servers.agent.paths() if path.startswith("/rpc")]) <= 2


def test_a_program_whose_card_names_a_dpop_token_proves_it_only_there(servers: Servers, bundle: Path) -> None:
    scheme = {"s": {"httpAuthSecurityScheme": {"scheme": "bearer"}}}
    servers.agent.pages[NEW] = signed(
        card_of(servers.origin, securitySchemes=scheme, securityRequirements=[{"schemes": {"s": {"list": []}}}])
    )
    servers.agent.pages["/rpc"] = Page(status=307, headers={"Location": f"{servers.evil}/steal"})
    http = verifying_client(
        servers.origin,
        trust=trusting(VICTIM),
        credentials={"s": BearerToken(TOKEN, origins=[servers.origin], dpop=SIGNER)},
        authorities=bundle,
        also=[servers.evil],
    )
    [answer] = calls(http, f"{servers.origin}/rpc")
    assert isinstance(answer, httpx.Response)
    assert [asked.path for asked in servers.thief.asked] == ["/steal"]
    assert_got_nothing(servers.thief)


@walk("path", ["/rpc", "/moved"])
def test_one_of_several_agents_gets_no_key_of_another(servers: Servers, bundle: Path, path: str) -> None:
    """The other agent is trusted, and each key is for the origins of both. That agent redirects to the victim's, and
    the program sends it what is for the victim's agent."""
    servers.agent.pages |= {NEW: signed(document_of(servers, servers.origin)), "/rpc": Page(body=b"{}")}
    interface = {"url": f"{servers.evil}{path}", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    document = card_of(servers.evil, supportedInterfaces=[interface], securitySchemes={"key": key_scheme("X-Key")})
    servers.thief.pages |= {NEW: signed(document), "/rpc": Page(body=b"{}")}
    servers.thief.pages["/moved"] = Page(status=307, headers={"Location": f"{servers.origin}/rpc"})
    origins = [servers.origin, servers.evil]
    clients = verifying_clients(
        {
            servers.origin: {"key": ApiKey(KEY, origins=origins)},
            servers.evil: {"key": ApiKey("key-of-evil", origins=origins)},
        },
        trust=trusting(VICTIM, EVIL),
        authorities=bundle,
    )
    outcomes = calls(clients[servers.evil], f"{servers.evil}{path}", f"{servers.origin}/rpc")
    outcomes += calls(clients[servers.origin], f"{servers.evil}{path}")
    assert len(outcomes) == 3
    assert [asked.headers.get("x-key") for asked in servers.thief.asked if asked.path == path] == ["key-of-evil", None]
    assert not any("key-of-evil" in repr(asked) for asked in servers.agent.asked)
