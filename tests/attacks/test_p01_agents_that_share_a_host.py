"""P1, S14: two agents have one host. Neither locks the other out, and neither answers in the place of the other.

The memory knows them by where their cards are, which is nothing that a card says. Whoever may write a URL, or has a
path of the host, gets no fresh first use from another spelling, a query or a new path.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from a2a_trust import (
    ConfigurationError,
    Fetcher,
    MalformedError,
    Origins,
    TrustedKey,
    TrustStore,
    VerifiedCard,
    VerifyingTransport,
    fetch_card,
    generate_signer,
    publish_jwks,
    verify_card,
)
from a2a_trust.cli.main import main
from a2a_trust.client import TrustOnFirstUse, UnsafePassAnything, UnverifiedCardError
from a2a_trust.client.memory import AdmittedCard, VolatileCardMemory
from a2a_trust.client.memory_store import SqliteCardMemory
from a2a_trust.client.verification import FetchOptions
from a2a_trust.errors import PinnedKeyError, RolledBackCardError, UnsignedCardError
from a2a_trust.keys import LocalSigner
from tests.attacks.forgery import JSONObject, canonical, entry, served, signs
from tests.attacks.verifying import HOST, NOW
from tests.base.net.test_fetcher import Authority, Names
from tests.client.agents import NEW, OLD, OWNER, Agent, card_of, serving_agent, signed, trusting
from tests.client.memories import KINDS, Memory, memory_of
from tests.tables import walk

SITE = f"https://{HOST}"
A, B = f"{SITE}/a", f"{SITE}/b"
TOFU, NOBODY = TrustOnFirstUse(), TrustStore(())


@pytest.fixture(params=KINDS)
def memory(request: pytest.FixtureRequest) -> Memory:
    return memory_of(request)


def by(signer: LocalSigner, card: JSONObject, iat: float = NOW) -> bytes:
    protected = {"alg": signer.alg, "kid": signer.kid, "iat": iat}
    return served(card, entry(protected, canonical(card), signs(signer.private_key, signer.alg)))


def named(*signers: LocalSigner) -> TrustStore:
    return TrustStore(TrustedKey(key=signer.public_key, origins=Origins(HOST)) for signer in signers)


def published(*signers: LocalSigner) -> TrustStore:
    """What trust on first use makes of the keys that the host publishes."""
    return TOFU.trust_store([signer.public_key for signer in signers], SITE, NOBODY)


def seen(memory: Memory, document: bytes, trust: TrustStore, url: str) -> AdmittedCard:
    """What a client does with a card that it asked from that URL."""
    verified = verify_card(document, trust, origin=url, now=NOW)
    return memory.admit(verified, url, now=NOW)


# --- neither locks the other out -----------------------------------------------------------------------------------


@walk("trusts", [named, published], ids=["named", "on-first-use"])
def test_what_one_agent_signs_later_makes_no_card_of_the_other_old(
    memory: Memory, card: JSONObject, owner: LocalSigner, trusts: Any
) -> None:
    """One key, which the operator of the host has for both. What an agent's records count for is what it named."""
    for _ in range(2):
        for url, iat in ((A + NEW, NOW - 100), (B + NEW, NOW - 9000), (SITE + OLD, NOW - 5000)):
            interfaces = [{**card["supportedInterfaces"][0], "url": url.partition("/.well")[0]}]
            seen(memory, by(owner, {**card, "supportedInterfaces": interfaces}, iat), trusts(owner), url)
    assert [str(record.location) for record in memory.records()] == [SITE, A, B]
    assert [record.issued for record in memory.records()] == [NOW - 5000, NOW - 100, NOW - 9000]


@walk("trusts", [named, published], ids=["named", "on-first-use"])
def test_agents_that_share_a_url_and_differ_in_the_tenant_go_on_side_by_side(
    memory: Memory, card: JSONObject, owner: LocalSigner, trusts: Any
) -> None:
    for _ in range(2):
        for url, tenant, iat in ((A, "a", NOW - 100), (B, "b", NOW - 9000), (SITE, "", NOW - 5000)):
            interfaces = [{**card["supportedInterfaces"][0], "tenant": tenant}]
            seen(memory, by(owner, {**card, "supportedInterfaces": interfaces}, iat), trusts(owner), url)
    assert [len(record.interfaces) for record in memory.records()] == [1, 1, 1]


