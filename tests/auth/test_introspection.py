"""Opaque tokens: which answers of the server make an identity, what is asked and when, and what is remembered."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from a2a_trust import generate_signer
from a2a_trust.auth import AccessTokenMark, CredentialKind, KeyBinding, SeveralIssuers, TokenBinding
from a2a_trust.auth import introspection_endpoint as endpoint
from a2a_trust.auth.api_key.verifier import ApiKeyVerifier, MemoryApiKeys
from a2a_trust.auth.guard import Guard
from a2a_trust.auth.introspection import IntrospectionVerifier
from a2a_trust.auth.jwt import IdTokenVerifier, JwtVerifier
from a2a_trust.auth.principal import Identity, Principal
from a2a_trust.card.view import CardView, read_card
from a2a_trust.client import ClientSecret, PrivateKeyJwt, SecretFile, TlsClientAuth
from a2a_trust.errors import (
    ConfigurationError,
    InvalidCredentialsError,
    KeySourceUnavailableError,
    UnrecognizedCredentialsError,
)
from tests.auth.api_key.test_verifier import Clock
from tests.auth.deciding import admitted
from tests.auth.introspecting import CLIENT_ID, CLIENT_SECRET, IntrospectionServer, active, introspecting, verifier_for
from tests.auth.test_jwt import AUDIENCE, EC, ISSUER, NOW, Keys, b64, claims, token
from tests.tables import walk

pytestmark = pytest.mark.anyio

JKT = b64(hashlib.sha256(b"key").digest())
NOT_ASKED: list[str] = []


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of the back-off."""
    made = Clock()
    monkeypatch.setattr(endpoint, "time", SimpleNamespace(monotonic=made))
    return made


