"""C4: whoever names a URL of a card makes the client ask its own machine, its network, its cloud or its disk.

Seen in adk-js (issue 832). It is T8 for cards: the same fetcher, in front of both well-known names, the extended card
and the key set of an origin.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator

import pytest

from a2a_trust import (
    ConfigurationError,
    Fetcher,
    FetchError,
    Origins,
    TrustedKey,
    TrustStore,
    async_fetch_card,
    fetch_card,
    verify_card,
)
from a2a_trust.auth import OAuth2Keys, OpenIdKeys
from a2a_trust.client import UnsafeReportOnly, async_fetch_extended_card, fetch_extended_card
from a2a_trust.client.memory import VolatileCardMemory
from a2a_trust.client.verification import FetchOptions, TrustOnFirstUse
from a2a_trust.errors import KeySourceUnavailableError, MalformedError, UntrustedCardError
from a2a_trust.keys import UnsafeAnyOrigin
from tests.attacks.recording import events_outside
from tests.attacks.test_t08_fetches_of_inner_addresses import INNER
from tests.base.net.test_fetcher import Authority, Names
from tests.client.agents import NEW, OLD, OWNER, Agent, Asked, Page, card_of, serving_agent, signed, trusting
from tests.tables import walk

HOST = "agent.test"
METADATA = "169.254.169.254"
KEY = {"X-API-Key": "a secret"}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def agent(authority: Authority) -> Iterator[Agent]:
    with serving_agent(authority.server(HOST, "other.test")) as running:
        yield running


def fetcher_for(agent: Agent, authority: Authority, **names: list[list[str]]) -> Fetcher:
    resolver = Names(**{"agent_test": [["127.0.0.1"]], "other_test": [["127.0.0.1"]], **names})
    origins = [agent.origin(HOST), agent.origin("other.test")]
    return Fetcher(private_origins=origins, ssl_context=authority.client(), resolver=resolver, timeout=5.0)


# --- where it may not ask ------------------------------------------------------------------------------------------


@pytest.mark.anyio
@walk("address", INNER)
async def test_a_name_with_an_inner_address_is_not_asked_for_its_card(address: str) -> None:
    for addresses in ([address], ["8.8.8.8", address]):
        fetcher = Fetcher(resolver=Names(evil_example=[addresses]))
        with events_outside() as events:
            with pytest.raises(FetchError, match="not a public one"):
                await async_fetch_card(
                    "https://evil.example", trusting("evil.example"), options=FetchOptions(fetcher=fetcher)
                )
            with pytest.raises(FetchError, match="not a public one"):
                await UnsafeReportOnly.async_fetch(
                    "https://evil.example", trusting("evil.example"), options=FetchOptions(fetcher=fetcher)
                )
        assert [event for event in events if event.startswith("socket.")] == []


@pytest.mark.anyio
@walk("host", [METADATA, "127.0.0.1", "[::1]", "[fd00:ec2::254]", "10.0.0.1", "[::ffff:127.0.0.1]"])
async def test_an_inner_address_is_not_asked_for_its_card(host: str) -> None:
    for url in (f"https://{host}", f"https://{host}:8443/team", f"https://{host}/latest/meta-data.json"):
        with events_outside() as events, pytest.raises(FetchError, match="not a public one"):
            await async_fetch_card(url, trusting("evil.example"))
        assert [event for event in events if event.startswith("socket.")] == []


@pytest.mark.anyio
@walk(
    "url",
    [
        "file:///etc/passwd", "file:///etc/cards/agent.json", "file://agent.test/agent.json",
        "data:application/json,{}", "ftp://agent.test/agent.json", "gopher://agent.test/agent.json", "jar:https://agent.test/agent.json",
        "unix:///var/run/docker.sock", "ws://agent.test", "javascript:alert(1)", "//agent.test", "agent.test", "",
        "/etc/passwd", "https:agent.test", "https://agent.test@127.0.0.1", "https://127.0.0.1\\@agent.test",
        "https://2130706433", "https://0x7f000001", "https://127.1", "https://agent.test\r\nX: y", "https://[::1%25lo]",
        "https://agent.test:0", "https://", "https:///agent.json",
    ],
)  # fmt: skip
async def test_a_url_of_another_kind_is_refused_before_anything_happens(url: str) -> None:
    names = Names(agent_test=[["8.8.8.8"]])
    with events_outside() as events, pytest.raises(FetchError, match=r"^URL: "):
        await async_fetch_card(url, trusting(HOST), options=FetchOptions(fetcher=Fetcher(resolver=names)))
    assert (events, names.asked) == ([], [])


@pytest.mark.anyio
async def test_plain_http_is_refused_also_where_the_agent_redirects_to_https(authority: Authority) -> None:
    with serving_agent(None) as plain:
        plain.pages[NEW] = signed(card_of(f"http://{HOST}:{plain.port}"))
        names = Names(agent_test=[["127.0.0.1"]])
        with pytest.raises(FetchError, match="only https"):
            await async_fetch_card(
                f"http://{HOST}:{plain.port}", trusting(HOST), options=FetchOptions(fetcher=Fetcher(resolver=names))
            )
        assert (plain.asked, names.asked) == ([], [])


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("to", [f"http://{METADATA}/latest/meta-data", "file:///etc/passwd", "{origin}/inner.json"])
def test_an_agent_redirects_to_somewhere_inside(agent: Agent, authority: Authority, status: int, to: str) -> None:
    agent.pages = {
        NEW: Page(status=status, headers={"Location": to.format(origin=agent.origin("other.test"))}),
        "/inner.json": signed(card_of(agent.origin())),
    }
    with pytest.raises(FetchError, match="redirects") as caught:
        fetch_card(agent.origin(), trusting(HOST), options=FetchOptions(fetcher=fetcher_for(agent, authority)))
    assert caught.value.status == status
    assert agent.paths() == [NEW]


def test_no_url_inside_a_card_is_asked(agent: Agent, authority: Authority) -> None:
    """Its key set, its interfaces, its logins and its pictures are words until somebody decides to go there."""
    origin = agent.origin()
    card = card_of(origin, iconUrl=f"{origin}/icon", documentationUrl=f"{origin}/docs")
    document = json.loads(signed(card))
    header = {"jku": f"{origin}/keys", "jwk": {}, "x5u": f"{origin}/x5u"}
    document["signatures"].append({**document["signatures"][0], "header": header})
    agent.pages[NEW] = json.dumps(document).encode()
    with events_outside():
        fetch_card(origin, trusting(HOST), options=FetchOptions(fetcher=fetcher_for(agent, authority)))
    with pytest.raises(UntrustedCardError):
        fetch_card(origin, trusting("other.test"), options=FetchOptions(fetcher=fetcher_for(agent, authority)))
    assert agent.paths() == [NEW, NEW]


# --- where it has asked --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("waits", [True, False])
def test_a_name_that_changes_after_the_check_is_reached_where_it_was_checked(
    agent: Agent, authority: Authority, waits: bool
) -> None:
    """DNS rebinding: the first answer is harmless, every later one leads to the victim, who has the certificate too."""
    agent.pages[NEW] = signed(card_of(agent.origin()))
    with serving_agent(authority.server(HOST), address="127.0.0.2", port=agent.port) as victim:
        victim.pages[NEW] = signed(card_of(agent.origin()))
        fetcher = fetcher_for(agent, authority, agent_test=[["127.0.0.1"], ["127.0.0.2"]])
        if waits:
            fetch_card(agent.origin(), trusting(HOST), options=FetchOptions(fetcher=fetcher))
        else:
            asyncio.run(async_fetch_card(agent.origin(), trusting(HOST), options=FetchOptions(fetcher=fetcher)))
        assert (agent.paths(), victim.paths()) == ([NEW], [])


def test_a_name_that_changes_between_the_two_well_known_names_is_checked_again(
    agent: Agent, authority: Authority
) -> None:
    """404 at the first name buys the attacker no second look-up that nobody checks."""
    agent.pages[OLD] = signed(card_of(agent.origin()))
    fetcher = fetcher_for(agent, authority, agent_test=[["127.0.0.1"], [METADATA]])
    with pytest.raises(FetchError, match=f"has the address {METADATA}"):
        fetch_card(agent.origin(), trusting(HOST), options=FetchOptions(fetcher=fetcher))
    assert agent.paths() == [NEW]


def test_a_name_that_changes_before_the_extended_card_gets_no_credentials(agent: Agent, authority: Authority) -> None:
    agent.pages[NEW] = signed(card_of(agent.origin()))
    fetcher = fetcher_for(agent, authority, agent_test=[["127.0.0.1"], [METADATA]])
    card = fetch_card(agent.origin(), trusting(HOST), options=FetchOptions(fetcher=fetcher))
    with pytest.raises(FetchError, match=f"has the address {METADATA}"):
        fetch_extended_card(card, trusting(HOST), headers=KEY, options=FetchOptions(fetcher=fetcher))
    assert agent.paths() == [NEW]


def test_a_name_that_changes_before_the_key_set_of_the_origin_is_checked_again(
    agent: Agent, authority: Authority
) -> None:
    agent.pages[NEW] = signed(card_of(agent.origin()))
    fetcher = fetcher_for(agent, authority, agent_test=[["127.0.0.1"], [METADATA]])
    memory = VolatileCardMemory()
    with pytest.raises(UntrustedCardError) as caught:
        fetch_card(
            agent.origin(),
            TrustStore([]),
            options=FetchOptions(fetcher=fetcher, memory=memory, on_first_use=TrustOnFirstUse()),
        )
    assert f"has the address {METADATA}" in str(caught.value.__cause__)
    assert (memory.records(), agent.paths()) == ((), [NEW])


def test_who_has_no_certificate_for_the_name_is_not_asked(agent: Agent, authority: Authority) -> None:
    with serving_agent(authority.server("evil.example"), address="127.0.0.2", port=agent.port) as evil:
        evil.pages[NEW] = signed(card_of(agent.origin()))
        fetcher = fetcher_for(agent, authority, agent_test=[["127.0.0.2"]])
        with pytest.raises(FetchError, match="certificate is rejected"):
            fetch_card(agent.origin(), trusting(HOST), options=FetchOptions(fetcher=fetcher))
        assert evil.asked == []


def late(asked: Asked) -> Page:
    time.sleep(1)
    return Page(body=signed(card_of(f"https://{HOST}")))


@pytest.mark.parametrize(
    ("page", "why"),
    [
        (Page(body=b" " * 300_000), "more than 262144 bytes"),
        (Page(body=b"{}", headers={"Content-Type": "text/html"}), "not of type application/json"),
        (Page(body=b"{}", headers={"Content-Encoding": "gzip"}), "compressed"),
        (late, "within 0.3 seconds"),
    ],
)
def test_an_answer_that_would_cost_too_much_ends_early(
    agent: Agent, authority: Authority, page: Page | Callable[[Asked], Page], why: str
) -> None:
    agent.pages[NEW] = page
    names = Names(agent_test=[["127.0.0.1"]])
    fetcher = Fetcher(private_origins=[agent.origin()], ssl_context=authority.client(), resolver=names, timeout=0.3)
    if "seconds" not in why:
        fetcher = fetcher_for(agent, authority)
    with pytest.raises(FetchError, match=why):
        fetch_card(agent.origin(), trusting(HOST), options=FetchOptions(fetcher=fetcher))
    assert agent.paths() == [NEW]


# --- where credentials go ------------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize(
    "url",
    [
        "https://other.test:{port}/rpc",
        "http://agent.test:{port}/rpc",
        "agent.test:{port}",
    ],
)
async def test_an_interface_elsewhere_gets_no_credentials(agent: Agent, authority: Authority, url: str) -> None:
    """The key may speak for both hosts, so the card is verified; the caller has meant one of them."""
    interface = {"url": url.format(port=agent.port), "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    document = signed(card_of(agent.origin(), supportedInterfaces=[interface]))
    trust = trusting(HOST, "other.test")
    card = verify_card(document, trust, origin=agent.origin(), now=time.time())
    with pytest.raises(FetchError, match="credentials are sent to no other host"):
        await async_fetch_extended_card(
            card, trust, headers=KEY, options=FetchOptions(fetcher=fetcher_for(agent, authority))
        )
    assert agent.asked == []


@pytest.mark.anyio
async def test_a_card_that_is_bound_to_no_host_leads_credentials_nowhere(agent: Agent, authority: Authority) -> None:
    document = signed(card_of(agent.origin()))
    anywhere = TrustStore([TrustedKey(key=OWNER.public_key, origins=UnsafeAnyOrigin())])
    for trust, origin in ((anywhere, agent.origin()), (trusting(HOST), UnsafeAnyOrigin())):
        card = verify_card(document, trust, origin=origin, now=time.time())
        with pytest.raises(ConfigurationError, match="verified without a host"):
            await async_fetch_extended_card(
                card, trust, headers=KEY, options=FetchOptions(fetcher=fetcher_for(agent, authority))
            )
    assert agent.asked == []


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_carries_no_credentials(agent: Agent, authority: Authority, status: int) -> None:
    agent.pages = {
        NEW: signed(card_of(agent.origin())),
        "/rpc": Page(status=status, headers={"Location": f"{agent.origin('other.test')}/stolen"}),
        "/stolen": signed(card_of(agent.origin())),
    }
    fetcher = fetcher_for(agent, authority)
    card = fetch_card(agent.origin(), trusting(HOST), options=FetchOptions(fetcher=fetcher))
    with pytest.raises(FetchError, match="redirects") as caught:
        fetch_extended_card(card, trusting(HOST), headers=KEY, options=FetchOptions(fetcher=fetcher))
    assert agent.paths() == [NEW, "/rpc"]
    assert "a secret" not in str(caught.value)


EVIL = "https://evil.example"
IMPLICIT = f'{{"implicit": {{"authorizationUrl": "{EVIL}/", "scopes": {{}}}}}}'


@walk(
    ("was", "becomes", "named"),
    [
        ('"{origin}/rest"', f'"{EVIL}/rest"', EVIL),
        ('"{origin}/rest"', '"https://agent.test/rest"', "https://agent.test"),
        ('"{origin}/rest"', '"http://agent.test/rest"', "http://agent.test"),
        ('"tokenUrl": "https://login.example.com/token"', f'"tokenUrl": "{EVIL}/token"', EVIL),
        ('"tokenUrl": "https://login.example.com/token"', '"tokenUrl": "https://login.example.com/"', "login.example"),
        ('"scopes"', f'"refreshUrl": "{EVIL}/refresh", "scopes"', EVIL),
        ('"login"', f'"other": {{"oauth2SecurityScheme": {{"flows": {IMPLICIT}}}}}, "login"', EVIL),
        ('"flows"', f'"oauth2MetadataUrl": "{EVIL}/metadata", "flows"', EVIL),
        ('"login"', f'"oidc": {{"openIdConnectSecurityScheme": {{"openIdConnectUrl": "{EVIL}/"}}}}, "login"', EVIL),
    ],
)  # fmt: skip
def test_an_extended_card_leads_further_than_the_public_one(
    agent: Agent, authority: Authority, was: str, becomes: str, named: str
) -> None:
    """Even by its owner's key: what strangers were told, and what was told in confidence, must not differ in this."""
    public = card_of(agent.origin())
    text = json.dumps(public)
    was = was.format(origin=agent.origin())
    assert was in text
    wider = json.loads(text.replace(was, becomes, 1))
    key = TrustedKey(key=OWNER.public_key, origins=Origins(HOST, "evil.example"))
    trust, fetcher = TrustStore([key]), fetcher_for(agent, authority)
    interface = f"{agent.origin()}/rpc"
    agent.pages = {NEW: signed(public), "/rpc": b'{"id": "extended-card", "result": %b}' % signed(wider)}
    card = fetch_card(agent.origin(), trust, options=FetchOptions(fetcher=fetcher))
    with pytest.raises(Exception, match="the public card does not name") as caught:
        fetch_extended_card(card, trust, headers=KEY, options=FetchOptions(fetcher=fetcher))
    assert named in str(caught.value)
    assert interface not in str(caught.value)
    agent.pages["/rpc"] = b'{"id": "extended-card", "result": %b}' % signed(public)
    assert fetch_extended_card(card, trust, headers=KEY, options=FetchOptions(fetcher=fetcher)).card == public


