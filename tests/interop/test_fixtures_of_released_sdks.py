"""Cards signed by released SDKs: verified, or refused, exactly as what is known of their canonical forms demands.

The tables are derived from the forms themselves, not from this package: which SDK signs in which form, what that form
drops from each card, and so what a verifier may not take for verified. Each card was signed with three algorithms.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from a2a_trust import TrustedKey, TrustStore, VerifiedCard, verify_card
from a2a_trust.errors import FailureReason, PartialSignatureError, UncoveredFieldsError
from a2a_trust.keys import SigningTool, UnsafeAnyOrigin, read_jwks
from a2a_trust.signing import Coverage, Form
from a2a_trust.signing.forms import project
from tests.tables import walk

ALGORITHMS: Final = ("ES256", "EdDSA", "RS256")

#: The form each SDK signs in, and what a trust entry says of a key that it signs with.
FORM_OF: Final = {
    "py-1.3.0": Form.PRUNED,
    "py-1.0.0": Form.PRUNED_LEGACY,
    "js-1.3.0-raw": Form.PRUNED,
    "go-2.6.0-raw": Form.SERVED,
    "py-0.3.26": Form.V0_3_PYTHON,
}
SIGNER_OF: Final = {
    "py-1.3.0": SigningTool.A2A_PYTHON,
    "py-1.0.0": SigningTool.A2A_PYTHON,
    "js-1.3.0-raw": SigningTool.A2A_JS,
    "go-2.6.0-raw": SigningTool.WHOLE,
    "py-0.3.26": SigningTool.A2A_PYTHON,
}


@dataclass(frozen=True)
class Expected:
    """What is demanded of one card of one SDK.

    ``fits_whole``: whether what was signed is the whole served card in RFC 8785.
    ``holds_empty``: whether what was signed holds an empty value, so that no signer that prunes can have made it.
    ``left_open``: the members of the served card that the SDK did not sign.
    ``absent``: those of them that A2A 8.4.1 takes for absent, so that leaving them out loses nothing.
    """

    fits_whole: bool
    holds_empty: bool = False
    left_open: frozenset[str] = frozenset()
    absent: frozenset[str] = frozenset()

    @property
    def uncovered(self) -> frozenset[str]:
        return self.left_open - self.absent


PLAIN: Final = Expected(fits_whole=True)

# c1, c2: nothing empty, at its default or unknown, and ASCII: one form. c3: the same, but not ASCII.
# c5: requirements without scopes and an mTLS scheme without description; the SDKs print the former as {}.
# c7: empty members of every kind. The Python SDKs print REQUIRED ones no more, so only iconUrl is served and unsigned.
# c9: the shape of 0.3. The Python SDKs of 1.0 turn it into 1.0 before they sign; JavaScript signs what it knows of it.
_C5: Final = frozenset({"/securitySchemes/mtls", "/securityRequirements"})
_C9_JS: Final = frozenset(
    {
        "/protocolVersion",
        "/url",
        "/preferredTransport",
        "/additionalInterfaces",
        "/securitySchemes",
        "/security",
        "/supportsAuthenticatedExtendedCard",
    }
)
EXPECTED: Final = {
    ("py-1.3.0", "c1-ascii-control"): PLAIN,
    ("py-1.3.0", "c2-spec-8.5-sample"): PLAIN,
    ("py-1.3.0", "c3-unicode"): PLAIN,
    ("py-1.3.0", "c5-bearer-empty-scopes-mtls"): Expected(fits_whole=False, left_open=_C5),
    ("py-1.3.0", "c7-explicit-defaults"): Expected(fits_whole=False, left_open=frozenset({"/iconUrl"})),
    ("py-1.3.0", "c9-v03-shape"): Expected(fits_whole=False, left_open=frozenset({"/securityRequirements"})),
    ("py-1.0.0", "c1-ascii-control"): PLAIN,
    ("py-1.0.0", "c2-spec-8.5-sample"): PLAIN,
    ("py-1.0.0", "c3-unicode"): Expected(fits_whole=False),  # ASCII escapes are not RFC 8785
    ("py-1.0.0", "c5-bearer-empty-scopes-mtls"): Expected(fits_whole=False, left_open=_C5),
    ("py-1.0.0", "c7-explicit-defaults"): Expected(fits_whole=False, left_open=frozenset({"/iconUrl"})),
    ("py-1.0.0", "c9-v03-shape"): Expected(fits_whole=False, left_open=frozenset({"/securityRequirements"})),
    ("js-1.3.0-raw", "c1-ascii-control"): PLAIN,
    ("js-1.3.0-raw", "c2-spec-8.5-sample"): PLAIN,
    ("js-1.3.0-raw", "c3-unicode"): PLAIN,
    ("js-1.3.0-raw", "c5-bearer-empty-scopes-mtls"): Expected(fits_whole=False, left_open=_C5),
    # `extensions: []` is absent for the specification; `description`, `skills` are REQUIRED, `iconUrl` is optional.
    ("js-1.3.0-raw", "c7-explicit-defaults"): Expected(
        fits_whole=False,
        left_open=frozenset({"/description", "/capabilities/extensions", "/skills", "/iconUrl"}),
        absent=frozenset({"/capabilities/extensions"}),
    ),
    ("js-1.3.0-raw", "c9-v03-shape"): Expected(fits_whole=False, left_open=_C9_JS),
    ("go-2.6.0-raw", "c1-ascii-control"): PLAIN,
    ("go-2.6.0-raw", "c2-spec-8.5-sample"): PLAIN,
    ("go-2.6.0-raw", "c3-unicode"): PLAIN,
    ("go-2.6.0-raw", "c5-bearer-empty-scopes-mtls"): Expected(fits_whole=True, holds_empty=True),
    ("go-2.6.0-raw", "c7-explicit-defaults"): Expected(fits_whole=True, holds_empty=True),
    ("go-2.6.0-raw", "c9-v03-shape"): Expected(fits_whole=True, holds_empty=True),
    # A requirement without scopes, and what a2a-python 0.3 does not sign because its models say it anyway.
    ("py-0.3.26", "c9-v03-shape"): Expected(
        fits_whole=False,
        left_open=frozenset({"/protocolVersion", "/preferredTransport", "/security", "/securitySchemes/key/type"}),
    ),
}

LOSSLESS: Final = tuple(pair for pair in EXPECTED if FORM_OF[pair[0]] is Form.SERVED)
PRUNING: Final = tuple(pair for pair in EXPECTED if pair not in LOSSLESS)

#: What a pruned form can have hidden, whether or not the card shows it: each is a way to lose a requirement or a host.
CAN_BE_HIDDEN: Final = frozenset(
    {
        "/securityRequirements",
        "/securitySchemes",
        "/supportedInterfaces",
        "/skills/*/securityRequirements",
        "/capabilities/extensions/*/params",
        "/url",
        "/preferredTransport",
        "/additionalInterfaces",
        "/protocolVersion",
        "/security",
        "/skills/*/security",
        "/supportsAuthenticatedExtendedCard",
        "/authentication",
    }
)


@dataclass(frozen=True)
class Fixture:
    document: bytes
    canonical: str
    digest: str

    @property
    def served(self) -> dict[str, Any]:
        card: dict[str, Any] = json.loads(self.document)
        card.pop("signatures")
        return card


@cache
def _manifest(vectors: Path) -> dict[str, Any]:
    files = json.loads((vectors / "sdk" / "manifest.json").read_bytes())["files"]
    return {entry["file"]: entry for entry in files}


def _file(signer: str, card: str, alg: str) -> str:
    return f"signed/{signer}/{card}.{alg}.wire.json"


def _fixture(vectors: Path, pair: tuple[str, str], alg: str) -> Fixture:
    entry = _manifest(vectors)[_file(*pair, alg)]
    document = (vectors / "sdk" / entry["file"]).read_bytes()
    return Fixture(document, entry["canonical"], entry["canonical_sha256"])


def _judge(
    vectors: Path, document: bytes, tool: SigningTool | None, *, coverage: Coverage | None = None
) -> VerifiedCard:
    keys = read_jwks((vectors / "sdk" / "public.jwks.json").read_bytes()).keys
    trust = TrustStore(TrustedKey(key=key, origins=UnsafeAnyOrigin(), signer=tool) for key in keys)
    return verify_card(document, trust, origin=UnsafeAnyOrigin(), now=0, coverage=coverage or Coverage.WHOLE_CARD)


def _check_refused_as_partial(
    vectors: Path, document: bytes, tool: SigningTool | None, *, coverage: Coverage | None = None
) -> None:
    with pytest.raises(PartialSignatureError) as caught:
        _judge(vectors, document, tool, coverage=coverage)
    assert [failure.reason for failure in caught.value.failures] == [FailureReason.PARTIAL]


def _told_form(pair: tuple[str, str], fixture: Fixture) -> Form:
    """The form that is told: the weakest of the signer's that has the signed bytes."""
    form = FORM_OF[pair[0]]
    # Without numbers, which these cards do not hold, the encoders of a2a-python differ beyond ASCII only.
    same = form is Form.PRUNED and SIGNER_OF[pair[0]] is SigningTool.A2A_PYTHON and fixture.canonical.isascii()
    return Form.PRUNED_LEGACY if same else form


