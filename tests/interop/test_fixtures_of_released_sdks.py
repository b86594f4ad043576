"""Cards signed by released SDKs: verified, or refused, exactly as what is known of their canonical forms demands.

The tables are derived from the forms themselves, not from this package: which SDK signs in which form, what that form
drops from each card, and so what a verifier may not take for proven. Each card was signed with three algorithms.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from a2a_trust import (
    CardVerificationError,
    Form,
    SignedPartOnly,
    TrustedKey,
    TrustStore,
    UncoveredFieldsError,
    UnsafeAnyOrigin,
    VerifiedCard,
    read_jwks,
    verify_card,
)
from a2a_trust.errors import FailureReason
from a2a_trust.keys.trust import LOSSLESS_FORMS
from a2a_trust.signing.forms import project
from a2a_trust.signing.verify import Coverage, WholeCard

ALGORITHMS: Final = ("ES256", "EdDSA", "RS256")

#: The form each SDK signs in.
FORM_OF: Final = {
    "py-1.3.0": Form.PRUNED,
    "py-1.0.0": Form.PRUNED_LEGACY,
    "js-1.3.0-raw": Form.PRUNED,
    "go-2.6.0-raw": Form.SERVED,
    "py-0.3.26": Form.V0_3_PYTHON,
}


@dataclass(frozen=True)
class Expected:
    """What is demanded of one card of one SDK.

    ``unmarked``: whether a key without mark verifies it, because what was signed is the whole card in RFC 8785.
    ``left_open``: the members of the served card that the SDK did not sign.
    """

    unmarked: bool
    left_open: frozenset[str] = frozenset()


PLAIN: Final = Expected(unmarked=True)

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
    ("py-1.3.0", "c5-bearer-empty-scopes-mtls"): Expected(unmarked=False, left_open=_C5),
    ("py-1.3.0", "c7-explicit-defaults"): Expected(unmarked=False, left_open=frozenset({"/iconUrl"})),
    ("py-1.3.0", "c9-v03-shape"): Expected(unmarked=False, left_open=frozenset({"/securityRequirements"})),
    ("py-1.0.0", "c1-ascii-control"): PLAIN,
    ("py-1.0.0", "c2-spec-8.5-sample"): PLAIN,
    ("py-1.0.0", "c3-unicode"): Expected(unmarked=False),  # ASCII escapes are not RFC 8785
    ("py-1.0.0", "c5-bearer-empty-scopes-mtls"): Expected(unmarked=False, left_open=_C5),
    ("py-1.0.0", "c7-explicit-defaults"): Expected(unmarked=False, left_open=frozenset({"/iconUrl"})),
    ("py-1.0.0", "c9-v03-shape"): Expected(unmarked=False, left_open=frozenset({"/securityRequirements"})),
    ("js-1.3.0-raw", "c1-ascii-control"): PLAIN,
    ("js-1.3.0-raw", "c2-spec-8.5-sample"): PLAIN,
    ("js-1.3.0-raw", "c3-unicode"): PLAIN,
    ("js-1.3.0-raw", "c5-bearer-empty-scopes-mtls"): Expected(unmarked=False, left_open=_C5),
    ("js-1.3.0-raw", "c7-explicit-defaults"): Expected(
        unmarked=False, left_open=frozenset({"/description", "/capabilities/extensions", "/skills", "/iconUrl"})
    ),
    ("js-1.3.0-raw", "c9-v03-shape"): Expected(unmarked=False, left_open=_C9_JS),
    ("go-2.6.0-raw", "c1-ascii-control"): PLAIN,
    ("go-2.6.0-raw", "c2-spec-8.5-sample"): PLAIN,
    ("go-2.6.0-raw", "c3-unicode"): PLAIN,
    ("go-2.6.0-raw", "c5-bearer-empty-scopes-mtls"): PLAIN,
    ("go-2.6.0-raw", "c7-explicit-defaults"): PLAIN,
    ("go-2.6.0-raw", "c9-v03-shape"): PLAIN,
    # A requirement without scopes, and what a2a-python 0.3 does not sign because its models say it anyway.
    ("py-0.3.26", "c9-v03-shape"): Expected(
        unmarked=False,
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


def _judge(vectors: Path, document: bytes, *marks: Form, coverage: Coverage | None = None) -> VerifiedCard:
    keys = read_jwks((vectors / "sdk" / "public.jwks.json").read_bytes()).keys
    trust = TrustStore(
        TrustedKey(key=key, origins=UnsafeAnyOrigin(), forms=LOSSLESS_FORMS | frozenset(marks)) for key in keys
    )
    return verify_card(document, trust, origin=UnsafeAnyOrigin(), now=0, coverage=coverage or WholeCard())


def _check_refused_as_not_signed(
    vectors: Path, document: bytes, *marks: Form, coverage: Coverage | None = None
) -> None:
    with pytest.raises(CardVerificationError) as caught:
        _judge(vectors, document, *marks, coverage=coverage)
    assert type(caught.value) is CardVerificationError
    assert [failure.reason for failure in caught.value.failures] == [FailureReason.BAD_SIGNATURE]


def _parametrize(pairs: tuple[tuple[str, str], ...]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("pair", pairs, ids=["-".join(pair) for pair in pairs])


every_algorithm = pytest.mark.parametrize("alg", ALGORITHMS)


def test_the_tables_name_every_fixture_once(vectors: Path) -> None:
    assert sorted(_file(*pair, alg) for pair in EXPECTED for alg in ALGORITHMS) == sorted(_manifest(vectors))
    assert len(_manifest(vectors)) == 75


@every_algorithm
@_parametrize(tuple(EXPECTED))
def test_the_form_of_the_signer_is_the_bytes_that_it_signed(vectors: Path, pair: tuple[str, str], alg: str) -> None:
    fixture = _fixture(vectors, pair, alg)
    form = FORM_OF[pair[0]]
    projection = project(json.loads(fixture.document), form)
    assert projection.payload.decode() == fixture.canonical
    assert hashlib.sha256(projection.payload).hexdigest() == fixture.digest
    assert frozenset(projection.dropped) == EXPECTED[pair].left_open
    assert len(projection.dropped) == len(EXPECTED[pair].left_open)


@every_algorithm
@_parametrize(tuple(pair for pair, expected in EXPECTED.items() if expected.unmarked))
def test_an_unmarked_key_proves_a_card_that_was_signed_whole(vectors: Path, pair: tuple[str, str], alg: str) -> None:
    fixture = _fixture(vectors, pair, alg)
    proven = _judge(vectors, fixture.document)
    assert proven.card == fixture.served
    assert proven.payload.decode() == fixture.canonical
    assert proven.form is Form.SERVED
    assert proven.key.alg == alg
    assert (proven.dropped, proven.unproven, proven.ignored) == ((), (), ())


@pytest.mark.parametrize("coverage", [WholeCard(), SignedPartOnly()], ids=["whole card", "signed part only"])
@every_algorithm
@_parametrize(tuple(pair for pair, expected in EXPECTED.items() if not expected.unmarked))
def test_an_unmarked_key_proves_no_card_that_was_signed_in_a_form_it_may_not_speak_in(
    vectors: Path, pair: tuple[str, str], alg: str, coverage: Coverage
) -> None:
    _check_refused_as_not_signed(vectors, _fixture(vectors, pair, alg).document, coverage=coverage)


@every_algorithm
@_parametrize(tuple(pair for pair in PRUNING if not EXPECTED[pair].left_open))
def test_a_marked_key_proves_a_card_of_which_nothing_was_dropped(
    vectors: Path, pair: tuple[str, str], alg: str
) -> None:
    form = FORM_OF[pair[0]]
    fixture = _fixture(vectors, pair, alg)
    proven = _judge(vectors, fixture.document, form)
    assert proven.form is form
    assert proven.card == fixture.served
    assert proven.payload.decode() == fixture.canonical
    assert proven.dropped == ()


@every_algorithm
@_parametrize(tuple(pair for pair in PRUNING if EXPECTED[pair].left_open))
def test_a_marked_key_proves_no_card_with_members_that_were_not_signed(
    vectors: Path, pair: tuple[str, str], alg: str
) -> None:
    form = FORM_OF[pair[0]]
    with pytest.raises(UncoveredFieldsError) as caught:
        _judge(vectors, _fixture(vectors, pair, alg).document, form)
    assert type(caught.value) is UncoveredFieldsError
    assert frozenset(caught.value.pointers) == EXPECTED[pair].left_open
    assert len(caught.value.pointers) == len(EXPECTED[pair].left_open)
    assert caught.value.failures == ()


@every_algorithm
@_parametrize(PRUNING)
def test_the_signed_part_alone_is_what_the_sdk_signed_and_nothing_else(
    vectors: Path, pair: tuple[str, str], alg: str
) -> None:
    form = FORM_OF[pair[0]]
    fixture = _fixture(vectors, pair, alg)
    proven = _judge(vectors, fixture.document, form, coverage=SignedPartOnly())
    assert proven.form is form
    assert proven.card == json.loads(fixture.canonical)
    assert proven.payload.decode() == fixture.canonical
    assert frozenset(proven.dropped) == EXPECTED[pair].left_open


@every_algorithm
@_parametrize(PRUNING)
def test_a_proof_by_a_marked_key_always_says_what_the_form_could_have_hidden(
    vectors: Path, pair: tuple[str, str], alg: str
) -> None:
    form = FORM_OF[pair[0]]
    proven = _judge(vectors, _fixture(vectors, pair, alg).document, form, coverage=SignedPartOnly())
    assert frozenset(proven.unproven) >= CAN_BE_HIDDEN
    assert any("not proven" in warning for warning in proven.warnings)


@every_algorithm
@_parametrize(LOSSLESS)
def test_the_signed_part_of_a_card_that_was_signed_whole_is_the_whole_card(
    vectors: Path, pair: tuple[str, str], alg: str
) -> None:
    fixture = _fixture(vectors, pair, alg)
    proven = _judge(vectors, fixture.document, coverage=SignedPartOnly())
    assert proven.card == fixture.served
    assert (proven.form, proven.dropped, proven.unproven) == (Form.SERVED, (), ())


@every_algorithm
@_parametrize(tuple(pair for pair in PRUNING if EXPECTED[pair].left_open))
def test_removing_what_was_not_signed_still_leaves_it_unproven(vectors: Path, pair: tuple[str, str], alg: str) -> None:
    """Removal from a pruned card cannot be noticed: the proof that remains must not pass for a whole one."""
    form = FORM_OF[pair[0]]
    fixture = _fixture(vectors, pair, alg)
    stripped = {**json.loads(fixture.canonical), "signatures": json.loads(fixture.document)["signatures"]}
    proven = _judge(vectors, json.dumps(stripped).encode(), form)
    assert proven.dropped == ()
    assert frozenset(proven.unproven) >= CAN_BE_HIDDEN


@pytest.mark.parametrize(
    "marks",
    [(), (Form.PRUNED,), (Form.PRUNED_LEGACY,), (Form.PRUNED, Form.PRUNED_LEGACY)],
    ids=["unmarked", "pruned", "legacy", "both"],
)
@every_algorithm
@_parametrize(tuple(pair for pair in EXPECTED if pair[0] == "py-0.3.26"))
def test_a_card_signed_by_python_0_3_is_refused_under_the_marks_of_other_sdks(
    vectors: Path, pair: tuple[str, str], alg: str, marks: tuple[Form, ...]
) -> None:
    _check_refused_as_not_signed(vectors, _fixture(vectors, pair, alg).document, *marks)
    _check_refused_as_not_signed(vectors, _fixture(vectors, pair, alg).document, *marks, coverage=SignedPartOnly())


@every_algorithm
@_parametrize(tuple(pair for pair in PRUNING if pair[1] == "c3-unicode"))
def test_the_mark_of_one_encoder_does_not_admit_the_other(vectors: Path, pair: tuple[str, str], alg: str) -> None:
    """c3 is not ASCII, so RFC 8785 and json.dumps print it differently, and the form alone must not verify both."""
    other = Form.PRUNED_LEGACY if FORM_OF[pair[0]] is Form.PRUNED else Form.PRUNED
    keys = read_jwks((vectors / "sdk" / "public.jwks.json").read_bytes()).keys
    trust = TrustStore(TrustedKey(key=key, origins=UnsafeAnyOrigin(), forms=frozenset({other})) for key in keys)
    with pytest.raises(CardVerificationError) as caught:
        verify_card(_fixture(vectors, pair, alg).document, trust, origin=UnsafeAnyOrigin(), now=0)
    assert [failure.reason for failure in caught.value.failures] == [FailureReason.BAD_SIGNATURE]
