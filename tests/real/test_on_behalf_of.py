"""The example ``on_behalf_of`` with a real server for token exchange: callers at once, and never another's data."""

from __future__ import annotations

import asyncio
import re
import ssl
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Final
from uuid import uuid4

import pytest

from a2a_trust import TrustFile
from a2a_trust.client import BearerToken, CredentialsRejectedError, verifying_client
from tests.examples.readme import session_of
from tests.real.token_servers import ExchangeServer
from tests.servers.environments import python_of
from tests.servers.serving import ROOT, _running, free_port

pytestmark = pytest.mark.anyio

COMMANDS: Final = re.findall(r"^\$ (.*?)(?: &)?$", session_of("on_behalf_of"), re.MULTILINE)
URLS: Final = {"8100": "ASSISTANT_URL", "8101": "CALENDAR_URL", "8102": "MAIL_URL"}
ANSWERS: Final = {
    "alice": ["calendar of alice: dentist at 10", "mail of alice: two from the bank"],
    "bob": ["calendar of bob: flight at 7", "mail of bob: one from Alice"],
}
EACH_AT_ONCE: Final = 12
ROUNDS: Final = 3


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def arguments_of(command: str) -> list[list[str]]:
    """Those of each line of the README with that command."""
    return [words for name, *words in map(str.split, COMMANDS) if name == command]


@pytest.fixture(scope="module")
def agents(exchange_server: ExchangeServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The URLs of the three agents, which the commands of the README have started, and their trust file."""
    folder = tmp_path_factory.mktemp("agents")
    for arguments in arguments_of("a2a-sign"):
        subprocess.run([sys.executable, "-m", "a2a_trust", *arguments], cwd=folder, check=True, capture_output=True)
    (der,) = exchange_server.tls.get_ca_certs(binary_form=True)
    (folder / "authority.pem").write_text(ssl.DER_cert_to_PEM_cert(der))
    (folder / "secret.txt").write_text("secret\n")
    urls = {name: f"http://127.0.0.1:{free_port()}" for name in URLS.values()}
    settings = {
        **dict(setting.split("=") for settings in arguments_of("export") for setting in settings),
        **urls,
        "ISSUER": exchange_server.issuer,
        "TOKEN_URL": exchange_server.token_url,
        "PRIVATE_ORIGINS": exchange_server.issuer,
        "SSL_CERT_FILE": "authority.pem",
        "TOKEN_TYPE": "JWT",
        "CLIENT_ID": "service",
        "AUDIENCE": "front",  # the server gives users tokens for the client that they have logged in with
    }
    python = python_of("google-adk-2.13.0")
    with ExitStack() as stack:
        waiting = []
        for *arguments, port in arguments_of("uvicorn"):
            url = urls[URLS[port]]
            here = [each.replace("examples/", f"{ROOT}/examples/") for each in arguments]
            command = [str(python), "-m", "uvicorn", *here, url.rpartition(":")[2], "--log-level", "warning"]
            waiting.append((stack.enter_context(_running(command, settings, folder)), url))
        for wait_for, url in waiting:
            wait_for(url)
        yield {**urls, "TRUST": str(folder / "trust.toml")}


async def asked(agents: dict[str, str], token: str, agent: str = "ASSISTANT_URL") -> dict[str, Any]:
    """The answer of JSON-RPC to a caller with that token."""
    url, trust = agents[agent], TrustFile(agents["TRUST"])
    said = {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [{"text": "What is up?"}]}
    call = {"jsonrpc": "2.0", "id": "1", "method": "SendMessage", "params": {"message": said}}
    credentials = {"login": BearerToken(token, origins=[url])}
    async with verifying_client(url, trust=trust, credentials=credentials) as http:
        answer: dict[str, Any] = (await http.post(f"{url}/rpc", json=call, headers={"A2A-Version": "1.0"})).json()
    return answer


async def test_callers_at_once_get_what_is_theirs(agents: dict[str, str], exchange_server: ExchangeServer) -> None:
    callers = ["alice", "bob"] * EACH_AT_ONCE
    tokens = [exchange_server.subject_token(user=user) for user in callers]  # each has its own, also of one user
    exchange_server.token_requests()
    for _ in range(ROUNDS):
        answers = await asyncio.gather(*[asked(agents, token) for token in tokens])
        texts = [[part["text"] for part in answer["result"]["message"]["parts"]] for answer in answers]
        assert texts == [ANSWERS[user] for user in callers]
    exchanges = Counter(
        (each.grant, each.resource, each.scope, each.status) for each in exchange_server.token_requests()
    )
    grant = "urn:ietf:params:oauth:grant-type:token-exchange"
    expected = [(grant, (f"https://{name}.example",), "read", 200) for name in ("calendar", "mail")]
    assert exchanges == dict.fromkeys(expected, len(tokens))  # later rounds have the tokens of the first


@pytest.mark.parametrize("agent", ["CALENDAR_URL", "MAIL_URL"])
async def test_the_token_of_the_caller_is_for_the_assistant_only(
    agents: dict[str, str], exchange_server: ExchangeServer, agent: str
) -> None:
    with pytest.raises(CredentialsRejectedError) as rejected:
        await asked(agents, exchange_server.subject_token(), agent)
    assert rejected.value.response.status_code == 401


async def test_a_caller_who_may_not_read_gets_nothing(agents: dict[str, str], exchange_server: ExchangeServer) -> None:
    with pytest.raises(CredentialsRejectedError) as rejected:
        await asked(agents, exchange_server.subject_token(scope="write"))
    assert (rejected.value.response.status_code, rejected.value.scopes) == (403, ("read",))