every_algorithm = walk("alg", ALGORITHMS)


def test_the_tables_name_every_fixture_once(vectors: Path) -> None:
    assert sorted(_file(*pair, alg) for pair in EXPECTED for alg in ALGORITHMS) == sorted(_manifest(vectors))
    assert len(_manifest(vectors)) == 75


@every_algorithm
@walk("pair", tuple(EXPECTED))
def test_the_form_of_the_signer_is_the_bytes_that_it_signed(vectors: Path, pair: tuple[str, str], alg: str) -> None:
    fixture = _fixture(vectors, pair, alg)
    form = FORM_OF[pair[0]]
    projection = project(json.loads(fixture.document), form)
    assert projection.payload.decode() == fixture.canonical
    assert hashlib.sha256(projection.payload).hexdigest() == fixture.digest
    assert frozenset(projection.dropped) == EXPECTED[pair].left_open
    assert len(projection.dropped) == len(EXPECTED[pair].left_open)


@walk("coverage", [Coverage.WHOLE_CARD, Coverage.SIGNED_PART_ONLY])
@every_algorithm
@walk("pair", tuple(pair for pair, expected in EXPECTED.items() if not expected.holds_empty))
def test_of_an_unknown_tool_nothing_is_verified_that_it_may_have_pruned(
    vectors: Path, pair: tuple[str, str], alg: str, coverage: Coverage
) -> None:
    """Cards that a2a-go signed whole too, unless what it signed shows that: they could be what an SDK left over."""
    document = _fixture(vectors, pair, alg).document
    for tool in (None, SigningTool.A2A_TRUST):
        _check_refused_as_partial(vectors, document, tool, coverage=coverage)


