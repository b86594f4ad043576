"""Credentials from texts, functions and files, for both clients."""

from __future__ import annotations

import copy
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from traceback import TracebackException
from typing import Any

import httpx
import pytest

from a2a_trust import ConfigurationError, generate_signer, verify_card
from a2a_trust.client import ApiKey, BasicCredentials, BearerToken, CardAuth, SecretFile
from a2a_trust.client.credentials import Credential
from a2a_trust.client.flow import run, run_async
from tests.base.net.test_fetcher import Authority
from tests.client.agents import OWNER_TRUSTED, Agent, Page, card_of, signed, trusting

pytestmark = pytest.mark.anyio

ORIGIN = "https://agent.example"
NONE = frozenset[str]()


def auth_of(agent: Agent, scheme: dict[str, Any], credential: Credential) -> CardAuth:
    agent.pages.setdefault("/rpc", Page(body=b"{}"))
    origin = agent.origin("127.0.0.1")
    card = card_of(origin, securitySchemes={"s": scheme}, securityRequirements=[{"schemes": {"s": {}}}])
    return CardAuth(
        verify_card(signed(card), trusting("127.0.0.1"), origin=origin), {"s": credential}, trust=OWNER_TRUSTED
    )


HEADER = {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}}
BEARER = {"httpAuthSecurityScheme": {"scheme": "bearer"}}


def replace(path: Path, text: str) -> None:
    """Put another file in the place, as a tool that writes secrets does."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.rename(path)


# Files


def test_a_secret_in_a_file_is_read_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"first\r\n")
    secret = SecretFile(path)
    credential = ApiKey(secret, origins=[ORIGIN])
    caplog.set_level("INFO")
    assert secret.read() == "first"
    replace(path, "second\n")
    value = run(credential.obtain(NONE))
    assert value.text == "second"
    assert credential.renew(value)
    assert f"SecretFile({str(path)!r}) was read again" in caplog.text
    for broken in ("", "\n", "two\nlines", "sécret", " blank", "tab\there"):
        replace(path, broken)
        assert secret.read() == "second"
        assert "cannot be read; keeping the previous version: the file is empty" in caplog.messages[-1]
    path.unlink()
    assert secret.read() == "second"
    assert "keeping the previous version: No such file" in caplog.messages[-1]
    replace(path, "third")
    assert secret.read() == "third"
    assert not [text for text in ("first", "second", "third", "lines", "blank") if text in caplog.text]
    assert repr(secret) == f"SecretFile({str(path)!r})"


@pytest.mark.parametrize("content", [b"", b"\n", b"a\nb", b"\xff", b"a" * 65_536 + b"\n b"])
def test_a_file_that_is_no_secret(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "secret").write_bytes(content)
    text = "larger than" if len(content) > 60_000 else "the file is empty, or is not a single line"
    with pytest.raises(ConfigurationError, match=text):
        SecretFile(tmp_path / "secret")


def test_what_is_no_file(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(ConfigurationError, match="name a file that has only the secret, on one line"):
            SecretFile(str(path))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigurationError, match="not a regular file"):
        SecretFile(tmp_path / "pipe")


def test_every_kind_of_credential_takes_a_file(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("open sesame")
    basic = BasicCredentials("Aladdin", SecretFile(path), origins=[ORIGIN])
    assert run(basic.obtain(NONE)).text == "QWxhZGRpbjpvcGVuIHNlc2FtZQ=="  # RFC 7617 2
    token = BearerToken(SecretFile(path), origins=[ORIGIN])
    with pytest.raises(ConfigurationError, match="not a token; pass only the token") as refused:
        run(token.obtain(NONE))
    assert "sesame" not in str(refused.value)


# Functions


class Source:
    """Gives another text each time, and counts."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self) -> str:
        self.asked += 1
        return f"secret-{self.asked}"

    async def later(self) -> str:
        return self()


async def test_a_function_is_asked_for_each_request(agent: Agent, authority: Authority) -> None:
    source = Source()
    auth = auth_of(agent, BEARER, BearerToken(source, origins=[agent.origin("127.0.0.1")]))
    with httpx.Client(verify=authority.client(), auth=auth) as http:
        for _ in range(2):
            assert http.post(f"{agent.origin('127.0.0.1')}/rpc").status_code == 200
    async with httpx.AsyncClient(verify=authority.client(), auth=auth) as client:
        assert (await client.post(f"{agent.origin('127.0.0.1')}/rpc")).status_code == 200
    assert [each.headers["authorization"] for each in agent.asked] == [f"Bearer secret-{i}" for i in (1, 2, 3)]


async def test_a_function_that_waits_is_for_the_client_that_waits(agent: Agent, authority: Authority) -> None:
    source = Source()
    auth = auth_of(agent, HEADER, ApiKey(source.later, origins=[agent.origin("127.0.0.1")]))
    async with httpx.AsyncClient(verify=authority.client(), auth=auth) as client:
        assert (await client.post(f"{agent.origin('127.0.0.1')}/rpc")).status_code == 200
    assert agent.asked[-1].headers["x-api-key"] == "secret-1"
    with (
        httpx.Client(verify=authority.client(), auth=auth) as http,
        pytest.raises(ConfigurationError, match=r"an async function is for AsyncClient"),
    ):
        http.post(f"{agent.origin('127.0.0.1')}/rpc")
    assert (source.asked, len(agent.asked)) == (1, 1)