# --- dot segments: the server reads another path than the one that was checked or shown ----------------------------

OTHER_SPELLINGS = ["..", "%2e%2E", ".%2e", "..;x=1", "..%3Bx", "x%2f..%2f..", "..%5c", "%252e%252e", "..%00"]


@pytest.mark.parametrize("tenant", ["..", "../admin", "a/../../admin", "..;", "..\\admin", "%2e%2e", "."])
def test_a_tenant_leads_out_of_the_interface(agent: Agent, authority: Authority, tenant: str) -> None:
    """The name of a tenant comes from the program's own callers, and credentials go where it leads."""
    agent.pages[NEW] = signed(card_of(agent.origin(), supportedInterfaces=rest(agent)))
    options = FetchOptions(fetcher=fetcher_for(agent, authority))
    card = fetch_card(agent.origin(), trusting(HOST), options=options)
    with pytest.raises(ConfigurationError, match=r"^tenant: .*dot segment"):
        fetch_extended_card(card, trusting(HOST), headers=KEY, tenant=tenant, options=options)
    assert agent.paths() == [NEW]


@pytest.mark.parametrize("member", ["tenant", "url"])
def test_a_card_leads_credentials_out_of_its_interface(agent: Agent, authority: Authority, member: str) -> None:
    (interface,) = rest(agent)
    interface[member] = f"{interface['url']}/%2e%2e" if member == "url" else ".."
    agent.pages[NEW] = signed(card_of(agent.origin(), supportedInterfaces=[interface]))
    options = FetchOptions(fetcher=fetcher_for(agent, authority))
    card = fetch_card(agent.origin(), trusting(HOST), options=options)
    with pytest.raises((MalformedError, FetchError), match="dot segment"):
        fetch_extended_card(card, trusting(HOST), headers=KEY, options=options)
    assert agent.paths() == [NEW]


