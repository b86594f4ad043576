"""What a2a-python 0.3 signs, run for real, verifies here in its own form; nothing that it leaves open is verified."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any, Final

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from a2a_trust import (
    CardVerificationError,
    MalformedError,
    Origins,
    TrustedKey,
    TrustStore,
    VerifiedCard,
    generate_signer,
    merged_card,
    verify_card,
)
from a2a_trust.card.schema import DEFAULTS_0_3, MESSAGES_0_3, SCHEMES_0_3, Kind, Presence
from a2a_trust.card.view import generation_of
from a2a_trust.errors import (
    FailureReason,
    PartialSignatureError,
    SigningError,
    UncoveredFieldsError,
    UntrustedCardError,
)
from a2a_trust.keys import LocalSigner, SigningTool, UnsafeAnyOrigin
from a2a_trust.keys.jwk import private_key_to_jwk
from a2a_trust.signing import Coverage, Form
from a2a_trust.signing.forms import UNVERIFIED_BY_PRUNING
from a2a_trust.signing.sign import sign_card
from tests.interop.left_out import left_out
from tests.interop.made_cards import CANONICAL_TRAPS
from tests.interop.sdk_process import SdkProcess
from tests.signing.cards import Card, full_card
from tests.signing.json_values import documents, texts
from tests.signing.making import signed_in

SIGNER: Final = generate_signer("ES256")
PRIVATE_JWK: Final = private_key_to_jwk(SIGNER.private_key, alg=SIGNER.alg, kid=SIGNER.kid)


# --- the table of members


#: How the SDK declares a field of each kind: its shape and its type.
DECLARED: Final = {
    Kind.STRING: {("single", "string")},
    Kind.BOOL: {("single", "bool")},
    Kind.STRINGS: {("list", "string")},
    Kind.STRING_MAP: {("map", "string")},
    Kind.MESSAGE: {("single", "message")},
    Kind.MESSAGES: {("list", "message")},
    Kind.MESSAGE_MAP: {("map", "message")},
    Kind.STRUCT: {("map", "any"), ("list", "any")},
}


@pytest.mark.real
def test_the_table_of_0_3_equals_the_models_of_the_released_sdk(python_0_3_26: SdkProcess) -> None:
    models = python_0_3_26.describe()
    schemes = [name for name in models if name.endswith("SecurityScheme")]
    assert len(schemes) == 5
    models["SecurityScheme"] = [field for name in schemes for field in models.pop(name)]
    del models["AgentCardSignature"]
    assert models.keys() == MESSAGES_0_3.keys()
    for message, fields in models.items():
        left_out = {"signatures"} if message == "AgentCard" else {"type"} if message == "SecurityScheme" else set()
        table = MESSAGES_0_3[message]
        assert {field["name"] for field in fields} == table.keys() | left_out
        for field in fields:
            if field["name"] in left_out:
                continue
            ours = table[field["name"]]
            # `in` is a word of Python, so the SDK's model calls it in_; that spelling is unknown here
            assert ours.proto_name == field["proto_name"].removesuffix("_")
            assert (field["shape"], field["type"]) in DECLARED[ours.kind], field
            assert ours.message == (field["message"] or "")
            if message != "SecurityScheme":  # these differ by the scheme's type
                assert (ours.presence is Presence.REQUIRED) is field["required"], field


@pytest.mark.real
def test_the_members_of_each_type_of_scheme_equal_the_models_of_the_released_sdk(python_0_3_26: SdkProcess) -> None:
    models = python_0_3_26.describe()
    found = {}
    for name in models:
        if name.endswith("SecurityScheme"):
            fields = {field["name"]: field for field in models[name]}
            type_ = fields.pop("type")["default"]
            needed = {field for field in fields if fields[field]["required"]}
            found[type_] = (needed, fields.keys() - needed)
    assert found == {type_: (set(needed), set(rest)) for type_, (needed, rest) in SCHEMES_0_3.items()}


@pytest.mark.real
def test_the_defaults_of_0_3_are_those_of_the_released_sdk(python_0_3_26: SdkProcess) -> None:
    models = python_0_3_26.describe()
    defaults = {
        (message, field["name"]): field["default"]
        for message, fields in models.items()
        for field in fields
        if field["default"] is not None
    }
    # A scheme's type is never signed: it can have no other value than its default.
    types = {key for key in defaults if key[1] == "type"}
    assert len(types) == 5
    assert {f["type"] for fields in models.values() for f in fields if f["name"] == "type"} == {"literal"}
    assert {key: value for key, value in defaults.items() if key not in types} == {
        ("AgentCard", name): value for name, value in DEFAULTS_0_3.items()
    }


# --- all that it can sign


def _some(needed: dict[str, Any], **optional: Any) -> st.SearchStrategy[Card]:
    """Members that the SDK's models need, and others, absent, null or there."""
    return st.fixed_dictionaries(needed, optional={name: st.none() | value for name, value in optional.items()})


