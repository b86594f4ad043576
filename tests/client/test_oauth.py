"""What ``OAuthClient`` sends to a token endpoint, what it makes of the answer, and who waits for whom."""

from __future__ import annotations

import asyncio
import base64
import json
import pickle
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from traceback import TracebackException
from typing import Any, Final
from urllib.parse import parse_qs, parse_qsl

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey

from a2a_trust import ConfigurationError, generate_signer
from a2a_trust.auth.principal import SubjectToken
from a2a_trust.base.net.fetcher import Fetcher
from a2a_trust.card.view import ApiKeyScheme, HttpScheme, OAuth2Scheme, OAuthFlow, OpenIdConnectScheme, SecurityScheme
from a2a_trust.client import (
    ClientCredentials,
    ClientSecret,
    OAuthClient,
    PrivateKeyJwt,
    RefreshToken,
    SecretFile,
    TlsClientAuth,
    TokenExchange,
)
from a2a_trust.client.flow import run, run_async
from a2a_trust.errors import FetchError, TokenRequestError
from tests.base.net.test_fetcher import Authority
from tests.client.agents import Agent, Asked, Page, serving_agent

pytestmark = pytest.mark.anyio

ORIGIN: Final = "https://agent.example"
NONE: Final = frozenset[str]()
READ: Final = frozenset({"read"})
TOKEN: Final = {"access_token": "t1", "token_type": "Bearer", "expires_in": 600}
ACCESS_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"


@pytest.fixture
def server(authority: Authority) -> Iterator[Agent]:
    """An authorization server, which answers as a test says at /token."""
    with serving_agent(authority.server("127.0.0.1")) as running:
        running.pages["/token"] = given()
        yield running


def given(*, status: int = 200, headers: dict[str, str] | None = None, **members: Any) -> Page:
    """The answer of a token endpoint; members that are None are left out."""
    said = {name: value for name, value in {**TOKEN, **members}.items() if value is not None}
    return Page(body=json.dumps(said).encode(), status=status, headers=headers or {})


def numbered(**members: Any) -> Callable[[Asked], Page]:
    """Answers with another token each time."""
    numbers = iter(range(1, 1000))
    return lambda _: given(access_token=f"t{next(numbers)}", **members)


def refused(error: str, status: int = 400, **members: Any) -> Page:
    return Page(body=json.dumps({"error": error, **members}).encode(), status=status)


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def client_of(server: Agent, authority: Authority, clock: Clock) -> Callable[..., OAuthClient]:
    def client(**options: Any) -> OAuthClient:
        origin = server.origin("127.0.0.1")
        return OAuthClient(
            **{
                "issuer": origin,
                "token_endpoint": f"{origin}/token",
                "client_id": "orchestrator",
                "authentication": ClientSecret("s3cret"),
                "fetcher": Fetcher(private_origins=[origin], ssl_context=authority.client()),
                "clock": clock,
                **options,
            }
        )

    return client


Make = Callable[..., OAuthClient]


def own(client: OAuthClient, **options: Any) -> ClientCredentials:
    return ClientCredentials(client, **{"origins": [ORIGIN], "allowed_scopes": ["read", "write"], **options})


def login_of(client: OAuthClient, token: Any = "r0", **options: Any) -> RefreshToken:
    return RefreshToken(client, token, **{"origins": [ORIGIN], "allowed_scopes": ["read", "write"], **options})


def exchange_of(client: OAuthClient, subject: Any, **options: Any) -> TokenExchange:
    return TokenExchange(client, subject, **{"origins": [ORIGIN], "allowed_scopes": ["read"], **options})


def form_of(asked: Asked) -> dict[str, str]:
    pairs = parse_qsl(asked.body.decode(), strict_parsing=True)
    assert len({*dict(pairs)}) == len(pairs)
    return dict(pairs)


def shown(error: BaseException) -> str:
    """The error with the locals of our own frames, as a tool that reports errors shows them."""
    told = TracebackException.from_exception(error, capture_locals=True)
    frames = [f"{each.name} {each.locals}" for each in told.stack if "/a2a_trust/" in each.filename]
    assert frames
    return "\n".join([str(told), *frames])


# Requests, beside the examples of the RFCs


def test_client_credentials_of_rfc_6749_4_4_2(server: Agent, client_of: Make) -> None:
    client = client_of(client_id="s6BhdRkqt3", authentication=ClientSecret("gX1fBat3bV"))
    assert run(own(client).obtain(NONE)).text == "t1"
    [asked] = server.asked
    assert asked.body == b"grant_type=client_credentials"
    assert asked.headers["authorization"] == "Basic czZCaGRSa3F0MzpnWDFmQmF0M2JW"
    assert asked.headers["content-type"] == "application/x-www-form-urlencoded"


