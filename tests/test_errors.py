"""The exception tree: as it is drawn, with data for machines and nothing secret for people."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.exceptions import HTTPException

import a2a_trust
from a2a_trust.client.httpx import CredentialsError, CredentialsRejectedError, UnverifiedCardError
from a2a_trust.errors import (
    CardVerificationError,
    ConfigurationError,
    FailureReason,
    PartialSignatureError,
    RolledBackCardError,
    SignatureFailure,
    TemporarilyUnavailableError,
    TrustError,
    UncoveredFieldsError,
    UnsignedCardError,
    UntrustedCardError,
    verification_error,
)
from a2a_trust.keys.files import PassphraseNeededError
from a2a_trust.middleware import CallerRejectedError
from tests.tables import walk

BLAMES_TRUST = {
    "unknown-key",
    "wrong-origin",
    "revoked-key",
    "key-not-valid-now",
    "companion",
}


def drawn() -> dict[str, str]:
    """The tree on the page: each class and the one it stands below."""
    page = (Path(a2a_trust.__file__).parent.parent / "docs" / "errors.md").read_text(encoding="utf-8")
    parents: dict[str, str] = {}
    path: list[tuple[int, str]] = []
    for line in page.splitlines():
        match = re.match(r"^((?:│ {3}|├── |└── | {4})*)(\w+Error)  ", line)
        if match is None:
            continue
        depth, name = len(match[1]), match[2]
        while path and path[-1][0] >= depth:
            path.pop()
        parents[name] = path[-1][1] if path else "Exception"
        path.append((depth, name))
    return parents


def test_the_tree_is_as_it_is_drawn() -> None:
    classes = {kind.__name__: kind for kind in ours()}
    assert drawn() == {name: kind.__bases__[0].__name__ for name, kind in classes.items()}


def ours() -> list[type[TrustError]]:
    """The public classes of the tree, those of the rooms for clients and keys included."""
    kinds = (kind for kind in below(TrustError) if kind.__module__.startswith("a2a_trust."))
    return [kind for kind in kinds if kind.__name__[0] != "_"]


def test_errors_are_also_what_their_callers_know() -> None:
    assert issubclass(PassphraseNeededError, ConfigurationError)
    assert issubclass(ConfigurationError, ValueError)
    assert issubclass(UnverifiedCardError, httpx.RequestError)
    assert issubclass(CredentialsError, httpx.RequestError)
    assert issubclass(CredentialsRejectedError, httpx.HTTPStatusError)
    assert issubclass(CallerRejectedError, HTTPException)


def test_one_class_stands_for_everything_that_may_succeed_later() -> None:
    temporary = {kind.__name__ for kind in below(TemporarilyUnavailableError)}
    assert temporary == {"TemporarilyUnavailableError", "KeySourceUnavailableError", "CardMemoryUnavailableError"}


def test_the_facts_of_an_error_cannot_be_changed() -> None:
    error = RolledBackCardError("older", "https://a.example", issued=1.0, remembered=2.0)
    facts = {"issued": 3.0, "location": "x", "failures": (), "args": ("x",), "message": "x", "code": "x"}
    for name, value in facts.items():
        with pytest.raises(AttributeError, match=name):
            setattr(error, name, value)
    assert (str(error), error.issued, error.location) == ("older", 1.0, "https://a.example")
    error.add_note("seen by the caller")
    error.__cause__ = ValueError()
    assert error.with_traceback(None).__notes__ == ["seen by the caller"]


@pytest.mark.parametrize("copied", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))], ids=["copy", "pickle"])
def test_an_error_can_be_copied_and_sent_to_another_process(copied: Callable[[Exception], Any]) -> None:
    error = RolledBackCardError("older", "https://a.example", issued=1.0, remembered=2.0)
    again = copied(error)
    assert type(again) is RolledBackCardError
    assert (str(again), vars(again)) == (str(error), vars(error))


def test_httpx_may_tell_which_request_it_was() -> None:
    error = UnverifiedCardError("no card")
    error.request = httpx.Request("GET", "https://a.example")
    assert error.request.url == "https://a.example"


def failure(reason: FailureReason, index: int = 0, kid: str | None = "k") -> SignatureFailure:
    return SignatureFailure(index=index, kid=kid, reason=reason, detail="why")


def test_a_failure_reads_as_a_sentence_and_cannot_be_changed() -> None:
    assert str(failure(FailureReason.EXPIRED, 3)) == "signature 3 (kid k): why"
    assert str(failure(FailureReason.EXPIRED, 3, None)) == "signature 3 (no kid): why"
    with pytest.raises(dataclasses.FrozenInstanceError):
        failure(FailureReason.EXPIRED).detail = "x"  # type: ignore[misc]


def test_a_verification_error_lists_every_failure_one_to_a_line() -> None:
    failures = (failure(FailureReason.EXPIRED), failure(FailureReason.MALFORMED, 1, None))
    error = CardVerificationError("not verified:", failures)
    assert str(error) == "not verified:\n  signature 0 (kid k): why\n  signature 1 (no kid): why"
    assert (error.message, error.failures) == ("not verified:", failures)
    assert str(CardVerificationError("not verified")) == "not verified"
    assert UnsignedCardError("x").failures == ()


def test_uncovered_fields_are_data() -> None:
    error = UncoveredFieldsError("uncovered", ("/a", "/b"), (failure(FailureReason.EXPIRED),))
    assert error.pointers == ("/a", "/b")
    assert len(error.failures) == 1
    assert isinstance(error, CardVerificationError)


def test_reasons_are_stable_words() -> None:
    assert {str(reason) for reason in FailureReason} == BLAMES_TRUST | {
        "malformed",
        "wrong-algorithm",
        "expired",
        "not-yet-valid",
        "partial",
        "bad-signature",
    }


@walk("reason", FailureReason)
def test_a_card_is_untrusted_when_only_trust_is_missing_and_wrong_otherwise(reason: FailureReason) -> None:
    alone = verification_error("x", (failure(reason),))
    wrong = PartialSignatureError if reason is FailureReason.PARTIAL else CardVerificationError
    assert type(alone) is (UntrustedCardError if reason in BLAMES_TRUST else wrong)
    assert alone.failures[0].reason is reason
    # Junk beside it changes nothing; a signature that is wrong makes the card wrong.
    with_junk = verification_error("x", (failure(FailureReason.MALFORMED), failure(reason)))
    assert type(with_junk) is type(alone)
    with_wrong = verification_error("x", (failure(reason), failure(FailureReason.BAD_SIGNATURE)))
    assert type(with_wrong) is wrong  # a signature that is good, and partial, can be accepted


def test_without_any_failure_the_card_is_not_called_untrusted() -> None:
    assert type(verification_error("x", ())) is CardVerificationError


CODES = {
    "TrustError": "error",
    "ConfigurationError": "configuration",
    "PassphraseNeededError": "passphrase-needed",
    "UnverifiedCardError": "unverified-card",
    "TemporarilyUnavailableError": "unavailable",
    "MalformedError": "malformed",
    "InvalidSignatureError": "invalid-signature",
    "SigningError": "signing",
    "CardVerificationError": "not-verified",
    "UnsignedCardError": "unsigned",
    "UntrustedCardError": "untrusted",
    "PolicyNotMetError": "policy",
    "UncoveredFieldsError": "uncovered",
    "PartialSignatureError": "partial",
    "CardMemoryError": "memory",
    "RolledBackCardError": "rolled-back",
    "PinnedKeyError": "pinned-key",
    "CardMemoryUnavailableError": "memory-unavailable",
    "FetchError": "fetch",
    "TokenRequestError": "token-request",
    "CredentialsError": "credentials",
    "CallerRejectedError": "caller-rejected",
    "CredentialsRejectedError": "credentials-rejected",
    "AuthenticationError": "authentication",
    "MissingCredentialsError": "missing-credentials",
    "InvalidCredentialsError": "invalid-credentials",
    "UnrecognizedCredentialsError": "unrecognized-credentials",
    "InvalidActorsError": "invalid-actors",
    "AuthorizationError": "insufficient-scope",
    "CrossSiteError": "cross-site",
    "NoCallerError": "no-caller",
    "TooManyRequestsError": "too-many-requests",
    "KeySourceUnavailableError": "key-source-unavailable",
    "CardNotServedError": "card-not-served",
}


def below(kind: type[TrustError]) -> Iterator[type[TrustError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from below(each)


def test_every_class_has_a_stable_word_of_its_own() -> None:
    """Written out, because programs of others count by these words: a new name for one is a change for all of them."""
    assert {kind.__name__: kind.code for kind in ours()} == CODES
    assert all("code" in vars(kind) for kind in ours())
    assert len(set(CODES.values())) == len(CODES)
