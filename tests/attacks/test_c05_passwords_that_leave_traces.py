"""C5: a password that callers send is found in a log, an answer, a repr, or in what the application gets."""

from __future__ import annotations

import asyncio
import json
import logging
import time
import traceback
from base64 import b64encode
from typing import Any

import httpx
import pytest

from a2a_trust.auth.basic.hashing import Hashing
from a2a_trust.auth.basic.records import MemoryPasswords
from a2a_trust.auth.basic.verifier import BasicVerifier
from a2a_trust.auth.principal import Identity
from a2a_trust.errors import ConfigurationError, InvalidCredentialsError, TrustError
from tests.attacks.test_m09_passwords_written_oddly import CARD_OF_BASIC
from tests.auth.basic.test_verifier import PASSWORD, RECORD
from tests.middleware.agent import Agent, guarded

pytestmark = pytest.mark.anyio

WRONG, ODD = "a wrong one of ann's", "an odd one\nof ann's"
SECRETS = (PASSWORD, WRONG, ODD, "an odd one", RECORD.hash, RECORD.hash.rpartition("$")[2])


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def carried(user: str, password: str) -> str:
    return b64encode(f"{user}:{password}".encode()).decode()


ALL_SECRETS = (*SECRETS, *(carried("ann", each) for each in SECRETS), *(carried(each, "x") for each in SECRETS))


async def post(app: Any, **headers: str) -> httpx.Response:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://agent.example") as http:
        return await http.post("/rpc", headers=headers)


async def fails(user: str, password: str) -> Identity | None:
    raise OSError(f"cannot ask for {user} with {password}")


async def fails_deeply(user: str, password: str) -> Identity | None:
    raise ConfigurationError(f"cannot ask for {user} with {password}")


@pytest.mark.parametrize("source", [MemoryPasswords([RECORD]), fails, fails_deeply])
async def test_no_log_no_answer_and_no_application_has_a_password(
    source: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, "a2a_trust.audit")
    agent, told = Agent(), []
    app: Any = guarded(agent, CARD_OF_BASIC, verifiers={"login": BasicVerifier(source)}, clock=time.time)
    pairs = [("ann", PASSWORD), ("ann", WRONG), ("ann", ODD), (PASSWORD, "x"), (WRONG, "x"), (ODD, "x")]
    for text in (*(carried(*pair) for pair in pairs), PASSWORD, f"ann:{PASSWORD}", carried("ann", PASSWORD)[:-1]):
        answer = await post(app, Authorization=f"Basic {text}")
        told.append(f"{answer.status_code} {answer.headers} {answer.text}")
    told.append((await post(app)).text)
    told += [str(vars(record)) for record in caplog.records if not record.name.startswith(("http", "asyncio"))]
    told += [repr(scope) + repr(scope["user"]) for scope in agent.scopes]
    assert len(agent.scopes) == isinstance(source, MemoryPasswords)
    assert "Authorization: basic" in caplog.text
    assert not [(each, secret) for each in told for secret in ALL_SECRETS if secret in each]


async def test_no_part_of_a_verifier_shows_a_password(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryPasswords([RECORD])
    verifier = BasicVerifier(store)
    await verifier.verify(carried("ann", PASSWORD), time.time())
    stored = verifier._passwords
    shown: list[Any] = [verifier, store, stored, store.records()]
    kept = [*vars(stored).values(), *stored._right._entries]  # type: ignore[union-attr]
    for each in (*shown, *kept):
        assert not [secret for secret in (PASSWORD, carried("ann", PASSWORD)) if secret in repr(each)]
    assert PASSWORD.encode() not in b"".join(stored._right._entries)  # type: ignore[union-attr]
    waiting = asyncio.create_task(verifier.verify(carried("ann", WRONG), time.time()))
    while not (flights := stored._flights._flights):  # type: ignore[union-attr]
        await asyncio.sleep(0)
    assert WRONG not in repr(flights) + repr(asyncio.all_tasks())
    with pytest.raises(InvalidCredentialsError):
        await waiting


@pytest.mark.parametrize("broken", [MemoryError, ValueError, OSError])
async def test_no_error_of_the_hashing_tells_what_was_hashed(broken: Any, caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def verify(self, hashed: str, password: str) -> bool:
            raise broken(f"{hashed} {password}")

    pool: Any = Hashing()
    pool._hasher = Broken()
    with pytest.raises(TrustError) as caught:
        await pool.is_right(RECORD.hash, PASSWORD, ("",))
    told = "".join(traceback.format_exception(caught.value)) + caplog.text + json.dumps(vars(caught.value))
    assert not [secret for secret in ALL_SECRETS if secret in told]