_texts = st.sampled_from(["", "x", "é\U0001f600", "JSONRPC", "0.3.0"])
_urls = st.sampled_from(["", "https://old.example.com/rest", "old.example.com:443"])
_lists = st.lists(_texts, max_size=3)
_scopes = st.dictionaries(texts, _texts, max_size=2)
_security = st.lists(st.dictionaries(texts, _lists, max_size=2), max_size=2)
_flows = _some(
    {},
    authorizationCode=_some({"authorizationUrl": _texts, "tokenUrl": _texts, "scopes": _scopes}, refreshUrl=_texts),
    clientCredentials=_some({"tokenUrl": _texts, "scopes": _scopes}, refreshUrl=_texts),
    implicit=_some({"authorizationUrl": _texts, "scopes": _scopes}, refreshUrl=_texts),
    password=_some({"tokenUrl": _texts, "scopes": _scopes}, refreshUrl=_texts),
)
_schemes = st.one_of(
    _some(
        {"type": st.just("apiKey"), "in": st.sampled_from(["header", "query", "cookie"]), "name": _texts},
        description=_texts,
    ),
    _some({"type": st.just("http"), "scheme": _texts}, bearerFormat=_texts, description=_texts),
    _some({"type": st.just("oauth2"), "flows": _flows}, oauth2MetadataUrl=_texts, description=_texts),
    _some({"type": st.just("openIdConnect"), "openIdConnectUrl": _texts}, description=_texts),
    _some({"type": st.just("mutualTLS")}, description=_texts),
)
_extensions = _some(
    {"uri": _texts}, description=_texts, required=st.booleans(), params=st.dictionaries(texts, documents, max_size=3)
)
_skills = _some(
    {"id": _texts, "name": _texts, "description": _texts, "tags": _lists},
    examples=_lists,
    inputModes=_lists,
    outputModes=_lists,
    security=_security,
)
#: Every member of every model of 0.3, absent, null, empty, at its default, and otherwise.
cards_of_0_3: Final = _some(
    {
        "url": st.just("https://old.example.com/a2a"),
        "name": _texts,
        "description": _texts,
        "version": _texts,
        "capabilities": _some(
            {},
            streaming=st.booleans(),
            pushNotifications=st.booleans(),
            stateTransitionHistory=st.booleans(),
            extensions=st.lists(_extensions, max_size=2),
        ),
        "defaultInputModes": _lists,
        "defaultOutputModes": _lists,
        "skills": st.lists(_skills, max_size=2),
    },
    protocolVersion=_texts,
    preferredTransport=_texts,
    additionalInterfaces=st.lists(_some({"url": _urls, "transport": _texts}), max_size=2),
    provider=_some({"organization": _texts, "url": _texts}),
    documentationUrl=_texts,
    iconUrl=_texts,
    securitySchemes=st.dictionaries(texts, _schemes, max_size=3),
    security=_security,
    supportsAuthenticatedExtendedCard=st.booleans(),
)