def test_a_refresh_and_a_secret_in_the_form_of_rfc_6749_2_3_1(server: Agent, client_of: Make) -> None:
    secret = ClientSecret("7Fjfp0ZBr1KtDRbnfVdmIw", method="client_secret_post")
    run(login_of(client_of(client_id="s6BhdRkqt3", authentication=secret), "tGzv3JOkF0XG5Qx2TlKWIA").obtain(NONE))
    assert server.asked[0].body == (
        b"grant_type=refresh_token&refresh_token=tGzv3JOkF0XG5Qx2TlKWIA"
        b"&client_id=s6BhdRkqt3&client_secret=7Fjfp0ZBr1KtDRbnfVdmIw"
    )
    assert "authorization" not in server.asked[0].headers


def test_the_exchange_of_rfc_8693_2_3(server: Agent, client_of: Make) -> None:
    server.pages["/token"] = given(issued_token_type=ACCESS_TOKEN, expires_in=60)
    client = client_of(client_id="rs08", authentication=ClientSecret("long-secure-random-secret"))
    subject, resource = "accVkjcJyb4BWCxGsndESCJQbdFMogUC5PbRDqceLTC", "https://backend.example.com/api"
    run(exchange_of(client, subject, resource=resource).obtain(NONE))
    [asked] = server.asked
    assert asked.headers["authorization"] == "Basic cnMwODpsb25nLXNlY3VyZS1yYW5kb20tc2VjcmV0"
    assert form_of(asked) == {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "resource": resource,
        "subject_token": subject,
        "subject_token_type": ACCESS_TOKEN,
        "requested_token_type": ACCESS_TOKEN,
    }


@pytest.mark.parametrize("audience", [None, "https://idp.example/token"])
def test_the_assertion_of_rfc_7523_2_2(server: Agent, client_of: Make, clock: Clock, audience: str | None) -> None:
    signer = generate_signer("ES256", kid="k1")
    client = client_of(authentication=PrivateKeyJwt(signer, audience=audience))
    seen = set()
    for scopes in (NONE, READ):
        run(own(client).obtain(scopes))
        form = form_of(server.asked[-1])
        token = jwt.decode(form.pop("client_assertion"), ECKey.import_key(signer.public_key.to_jwk()), ["ES256"])
        assert token.header == {"typ": "JWT", "alg": "ES256", "kid": "k1"}
        seen.add(token.claims.pop("jti"))
        assert token.claims == {
            "iss": "orchestrator",
            "sub": "orchestrator",
            "aud": audience or client.issuer,
            "iat": int(clock.now),
            "exp": int(clock.now) + 60,
        }
        assert form == {
            "grant_type": "client_credentials",
            "client_id": "orchestrator",
            "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
            **({"scope": "read"} if scopes else {}),
        }
    assert len(seen) == 2


def test_a_certificate_only_names_the_client(server: Agent, client_of: Make) -> None:
    run(own(client_of(authentication=TlsClientAuth())).obtain(NONE))
    assert server.asked[0].body == b"grant_type=client_credentials&client_id=orchestrator"
    assert "authorization" not in server.asked[0].headers


def test_a_secret_with_special_characters_is_encoded_first(server: Agent, client_of: Make) -> None:
    client = client_of(client_id="a b:c&", authentication=ClientSecret("p+%:q&= r"))
    run(own(client).obtain(NONE))
    sent = base64.b64decode(server.asked[0].headers["authorization"].removeprefix("Basic "))
    assert sent == b"a+b%3Ac%26:p%2B%25%3Aq%26%3D+r"
    posted = client_of(client_id="a b:c&", authentication=ClientSecret("p+%:q&= r", method="client_secret_post"))
    run(own(posted).obtain(NONE))
    form = form_of(server.asked[1])
    assert (form["client_id"], form["client_secret"]) == ("a b:c&", "p+%:q&= r")


def test_resources_audience_and_scopes(server: Agent, client_of: Make) -> None:
    resources = ["https://a.example/x?y=1&z", "https://b.example"]
    run(own(client_of(), resource=resources, audience="agents").obtain(frozenset({"write", "read"})))
    assert parse_qsl(server.asked[0].body.decode()) == [
        ("resource", resources[0]),
        ("resource", resources[1]),
        ("grant_type", "client_credentials"),
        ("audience", "agents"),
        ("scope", "read write"),
    ]


