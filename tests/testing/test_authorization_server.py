"""The authorization server of the tests delegates as RFC 8693, RFC 7523 and the draft of ID-JAG say."""

from __future__ import annotations

import time
from typing import Any, Final

import httpx
import pytest

from a2a_trust import Fetcher, JwtVerifier
from a2a_trust.auth import Actor, OAuth2Keys, OpenIdKeys
from a2a_trust.client import ClientSecret, OAuthClient, TokenExchange
from a2a_trust.client.flow import run_async
from a2a_trust.keys import base64url
from a2a_trust.testing import AuthorizationServer
from tests.middleware.agent import uvicorn_serving
from tests.tables import walk

pytestmark = pytest.mark.anyio

PLANNER, RESEARCHER, ARCHIVE = (f"https://{name}.test" for name in ("planner", "researcher", "archive"))
SECRETS: Final = {PLANNER: "p1", RESEARCHER: "r1", ARCHIVE: "a1"}
HOME: Final = AuthorizationServer("https://idp.test/home", clients=SECRETS)
PARTNER: Final = AuthorizationServer("https://partner.test", clients=SECRETS, trusted=HOME)
ALONE: Final = AuthorizationServer("https://alone.test", clients=SECRETS)
TYPE: Final = "urn:ietf:params:oauth:token-type:"
GRANT: Final = "urn:ietf:params:oauth:grant-type:"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def post(server: AuthorizationServer, client: str, form: dict[str, str] | bytes) -> httpx.Response:
    """The answer to a client that authenticates with its secret."""
    async with httpx.AsyncClient(transport=httpx.ASGITransport(server)) as http:
        auth = (client.replace(":", "%3A").replace("/", "%2F"), SECRETS.get(client, "x"))
        content = {"content": form} if isinstance(form, bytes) else {"data": form}
        return await http.post(server.token_endpoint, auth=auth, **content)


def exchange(token: str, **more: str) -> dict[str, str]:
    about = {"grant_type": f"{GRANT}token-exchange", "subject_token": token}
    return {**about, "subject_token_type": f"{TYPE}access_token", **more}


def for_jag(token: str, kind: str = "access_token", **more: str) -> dict[str, str]:
    about = {"subject_token_type": f"{TYPE}{kind}", "requested_token_type": f"{TYPE}id-jag"}
    return exchange(token, **{**about, "audience": PARTNER.url, "resource": ARCHIVE, **more})


async def jag_of(client: str, token: str, **more: Any) -> str:
    text: str = (await post(HOME, client, for_jag(token, **more))).json()["access_token"]
    return text


def redeem(assertion: str, **more: str) -> dict[str, str]:
    return {"grant_type": f"{GRANT}jwt-bearer", "assertion": assertion, **more}


async def test_an_exchanged_token_is_for_the_next_agent_and_names_the_actor() -> None:
    token = HOME.token("ann", audience=PLANNER, scopes=["read", "write"])
    answer = await post(HOME, PLANNER, exchange(token, resource=RESEARCHER, scope="read"))
    said = answer.json()
    new = said.pop("access_token")
    about = {"issued_token_type": f"{TYPE}access_token", "token_type": "Bearer", "scope": "read", "expires_in": 300}
    assert (answer.status_code, answer.headers["cache-control"], said) == (200, "no-store", about)
    identity = await HOME.verifier(RESEARCHER).verify(new, time.time())
    assert (identity.subject, [*identity.scopes], identity.client_id) == ("ann", ["read"], PLANNER)
    assert identity.actors == (Actor(issuer=HOME.url, subject=PLANNER),)
    again = (await post(HOME, RESEARCHER, exchange(new, audience=ARCHIVE))).json()["access_token"]
    identity = await HOME.verifier(ARCHIVE).verify(again, time.time())
    assert [each.subject for each in identity.actors] == [RESEARCHER, PLANNER]
    assert identity.scopes == {"read"}


@walk("kind", ["id_token", "access_token"])
async def test_an_assertion_crosses_to_the_other_server_with_its_actors(kind: str) -> None:
    token = {
        "id_token": HOME.id_token("ann", client=PLANNER, scopes=["read"]),
        "access_token": HOME.token("ann", audience=PLANNER, scopes=["read"]),
    }[kind]
    answer = (await post(HOME, PLANNER, for_jag(token, kind))).json()
    assertion = answer.pop("access_token")
    assert answer == {"issued_token_type": f"{TYPE}id-jag", "token_type": "N_A", "scope": "read", "expires_in": 60}
    assert b'"typ":"oauth-id-jag+jwt"' in base64url.decode(assertion.split(".")[0], "header")
    new = (await post(PARTNER, PLANNER, redeem(assertion))).json()["access_token"]
    identity = await PARTNER.verifier(ARCHIVE).verify(new, time.time())
    assert (identity.issuer, identity.subject, [*identity.scopes]) == (PARTNER.url, "ann", ["read"])
    assert identity.actors == (Actor(issuer=HOME.url, subject=PLANNER),)
    assert identity.client_id == PLANNER