def _sign(sdk: SdkProcess, card: Card, key: dict[str, Any] = PRIVATE_JWK) -> Card:
    """The card, signed by the SDK and as its server sends it."""
    signed = sdk.sign(json.dumps(card), key)
    assert signed is not None
    document: Card = json.loads(signed)
    return document


def _trust(tool: SigningTool | None, *, signer: LocalSigner = SIGNER, host: str = "") -> TrustStore:
    origins = Origins(host) if host else UnsafeAnyOrigin()
    return TrustStore([TrustedKey(key=signer.public_key, origins=origins, signer=tool)])


BY_PYTHON: Final = _trust(SigningTool.A2A_PYTHON)
OTHER_TOOLS: Final = (None, SigningTool.A2A_JS, SigningTool.WHOLE, SigningTool.A2A_TRUST)


def _verify(document: Card, trust: TrustStore = BY_PYTHON, *, coverage: Coverage | None = None) -> VerifiedCard:
    return verify_card(
        json.dumps(document).encode(), trust, origin=UnsafeAnyOrigin(), now=0, coverage=coverage or Coverage.WHOLE_CARD
    )


def _without_signatures(document: Card) -> Card:
    return {name: value for name, value in document.items() if name != "signatures"}


@pytest.mark.real
@settings(max_examples=120)
@given(cards_of_0_3)
def test_whatever_the_sdk_signs_is_read_as_it_signed_it_and_all_else_is_named(
    python_0_3_26: SdkProcess, card: Card
) -> None:
    """As its server sends the card, and as it was written by hand, with nulls."""
    served = _sign(python_0_3_26, card)
    for document in (served, {**card, "signatures": served["signatures"]}):
        assert python_0_3_26.refusal(json.dumps(document), SIGNER.public_key.to_jwk()) is None
        verified = _verify(document, coverage=Coverage.SIGNED_PART_ONLY)
        assert (verified.form, verified.unverified) == (Form.V0_3_PYTHON, UNVERIFIED_BY_PRUNING)
        signed = json.loads(verified.payload)
        assert set(verified.dropped) == left_out(_without_signatures(document), signed)
        assert len(verified.dropped) == len(set(verified.dropped))
        if verified.dropped:
            with pytest.raises(UncoveredFieldsError) as caught:
                _verify(document)
            assert caught.value.pointers == verified.dropped
        else:
            assert _verify(document).payload == verified.payload
        for shown in (document, {**signed, "signatures": served["signatures"]}):
            with pytest.raises(PartialSignatureError):  # nothing that it signs shows that it drops nothing
                _verify(shown, _trust(None))


@st.composite
def _changed_cards(draw: st.DrawFn) -> Card:
    """Cards of 0.3 in which one member was taken out, set to null or replaced by one of another, or one was added."""
    card: Card = json.loads(json.dumps(draw(cards_of_0_3)))
    objects = [card, *_objects(card)]
    for _ in range(draw(st.integers(0, 2))):
        holder = draw(st.sampled_from(objects))
        name = draw(st.sampled_from([*holder, "in", "in_", "flows", "scheme", "bearerFormat", "type", "x", "params"]))
        value: Any = draw(
            st.sampled_from([None, "", "x", "body", "http", "oauth2", {}, {"clientCredentials": {}}, [], [{}], True])
        )
        if draw(st.booleans()):
            holder.pop(name, None)
        else:
            holder[name] = value
    return card


def _objects(value: Any) -> list[Card]:
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [each for child in children for each in ([child] if isinstance(child, dict) else []) + _objects(child)]


