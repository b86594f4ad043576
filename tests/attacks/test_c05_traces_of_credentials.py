"""C5: credentials in logs, errors, tracebacks that show locals, pickles and ``vars`` (A2A Java GHSA-x32g-jvvm-4725).

Error trackers and loggers that print the locals of every frame are common. In each test a secret is in use, something
goes wrong, and the secret stands in nothing that a frame of this package shows.
"""

from __future__ import annotations

import asyncio
import copy
import gc
import logging
import pickle
import ssl
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

import a2a_trust
from a2a_trust import (
    AsyncVerifyingTransport,
    Fetcher,
    VerifyingTransport,
    async_fetch_card,
    fetch_card,
    generate_signer,
)
from a2a_trust.client import (
    ApiKey,
    BasicCredentials,
    BearerToken,
    CardAuth,
    ClientCredentials,
    ClientSecret,
    FetchOptions,
    PrivateKeyJwt,
    RefreshToken,
    SecretFile,
    TokenExchange,
    UnsafePassAnything,
    fetch_extended_card,
)
from a2a_trust.client.flow import run
from a2a_trust.errors import TrustError
from tests.attacks.calling import (
    CLIENT_SECRET,
    KEY,
    PASSWORD,
    TOKEN,
    VICTIM,
    Ask,
    Servers,
    card_with,
    key_scheme,
    leaks_in,
    oauth_scheme,
    tokens,
)
from tests.client.agents import OWNER_TRUSTED, Page, trusting
from tests.tables import walk

PACKAGE: Final = str(Path(a2a_trust.__file__).parent)
SIGNER: Final = generate_signer("ES256")
ORIGIN: Final = "https://agent.example.com"


class BrokenSigner:
    """A key in a service that is down: it raises what no package knows."""

    alg, kid, public_key = SIGNER.alg, SIGNER.kid, SIGNER.public_key

    def sign(self, data: bytes) -> bytes:
        raise LookupError("the service of the key is down")


def traces_of(error: BaseException) -> list[str]:
    """What trackers show of the error: its chain of texts, and the locals of the frames of this package."""
    shown: list[str] = []
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        each = left.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        shown.extend([str(each), repr(each), repr(each.args), repr(vars(each))])
        left.extend([each.__cause__, each.__context__])
        captured = traceback.TracebackException.from_exception(each, capture_locals=True)
        ours = [frame for frame in captured.stack if frame.filename.startswith(PACKAGE)]
        shown.extend([f"{frame.name}: {frame.locals}" for frame in ours])
    return shown


def raised(call: Callable[[], object]) -> BaseException:
    with pytest.raises(Exception) as caught:  # noqa: PT011
        call()
    return caught.value


def assert_untold(*told: str) -> None:
    assert told
    assert [each for each in told if leaks_in(each)] == []


# Objects


def held(tmp_path: Path) -> list[Any]:
    client = a2a_trust.client.OAuthClient(
        issuer="https://i.example",
        token_endpoint="https://i.example/token",
        client_id="c",
        authentication=ClientSecret(CLIENT_SECRET),
        dpop=SIGNER,
    )
    path = tmp_path / "file"
    path.write_text(KEY)
    options: Any = {"origins": [ORIGIN], "allowed_scopes": []}
    credentials = [
        ApiKey(KEY, origins=[ORIGIN]),
        ApiKey(SecretFile(path), origins=[ORIGIN]),
        BasicCredentials("ann", PASSWORD, origins=[ORIGIN]),
        BearerToken(TOKEN, origins=[ORIGIN], dpop=SIGNER),
        RefreshToken(client, "secret-refresh", **options),
        TokenExchange(client, "secret-subject", **options),
        ClientCredentials(client, **options),
    ]
    card = card_with(ORIGIN, {"s": key_scheme()}, {"s": []})
    auth = CardAuth(card, {str(index): each for index, each in enumerate(credentials)}, trust=OWNER_TRUSTED)
    values = [run(each.obtain(frozenset())) for each in credentials[:4]]
    secrets = [ClientSecret(CLIENT_SECRET), SecretFile(path)]
    return [*credentials, client, auth, *values, *secrets]


