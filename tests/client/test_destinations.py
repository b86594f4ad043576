"""Which URLs a request may go to: how they are compared, what a card names, and what the program adds."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import httpx
import pytest

from a2a_trust import (
    ConfigurationError,
    MalformedError,
    TrustedKey,
    TrustStore,
    VerifyingTransport,
    verify_card,
)
from a2a_trust.base.net.urls import NO_MESH, HttpWithin
from a2a_trust.card.view import read_card
from a2a_trust.client import UnsafePassAnything, UnverifiedCardError
from a2a_trust.client.destinations import Destination, Destinations, check_plain, named_origins
from a2a_trust.keys import UnsafeAnyOrigin
from a2a_trust.signing.verify import VerifiedCard
from tests.client.agents import NEW, OLD, OWNER, card_of, signed, trusting
from tests.tables import walk

AGENT = "https://agent.test"


def location(url: str) -> Destination:
    return Destination.of(url)


# --- one spelling --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "same"),
    [
        ("https://Agent.TEST:443", "https://agent.test/"),
        ("HTTPS://agent.test/a%7Eb/%c3%a9", "https://agent.test/a~b/%C3%A9/"),
        ("https://agent.test/rpc?x#y", "https://agent.test/rpc/?x"),
        ("https://agent.test/a;b=../c%3bd/...;/50%25/%2541", "https://agent.test/a;b=../c%3Bd/...;/50%25/%2541/"),
        ("http://127.0.0.1:80/rpc", "http://127.0.0.1/rpc"),
        ("http://[::1]/rpc", "http://[::1]:80/rpc"),
        ("http://localhost:8000", "http://LOCALHOST:8000"),
    ],
)
def test_two_spellings_of_one_url_are_one_location(url: str, same: str) -> None:
    assert location(url) == location(same)


@walk(
    "url",
    [
        "http://agent.test/rpc",
        "http://localhost.evil.test/rpc",
        "http://127.1/rpc",
        "http://169.254.169.254/rpc",
        "ftp://agent.test/rpc",
        "agent.test:443",
        "/rpc",
        "https://ann@agent.test/rpc",
        "https://agent.test./rpc",
        "https://agent.test:99999/rpc",
        "https://agent.test//rpc",
        "https://agent.test/rpc//",
        "https://agent.test/rpc/..",
        "https://agent.test/./rpc",
        "https://agent.test/%2E%2e/rpc",
        "https://agent.test/rpc%2Fx",
        "https://agent.test/rpc%5cx",
        "https://agent.test/rpc%00",
        "[1::2::3]:443",
        "https://[1::2::3]/rpc",
        "https://[evil/rpc",
        "https://agent.test/rpc/..;",
        "https://agent.test/.;a=b/rpc",
        "https://agent.test/;a=b/rpc",
        "https://agent.test/%2e.%3B/rpc",
        "https://agent.test/%252E%252e/rpc",
        "https://agent.test/rpc%2525252fx",
        "https://agent.test/rpc%255Cx",
        "https://agent.test/rpc%2500",
        "https://agent.test/rpc%253bx",
    ],
)
def test_a_url_with_two_readings_or_in_clear_is_no_location(url: str) -> None:
    with pytest.raises(MalformedError):
        location(url)


@pytest.mark.parametrize(
    ("url", "base", "added"),
    [
        ("/rpc", "/rpc", ""),
        ("/rpc/x/y", "/rpc", "/x/y"),
        ("/rpcx", "/rpc", None),
        ("/rp", "/rpc", None),
        ("/x", "", "/x"),
        ("/rpc?a=1&b=2", "/rpc?a=1", ""),
        ("/rpc?a=1", "/rpc?a=1", ""),
        ("/rpc?a=12", "/rpc?a=1", None),
        ("/rpc", "/rpc?a=1", None),
        ("/rpc?a=1", "/rpc", ""),
    ],
)
def test_a_path_is_below_another_on_a_segment_boundary(url: str, base: str, added: str | None) -> None:
    assert location(AGENT + url).below(location(AGENT + base)) == added
    assert location("https://other.test" + url).below(location(AGENT + base)) is None


@pytest.mark.parametrize(
    ("path", "folders"),
    [
        ("", [""]),
        ("/a/b", ["/a/b", "/a", ""]),
        ("/a/b/c/d", ["/a/b/c/d", "/a/b/c", "/a/b", ""]),
        ("/rest/bank/tasks/1/pushNotificationConfigs/2", ["/rest/bank", "/rest", ""]),
        ("/rest/v1/message:send", ["/rest", ""]),
        ("/rest/v1/card", ["/rest", ""]),
    ],
)
def test_the_card_is_searched_from_the_base_of_the_interface_upwards(path: str, folders: list[str]) -> None:
    assert location(AGENT + path).card_urls() == [AGENT + folder + name for folder in folders for name in (NEW, OLD)]


# --- what a card names ---------------------------------------------------------------------------------------------


def named_by(card: dict[str, Any], path: str = NEW) -> Destinations:
    verified = verify_card(signed(card), trusting("agent.test"), origin=AGENT, now=time.time())
    return Destinations.of(read_card(verified.card), AGENT + path)


def covered(destinations: Destinations, paths: Iterable[str]) -> list[str]:
    return [path for path in paths if destinations.cover(location(AGENT + path))]


OPERATIONS = [
    "/message:send",
    "/message:stream",
    "/tasks",
    "/tasks/1",
    "/tasks/1:cancel",
    "/tasks/1:subscribe",
    "/tasks/1/pushNotificationConfigs",
    "/tasks/1/pushNotificationConfigs/2",
    "/extendedAgentCard",
]
LEGACY_CARDS = ["/agent/authenticatedExtendedCard", "/a2a/agent/authenticatedExtendedCard"]


def test_a_card_of_1_0_names_its_urls_and_the_operations_below_its_base() -> None:
    named = ["/rpc", *[f"/rest{before}{each}" for before in ("", "/bank", "/v1") for each in OPERATIONS]]
    others = [NEW, OLD, "/", "/rest", "/rpc/message:send", "/rest/a/b/message:send", "/rest/tasks/1/2", *LEGACY_CARDS]
    assert covered(named_by(card_of(AGENT)), [*named, *others]) == named


def test_a_card_before_1_0_also_names_the_paths_of_its_extended_card() -> None:
    card = card_of(AGENT, url=f"{AGENT}/a2a/rpc", protocolVersion="0.2.6", preferredTransport="JSONRPC")
    del card["supportedInterfaces"]
    named = ["/a2a/rpc", "/a2a/rpc/agent/authenticatedExtendedCard", *LEGACY_CARDS]
    assert covered(named_by(card), [*named, NEW, "/a2a", "/a2a/rpc/v1/message:send", "/agent"]) == named


def test_a_card_of_0_1_names_its_url_and_the_first_paths_below_it() -> None:
    card = {"name": "a", "url": f"{AGENT}/a", "version": "1", "authentication": {"schemes": ["apiKey"]}, "skills": []}
    named = named_by(card)
    paths = ["/a", "/a/tasks/send", "/a/tasks/sendSubscribe", "/a/tasks/7"]
    assert (
        covered(named, [*paths, "/a/tasks", "/a/tasks/7/8", "/tasks/send", "/a/message:send", "/a/t/tasks/send"])
        == paths
    )
    plain = {name: value for name, value in card.items() if name != "authentication"}
    assert covered(named_by(plain), paths) == ["/a"]
    assert covered(named_by({**plain, "protocolVersion": "0.1"}), paths) == paths


def test_what_is_beside_a_copy_of_a_card_is_not_of_its_agent() -> None:
    card = card_of(AGENT, url=f"{AGENT}/a2a/rpc", protocolVersion="0.2.6")
    del card["supportedInterfaces"]
    for folder, expected in (("/a2a", True), ("", True), ("/evil", False), ("/a2", False)):
        path = f"{folder}/agent/authenticatedExtendedCard"
        assert (covered(named_by(card, f"{folder}{NEW}"), [path]) == [path]) is expected, folder


def test_an_interface_in_clear_or_without_a_scheme_names_nothing() -> None:
    interfaces = [
        {"url": url, "protocolBinding": binding, "protocolVersion": "1.0"}
        for url, binding in (("http://agent.test/rpc", "JSONRPC"), ("agent.test:443", "GRPC"))
    ]
    assert named_by(card_of(AGENT, supportedInterfaces=interfaces)).named == ()


# --- what the program adds -----------------------------------------------------------------------------------------


class CountingTrust:
    """A source of trust that counts how often it is asked."""

    def __init__(self, store: TrustStore) -> None:
        self.store = store
        self.asked = 0

    def trust_store(self) -> TrustStore:
        self.asked += 1
        return self.store


class Server(httpx.BaseTransport):
    """Every host at once; it has the card and says yes to everything else."""

    def __init__(self, card: bytes | None = None) -> None:
        self.card = card
        self.urls: list[str] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.urls.append(str(request.url))
        if "/.well-known/" in request.url.path:
            return httpx.Response(404 if self.card is None else 200, content=self.card or b"")
        return httpx.Response(200)


def passes(also: Any, *urls: str) -> list[str]:
    """Those URLs to which a request is sent."""
    server, sent = Server(), []
    with httpx.Client(transport=VerifyingTransport(server, trusting("agent.test"), also=also)) as http:
        for url in urls:
            try:
                http.post(url, headers={"X-API-Key": "secret"})
            except UnverifiedCardError:
                assert url not in server.urls
            else:
                sent.append(url)
    return sent


def test_an_origin_in_also_is_all_of_it_and_no_other() -> None:
    idp = "https://idp.test"
    good = [f"{idp}/", f"{idp}/token?a=b", f"{idp}/a//b/..%2fc", "https://IDP.test:443/x"]
    wrong = ["https://idp.test.evil.test/", "http://idp.test/", "https://idp.test:444/", "https://a.idp.test/"]
    assert passes([idp], *good, *wrong) == good
    assert passes([f"{idp}/"], *good, *wrong) == good
    assert passes(UnsafePassAnything(), *good, *wrong) == [*good, *wrong]
    assert passes((), *good, *wrong) == []


def test_a_url_in_also_is_what_is_below_it_on_a_segment_boundary() -> None:
    token = "https://idp.test/oauth/token"
    wrong = [f"{token}s", f"{token}/%2e%2e/admin", "https://idp.test/oauth", f"{token}//x", "https://idp.test/"]
    assert passes([token], token, f"{token}/x?y", *wrong) == [token, f"{token}/x?y"]


@pytest.mark.parametrize("also", ["https://idp.test", ["https://idp.test?x"], ["https://idp.test#x"], [1], ["*"]])
def test_what_also_cannot_be_is_refused_at_the_start(also: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^also: "):
        VerifyingTransport(Server(), trusting("agent.test"), also=also)


def test_nothing_goes_in_clear_to_another_machine_whatever_a_card_names() -> None:
    card = card_of("http://agent.test")
    server = Server(signed(card))
    with httpx.Client(transport=VerifyingTransport(server, trusting("agent.test"))) as http:
        assert http.get(AGENT + NEW).status_code == 200
        for url in ("http://agent.test/rpc", "http://agent.test" + NEW):
            with pytest.raises(UnverifiedCardError, match="neither https, nor http to this machine"):
                http.post(url)
    assert server.urls == [AGENT + NEW]


# --- what is remembered --------------------------------------------------------------------------------------------


def test_the_longest_interface_in_cards_says_where_the_card_is() -> None:
    server = Server(signed(card_of(AGENT)))
    cards = {AGENT: "https://a.test/.well-known/agent.json", f"{AGENT}/rest": f"{AGENT}{NEW}?id=1"}
    with httpx.Client(transport=VerifyingTransport(server, trusting("agent.test"), cards=cards)) as http:
        assert http.post(f"{AGENT}/rest/message:send").status_code == 200
        assert http.get(f"{AGENT}{NEW}?id=1").status_code == 200
        with pytest.raises(UnverifiedCardError):
            http.get(f"{AGENT}{NEW}?id=2")
    assert server.urls == [f"{AGENT}{NEW}?id=1", f"{AGENT}/rest/message:send", f"{AGENT}{NEW}?id=1"]


@pytest.mark.parametrize(("description", "fetched"), [("Books invoices.", 1), ("x" * 65_536, 2)])
def test_a_card_is_verified_again_every_five_minutes_and_fetched_again_when_it_is_long(
    description: str, fetched: int
) -> None:
    now, server = [time.time()], Server(signed(card_of(AGENT, description=description)))
    trust = CountingTrust(trusting("agent.test"))
    with httpx.Client(transport=VerifyingTransport(server, trust, clock=lambda: now[0])) as http:
        for step, is_verified in ((0, True), (299, False), (2, True)):
            now[0] += step
            trust.asked = 0
            assert http.post(f"{AGENT}/rpc").status_code == 200
            assert (trust.asked > 1) is is_verified
    assert len([url for url in server.urls if url.endswith(NEW)]) == fetched


def test_a_key_that_is_revoked_while_its_card_is_verified_permits_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen here: the keys that were trusted after the verification were taken for those that had verified."""
    trust = CountingTrust(trusting("agent.test"))

    def verify_meanwhile(*args: Any, **options: Any) -> VerifiedCard:
        verified = verify_card(*args, **options)
        trust.store = TrustStore([])
        return verified

    monkeypatch.setattr("a2a_trust.client.verification.verify_card", verify_meanwhile)
    server = Server(signed(card_of(AGENT)))
    with httpx.Client(transport=VerifyingTransport(server, trust)) as http, pytest.raises(UnverifiedCardError):
        http.post(f"{AGENT}/rpc")
    assert f"{AGENT}/rpc" not in server.urls