@pytest.mark.real
@settings(max_examples=400)
@given(_changed_cards())
def test_a_card_that_is_signed_here_verifies_in_the_sdk_unless_the_note_says_not(
    python_0_3_26: SdkProcess, card: Card
) -> None:
    try:
        signed = sign_card(card, SIGNER, companion=True)
    except MalformedError:
        return
    except SigningError as error:
        if "rl: URL: " not in str(error):  # an interface that says no host, as "http"
            raise
        return
    assume(generation_of(card).is_legacy)  # some have lost what makes them one of 0.3
    refusal = python_0_3_26.refusal(json.dumps(signed.card), SIGNER.public_key.to_jwk())
    assert signed.companion in (None, Form.V0_3_PYTHON)
    if not signed.rejections:
        assert refusal is None
    elif not signed.rejections[0].partition(" models of A2A 0.3 at ")[2].partition(",")[0].endswith("/type"):
        assert refusal is not None


@pytest.mark.real
@pytest.mark.parametrize("alg", ["EdDSA", "RS256"])
def test_other_algorithms_of_the_sdk_verify_here(python_0_3_26: SdkProcess, alg: str) -> None:
    signer = generate_signer(alg, rsa_bits=2048)
    key = private_key_to_jwk(signer.private_key, alg=alg, kid=signer.kid)
    document = _sign(python_0_3_26, CARD, key)
    verified = _verify(document, _trust(SigningTool.A2A_PYTHON, signer=signer), coverage=Coverage.SIGNED_PART_ONLY)
    assert (verified.key.alg, verified.form) == (alg, Form.V0_3_PYTHON)


@pytest.mark.real
def test_members_under_their_names_in_python_are_read_too(python_0_3_26: SdkProcess) -> None:
    spelled = json.loads(
        json.dumps(CARD).replace("additionalInterfaces", "additional_interfaces").replace("inputModes", "input_modes")
    )
    assert spelled != CARD
    document = {**spelled, "signatures": _sign(python_0_3_26, CARD)["signatures"]}
    assert _verify(document, coverage=Coverage.SIGNED_PART_ONLY).payload == _verify(_signed_part(document)).payload


# --- attacks


CARD: Final[Card] = {
    "protocolVersion": "0.3.0",
    "name": "Old Agent",
    "description": "Speaks 0.3",
    "url": "https://old.example.com/a2a",
    "preferredTransport": "JSONRPC",
    "additionalInterfaces": [{"url": "https://old.example.com/rest", "transport": "HTTP+JSON"}],
    "version": "1.0.0",
    "capabilities": {
        "streaming": False,
        "extensions": [{"uri": "https://example.com/ext", "required": True, "params": {"hosts": ["a"], "limit": 5}}],
    },
    "securitySchemes": {
        "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        "tls": {"type": "mutualTLS", "description": "Ask for a certificate"},
        "oauth": {
            "type": "oauth2",
            "flows": {"clientCredentials": {"tokenUrl": "https://id.example.com/token", "scopes": {"read": "Read"}}},
        },
    },
    "security": [{"key": [], "oauth": ["read"]}, {"key": []}],
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [
        {
            "id": "s",
            "name": "S",
            "description": "Does",
            "tags": ["t"],
            "inputModes": ["text/plain"],
            "security": [{"oauth": ["read"]}],
        }
    ],
    "supportsAuthenticatedExtendedCard": True,
}


def put_params(params: Any) -> Card:
    return {**CARD, "capabilities": {"extensions": [{"uri": "https://example.com/ext", "params": params}]}}


#: What the SDK does not sign of CARD as its server sends it.
LEFT_OPEN: Final = {
    "/protocolVersion",
    "/preferredTransport",
    "/securitySchemes/key/type",
    "/securitySchemes/tls/type",
    "/securitySchemes/oauth/type",
    "/security/0/key",
    "/security/1",
}


def _signed_part(document: Card) -> Card:
    """The signed part, served alone: the card of an attacker who takes everything away that nobody would miss."""
    verified = _verify(document, coverage=Coverage.SIGNED_PART_ONLY)
    return {**json.loads(verified.payload), "signatures": document["signatures"]}