@every_algorithm
@walk("pair", tuple(pair for pair, expected in EXPECTED.items() if expected.holds_empty))
def test_an_empty_value_in_what_was_signed_shows_that_nothing_was_dropped(
    vectors: Path, pair: tuple[str, str], alg: str
) -> None:
    fixture = _fixture(vectors, pair, alg)
    for tool in (None, SigningTool.WHOLE, SigningTool.A2A_PYTHON, SigningTool.A2A_JS):
        verified = _judge(vectors, fixture.document, tool)
        assert (verified.card, verified.form) == (fixture.served, Form.SERVED)
        assert (verified.dropped, verified.unverified, verified.ignored) == ((), (), ())
    _check_refused_as_partial(vectors, fixture.document, SigningTool.A2A_TRUST)


@every_algorithm
@walk("pair", tuple(pair for pair, expected in EXPECTED.items() if expected.fits_whole))
def test_a_key_that_signs_whole_cards_proves_a_card_that_was_signed_whole(
    vectors: Path, pair: tuple[str, str], alg: str
) -> None:
    fixture = _fixture(vectors, pair, alg)
    verified = _judge(vectors, fixture.document, SigningTool.WHOLE)
    assert verified.card == fixture.served
    assert verified.payload.decode() == fixture.canonical
    assert verified.form is Form.SERVED
    assert verified.key.alg == alg
    assert (verified.dropped, verified.unverified, verified.ignored) == ((), (), ())


