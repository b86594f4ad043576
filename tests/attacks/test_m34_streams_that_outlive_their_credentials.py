"""M34: a caller keeps its stream when its token has expired or its key is revoked.

Streams of agents ran until their application ended them, whatever became of the token with which they began.
"""

from __future__ import annotations

import json

import pytest

from a2a_trust import JwtVerifier
from a2a_trust.auth import Identity, SeveralIssuers
from a2a_trust.auth.basic.verifier import BasicVerifier
from a2a_trust.auth.token_claims import asks_issuer
from a2a_trust.errors import KeySourceUnavailableError
from tests.auth.introspecting import active, introspecting, verifier_for
from tests.auth.test_jwt import AUDIENCE, EC, ISSUER, NOW, Keys, token
from tests.middleware.test_streams import EVENT, Client, Clock, Streaming, Talking, Verifier, agent, run
from tests.waiting import settled, until

WITHOUT_LENGTH = [(b"content-type", b"application/octet-stream")]


@pytest.fixture(autouse=True)
def _looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("a2a_trust.middleware.streams._LOOK_SECONDS", 0.0)


def bearer(app: object, credential: str) -> Client:
    return Client(app, "/events", headers=[(b"authorization", f"Bearer {credential}".encode())])


def test_a_silent_stream_ends_too() -> None:
    async def test() -> None:
        for streaming in (Streaming(), Streaming(headers=WITHOUT_LENGTH), Streaming(b"data: half", listens=False)):
            clock = Clock()
            streaming.go_on.set() if streaming.listens else None
            client = Client(agent(streaming, Verifier(), clock))
            await until(lambda client=client: bool(client.sent))  # type: ignore[misc]
            clock.now += 60
            await client.request

    run(test)


def test_a_websocket_that_only_listens_ends_too() -> None:
    async def test() -> None:
        clock = Clock()
        client = Client(agent(Talking(), Verifier(), clock), "/events", kind="websocket")
        await until(lambda: bool(client.sent))
        clock.now += 60
        await client.request
        assert client.sent[-1]["code"] == 1008

    run(test)


def test_an_outage_of_the_store_keeps_no_stream_of_a_revoked_key() -> None:
    async def test() -> None:
        verifier, app = Verifier(), Streaming(EVENT)
        app.go_on.set()
        client = Client(agent(app, verifier, Clock()), "/events")
        await until(lambda: client.body == EVENT)
        verifier.error = KeySourceUnavailableError("the store is lost")
        await client.request
        assert b"event: error" in client.body

    run(test)


def test_lines_that_come_after_the_head_are_no_other_credential() -> None:
    async def test() -> None:
        seen: list[str] = []

        class Noting(Verifier):
            async def verify(self, credential: str, now: float) -> Identity:
                seen.append(credential)
                return await super().verify(credential, now)

        app = Streaming(EVENT)
        app.go_on.set()
        verifier = Noting()
        client = Client(agent(app, verifier, Clock()), "/events")
        await until(lambda: client.body == EVENT)
        client.scope["headers"][0] = (b"x-api-key", b"of another caller")  # as trailers are added in uvicorn
        times = verifier.times
        await until(lambda: verifier.times > times + 2)
        client.queue.put_nowait({"type": "http.disconnect"})
        await client.request
        assert set(seen) == {"secret"}

    run(test)


def test_an_event_of_ours_is_never_in_the_middle_of_an_event_of_the_application() -> None:
    async def test() -> None:
        for begin in (b"data: {", b"data: {}\n", b"data: {}\r\n", b"event: x\n"):
            clock, app = Clock(), Streaming(begin, listens=False)
            client = Client(agent(app, Verifier(), clock))
            await until(lambda client=client, begin=begin: client.body == begin)  # type: ignore[misc]
            clock.now += 60
            await client.request
            assert (client.body, client.is_whole) == (begin, False)

    run(test)


def test_the_error_says_nothing_of_the_reason() -> None:
    async def test() -> None:
        verifier, app = Verifier(), Streaming(EVENT)
        app.go_on.set()
        client = Client(agent(app, verifier, Clock()), "/events")
        await until(lambda: client.body == EVENT)
        verifier.error = RuntimeError("a secret of the operator")
        await client.request
        assert b"operator" not in client.body

    run(test)


def test_an_issuer_is_not_asked_again_about_the_token_of_a_stream() -> None:
    async def test() -> None:
        async with introspecting(opaque=active(), other=active()) as server:
            introspects = verifier_for(server, remember_for=0)
            jwt = JwtVerifier(Keys(EC), issuer="https://other.example", audience=AUDIENCE)
            for verifier in (introspects, SeveralIssuers([jwt, introspects])):
                assert asks_issuer(verifier)
                app, clock = Streaming(EVENT), Clock()
                app.go_on.set()
                client = bearer(agent(app, verifier, clock, scheme="oauth"), "opaque")
                await until(lambda client=client: client.body == EVENT)  # type: ignore[misc]
                asked = len(server.forms)
                for _ in range(20):
                    await settled()
                assert not client.request.done()
                assert len(server.forms) == asked
                clock.now += 3600
                await client.request
                assert b"event: error" in client.body

    run(test)


def test_what_another_request_learned_of_a_token_ends_its_stream() -> None:
    async def test() -> None:
        async with introspecting(opaque=active()) as server:
            verifier, app = verifier_for(server, remember_for=0), Streaming(EVENT)
            app.go_on.set()
            guarded = agent(app, verifier, Clock(), scheme="oauth")
            client = bearer(guarded, "opaque")
            await until(lambda: client.body == EVENT)
            server.tokens["opaque"] = {"active": False}
            other = bearer(guarded, "opaque")
            await other.request
            await client.request
            assert other.sent[0]["status"] == 401
            assert b"event: error" in client.body

    run(test)


def test_a_function_for_passwords_is_not_called_again() -> None:
    async def test() -> None:
        called: list[str] = []

        async def check(user: str, password: str) -> Identity:
            called.append(user)
            return Identity(issuer="staff", subject=user, scopes=frozenset({"read"}), expires_at=NOW + 60)

        app, clock = Streaming(EVENT), Clock()
        app.go_on.set()
        guarded = agent(app, BasicVerifier(check), clock, scheme="basic")
        client = Client(guarded, "/events", headers=[(b"authorization", b"Basic YW5uOnNlY3JldA==")])
        await until(lambda: client.body == EVENT)
        await settled()
        assert called == ["ann"]
        clock.now += 60
        await client.request

    run(test)


def test_a_stream_ends_when_the_issuer_withdraws_the_key_of_its_token() -> None:
    async def test() -> None:
        keys = Keys(EC)
        verifier, app = JwtVerifier(keys, issuer=ISSUER, audience=AUDIENCE), Streaming(EVENT)
        app.go_on.set()
        client = bearer(agent(app, verifier, Clock(), scheme="oauth"), token())
        await until(lambda: client.body == EVENT)
        await settled()
        assert not client.request.done()
        keys.keys.clear()
        keys.generation += 1
        await client.request
        assert json.loads(client.body.partition(b"event: error\ndata: ")[2])["error"]["code"] == 401

    run(test)