def rest(agent: Agent) -> list[dict[str, str]]:
    return [{"url": f"{agent.origin()}/a/rest", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"}]


@pytest.mark.anyio
@pytest.mark.parametrize("segment", OTHER_SPELLINGS)
async def test_no_url_with_a_dot_segment_is_asked(agent: Agent, authority: Authority, segment: str) -> None:
    """Below it the well-known names of cards and issuers, and URLs that the documents of issuers name."""
    fetcher, base = fetcher_for(agent, authority), f"{agent.origin()}/a/{segment}"
    for url in (base, f"{base}/b", f"{base}/card.json"):
        with pytest.raises(FetchError, match="dot segments"):
            await async_fetch_card(url, trusting(HOST), options=FetchOptions(fetcher=fetcher))
        with pytest.raises(FetchError, match="dot segments"):
            await fetcher.post_form(url, b"grant_type=client_credentials")
        with pytest.raises(FetchError, match="dot segments"):
            fetcher.loader(url, configured=True)
        for keys in (OpenIdKeys, OAuth2Keys):
            with pytest.raises(ConfigurationError, match="dot segments"):
                keys(url, fetcher)
    issuer = f"{agent.origin()}/a"
    metadata = {"issuer": issuer, "jwks_uri": f"{base}/keys"}
    agent.pages["/a/.well-known/openid-configuration"] = json.dumps(metadata).encode()
    with pytest.raises(KeySourceUnavailableError):
        await OpenIdKeys(issuer, fetcher).keys()
    assert agent.paths() == ["/a/.well-known/openid-configuration"]