@pytest.fixture(params=["as the SDK signs it", pytest.param("by the SDK", marks=pytest.mark.real)])
def document(request: pytest.FixtureRequest) -> Card:
    """CARD, signed in the form of the SDK."""
    if request.param == "by the SDK":
        signed = _sign(request.getfixturevalue("python_0_3_26"), CARD)
        assert _without_signatures(signed) == CARD
        return signed
    return signed_in(deepcopy(CARD), Form.V0_3_PYTHON, SIGNER)


Change = Callable[[Card], Any]

#: Changes that the SDK does not see, and what is left open after them.
UNSEEN: Final[dict[str, tuple[Change, set[str]]]] = {
    "nothing": (lambda card: None, LEFT_OPEN),
    "a member that nobody knows is added": (lambda card: card.update(x=1), LEFT_OPEN | {"/x"}),
    "0.1's way to say who may call is added": (
        lambda card: card.update(authentication={"schemes": ["public"]}),
        LEFT_OPEN | {"/authentication"},
    ),
    "1.0's way to say who may call is added": (
        lambda card: card.update(securityRequirements=[{}]),
        LEFT_OPEN | {"/securityRequirements"},
    ),
    "an alternative that lets everybody in is added": (
        lambda card: card["security"].append({}),
        LEFT_OPEN | {"/security/2"},
    ),
    "an alternative without scopes is removed": (lambda card: card["security"].pop(1), LEFT_OPEN - {"/security/1"}),
    "the second factor is removed": (lambda card: card["security"][0].pop("key"), LEFT_OPEN - {"/security/0/key"}),
    "a second factor is added": (
        lambda card: card["security"][0].update(tls=[]),
        LEFT_OPEN | {"/security/0/tls"},
    ),
    "a skill is opened to everybody": (
        lambda card: card["skills"][0]["security"].append({}),
        LEFT_OPEN | {"/skills/0/security/1"},
    ),
    "a client certificate becomes a password in the URL": (
        lambda card: card["securitySchemes"]["tls"].update(type="apiKey"),
        LEFT_OPEN,
    ),
    "a scheme is added": (
        lambda card: card["securitySchemes"].update(free={"type": "mutualTLS"}),
        LEFT_OPEN | {"/securitySchemes/free"},
    ),
    "a scheme of 1.0 is added to one of 0.3": (
        lambda card: card["securitySchemes"]["key"].update(httpAuthSecurityScheme={"scheme": "basic"}),
        LEFT_OPEN | {"/securitySchemes/key/httpAuthSecurityScheme"},
    ),
    "an allow-list is added, and empty": (
        lambda card: card["capabilities"]["extensions"][0]["params"].update(deny=[]),
        LEFT_OPEN | {"/capabilities/extensions/0/params/deny"},
    ),
    "what the models say anyway is removed": (
        lambda card: (card.pop("protocolVersion"), card.pop("preferredTransport")),
        LEFT_OPEN - {"/protocolVersion", "/preferredTransport"},
    ),
    "what the models say anyway is emptied": (
        lambda card: card.update(protocolVersion=None, preferredTransport=""),
        LEFT_OPEN,
    ),
}


@pytest.mark.parametrize(("change", "left_open"), UNSEEN.values(), ids=UNSEEN)
def test_what_the_sdk_does_not_see_is_named_and_left_away(document: Card, change: Change, left_open: set[str]) -> None:
    signed = _verify(document, coverage=Coverage.SIGNED_PART_ONLY)
    change(document)
    with pytest.raises(UncoveredFieldsError) as caught:
        _verify(document)
    assert set(caught.value.pointers) == left_open
    verified = _verify(document, coverage=Coverage.SIGNED_PART_ONLY)
    assert verified.payload == signed.payload
    assert verified.unverified == UNVERIFIED_BY_PRUNING
    assert any("without a trace" in warning for warning in verified.warnings)


