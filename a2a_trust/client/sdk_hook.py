"""The hook ``signature_verifier`` of the a2a-sdk: accepts a card only if all members that the SDK uses are signed.

The hook gets the card as an object of the SDK, not as the original bytes, and the SDK uses that object. So the steps
are:

1. Write the object as JSON, in the forms that its signer may have used (``_writings``).
2. Verify one of them completely, as ``verify_card`` does.
3. Read the signed JSON with the SDK's own model: the result must equal the object.

Step 3 makes step 1 safe: a wrong guess there rejects a valid card, and never accepts a forged one. Members that the
model has dropped cannot be written again: members of 0.3 in a 1.0 model, members of 1.0 in a 0.3 model, and unknown
members. A signature over such a member is rejected here, and accepted by the transport, which verifies the bytes.

The hook does not use the network or the card memory: the key sets of a ``TrustFile`` are those that its ``fetch`` got.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from a2a_trust.base.strict_json import JSON, JSONObject
from a2a_trust.card.given import PydanticCard, SdkCard, is_message
from a2a_trust.card.schema import MESSAGES, Kind, Presence
from a2a_trust.client.verification import ANY_KEY, Verification, check_whole
from a2a_trust.errors import (
    CardVerificationError,
    ConfigurationError,
    FailureReason,
    MalformedError,
    UncoveredFieldsError,
)
from a2a_trust.keys.trust.origins import host_of
from a2a_trust.keys.trust.policy import Policy
from a2a_trust.keys.trust.store import TrustSource
from a2a_trust.signing.verify import VerifiedCard, verify_card

_EMPTY: Final[dict[Kind, type[Any]]] = {
    Kind.STRING: str, Kind.STRINGS: list, Kind.STRING_MAP: dict, Kind.MESSAGES: list,
}  # fmt: skip
_INSTEAD: Final = "verify the bytes that the agent serves, with AsyncVerifyingTransport or fetch_card"


def signature_verifier(
    trust: TrustSource, *, origin: str, policy: Policy = ANY_KEY
) -> Callable[[SdkCard | PydanticCard], None]:
    """A verifier of cards of one agent, for ``signature_verifier=`` of the a2a-sdk (0.3.26, 1.0 to 1.3).

    ``origin`` is the URL that the SDK fetches the card from: a card of another host is rejected. ``trust`` and
    ``policy`` are as for ``verify_card``. The verifier returns None if a trusted signature covers the whole object,
    and raises otherwise.

    CardVerificationError and its subclasses: the card is not verified. MalformedError: the object cannot be written as
    JSON. ConfigurationError: an argument is wrong, here or in a call of the verifier. Source: A2A 8.4.3.
    """
    checks = Verification(trust=trust, policy=policy)
    try:
        host_of(origin)
    except (MalformedError, TypeError, AttributeError):
        raise ConfigurationError(
            'origin: write the URL that the SDK asks for the card, as in origin="https://agent.example.com"'
        ) from None
    return partial(_verify, partial(verify_card, trust=checks.trust, origin=origin, policy=checks.policy))


def _verify(verify: Callable[[JSONObject], VerifiedCard], card: SdkCard | PydanticCard) -> None:
    """Do the steps that the docstring of this module lists. The error is about the first JSON text of the card."""
    errors: list[CardVerificationError] = []
    for writing in _writings(card):
        try:
            verified = verify(writing)
        except CardVerificationError as error:
            errors.append(error)
            continue
        check_whole(verified)
        if _read(card, {**verified.card, "signatures": writing["signatures"]}) != card:
            raise CardVerificationError(f"the SDK's object differs from the signed card; {_INSTEAD}")
        return
    first = errors[0]
    reasons = {failure.reason for failure in first.failures}
    if FailureReason.BAD_SIGNATURE in reasons and not isinstance(first, UncoveredFieldsError):
        text = "no signature covers the card as the SDK has read it; if the SDK's model dropped signed members,"
        first = type(first)(f"{text} {_INSTEAD}\n  {first.message}", first.failures)
    raise first from None


def _writings(card: Any) -> tuple[JSONObject, ...]:
    """The cards in JSON that the SDK reads as this object, as far as signers write them.

    A protobuf message does not tell whether an empty REQUIRED member was there. The specification keeps it, and the SDK
    does not print it.
    """
    no_json = MalformedError(f"card: the SDK's object cannot be written as JSON; {_INSTEAD}")
    if is_message(card):
        from google.protobuf.json_format import Error, MessageToDict

        try:
            printed: JSONObject = MessageToDict(card)  # type: ignore[no-untyped-call, unused-ignore]
        except Error:  # a number that JSON does not have
            raise no_json from None
        completed = _complete(printed, "AgentCard", Kind.MESSAGE)
        return (completed,) if completed == printed else (completed, printed)
    if callable(getattr(card, "model_dump", None)):
        try:
            # Only the members that were there: the model gives the others a default, also in the card that was signed.
            return (card.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=False),)
        except ValueError:
            raise no_json from None
    raise ConfigurationError(
        f"signature_verifier: {type(card).__name__} is not an AgentCard of the a2a-sdk; for bytes and dicts, use "
        "verify_card"
    )


def _complete(value: JSON, message: str, kind: Kind) -> JSON:
    """The value, and in its messages the REQUIRED members that are not printed because they are empty."""
    if kind is Kind.MESSAGES:
        return [_complete(each, message, Kind.MESSAGE) for each in value]
    if kind is Kind.MESSAGE_MAP:
        return {name: _complete(each, message, Kind.MESSAGE) for name, each in value.items()}
    if kind is not Kind.MESSAGE:
        return value
    completed = dict(value)
    for name, field in MESSAGES[message].items():
        if name in completed:
            completed[name] = _complete(completed[name], field.message, field.kind)
        elif field.presence is Presence.REQUIRED and field.kind in _EMPTY:
            completed[name] = _EMPTY[field.kind]()
    return completed


def _read(card: Any, members: JSONObject) -> Any:
    """The members as the SDK's own model reads them."""
    if is_message(card):
        from google.protobuf.json_format import ParseDict

        return ParseDict(members, type(card)())  # type: ignore[no-untyped-call, unused-ignore]
    return type(card).model_validate(members)
