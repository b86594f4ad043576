"""Where an issuer's keys are found, and which documents are believed; the issuers are real servers on loopback."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from a2a_trust import generate_signer
from a2a_trust.auth.discovery import IssuerKeys, OAuth2Keys, OpenIdKeys
from a2a_trust.auth.jwt import IdTokenVerifier, JwtVerifier
from a2a_trust.base.net.fetcher import Fetcher
from a2a_trust.errors import ConfigurationError, InvalidCredentialsError, KeySourceUnavailableError
from a2a_trust.keys import LocalSigner
from a2a_trust.keys.jwk import PublicKey
from tests.base.net.test_fetcher import Names, Server, answer, serving
from tests.tables import walk

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


A, B = generate_signer("ES256", kid="a"), generate_signer("ES256", kid="b")
OPENID = "/.well-known/openid-configuration"
OAUTH = "/.well-known/oauth-authorization-server"


def jwks(*signers: LocalSigner) -> dict[str, Any]:
    return {"keys": [signer.public_key.to_jwk() for signer in signers]}


class Issuer:
    """An issuer whose documents the test writes: ``pages`` by path, bytes or JSON; all else is not found."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.now = 0.0
        self.pages: dict[str, Any] = {}
        self.server = Server(self._answer)

    def listens(self, server: Server) -> None:
        self.server = server
        self.origin = f"http://127.0.0.1:{server.port}"
        self.name = f"{self.origin}{self._path}"

    def metadata(self, **changes: Any) -> dict[str, Any]:
        good = {"issuer": self.name, "jwks_uri": f"{self.origin}/jwks", "token_endpoint": f"{self.origin}/token"}
        return {name: value for name, value in {**good, **changes}.items() if value is not ...}

    async def _answer(self, writer: asyncio.StreamWriter) -> None:
        page = self.pages.get(self.asked[-1])
        body = page if isinstance(page, bytes) else json.dumps(page).encode()
        await answer(body, status="404 Not Found" if page is None else "200 OK")(writer)

    @property
    def asked(self) -> list[str]:
        """The paths that were fetched, in order."""
        return [request.split(b" ")[1].decode() for request in self.server.requests]

    def fetcher(self) -> Fetcher:
        return Fetcher(private_origins=[self.origin], timeout=60)

    def keys(self) -> OpenIdKeys:
        return OpenIdKeys(self.name, self.fetcher(), clock=lambda: self.now)


@asynccontextmanager
async def issuer_at(path: str = "") -> AsyncIterator[Issuer]:
    """An issuer with that path in its name, and with good documents by OpenID Connect."""
    issuer = Issuer(path)
    async with serving(issuer._answer) as server:
        issuer.listens(server)
        issuer.pages = {path.removesuffix("/") + OPENID: issuer.metadata(), "/jwks": jwks(A)}
        yield issuer


async def found(keys: IssuerKeys, kid: str = "a") -> PublicKey:
    return await keys.key(kid, "EC")


# Where the document is


@walk("path", ["", "/", "/tenant", "/tenant/", "/a/b"])
async def test_the_document_is_where_the_name_of_the_issuer_says(path: str) -> None:
    async with issuer_at(path) as issuer:
        keys = issuer.keys()
        assert issuer.asked == []
        assert await found(keys) == A.public_key
        assert issuer.asked == [path.removesuffix("/") + OPENID, "/jwks"]
        assert await found(keys) == A.public_key
        assert len(issuer.asked) == 2


@walk(
    ("issuer", "openid", "oauth"),
    [
        ("https://a.example", f"https://a.example{OPENID}", f"https://a.example{OAUTH}"),
        ("https://a.example/", f"https://a.example{OPENID}", f"https://a.example{OAUTH}"),
        ("https://a.example/t", f"https://a.example/t{OPENID}", f"https://a.example{OAUTH}/t"),
        ("https://a.example:8443/t/u/", f"https://a.example:8443/t/u{OPENID}", f"https://a.example:8443{OAUTH}/t/u"),
    ],
)
async def test_the_two_standards_put_it_before_and_behind_the_path(issuer: str, openid: str, oauth: str) -> None:
    assert OpenIdKeys(issuer, Fetcher()).metadata_url == openid
    assert OAuth2Keys(issuer, Fetcher()).metadata_url == oauth


