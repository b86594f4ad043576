"""S14: the signature is good, and the card is another's: served by the wrong host, or pointing to one.

Seen in rossoctl (#429). Hosts are compared label by label, as every client reads them; the memory against older and
unsigned cards is another matter and not tested here.
"""

from __future__ import annotations

from typing import Any

import pytest

from a2a_trust import CardVerifier, ConfigurationError, Origins, TrustedKey, TrustStore, verify_card
from a2a_trust.errors import FailureReason, PolicyNotMetError, UntrustedCardError
from a2a_trust.keys import LocalSigner, SigningTool, UnsafeAnyOrigin, all_of
from a2a_trust.signing import Coverage
from tests.attacks.forgery import JSONObject, canonical, entry, served, signs
from tests.attacks.verifying import HOST, NOW, ORIGIN, refusal, verified
from tests.tables import walk

WRONG = FailureReason.WRONG_ORIGIN


def by(signer: LocalSigner, card: JSONObject) -> JSONObject:
    return entry({"alg": signer.alg, "kid": signer.kid}, canonical(card), signs(signer.private_key, signer.alg))


def trusting(signer: LocalSigner, *patterns: str) -> TrustStore:
    return TrustStore([TrustedKey(key=signer.public_key, origins=Origins(*patterns))])


# --- who served it -------------------------------------------------------------------------------------------------


@walk(
    "origin",
    [
        "https://evil.example",
        "evil.example",
        f"https://evil.example/{HOST}",
        f"https://evil.example/?{HOST}",
        f"https://evil.example/#@{HOST}",
        f"https://{HOST}.evil.example",
        f"https://evil-{HOST}",
        f"https://evil.{HOST}",
        "https://example.com",
        "https://com",
        "https://agent.example.co",
        "https://agent.example.comm",
        "https://agentxexample.com",
        "https://127.0.0.1",
        "https://[::1]",
    ],
)
def test_the_card_of_one_host_is_served_by_another(
    card: JSONObject, good: JSONObject, trust: TrustStore, origin: str
) -> None:
    refusal(UntrustedCardError, served(card, good), trust, WRONG, origin=origin)
    with pytest.raises(UntrustedCardError):
        CardVerifier(trust, clock=lambda: NOW).verify(served(card, good), origin=origin)


def test_a_key_that_is_trusted_for_its_own_host_speaks_for_another(
    card: JSONObject, good: JSONObject, owner: LocalSigner, mallory: LocalSigner
) -> None:
    """B's key is in the trust store, rightly: for B. B signs A's card anew, or serves a card that points to A."""
    trust = TrustStore(
        [
            TrustedKey(key=owner.public_key, origins=Origins(HOST)),
            TrustedKey(key=mallory.public_key, origins=Origins("evil.example")),
        ]
    )
    resigned = served(card, by(mallory, card))
    refusal(UntrustedCardError, resigned, trust, WRONG)
    refusal(UntrustedCardError, resigned, trust, WRONG, origin="https://evil.example")
    refusal(UntrustedCardError, served(card, good), trust, WRONG, origin="https://evil.example")
    both = served(card, by(mallory, card), good)
    assert verified(both, trust).key == owner.public_key
    refusal(UntrustedCardError, both, trust, WRONG, WRONG, origin="https://evil.example")
    own = {**card, "supportedInterfaces": [{**card["supportedInterfaces"][0], "url": "https://evil.example/a2a"}]}
    assert verified(served(own, by(mallory, own)), trust, origin="https://evil.example").card == own
    refusal(UntrustedCardError, served(own, by(mallory, own)), trust, WRONG)


@walk(
    "origin",
    [
        "",
        " ",
        f"https://{HOST}@evil.example",
        f"https://evil.example@{HOST}",
        f"https://{HOST}:pass@evil.example",
        f"https://{HOST}\\@evil.example",
        f"https://{HOST}%00.evil.example",
        f"https://{HOST}\n.evil.example",
        f"https://{HOST}.",
        f"https:{HOST}",
        f"https:///{HOST}",
        f"//{HOST}",
        "https://",
        "https://ag\u00e9nt.example.com",
        "https://agent\u3002example.com",
        "file:///etc/passwd",
        f"https://{HOST}:port",
        f"https://[{HOST}]",
        "https://*.example.com",
        None,
        1,
        b"agent.example.com",
        [HOST],
        UnsafeAnyOrigin,
    ],
)
def test_a_host_that_two_readers_read_as_two_is_no_origin(
    card: JSONObject, good: JSONObject, trust: TrustStore, origin: Any
) -> None:
    with pytest.raises(ConfigurationError, match="origin"):
        verified(served(card, good), trust, origin=origin)