# Answers


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        (Page(body=b"access_token=t1"), "malformed JSON"),
        (Page(body=b'{"access_token": "t1", "access_token": "t2", "token_type": "bearer"}'), "malformed JSON"),
        (Page(body=b'["t1"]'), "not a JSON object"),
        (given(token_type=None), "token_type is not bearer"),
        (given(token_type="mac"), "token_type is not bearer"),
        (given(token_type=["bearer"]), "token_type is not bearer"),
        (given(token_type="DPoP"), "token_type is not bearer"),
        (given(access_token=None), "access_token is not the text of a token"),
        (given(access_token=""), "access_token is not the text of a token"),
        (given(access_token=["t1"]), "access_token is not the text of a token"),
        (given(access_token="s3cret-t\r\nX: y"), "access_token is not the text of a token"),
        (given(refresh_token="s3cret\n"), "refresh_token is not the text of a token"),
        (given(refresh_token=7), "refresh_token is not the text of a token"),
        (given(scope=["read"]), "scope is not a string"),
        (given(expires_in=0), "expires_in is not a positive number of seconds"),
        (given(expires_in=-1), "expires_in is not a positive number of seconds"),
        (given(expires_in=True), "expires_in is not a positive number of seconds"),
        (given(expires_in="soon"), "expires_in is not a positive number of seconds"),
        (given(expires_in="9" * 400), "expires_in is not a positive number of seconds"),
        (given(expires_in=[600]), "expires_in is not a positive number of seconds"),
    ],
)
def test_an_answer_that_cannot_be_used(server: Agent, client_of: Make, page: Page, reason: str) -> None:
    server.pages["/token"] = page
    with pytest.raises(
        TokenRequestError, match=f"the answer of the token endpoint cannot be used: .*{reason}"
    ) as error:
        run(own(client_of()).obtain(NONE))
    assert error.value.error == ""
    assert "s3cret" not in str(error.value)


@pytest.mark.parametrize("issued", [None, 7, "urn:ietf:params:oauth:token-type:id_token"])
def test_an_exchange_for_something_that_is_no_access_token(server: Agent, client_of: Make, issued: Any) -> None:
    server.pages["/token"] = given(issued_token_type=issued)
    with pytest.raises(TokenRequestError, match="issued_token_type does not name an access token"):
        run(exchange_of(client_of(), "s0").obtain(NONE))


@pytest.mark.parametrize(
    ("page", "error", "text"),
    [
        (refused("invalid_client", 401), "invalid_client", "invalid_client"),
        (refused("invalid_scope", error_description="s3cret"), "invalid_scope", "invalid_scope"),
        (refused("s3cret"), "", "status 400, without an error"),
        (refused("use_dpop_nonce"), "use_dpop_nonce", "use_dpop_nonce"),
        (Page(status=400, body=b"s3cret"), "", "status 400, without an error"),
        (Page(status=401, body=b'["s3cret"]'), "", "status 401, without an error"),
        (Page(status=400, body=b'{"error": ["invalid_grant"]}'), "", "status 400, without an error"),
    ],
)
def test_a_refusal(server: Agent, client_of: Make, page: Page, error: str, text: str) -> None:
    server.pages["/token"] = page
    with pytest.raises(
        TokenRequestError, match=f"rejects the token request of the client 'orchestrator': {text}"
    ) as refusal:
        run(own(client_of()).obtain(NONE))
    assert refusal.value.error == error
    assert "s3cret" not in shown(refusal.value)
    assert len(server.asked) == 1


@pytest.mark.parametrize("page", [Page(status=500), Page(status=302, headers={"Location": "/other"}), Page(status=404)])
def test_an_endpoint_that_does_not_answer_as_one(server: Agent, client_of: Make, page: Page) -> None:
    server.pages["/token"] = page
    with pytest.raises(FetchError):
        run(own(client_of()).obtain(NONE))
    assert server.paths() == ["/token"]


def test_fewer_scopes_than_the_card_demands(server: Agent, client_of: Make) -> None:
    credential = own(client_of())
    server.pages["/token"] = given(scope="read")
    with pytest.raises(TokenRequestError, match="granted fewer scopes than were requested; missing: write"):
        run(credential.obtain(frozenset({"read", "write"})))
    assert run(credential.obtain(READ)).text == "t1"
    server.pages["/token"] = given(scope=None)  # the same as was asked for (RFC 6749 5.1)
    assert run(credential.obtain(frozenset({"read", "write"}))).text == "t1"