def test_failures_and_cards_are_remembered_of_the_last_ones() -> None:
    with httpx.Client(transport=VerifyingTransport(Server(), trusting("agent.test"))) as http:
        for index in range(300):
            with pytest.raises(UnverifiedCardError):
                http.post(f"https://agent{index}.test/rpc")
        assert len(http._transport._connection._failed) == 256  # type: ignore[attr-defined]
        assert not http._transport._connection._slots._queues  # type: ignore[attr-defined]


def test_a_key_for_every_host_names_only_what_its_card_says() -> None:
    """An operator's ``UnsafeAnyOrigin`` widens who may sign, and not where requests go."""
    key = TrustedKey(key=OWNER.public_key, origins=UnsafeAnyOrigin())
    server = Server(signed(card_of("https://other.test")))
    with httpx.Client(transport=VerifyingTransport(server, TrustStore([key]))) as http:
        with pytest.raises(UnverifiedCardError, match="its card is verified, and does not name it"):
            http.post(f"{AGENT}/rpc")
        assert http.post("https://other.test/rpc").status_code == 200


# --- the origins of a credential -----------------------------------------------------------------------------------


@walk(
    "origin",
    [
        "",
        "agent.example",
        "agent.example:443",
        "//agent.example",
        "https://",
        "https://agent.example/",
        "https://agent.example/a2a",
        "https://agent.example?a",
        "https://agent.example?",
        "https://agent.example#",
        "https://ann@agent.example",
        "https://agent.example:0x1bb",
        "https://*.example.com",
        "https://agent.example\\@evil.example",
        "https://agent example",
        "https://127.1",
        "ftp://agent.example",
        "wss://agent.example",
        "https://münchen.example",
    ],
)
def test_an_origin_is_scheme_host_and_port_alone(origin: str) -> None:
    with pytest.raises(ConfigurationError, match=r"origins: .*write only scheme, host and port"):
        named_origins([origin])