def test_the_origin_cannot_be_left_out(card: JSONObject, good: JSONObject, trust: TrustStore) -> None:
    with pytest.raises(TypeError, match="origin"):
        verify_card(served(card, good), trust, now=NOW)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="origins"):
        TrustedKey(key=trust.keys[0].key)  # type: ignore[call-arg]
    with pytest.raises(ConfigurationError):
        Origins()
    for nothing in (None, (), "", HOST, [HOST]):
        with pytest.raises(ConfigurationError):
            TrustedKey(key=trust.keys[0].key, origins=nothing)  # type: ignore[arg-type]


def test_who_waives_the_origin_is_told_that_nothing_is_bound(
    card: JSONObject, good: JSONObject, owner: LocalSigner, trust: TrustStore
) -> None:
    anywhere = TrustStore([TrustedKey(key=owner.public_key, origins=UnsafeAnyOrigin())])
    for result in (
        verified(served(card, good), trust, origin=UnsafeAnyOrigin()),
        verified(served(card, good), anywhere),
        verified(served(card, good), anywhere, origin=UnsafeAnyOrigin()),
        verified(served(card, good), anywhere, origin="https://evil.example"),
    ):
        assert result.origin is None
        assert any("origin: not bound" in warning for warning in result.warnings)


# --- where it points to --------------------------------------------------------------------------------------------

FOREIGN = [
    "https://evil.example/a2a",
    "evil.example:443",
    f"https://evil.example/{HOST}",
    f"https://{HOST}.evil.example/",
    f"https://evil{HOST}/",
    f"https://sub.{HOST}/",
    "https://example.com/",
    f"https://{HOST}@evil.example/",
    f"https://evil.example@{HOST}/",
    f"https://{HOST}\\@evil.example/",
    f"https://evil.example\\@{HOST}/",
    f"https://evil.example#{HOST}",
    f"https://{HOST}./",
    f"https:/{HOST}/",
    f"https:{HOST}",
    f"//{HOST}/",
    f"/{HOST}/",
    f"https:///{HOST}/",
    f"https://{HOST}%2eevil.example/",
    f"https://{HOST}%40evil.example/",
    f" https://{HOST}/",
    f"https://{HOST}\t/",
    f"ht\ntps://{HOST}/",
    f"https://{HOST}:80:80/",
    f"https://{HOST}:evil/",
    "https://ＡＧＥＮＴ.example.com/",
    "https://agent\u3002example.com/",
    "https://agent.example\u00ad.com/",
    "https://аgent.example.com/",  # a Cyrillic letter
    "https://127.0.0.1/",
    "https://2130706433/",
    "https://[::ffff:127.0.0.1]/",
    "https://[::1]/",
    "http://169.254.169.254/latest/meta-data",
    "file:///etc/passwd",
    "data:text/plain,x",
    "javascript:alert(1)",
    "unix:/var/run/agent.sock",
    "localhost",
    "*",
    "https://*.example.com/",
    "",
    "https://" + "a" * 3_000,
]


@walk("url", FOREIGN)
def test_an_interface_is_at_a_host_that_the_key_may_not_speak_for(
    card: JSONObject, owner: LocalSigner, trust: TrustStore, url: str
) -> None:
    """The owner himself has signed it: by mistake, or because somebody else has his key."""
    second = {**card["supportedInterfaces"][1], "url": url}
    card["supportedInterfaces"] = [card["supportedInterfaces"][0], second]
    document = served(card, by(owner, card))
    refusal(UntrustedCardError, document, trust, WRONG, match="/supportedInterfaces/1/url")
    refusal(UntrustedCardError, document, trust, WRONG, origin=UnsafeAnyOrigin())
    refusal(UntrustedCardError, document, trust, WRONG, coverage=Coverage.SIGNED_PART_ONLY)


@pytest.mark.parametrize(
    ("members", "pointer"),
    [
        ({"url": "https://evil.example/"}, "/url"),
        ({"supportedInterfaces": [], "url": "https://evil.example/"}, "/url"),
        ({"additionalInterfaces": [{"url": "https://evil.example/", "transport": "X"}]}, "/additionalInterfaces/0/url"),
        ({"additional_interfaces": [{"url": "https://evil.example/"}]}, "/additional_interfaces/0/url"),
    ],
)
def test_a_legacy_member_points_to_another_host(
    card: JSONObject, owner: LocalSigner, whole_trust: TrustStore, members: JSONObject, pointer: str
) -> None:
    card.update(members)
    refusal(UntrustedCardError, served(card, by(owner, card)), whole_trust, WRONG, match=pointer)


def test_the_interfaces_stand_under_their_proto_name(card: JSONObject, owner: LocalSigner, trust: TrustStore) -> None:
    card["supported_interfaces"] = card.pop("supportedInterfaces")
    assert verified(served(card, by(owner, card)), trust).card == card
    card["supported_interfaces"][0]["url"] = "https://evil.example/"
    refusal(UntrustedCardError, served(card, by(owner, card)), trust, WRONG, match="/supported_interfaces/0/url")


