"""S20: a scheme says two things at once, and each reader believes another one.

Measured here: with one line of the gate replaced, ``verify_card`` accepted a scheme with two variants and no test
noticed, because a card that is made as most are goes past another look than the rest. So every attack is made twice:
on a card of each kind, signed as it is by the trusted key, so that nothing but the gate can reject it.

The siblings are one member under two names, one name in two cases, a name that protobuf's reader in Python ends at its
NUL, and the name that JavaScript objects lose.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from a2a_trust import (
    CardVerifier,
    Fetcher,
    MalformedError,
    Origins,
    TrustedKey,
    TrustStore,
    fetch_card,
    publish_jwks,
    sign_card,
)
from a2a_trust.card.ambiguity import _are_simple_params
from a2a_trust.card.simple import read_simple_card
from a2a_trust.cli.main import main
from a2a_trust.client.verification import FetchOptions
from a2a_trust.keys import LocalSigner
from a2a_trust.keys.files import save_private_key
from a2a_trust.middleware.card import CardFile, FixedCard
from tests.attacks.forgery import JSONObject, canonical, entry, pruned, served, signs
from tests.attacks.verifying import HOST, NOW, ORIGIN, refusal, verified
from tests.base.net.test_fetcher import Authority, Names
from tests.client.agents import NEW, OLD, OWNER, serving_agent
from tests.tables import walk

Change = Callable[[JSONObject], None]

#: The five variants of a scheme, each complete.
VARIANTS: Final[dict[str, JSONObject]] = {
    "apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"},
    "httpAuthSecurityScheme": {"scheme": "Bearer"},
    "oauth2SecurityScheme": {
        "flows": {"clientCredentials": {"tokenUrl": "https://login.example.com/token", "scopes": {"read": "Read"}}}
    },
    "openIdConnectSecurityScheme": {"openIdConnectUrl": "https://login.example.com"},
    "mtlsSecurityScheme": {"description": "A certificate"},
}
FLOWS: Final = ("authorizationCode", "implicit", "password", "deviceCode")
FLOW: Final = {"tokenUrl": "https://evil.example/token", "scopes": {"read": "Read"}}


def _add(pointer: str, name: str, value: Any, *, first: bool = False) -> Change:
    """The change that adds a member to the object at a pointer."""

    def change(card: JSONObject) -> None:
        place: Any = card
        for step in pointer.split("/")[1:]:
            place = place[int(step) if isinstance(place, list) else step]
        members = {name: value} | place if first else place | {name: value}
        place.clear()
        place.update(members)

    return change


def _changes() -> Iterator[tuple[str, Change]]:
    for name, value in VARIANTS.items():
        if name != "httpAuthSecurityScheme":
            for first in (True, False):
                yield (
                    f"{name}, {'first' if first else 'last'}",
                    _add("/securitySchemes/bearer", name, value, first=first),
                )
            yield f"{name}, with nothing in it", _add("/securitySchemes/bearer", name, {})
    yield "mtls_security_scheme", _add("/securitySchemes/bearer", "mtls_security_scheme", {"description": "x"})
    for flow in FLOWS:
        yield flow, _add("/securitySchemes/oauth/oauth2SecurityScheme/flows", flow, FLOW)
    yield "null twin", _add("", "security_schemes", None)
    yield "other twin", _add("", "security_requirements", [{"schemes": {"key": {"list": ["x"]}}}])
    yield "case twin", _add("", "SecurityRequirements", [{"schemes": {"key": {"list": ["x"]}}}])
    yield "skill's twin", _add("/skills/0", "securityrequirements", [{"schemes": {"key": {"list": ["x"]}}}])
    yield "NUL twin", _add("", "securityRequirements\0", [{"schemes": {"key": {"list": ["x"]}}}])
    yield "interface's NUL twin", _add("/supportedInterfaces/0", "url\0x", "https://evil.example/rpc")
    yield "invisible twin", _add("/skills/0", "security\u200bRequirements", [{"schemes": {"key": {"list": ["x"]}}}])
    yield "lost scheme", _add("/securitySchemes", "__proto__", {"mtlsSecurityScheme": {"description": "x"}})
    yield "lost requirement", _add("/securityRequirements/0/schemes", "__proto__", {"list": ["read"]})
    scopes = "/securitySchemes/oauth/oauth2SecurityScheme/flows/clientCredentials/scopes"
    yield "lost scope", _add(scopes, "__proto__", "Everything")
    yield "lost variant", _add("/securitySchemes/bearer", "__proto__", {"mtlsSecurityScheme": {"description": "x"}})


CHANGES: Final = [pytest.param(change, id=name) for name, change in _changes()]
WORDS: Final = "exclude each other|are one field|only in case|JavaScript clients lose|not printable"


@pytest.fixture(params=["made as most are", "made otherwise"])
def sound(request: pytest.FixtureRequest, card: JSONObject) -> JSONObject:
    """A card that the gate takes on its short way, or on its long one."""
    if request.param == "made otherwise":
        card["securityRequirements"] = [{"schemes": {"oauth": {"list": ["read"]}}}]
        assert read_simple_card(json.dumps(card).encode(), _are_simple_params) is None
        return card
    usual = pruned(card)
    del usual["capabilities"]["extensions"]
    assert read_simple_card(json.dumps(usual).encode(), _are_simple_params) is not None
    return usual


def signed_as_it_is(card: JSONObject, owner: LocalSigner) -> bytes:
    header = {"alg": owner.alg, "kid": owner.kid, "cty": "application/json;a2a-form=served"}
    return served(card, entry(header, canonical(card), signs(owner.private_key, owner.alg)))


def test_the_cards_of_these_attacks_are_good_before_they_are_changed(
    sound: JSONObject, trust: TrustStore, owner: LocalSigner
) -> None:
    assert verified(signed_as_it_is(sound, owner), trust).card == sound
    assert sign_card(sound, owner).payload


@walk("change", CHANGES)
def test_it_is_rejected_by_everything_that_verifies_or_signs(
    sound: JSONObject, trust: TrustStore, owner: LocalSigner, change: Change
) -> None:
    change(sound)
    document = signed_as_it_is(sound, owner)
    refusal(MalformedError, document, trust, match=WORDS)
    refusal(MalformedError, json.loads(document), trust, match=WORDS)
    with pytest.raises(MalformedError, match=WORDS):
        CardVerifier(trust, clock=lambda: NOW).verify(document, origin=ORIGIN)
    for given in (sound, json.dumps(sound).encode(), document):
        with pytest.raises(MalformedError, match=WORDS):
            sign_card(given, owner)


@walk("change", CHANGES)
def test_it_is_not_served_as_our_own_card(
    sound: JSONObject, trust: TrustStore, owner: LocalSigner, change: Change, tmp_path: Path
) -> None:
    path = tmp_path / "card.json"
    path.write_bytes(signed_as_it_is(sound, owner))
    assert CardFile(path, trust=trust).document(time.time()).body == path.read_bytes()
    change(sound)
    path.write_bytes(signed_as_it_is(sound, owner))
    with pytest.raises(MalformedError, match=WORDS):
        CardFile(path, trust=trust)
    with pytest.raises(MalformedError, match=WORDS):
        FixedCard(path.read_bytes(), trust=trust)


def test_the_command_line_rejects_it(
    sound: JSONObject,
    owner: LocalSigner,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("A2A_SIGN_KEY_FILE", "key.jwk")
    save_private_key(tmp_path / "key.jwk", owner, format="jwk")
    Path("keys.json").write_text(json.dumps(publish_jwks([owner.public_key])))
    commands = [["verify", "card.json", "--jwks", "keys.json", "--any-origin"], ["sign", "card.json", "-o", "out.json"]]
    Path("card.json").write_bytes(signed_as_it_is(sound, owner))
    assert [main(command) for command in commands] == [0, 0]
    Path("out.json").unlink()
    capsys.readouterr()
    for _, change in _changes():
        changed = copy.deepcopy(sound)
        change(changed)
        Path("card.json").write_bytes(signed_as_it_is(changed, owner))
        for command in [
            *commands,
            ["inspect", "card.json", "--jwks", "keys.json", "--any-origin"],
            ["lint", "card.json"],
        ]:
            assert main(command) == 1, command
        said = "".join(capsys.readouterr())
        assert any(words in said for words in WORDS.split("|"))
    assert not Path("out.json").exists()


def test_an_agent_that_serves_it_has_no_card(sound: JSONObject, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    trust = TrustStore([TrustedKey(key=OWNER.public_key, origins=Origins(HOST))])
    with serving_agent(authority.server(HOST)) as agent:
        fetcher = Fetcher(
            private_origins=[agent.origin(HOST)],
            ssl_context=authority.client(),
            resolver=Names(agent_example_com=[["127.0.0.1"]]),
            timeout=5.0,
        )
        agent.pages[NEW] = agent.pages[OLD] = signed_as_it_is(sound, OWNER)
        assert fetch_card(agent.origin(HOST), trust, options=FetchOptions(fetcher=fetcher)).card == sound
        for _, change in _changes():
            changed = copy.deepcopy(sound)
            change(changed)
            agent.pages[NEW] = agent.pages[OLD] = signed_as_it_is(changed, OWNER)
            with pytest.raises(MalformedError, match=WORDS):
                fetch_card(agent.origin(HOST), trust, options=FetchOptions(fetcher=fetcher))