def test_no_object_shows_its_secret(tmp_path: Path) -> None:
    for each in held(tmp_path):
        assert_untold(repr(each), str(each), f"{each}", f"{each!a}", repr([each]), repr({"x": each}))
        assert_untold(repr(getattr(each, "__dict__", "it has slots only")))


def test_no_object_is_pickled_or_copied_with_its_secret(tmp_path: Path) -> None:
    for each in held(tmp_path):
        for attempt in (pickle.dumps, copy.deepcopy):
            error = raised(lambda: attempt(each))  # noqa: B023
            assert isinstance(error, TypeError | AttributeError | pickle.PicklingError)
            assert_untold(*traces_of(error))


# Mistakes of the program


@walk("secret", ["secret-key\n", " secret-key", "secret-key\x00", "sécret secret-key", b"secret-key", ["secret-key"]])
def test_a_secret_that_is_refused_is_not_shown(secret: Any) -> None:
    client: Any = object()
    for call in (
        lambda: ApiKey(secret, origins=[ORIGIN]),
        lambda: BasicCredentials("ann", secret, origins=[ORIGIN]),
        lambda: BearerToken(secret, origins=[ORIGIN]),
        lambda: BearerToken("secret-key with blanks", origins=[ORIGIN]),
        lambda: RefreshToken(client, secret, origins=[ORIGIN], allowed_scopes=[]),
        lambda: TokenExchange(client, secret, origins=[ORIGIN], allowed_scopes=[]),
    ):
        error = raised(call)
        assert isinstance(error, TrustError)
        assert_untold(*traces_of(error))


def test_a_secret_beside_another_mistake_is_not_shown() -> None:
    wrong: Any = "https://agent.example.com/with/path"
    for call in (
        lambda: ApiKey(KEY, origins=[wrong]),
        lambda: ApiKey(KEY, origins=ORIGIN),
        lambda: BasicCredentials("a:b", PASSWORD, origins=[ORIGIN]),
        lambda: BasicCredentials("ann", PASSWORD, origins=[wrong]),
        lambda: BearerToken(TOKEN, origins=[wrong]),
        lambda: ClientSecret(CLIENT_SECRET, method=wrong),
        lambda: RefreshToken(wrong, "secret-refresh", origins=[ORIGIN], allowed_scopes=[]),
        lambda: TokenExchange(wrong, "secret-subject", origins=[ORIGIN], allowed_scopes=[]),
    ):
        assert_untold(*traces_of(raised(call)))


# Requests


def login_auth(servers: Servers, credential: Callable[..., Any] | None = None, **options: Any) -> CardAuth:
    """A card that wants a key beside the login: frames that fail over one of them must not show the other."""
    schemes = {
        "a-key": key_scheme("X-Key"),
        "b-key": key_scheme("key", "query"),
        "login": oauth_scheme(servers.token_endpoint),
    }
    card = card_with(servers.origin, schemes, {name: [] for name in schemes})
    key, client = ApiKey(KEY, origins=[servers.origin]), servers.client(**options)
    grant: Any = {"origins": [servers.origin], "allowed_scopes": []}
    login = ClientCredentials(client, **grant) if credential is None else credential(client, **grant)
    return CardAuth(card, {"a-key": key, "b-key": key, "login": login}, trust=OWNER_TRUSTED)


def refused_subject() -> Any:
    return "secret-subject\n"


def broken() -> str:
    raise LookupError("the program's own function is broken")