@walk("location", ["{oauth}/t", "/t{oauth}", "{openid}/t", "/t{openid}"])
async def test_an_authorization_server_may_have_it_at_any_place_of_rfc_8414(location: str) -> None:
    path = location.format(oauth=OAUTH, openid=OPENID)
    async with issuer_at("/t") as issuer:
        issuer.pages = {path: issuer.metadata(), "/jwks": jwks(A)}
        keys = OAuth2Keys(issuer.name, issuer.fetcher(), metadata_url=f"{issuer.origin}{path}")
        assert await found(keys) == A.public_key


@walk(
    "url",
    [
        "",
        "https://a.example/t",
        f"https://a.example{OAUTH}",
        f"https://a.example{OAUTH}/T",
        f"https://a.example{OAUTH}/t/",
        f"https://a.example{OAUTH}/t?x",
        f"https://A.example{OAUTH}/t",
        f"https://a.example:443{OAUTH}/t",
        f"http://a.example{OAUTH}/t",
        f"https://evil.example{OAUTH}/t",
        f"https://a.example{OAUTH}/t/../u",
    ],
)
async def test_a_metadata_url_that_is_not_the_issuers_is_a_mistake(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"write one of https://a\.example/\.well-known/oauth-"):
        OAuth2Keys("https://a.example/t", Fetcher(), metadata_url=url)


@walk("kind", [OpenIdKeys, OAuth2Keys])
@walk("name", ["", "a.example", "https://", "https:///t", "https://a.example?t", "https://a.example/#t"])
async def test_an_issuer_without_a_place_for_its_document_is_a_mistake(kind: type[OpenIdKeys], name: str) -> None:
    with pytest.raises(ConfigurationError, match="write it as tokens have it in iss"):
        kind(name, Fetcher())


@walk("name", ["http://a.example", "file://a.example", "https://u@a.example", "https://a b.example", "https://127.1"])
async def test_an_issuer_that_the_fetcher_refuses_is_a_mistake_at_once(name: str) -> None:
    with pytest.raises(ConfigurationError, match="issuer "):
        OpenIdKeys(name, Fetcher())


# Which documents are believed


@walk(
    "changes",
    [
        {"issuer": ...},
        {"issuer": None},
        {"issuer": ""},
        {"issuer": "https://evil.example"},
        {"issuer": "{name}/"},
        {"issuer": "{name}/other"},
        {"issuer": "{NAME}"},
        {"issuer": ["{name}"]},
        {"issuer": "https://evil.example", "signed_metadata": "e30.e30.", "jwks": {}},
        {"jwks_uri": ...},
        {"jwks_uri": None},
        {"jwks_uri": ["{name}/jwks"]},
        {"jwks_uri": "/jwks"},
        {"jwks_uri": ""},
    ],
)
async def test_a_document_that_is_not_the_issuers_names_no_keys(changes: dict[str, Any]) -> None:
    async with issuer_at("/t") as issuer:
        text = json.dumps(issuer.metadata(**changes)).replace("{name}", issuer.name)
        issuer.pages["/t" + OPENID] = text.replace("{NAME}", issuer.name.upper()).encode()
        keys = issuer.keys()
        with pytest.raises(KeySourceUnavailableError):
            await found(keys)
        assert "/jwks" not in issuer.asked


@walk("page", [None, b"", b"[]", b"null", b'"x"', b"\xff", b'{"issuer": "NAME", "issuer": "NAME", "jwks_uri": "NAME"}'])
async def test_a_document_that_cannot_be_read_names_no_keys(page: Any) -> None:
    async with issuer_at() as issuer:
        issuer.pages[OPENID] = page.replace(b"NAME", issuer.name.encode()) if page else page
        with pytest.raises(KeySourceUnavailableError):
            await found(issuer.keys())
        assert issuer.asked == [OPENID]


@walk(
    "uri", ["file:///etc/passwd", "http://127.0.0.1:1/jwks", "https://127.0.0.1/jwks", "https://169.254.169.254/jwks"]
)
async def test_keys_elsewhere_are_fetched_by_the_rules_of_the_fetcher(uri: str) -> None:
    async with issuer_at() as issuer:
        issuer.pages[OPENID] = issuer.metadata(jwks_uri=uri)
        with pytest.raises(KeySourceUnavailableError):
            await found(issuer.keys())
        assert issuer.asked == [OPENID]