def test_two_agents_with_keys_of_their_own_go_on_side_by_side(
    memory: Memory, card: JSONObject, owner: LocalSigner, mallory: LocalSigner
) -> None:
    both = published(owner, mallory)
    seen(memory, by(owner, card), both, A)
    memory.accept(B, [mallory.public_key.thumbprint], now=NOW)
    for _ in range(2):
        for url, signer in ((A, owner), (B, mallory)):
            assert seen(memory, by(signer, card), both, url).warnings == ()


def test_an_agent_that_never_signs_is_no_agent_whose_signatures_were_taken_off(
    memory: Memory, card: JSONObject, owner: LocalSigner
) -> None:
    seen(memory, by(owner, card), named(owner), A)
    assert memory.expects_signature(A + OLD)
    assert not memory.expects_signature(B)
    assert not memory.expects_signature(SITE)


# --- neither answers in the place of the other ---------------------------------------------------------------------


def test_the_card_of_one_agent_at_the_url_of_the_other(
    memory: Memory, card: JSONObject, owner: LocalSigner, mallory: LocalSigner
) -> None:
    """Both cards are good, and both keys are rightly published by the host."""
    both = published(owner, mallory)
    seen(memory, by(owner, card, NOW - 100), both, A)
    memory.accept(B, [mallory.public_key.thumbprint], now=NOW)
    seen(memory, by(mallory, card, NOW - 100), both, B)
    before = memory.records()
    for url, stranger in ((A, mallory), (B, owner)):
        for iat in (NOW - 100, NOW):
            with pytest.raises(PinnedKeyError, match=f"^THE KEY OF {url} HAS CHANGED"):
                seen(memory, by(stranger, card, iat), both, url + NEW)
    assert memory.records() == before


def test_an_older_card_of_the_other_agent_by_the_same_key(memory: Memory, card: JSONObject, owner: LocalSigner) -> None:
    """Where two agents share a key, only the time tells."""
    seen(memory, by(owner, {**card, "name": "a"}, NOW - 9000), named(owner), A)
    seen(memory, by(owner, {**card, "name": "b"}, NOW - 100), named(owner), B)
    with pytest.raises(RolledBackCardError) as caught:
        seen(memory, by(owner, {**card, "name": "a"}, NOW - 9000), named(owner), B)
    assert caught.value.location == B


def test_the_key_of_the_other_agent_that_the_trust_store_names_is_told(
    memory: Memory, card: JSONObject, owner: LocalSigner, mallory: LocalSigner
) -> None:
    """A trust store names keys for hosts, so it cannot refuse; the user learns of it."""
    trust = named(owner, mallory)
    seen(memory, by(owner, card), trust, A)
    seen(memory, by(mallory, card), trust, B)
    (warning,) = seen(memory, by(mallory, card), trust, A).warnings
    assert warning.startswith(f"{A}: its card is signed by another key than before, the key of {B}; ")


def test_a_card_says_nothing_of_where_it_is_remembered(memory: Memory, card: JSONObject, owner: LocalSigner) -> None:
    """Every member in which a card could name another agent names the other one."""
    card["supportedInterfaces"] = [{**card["supportedInterfaces"][0], "url": f"{B}/rpc"}]
    card["provider"]["url"] = B
    card["url"] = card["documentationUrl"] = B + NEW
    seen(memory, by(owner, card), named(owner), A)
    assert [str(record.location) for record in memory.records()] == [A]


# --- no fresh first use --------------------------------------------------------------------------------------------

#: Every one is the agent at A, for a server that makes the usual of it.
SPELLINGS = [
    A, f"{A}/", f"{A}//", f"{SITE}//a", f"{SITE}/%61", f"{SITE}:443/a", f"https://{HOST.upper()}/a", f"HTTPS://{HOST}/a",
    f"https://{HOST}:0443/%61/", A + NEW, A + OLD, f"{A}/{NEW}", f"{A}{NEW}/", f"{A}/%2ewell-known/agent.json",
    f"{A}/.Well-Known/Agent-Card.json", f"{A}/.well-known%2Fagent.json".replace("%2F", "/"), f"{A}#b", f"{A}{NEW}#b",
    f"{A}?x=y", f"{A}{NEW}?x=y", f"{A}/?", f"{A}?/b{NEW}", f"{A}{OLD}?{NEW}",
]  # fmt: skip