def test_a_subject_token_serves_one_caller(server: Agent, client_of: Make, clock: Clock) -> None:
    server.pages["/token"] = given(issued_token_type=ACCESS_TOKEN)
    subject = SubjectToken("s0", issuer="https://idp.example", subject="alice", expires_at=clock.now + 100)
    assert run(exchange_of(client_of(), subject).obtain(NONE)).text == "t1"
    assert form_of(server.asked[0])["subject_token"] == "s0"


@pytest.mark.parametrize(
    ("expires_in", "until"), [(600, 570), (60, 54), (1, 0.9), ("600", 570), (None, 54), (0.5, 0.45), (86_400, 86_370)]
)
def test_a_token_is_remembered_until_shortly_before_its_end(
    server: Agent, client_of: Make, clock: Clock, expires_in: Any, until: float
) -> None:
    server.pages["/token"] = numbered(expires_in=expires_in)
    credential, began = own(client_of()), clock.now
    value = run(credential.obtain(NONE))
    clock.now = began + until - 0.01
    assert run(credential.obtain(NONE)) is value
    clock.now = began + until + 0.01
    assert run(credential.obtain(NONE)).text == "t2"


def test_the_time_of_a_request_counts_as_that_of_its_token(server: Agent, client_of: Make, clock: Clock) -> None:
    def slow(_: Asked) -> Page:
        clock.now += 700
        return given()

    server.pages["/token"] = slow
    credential = own(client_of())
    for number in (1, 2):
        assert run(credential.obtain(NONE)).text == "t1"
        assert len(server.asked) == number


# Whose tokens are whose


def test_what_a_token_is_remembered_by(server: Agent, client_of: Make) -> None:
    server.pages["/token"] = numbered(issued_token_type=ACCESS_TOKEN)
    client = client_of()
    different = [
        (own(client), NONE),
        (own(client), READ),
        (own(client, audience="a"), READ),
        (own(client, resource="https://a.example"), READ),
        (own(client, resource=["https://a.example", "https://b.example"]), READ),
        (login_of(client, "r0"), READ),
        (login_of(client, "r0"), READ),  # another login, perhaps of another user
        (exchange_of(client, "s0"), READ),
        (exchange_of(client, "s1"), READ),
        (exchange_of(client, "s1", audience="a"), READ),
        (own(client_of(client_id="other")), READ),
    ]
    texts = [run(credential.obtain(scopes)).text for credential, scopes in different]
    assert len({*texts}) == len(different)
    assert [run(credential.obtain(scopes)).text for credential, scopes in different] == texts
    assert run(own(client, origins=["https://b.example"]).obtain(READ)).text == texts[1]
    assert run(exchange_of(client, lambda: "s1").obtain(READ)).text == texts[8]


def test_a_rejected_token_is_forgotten_alone(server: Agent, client_of: Make) -> None:
    server.pages["/token"] = numbered()
    credential = own(client_of())
    first, other = run(credential.obtain(NONE)), run(credential.obtain(READ))
    assert credential.renew(first)
    assert run(credential.obtain(READ)) is other
    second = run(credential.obtain(NONE))
    assert second.text == "t3"
    credential.renew(first)  # by someone who is late
    assert run(credential.obtain(NONE)) is second


def test_a_token_for_a_caller_ends_with_the_callers_own(server: Agent, client_of: Make, clock: Clock) -> None:
    server.pages["/token"] = numbered(issued_token_type=ACCESS_TOKEN)
    subject = SubjectToken("s0", issuer="https://idp.example", subject="alice", expires_at=clock.now + 100)
    credential = exchange_of(client_of(), lambda: subject)
    first = run(credential.obtain(NONE))
    clock.now += 99
    assert run(credential.obtain(NONE)) is first
    clock.now += 1
    with pytest.raises(TokenRequestError, match="the caller's token has expired"):
        run(credential.obtain(NONE))
    assert len(server.asked) == 1


async def test_whose_token_it_is_may_be_asked_for(server: Agent, client_of: Make, tmp_path: Path) -> None:
    server.pages["/token"] = numbered(issued_token_type=ACCESS_TOKEN)
    (tmp_path / "subject").write_text("from-file")

    async def later() -> str:
        return "from-task"

    client = client_of()
    await run_async(exchange_of(client, later).obtain(NONE))
    await run_async(exchange_of(client, SecretFile(tmp_path / "subject")).obtain(NONE))
    assert [form_of(each)["subject_token"] for each in server.asked] == ["from-task", "from-file"]
    with pytest.raises(ConfigurationError, match="an async function is for"):
        run(exchange_of(client, later).obtain(NONE))
    with pytest.raises(ConfigurationError, match="the function returns neither a SubjectToken nor a text") as error:
        run(exchange_of(client, lambda: "s3cret\n").obtain(NONE))
    assert "s3cret" not in shown(error.value)