TROUBLE: Final[dict[str, Callable[[Servers], Any]]] = {
    "no login": lambda servers: login_auth(servers, token_endpoint=f"{servers.login.origin(VICTIM)}/token"),
    "post": lambda servers: login_auth(
        servers, authentication=ClientSecret(CLIENT_SECRET, method="client_secret_post")
    ),
    "refresh": lambda servers: login_auth(servers, lambda c, **o: RefreshToken(c, "secret-refresh", **o)),
    "refused refresh token": lambda servers: login_auth(
        servers, lambda c, **o: RefreshToken(c, lambda: "secret-refresh\n", **o)
    ),
    "exchange": lambda servers: login_auth(servers, lambda c, **o: TokenExchange(c, "secret-subject", **o)),
    "refused subject token": lambda servers: login_auth(servers, lambda c, **o: TokenExchange(c, refused_subject, **o)),
    "refused client secret": lambda servers: login_auth(
        servers, authentication=ClientSecret(lambda: f"{CLIENT_SECRET}\n")
    ),
    "broken function": lambda servers: login_auth(
        servers, lambda c, **o: RefreshToken(c, broken, **o), authentication=ClientSecret(lambda: CLIENT_SECRET)
    ),
    "broken signer of proofs": lambda servers: login_auth(
        servers, lambda c, **o: RefreshToken(c, "secret-refresh", **o), dpop=BrokenSigner()
    ),
    "broken signer of assertions": lambda servers: login_auth(
        servers, lambda c, **o: RefreshToken(c, "secret-refresh", **o), authentication=PrivateKeyJwt(BrokenSigner())
    ),
    "broken signer of a token": lambda servers: login_auth(
        servers, lambda c, origins, **o: BearerToken(TOKEN, origins=origins, dpop=BrokenSigner())
    ),
}
ANSWERS: Final[dict[str, Page]] = {
    "no page": Page(status=404),
    "refused": Page(status=401, body=b'{"error": "invalid_client", "error_description": "secret-of-the-client"}'),
    "no token": Page(body=tokens(token_type="mac", refresh_token="secret-refresh")),
    "a bad token": Page(body=tokens(access_token="secret-token\n")),
    "no JSON": Page(body=b"secret-token"),
}