@pytest.mark.parametrize("url", SPELLINGS)
def test_another_spelling_or_a_query_is_the_same_agent(
    memory: Memory, card: JSONObject, owner: LocalSigner, mallory: LocalSigner, url: str
) -> None:
    seen(memory, by(owner, card, NOW - 100), published(owner), A)
    with pytest.raises(PinnedKeyError, match=f"^THE KEY OF {A} HAS CHANGED"):
        seen(memory, by(mallory, card), published(owner, mallory), url)
    with pytest.raises(RolledBackCardError):
        seen(memory, by(owner, card, NOW - 200), published(owner), url)
    assert memory.expects_signature(url)
    assert seen(memory, by(owner, card, NOW - 50), published(owner), url).before is not None
    assert [str(record.location) for record in memory.records()] == [A]


@walk("path", ["/new", "/a/b", "/A", "/a;x=1", "/a%2Fb", "/cards/a.json", "", "/a.json"])
def test_another_key_at_a_new_path_of_a_known_host(
    memory: Memory, card: JSONObject, owner: LocalSigner, mallory: LocalSigner, path: str
) -> None:
    """A tenant of the host, or whoever may choose the path, brings a key that the host now publishes, too."""
    seen(memory, by(owner, card), published(owner), A)
    before = memory.records()
    with pytest.raises(PinnedKeyError, match=f"^ANOTHER KEY AT {SITE}\n") as caught:
        seen(memory, by(mallory, card), published(owner, mallory), SITE + path)
    assert caught.value.pinned == {owner.public_key.thumbprint}
    assert caught.value.presented == {mallory.public_key.thumbprint}
    assert memory.records() == before
    assert seen(memory, by(owner, card), published(owner, mallory), SITE + path).before is None


@pytest.mark.parametrize(
    "url", [f"{SITE}:8443", f"{SITE}:8443/new", f"http://{HOST}", f"http://{HOST}/new", f"http://{HOST}:8080/new"]
)
def test_another_key_at_another_port_of_a_known_host(
    memory: Memory, card: JSONObject, owner: LocalSigner, mallory: LocalSigner, url: str
) -> None:
    """The key of a first use speaks for the whole host: whoever has a port of it would get one."""
    both = published(owner, mallory)
    seen(memory, by(owner, card), both, SITE)
    with pytest.raises(PinnedKeyError, match=r"^ANOTHER KEY AT"):
        seen(memory, by(mallory, card), both, url)
    assert seen(memory, by(owner, card), both, url).before is None  # the same key may be used there
    # Control: names that only begin or end like it are other hosts.
    for number, host in enumerate((f"{HOST}0.example", f"{HOST}-a.example", f"a.{HOST}", f"{HOST}.example")):
        elsewhere = f"https://{host}"
        moved = {**card, "supportedInterfaces": [{**card["supportedInterfaces"][0], "url": elsewhere}]}
        trust = TOFU.trust_store([mallory.public_key], elsewhere, NOBODY)
        assert seen(memory, by(mallory, moved, NOW - number), trust, elsewhere).before is None


@walk(
    "url",
    [
        "https://[2001:db8:0:0::1]",
        "https://[2001:DB8::0001]/a",
        "https://[2001:db8::0.0.0.1]:8443",
        "https://192.0.2.1:8443",
        "https://192.0.513",
        "https://3221225985/a",
        "https://0xc0.0.2.1",
        "https://192.0.2.0x1",
        "https://[::ffff:192.0.2.1]",
        "https://[::ffff:c000:201]",
    ],
)
def test_another_spelling_of_an_address_gets_no_first_use(url: str, owner: LocalSigner, mallory: LocalSigner) -> None:
    """The trust store names both hosts, so that nothing of them is believed."""
    trust = TrustStore([TrustedKey(key=owner.public_key, origins=Origins("[2001:db8:0::1]", "192.0.2.1"))])
    try:
        assert not TOFU.applies_to(url, trust)
        assert TOFU.trust_store([mallory.public_key], url, trust).keys == ()
    except ConfigurationError as error:
        assert "location: write the URL" in str(error)  # noqa: PT017  refused, or known
    assert TOFU.applies_to("https://[2001:db8::2]", trust)


