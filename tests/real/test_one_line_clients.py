"""Programs on a2a-sdk, Google's ADK and BeeAI call an agent that demands a key and a token, after one line of ours."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import pytest
from cryptography import x509

from a2a_trust import generate_signer, publish_jwks
from a2a_trust.auth.record_table import SqliteApiKeys
from a2a_trust.keys.files import save_private_key
from tests.certificates import SERVER, Authority
from tests.real.openid_provider import AUDIENCE, OpenIdProvider
from tests.real.server_process import TokenRequest
from tests.servers.environments import answer_of, python_of
from tests.servers.serving import ROOT, free_port, serving

pytestmark = pytest.mark.real

SCRIPT: Final = Path(__file__).resolve().parent / "one_line_clients.py"
GREETING: Final = "Hello World! You said: hi"
EVENTS: Final = "task status_update artifact_update status_update"

#: What each program comes to.
ANSWERS: Final = {
    "message": f"task: {GREETING}",
    "stream": f"{EVENTS}: {GREETING}",
    "message by REST": f"task: {GREETING}",
    "stream by REST": f"{EVENTS}: {GREETING}",
    "cancel": "TASK_STATE_CANCELED",
    "ADK": GREETING,
    "BeeAI": GREETING,
}


class Shown(NamedTuple):
    """How a program shows an error: the name of its own, and the text of that one, with ours in place of {}."""

    name: str
    text: str


SHOWN: Final = {
    "message": Shown("A2AClientError", "{}"),
    "stream": Shown("A2AClientError", "{}"),
    "message by REST": Shown("A2AClientError", "{}"),
    "ADK": Shown("RuntimeError", "A2A request failed: {}"),  # an event with that text; the error itself is not kept
    "BeeAI": Shown("FrameworkError", "Framework error"),
}


class Wrong(NamedTuple):
    """What differs from a program that works, our errors that say so, and the text: what is before ours, and in it."""

    changes: dict[str, Any]
    errors: list[str]
    texts: tuple[str, ...]


_NOT_SENT: Final = "Network communication error: no credential for the request: "
_NEEDS: Final = ["CredentialsError", "MissingCredentialsError"]
_KEY: Final = "'key' asks for an API key in the header X-API-Key with the scopes read: pass credentials={'key': ApiKey("
_TOKEN: Final = "/token with the scopes read: pass credentials={'oauth': ClientCredentials(OAuthClient("
WRONG: Final = {
    "no key": Wrong({"key": None}, _NEEDS, (_NOT_SENT, _KEY)),
    "no token": Wrong({"login": None}, _NEEDS, (_NOT_SENT, "'oauth' asks for an OAuth 2.0 token from https", _TOKEN)),
    "neither": Wrong({"key": None, "login": None}, _NEEDS, (_NOT_SENT, _KEY, _TOKEN)),
    "scope that is not allowed": Wrong({"scopes": []}, _NEEDS, (_NOT_SENT, "allowed_scopes does not have 'read'")),
    "secret that the provider rejects": Wrong(
        {"login": "wrong"},
        ["CredentialsError", "TokenRequestError"],
        (_NOT_SENT, "rejects the token request of the client 'service': invalid_client"),
    ),
    "key that the agent rejects": Wrong(
        {"key": "wrong"},
        ["CredentialsRejectedError"],
        (
            "HTTP Error 401: ",
            "answers 401 to a request with 'key', 'oauth'. In the card, 'key' asks for an API key in the",
        ),
    ),
    "token for less": Wrong(
        {"token": "poor"},
        ["CredentialsRejectedError"],
        (
            "HTTP Error 403: ",
            "The agent asks for apikey, bearer (insufficient_scope), scopes read, metadata at https://localhost:",
        ),
    ),
}


Case: TypeAlias = tuple[str, str]
"""A program, and what is wrong with it; "" for nothing."""


class Seen(NamedTuple):
    """What the cases come to, and the token requests of those with nothing wrong."""

    url: str
    outcomes: dict[Case, dict[str, Any]]
    token_requests: list[TokenRequest]
    secrets: list[str]


@pytest.fixture(scope="module")
def seen(provider: OpenIdProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    folder = tmp_path_factory.mktemp("agent")
    authority, owner = Authority("Servers"), generate_signer("ES256")
    authority.issue(x509.DNSName("localhost"), usage=SERVER).write(folder, "server")
    (folder / "servers.pem").write_bytes(authority.pem)
    (der,) = provider.tls.get_ca_certs(binary_form=True)
    (folder / "provider.pem").write_text(ssl.DER_cert_to_PEM_cert(der))
    save_private_key(folder / "card.key", owner)
    key = SqliteApiKeys(folder / "keys.db", create=True).create(owner="ann", scopes=["read"]).text
    poor = asyncio.run(provider.access_token("ES256", scope="write"))
    url = f"https://localhost:{free_port()}"
    good: dict[str, Any] = {
        "url": url,
        "keys": publish_jwks([owner.public_key]),
        "ca": str(folder / "servers.pem"),
        "provider_ca": str(folder / "provider.pem"),
        "issuer": provider.issuer,
        "resource": f"{AUDIENCE}/ES256",
        "scopes": ["read"],
        "key": key,
        "login": "secret",
    }

    def case(program: str, wrong: str) -> dict[str, Any]:
        changes = WRONG[wrong].changes if wrong else {}
        changed = {**good, "program": program, **changes, **({"token": poor} if "token" in changes else {})}
        return {member: value for member, value in changed.items() if value is not None}

    settings = {
        "AGENT_URL": url,
        "SCHEME": "key",
        "ISSUER": provider.issuer,
        "AUDIENCE": AUDIENCE,
        "PROVIDER": "provider.pem",
        "CARD_KEY": "card.key",
        "API_KEYS": "keys.db",
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'examples' / 'sdk_hello_world'}",
    }
    uvicorn = f"uvicorn tests.real.demanding_hello_world:app --port {url.rpartition(':')[2]} --log-level warning"
    tls = "--ssl-certfile server.pem --ssl-keyfile server.key"
    command = [str(python_of("server-1.3.0")), "-m", *uvicorn.split(), *tls.split()]
    with serving(command, url, settings, folder):
        provider.token_requests()
        outcomes = run({(program, ""): case(program, "") for program in ANSWERS}, good["ca"])
        asked = provider.token_requests()
        outcomes |= run({(program, wrong): case(program, wrong) for program in SHOWN for wrong in WRONG}, good["ca"])
        yield Seen(url, outcomes, asked, [key, poor, "secret"])


def run(cases: dict[Case, dict[str, Any]], authorities: str) -> dict[Case, dict[str, Any]]:
    """What the cases come to; one process of each environment runs those of its programs."""
    found: dict[Case, dict[str, Any]] = {}
    # BeeAI fetches the card without the client that it is given.
    settings = {"PYTHONPATH": str(ROOT), "SSL_CERT_FILE": authorities, "BEEAI_LOG_LEVEL": "ERROR"}
    for environment in ("google-adk-2.13.0", "frameworks-2026.11"):
        of_it = [each for each in cases if (each[0] == "BeeAI") is (environment == "frameworks-2026.11")]
        answers = answer_of(environment, str(SCRIPT), [cases[each] for each in of_it], **settings)
        found.update(zip(of_it, answers, strict=True))
    return found


@pytest.mark.parametrize("program", ANSWERS)
def test_an_unchanged_program_with_the_line_is_served(seen: Seen, program: str) -> None:
    assert seen.outcomes[program, ""] == {"answer": ANSWERS[program], "errors": []}


def test_each_program_asks_for_one_token_with_the_scope_of_the_card(seen: Seen) -> None:
    resource = (f"{AUDIENCE}/ES256",)
    one = TokenRequest("client_credentials", "service", "client_secret_basic", "read", resource, (), False, 200)
    assert seen.token_requests == [one] * len(ANSWERS)  # "cancel" and its stream use one


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("program", SHOWN)
def test_the_error_that_the_user_sees_says_what_is_wrong(seen: Seen, program: str, wrong: str) -> None:
    (before, *texts), shown = WRONG[wrong].texts, SHOWN[program]
    links = seen.outcomes[program, wrong]["errors"]
    assert [link["name"] for link in links] == [shown.name, *(WRONG[wrong].errors if program != "ADK" else [])]
    assert links[0]["text"].startswith(shown.text.format(before))
    ours = links[1 if program == "BeeAI" else 0]["text"]
    assert all(text in ours for text in texts)
    assert not any(secret in str(links) for secret in seen.secrets)


@pytest.mark.parametrize("wrong", ["key that the agent rejects", "token for less"])
@pytest.mark.parametrize("program", [program for program in SHOWN if program != "ADK"])
def test_what_card_and_agent_ask_for_is_in_the_error(seen: Seen, program: str, wrong: str) -> None:
    rejected = seen.outcomes[program, wrong]["errors"][1]
    assert rejected["schemes"] == ["key", "oauth"]
    assert rejected["scopes"] == ["read"]
    assert rejected["metadata"] == f"{seen.url}/.well-known/oauth-protected-resource"
