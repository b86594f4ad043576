"""Cards that released SDKs sign, run for real: by a key of that SDK they verify here, or what is not signed is named.

Three ways a card leaves such an SDK: ``printed`` by the Python SDK, ``served`` by its server (which adds the members
of 0.3 after signing when an interface speaks 0.3 or does not say what it speaks), and as JavaScript signs plain JSON
(everything stays in the card, whatever the signature covers).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from a2a_trust import Origins, TrustedKey, TrustStore, VerifiedCard, generate_signer, verify_card
from a2a_trust.card.schema import MESSAGES
from a2a_trust.errors import FailureReason, PartialSignatureError, UncoveredFieldsError, UntrustedCardError
from a2a_trust.keys import LocalSigner, SigningTool, UnsafeAnyOrigin
from a2a_trust.keys.jwk import private_key_to_jwk
from a2a_trust.signing import Coverage, Form
from tests.interop.corpus import EVERYWHERE, load_card
from tests.interop.left_out import left_out
from tests.interop.made_cards import CANONICAL_TRAPS, EVERY_FIELD, EVERY_FIELD_AT_ITS_DEFAULT, card_with_params
from tests.interop.sdk_process import SdkProcess
from tests.tables import walk


@dataclass(frozen=True)
class Way:
    """One SDK and the way that its card takes into the world."""

    sdk: str
    form: Form
    reader: str
    wire: str

    @property
    def tool(self) -> SigningTool:
        return SigningTool.A2A_JS if self.sdk.startswith("js") else SigningTool.A2A_PYTHON

    @property
    def told(self) -> tuple[Form, ...]:
        """The form of the SDK, and the weaker ones of the same tool: told where their bytes are the same."""
        forms = (Form.V0_3_PYTHON, Form.PRUNED_LEGACY, Form.PRUNED)
        return (self.form,) if self.sdk.startswith("js") else forms[: forms.index(self.form) + 1]

    @property
    def column(self) -> str:
        return "js" if self.sdk.startswith("js") else self.wire


pytestmark = pytest.mark.real

WAYS: Final = (
    Way("python_1_3_0", Form.PRUNED, "plain", "printed"),
    Way("python_1_3_0", Form.PRUNED, "plain", "served"),
    Way("python_1_0_0", Form.PRUNED_LEGACY, "plain", "printed"),
    Way("python_1_0_0", Form.PRUNED_LEGACY, "plain", "served"),
    Way("js_1_3_0", Form.PRUNED, "plain", "printed"),
)
RESOLVED: Final = (
    Way("python_1_3_0", Form.PRUNED, "resolver", "printed"),
    Way("python_1_3_0", Form.PRUNED, "resolver", "served"),
    Way("python_1_0_0", Form.PRUNED_LEGACY, "resolver", "printed"),
    Way("python_1_0_0", Form.PRUNED_LEGACY, "resolver", "served"),
)


def _named(ways: tuple[Way, ...]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("way", ways, ids=[f"{way.sdk}-{way.reader}-{way.wire}" for way in ways])


# What each way leaves open, card by card, from the rules alone: a pruned form drops what is empty, what is unknown and
# a plain `false`; the Python SDK prints neither unknown members nor defaults without presence, so of these only what
# has presence stays to be left open (`{}`, an explicitly empty `optional` string, a requirement without scopes).
# "served" adds the members of 0.3: url, preferredTransport, protocolVersion, additionalInterfaces when there is more
# than one interface, security, the flattened schemes, lists that 0.3 requires, `required: false` of extensions.
_URL: Final = {"/url", "/preferredTransport", "/protocolVersion"}
LEFT_OPEN: Final[dict[str, dict[str, set[str]]]] = {
    "c1-ascii-control": {"printed": set(), "served": set(), "js": set()},
    "c2-spec-8.5-sample": {"printed": set(), "served": set(), "js": set()},
    "c3-unicode": {"printed": set(), "served": set(), "js": set()},
    "c5-bearer-empty-scopes-mtls": {
        "printed": {"/securitySchemes/mtls", "/securityRequirements"},
        "served": {"/securitySchemes/mtls", "/securityRequirements"},
        "js": {"/securitySchemes/mtls", "/securityRequirements"},
    },
    "c7-explicit-defaults": {
        "printed": {"/iconUrl"},
        "served": {"/iconUrl"},
        "js": {"/description", "/capabilities/extensions", "/skills", "/iconUrl"},
    },
    # Without the resolver Python reads nothing of the 0.3 members but the name of the scheme.
    "c9-v03-shape": {
        "printed": {"/securitySchemes"},
        "served": {"/securitySchemes"},
        "js": {
            "/protocolVersion",
            "/url",
            "/preferredTransport",
            "/additionalInterfaces",
            "/securitySchemes",
            "/security",
            "/supportsAuthenticatedExtendedCard",
        },
    },
    # A requirement in the flat spelling, [{"bearer": []}], which protobuf reads as [{}].
    "018": {
        "printed": {"/securityRequirements"},
        "served": {"/securityRequirements"},
        "js": {"/url", "/protocolVersion", "/securityRequirements", "/epistemicCapabilities"},
    },
    # No version, an interface without protocolVersion, two extensions that say `required: false`.
    "037": {
        "printed": set(),
        "served": {
            *_URL,
            "/version",
            "/capabilities/extensions/0/required",
            "/capabilities/extensions/1/required",
        },
        "js": {
            "/protocolVersions",
            "/capabilities/extensions/0/required",
            "/capabilities/extensions/1/required",
        },
    },
    # `security` of 0.3 beside 1.0: in JavaScript it stays in the card and is not signed.
    "041": {"printed": set(), "served": set(), "js": {"/security"}},
    "042": {"printed": set(), "served": set(), "js": set()},
    # `url` beside one interface without protocolVersion, and no skills.
    "058": {
        "printed": set(),
        "served": {*_URL, "/skills"},
        "js": {"/url", "/capabilities/stateTransitionHistory", "/skills"},
    },
    # Every REQUIRED list empty, `capabilities: {}`, a requirement without scopes, `securitySchemes: {}`.
    "063": {
        "printed": {"/capabilities", "/securityRequirements"},
        "served": {
            *_URL,
            "/capabilities",
            "/securityRequirements",
            "/security",
            "/defaultInputModes",
            "/defaultOutputModes",
            "/skills",
        },
        "js": {
            "/capabilities",
            "/securityRequirements",
            "/securitySchemes",
            "/defaultInputModes",
            "/defaultOutputModes",
            "/skills",
        },
    },
    # Two interfaces that speak 0.3, an OAuth scheme, a skill with a requirement, an extended card.
    "065": {
        "printed": set(),
        "served": {
            *_URL,
            "/additionalInterfaces",
            "/security",
            "/skills/0/security",
            "/supportsAuthenticatedExtendedCard",
            "/securitySchemes/test_oauth/type",
            "/securitySchemes/test_oauth/description",
            "/securitySchemes/test_oauth/flows",
        },
        "js": set(),
    },
    # Of a skill's two alternatives the one without scopes vanishes: the other becomes the only one.
    "066": {
        "printed": {"/skills/0/securityRequirements/0"},
        "served": {
            *_URL,
            "/additionalInterfaces",
            "/security",
            "/supportsAuthenticatedExtendedCard",
            "/securitySchemes/google/type",
            "/securitySchemes/google/openIdConnectUrl",
            "/skills/0/security",
            "/skills/0/securityRequirements/0",
        },
        "js": {"/skills/0/securityRequirements/0"},
    },
    # The second factor of an AND, two alternatives of an OR, and a skill's whole requirement vanish.
    "067": {
        "printed": {
            "/securityRequirements/0/schemes/test_api_key",
            "/securityRequirements/1",
            "/securityRequirements/3",
            "/skills/0/securityRequirements",
        },
        "served": {
            *_URL,
            "/additionalInterfaces",
            "/security",
            "/supportsAuthenticatedExtendedCard",
            "/skills/0/security",
            "/skills/1/security",
            "/securityRequirements/0/schemes/test_api_key",
            "/securityRequirements/1",
            "/securityRequirements/3",
            "/skills/0/securityRequirements",
            *(f"/securitySchemes/test_oauth/{name}" for name in ("type", "description", "flows")),
            *(f"/securitySchemes/test_api_key/{name}" for name in ("type", "description", "in", "name")),
            *(f"/securitySchemes/test_http/{name}" for name in ("type", "description", "scheme", "bearerFormat")),
            *(f"/securitySchemes/test_oidc/{name}" for name in ("type", "description", "openIdConnectUrl")),
            *(f"/securitySchemes/test_mtls/{name}" for name in ("type", "description")),
        },
        "js": {
            "/securityRequirements/0/schemes/test_api_key",
            "/securityRequirements/1",
            "/securityRequirements/3",
            "/skills/0/securityRequirements",
        },
    },
    # `iconUrl: ""`, written down, and an interface without protocolVersion.
    "097": {"printed": {"/iconUrl"}, "served": {*_URL, "/iconUrl"}, "js": {"/iconUrl"}},
    # `skills: null`: protobuf takes it for absent, JSON keeps it.
    "098": {"printed": set(), "served": set(), "js": {"/skills"}},
    "101": {
        "printed": {"/securityRequirements"},
        "served": {"/securityRequirements"},
        "js": {"/skills", "/securityRequirements"},
    },
    # A scheme in the spelling of 0.3, which a reader of 1.0 takes for none at all.
    "165": {
        "printed": {"/securitySchemes", "/securityRequirements"},
        "served": {"/securitySchemes", "/securityRequirements"},
        "js": {"/securitySchemes", "/securityRequirements", "/skills"},
    },
}

#: The resolver turns 0.3 into 1.0 before signing; only then the Python SDK signs what such a card says.
LEFT_OPEN_BY_THE_RESOLVER: Final[dict[str, dict[str, set[str]]]] = {
    "c2-spec-8.5-sample": {"printed": set(), "served": set()},
    "c9-v03-shape": {
        "printed": {"/securityRequirements"},
        "served": {
            *_URL,
            "/additionalInterfaces",
            "/security",
            "/supportsAuthenticatedExtendedCard",
            "/securityRequirements",
            "/securitySchemes/key/type",
            "/securitySchemes/key/in",
            "/securitySchemes/key/name",
        },
    },
    "041": {"printed": set(), "served": set()},
    "165": {"printed": {"/securityRequirements"}, "served": {"/securityRequirements"}},
}

#: `skills: null` stops the Python resolver.
UNREADABLE_FOR_THE_RESOLVER: Final = {"098", "099"}

#: Members that are neither REQUIRED nor `optional` in a2a.proto, where the cards of the corpus have them: at their
#: default, and null anywhere, A2A 8.4.1 takes them for absent. Then leaving them out of a signature loses nothing.
_ABSENT_AT_THEIR_DEFAULT: Final = re.compile(
    r"/(securitySchemes|(skills/\d+/)?securityRequirements|supportedInterfaces/\d+/tenant|capabilities/extensions"
    r"|capabilities/extensions/\d+/(uri|description|required)|skills/\d+/(examples|inputModes|outputModes)"
    r"|securitySchemes/[^/]+/\w+SecurityScheme/(description|bearerFormat|oauth2MetadataUrl))"
)
_KNOWN_AT_THE_TOP: Final = {f"/{name}" for name in MESSAGES["AgentCard"]}

NOT_ASCII: Final = {"c3-unicode", "018"}


@pytest.fixture(scope="module")
def signer() -> LocalSigner:
    return generate_signer("ES256")


@pytest.fixture(scope="module")
def private_jwk(signer: LocalSigner) -> dict[str, Any]:
    return private_key_to_jwk(signer.private_key, alg=signer.alg, kid=signer.kid)


def _card(vectors: Path, name: str) -> str:
    if name.startswith("c"):
        return (vectors / "sdk" / "cards" / f"{name}.json").read_text(encoding="utf-8")
    return json.dumps(load_card(vectors, name))


def _signed_by(request: pytest.FixtureRequest, way: Way, card: str, key: dict[str, Any]) -> str:
    sdk: SdkProcess = request.getfixturevalue(way.sdk)
    document = sdk.sign(card, key, reader=way.reader, wire=way.wire)
    assert document is not None
    return document


def _served(document: str) -> dict[str, Any]:
    card: dict[str, Any] = json.loads(document)
    card.pop("signatures")
    return card


def _verify(
    document: str, signer: LocalSigner, tool: SigningTool | None, *, coverage: Coverage | None = None
) -> VerifiedCard:
    trust = TrustStore([TrustedKey(key=signer.public_key, origins=UnsafeAnyOrigin(), signer=tool)])
    return verify_card(
        document.encode(), trust, origin=UnsafeAnyOrigin(), now=0, coverage=coverage or Coverage.WHOLE_CARD
    )


def _uncovered(document: str, left_open: set[str]) -> set[str]:
    """Those of the members left open that A2A 8.4.1 does not take for absent, by an oracle of their names alone."""
    uncovered = set()
    for pointer in left_open:
        value: Any = _served(document)
        for step in pointer.split("/")[1:]:
            value = value[int(step) if isinstance(value, list) else step.replace("~1", "/").replace("~0", "~")]
        is_null = value is None and pointer in _KNOWN_AT_THE_TOP
        if not is_null and not (_ABSENT_AT_THEIR_DEFAULT.fullmatch(pointer) and value in (False, "", [], {})):
            uncovered.add(pointer)
    return uncovered


def _check(document: str, signer: LocalSigner, way: Way, left_open: set[str]) -> None:
    """By the word on its signer the key proves the card, or what was left open is named and the rest can be had.

    Without that word nothing is verified: the card could be what such an SDK left over.
    """
    uncovered = _uncovered(document, left_open)
    part = _verify(document, signer, way.tool, coverage=Coverage.SIGNED_PART_ONLY)
    if uncovered:
        with pytest.raises(UncoveredFieldsError) as caught:
            _verify(document, signer, way.tool)
        assert set(caught.value.pointers) == uncovered
        assert len(caught.value.pointers) == len(uncovered)
    else:
        assert _verify(document, signer, way.tool) == part
    assert part.form in way.told
    assert set(part.dropped) == left_open
    assert left_out(_served(document), part.card) == left_open
    assert {"/securityRequirements", "/securitySchemes", "/url", "/security"} <= set(part.unverified)
    stripped = json.dumps({**part.card, "signatures": json.loads(document)["signatures"]})
    assert _verify(stripped, signer, way.tool).unverified == part.unverified
    for shown in (document, stripped):
        for tool in (None, SigningTool.A2A_TRUST):
            _check_partial(shown, signer, tool)
            _check_partial(shown, signer, tool, coverage=Coverage.SIGNED_PART_ONLY)


def _check_partial(
    document: str, signer: LocalSigner, tool: SigningTool | None, *, coverage: Coverage | None = None
) -> None:
    with pytest.raises(PartialSignatureError) as caught:
        _verify(document, signer, tool, coverage=coverage)
    assert [failure.reason for failure in caught.value.failures] == [FailureReason.PARTIAL]


@_named(WAYS)
@walk("name", LEFT_OPEN)
def test_a_card_signed_by_an_sdk_is_verified_or_refused_with_what_was_left_open(
    vectors: Path,
    request: pytest.FixtureRequest,
    signer: LocalSigner,
    private_jwk: dict[str, Any],
    name: str,
    way: Way,
) -> None:
    document = _signed_by(request, way, _card(vectors, name), private_jwk)
    _check(document, signer, way, LEFT_OPEN[name][way.column])


@_named(RESOLVED)
@walk("name", LEFT_OPEN_BY_THE_RESOLVER)
def test_a_card_that_the_python_sdk_turned_into_1_0_is_verified_or_refused_with_what_was_left_open(
    vectors: Path,
    request: pytest.FixtureRequest,
    signer: LocalSigner,
    private_jwk: dict[str, Any],
    name: str,
    way: Way,
) -> None:
    document = _signed_by(request, way, _card(vectors, name), private_jwk)
    _check(document, signer, way, LEFT_OPEN_BY_THE_RESOLVER[name][way.column])


@_named(WAYS)
@walk("name", LEFT_OPEN)
def test_a_key_that_signs_whole_cards_proves_only_what_was_signed_whole(
    vectors: Path,
    request: pytest.FixtureRequest,
    signer: LocalSigner,
    private_jwk: dict[str, Any],
    name: str,
    way: Way,
) -> None:
    document = _signed_by(request, way, _card(vectors, name), private_jwk)
    open_members = LEFT_OPEN[name][way.column]
    is_rfc_8785 = way.form is not Form.PRUNED_LEGACY or name not in NOT_ASCII
    if is_rfc_8785 and not _uncovered(document, open_members):
        verified = _verify(document, signer, SigningTool.WHOLE)
        assert left_out(_served(document), verified.card) == open_members
        assert verified.unverified == ()
    else:
        _check_partial(document, signer, SigningTool.WHOLE)


def test_what_javascript_programs_write_of_no_security_is_no_reason_to_refuse_a_card(
    vectors: Path, request: pytest.FixtureRequest, signer: LocalSigner, private_jwk: dict[str, Any]
) -> None:
    """Its type of a card demands both members, and its signature holds neither: 8.4.1 takes them for absent, too."""
    way = WAYS[-1]
    verified = 0
    for number in EVERYWHERE:
        card = load_card(vectors, number)
        if card.get("securitySchemes") or card.get("securityRequirements"):
            continue
        card.pop("securitySchemes", None)
        card.pop("securityRequirements", None)
        bare = _signed_by(request, way, json.dumps(card), private_jwk)
        written = _signed_by(
            request, way, json.dumps({**card, "securitySchemes": {}, "securityRequirements": []}), private_jwk
        )
        uncovered = _uncovered(bare, set(_verify(bare, signer, way.tool, coverage=Coverage.SIGNED_PART_ONLY).dropped))
        if uncovered:
            with pytest.raises(UncoveredFieldsError) as caught:
                _verify(written, signer, way.tool)
            assert set(caught.value.pointers) == uncovered
        else:
            part = _verify(written, signer, way.tool)
            assert {"/securitySchemes", "/securityRequirements"} <= set(part.dropped) & set(part.unverified)
            assert {"securitySchemes", "securityRequirements"}.isdisjoint(part.card)
            assert part.card == _verify(bare, signer, way.tool).card
            verified += 1
    assert verified == 22


@_named(WAYS)
@walk("number", EVERYWHERE)
def test_what_is_left_open_is_what_differs_between_the_card_and_its_proof(
    vectors: Path,
    request: pytest.FixtureRequest,
    signer: LocalSigner,
    private_jwk: dict[str, Any],
    number: str,
    way: Way,
) -> None:
    """All real cards of the shape of 1.0, against an oracle that compares two JSON values and knows no field."""
    document = _signed_by(request, way, _card(vectors, number), private_jwk)
    verified = _verify(document, signer, way.tool, coverage=Coverage.SIGNED_PART_ONLY)
    _check(document, signer, way, set(left_out(_served(document), verified.card)))


@_named(RESOLVED)
@walk("number", EVERYWHERE)
def test_what_is_left_open_of_a_card_that_the_resolver_read_is_what_differs_too(
    vectors: Path,
    request: pytest.FixtureRequest,
    signer: LocalSigner,
    private_jwk: dict[str, Any],
    number: str,
    way: Way,
) -> None:
    sdk: SdkProcess = request.getfixturevalue(way.sdk)
    document = sdk.sign(_card(vectors, number), private_jwk, reader=way.reader, wire=way.wire)
    assert (document is None) is (number in UNREADABLE_FOR_THE_RESOLVER)
    if document is not None:
        verified = _verify(document, signer, way.tool, coverage=Coverage.SIGNED_PART_ONLY)
        _check(document, signer, way, set(left_out(_served(document), verified.card)))


@_named(WAYS)
def test_the_address_of_a_key_set_in_the_header_changes_nothing(
    vectors: Path, request: pytest.FixtureRequest, signer: LocalSigner, private_jwk: dict[str, Any], way: Way
) -> None:
    sdk: SdkProcess = request.getfixturevalue(way.sdk)
    card = _card(vectors, "c2-spec-8.5-sample")
    document = sdk.sign(card, private_jwk, wire=way.wire, jku="https://attacker.example/jwks.json")
    assert document is not None
    assert _verify(document, signer, way.tool).card == _served(document)
    stranger = generate_signer("ES256", kid="another")
    with pytest.raises(UntrustedCardError):
        _verify(document, stranger, way.tool)


@_named(WAYS)
def test_the_hosts_of_a_card_signed_by_an_sdk_are_bound_to_the_key(
    vectors: Path, request: pytest.FixtureRequest, signer: LocalSigner, private_jwk: dict[str, Any], way: Way
) -> None:
    document = _signed_by(request, way, _card(vectors, "c2-spec-8.5-sample"), private_jwk).encode()

    def trusted_for(*hosts: str) -> TrustStore:
        return TrustStore([TrustedKey(key=signer.public_key, origins=Origins(*hosts), signer=way.tool)])

    origin = "https://georoute-agent.example.com"
    verified = verify_card(document, trusted_for("georoute-agent.example.com"), origin=origin, now=0)
    assert verified.origin == "georoute-agent.example.com"
    with pytest.raises(UntrustedCardError) as caught:
        verify_card(document, trusted_for("other.example.com"), origin="https://other.example.com", now=0)
    assert [failure.reason for failure in caught.value.failures] == [FailureReason.WRONG_ORIGIN]


@_named(WAYS)
@walk("alg", ["EdDSA", "RS256"])
def test_other_algorithms_of_the_sdks_verify_here(
    vectors: Path, request: pytest.FixtureRequest, alg: str, way: Way
) -> None:
    signer = generate_signer(alg, rsa_bits=2048)
    key = private_key_to_jwk(signer.private_key, alg=alg, kid=signer.kid)
    document = _signed_by(request, way, _card(vectors, "c3-unicode"), key)
    assert _verify(document, signer, way.tool).key.alg == alg


@_named(WAYS)
def test_every_field_of_1_0_is_signed_by_the_sdks_in_the_forms_known_here(
    request: pytest.FixtureRequest, signer: LocalSigner, private_jwk: dict[str, Any], way: Way
) -> None:
    document = _signed_by(request, way, json.dumps(EVERY_FIELD), private_jwk)
    verified = _verify(document, signer, way.tool, coverage=Coverage.SIGNED_PART_ONLY)
    assert verified.card == EVERY_FIELD
    # It holds numbers, which the older encoder prints as doubles: so each signature fits its own form alone.
    assert verified.form is way.form


def _emptiness(value: Any) -> bool:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return value in ("", [], {}) or any(map(_emptiness, items))


def _emptied(value: Any) -> list[Any]:
    """The value again and again, each time with another string, list or object in it emptied."""
    empty: list[Any] = [type(value)()] if isinstance(value, str | list | dict) and value else []
    if isinstance(value, dict):
        empty += [{**value, name: other} for name, item in value.items() for other in _emptied(item)]
    if isinstance(value, list):
        empty += [
            [*value[:index], other, *value[index + 1 :]] for index, item in enumerate(value) for other in _emptied(item)
        ]
    return empty


@_named(tuple(way for way in WAYS if way.wire == "printed"))
def test_no_empty_value_of_any_field_is_in_what_an_sdk_signs(
    request: pytest.FixtureRequest, signer: LocalSigner, private_jwk: dict[str, Any], way: Way
) -> None:
    """So an empty value shows another signer. One SDK that keeps one would pass for a tool that signs whole cards."""
    sdk: SdkProcess = request.getfixturevalue(way.sdk)
    cards = [card for card in _emptied(EVERY_FIELD) if card.get("supportedInterfaces")]
    signed = 0
    for card in cards:
        document = sdk.sign(json.dumps(card), private_jwk, reader=way.reader, wire=way.wire)
        if document is not None:
            signed += 1
            _check_partial(document, signer, None)
            part = _verify(document, signer, way.tool, coverage=Coverage.SIGNED_PART_ONLY)
            assert not _emptiness(part.card), part.payload
    assert signed > 150


@_named(tuple(way for way in WAYS if way.wire == "printed"))  # its server cannot turn empty schemes into those of 0.3
def test_every_field_at_its_default_is_left_open_by_the_sdks(
    request: pytest.FixtureRequest, signer: LocalSigner, private_jwk: dict[str, Any], way: Way
) -> None:
    document = _signed_by(request, way, json.dumps(EVERY_FIELD_AT_ITS_DEFAULT), private_jwk)
    verified = _verify(document, signer, way.tool, coverage=Coverage.SIGNED_PART_ONLY)
    # Only what has a value is signed, and `false` where it was written down for an `optional` field.
    assert verified.card == {
        "name": "Default",
        "supportedInterfaces": [{"url": "https://example.com/"}],
        "capabilities": {"streaming": False, "pushNotifications": False, "extendedAgentCard": False},
    }
    _check(document, signer, way, set(left_out(_served(document), verified.card)))


@_named(WAYS)
@walk("params", CANONICAL_TRAPS.values())
def test_json_that_canonical_forms_disagree_about_is_read_as_each_sdk_signs_it(
    request: pytest.FixtureRequest, signer: LocalSigner, private_jwk: dict[str, Any], params: str, way: Way
) -> None:
    document = _signed_by(request, way, card_with_params(params), private_jwk)
    verified = _verify(document, signer, way.tool, coverage=Coverage.SIGNED_PART_ONLY)
    _check(document, signer, way, set(left_out(_served(document), verified.card)))


@_named(WAYS)
def test_an_integer_beyond_53_bits_is_the_double_that_the_sdks_signed(
    request: pytest.FixtureRequest, signer: LocalSigner, private_jwk: dict[str, Any], way: Way
) -> None:
    document = _signed_by(request, way, card_with_params('{"a":12345678901234567890}'), private_jwk)
    # The card as it was written, with the SDK's signature: the digits differ, the double does not.
    as_written = json.loads(card_with_params('{"a":12345678901234567890}'))
    as_written["signatures"] = json.loads(document)["signatures"]
    for card in (document, json.dumps(as_written)):
        verified = _verify(card, signer, way.tool)
        assert float(verified.card["capabilities"]["extensions"][0]["params"]["a"]) == float(12345678901234567890)