@pytest.mark.parametrize("url", [B, f"{SITE}/it's%20b"])
def test_the_refusal_at_a_new_path_says_how_to_accept_the_key(
    card: JSONObject,
    owner: LocalSigner,
    mallory: LocalSigner,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    url: str,
) -> None:
    memory = SqliteCardMemory(tmp_path / "cards.db", create=True)
    seen(memory, by(owner, card), published(owner), A)
    with pytest.raises(PinnedKeyError) as caught:
        seen(memory, by(mallory, card), published(mallory), url + NEW)
    program, *arguments = shlex.split(str(caught.value).splitlines()[-1])
    assert (program, arguments[:2]) == ("a2a-sign", ["memory", "accept"])
    assert main(arguments) == 0
    assert f"accepted {url}\n" in capsys.readouterr().out
    assert seen(memory, by(mallory, card), published(mallory), url).warnings == ()


def test_what_one_tenant_does_first_does_not_make_its_key_that_of_the_next(
    memory: Memory, card: JSONObject, owner: LocalSigner, mallory: LocalSigner
) -> None:
    """The evil tenant came first: the other agent is refused until a person has looked, never taken for it."""
    both = published(owner, mallory)
    seen(memory, by(mallory, card), both, f"{SITE}/evil")
    with pytest.raises(PinnedKeyError):
        seen(memory, by(owner, card), both, A)
    memory.accept(A, [owner.public_key.thumbprint], now=NOW)
    seen(memory, by(owner, card), both, A)
    with pytest.raises(PinnedKeyError):
        seen(memory, by(mallory, card), both, A)


@walk("path", ["/a/../b", "/a/%2e%2e/b", "/b/.", "/%2E/b", "/%", "/b%2", "/.well-known/../b/.well-known/agent.json"])
def test_a_path_that_servers_read_differently_is_no_location(
    memory: Memory, card: JSONObject, owner: LocalSigner, path: str
) -> None:
    verified = verify_card(by(owner, card), named(owner), origin=SITE, now=NOW)
    for use in (lambda: memory.admit(verified, SITE + path, now=NOW), lambda: memory.expects_signature(SITE + path)):
        with pytest.raises(ConfigurationError, match="dot segment, or an invalid percent sign"):
            use()
    assert memory.records() == ()


# --- by sockets, and through a client of others --------------------------------------------------------------------

FIRST, SECOND = generate_signer("ES256", kid="first"), generate_signer("ES256", kid="second")
KEY_SET = "/.well-known/jwks.json"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def site(authority: Authority) -> Iterator[Agent]:
    with serving_agent(authority.server("agent.test")) as running:
        running.pages[KEY_SET] = json.dumps(publish_jwks([FIRST.public_key, SECOND.public_key])).encode()
        yield running


def test_two_agents_are_fetched_and_trusted_on_first_use(site: Agent, authority: Authority, memory: Memory) -> None:
    fetcher = Fetcher(
        private_origins=[site.origin()], ssl_context=authority.client(), resolver=Names(agent_test=[["127.0.0.1"]])
    )

    def ask(path: str) -> VerifiedCard:
        return fetch_card(
            site.origin() + path, NOBODY, options=FetchOptions(fetcher=fetcher, memory=memory, on_first_use=TOFU)
        )

    now = time.time()
    ours, theirs, last = (
        signed(card_of(site.origin(), name=name), by=key, iat=now - age)
        for name, key, age in (("ours", FIRST, 10), ("theirs", SECOND, 10), ("ours", FIRST, 5))
    )
    site.pages |= {f"/a{NEW}": ours, f"/b{OLD}": theirs, f"/c{NEW}": ours}
    for path in ("/a", f"/a{NEW}", "/c/"):
        assert ask(path).card["name"] == "ours"
    assert set(site.paths()) == {f"/a{NEW}", f"/c{NEW}", KEY_SET}
    with pytest.raises(PinnedKeyError, match="ANOTHER KEY"):
        ask("/b")
    memory.accept(f"{site.origin()}/b", [SECOND.public_key.thumbprint], now=now)
    assert ask("/b").card["name"] == "theirs"
    # Each at the URL of the other, and one newer.
    site.pages |= {f"/a{NEW}": theirs, f"/b{OLD}": last, f"/%62{OLD}": last}
    for path in ("/a", "/b", f"/b{OLD}?x", "/%62", f"/a{NEW}?/b"):
        with pytest.raises(PinnedKeyError, match="HAS CHANGED"):
            ask(path)
    assert [str(record.location) for record in memory.records()] == [f"{site.origin()}/{name}" for name in "abc"]


