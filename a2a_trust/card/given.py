"""The forms in which a program can give a card: bytes, JSON text, a file, a dict, or a model of an SDK.

A model of the a2a-sdk becomes the card that the SDK would serve. The SDK, pydantic and protobuf are not imported for
the other forms.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias, TypeGuard

from a2a_trust.base.files.watched import open_regular, read_at_most
from a2a_trust.base.strict_json import MAX_BYTES
from a2a_trust.errors import ConfigurationError


class PydanticCard(Protocol):
    """A pydantic model: ``AgentCard`` of ``card.models``, or of a2a-sdk 0.2 and 0.3."""

    def model_dump(self, *, mode: str, by_alias: bool, exclude_unset: bool, exclude_none: bool) -> dict[str, Any]: ...


class SdkCard(Protocol):
    """A protobuf message: ``AgentCard`` of a2a-sdk 1.0 and newer."""

    @property
    def DESCRIPTOR(self) -> Any: ...  # noqa: N802


GivenCard: TypeAlias = bytes | str | Path | Mapping[str, Any] | PydanticCard | SdkCard

_SDK_MESSAGE: Final = "lf.a2a.v1.AgentCard"


def read_given(card: GivenCard, *, what: str = "card") -> bytes | Mapping[str, Any]:
    """The card as bytes or as a JSON object, unchecked.

    A file is read only once; use ``CardFile`` for files that change. ConfigurationError (its text begins with
    ``what``): it is not a card in one of these forms, or the file cannot be read.
    """
    if isinstance(card, bytes | Mapping):
        return card
    if isinstance(card, Path):
        try:
            with open_regular(card) as file:
                return read_at_most(file, MAX_BYTES + 1)  # the reader rejects a longer file
        except OSError as error:
            raise ConfigurationError(f"{what}: {card} cannot be read: {error.strerror}") from None
    if isinstance(card, str) and card.lstrip().startswith("{"):
        return card.encode("utf-8", "surrogatepass")  # the reader rejects half of a surrogate pair
    if not isinstance(card, type):
        if is_message(card):
            return _dump_message(card)
        if callable(getattr(card, "model_dump", None)):
            members = _dump_model(card)
            if isinstance(members, dict):
                return members
    kind = f"the class {card.__name__}" if isinstance(card, type) else type(card).__name__
    if isinstance(card, str):
        kind = f"the text {card[:64]!a}"
    raise ConfigurationError(
        f"{what}: {kind} is not a card; write a dict, bytes, JSON text, Path('card.json') or an "
        "AgentCard of a2a-sdk or a2a_trust.card.models"
    )


def is_message(card: object) -> TypeGuard[SdkCard]:
    """Whether it is the protobuf message of a2a-sdk 1.0 and newer."""
    return getattr(getattr(card, "DESCRIPTOR", None), "full_name", None) == _SDK_MESSAGE


def _dump_message(card: Any) -> bytes:
    """The members of 1.0, and of 0.3 too if the card names an interface of 0.3."""
    from a2a.server.request_handlers.response_helpers import agent_card_to_dict

    # As JSON, because the SDK leaves enums in the dict.
    return json.dumps(agent_card_to_dict(card), ensure_ascii=False, separators=(",", ":")).encode()


def _dump_model(card: Any) -> Any:
    """Our models as they were read, null included; models of the SDK as it serves them."""
    models = sys.modules.get("a2a_trust.card.models")  # there is no model of ours before it was imported
    is_ours = models is not None and isinstance(card, models.CardModel)
    return card.model_dump(mode="json", by_alias=True, exclude_unset=is_ours, exclude_none=not is_ours)
