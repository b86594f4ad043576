"""T8: a URL from outside makes the server fetch from its own machine, its network or its cloud (SSRF).

Seen in a2a-js (issue 350) and conductor (CVE-2026-109403); C4 is the same for the URL of a card. The nearest server is
really there in these tests: it counts who comes.
"""

from __future__ import annotations

import pytest

from a2a_trust.base.net.fetcher import Fetcher
from a2a_trust.errors import FetchError, KeySourceUnavailableError
from tests.attacks.recording import events_outside
from tests.auth.test_discovery import OPENID, issuer_at
from tests.base.net.test_fetcher import Authority, Names, answer, serving
from tests.tables import walk

pytestmark = pytest.mark.anyio

INNER = [
    "127.0.0.1", "127.8.8.8", "0.0.0.0", "0.1.2.3", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1",
    "100.64.0.1", "100.127.255.254", "100.100.100.200", "169.254.169.254", "169.254.170.2", "168.63.129.16",
    "192.0.0.192", "192.0.2.1", "192.88.99.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1",
    "239.255.255.250", "240.0.0.1", "255.255.255.255",
    "::", "::1", "::2", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::127.0.0.1", "::ffff:0:127.0.0.1", "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe", "64:ff9b:1::808:808", "100::1", "2001::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "2001:2::1", "2001:10::1", "2001:db8::1", "2002:7f00:1::", "2002:808:808::1", "3fff::1", "5f00::1", "fc00::1",
    "fd00:ec2::254", "fd12:3456::1", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "4000::1",
]  # fmt: skip
OUTER = ["8.8.8.8", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "64:ff9b::808:808", "2001:200::1", "2003::1"]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@walk("address", INNER)
async def test_a_name_with_an_inner_address_is_refused_whatever_its_other_addresses(address: str) -> None:
    for addresses in ([address], ["8.8.8.8", address], [address, "2606:4700::1111"]):
        fetcher = Fetcher(resolver=Names(evil_example=[addresses]))
        with events_outside() as events, pytest.raises(FetchError, match="not a public one"):
            await fetcher.fetch("https://evil.example/jwks", configured=False)
        assert [event for event in events if event.startswith("socket.")] == []


@walk("address", [address for address in INNER if "%" not in address])
async def test_an_inner_address_is_refused_as_a_literal(address: str) -> None:
    host = f"[{address}]" if ":" in address else address
    for configured in (True, False):
        with events_outside() as events, pytest.raises(FetchError, match="not a public one"):
            await Fetcher().fetch(f"https://{host}/", configured=configured)
        assert [event for event in events if event.startswith("socket.")] == []


@walk("address", OUTER)
async def test_control_public_addresses_pass_the_check(address: str) -> None:
    fetcher = Fetcher(resolver=Names(good_example=[[address, "127.0.0.1"]]))
    with pytest.raises(FetchError, match=r"has the address 127\.0\.0\.1"):  # the second one: the first was good
        await fetcher.fetch("https://good.example/", configured=False)


@walk(
    "host",
    [
        "2130706433", "017700000001", "0x7f000001", "0x7f.0.0.1", "0177.0.0.1", "127.1", "127.0.1", "127.0.0.01",
        "127.0.0.1.", "0", "127.0.0.256", "127.0.0.1.1", "a.0x7f", "a.1", "[::1%25lo]", "[::1", "[v1.a]", "[]", "[1]",
        "localhost.", "a..example", ".example", "-a.example", "①②⑦.⓪.⓪.①", "127。0。0。1", "%31%32%37.0.0.1",
        "a" * 64 + ".example", ".".join(["a" * 60] * 5),
    ],
)  # fmt: skip
async def test_odd_spellings_of_hosts_are_refused_unresolved(host: str) -> None:
    names = Names()
    for url in (f"https://{host}/", f"https://{host}:443/"):
        with pytest.raises(FetchError, match=r"^URL: "):
            await Fetcher(resolver=names).fetch(url, configured=False)
    assert names.asked == []