@walk("coverage", [Coverage.WHOLE_CARD, Coverage.SIGNED_PART_ONLY])
@every_algorithm
@walk("pair", tuple(pair for pair, expected in EXPECTED.items() if not expected.fits_whole))
def test_a_key_that_signs_whole_cards_proves_no_card_that_was_signed_in_part(
    vectors: Path, pair: tuple[str, str], alg: str, coverage: Coverage
) -> None:
    _check_refused_as_partial(vectors, _fixture(vectors, pair, alg).document, SigningTool.WHOLE, coverage=coverage)


@every_algorithm
@walk("pair", tuple(pair for pair in PRUNING if not EXPECTED[pair].uncovered))
def test_the_key_of_an_sdk_proves_a_card_of_which_it_dropped_nothing_with_a_meaning(
    vectors: Path, pair: tuple[str, str], alg: str
) -> None:
    fixture = _fixture(vectors, pair, alg)
    verified = _judge(vectors, fixture.document, SIGNER_OF[pair[0]])
    assert verified.form is _told_form(pair, fixture)
    assert verified.payload.decode() == fixture.canonical
    assert verified.card == json.loads(fixture.canonical)
    assert frozenset(verified.dropped) == EXPECTED[pair].left_open
    assert frozenset(verified.unverified) >= CAN_BE_HIDDEN


@walk("name", ["securitySchemes", "securityRequirements"])
@every_algorithm
def test_members_of_javascript_that_say_what_their_absence_says_are_no_reason_to_refuse(
    vectors: Path, alg: str, name: str
) -> None:
    """``securitySchemes: {}`` and ``securityRequirements: []`` stand in many of its cards, and in no proof."""
    fixture = _fixture(vectors, ("js-1.3.0-raw", "c1-ascii-control"), alg)
    empty = {**json.loads(fixture.document), name: {} if name == "securitySchemes" else []}
    verified = _judge(vectors, json.dumps(empty).encode(), SigningTool.A2A_JS)
    assert (verified.card, verified.dropped) == (fixture.served, (f"/{name}",))
    assert frozenset(verified.unverified) >= CAN_BE_HIDDEN
    empty[name] = {"mtls": {"mtlsSecurityScheme": {}}} if name == "securitySchemes" else [{}]
    with pytest.raises(UncoveredFieldsError) as caught:
        _judge(vectors, json.dumps(empty).encode(), SigningTool.A2A_JS)
    assert caught.value.pointers == (f"/{name}",)


@every_algorithm
@walk("pair", tuple(pair for pair in PRUNING if EXPECTED[pair].uncovered))
def test_the_key_of_an_sdk_proves_no_card_with_members_that_were_not_signed(
    vectors: Path, pair: tuple[str, str], alg: str
) -> None:
    with pytest.raises(UncoveredFieldsError) as caught:
        _judge(vectors, _fixture(vectors, pair, alg).document, SIGNER_OF[pair[0]])
    assert type(caught.value) is UncoveredFieldsError
    assert frozenset(caught.value.pointers) == EXPECTED[pair].uncovered
    assert len(caught.value.pointers) == len(EXPECTED[pair].uncovered)
    assert caught.value.failures == ()