def test_the_cards_of_a_client_of_others_are_remembered_by_location() -> None:
    """``cards`` may name URLs that only their queries tell apart; other queries tell nothing apart."""
    origin, now, memory = "https://agent.test", time.time(), VolatileCardMemory()
    pages: dict[str, bytes] = {}

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=pages[str(request.url).removeprefix(origin)])

    def card(age: float, agent: str = "a") -> bytes:
        return signed(card_of(f"{origin}/{agent}"), iat=now - age)

    urls = [f"{origin}/cards?agent=a", f"{origin}/cards?agent=b", f"{origin}/other.json"]
    cards = {f"{origin}/rpc/{number}": url for number, url in enumerate(urls)}
    transport = VerifyingTransport(
        httpx.MockTransport(answer), trusting("agent.test"), memory=memory, cards=cards, also=UnsafePassAnything()
    )
    with httpx.Client(transport=transport) as http:

        def refused(path: str, error: type[Exception]) -> None:
            with pytest.raises(UnverifiedCardError) as caught:
                http.get(origin + path)
            assert type(caught.value.__cause__) is error
            assert "secret" not in str(caught.value)

        pages |= {"/cards?agent=a": card(10), "/cards?agent=b": card(500, "b")}
        pages |= {f"/b{NEW}": card(900, "c"), f"{NEW}?t=1": card(5, "d")}
        for path in pages:
            http.get(origin + path)
        expected = [origin, f"{origin}/b", f"{origin}/cards?agent=a", f"{origin}/cards?agent=b"]
        assert [str(record.location) for record in memory.records()] == expected
        pages |= {"/cards?agent=a": card(20), "/other.json?x=1": card(9, "e"), "/cards?x=1&agent=a": card(15, "f")}
        refused("/cards?agent=a", RolledBackCardError)
        http.get(f"{origin}/other.json?x=1")
        http.get(f"{origin}/cards?x=1&agent=a")
        older = {"/other.json?token=secret": card(10, "e"), "/cards?x=2": card(16, "f")}
        older |= {f"/b{OLD}?token=secret": card(901, "c")}
        pages |= older
        for path in older:
            refused(path, RolledBackCardError)
        pages |= dict.fromkeys(older, json.dumps(card_of(origin)).encode())
        for path in older:
            refused(path, UnsignedCardError)
        pages["/a/%2e%2e/b" + NEW] = card(0)
        refused("/a/%2e%2e/b" + NEW, MalformedError)


def test_a_first_use_needs_the_published_key_of_the_origin_not_of_the_path(
    site: Agent, authority: Authority, memory: Memory
) -> None:
    """A tenant of a path publishes keys below it; nobody asks for those."""
    fetcher = Fetcher(
        private_origins=[site.origin()], ssl_context=authority.client(), resolver=Names(agent_test=[["127.0.0.1"]])
    )
    site.pages |= {
        f"/a{NEW}": signed(card_of(site.origin()), by=OWNER),
        f"/a{KEY_SET}": json.dumps(publish_jwks([OWNER.public_key])).encode(),
    }
    with pytest.raises(Exception, match="no trusted"):
        fetch_card(
            f"{site.origin()}/a", NOBODY, options=FetchOptions(fetcher=fetcher, memory=memory, on_first_use=TOFU)
        )
    assert f"/a{KEY_SET}" not in site.paths()
    assert memory.records() == ()
