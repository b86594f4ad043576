"""Two agents in one application, on FastAPI and on Starlette: every credential at each agent, and both signed cards."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
import pytest

from a2a_trust import SqliteApiKeys, TrustError, generate_signer
from a2a_trust.keys.files import save_private_key
from tests.servers.environments import answer_of, python_of
from tests.servers.issuer import Issuer, issuing
from tests.servers.serving import ROOT, SERVERS, free_port, serving
from tests.serving_cards.conftest import verified

AGENTS: Final = ("ledger", "vault")
BINDINGS: Final = ("JSONRPC", "HTTP+JSON")
CLIENT: Final = ROOT / "tests" / "serving_cards" / "sdk_cards_1_3.py"
GUARDED: Final = ("call", "call over HTTP", "stream", "stream over HTTP", "extended card", "extended card by call")
PUBLIC: Final = ("card", "card by its older name", "key set", "metadata")

#: The status of each guarded request at the ledger and at the vault.
EXPECTED: Final = {
    "nothing": (401, 401),
    "a guessed key": (401, 401),
    "the ledger's key": (200, 401),
    "the vault's key": (401, 200),
    "the vault's key without its scope": (401, 403),
    "a token for the vault": (401, 200),
    "a token for the vault without its scope": (401, 403),
    "an expired token for the vault": (401, 401),
    "a token for the ledger": (401, 401),
    "a stranger's token for the vault": (401, 401),
}
#: Where both agents share a store, each knows the other's callers, who have other scopes.
WITH_ONE_STORE: Final = {
    "the ledger's key": (200, 403),
    "the vault's key": (403, 200),
    "the vault's key without its scope": (403, 403),
}


class House(NamedTuple):
    """One application with both agents. ``expected`` has the statuses, ``headers`` the credentials by their names."""

    url: str
    expected: dict[str, tuple[int, int]]
    headers: dict[str, dict[str, str]]
    folder: Path
    http: httpx.Client


class Asked(NamedTuple):
    method: str
    path: str
    body: Any = None


def requests_at(agent: str) -> dict[str, Asked]:
    message = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "hi"}]}

    def call(method: str, params: Any) -> Asked:
        return Asked("POST", f"/{agent}/rpc", {"jsonrpc": "2.0", "id": 1, "method": method, "params": params})

    return {
        "call": call("SendMessage", {"message": message}),
        "call over HTTP": Asked("POST", f"/{agent}/rest/message:send", {"message": message}),
        "stream": call("SendStreamingMessage", {"message": message}),
        "stream over HTTP": Asked("POST", f"/{agent}/rest/message:stream", {"message": message}),
        "extended card": Asked("GET", f"/{agent}/rest/extendedAgentCard"),
        "extended card by call": call("GetExtendedAgentCard", {}),
        "card": Asked("GET", f"/{agent}/.well-known/agent-card.json"),
        "card by its older name": Asked("GET", f"/{agent}/.well-known/agent.json"),
        "key set": Asked("GET", f"/{agent}/.well-known/jwks.json"),
        "metadata": Asked("GET", f"/.well-known/oauth-protected-resource/{agent}"),
    }


def ask(house: House, asked: Asked, credential: str = "nothing") -> httpx.Response:
    headers = {"A2A-Version": "1.0", **house.headers[credential]}
    return house.http.request(asked.method, house.url + asked.path, json=asked.body, headers=headers)


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with issuing() as running:
        yield running


@pytest.fixture(scope="module", params=["on_fastapi", "on_starlette"])
def house(request: pytest.FixtureRequest, issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """The application as a process of uvicorn. On FastAPI both agents share a store of keys."""
    folder = tmp_path_factory.mktemp(request.param)
    has_one_store = request.param == "on_fastapi"
    stores = {name: folder / ("keys.db" if has_one_store else f"{name}.db") for name in AGENTS}
    ledger = SqliteApiKeys(stores["ledger"], create=True)
    vault = ledger if has_one_store else SqliteApiKeys(stores["vault"], create=True)
    for name in AGENTS:
        save_private_key(folder / f"{name}.key", generate_signer("ES256"))
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    settings = {
        "url": url,
        "issuer": issuer.url,
        "folder": str(folder),
        "stores": {name: str(path) for name, path in stores.items()},
    }
    headers = {
        "nothing": {},
        "a guessed key": {"X-API-Key": "a2a_guessed"},
        "the ledger's key": key(ledger.create(owner="ann", scopes=["read"]).text),
        "the vault's key": key(vault.create(owner="ben", scopes=["admin"]).text),
        "the vault's key without its scope": key(vault.create(owner="eve", scopes=["other"]).text),
        "a token for the vault": bearer(issuer.token(audience=f"{url}/vault", scope="admin")),
        "a token for the vault without its scope": bearer(issuer.token(audience=f"{url}/vault", scope="read")),
        "an expired token for the vault": bearer(issuer.token(audience=f"{url}/vault", scope="admin", exp=1)),
        "a token for the ledger": bearer(issuer.token(audience=f"{url}/ledger", scope="read admin")),
        "a stranger's token for the vault": bearer(
            issuer.token(audience=f"{url}/vault", scope="admin", by=generate_signer("ES256", kid="issuer"))
        ),
    }
    expected = {**EXPECTED, **WITH_ONE_STORE} if has_one_store else EXPECTED
    command = [str(python_of("server-1.3.0")), "-m", *SERVERS["uvicorn-h11"](f"two_agents:{request.param}", port)]
    with ExitStack() as stack:
        here = Path(__file__).parent
        stack.enter_context(serving([*command, "--factory"], url, {"AGENTS": json.dumps(settings)}, here))
        http = stack.enter_context(httpx.Client(timeout=60, trust_env=False))
        yield House(url, expected, headers, folder, http)
    assert (folder / "closed").exists()  # the mounted application's lifespan ends with that of the process


def key(text: str) -> dict[str, str]:
    return {"X-API-Key": text}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("credential", EXPECTED)
def test_each_agent_admits_its_own_callers_only(house: House, agent: str, credential: str) -> None:
    status = house.expected[credential][AGENTS.index(agent)]
    asked = requests_at(agent)
    assert {*GUARDED, *PUBLIC} == set(asked)
    answers = {name: ask(house, each, credential) for name, each in asked.items()}
    statuses = {name: answer.status_code for name, answer in answers.items()}
    assert statuses == {**dict.fromkeys(GUARDED, status), **dict.fromkeys(PUBLIC, 200)}
    says = "from the vault, open" if agent == "vault" else "from the ledger, closed"
    for name in GUARDED:
        text = f"The extended card of the {agent}." if name.startswith("extended") else says
        assert (text in answers[name].text) is (status == 200), name
    for name in ("stream", "stream over HTTP"):
        is_stream = answers[name].headers["content-type"].startswith("text/event-stream")
        assert is_stream is (status == 200), name


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("credential", EXPECTED)
def test_each_challenge_leads_to_the_metadata_of_its_agent(house: House, agent: str, credential: str) -> None:
    answer = ask(house, requests_at(agent)["call"], credential)
    challenges = answer.headers.get_list("www-authenticate")
    assert bool(challenges) is (answer.status_code != 200)
    named = [url for challenge in challenges for url in re.findall(r'resource_metadata="([^"]*)"', challenge)]
    has_tokens = agent == "vault"
    assert bool(named) is (has_tokens and bool(challenges))
    for url in named:
        metadata = house.http.get(url).raise_for_status().json()
        assert metadata["resource"] == f"{house.url}/{agent}"
        assert metadata["scopes_supported"] == ["admin"]


def test_each_card_is_verified_by_the_keys_of_its_own_agent_only(house: House) -> None:
    keys = {agent: ask(house, requests_at(agent)["key set"]).content for agent in AGENTS}
    for agent, other in (AGENTS, AGENTS[::-1]):
        asked = requests_at(agent)
        public = [ask(house, asked[name]).content for name in ("card", "card by its older name")]
        assert public[0] == public[1]
        extended = ask(house, asked["extended card"], f"the {agent}'s key").content
        for card, which in ((public[0], "public"), (extended, "extended")):
            found = verified(card, keys[agent], house.url)
            assert (found["name"], found["description"]) == (agent, f"The {which} card of the {agent}.")
            assert found["securityRequirements"][0]["schemes"] == (
                {"key": {"list": ["read"]}} if agent == "ledger" else {"login": {"list": ["admin"]}}
            )
            with pytest.raises(TrustError):
                verified(card, keys[other], house.url)


def test_the_client_of_the_sdk_calls_each_agent_with_its_own_key_only(house: House) -> None:
    cases = [(agent, f"the {owner}'s key", binding) for agent in AGENTS for owner in AGENTS for binding in BINDINGS]
    questions = [
        {
            "url": f"{house.url}/{agent}",
            "path": "/.well-known/agent-card.json",
            "binding": binding,
            "version": "1.0",
            "key": house.headers[credential]["X-API-Key"],
            "keys": ask(house, requests_at(agent)["key set"]).json()["keys"],
        }
        for agent, credential, binding in cases
    ]
    answers = answer_of("python-1.3.0", str(CLIENT), questions)
    for (agent, credential, _), answer in zip(cases, answers, strict=True):
        status = house.expected[credential][AGENTS.index(agent)]
        assert (answer["public"]["status"], answer["public"]["refused"]) == (200, None)
        assert answer["extended"]["status"] == status
        if status == 200:
            assert (answer["extended"]["seen"], answer["extended"]["refused"]) == (
                f"The extended card of the {agent}.",
                None,
            )
            assert answer["called"].startswith(f"from the {agent}, ")
        else:
            assert answer["called"] == status


#: Paths that one part of a server may take for the vault's and another one for something else's.
ODD_PATHS: Final = [
    "/rpc",
    "//vault/rpc",
    "/vault//rpc",
    "/vault/rpc/",
    "/VAULT/rpc",
    "/vaults/rpc",
    "/vault;/rpc",
    "/ledger/../vault/rpc",
    "/ledger/%2e%2e/vault/rpc",
    "/ledger/..%2Fvault/rpc",
    "/ledger/vault/rpc",
    "/ledger/vault/rest/message:send",
    "/vault/ledger/rpc",
    "/vault/ledger/rest/message:send",
    "/acme/ledger/rest/message:send",
    "/ledger/acme/rest/message:send",
    "/acme/vault/rest/message:send",
    "/.well-known/agent-card.json",
    "/.well-known/jwks.json",
    "/ledger",
    "/vault",
    "/",
]


@pytest.mark.parametrize("path", ODD_PATHS)
@pytest.mark.parametrize("credential", ["nothing", "the ledger's key", "the vault's key"])
def test_no_odd_path_reaches_an_agent(house: House, path: str, credential: str) -> None:
    call = requests_at("vault")["call" if "rpc" in path else "call over HTTP"]
    headers = {"Content-Type": "application/json", "A2A-Version": "1.0", **house.headers[credential]}
    for method in ("GET", "POST"):
        body = json.dumps(call.body) if method == "POST" else None
        with closing(HTTPConnection(house.url.removeprefix("http://"), timeout=60)) as connection:
            connection.request(method, path, body, headers)  # as it stands; httpx would make a usual path of it
            answer = connection.getresponse()
            said = answer.read().decode()
        assert answer.status in (400, 401, 403, 404), method
        assert "from the " not in said
        assert "card of the " not in said


@pytest.mark.parametrize("credential", EXPECTED)
def test_an_encoded_slash_changes_nothing(house: House, credential: str) -> None:
    call = requests_at("vault")["call"]
    answer = ask(house, call._replace(path="/vault%2Frpc"), credential)
    assert answer.status_code == house.expected[credential][1]
    assert ("from the vault, open" in answer.text) is (answer.status_code == 200)


def test_other_paths_are_as_open_as_they_are_said_to_be(house: House) -> None:
    state, health = Asked("GET", "/vault/state"), Asked("GET", "/healthz")
    assert ask(house, health).text == "well"
    assert [ask(house, state, f"the {agent}'s key").status_code for agent in AGENTS] == [
        house.expected["the ledger's key"][1],
        200,
    ]
    # The mounted application's lifespan has run, and shares its state with that of the outer one.
    assert ask(house, state, "the vault's key").json() == {"house": "built", "door": "oiled"}