@every_algorithm
@walk("pair", PRUNING)
def test_the_signed_part_alone_is_what_the_sdk_signed_and_nothing_else(
    vectors: Path, pair: tuple[str, str], alg: str
) -> None:
    fixture = _fixture(vectors, pair, alg)
    verified = _judge(vectors, fixture.document, SIGNER_OF[pair[0]], coverage=Coverage.SIGNED_PART_ONLY)
    assert verified.form is _told_form(pair, fixture)
    assert verified.card == json.loads(fixture.canonical)
    assert verified.payload.decode() == fixture.canonical
    assert frozenset(verified.dropped) == EXPECTED[pair].left_open


@every_algorithm
@walk("pair", PRUNING)
def test_a_proof_by_the_key_of_an_sdk_always_says_what_the_form_could_have_hidden(
    vectors: Path, pair: tuple[str, str], alg: str
) -> None:
    document = _fixture(vectors, pair, alg).document
    verified = _judge(vectors, document, SIGNER_OF[pair[0]], coverage=Coverage.SIGNED_PART_ONLY)
    assert frozenset(verified.unverified) >= CAN_BE_HIDDEN
    assert any("removed without a trace" in warning for warning in verified.warnings)


@every_algorithm
@walk("pair", LOSSLESS)
def test_the_signed_part_of_a_card_that_was_signed_whole_is_the_whole_card(
    vectors: Path, pair: tuple[str, str], alg: str
) -> None:
    fixture = _fixture(vectors, pair, alg)
    verified = _judge(vectors, fixture.document, SIGNER_OF[pair[0]], coverage=Coverage.SIGNED_PART_ONLY)
    assert verified.card == fixture.served
    assert (verified.form, verified.dropped, verified.unverified) == (Form.SERVED, (), ())


@every_algorithm
@walk("pair", tuple(pair for pair in PRUNING if EXPECTED[pair].left_open))
def test_removing_what_was_not_signed_still_leaves_it_unverified(
    vectors: Path, pair: tuple[str, str], alg: str
) -> None:
    """Removal from a pruned card cannot be noticed: the proof that remains must not pass for a whole one."""
    fixture = _fixture(vectors, pair, alg)
    stripped = {**json.loads(fixture.canonical), "signatures": json.loads(fixture.document)["signatures"]}
    document = json.dumps(stripped).encode()
    verified = _judge(vectors, document, SIGNER_OF[pair[0]])
    assert verified.dropped == ()
    assert frozenset(verified.unverified) >= CAN_BE_HIDDEN
    for tool in (None, SigningTool.A2A_TRUST):
        _check_refused_as_partial(vectors, document, tool)


@walk("tool", [None, SigningTool.A2A_JS, SigningTool.WHOLE, SigningTool.A2A_TRUST])
@every_algorithm
@walk("pair", tuple(pair for pair in EXPECTED if pair[0] == "py-0.3.26"))
def test_a_card_signed_by_python_0_3_is_refused_from_keys_of_other_tools(
    vectors: Path, pair: tuple[str, str], alg: str, tool: SigningTool | None
) -> None:
    for coverage in (Coverage.WHOLE_CARD, Coverage.SIGNED_PART_ONLY):
        _check_refused_as_partial(vectors, _fixture(vectors, pair, alg).document, tool, coverage=coverage)


@walk("tool", [None, SigningTool.A2A_JS, SigningTool.WHOLE, SigningTool.A2A_TRUST])
@every_algorithm
def test_the_encoder_of_one_sdk_is_not_admitted_from_the_key_of_another(
    vectors: Path, alg: str, tool: SigningTool | None
) -> None:
    """c3 is not ASCII, so RFC 8785 and json.dumps print it differently; JavaScript never signed the latter."""
    _check_refused_as_partial(vectors, _fixture(vectors, ("py-1.0.0", "c3-unicode"), alg).document, tool)