#: Changes of what was signed, or into a card that is not of 0.3.
SEEN: Final[dict[str, Change]] = {
    "another host": lambda card: card.update(url="https://evil.example/a2a"),
    "another host beside": lambda card: card["additionalInterfaces"].append({"url": "https://evil.example"}),
    "another transport": lambda card: card.update(preferredTransport="GRPC"),
    "another version": lambda card: card.update(protocolVersion="0.2.5"),
    "a value where there was none": lambda card: card.update(iconUrl="https://evil.example/icon"),
    "a requirement with scopes is removed": lambda card: card["security"].pop(0),
    "all requirements are removed": lambda card: card.pop("security"),
    "a scope is removed": lambda card: card["security"][0].update(oauth=[]),
    "a scheme is removed": lambda card: card["securitySchemes"].pop("key"),
    "a key goes into the URL": lambda card: card["securitySchemes"]["key"].update({"in": "query"}),
    "false becomes null": lambda card: card["capabilities"].update(streaming=None),
    "an integer becomes a fraction": lambda card: card["capabilities"]["extensions"][0]["params"].update(limit=5.0),
    "interfaces of 1.0": lambda card: card.update(
        supportedInterfaces=[{"url": "https://evil.example", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]
    ),
}


@pytest.mark.parametrize(
    "coverage", [Coverage.WHOLE_CARD, Coverage.SIGNED_PART_ONLY], ids=["whole card", "signed part only"]
)
@pytest.mark.parametrize("change", SEEN.values(), ids=SEEN)
def test_what_the_sdk_signed_cannot_be_changed(document: Card, change: Change, coverage: Coverage) -> None:
    change(document)
    with pytest.raises(CardVerificationError) as caught:
        _verify(document, coverage=coverage)
    assert type(caught.value) is CardVerificationError
    assert [failure.reason for failure in caught.value.failures] == [FailureReason.BAD_SIGNATURE]


def test_the_removal_that_nobody_can_see_is_told_as_unverified(document: Card) -> None:
    """Served card and signed payload are equal, and the key belongs to somebody whose SDK prunes."""
    verified = _verify(_signed_part(document))
    assert (verified.form, verified.dropped, verified.unverified) == (Form.V0_3_PYTHON, (), UNVERIFIED_BY_PRUNING)
    assert "security" in verified.card
    assert "type" not in verified.card["securitySchemes"]["key"]


@pytest.mark.parametrize(
    "coverage", [Coverage.WHOLE_CARD, Coverage.SIGNED_PART_ONLY], ids=["whole card", "signed part only"]
)
@pytest.mark.parametrize("tool", OTHER_TOOLS)
def test_only_a_key_of_the_sdk_signs_in_its_form(document: Card, tool: SigningTool | None, coverage: Coverage) -> None:
    with pytest.raises(PartialSignatureError) as caught:
        _verify(document, _trust(tool), coverage=coverage)
    assert [failure.reason for failure in caught.value.failures] == [FailureReason.PARTIAL]


@pytest.mark.parametrize("tool", [None, SigningTool.A2A_TRUST])
def test_the_removal_that_nobody_can_see_is_refused_unless_the_operator_accepts_it(
    document: Card, tool: SigningTool | None
) -> None:
    with pytest.raises(PartialSignatureError) as caught:
        _verify(_signed_part(document), _trust(tool))
    assert [failure.reason for failure in caught.value.failures] == [FailureReason.PARTIAL]


@pytest.mark.real
def test_a_merged_card_is_not_verified_by_what_the_sdk_signed_of_it(python_0_3_26: SdkProcess) -> None:
    """It reads, signs and serves the members of 0.3 alone; beside those of 1.0 its signature proves neither."""
    merged = merged_card(full_card())
    served = _sign(python_0_3_26, merged)
    assert "supportedInterfaces" not in served
    assert _verify(served, coverage=Coverage.SIGNED_PART_ONLY).form is Form.V0_3_PYTHON
    with pytest.raises(CardVerificationError) as caught:
        _verify({**merged, "signatures": served["signatures"]}, coverage=Coverage.SIGNED_PART_ONLY)
    assert [failure.reason for failure in caught.value.failures] == [FailureReason.BAD_SIGNATURE]


def test_the_hosts_of_a_card_are_bound_to_the_key(document: Card) -> None:
    def prove(host: str) -> VerifiedCard:
        text = json.dumps(document).encode()
        trust = _trust(SigningTool.A2A_PYTHON, host=host)
        return verify_card(text, trust, origin=f"https://{host}", now=0, coverage=Coverage.SIGNED_PART_ONLY)

    assert prove("old.example.com").origin == "old.example.com"
    with pytest.raises(UntrustedCardError) as caught:
        prove("other.example.com")
    assert [failure.reason for failure in caught.value.failures] == [FailureReason.WRONG_ORIGIN]


# --- what is signed here


#: Changes of CARD after which the SDK cannot verify what is signed here, and the member that the note names.
UNREAD: Final[dict[str, tuple[Change, str]]] = {
    "a member that it needs is missing": (lambda card: card.pop("description"), "/description"),
    "a member that it needs is null": (lambda card: card.update(skills=None), "/skills"),
    "a member of an extension": (
        lambda card: card["capabilities"]["extensions"][0].pop("uri"),
        "/capabilities/extensions/0/uri",
    ),
    "a member of a flow": (
        lambda card: card["securitySchemes"]["oauth"]["flows"]["clientCredentials"].pop("scopes"),
        "/securitySchemes/oauth/flows/clientCredentials/scopes",
    ),
    "a member of a scheme": (lambda card: card["securitySchemes"]["key"].pop("name"), "/securitySchemes/key/name"),
    "a place that it does not know": (
        lambda card: card["securitySchemes"]["key"].update({"in": "body"}),
        "/securitySchemes/key/in",
    ),
    "a type that it does not know": (
        lambda card: card["securitySchemes"].update({"a/b": {"type": "token"}}),
        "/securitySchemes/a~1b/type",
    ),
    "a member of another type of scheme, which it drops": (
        lambda card: card["securitySchemes"]["tls"].update(scheme="Bearer"),
        "/securitySchemes/tls/scheme",
    ),
    "the same under its name in Python": (
        lambda card: card["securitySchemes"]["tls"].update(bearer_format="JWT"),
        "/securitySchemes/tls/bearerFormat",
    ),
}


@pytest.mark.real
@pytest.mark.parametrize(("change", "pointer"), UNREAD.values(), ids=UNREAD)
def test_what_the_sdk_reads_otherwise_is_named_and_gets_no_companion(
    python_0_3_26: SdkProcess, change: Change, pointer: str
) -> None:
    card = json.loads(json.dumps(CARD))
    change(card)
    signed = sign_card(card, SIGNER, companion=True)
    assert signed.companion is None
    assert f" at {pointer}, " in signed.rejections[0]
    assert python_0_3_26.refusal(json.dumps(signed.card), SIGNER.public_key.to_jwk()) is not None


@pytest.mark.real
@pytest.mark.parametrize("params", CANONICAL_TRAPS.values(), ids=CANONICAL_TRAPS)
def test_json_that_canonical_forms_disagree_about_is_signed_as_the_sdk_has_it(
    python_0_3_26: SdkProcess, params: str
) -> None:
    text = json.dumps(put_params("PARAMS")).replace('"PARAMS"', params)
    signed = sign_card(text.encode(), SIGNER, companion=True)
    assert signed.companion is Form.V0_3_PYTHON
    # As a2a-sign writes it: the text of the file stays.
    served = f'{text[:-1]},"signatures":{json.dumps(signed.card["signatures"])}}}'
    assert python_0_3_26.refusal(served, SIGNER.public_key.to_jwk()) is None
    assert python_0_3_26.refusal(json.dumps(signed.card), SIGNER.public_key.to_jwk()) is None