# Refresh tokens


def test_a_rotated_token_is_the_next_one(server: Agent, client_of: Make) -> None:
    numbers = iter(range(1, 9))
    server.pages["/token"] = lambda _: given(refresh_token=f"r{next(numbers)}.*!$ ~x")  # VSCHAR (RFC 6749 A.17)
    kept: list[str] = []
    credential = login_of(client_of(), on_rotation=kept.append)
    for _ in range(3):
        credential.renew(run(credential.obtain(NONE)))
    assert [form_of(each)["refresh_token"] for each in server.asked] == ["r0", *kept[:2]]
    assert kept == [f"r{i}.*!$ ~x" for i in (1, 2, 3)]
    server.pages["/token"] = given()  # the server keeps the same one
    for _ in range(2):
        credential.renew(run(credential.obtain(NONE)))
    assert [form_of(each)["refresh_token"] for each in server.asked[3:]] == [kept[2]] * 2


def test_a_rotated_token_is_kept_although_its_scopes_are_too_few(server: Agent, client_of: Make) -> None:
    server.pages["/token"] = given(refresh_token="r1", scope="read")
    credential = login_of(client_of())
    with pytest.raises(TokenRequestError, match="fewer scopes"):
        run(credential.obtain(frozenset({"read", "write"})))
    run(credential.obtain(READ))
    assert [form_of(each)["refresh_token"] for each in server.asked] == ["r0", "r1"]


def test_a_new_login_in_the_file_replaces_what_was_rotated(server: Agent, client_of: Make, tmp_path: Path) -> None:
    path = tmp_path / "login"
    path.write_text("first")
    server.pages["/token"] = given(refresh_token="rotated")
    credential = login_of(client_of(), SecretFile(path))
    for text in ("first", "first", "a new login"):
        path.write_text(text)
        credential.renew(run(credential.obtain(NONE)))
    assert [form_of(each)["refresh_token"] for each in server.asked] == ["first", "rotated", "a new login"]


async def test_the_one_who_keeps_rotated_tokens_may_wait(server: Agent, client_of: Make) -> None:
    server.pages["/token"] = numbered(refresh_token="r1")
    kept: list[str] = []

    async def keep(text: str) -> None:
        await asyncio.sleep(0)
        kept.append(text)

    credential = login_of(client_of(), on_rotation=keep)
    credential.renew(await run_async(credential.obtain(NONE)))
    assert kept == ["r1"]
    with pytest.raises(ConfigurationError, match="an async function is for"):
        run(credential.obtain(NONE))
    assert run(login_of(client_of()).obtain(NONE)).text


def test_a_disk_that_is_full_loses_no_login(server: Agent, client_of: Make) -> None:
    server.pages["/token"] = numbered(refresh_token="r1")

    def keep(text: str) -> None:
        if len(server.asked) == 1:
            raise OSError("no space left")

    credential = login_of(client_of(), on_rotation=keep)
    with pytest.raises(OSError, match="no space left"):
        run(credential.obtain(NONE))
    assert run(credential.obtain(NONE)).text == "t2"
    assert form_of(server.asked[1])["refresh_token"] == "r1"


# Threads and tasks


class Held:
    """A token endpoint whose first answer waits until it is let go."""

    def __init__(self, first: Page, *later: Page) -> None:
        self._pages = [first, *later]
        self.came, self.go = threading.Event(), threading.Event()

    def __call__(self, _: Asked) -> Page:
        page = self._pages.pop(0) if len(self._pages) > 1 else self._pages[0]
        if not self.came.is_set():
            self.came.set()
            assert self.go.wait(60)
        return page

    async def has_come(self) -> None:
        assert await asyncio.to_thread(self.came.wait, 60)


async def test_when_the_one_who_asks_is_cancelled_the_others_get_its_token(server: Agent, client_of: Make) -> None:
    held = server.pages["/token"] = Held(given(), given(access_token="t2"))
    credential = own(client_of())
    leader = asyncio.create_task(run_async(credential.obtain(NONE)))
    await held.has_come()
    others = [asyncio.create_task(run_async(credential.obtain(NONE))) for _ in range(5)]
    in_thread = asyncio.create_task(asyncio.to_thread(lambda: run(credential.obtain(NONE))))
    await asyncio.sleep(0.05)
    others[0].cancel()  # one who only waits; the others do not notice
    await asyncio.sleep(0.05)
    assert len(server.asked) == 1
    leader.cancel()
    await asyncio.sleep(0.05)
    held.go.set()
    async with asyncio.timeout(60):
        values = await asyncio.gather(*others[1:], in_thread)
    assert {value.text for value in values} == {"t1"}
    assert (leader.cancelled(), others[0].cancelled(), len(server.asked)) == (True, True, 1)