@walk("answer", [*ANSWERS])
@walk("trouble", [*TROUBLE])
def test_a_login_that_fails_shows_nothing(
    servers: Servers, asks: Ask, trouble: str, answer: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    servers.login.pages["/token"] = ANSWERS[answer]
    auth = TROUBLE[trouble](servers)
    assert_untold(*traces_of(raised(lambda: asks(auth, f"{servers.origin}/rpc"))), caplog.text)
    assert servers.agent.asked == []


def test_a_key_that_cannot_stand_in_a_cookie_shows_nothing(servers: Servers, asks: Ask) -> None:
    schemes = {"a": key_scheme(), "b": key_scheme("session", "cookie")}
    card = card_with(servers.origin, schemes, {name: [] for name in schemes})
    keys = {"a": ApiKey(KEY, origins=[servers.origin]), "b": ApiKey("secret-key; x", origins=[servers.origin])}
    assert_untold(*traces_of(raised(lambda: asks(CardAuth(card, keys, trust=OWNER_TRUSTED), f"{servers.origin}/rpc"))))


@walk("status", [200, 401, 403, 500])
def test_no_log_has_a_credential(servers: Servers, asks: Ask, status: int, caplog: pytest.LogCaptureFixture) -> None:
    """Those of httpx, httpcore and this package, at the level that says most."""
    caplog.set_level(logging.DEBUG)
    servers.login.pages["/token"] = tokens(token_type="DPoP")
    servers.agent.pages["/rpc"] = Page(status=status, headers={"WWW-Authenticate": 'DPoP error="invalid_token"'})
    auth = login_auth(servers, dpop=SIGNER)
    told: list[str] = []
    try:
        answer = asks(auth, f"{servers.origin}/rpc")
        told += [repr(answer), repr(answer.request), repr(answer.request.headers), str(answer.url), repr(vars(answer))]
    except TrustError as error:
        told += traces_of(error)
    assert (servers.agent.asked[0].headers["x-key"], servers.agent.asked[0].path) == (KEY, f"/rpc?key={KEY}")
    assert {httpx.__name__, httpx.__name__.replace("httpx", "httpcore")} <= {
        record.name.partition(".")[0] for record in caplog.records
    }
    assert_untold(*told, caplog.text, *[repr(vars(record)) for record in caplog.records])


@walk("kind", ["sync", "async"])
@walk("trouble", ["no connection", "no card", "no extended card"])
@walk("also", [True, False], ids=["anything", "cards"])
def test_a_verifying_transport_that_fails_shows_nothing(servers: Servers, kind: str, trouble: str, also: bool) -> None:
    schemes = {"a": key_scheme("key", "query"), "b": key_scheme("X-Key")}
    card = card_with(servers.origin, schemes, {name: [] for name in schemes})
    auth = CardAuth(card, {name: ApiKey(KEY, origins=[servers.origin]) for name in schemes}, trust=OWNER_TRUSTED)
    tls = ssl.create_default_context() if trouble == "no connection" else servers.authority.client()
    options: Any = {"also": UnsafePassAnything() if also else ()}
    path = "/rest/extendedAgentCard" if trouble == "no extended card" else "/rpc"
    servers.agent.pages[path] = Page(body=b"{}")
    method = "GET" if trouble == "no extended card" else "POST"

    def ask() -> None:
        if kind == "sync":
            transport = VerifyingTransport(httpx.HTTPTransport(verify=tls), trusting(VICTIM), **options)
            with httpx.Client(transport=transport, auth=auth) as http:
                http.request(method, f"{servers.origin}{path}").raise_for_status()
        else:
            asyncio.run(ask_in_loop())
        raise LookupError("it went well")

    async def ask_in_loop() -> None:
        inner = AsyncVerifyingTransport(httpx.AsyncHTTPTransport(verify=tls), trusting(VICTIM), **options)
        async with httpx.AsyncClient(transport=inner, auth=auth) as http:
            (await http.request(method, f"{servers.origin}{path}")).raise_for_status()

    assert_untold(*traces_of(raised(ask)))


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_fetch_of_a_card_with_credentials_that_fails_shows_nothing(
    servers: Servers, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    fetcher = Fetcher(private_origins=[servers.origin], ssl_context=servers.authority.client())
    options = FetchOptions(fetcher=fetcher)
    for credentials in ({"Authorization": f"Bearer {TOKEN}"}, {"X-Key": f"{KEY}\n"}, {"Host": KEY}):
        for page in (Page(status=401), Page(body=b"{}"), Page(body=b"[")):
            servers.agent.pages["/card.json"] = page

            def fetch(given: dict[str, str] = credentials) -> None:
                url, trust = f"{servers.origin}/card.json", trusting(VICTIM)
                if kind == "sync":
                    fetch_card(url, trust, options, headers=given)
                else:
                    asyncio.run(async_fetch_card(url, trust, options, headers=given))

            assert_untold(*traces_of(raised(fetch)), caplog.text)
    card = card_with(servers.origin, {"s": key_scheme()}, {"s": []})
    extended = lambda: fetch_extended_card(  # noqa: E731
        card, trusting(VICTIM), headers={"X-Key": KEY}, options=options
    )
    assert_untold(*traces_of(raised(extended)))


@pytest.mark.parametrize("options", [None, "no options"])
def test_a_fetch_with_a_wrong_argument_shows_nothing(options: Any) -> None:
    given: Any = {"options": options, "credentials": {"X-Key": KEY}}
    card = card_with(ORIGIN, {"s": key_scheme()}, {"s": []})
    for fetch in (
        lambda: fetch_card(ORIGIN, OWNER_TRUSTED, **given),
        lambda: asyncio.run(async_fetch_card(ORIGIN, OWNER_TRUSTED, **given)),
        lambda: fetch_extended_card(card, OWNER_TRUSTED, **given),
    ):
        assert_untold(*traces_of(raised(fetch)))


def test_a_request_that_is_over_leaves_no_credential_in_it(servers: Servers, asks: Ask) -> None:
    """What keeps the answer or the error keeps the request, and debuggers look at all of it."""
    servers.login.pages["/token"] = tokens()
    auth = login_auth(servers)
    answer = asks(auth, f"{servers.origin}/rpc")
    gc.collect()
    reached = [answer.request, answer.request.headers, answer.request.url]
    assert_untold(
        *[repr(vars(each)) for each in reached], repr(answer.request.headers.raw), repr(answer.request.url.raw_path)
    )