@pytest.fixture(autouse=True)
def _patient_with_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine takes longer for a question than it may wait for its turn."""
    monkeypatch.setattr(endpoint, "_WAIT", 60.0)
    monkeypatch.setattr(endpoint, "_PATIENCE", 60.0)


async def identity_of(answer: Any, **options: Any) -> Any:
    async with introspecting(good=answer) as server:
        return await verifier_for(server, **options).verify_bound("good", NOW)


async def rejection_of(answer: Any, **options: Any) -> str:
    with pytest.raises(InvalidCredentialsError) as caught:
        await identity_of(answer, **options)
    return str(caught.value)


# The request


async def test_the_question_is_a_form_of_a_client_that_authenticates() -> None:
    async with introspecting(good=active()) as server:
        identity = await verifier_for(server).verify("good", NOW)
    assert server.forms == [{"token": ["good"], "token_type_hint": ["access_token"]}]
    head = server.heads[0]
    assert head.startswith("POST /introspect HTTP/1.1\r\n")
    basic = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
    assert f"Authorization: Basic {basic}\r\n" in head
    assert "Content-Type: application/x-www-form-urlencoded\r\n" in head
    assert (identity.issuer, identity.subject) == (ISSUER, "ann")
    assert identity.scopes == {"read", "write"}
    assert identity.expires_at == NOW + 3600
    assert identity.claims["client_id"] == "app"


async def test_a_client_authenticates_by_a_form_an_assertion_or_a_certificate() -> None:
    signer = generate_signer("ES256")
    async with introspecting(good=active()) as server:
        for authentication in (
            ClientSecret(CLIENT_SECRET, method="client_secret_post"),
            PrivateKeyJwt(signer),
            TlsClientAuth(),
        ):
            await verifier_for(server, authentication=authentication).verify("good", NOW)
    post, assertion, certificate = server.forms
    assert (post["client_id"], post["client_secret"]) == ([CLIENT_ID], [CLIENT_SECRET])
    (jwt,) = assertion["client_assertion"]
    said = json.loads(base64.urlsafe_b64decode(jwt.split(".")[1] + "=="))
    assert (said["iss"], said["sub"], said["aud"]) == (CLIENT_ID, CLIENT_ID, ISSUER)
    assert certificate == {"token": ["good"], "token_type_hint": ["access_token"], "client_id": [CLIENT_ID]}
    assert not [head for head in server.heads if "Authorization" in head]


async def test_an_async_function_may_give_the_secret() -> None:
    async def secret() -> str:
        await asyncio.sleep(0)
        return CLIENT_SECRET

    async with introspecting(good=active()) as server:
        await verifier_for(server, authentication=ClientSecret(secret)).verify("good", NOW)
    assert "Authorization: Basic" in server.heads[0]


# The answer


@walk(
    ("changes", "why"),
    [
        ({"active": False}, "not active"),
        ({"iss": "https://other.example"}, "issuer"),
        ({"iss": [ISSUER]}, "issuer"),
        ({"aud": "https://other.example"}, "audience"),
        ({"aud": [AUDIENCE, 1]}, "audience"),
        ({"aud": ""}, "audience"),
        ({"aud": ...}, "pass allow_missing_audience=True"),
        ({"aud": None}, "pass allow_missing_audience=True"),
        ({"exp": int(NOW)}, "expired"),
        ({"exp": str(int(NOW) + 100)}, "exp is not a number"),
        ({"exp": True}, "exp is not a number"),
        ({"nbf": int(NOW) + 31}, "not valid yet"),
        ({"iat": int(NOW) + 31}, "not valid yet"),
        ({"iat": "today"}, "iat is not a number"),
        ({"token_type": ...}, "pass marked_by=.*knows_access_tokens_only=True"),
        ({"token_type": "refresh_token"}, "so it is not an access token"),
        ({"token_type": "N_A"}, "so it is not an access token"),
        ({"token_type": ["Bearer"]}, "so it is not an access token"),
        ({"token_type": "DPoP"}, "names no key"),
        ({"token_type": "DPoP", "cnf": {"x5t#S256": JKT}}, "names no key"),
        ({"token_use": "refresh_token"}, "so it is not an access token"),
        ({"token_use": "id"}, "so it is not an access token"),
        ({"typ": "Refresh"}, "so it is not an access token"),
        ({"typ": "Offline"}, "so it is not an access token"),
        ({"typ": "ID"}, "so it is not an access token"),
        ({"at_hash": "x"}, "ID token or a logout token"),
        ({"c_hash": "x"}, "ID token or a logout token"),
        ({"s_hash": "x"}, "ID token or a logout token"),
        ({"events": {}}, "ID token or a logout token"),
        ({"cnf": {"jwk": {}}}, "not supported"),
        ({"cnf": {"jkt": "short"}}, "not a SHA-256 thumbprint|not canonical"),
        ({"sub": ""}, "sub is missing, empty or not a string"),
        ({"sub": 7}, "sub is missing, empty or not a string"),
        ({"sub": ..., "client_id": ...}, "no sub, username or client_id"),
        ({"scope": 7}, "scope is neither"),
    ],
)
async def test_an_answer_that_is_not_about_a_valid_access_token_for_us(changes: dict[str, Any], why: str) -> None:
    async with introspecting(good=active(**changes)) as server:
        verifier = verifier_for(server)
        for _ in range(2):
            with pytest.raises(InvalidCredentialsError, match=why):
                await verifier.verify_bound("good", NOW)
    assert server.asked == ["good"]  # it is remembered as invalid


@walk(
    ("changes", "options"),
    [
        ({"iss": ...}, {}),
        ({"exp": ...}, {}),
        ({"aud": [AUDIENCE, "other"]}, {}),
        ({"aud": "second"}, {"audience": [AUDIENCE, "second"]}),
        ({"aud": ...}, {"allow_missing_audience": True}),
        ({"token_type": "bearer"}, {}),
        ({"token_type": ..., "typ": "Bearer"}, {}),
        ({"token_type": ..., "token_use": "access_token"}, {}),
        ({"token_type": ..., "token_use": "access"}, {}),
        ({"token_type": ...}, {"knows_access_tokens_only": True}),
        ({"token_type": ..., "kind": "at"}, {"marked_by": AccessTokenMark("kind", "at")}),
        ({"username": None, "nbf": None}, {}),
        ({"nonce": "n"}, {}),
    ],
)
async def test_an_answer_about_a_valid_access_token_for_us(changes: dict[str, Any], options: dict[str, Any]) -> None:
    assert (await identity_of(active(**changes), **options)).subject == "ann"


async def test_what_contradicts_an_access_token_counts_also_where_nothing_needs_to_show_it() -> None:
    lenient = {"knows_access_tokens_only": True, "marked_by": AccessTokenMark("kind", "at")}
    assert 'kind is "rt", so it is not an access token' in await rejection_of(active(kind="rt"), **lenient)
    for changes in ({"token_type": "refresh_token"}, {"typ": "Refresh"}, {"token_use": "refresh_token"}):
        assert "so it is not an access token" in await rejection_of(active(kind="at", **changes), **lenient)


async def test_users_clients_and_subjects_of_one_name_are_three_callers() -> None:
    found = [
        await identity_of(active(sub="x", username="y")),
        await identity_of(active(sub=..., username="x")),
        await identity_of(active(sub=..., client_id="x")),
    ]
    assert [each.subject for each in found] == ["x", "x", "x"]
    assert [each.issuer for each in found] == [ISSUER, f"{ISSUER}#username", f"{ISSUER}#client_id"]


async def test_a_bound_token_says_its_key() -> None:
    answer = active(token_type="DPoP", cnf={"jkt": JKT})
    assert (await identity_of(answer)).bound_to == KeyBinding(jkt=JKT)
    async with introspecting(good=answer) as server:
        with pytest.raises(InvalidCredentialsError, match="bound to a key"):
            await verifier_for(server).verify("good", NOW)
    assert "only bound tokens" in await rejection_of(active(), binding=TokenBinding.REQUIRED)


async def test_scopes_are_where_the_operator_says() -> None:
    assert (await identity_of(active(scope=...))).scopes == frozenset()
    roles = active(realm_access={"roles": ["a", "b"]})
    assert (await identity_of(roles, scopes_from="realm_access.roles")).scopes == {"a", "b"}
    assert (await identity_of(roles, scopes_from=lambda known: [known["sub"]])).scopes == {"ann"}


async def test_hints_say_what_the_server_has_to_change() -> None:
    hints = {"aud": "map the audience in the console", "sub": "map sub"}
    assert (await rejection_of(active(aud=...), hints=hints)).endswith("; map the audience in the console")
    assert (await rejection_of(active(sub=""), hints=hints)).endswith("; map sub")


async def test_claims_never_hold_the_token_that_the_server_repeats() -> None:
    identity = await identity_of(active(token="good", extra={"a": 1}))
    assert "token" not in identity.claims
    assert identity.claims["extra"] == {"a": 1}


async def test_nor_do_they_hold_it_deeper() -> None:
    said = active(ext={"token": "secret-token", "n": 1}, seen=["secret-token", ["x", {"t": "secret-token"}]])
    async with introspecting(**{"secret-token": said}) as server:
        identity = await verifier_for(server).verify("secret-token", NOW)
    assert "secret-token" not in repr(identity.claims)
    assert (identity.claims["ext"], identity.claims["seen"]) == ({"n": 1}, (("x", {}),))


# What is not asked


def jwt_of(signer: Any = EC, **changes: Any) -> str:
    return token(claims(**changes), signer=signer)


@walk(
    ("credential", "why"),
    [
        ("", "empty"),
        ("x" * 16_385, "too long"),
        ("é", "not ASCII"),
        (jwt_of(exp=int(NOW)), "expired"),
        (jwt_of(at_hash="x"), "ID token"),
        (jwt_of(events={}), "logout token"),
        (jwt_of(typ="ID"), "typ"),
        (jwt_of(typ="Refresh"), "typ"),
        (jwt_of(typ="Logout"), "typ"),
        (jwt_of(token_use="id"), "token_use"),
    ],
)
async def test_what_cannot_be_an_access_token_is_rejected_without_a_question(credential: str, why: str) -> None:
    async with introspecting() as server:
        with pytest.raises(InvalidCredentialsError, match=why) as caught:
            await verifier_for(server).verify("" if credential == "" else credential, NOW)
    assert not isinstance(caught.value, UnrecognizedCredentialsError)
    assert server.asked == NOT_ASKED


@walk("other", ["https://other.example", f"{ISSUER}/", None, 7, [ISSUER]])
async def test_a_jwt_of_another_issuer_is_sent_nowhere(other: Any) -> None:
    async with introspecting() as server:
        with pytest.raises(UnrecognizedCredentialsError, match="iss is not the issuer"):
            await verifier_for(server).verify(jwt_of(iss=other), NOW)
    assert server.asked == NOT_ASKED


@walk("credential", [jwt_of(), "a.b.c", "a.b", "a.e30.c", f"a.{b64(b'[1]')}.c", f"a.{b64(b'{1}')}.c", "x" * 16_384])
async def test_what_may_be_the_servers_own_is_asked(credential: str) -> None:
    async with introspecting(**{credential: active()}) as server:
        assert (await verifier_for(server).verify(credential, NOW)).subject == "ann"
    assert server.asked == [credential]


# The memory


async def test_a_valid_token_is_remembered_for_a_bounded_time() -> None:
    async with introspecting(good=active(iat=int(NOW) - 999), short=active(exp=int(NOW) + 5)) as server:
        verifier = verifier_for(server)
        first = await verifier.verify("good", NOW)
        assert await verifier.verify("good", NOW + 29.9) is first
        assert await verifier.verify("good", NOW - 29.9) is first
        server.tokens["good"] = {"active": False}  # revoked
        for moment in (NOW + 30, NOW - 31):
            verifier.forget("other")
            with pytest.raises(InvalidCredentialsError, match="not active"):
                await verifier.verify("good", moment)
        await verifier.verify("short", NOW)
        await verifier.verify("short", NOW + 4.9)
        server.asked.clear()
        with pytest.raises(InvalidCredentialsError, match="expired"):
            await verifier.verify("short", NOW + 5)
        assert server.asked == ["short"]


async def test_the_server_is_asked_about_tokens_that_were_valid_before_unknown_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order, take = list[bool](), endpoint._Slots.take

    async def recorded(slots: Any, path: Any, *, first: bool) -> bool:
        order.append(first)
        return await take(slots, path, first=first)

    monkeypatch.setattr(endpoint._Slots, "take", recorded)
    async with introspecting(good=active()) as server:
        verifier = verifier_for(server)
        await verifier.verify("good", NOW)
        await verifier.verify("good", NOW + 30)
        server.tokens.clear()
        for moment in (NOW + 60, NOW + 90):
            with pytest.raises(InvalidCredentialsError, match="not active"):
                await verifier.verify("good", moment)
    assert order == [False, True, True, False]


async def test_remember_for_is_how_long_a_revoked_token_counts() -> None:
    async with introspecting(good=active()) as server:
        verifier, none = verifier_for(server, remember_for=2), verifier_for(server, remember_for=0)
        for each in (verifier, none):
            await each.verify("good", NOW)
        server.tokens.clear()
        await verifier.verify("good", NOW + 1.9)
        for each, moment in ((verifier, NOW + 2), (none, NOW)):
            with pytest.raises(InvalidCredentialsError):
                await each.verify("good", moment)


async def test_an_invalid_token_is_asked_about_again_after_ten_seconds() -> None:
    async with introspecting() as server:
        verifier = verifier_for(server)
        for moment in (NOW, NOW + 9.9):
            with pytest.raises(InvalidCredentialsError):
                await verifier.verify("late", moment)
        assert server.asked == ["late"]
        server.tokens["late"] = active()
        assert (await verifier.verify("late", NOW + 10)).subject == "ann"


async def test_forgetting_ends_what_is_remembered_in_every_spelling_of_the_signature() -> None:
    head, _, _ = jwt_of().rpartition(".")
    tokens = [f"{head}.{signature}" for signature in ("AAAA", "BBBB")]
    async with introspecting(**dict.fromkeys(tokens, active()), bad={"active": False}) as server:
        verifier = verifier_for(server)
        for each in tokens:
            await verifier.verify(each, NOW)
        with pytest.raises(InvalidCredentialsError):
            await verifier.verify("bad", NOW)
        server.tokens = {"bad": active()}
        verifier.forget(tokens[0])
        for each in tokens:
            with pytest.raises(InvalidCredentialsError):
                await verifier.verify(each, NOW)
        verifier.forget("bad")
        await verifier.verify("bad", NOW)


async def test_what_was_asked_before_a_token_was_forgotten_is_not_remembered() -> None:
    async with introspecting(good=active()) as server:
        verifier = verifier_for(server)
        server.open.clear()
        early = asyncio.create_task(verifier.verify("good", NOW))
        while not server.asked:
            await asyncio.sleep(0.005)
        verifier.forget("good")
        late = asyncio.create_task(verifier.verify("good", NOW))
        async with asyncio.timeout(30):
            while len(server.asked) < 2:  # nor is its question waited for
                await asyncio.sleep(0.005)
        server.open.set()
        await asyncio.gather(early, late)
        server.tokens.clear()
        verifier.forget("good")
        with pytest.raises(InvalidCredentialsError):
            await verifier.verify("good", NOW)


async def test_the_memory_is_bounded_in_tokens() -> None:
    async with introspecting(**{f"t{number}": active() for number in range(4)}) as server:
        verifier = verifier_for(server, remember=3)
        for number in range(4):
            await verifier.verify(f"t{number}", NOW)
        server.asked.clear()
        for number in (1, 2, 3, 0):
            await verifier.verify(f"t{number}", NOW)
        assert server.asked == ["t0"]


async def test_all_who_bring_one_token_wait_for_one_question_and_none_of_them_ends_it() -> None:
    async with introspecting(good=active()) as server:
        verifier = verifier_for(server)
        server.open.clear()
        callers = [asyncio.create_task(verifier.verify("good", NOW)) for _ in range(20)]
        while not server.asked:
            await asyncio.sleep(0.005)
        callers[0].cancel()
        await asyncio.sleep(0)
        server.open.set()
        found = await asyncio.gather(*callers, return_exceptions=True)
    assert isinstance(found[0], asyncio.CancelledError)
    assert {each.subject for each in found[1:] if not isinstance(each, BaseException)} == {"ann"}
    assert server.asked == ["good"]


async def test_a_caller_whose_clock_is_later_does_not_get_an_expired_identity() -> None:
    async with introspecting(good=active(exp=int(NOW) + 1)) as server:
        verifier = verifier_for(server)
        found = await asyncio.gather(
            verifier.verify("good", NOW), verifier.verify("good", NOW + 1), return_exceptions=True
        )
    assert [type(each).__name__ for each in found] == ["Identity", "InvalidCredentialsError"]


def test_every_event_loop_may_ask() -> None:
    server = IntrospectionServer()
    server.tokens["good"] = active()
    verifiers: list[IntrospectionVerifier] = []

    async def storm() -> None:
        server.open = asyncio.Event()
        server.open.set()
        await server.start()
        verifier = verifiers[0] if verifiers else verifier_for(server)
        verifiers.append(verifier)
        found = await asyncio.gather(*(verifier.verify(f"t{n}", NOW) for n in range(40)), return_exceptions=True)
        assert {type(each) for each in found} == {InvalidCredentialsError}
        await server.stop()

    for moment in range(2):
        asyncio.run(storm())
        for number in range(40):
            verifiers[0].forget(f"t{number}")
        assert len(server.asked) == 40 * (moment + 1)


# Outages


async def test_an_outage_is_503_and_ends_without_a_restart(caplog: pytest.LogCaptureFixture, clock: Clock) -> None:
    caplog.set_level(logging.INFO, "a2a_trust.auth")
    async with introspecting(known=active(), new=active()) as server:
        verifier = verifier_for(server)
        known = await verifier.verify("known", NOW)
        await server.stop()
        for _ in range(3):
            with pytest.raises(KeySourceUnavailableError):
                await verifier.verify("new", NOW)
            assert await verifier.verify("known", NOW) is known
        await server.start()
        with pytest.raises(KeySourceUnavailableError):  # the back-off
            await verifier.verify("new", NOW)
        assert server.asked == ["known"]
        clock.at += 1
        assert (await verifier.verify("new", NOW)).subject == "ann"
    lines = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert [level for level, _ in lines] == ["WARNING", "INFO"]
    assert "no usable answer" in lines[0][1]
    assert "answers again" in lines[1][1]


@walk(
    ("status", "body", "content_type"),
    [
        ("500 Oops", b"{}", "application/json"),
        ("503 Busy", b"{}", "application/json"),
        ("404 Not Found", b"{}", "application/json"),
        ("302 Found", b"{}", "application/json"),
        ("200 OK", b"", "application/json"),
        ("200 OK", b"[]", "application/json"),
        ("200 OK", b"{}", "application/json"),
        ("200 OK", b'{"active": "true"}', "application/json"),
        ("200 OK", b'{"active": false, "active": true}', "application/json"),
        ("200 OK", b'{"active": true}', "text/html"),
        ("200 OK", b'{"active": true, "sub": "' + b"x" * 300_000 + b'"}', "application/json"),
    ],
)
async def test_an_answer_that_cannot_be_used_is_503_and_not_remembered(
    status: str, body: bytes, content_type: str, clock: Clock
) -> None:
    async with introspecting(good=active()) as server:
        verifier = verifier_for(server)
        server.failing, server.content_type = (status, body), content_type
        with pytest.raises(KeySourceUnavailableError):
            await verifier.verify("good", NOW)
        with pytest.raises(KeySourceUnavailableError, match="unreachable"):
            await verifier.verify("other", NOW)
        assert server.asked[0] == "good"
        assert len(server.asked) == 2  # the second was about a token that nobody has
        server.failing, server.content_type = None, "application/json"
        clock.at += 1
        await verifier.verify("good", NOW)


async def test_a_server_that_hangs_is_an_outage() -> None:
    async with introspecting(good=active()) as server:
        verifier = verifier_for(server, timeout=1.0)
        server.open.clear()
        with pytest.raises(KeySourceUnavailableError, match="no complete answer"):
            await verifier.verify("good", NOW)
        with pytest.raises(KeySourceUnavailableError, match="unreachable"):
            await verifier.verify("other", NOW)
        assert server.asked[0] == "good"
        assert len(server.asked) == 2, "the other question was about a token that nobody has"


async def test_the_back_off_doubles_to_five_seconds_and_one_question_finds_out(monkeypatch: pytest.MonkeyPatch) -> None:
    moment = [0.0]
    monkeypatch.setattr(endpoint, "time", SimpleNamespace(monotonic=lambda: moment[0]))
    async with introspecting() as server:
        verifier = verifier_for(server)
        server.failing = "500 Oops", b"{}"
        asked = []
        for moment[0] in (0.0, 0.9, 1.0, 2.9, 3.0, 6.9, 7.0, 11.9, 12.0, 16.9, 17.0):
            before = len(server.asked)
            found = await asyncio.gather(
                *(verifier.verify(f"t{number}", NOW) for number in range(3 if moment[0] else 1)), return_exceptions=True
            )
            assert {type(each) for each in found} == {KeySourceUnavailableError}
            asked.append(len(server.asked) > before)
            assert len(server.asked) - before in (0, 2)
        assert asked == [True, False, True, False, True, False, True, False, True, False, True]


async def test_questions_that_fail_together_are_one_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    moment = [0.0]
    monkeypatch.setattr(endpoint, "time", SimpleNamespace(monotonic=lambda: moment[0]))
    async with introspecting(good=active()) as server:
        verifier = verifier_for(server)
        server.failing = "500 Oops", b"{}"
        await asyncio.gather(*(verifier.verify(f"t{number}", NOW) for number in range(10)), return_exceptions=True)
        server.failing, moment[0] = None, 1.0  # the back-off after one failure
        assert (await verifier.verify("good", NOW)).subject == "ann"


@pytest.mark.parametrize(
    ("status", "reason"), [("401 No", "invalid_client"), ("400 Bad", "invalid_request"), ("403 No", "status 403")]
)
async def test_a_server_that_rejects_the_client_is_503_and_the_log_says_what_to_do(
    status: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with introspecting(good=active()) as server:
        verifier = verifier_for(server)
        server.failing = status, json.dumps({"error": reason, "error_description": CLIENT_SECRET}).encode()
        for credential in ("good", "other"):
            with pytest.raises(KeySourceUnavailableError, match="/introspect: "):
                await verifier.verify(credential, NOW)
    (record,) = [each for each in caplog.records if each.name.startswith("a2a_trust.auth")]
    assert record.levelname == "ERROR"
    assert "rejects the requests of the client 'agent'" in record.getMessage()
    assert reason in record.getMessage()
    assert "correct client_id and authentication" in record.getMessage()
    assert CLIENT_SECRET not in caplog.text


async def test_a_token_that_the_server_refuses_to_read_is_invalid() -> None:
    """As npm oidc-provider does with every JWT: it answers for all others."""
    async with introspecting(good=active()) as server:
        verifier = verifier_for(server)
        server.failing, server.poison = ("400 Bad", b'{"error": "unsupported_token_type"}'), frozenset({"a.b.c"})
        with pytest.raises(InvalidCredentialsError, match="unsupported_token_type"):
            await verifier.verify("a.b.c", NOW)
        await verifier.verify("good", NOW)


async def test_a_secret_that_cannot_be_had_is_an_outage(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> str:
        raise LookupError(CLIENT_SECRET)

    async with introspecting(good=active()) as server:
        with pytest.raises(KeySourceUnavailableError, match="LookupError"):
            await verifier_for(server, authentication=ClientSecret(broken)).verify("good", NOW)
        assert server.asked == NOT_ASKED
    assert "LookupError" in caplog.text
    assert CLIENT_SECRET not in caplog.text


# Storms


async def test_at_most_sixteen_questions_are_under_way_and_a_number_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "_MOST_WAITING", 50)  # in place of 1,000
    async with introspecting(known=active(), good=active()) as server:
        verifier = verifier_for(server)
        known = await verifier.verify("known", NOW)
        server.open.clear()
        storm = [asyncio.create_task(verifier.verify(f"t{number}", NOW)) for number in range(100)]
        async with asyncio.timeout(60):
            while server.busy < 16 or sum(each.done() for each in storm) < 100 - 66:
                await asyncio.sleep(0.01)
        refused = [each for each in storm if each.done()]
        assert len(refused) == 100 - 66
        assert "too many unknown tokens" in str(refused[0].exception())
        assert await verifier.verify("known", NOW) is known
        server.open.set()
        await asyncio.gather(*storm, return_exceptions=True)
        assert server.busiest == 16
        assert {type(each.exception()) for each in storm} == {KeySourceUnavailableError, InvalidCredentialsError}
        assert (await verifier.verify("good", NOW)).subject == "ann"


async def test_who_waits_too_long_for_a_turn_is_no_outage(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(endpoint, "_WAIT", 0.1)
    async with introspecting(good=active()) as server:
        verifier = verifier_for(server)
        server.open.clear()
        storm = [asyncio.create_task(verifier.verify(f"t{number}", NOW)) for number in range(20)]
        done, rest = set[asyncio.Task[Identity]](), set(storm)
        while len(done) < 4:  # however busy the machine is
            ended, rest = await asyncio.wait(rest, return_when=asyncio.FIRST_COMPLETED)
            done |= ended
        assert {str(each.exception()).partition(": ")[2] for each in done} == {
            "too many unknown tokens wait to be introspected"
        }
        assert len(done) == 4
        server.open.set()
        await asyncio.gather(*storm, return_exceptions=True)
        await verifier.verify("good", NOW)
    assert not [each for each in caplog.records if each.name.startswith("a2a_trust.auth")]


# RFC 9701


def signed_answer(signer: Any = EC, header: dict[str, Any] | None = None, **changes: Any) -> Callable[[Any], bytes]:
    def answer(members: dict[str, Any]) -> bytes:
        said = {"iss": ISSUER, "aud": CLIENT_ID, "iat": int(NOW), "token_introspection": members, **changes}
        kept = {name: value for name, value in said.items() if value is not ...}
        return token(kept, signer=signer, **{"typ": "token-introspection+jwt", **(header or {})}).encode()

    return answer


def expecting_jwts(
    server: IntrospectionServer, answer: Callable[[Any], bytes], **options: Any
) -> IntrospectionVerifier:
    server.content_type, server.answer = "application/token-introspection+jwt", answer
    return verifier_for(server, **{"signed_answers": Keys(EC), **options})


async def test_a_signed_answer_is_asked_for_and_verified() -> None:
    async with introspecting(good=active()) as server:
        verifier = expecting_jwts(server, signed_answer())
        assert (await verifier.verify("good", NOW)).subject == "ann"
        assert "Accept: application/token-introspection+jwt\r\n" in server.heads[0]
        with pytest.raises(InvalidCredentialsError, match="not active"):
            await verifier.verify("bad", NOW)
        several = expecting_jwts(server, signed_answer(aud=["x", CLIENT_ID], iat=NOW - 299.5))
        assert (await several.verify("good", NOW)).subject == "ann"


@walk(
    "answer",
    [
        lambda members: json.dumps(members).encode(),
        lambda members: b"a.b.c.d.e",
        lambda members: b"\xff.b.c",
        signed_answer(generate_signer("ES256", kid="ec")),
        signed_answer(generate_signer("ES256", kid="unknown")),
        signed_answer(header={"typ": "JWT"}),
        signed_answer(header={"typ": "at+jwt"}),
        signed_answer(header={"typ": ["token-introspection+jwt"]}),
        signed_answer(header={"kid": 7}),
        signed_answer(header={"crit": ["exp"]}),
        signed_answer(header={"alg": "none"}),
        signed_answer(header={"alg": "HS256"}),
        signed_answer(iss="https://other.example"),
        signed_answer(iss=...),
        signed_answer(aud="other"),
        signed_answer(aud=...),
        signed_answer(iat=...),
        signed_answer(iat="now"),
        signed_answer(iat=True),
        signed_answer(iat=int(NOW) - 301),
        signed_answer(iat=int(NOW) + 301),
        signed_answer(token_introspection=[]),
        signed_answer(token_introspection={"sub": "ann"}),
        signed_answer(token_introspection=..., active=True, sub="ann"),
    ],
)
async def test_another_answer_than_one_that_the_server_signed_for_us_now_is_503(answer: Callable[[Any], bytes]) -> None:
    async with introspecting(good=active()) as server:
        with pytest.raises(KeySourceUnavailableError):
            await expecting_jwts(server, answer).verify("good", NOW)


async def test_plain_json_is_refused_where_signed_answers_are_expected(caplog: pytest.LogCaptureFixture) -> None:
    async with introspecting(good=active()) as server:
        with pytest.raises(KeySourceUnavailableError, match="not of type application/token-introspection"):
            await verifier_for(server, signed_answers=Keys(EC)).verify("good", NOW)
    assert "not of type application/token-introspection" in caplog.text


async def test_without_the_keys_a_signed_answer_cannot_be_used() -> None:
    keys = Keys(EC)
    keys.down = True
    async with introspecting(good=active()) as server:
        with pytest.raises(KeySourceUnavailableError):
            await expecting_jwts(server, signed_answer(), signed_answers=keys).verify("good", NOW)


async def test_a_key_that_has_ended_signs_no_answer() -> None:
    keys = Keys(EC)
    keys.keys = [replace(EC.public_key, not_after=NOW)]
    async with introspecting(good=active()) as server:
        with pytest.raises(KeySourceUnavailableError, match="its key is revoked, expired"):
            await expecting_jwts(server, signed_answer(), signed_answers=keys).verify("good", NOW)


# Rotation of the agent's own secret


async def test_a_new_secret_counts_as_soon_as_its_file_has_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, clock: Clock
) -> None:
    caplog.set_level(logging.INFO, "a2a_trust.auth")
    file = tmp_path / "secret"
    file.write_text("old-secret")
    file.chmod(0o600)
    async with introspecting(one=active(), two=active(), three=active()) as server:
        server.secret = "old-secret"
        verifier = verifier_for(server, authentication=ClientSecret(SecretFile(file)))
        assert (await verifier.verify("one", NOW)).subject == "ann"
        server.secret = "new-secret"
        with pytest.raises(KeySourceUnavailableError):
            await verifier.verify("two", NOW)
        assert "rejects the requests of the client 'agent'" in caplog.text
        assert (await verifier.verify("one", NOW)).subject == "ann", "it is remembered"
        new = tmp_path / "new"
        new.write_text("new-secret")
        new.chmod(0o600)
        new.rename(file)
        clock.at += 1  # the back-off after one failure
        assert (await verifier.verify("three", NOW)).subject == "ann"
        assert (await verifier.verify("two", NOW)).subject == "ann", "the failure was not remembered"
    assert "it answers again" in caplog.text
    assert "old-secret" not in caplog.text
    assert "new-secret" not in caplog.text


# Configuration


@walk(
    ("options", "why"),
    [
        ({"issuer": ""}, "issuer"),
        ({"issuer": f"{ISSUER}#username"}, "without a fragment"),
        ({"issuer": f"{ISSUER}/.well-known/openid-configuration"}, "metadata"),
        ({"audience": []}, "audience"),
        ({"audience": ""}, "audience"),
        ({"client_id": ""}, "client_id"),
        ({"authentication": "secret"}, "authentication"),
        ({"authentication": TlsClientAuth}, "authentication"),
        ({"endpoint": "http://login.example/introspect"}, "only https"),
        ({"endpoint": "http://127.0.0.1:1/introspect"}, r"pass fetcher=Fetcher\(private_origins"),
        ({"remember_for": 31}, "remember_for"),
        ({"remember_for": -1}, "remember_for"),
        ({"remember_for": float("nan")}, "remember_for"),
        ({"remember": -1}, "remember"),
        ({"knows_access_tokens_only": "no"}, "True or False"),
        ({"allow_missing_audience": 1}, "True or False"),
        ({"scopes_from": ""}, "scopes_from"),
        ({"marked_by": ["typ"]}, "marked_by"),
        ({"binding": "sometimes"}, "sometimes"),
    ],
)
def test_what_cannot_be_meant_is_refused_at_start(options: dict[str, Any], why: str) -> None:
    given = {
        "endpoint": f"{ISSUER}/introspect",
        "issuer": ISSUER,
        "audience": AUDIENCE,
        "client_id": CLIENT_ID,
        "authentication": ClientSecret(CLIENT_SECRET),
        **options,
    }
    with pytest.raises(ValueError, match=why):
        IntrospectionVerifier(**given)


def opaque(issuer: str = ISSUER) -> IntrospectionVerifier:
    return IntrospectionVerifier(
        f"{issuer}/introspect",
        issuer=issuer,
        audience=AUDIENCE,
        client_id=CLIENT_ID,
        authentication=ClientSecret(CLIENT_SECRET),
    )


BEARER = {"httpAuthSecurityScheme": {"scheme": "bearer"}}
OAUTH: dict[str, Any] = {"oauth2SecurityScheme": {"flows": {}}}


def card_with(**schemes: Any) -> CardView:
    return read_card(
        {
            "name": "agent",
            "supportedInterfaces": [
                {"url": f"{AUDIENCE}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
            ],
            "securitySchemes": schemes,
            "securityRequirements": [{"schemes": {name: {"list": []}}} for name in schemes],
            "skills": [],
        }
    )


def test_two_servers_are_not_asked_about_the_tokens_of_one_place() -> None:
    one, other = opaque(), opaque("https://other.example")
    jwts = JwtVerifier(Keys(EC), issuer="https://third.example", audience=AUDIENCE)
    card = card_with(a=BEARER, b=OAUTH)
    for second in (other, SeveralIssuers([jwts, other])):
        with pytest.raises(ConfigurationError, match="each server would get the tokens of the other"):
            Guard(card, {"a": one, "b": second})
    Guard(card, {"a": one, "b": jwts})
    Guard(card, {"a": one, "b": one})
    with pytest.raises(ConfigurationError, match="keep one"):
        SeveralIssuers([one, other])
    assert SeveralIssuers([jwts, one]).issuers == ("https://third.example", ISSUER)


def test_no_other_credentials_come_where_the_server_is_asked_about_all() -> None:
    class Sessions:
        async def verify(self, credential: str, now: float) -> Identity:
            raise AssertionError

    keys = ApiKeyVerifier(MemoryApiKeys())
    for second in (keys, Sessions()):
        with pytest.raises(ConfigurationError, match=r"the credentials of 'a' come there, too"):
            Guard(card_with(a=BEARER, b=OAUTH), {"a": second, "b": opaque()})
    header = {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}}
    Guard(card_with(a=header, b=OAUTH), {"a": keys, "b": opaque()})
    ids = IdTokenVerifier(Keys(EC), issuer="https://third.example", audience="app")
    Guard(card_with(a=BEARER, b=OAUTH), {"a": ids, "b": opaque()})


def test_it_is_a_verifier_of_access_tokens() -> None:
    verifier = opaque()
    assert verifier.kind is CredentialKind.ACCESS_TOKEN
    assert (verifier.issuers, verifier.metadata_urls, verifier.binding) == ((ISSUER,), (), TokenBinding.OPTIONAL)
    with pytest.raises(ConfigurationError, match="is for tokens, and the card demands client certificates"):
        Guard(card_with(tls={"mtlsSecurityScheme": {}}), {"tls": verifier})


async def test_the_token_of_a_caller_without_sub_names_the_issuer_that_exchanges_it() -> None:
    async with introspecting(good=active(sub=..., username="ann")) as server:
        guard = Guard(card_with(login=OAUTH), {"login": verifier_for(server)})
        scope = {"type": "http", "method": "POST", "path": "/rpc", "headers": [(b"authorization", b"Bearer good")]}
        caller = await admitted(guard, scope, NOW)
        assert isinstance(caller, Principal)
        assert caller.identities[0][1].issuer == f"{ISSUER}#username"
        kept = guard.subject_token(scope, caller)
    assert kept is not None
    assert (kept.issuer, kept.subject, kept.reveal()) == (ISSUER, "ann", "good")


def test_no_repr_tells_a_secret() -> None:
    verifier = opaque()
    assert CLIENT_SECRET not in f"{verifier!r}{vars(verifier)!r}{vars(verifier._endpoint)!r}"
