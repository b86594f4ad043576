"""Who may read the public card, where not everybody may."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from a2a_trust import CardServing
from a2a_trust.auth.peers import Networks
from a2a_trust.errors import ConfigurationError
from a2a_trust.keys.signer import generate_signer
from a2a_trust.middleware.card import CardReaders
from a2a_trust.middleware.protection import protect
from a2a_trust.servers.uvicorn import H11Protocol, HttpToolsProtocol
from tests.middleware.agent import CALL, CARD, KEY, POOR_KEY, Agent, grouped, uvicorn_serving, verifiers
from tests.middleware.test_protection import GOOD, PATHS, application, ask
from tests.peers import with_peer
from tests.tables import walk


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


INNER = Networks("10.0.0.0/8", "fd00::/8")


def guarded(readers: Any, **options: Any) -> Any:
    return protect(application(), card=CARD, verifiers=verifiers(), **grouped({"readers": readers, **options}))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_card_for_callers_needs_what_a_call_needs(path: str, method: str) -> None:
    app = guarded(CardReaders.CALLERS)
    without = ask(app, method, path)
    assert without.status_code == 401
    assert without.headers.get_list("www-authenticate") == [
        'ApiKey in="header", name="X-API-Key"',
        'Bearer scope="read"',
    ]
    assert ask(app, method, path, headers={"X-API-Key": POOR_KEY}).status_code == 403
    known = ask(app, method, path, headers=GOOD)
    assert known.status_code == 200
    assert known.headers["cache-control"] == "private, no-cache"
    assert "access-control-allow-origin" not in known.headers
    again = ask(app, method, path, headers={**GOOD, "If-None-Match": known.headers["etag"]})
    assert (again.status_code, again.headers["cache-control"]) == (304, "private, no-cache")
    assert ask(app, method, path, headers={"If-None-Match": known.headers["etag"]}).status_code == 401


def test_it_is_the_card_that_is_enforced_and_not_the_application_s() -> None:
    app = guarded(CardReaders.CALLERS, signer=generate_signer())
    card = ask(app, "GET", PATHS[0], headers=GOOD).json()
    assert card.pop("signatures")
    assert card == CARD


def test_pages_of_others_do_not_read_a_card_for_callers() -> None:
    preflight = {"Origin": "https://page.example", "Access-Control-Request-Method": "GET"}
    app = guarded(CardReaders.CALLERS)
    assert ask(app, "OPTIONS", PATHS[0], headers=preflight).status_code == 401
    from_inside = with_peer(guarded(INNER), "10.0.0.1")
    answer = ask(from_inside, "OPTIONS", PATHS[0], headers=preflight)
    assert "access-control-allow-origin" not in answer.headers
    assert "access-control-allow-origin" not in ask(from_inside, "GET", PATHS[0]).headers


def test_key_set_and_metadata_stay_public() -> None:
    for readers in (CardReaders.CALLERS, INNER):
        app = guarded(readers, url="https://agent.example", signer=generate_signer())
        for path in ("/.well-known/jwks.json", "/.well-known/oauth-protected-resource"):
            assert ask(app, "GET", path).status_code == 200
        assert ask(app, "POST", "/rpc").status_code == 401


@walk(
    ("peer", "status"),
    [
        ("10.0.0.1", 200),
        ("10.255.255.255", 200),
        ("::ffff:10.0.0.1", 200),
        ("fd00::1", 200),
        ("fd00::1%eth0", 200),
        ("11.0.0.1", 403),
        ("127.0.0.1", 403),
        ("::1", 403),
        ("::10.0.0.1", 403),
        ("2001:db8::1", 403),
        (None, 403),
    ],
)
def test_a_card_for_networks_is_for_peers_in_them(peer: str | None, status: int) -> None:
    answer = ask(with_peer(guarded(INNER), peer), "GET", PATHS[0])
    assert answer.status_code == status
    assert answer.headers["cache-control"] == ("private, no-cache" if status == 200 else "no-store")
    assert bool(answer.content) == (status == 200)


def test_a_peer_in_them_still_needs_a_credential_to_call() -> None:
    app = with_peer(guarded(INNER), "10.0.0.1")
    assert ask(app, "POST", "/rpc").status_code == 401
    assert ask(app, "POST", "/rpc", headers={"X-API-Key": KEY}).status_code == 200


def test_a_credential_does_not_stand_for_an_address() -> None:
    assert ask(with_peer(guarded(INNER), "192.0.2.1"), "GET", PATHS[0], headers=GOOD).status_code == 403


def test_without_a_server_that_proves_the_peer_nobody_reads_it(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "a2a_trust.audit"):
        assert ask(guarded(Networks("0.0.0.0/0", "::/0")), "GET", PATHS[0]).status_code == 403
    assert "uvicorn --http a2a_trust.servers.uvicorn:HttpToolsProtocol" in caplog.text


@walk("ranges", [(), ("10.0.0.1/8",), ("10/8",), ("localhost",), ("10.0.0.0/8,11.0.0.0/8",)])
def test_ranges_that_mean_something_else_do_not_start(ranges: tuple[str, ...]) -> None:
    with pytest.raises(ConfigurationError, match=r"10\.0\.0\.0/8"):
        Networks(*ranges)


@pytest.mark.parametrize("readers", [CardReaders.CALLERS, INNER])
@pytest.mark.parametrize("path", PATHS)
def test_a_public_path_is_no_second_opinion(readers: Any, path: str) -> None:
    with pytest.raises(ConfigurationError, match=r"CardServing\(readers=…\)"):
        guarded(readers, public_paths=[path])


@pytest.mark.anyio
@pytest.mark.parametrize("protocol", [H11Protocol, HttpToolsProtocol])
async def test_uvicorn_proves_the_socket_s_peer(protocol: Any) -> None:
    app = protect(Agent(), card=CARD, verifiers=verifiers(), serving=CardServing(readers=Networks("127.0.0.0/8")))
    async with uvicorn_serving(app, protocol) as origin, httpx.AsyncClient() as http:
        card = await http.get(f"{origin}{PATHS[0]}")
        assert (card.status_code, card.json()) == (200, CARD)
        called = await http.post(f"{origin}/rpc", json=CALL, headers={"X-API-Key": KEY})
        assert called.json()["user"] == "ann@api-keys"


@walk("readers", [CardReaders, Networks, "10.0.0.0/8", None, True, "callers"])
def test_a_slip_of_the_pen_does_not_make_the_card_public(readers: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"write CardReaders\.CALLERS or Networks"):
        guarded(readers)