async def test_a_private_issuer_needs_the_operators_word_twice() -> None:
    """As an issuer, and as a private origin: one of the two alone opens nothing."""
    async with issuer_at() as issuer:
        with pytest.raises(ConfigurationError, match="only https"):
            OpenIdKeys(issuer.name, Fetcher())
        names = Names(idp_example=[["127.0.0.1"]])
        with pytest.raises(KeySourceUnavailableError):
            await found(OpenIdKeys("https://idp.example", Fetcher(resolver=names)))
        assert issuer.asked == []
        assert names.asked == ["idp.example"]


async def test_the_log_says_what_is_wrong_and_quotes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with issuer_at() as issuer:
        for page, reason in (
            (issuer.metadata(issuer="https://SECRET.example"), "does not name the issuer"),
            (issuer.metadata(jwks_uri=...), "has no jwks_uri"),
            (issuer.metadata(jwks_uri=["SECRET"]), "has no jwks_uri"),
            (b'{"SECRET": 1, "SECRET": 2}', "malformed JSON"),
        ):
            issuer.pages[OPENID] = page
            caplog.clear()
            with pytest.raises(KeySourceUnavailableError) as caught:
                await found(issuer.keys())
            assert reason in caplog.text
            assert issuer.name in caplog.text
            assert "SECRET" not in caplog.text + str(caught.value)


# As time goes by


async def test_keys_that_moved_are_found_with_the_first_new_key() -> None:
    async with issuer_at() as issuer:
        keys = issuer.keys()
        assert await found(keys) == A.public_key
        issuer.pages[OPENID] = issuer.metadata(jwks_uri=f"{issuer.origin}/moved")
        issuer.pages["/moved"] = jwks(A, B)  # and the old page is still there
        assert await found(keys, "b") == B.public_key
        assert issuer.asked == [OPENID, "/jwks", OPENID, "/moved"]


async def test_unknown_names_make_as_many_fetches_of_each_document_as_their_budget_has() -> None:
    async with issuer_at() as issuer:
        keys = issuer.keys()
        await found(keys)
        for number in range(10):
            storm = [found(keys, f"{number} {name}") for name in range(200)]
            results = await asyncio.gather(*storm, return_exceptions=True)
            assert {type(result) for result in results} <= {InvalidCredentialsError, KeySourceUnavailableError}
        assert issuer.asked == [OPENID, "/jwks"] * 6
        issuer.now = 5.0
        with pytest.raises(InvalidCredentialsError):
            await found(keys, "b")
        assert issuer.asked == [OPENID, "/jwks"] * 7


@pytest.mark.parametrize("broken", [OPENID, "/jwks"])
async def test_while_either_document_fails_known_keys_go_on_for_a_bounded_time(broken: str) -> None:
    async with issuer_at() as issuer:
        keys = issuer.keys()
        await found(keys)
        good = issuer.pages.pop(broken)
        for issuer.now in (0.0, 700.0, 3899.0):
            assert await found(keys) == A.public_key
            with pytest.raises(KeySourceUnavailableError):
                await found(keys, "b")
        issuer.now = 3900.0
        with pytest.raises(KeySourceUnavailableError):
            await found(keys)
        issuer.pages[broken] = good
        issuer.now += 60
        assert await found(keys) == A.public_key


async def test_a_document_that_becomes_anothers_changes_no_keys() -> None:
    async with issuer_at() as issuer:
        keys = issuer.keys()
        await found(keys)
        issuer.pages[OPENID] = issuer.metadata(issuer="https://evil.example", jwks_uri=f"{issuer.origin}/evil")
        issuer.pages["/evil"] = jwks(B)
        with pytest.raises(KeySourceUnavailableError):
            await found(keys, "b")
        assert await found(keys) == A.public_key
        assert "/evil" not in issuer.asked


# With a verifier


@walk("kind", [JwtVerifier, IdTokenVerifier])
@walk("other", ["https://idp.example/", "https://idp.example/t", "https://evil.example"])
async def test_the_keys_of_one_issuer_prove_nothing_about_another(kind: type[JwtVerifier], other: str) -> None:
    keys = OpenIdKeys("https://idp.example", Fetcher())
    kind(keys, issuer="https://idp.example", audience="x")
    with pytest.raises(ConfigurationError, match=r"belong to 'https://idp\.example'; make both the same"):
        kind(keys, issuer=other, audience="x")