async def test_a_cancelled_request_uses_no_refresh_token_twice(server: Agent, client_of: Make) -> None:
    held = server.pages["/token"] = Held(given(refresh_token="r1"), given(access_token="t2", refresh_token="r2"))
    credential = RefreshToken(client_of(), "r0", origins=[ORIGIN], allowed_scopes=["a"])
    leader = asyncio.create_task(run_async(credential.obtain(NONE)))
    await held.has_come()
    leader.cancel()
    held.go.set()
    async with asyncio.timeout(60):
        await run_async(credential.obtain(frozenset({"a"})))
    assert leader.cancelled()
    used = [parse_qs(each.body.decode())["refresh_token"] for each in server.asked]
    assert used == [["r0"], ["r1"]]


async def test_those_who_wait_share_the_error(server: Agent, client_of: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = threading.Semaphore(0)

    class Awaited(Future[None]):
        def result(self, timeout: float | None = None) -> None:
            waiting.release()
            super().result(timeout)

    monkeypatch.setattr("a2a_trust.client.flow.Future", Awaited)
    held = server.pages["/token"] = Held(refused("access_denied"), given())
    credential = own(client_of())
    tasks = [asyncio.create_task(run_async(credential.obtain(NONE))) for _ in range(20)]
    await held.has_come()
    threads = [asyncio.create_task(asyncio.to_thread(lambda: run(credential.obtain(NONE)))) for _ in range(3)]
    for _ in threads:
        assert await asyncio.to_thread(waiting.acquire, timeout=60)
    held.go.set()
    async with asyncio.timeout(60):
        errors = await asyncio.gather(*tasks, *threads, return_exceptions=True)
    assert len(server.asked) == 1
    assert {getattr(each, "error", None) for each in errors} == {"access_denied"}
    assert len({*map(id, errors)}) == 23
    assert run(credential.obtain(NONE)).text == "t1"  # an error is not remembered


async def test_an_error_is_not_shared_with_those_who_come_after_it(server: Agent, client_of: Make) -> None:
    """Each of them asks again at once, while others still learn of the error."""
    server.pages["/token"] = refused("access_denied")
    credential = own(client_of())

    async def asks_again() -> None:
        for _ in range(5):
            with pytest.raises(TokenRequestError, match="access_denied"):
                await run_async(credential.obtain(NONE))

    await asyncio.gather(*[asks_again() for _ in range(8)])
    assert len(server.asked) >= 5


async def test_a_function_for_a_secret_that_needs_a_token_itself_does_not_wait_for_itself(
    server: Agent, client_of: Make
) -> None:
    server.pages["/token"] = given()
    asked: list[str] = []

    async def secret() -> str:
        asked.append("secret")
        if len(asked) == 1:
            await run_async(credential.obtain(NONE))
        return "s"

    credential = own(client_of(authentication=ClientSecret(secret)))
    async with asyncio.timeout(60):
        assert (await run_async(credential.obtain(NONE))).text == "t1"
    assert len(server.asked) == 2


async def test_an_error_for_other_scopes_is_not_shared(server: Agent, client_of: Make) -> None:
    held = server.pages["/token"] = Held(refused("invalid_scope"), given())
    credential = login_of(client_of())
    first = asyncio.create_task(run_async(credential.obtain(READ)))
    await held.has_come()
    second = asyncio.create_task(run_async(credential.obtain(NONE)))
    await asyncio.sleep(0.05)
    held.go.set()
    with pytest.raises(TokenRequestError, match="invalid_scope"):
        await first
    assert (await second).text == "t1"


async def test_a_client_that_waits_does_not_wait_for_its_own_thread(server: Agent, client_of: Make) -> None:
    held = server.pages["/token"] = Held(given(), given(access_token="t2"))
    credential = own(client_of())
    task = asyncio.create_task(run_async(credential.obtain(NONE)))
    await held.has_come()
    assert run(credential.obtain(NONE)).text == "t2"  # the task could not go on meanwhile
    held.go.set()
    assert (await task).text == "t1"


async def test_a_refresh_token_is_not_used_beside_a_task_of_the_same_thread(server: Agent, client_of: Make) -> None:
    held = server.pages["/token"] = Held(given(refresh_token="r1"))
    credential = login_of(client_of())
    task = asyncio.create_task(run_async(credential.obtain(NONE)))
    await held.has_come()
    with pytest.raises(TokenRequestError, match=r"that its own event loop is fetching; use AsyncClient"):
        run(credential.obtain(NONE))
    held.go.set()
    assert (await task).text == "t1"
    assert run(credential.obtain(NONE)).text == "t1"
    assert len(server.asked) == 1


def test_threads_wait_for_one_request(server: Agent, client_of: Make) -> None:
    held = server.pages["/token"] = Held(given())
    credential = own(client_of())
    with ThreadPoolExecutor(8) as threads:
        values = [threads.submit(run, credential.obtain(NONE)) for _ in range(8)]
        assert held.came.wait(60)
        held.go.set()
        assert len({id(each.result(60)) for each in values}) == 1
    assert len(server.asked) == 1


# Proofs of a key


def test_a_nonce_is_tried_once(server: Agent, client_of: Make) -> None:
    credential = own(client_of(dpop=generate_signer("ES256")))
    body = b'{"error": "use_dpop_nonce"}'
    server.pages["/token"] = Page(status=400, body=body, headers={"DPoP-Nonce": "n1"})
    with pytest.raises(TokenRequestError, match="use_dpop_nonce"):
        run(credential.obtain(NONE))
    assert len(server.asked) == 2
    server.pages["/token"] = Page(status=400, body=body, headers={"DPoP-Nonce": "not a nonce"})
    with pytest.raises(TokenRequestError, match="use_dpop_nonce"):
        run(credential.obtain(NONE))
    assert len(server.asked) == 3
    server.pages["/token"] = given(token_type="dpop", headers={"DPoP-Nonce": "n2"})
    value = run(credential.obtain(NONE))
    assert value.proofs is not None
    assert [_claims(each.headers["dpop"]).get("nonce") for each in server.asked] == [None, "n1", "n1", "n1"]
    assert {_claims(each.headers["dpop"])["htu"] for each in server.asked} == {f"{server.origin('127.0.0.1')}/token"}


def _claims(token: str) -> dict[str, Any]:
    part = token.split(".")[1]
    claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(part + "=="))
    return claims


