"""The example as its readers start it, and with an OpenID provider as they have one."""

from __future__ import annotations

import json
import os
import shlex
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.real.openid_provider import AUDIENCE, OpenIdProvider, running_provider
from tests.servers.callers import FOLDER
from tests.servers.environments import answer_of, python_of
from tests.servers.serving import ROOT, SERVERS, free_port, serving

pytestmark = [pytest.mark.anyio, pytest.mark.real]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@contextmanager
def started(url: str) -> Iterator[list[str]]:
    """The example runs by its one command; the words of the call that it recommends."""
    python = python_of("server-1.3.0")
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "AGENT_URL": url}
    command = [str(python), "examples/sdk_hello_world/hello_world.py"]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        said = ""
        try:
            while "Uvicorn running" not in said:
                line = process.stdout.readline()
                assert line, said
                said += line
            call = said[said.index("curl ") : said.index("}'") + 2]
            yield shlex.split(call.replace("\\\n", ""))
        finally:
            process.terminate()


def test_the_call_that_the_example_prints_is_served_and_without_its_key_is_not() -> None:
    with started(f"http://127.0.0.1:{free_port()}") as (_curl, _no_buffer, url, *words):
        options = list(zip(words[::2], words[1::2], strict=True))
        headers = dict(value.split(": ") for option, value in options if option == "-H")
        (body,) = (value for option, value in options if option == "-d")
        answer = httpx.post(url, headers=headers, content=body)
        events = [json.loads(line.removeprefix("data: ")) for line in answer.text.splitlines() if line]
        assert [next(iter(event)) for event in events] == ["task", "statusUpdate", "artifactUpdate", "statusUpdate"]
        assert events[2]["artifactUpdate"]["artifact"]["parts"] == [{"text": "Hello World! You said: hi"}]
        del headers["X-API-Key"]
        assert httpx.post(url, headers=headers, content=body).status_code == 401


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenIdProvider]:
    with running_provider(tmp_path_factory.mktemp("provider")) as running:
        yield running


@pytest.fixture(scope="module")
def agent(provider: OpenIdProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The origin of an agent that knows that provider, by the certificate of its authority."""
    authority: Path = tmp_path_factory.mktemp("authority") / "authority.pem"
    (certificate,) = provider.tls.get_ca_certs(binary_form=True)
    authority.write_text(ssl.DER_cert_to_PEM_cert(certificate))
    port = free_port()
    origin = f"http://127.0.0.1:{port}"
    settings = {
        "AGENT_URL": origin,
        "AUDIENCE": AUDIENCE,
        "ISSUER": provider.issuer,
        "PRIVATE_ORIGINS": provider.issuer,
        "SSL_CERT_FILE": str(authority),
    }
    command = [str(python_of("server-1.3.0")), "-m", *SERVERS["uvicorn-h11"]("hello_world:app", port)]
    with serving(command, origin, settings, FOLDER):
        yield origin


async def test_of_the_tokens_of_a_real_provider_access_tokens_alone_are_good(
    provider: OpenIdProvider, agent: str
) -> None:
    login = await provider.login("ES256")
    bad = [
        login["id_token"],
        login["refresh_token"],
        await provider.dpop_token("ES256"),
        await provider.certificate_token("ES256"),
    ]
    good = [login["access_token"], await provider.access_token("RS256")]
    poor = await provider.access_token("ES256", scope="write")

    def case(token: str, binding: str) -> dict[str, Any]:
        return {
            "url": agent,
            "binding": binding,
            "version": "1.0",
            "streaming": True,
            "text": "hi",
            "credentials": {"login": token},
        }

    tokens = [token for token in (*bad, poor, *good) for _ in range(2)]
    cases = [case(token, ("JSONRPC", "HTTP+JSON")[index % 2]) for index, token in enumerate(tokens)]
    seen = answer_of("python-1.3.0", "sdk_client_1_3.py", cases)
    assert [answer["statuses"] for answer in seen] == [[401]] * 8 + [[403]] * 2 + [[200, 200]] * 4
    assert {answer["answer"] for answer in seen[-4:]} == {"Hello World! You said: hi"}