@pytest.mark.parametrize("origins", [[], "https://agent.example", ""])
def test_origins_are_a_list_of_one_or_more(origins: Any) -> None:
    with pytest.raises(ConfigurationError, match="origins: "):
        named_origins(origins)


@pytest.mark.parametrize(
    "origin", ["http://agent", "http://10.0.0.1:8000", "http://[fd12::1]", "http://169.254.169.254"]
)
def test_no_credential_is_for_http_to_an_address_or_a_name_of_one_label(origin: str) -> None:
    with pytest.raises(ConfigurationError, match="http is only for this machine, and for names within a service mesh"):
        named_origins([origin])


@pytest.mark.parametrize(
    "origin", ["http://agent.example", "http://localhost.example", "http://a.svc.cluster.local.evil"]
)
def test_a_credential_for_http_is_for_the_mesh_of_its_client_only(origin: str) -> None:
    origins = named_origins([origin, "http://localhost:8000", "http://a.svc.cluster.local", "https://agent.example"])
    mesh = HttpWithin(["svc.cluster.local"])
    for within in (mesh, NO_MESH):
        with pytest.raises(ConfigurationError, match=r"http is only for this machine.* http_within"):
            check_plain(origins, within)
    check_plain(origins - {origin}, mesh)


@pytest.mark.parametrize(
    "here", ["http://127.0.0.1", "http://127.0.0.2:8000", "http://[::1]:8000", "http://localhost:8000", "https://[::1]"]
)
def test_this_machine_is_known_by_these_names(here: str) -> None:
    assert named_origins([here, here.upper()]) == {here}
