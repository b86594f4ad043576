"""C3: somebody who is not the agent that a credential is for wants it: by a good card of its own, a URL, an old card.

agents-cli #46 sent credentials to every host with the right one in its name. The attacker's agent has a valid
certificate, a card that is verified, and the names of schemes that the caller has credentials for.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import httpx
import pytest

from a2a_trust import Origins, TrustedKey, TrustStore, VerifiedCard, generate_signer, verify_card
from a2a_trust.client import (
    ApiKey,
    BasicCredentials,
    BearerToken,
    CardAuth,
    ClientCredentials,
    CredentialsError,
    RefreshToken,
    TokenExchange,
    verifying_client,
)
from a2a_trust.errors import ConfigurationError
from a2a_trust.keys import SigningTool, UnsafeAnyOrigin
from tests.attacks.calling import (
    KEY,
    PASSWORD,
    TOKEN,
    VICTIM,
    Ask,
    Servers,
    assert_got_nothing,
    card_with,
    key_scheme,
    oauth_scheme,
    tokens,
)
from tests.attacks.forgery import canonical, entry, pruned, served, signs
from tests.client.agents import OWNER, OWNER_TRUSTED, Page, card_of, signed, trusting
from tests.tables import walk

SIGNER: Final = generate_signer("ES256")

#: Credentials by kind, for one origin, and the scheme that each of them answers.
KINDS: Final[dict[str, Callable[[Servers, str], Any]]] = {
    "key in a header": lambda _, origin: ApiKey(KEY, origins=[origin]),
    "key in the query": lambda _, origin: ApiKey(KEY, origins=[origin]),
    "key in a cookie": lambda _, origin: ApiKey(KEY, origins=[origin]),
    "basic": lambda _, origin: BasicCredentials("ann", PASSWORD, origins=[origin]),
    "bearer": lambda _, origin: BearerToken(TOKEN, origins=[origin]),
    "dpop": lambda _, origin: BearerToken(TOKEN, origins=[origin], dpop=SIGNER),
    "client credentials": lambda servers, origin: ClientCredentials(
        servers.client(), origins=[origin], allowed_scopes=[]
    ),
    "refresh token": lambda servers, origin: RefreshToken(
        servers.client(), "secret-refresh", origins=[origin], allowed_scopes=[]
    ),
    "token exchange": lambda servers, origin: TokenExchange(
        servers.client(), "secret-subject", origins=[origin], allowed_scopes=[]
    ),
}


def scheme_for(kind: str, servers: Servers) -> dict[str, Any]:
    if kind.startswith("key"):
        return key_scheme("X-API-Key", kind.split()[-1])
    if kind in ("basic", "bearer", "dpop"):
        return {"httpAuthSecurityScheme": {"scheme": "basic" if kind == "basic" else "bearer"}}
    return oauth_scheme(servers.token_endpoint)


@pytest.fixture(params=[*KINDS])
def kind(request: pytest.FixtureRequest, servers: Servers) -> str:
    issued = "urn:ietf:params:oauth:token-type:access_token"
    servers.login.pages["/token"] = tokens(issued_token_type=issued)
    name: str = request.param
    return name


def credential_of(kind: str, servers: Servers, origin: str) -> Any:
    return KINDS[kind](servers, origin)


def test_control_each_kind_goes_to_its_agent(servers: Servers, asks: Ask, kind: str) -> None:
    card = card_with(servers.origin, {"s": scheme_for(kind, servers)}, {"s": []})
    asks(
        CardAuth(card, {"s": credential_of(kind, servers, servers.origin)}, trust=OWNER_TRUSTED),
        f"{servers.origin}/rpc",
    )
    with pytest.raises(AssertionError):
        assert_got_nothing(servers.agent)


@walk("at", ["another name", "another port"])
def test_a_verified_card_of_the_attackers_own_agent_gets_nothing(
    servers: Servers, asks: Ask, kind: str, at: str
) -> None:
    """It demands the schemes by the names that the caller has credentials for."""
    evil = servers.evil if at == "another name" else servers.thief.origin(VICTIM)
    demanded: dict[str, list[str]] = {"s": []}
    for demands in ([demanded], [demanded, {}]):  # also where the card says that it needs none
        card = card_with(evil, {"s": scheme_for(kind, servers)}, *demands)
        with pytest.raises(CredentialsError, match=r"is for .* and not for"):
            asks(
                CardAuth(card, {"s": credential_of(kind, servers, servers.origin)}, trust=OWNER_TRUSTED), f"{evil}/rpc"
            )
    assert servers.thief.asked == servers.login.asked == []


def test_an_interface_at_another_origin_gets_nothing(servers: Servers, asks: Ask, kind: str) -> None:
    """The card is good, and names the attacker's URLs, for a key that may speak for everybody."""
    urls = [f"{servers.evil}/rpc", f"{servers.thief.origin(VICTIM)}/rpc", f"http://{VICTIM}:{servers.thief.port}/rpc"]
    interfaces = [
        {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"} for url in [f"{servers.origin}/rpc", *urls]
    ]
    trust = TrustStore([TrustedKey(key=OWNER.public_key, origins=UnsafeAnyOrigin())])
    scheme = {"s": scheme_for(kind, servers)}
    document = card_of(
        servers.origin,
        supportedInterfaces=interfaces,
        securitySchemes=scheme,
        securityRequirements=[{"schemes": {"s": {"list": []}}}],
    )
    try:
        card = verify_card(signed(document), trust, origin=UnsafeAnyOrigin())
    except Exception as error:
        raise AssertionError("the attack needs this card") from error
    auth = CardAuth(card, {"s": credential_of(kind, servers, servers.origin)}, trust=OWNER_TRUSTED)
    for url in urls:
        with pytest.raises(CredentialsError, match=r"is for .* and not for"):
            asks(auth, url)
    assert servers.thief.asked == servers.login.asked == []


LOOKALIKES: Final = [
    "https://agent.example.com.evil.test/rpc",
    "https://agent.example.com./rpc",
    "https://agent.example.com.:443/rpc",
    "https://agent.example.com:444/rpc",
    "https://agent.example.com@evil.test/rpc",
    "https://agent.example.com:pw@evil.test/rpc",
    "https://agent.example.com%40evil.test/rpc",
    "https://agent.example.com%2Eevil.test/rpc",
    "https://agent.example.com%00.evil.test/rpc",
    "https://evil.test/agent.example.com/rpc",
    "https://evil.test/rpc?https://agent.example.com/rpc",
    "https://evil.test/rpc#https://agent.example.com/rpc",
    "https://evil.test#@agent.example.com/rpc",
    "https://evil.test\\@agent.example.com/rpc",
    "https://xagent.example.com/rpc",
    "https://agent.example.co/rpc",
    "https://example.com/rpc",
    "https://agent.еxample.com/rpc",  # the first letter is Cyrillic
    "https://agent.example。com/rpc",
    "https://ａgent.example.com/rpc",  # a wide letter, which IDNA makes narrow
    "https://agent.example.com/rpc/x",
    "https://agent.example.com/RPC",
    "https://agent.example.com/rpc;x",
    "https://agent.example.com/rpc%2f..%2fsteal",
    "https://agent.example.com/x/../steal",
    "https://agent.example.com/steal",
    "http://agent.example.com/rpc",
    "http://agent.example.com:443/rpc",
    "ws://agent.example.com/rpc",
    "wss://agent.example.com/rpc",
]


class Recorder(httpx.BaseTransport):
    """The network of the next test, where no name exists: what it gets is what would go out."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.sent.append(
            f"{request.url.scheme} {request.url.netloc!r} {request.url.raw_path!r} {request.headers.raw!r}"
        )
        return httpx.Response(200, json={})


def with_all_keys(origin: str) -> CardAuth:
    schemes = {where: key_scheme("key", where) for where in ("header", "query", "cookie")}
    card = card_with(origin, schemes, {name: [] for name in schemes})
    return CardAuth(card, {name: ApiKey(KEY, origins=[origin]) for name in schemes}, trust=OWNER_TRUSTED)


@walk("url", LOOKALIKES, ids=ascii)
def test_a_url_that_looks_like_the_right_one_gets_nothing(url: str) -> None:
    network = Recorder()
    auth = with_all_keys("https://agent.example.com")
    with httpx.Client(transport=network, auth=auth) as http:
        http.post("https://agent.example.com/rpc", json={})
        [control] = network.sent
        assert control.count(KEY) == 3
        network.sent.clear()
        with suppress(CredentialsError, httpx.InvalidURL):
            http.post(url, json={})
    # Some are the right URL as httpx reads them, and then it is the right one that they are sent to.
    right = f"https b'agent.example.com' b'/rpc?key={KEY}' "
    assert [each for each in network.sent if KEY in each and not each.startswith(right)] == []


def test_another_target_does_not_lead_the_key_away(servers: Servers) -> None:
    auth = with_all_keys(servers.origin)
    with httpx.Client(auth=auth, verify=servers.authority.client()) as http:
        http.post(f"{servers.origin}/rpc", json={})
        with pytest.raises(CredentialsError, match="the extension target"):
            http.post(f"{servers.origin}/rpc", json={}, extensions={"target": b"/steal"})
    assert servers.agent.paths() == [f"/rpc?key={KEY}"]


@walk(
    "origin",
    [
        *("https://agent.example.com/", "https://agent.example.com/rpc", "agent.example.com", "http://agent"),
        *("https://*.example.com", "https://ann@agent.example.com", "https://agent.example.com?x", "*", "", "https://"),
        *("https://agent.example.com#", "https://agent.example.com.", "https://agént.example.com", "ftp://a.example"),
        *("http://192.0.2.1", "http://[2001:db8::1]", "http://10.0.0.1", "https://a.example:0"),
        *("https://a.example https://b.example", "https://a.example\n", "null", None, b"https://a.example"),
    ],
    ids=ascii,
)
def test_a_credential_is_bound_to_nothing_that_is_no_origin(servers: Servers, origin: Any) -> None:
    for kind in KINDS:
        with pytest.raises(ConfigurationError):
            credential_of(kind, servers, origin)


@pytest.mark.parametrize(
    "origin", ["http://agent.example.com", "http://127.0.0.1.evil.test", "http://localhost.evil.test"]
)
def test_a_credential_for_plain_http_to_another_machine_makes_no_client(servers: Servers, origin: str) -> None:
    """Only a client that checks the addresses of a service mesh takes one, and only for names of that mesh."""
    card = card_with(origin, {"s": key_scheme()}, {"s": []})
    for kind in KINDS:
        credentials = {"s": credential_of(kind, servers, origin)}
        with pytest.raises(ConfigurationError, match="http is only for this machine"):
            CardAuth(card, credentials, trust=OWNER_TRUSTED)
        for mesh in ((), ["svc.cluster.local"]):
            with pytest.raises(ConfigurationError, match="http is only for this machine"):
                verifying_client(origin, trust=trusting(VICTIM), credentials=credentials, http_within=mesh)


def test_a_card_that_was_verified_for_no_host_leads_nowhere_else(servers: Servers, asks: Ask) -> None:
    evil_card = card_with(servers.evil, {"s": key_scheme()}, {"s": []})
    auth = CardAuth(
        evil_card, {"s": ApiKey(KEY, origins=[servers.origin, "https://other.example"])}, trust=OWNER_TRUSTED
    )
    with pytest.raises(CredentialsError):
        asks(auth, f"{servers.evil}/rpc")
    asks(auth, f"{servers.origin}/rpc")  # a URL that this card does not name gets the request without the key
    assert_got_nothing(servers.agent)
    assert servers.thief.asked == []


# Cards that seem to need nothing


SIGNED_IN_PART: Final = TrustStore(
    [TrustedKey(key=OWNER.public_key, origins=Origins(VICTIM), signer=SigningTool.A2A_PYTHON)]
)


def partial(servers: Servers, **members: Any) -> VerifiedCard:
    """A card that an SDK signed in a form that drops what is empty, stripped by the attacker of all that it drops."""
    card = pruned(card_of(servers.origin, securitySchemes={"s": key_scheme()}, **members))
    protected = {"alg": "ES256", "kid": "owner", "typ": "JOSE"}
    document = served(card, entry(protected, canonical(card), signs(OWNER.private_key, "ES256")))
    result = verify_card(document, SIGNED_IN_PART, origin=servers.origin)
    assert result.unverified
    return result


@pytest.mark.parametrize("credentials", [{}, {"other": KEY}], ids=["none", "another"])
def test_a_card_that_is_verified_in_part_never_says_that_nothing_is_needed(
    servers: Servers, asks: Ask, credentials: dict[str, str]
) -> None:
    """Its requirement is ``{"schemes": {"s": {}}}``, which that form drops."""
    card = partial(servers, securityRequirements=[{"schemes": {"s": {}}}])
    assert "securityRequirements" not in card.card
    auth = CardAuth(
        card, {name: ApiKey(key, origins=[servers.origin]) for name, key in credentials.items()}, trust=SIGNED_IN_PART
    )
    with pytest.raises(CredentialsError, match="verified only in part"):
        asks(auth, f"{servers.origin}/rpc")
    assert servers.agent.asked == []


def test_a_card_that_is_verified_in_part_is_answered_where_it_does_demand(servers: Servers, asks: Ask) -> None:
    card = partial(servers, securityRequirements=[{"schemes": {"s": {"list": ["x"]}}}])
    with pytest.raises(CredentialsError, match="pass credentials="):
        asks(CardAuth(card, {}, trust=SIGNED_IN_PART), f"{servers.origin}/rpc")
    asks(CardAuth(card, {"s": ApiKey(KEY, origins=[servers.origin])}, trust=SIGNED_IN_PART), f"{servers.origin}/rpc")
    assert [asked.headers["x-api-key"] for asked in servers.agent.asked] == [KEY]


@pytest.mark.parametrize("order", [1, -1], ids=["first", "last"])
def test_an_open_alternative_does_not_stand_in_for_a_configured_one(servers: Servers, asks: Ask, order: int) -> None:
    """``{}`` beside: a card whose owner was led to add it must not make callers anonymous."""
    demanded: list[dict[str, list[str]]] = [{"s": []}, {}]
    demands = demanded[::order]
    card = card_with(servers.origin, {"s": key_scheme(), "t": key_scheme("X-Other")}, *demands)
    asks(CardAuth(card, {"s": ApiKey(KEY, origins=[servers.origin])}, trust=OWNER_TRUSTED), f"{servers.origin}/rpc")
    assert servers.agent.asked.pop().headers["x-api-key"] == KEY
    for unfit in (BearerToken(TOKEN, origins=[servers.origin]), ApiKey(KEY, origins=["https://other.example"])):
        with pytest.raises(CredentialsError):
            asks(CardAuth(card, {"s": unfit}, trust=OWNER_TRUSTED), f"{servers.origin}/rpc")
    assert servers.agent.asked == []
    with pytest.raises(CredentialsError, match=r"credentials\['S'\] is not for a scheme of the card"):
        asks(CardAuth(card, {"S": ApiKey(KEY, origins=[servers.origin])}, trust=OWNER_TRUSTED), f"{servers.origin}/rpc")
    assert servers.agent.asked == []
    asks(
        CardAuth(card, {"t": ApiKey(KEY, origins=[servers.origin])}, trust=OWNER_TRUSTED), f"{servers.origin}/rpc"
    )  # control
    assert len(servers.agent.asked) == 1
    assert_got_nothing(servers.agent)


def test_half_of_an_alternative_is_not_sent(servers: Servers, asks: Ask) -> None:
    schemes = {"s": key_scheme(), "t": {"httpAuthSecurityScheme": {"scheme": "bearer"}}}
    card = card_with(servers.origin, schemes, {"s": [], "t": []}, {"missing": [], "s": []})
    for credentials in (
        {"s": ApiKey(KEY, origins=[servers.origin])},
        {"s": ApiKey(KEY, origins=[servers.origin]), "t": BearerToken(TOKEN, origins=["https://other.example"])},
        {"s": ApiKey(KEY, origins=[servers.origin]), "missing": ApiKey(KEY, origins=[servers.origin])},
    ):
        with pytest.raises(CredentialsError):
            asks(CardAuth(card, credentials, trust=OWNER_TRUSTED), f"{servers.origin}/rpc")
    assert servers.agent.asked == []


def test_a_card_that_has_expired_is_not_answered(servers: Servers, asks: Ask) -> None:
    now = time.time()
    until = TrustedKey(key=OWNER.public_key, origins=Origins(VICTIM), not_after=now + 100)
    document = signed(card_of(servers.origin, securitySchemes={"s": key_scheme()}))
    trust = TrustStore([until])
    card = verify_card(document, trust, origin=servers.origin)
    assert json.loads(document)["securityRequirements"]
    clock = [now]
    auth = CardAuth(card, {"key": ApiKey(KEY, origins=[servers.origin])}, trust=trust, clock=lambda: clock[0])
    clock[0] = card.valid_until
    with pytest.raises(CredentialsError, match="expired"):
        asks(auth, f"{servers.origin}/rpc")
    assert servers.agent.asked == []


def test_an_answer_of_the_agent_at_another_name_teaches_no_nonce(servers: Servers, asks: Ask) -> None:
    card = card_with(servers.origin, {"s": scheme_for("dpop", servers)}, {"s": []})
    auth = CardAuth(card, {"s": credential_of("dpop", servers, servers.origin)}, trust=OWNER_TRUSTED)
    servers.thief.pages["/rpc"] = Page(status=401, headers={"DPoP-Nonce": "n", "WWW-Authenticate": "DPoP"})
    assert asks(auth, f"{servers.evil}/rpc").status_code == 401
    assert_got_nothing(servers.thief)