def test_a_token_that_is_not_bound_although_a_proof_was_sent(server: Agent, client_of: Make) -> None:
    with pytest.raises(TokenRequestError, match="token_type is not dpop"):
        run(own(client_of(dpop=generate_signer("ES256"))).obtain(NONE))


class BrokenSigner:
    """A signer somewhere else that cannot be reached."""

    def __init__(self) -> None:
        self.public_key = generate_signer("ES256").public_key
        self.alg, self.kid = "ES256", "k1"

    def sign(self, data: bytes) -> bytes:
        raise OSError("the module does not answer")


@pytest.mark.parametrize("options", [{"dpop": BrokenSigner()}, {"authentication": PrivateKeyJwt(BrokenSigner())}])
def test_a_signer_that_fails_shows_no_secret(server: Agent, client_of: Make, options: dict[str, Any]) -> None:
    secret = {"authentication": ClientSecret(lambda: "s3cret"), **options}
    credentials = [login_of(client_of(**secret), lambda: "s3cret-r0"), exchange_of(client_of(**secret), "s3cret-s0")]
    for credential in credentials:
        with pytest.raises(OSError, match="does not answer") as failed:
            run(credential.obtain(NONE))
        assert "_post" in shown(failed.value)
        assert "s3cret" not in shown(failed.value)
    assert not server.asked


# Schemes, arguments, reprs


def oauth(*urls: tuple[str, str], metadata: str | None = None) -> OAuth2Scheme:
    flow = OAuthFlow(kind="clientCredentials", urls=urls, scopes=frozenset())
    return OAuth2Scheme(name="login", flows=(flow,), metadata_url=metadata)