@pytest.mark.parametrize("tool", [SigningTool.A2A_PYTHON, SigningTool.A2A_JS, SigningTool.WHOLE])
def test_a_key_of_an_sdk_is_bound_to_its_hosts_too(card: JSONObject, owner: LocalSigner, tool: SigningTool) -> None:
    trust = TrustStore([TrustedKey(key=owner.public_key, origins=Origins(HOST), signer=tool)])
    del card["securitySchemes"], card["securityRequirements"], card["skills"], card["capabilities"]
    card["supportedInterfaces"][0]["url"] = "https://evil.example/"
    refusal(UntrustedCardError, served(card, by(owner, card)), trust, WRONG, coverage=Coverage.SIGNED_PART_ONLY)


def test_several_keys_must_each_be_trusted_for_every_host(
    card: JSONObject, owner: LocalSigner, ed_owner: LocalSigner
) -> None:
    trust = TrustStore(
        [
            TrustedKey(key=owner.public_key, origins=Origins(HOST, "second.example.com"), name="first"),
            TrustedKey(key=ed_owner.public_key, origins=Origins(HOST), name="second"),
        ]
    )
    card["supportedInterfaces"][1]["url"] = "https://second.example.com/"
    document = served(card, by(owner, card), by(ed_owner, card))
    assert verified(document, trust).key == owner.public_key
    refusal(PolicyNotMetError, document, trust, WRONG, policy=all_of("first", "second"))


# --- where a label ends --------------------------------------------------------------------------------------------


@walk(
    ("pattern", "host"),
    [
        ("*.example.com", "example.com"),
        ("*.example.com", "badexample.com"),
        ("*.example.com", "bad-example.com"),
        ("*.example.com", "example.com.evil.example"),
        ("*.example.com", "a.example.com.evil.example"),
        ("*.example.com", "a.example.co"),
        ("*.example.com", "a.xexample.com"),
        ("*.example.com", "aexample.com"),
        ("example.com", "a.example.com"),
        ("example.com", "xexample.com"),
        ("a.example.com", "b.a.example.com"),
        ("10.0.0.1", "110.0.0.1"),
        ("[::1]", "[::11]"),
    ],
)
def test_a_host_that_only_looks_like_a_covered_one(
    card: JSONObject, owner: LocalSigner, pattern: str, host: str
) -> None:
    card["supportedInterfaces"] = []
    document = served(card, by(owner, card))
    refusal(UntrustedCardError, document, trusting(owner, pattern), WRONG, origin=f"https://{host}/")
    card["supportedInterfaces"] = [{"url": f"https://{host}/", "protocolBinding": "X", "protocolVersion": "1.0"}]
    document = served(card, by(owner, card))
    trust = trusting(owner, pattern, "asked.example")
    refusal(UntrustedCardError, document, trust, WRONG, origin="https://asked.example/", match="/supportedInterfaces/0")


@walk(
    "pattern",
    [
        "",
        "*",
        "*.",
        "*.com",
        "*example.com",
        "a*.example.com",
        "*.*.example.com",
        "a.*.com",
        ".example.com",
        "example.com.",
        "https://example.com",
        "example.com:443",
        "example.com/",
        "user@example.com",
        "exa mple.com",
        "exämple.com",
        "**.example.com",
        "example..com",
        "-example.com",
        "%2a.example.com",
    ],
)
def test_a_pattern_that_covers_more_than_it_says_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigurationError):
        Origins(pattern)
    with pytest.raises(ConfigurationError):
        Origins("good.example.com", pattern)


@walk(
    ("pattern", "url"),
    [
        (HOST, f"https://{HOST}"),
        (HOST, f"https://{HOST}:8443/a2a?x=y#z"),
        (HOST, "HTTPS://Agent.EXAMPLE.com/"),
        ("Agent.Example.Com", f"https://{HOST}/"),
        (HOST, f"{HOST}:443"),
        ("*.example.com", f"https://{HOST}/"),
        ("*.example.com", "https://a.b.example.com/"),
        ("xn--bcher-kva.example", "https://xn--bcher-kva.example/"),
        ("[::1]", "https://[::1]:8080/"),
    ],
)
def test_control_a_covered_host_is_read_as_one(card: JSONObject, owner: LocalSigner, pattern: str, url: str) -> None:
    card["supportedInterfaces"] = [{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]
    result = verified(served(card, by(owner, card)), trusting(owner, pattern), origin=url)
    assert result.card == card
    assert result.origin is not None
    assert result.warnings == ()


def test_control_the_card_of_the_host_that_was_asked(card: JSONObject, good: JSONObject, trust: TrustStore) -> None:
    assert verified(served(card, good), trust, origin=ORIGIN).origin == HOST