def ann() -> str:
    return HOME.token("ann", audience=PLANNER, scopes=["read"])


@walk(
    ("server", "client", "form", "error"),
    [
        (HOME, PLANNER, lambda: exchange(ann()), "invalid_target"),
        (HOME, PLANNER, lambda: exchange(ann(), audience="https://unknown.test"), "invalid_target"),
        (HOME, PLANNER, lambda: exchange(ann(), resource=RESEARCHER, scope="read admin"), "invalid_scope"),
        (HOME, PLANNER, lambda: for_jag(ann(), scope="admin"), "invalid_scope"),
        (HOME, RESEARCHER, lambda: exchange(ann(), resource=ARCHIVE), "invalid_grant"),
        (HOME, PLANNER, lambda: exchange("junk", resource=ARCHIVE), "invalid_grant"),
        (HOME, PLANNER, lambda: exchange(PARTNER.token(audience=PLANNER), resource=ARCHIVE), "invalid_grant"),
        (HOME, PLANNER, lambda: for_jag(ann(), "id_token"), "invalid_grant"),
        (HOME, PLANNER, lambda: for_jag(HOME.id_token(client=PLANNER)), "invalid_grant"),
        (HOME, PLANNER, lambda: for_jag(HOME.id_token(client=RESEARCHER), "id_token"), "invalid_grant"),
        (HOME, PLANNER, lambda: for_jag(ann(), "saml2"), "invalid_request"),
        (HOME, PLANNER, lambda: redeem("junk"), "unsupported_grant_type"),
        (ALONE, PLANNER, lambda: redeem("junk"), "unsupported_grant_type"),
        (PARTNER, PLANNER, lambda: redeem("junk"), "invalid_grant"),
        (PARTNER, PLANNER, lambda: redeem(ann()), "invalid_grant"),
        (PARTNER, PLANNER, lambda: {"scope": "read"}, "unsupported_grant_type"),
        (PARTNER, PLANNER, lambda: {"grant_type": "password"}, "unsupported_grant_type"),
        (PARTNER, PLANNER, lambda: b"grant_type=a&grant_type=b", "unsupported_grant_type"),
    ],
)
async def test_a_request_that_is_rejected(server: AuthorizationServer, client: str, form: Any, error: str) -> None:
    answer = await post(server, client, form())  # made now: tokens of the table would expire in a long run
    assert (answer.status_code, answer.json()["error"]) == (400, error)
    assert answer.json()["error_description"]


async def test_an_unknown_client_and_another_secret() -> None:
    for client in ("https://unknown.test", "x"):
        answer = await post(HOME, client, exchange(ann(), resource=ARCHIVE))
        assert (answer.status_code, answer.json()["error"]) == (401, "invalid_client")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(HOME)) as http:
        for header, status in (({}, 400), ({"Authorization": "Basic junk"}, 400)):
            posted = await http.post(HOME.token_endpoint, headers=header, data=exchange(ann(), resource=ARCHIVE))
            assert posted.status_code == status


@walk("path", ["", "/tenant"])
async def test_verifiers_and_clients_find_it_on_the_network(path: str) -> None:
    server: Any = None

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await server(scope, receive, send)

    async with uvicorn_serving(app, "h11", lifespan="off") as origin:
        server = AuthorizationServer(f"{origin}{path}", clients=SECRETS)
        fetcher = Fetcher(private_origins=[origin])
        ann = server.token("ann", audience=PLANNER, scopes=["read"])
        for keys in (OAuth2Keys(server.url, fetcher), OpenIdKeys(server.url, fetcher)):
            verifier = JwtVerifier(keys, issuer=server.url, audience=PLANNER)
            assert (await verifier.verify(ann, time.time())).subject == "ann"
        client = OAuthClient(
            issuer=server.url,
            token_endpoint=server.token_endpoint,
            client_id=PLANNER,
            authentication=ClientSecret(SECRETS[PLANNER]),
            fetcher=fetcher,
        )
        on_behalf = TokenExchange(client, ann, origins=[ARCHIVE], allowed_scopes=["read"], resource=ARCHIVE)
        value = await run_async(on_behalf.obtain(frozenset({"read"})))
        assert (await server.verifier(ARCHIVE).verify(value.text, time.time())).actors[0].subject == PLANNER


def test_no_repr_has_a_secret() -> None:
    assert "p1" not in repr(HOME)