@pytest.mark.parametrize(
    ("scheme", "problem"),
    [
        (oauth(("tokenUrl", "https://idp.example/token")), ""),
        (oauth(("authorizationUrl", "https://evil.example"), ("refreshUrl", "https://idp.example/token")), ""),
        (oauth(("tokenUrl", "https://idp.example/token/")), "for the token endpoint https://idp.example/token"),
        (oauth(("tokenUrl", "https://evil.example/token")), "for the token endpoint https://idp.example/token"),
        (oauth(metadata="https://idp.example/.well-known/oauth-authorization-server"), ""),
        (oauth(metadata="https://idp.example/.well-known/openid-configuration"), ""),
        (oauth(metadata="https://evil.example/.well-known/oauth-authorization-server"), "for the issuer https://idp"),
        (
            oauth(("tokenUrl", "https://idp.example/token"), metadata="https://evil.example"),
            "for the issuer https://idp.example",
        ),
        (
            oauth(
                ("tokenUrl", "https://evil.example"),
                metadata="https://idp.example/.well-known/oauth-authorization-server",
            ),
            "for the token endpoint https://idp.example/token",
        ),
        (oauth(), "names neither a token endpoint nor metadata"),
        (oauth(("authorizationUrl", "https://idp.example/a")), "names neither a token endpoint nor metadata"),
        (OpenIdConnectScheme(name="s", discovery_url="https://idp.example/.well-known/openid-configuration"), ""),
        (OpenIdConnectScheme(name="s", discovery_url="https://evil.example/x"), "for the issuer https://idp.example"),
        (HttpScheme(name="s", scheme="bearer"), ""),
        (HttpScheme(name="s", scheme="basic"), "an access token does not answer it"),
        (ApiKeyScheme(name="s", location="header", parameter="X"), "an access token does not answer it"),
    ],
)
def test_the_urls_of_a_card_are_compared(client_of: Make, scheme: SecurityScheme, problem: str) -> None:
    client = client_of(issuer="https://idp.example", token_endpoint="https://idp.example/token")
    found = own(client).mismatch(scheme, READ)
    assert problem in found
    assert bool(problem) is bool(found)


def test_scopes_that_the_caller_does_not_allow(client_of: Make) -> None:
    credential = own(client_of())
    scheme = HttpScheme(name="s", scheme="bearer")
    assert credential.mismatch(scheme, frozenset({"read", "admin", "root"})) == (
        "allowed_scopes does not have 'admin root'"
    )
    assert credential.may_step_up(frozenset({"read", "admin"})) == READ


@pytest.mark.parametrize(
    "options",
    [
        {"token_endpoint": "http://idp.example/token"},
        {"token_endpoint": "token"},
        {"token_endpoint": "https://idp.example/token#x"},
        {"issuer": "idp.example"},
        {"issuer": "https://idp.example/?x"},
        {"client_id": ""},
        {"client_id": "ä"},
        {"client_id": "a\nb"},
        {"authentication": "s3cret"},
        {"authentication": None},
    ],
)
def test_arguments_of_a_client(client_of: Make, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError) as error:
        client_of(**options)
    assert "s3cret" not in str(error.value)


def test_arguments_of_a_credential(client_of: Make) -> None:
    for scopes in ("read", ["a b"], [""], ['a"']):
        with pytest.raises(ConfigurationError, match="allowed_scopes: write a list of scopes"):
            own(client_of(), allowed_scopes=scopes)
    with pytest.raises(ConfigurationError, match=r"ClientCredentials: the first argument is not an OAuthClient"):
        own("https://idp.example")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match='write "client_secret_basic" or'):
        ClientSecret("s3cret", method="client_secret_jwt")  # type: ignore[arg-type]
    for make in (
        lambda each: ClientSecret(each),
        lambda each: login_of(client_of(), each),
        lambda each: exchange_of(client_of(), each),
    ):
        with pytest.raises(ConfigurationError, match="write its text, a function that returns it, or SecretFile"):
            make(None)  # a variable that is not set
        with pytest.raises(ConfigurationError, match="the secret is not printable ASCII"):
            make("")


def test_no_repr_and_no_pickle_has_a_secret(client_of: Make) -> None:
    client = client_of()
    signer = generate_signer("ES256", kid="k1")
    origin = client.issuer
    assert repr(client) == f"OAuthClient(issuer='{origin}', client_id='orchestrator')"
    assert repr(ClientSecret("s3cret")) == "ClientSecret(…, method='client_secret_basic')"
    assert repr(PrivateKeyJwt(signer)) == "PrivateKeyJwt(kid='k1')"
    assert repr(TlsClientAuth()) == "TlsClientAuth()"
    for credential in (own(client), login_of(client, "s3cret"), exchange_of(client, "s3cret")):
        assert repr(credential) == f"{type(credential).__name__}(…, origins=['https://agent.example'])"
        with pytest.raises(TypeError, match="it holds a secret"):
            pickle.dumps(credential)


def test_an_error_survives_a_pickle(server: Agent, client_of: Make) -> None:
    server.pages["/token"] = refused("invalid_client", 401)
    with pytest.raises(TokenRequestError) as error:
        run(own(client_of()).obtain(NONE))
    again = pickle.loads(pickle.dumps(error.value))
    assert (type(again), again.error, str(again)) == (TokenRequestError, "invalid_client", str(error.value))
