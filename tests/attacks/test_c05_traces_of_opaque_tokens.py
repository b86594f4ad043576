"""C5: an opaque token, or the secret with which an agent asks about it, is found in a log, an error, a traceback with
its variables, the claims or a repr.
"""

from __future__ import annotations

import base64
import logging
import traceback
from typing import Any

import pytest

from a2a_trust import generate_signer
from a2a_trust.client import ClientSecret, PrivateKeyJwt
from a2a_trust.errors import TrustError
from tests.auth.introspecting import CLIENT_ID, CLIENT_SECRET, IntrospectionServer, active, introspecting, verifier_for
from tests.auth.test_jwt import NOW, Keys
from tests.tables import walk

pytestmark = pytest.mark.anyio

TOKEN = "opaque-token-of-ann"
BASIC = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
ECHO = b'{"error": "invalid_client", "error_description": "' + f"{TOKEN} {CLIENT_SECRET} {BASIC}".encode() + b'"}'
FAILURES = [
    ("500 Oops", ECHO),
    ("401 No", ECHO),
    ("400 Bad", ECHO),
    ("400 Bad", b'{"error": "' + TOKEN.encode() + b'"}'),
    ("200 OK", ECHO),
    ("200 OK", b"not JSON " + ECHO),
    ("200 OK", b'{"active": false, "error": "' + TOKEN.encode() + b'"}'),
]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Failing:
    """A signer in a cloud that is out of reach."""

    alg, kid = "ES256", "k"
    public_key = generate_signer("ES256", kid="k").public_key

    def sign(self, data: bytes) -> bytes:
        raise OSError(CLIENT_SECRET)


async def traces_of(server: IntrospectionServer, **options: Any) -> str:
    """What an error tells, with the variables of all frames but those of callers, who have the token anyway."""
    verifier = verifier_for(server, **options)
    with pytest.raises(TrustError) as caught:
        await verifier.verify(TOKEN, NOW)
    chain = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    assert chain.__cause__ is None
    assert chain.__context__ is None
    for frame in chain.stack:
        if frame.locals is not None:
            frame.locals.pop("credential", None)
    return "".join(chain.format()) + repr(vars(verifier)) + repr(vars(verifier._endpoint))


@walk("failing", FAILURES)
@walk("method", ["client_secret_basic", "client_secret_post"])
async def test_no_failure_tells_the_token_or_the_secret(
    failing: tuple[str, bytes], method: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with introspecting() as server:
        server.failing = failing
        told = await traces_of(server, authentication=ClientSecret(CLIENT_SECRET, method=method))
        await server.stop()
        told += await traces_of(server)
    logged = "".join(str(vars(record)) for record in caplog.records)
    for secret in (TOKEN, CLIENT_SECRET, BASIC):
        assert secret not in told
        assert secret not in logged


async def test_a_signer_that_fails_tells_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with introspecting() as server:
        told = await traces_of(server, authentication=PrivateKeyJwt(Failing()))
    assert CLIENT_SECRET not in told + caplog.text
    assert TOKEN not in told + caplog.text


async def test_what_is_signed_for_us_is_not_told_either(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with introspecting() as server:
        server.content_type, server.answer = "application/token-introspection+jwt", lambda _: TOKEN.encode()
        told = await traces_of(server, signed_answers=Keys())
    assert TOKEN not in told + caplog.text


async def test_the_claims_of_an_identity_do_not_hold_the_token() -> None:
    async with introspecting(**{TOKEN: active(token=TOKEN, access_token=TOKEN)}) as server:
        identity = await verifier_for(server).verify(TOKEN, NOW)
    assert TOKEN not in repr(identity) + repr(dict(identity.claims))