async def test_something_else_that_can_be_awaited_is_for_the_client_that_waits() -> None:
    class Awaitable:
        def __await__(self) -> Any:
            yield from ()
            return "secret"

    credential = ApiKey(lambda: Awaitable(), origins=[ORIGIN])
    assert (await run_async(credential.obtain(NONE))).text == "secret"
    with pytest.raises(ConfigurationError, match="an async function is for"):
        run(credential.obtain(NONE))


@pytest.mark.parametrize("given", [None, b"secret", "", " a", "a\n", "é", 7])
def test_a_function_that_gives_something_else(given: Any) -> None:
    for credential in (ApiKey(lambda: given, origins=[ORIGIN]), BearerToken(lambda: given, origins=[ORIGIN])):
        with pytest.raises(ConfigurationError, match="the secret is not printable ASCII"):
            run(credential.obtain(NONE))


def test_a_text_that_is_no_token_is_not_shown() -> None:
    def text() -> str:
        return "Bearer s3cret"

    with pytest.raises(ConfigurationError, match="not a token; pass only the token") as refused:
        run(BearerToken(text, origins=[ORIGIN]).obtain(NONE))
    frames = TracebackException.from_exception(refused.value, capture_locals=True).stack
    assert [each.name for each in frames][-2:] == ["obtain", "_value"]
    assert "s3cret" not in repr([each.locals for each in frames if "/a2a_trust/" in each.filename])


def test_the_error_of_a_function_is_the_callers() -> None:
    def gone() -> str:
        raise KeyError("vault")

    with pytest.raises(KeyError, match="vault"):
        run(ApiKey(gone, origins=[ORIGIN]).obtain(NONE))


# Arguments


@pytest.mark.parametrize(
    "make",
    [
        lambda: ApiKey("", origins=[ORIGIN]),
        lambda: ApiKey("s3cret\r\nX: y", origins=[ORIGIN]),
        lambda: ApiKey(None, origins=[ORIGIN]),  # type: ignore[arg-type]
        lambda: ApiKey("s3cret", origins=ORIGIN),
        lambda: ApiKey("s3cret", origins=[]),
        lambda: ApiKey("s3cret", origins=["agent.example"]),
        lambda: ApiKey("s3cret", origins=["http://10.0.0.1"]),
        lambda: ApiKey("s3cret", origins=[f"{ORIGIN}/path"]),
        lambda: BearerToken("Bearer s3cret", origins=[ORIGIN]),
        lambda: BasicCredentials("a:b", "s3cret", origins=[ORIGIN]),
        lambda: BasicCredentials("a\nb", "s3cret", origins=[ORIGIN]),
    ],
)
def test_a_mistake_is_told_at_once_and_without_the_secret(make: Callable[[], Credential]) -> None:
    with pytest.raises(ConfigurationError) as refused:
        make()
    assert "s3cret" not in str(refused.value)


def test_no_copy_and_no_pickle() -> None:
    for credential in (
        ApiKey("s3cret", origins=[ORIGIN]),
        BasicCredentials("u", "s3cret", origins=[ORIGIN]),
        BearerToken("s3cret", origins=[ORIGIN], dpop=generate_signer("ES256")),
    ):
        assert repr(credential) == f"{type(credential).__name__}(…, origins=['https://agent.example'])"
        for refused in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="it holds a secret"):
                refused(credential)


def test_a_fixed_text_is_not_renewed() -> None:
    credential = ApiKey("s3cret", origins=[ORIGIN])
    value = run(credential.obtain(NONE))
    assert not credential.renew(value)
    assert run(credential.obtain(NONE)) is value
    assert credential.may_step_up(frozenset({"a"})) is None


async def test_a_rejected_file_is_tried_once_more_after_a_change(
    agent: Agent, authority: Authority, tmp_path: Path
) -> None:
    path = tmp_path / "key"
    path.write_text("old")
    origin = agent.origin("127.0.0.1")
    auth = auth_of(agent, HEADER, ApiKey(SecretFile(path), origins=[origin]))

    def rotated(asked: Any) -> Page:
        if asked.headers["x-api-key"] == "old":
            replace(path, "new")
            return Page(status=401)
        return Page(body=b"{}")

    agent.pages["/rpc"] = rotated
    with httpx.Client(verify=authority.client(), auth=auth) as http:
        assert http.post(f"{origin}/rpc").status_code == 200
        agent.pages["/rpc"] = Page(status=401)
        agent.asked.clear()
        with pytest.raises(httpx.HTTPStatusError):
            http.post(f"{origin}/rpc")
    assert len(agent.asked) == 1  # the file has not changed


async def test_a_token_with_a_key_of_its_own_is_proved(agent: Agent, authority: Authority) -> None:
    signer = generate_signer("ES256")
    auth = auth_of(agent, BEARER, BearerToken("t1", origins=[agent.origin("127.0.0.1")], dpop=signer))
    async with httpx.AsyncClient(verify=authority.client(), auth=auth) as http:
        await http.post(f"{agent.origin('127.0.0.1')}/rpc")
    assert agent.asked[-1].headers["authorization"] == "DPoP t1"
    assert agent.asked[-1].headers["dpop"].count(".") == 2