@walk(
    "url",
    [
        "https://good.example@127.0.0.1/", "https://good.example:x@127.0.0.1/", "https://127.0.0.1\\@good.example/",
        "https://good.example\\@127.0.0.1/", "https://good.example#@127.0.0.1/", "https://good.example/#f",
        "https://good.example /", "https://good.example/\r\nX: y", "https://good.example/\n", "\thttps://good.example/",
        "https:/good.example/", "https:good.example", "https:///good.example/", "https://good.example:/",
        "https://good.example:0/", "https://good.example:65536/", "https://good.example:443:443/",
        "https://good.example?q", "https://good.example/\x00", "https://good.example/é", "https://good.example/[",
        "https://good.example/" + "a" * 2048,
    ],
)  # fmt: skip
async def test_urls_that_two_readers_read_differently_are_refused_unresolved(url: str) -> None:
    names = Names(good_example=[["8.8.8.8"]])
    for configured in (True, False):
        with pytest.raises(FetchError, match=r"^URL: "):
            await Fetcher(resolver=names).fetch(url, configured=configured)
    assert names.asked == []


async def test_a_url_out_of_a_card_does_not_profit_from_what_the_operator_allowed(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    authority = Authority(tmp_path_factory.mktemp("tls"))
    async with serving(answer(), tls=authority.server("idp.test", "127.0.0.1")) as server:
        names = Names(idp_test=[["127.0.0.1"]])
        origins = [f"https://{host}:{server.port}" for host in ("idp.test", "127.0.0.1")]
        fetcher = Fetcher(private_origins=origins, ssl_context=authority.client(), resolver=names)
        for origin in origins:
            with pytest.raises(FetchError, match="not a public one"):
                await fetcher.fetch(f"{origin}/", configured=False)
        assert server.connections == 0
        for origin in origins:
            assert (await fetcher.fetch(f"{origin}/", configured=True)).body == b'{"keys": []}'


@walk(
    "address",
    ["169.254.169.254", "fe80::1", "100.100.100.200", "fd00:ec2::254", "168.63.129.16", "0.0.0.0", "224.0.0.1",
     "::ffff:127.0.0.1", "64:ff9b::7f00:1", "192.0.2.1", "not an address"],
)  # fmt: skip
async def test_a_private_origin_does_not_lead_to_metadata_and_the_like(address: str) -> None:
    fetcher = Fetcher(private_origins=["https://idp.internal"], resolver=Names(idp_internal=[["10.0.0.1", address]]))
    with pytest.raises(FetchError, match=r"not a public one|no address"):
        await fetcher.fetch("https://idp.internal/", configured=True)


async def test_a_name_that_changes_after_the_check_is_still_reached_where_it_was_checked() -> None:
    """DNS rebinding: the first answer is harmless, every later one leads to the victim."""
    async with (
        serving(answer(b'"checked"')) as checked,
        serving(answer(), address="127.0.0.2", port=checked.port) as victim,
    ):
        names = Names(localhost=[["127.0.0.1"], ["127.0.0.2"]])
        fetcher = Fetcher(private_origins=[f"http://localhost:{checked.port}"], resolver=names)
        result = await fetcher.fetch(f"http://localhost:{checked.port}/", configured=True)
    assert (result.body, names.asked, victim.connections) == (b'"checked"', ["localhost"], 0)


async def test_every_fetch_checks_anew() -> None:
    """The slow kind of rebinding: between two fetches. No connection of the first one is taken for the second."""
    async with serving(answer()) as server:
        names = Names(localhost=[["127.0.0.1"], ["169.254.169.254"]])
        fetcher = Fetcher(private_origins=[f"http://localhost:{server.port}"], resolver=names)
        url = f"http://localhost:{server.port}/"
        assert (await fetcher.fetch(url, configured=True)).body == b'{"keys": []}'
        with pytest.raises(FetchError, match="this machine only"):
            await fetcher.fetch(url, configured=True)
    assert server.connections == 1


async def test_an_issuers_metadata_leads_to_no_inner_server_that_the_operator_did_not_name() -> None:
    async with issuer_at() as issuer, issuer_at() as inner:
        # The inner server has good keys, so whoever went there would find one.
        issuer.pages[OPENID] = issuer.metadata(jwks_uri=f"{inner.origin}/jwks")
        with pytest.raises(KeySourceUnavailableError):
            await issuer.keys().key("a", "EC")
        assert (issuer.asked, inner.asked) == ([OPENID], [])
