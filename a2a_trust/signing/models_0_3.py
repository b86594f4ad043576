"""The cards that a2a-python 0.3 reads in the same way as ``project``.

The SDK signs a card without members that its models do not have (``MESSAGES_0_3``), and without members at the default
of their model: ``protocolVersion`` and ``preferredTransport`` (``DEFAULTS_0_3``), and the ``type`` of every security
scheme.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from a2a_trust.card.schema import KEY_LOCATIONS, MESSAGES_0_3, SCHEMES_0_3, Kind, Presence
from a2a_trust.strict_json.pointer import escaped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from a2a_trust.strict_json import JSONObject


def unread_in_0_3(card: JSONObject) -> str | None:
    """JSON pointer of a member that a2a-python 0.3 reads in another way than ``project``; None if there is none.

    Either its models reject the card (the member is missing, null, or has an unknown value), or they drop the member,
    which belongs to another type of security scheme. The card must be unambiguous, so all types are right.
    """
    return next(_unread(card, "AgentCard", ""), None)


def _unread(members: JSONObject, message: str, path: str) -> Iterator[str]:
    if message == "SecurityScheme":
        yield from _unread_in_scheme(members, path)
    for name, field in MESSAGES_0_3[message].items():
        spelling = name if name in members else field.proto_name
        value = members.get(spelling)
        here = f"{path}/{spelling if value is not None else name}"
        if value is None:
            if field.presence is Presence.REQUIRED:
                yield here
        elif field.kind is Kind.MESSAGE:
            yield from _unread(value, field.message, here)
        elif field.kind in (Kind.MESSAGES, Kind.MESSAGE_MAP):
            for key, item in enumerate(value) if field.kind is Kind.MESSAGES else value.items():
                yield from _unread(item, field.message, f"{here}/{escaped(key)}")


def _unread_in_scheme(scheme: JSONObject, path: str) -> Iterator[str]:
    models = SCHEMES_0_3.get(scheme.get("type", ""))
    if models is None:
        yield f"{path}/type"  # without it, which model reads the scheme depends on the version of pydantic
        return
    needed, optional = models
    for name, field in MESSAGES_0_3["SecurityScheme"].items():
        is_there = scheme.get(name) is not None or scheme.get(field.proto_name) is not None
        if is_there != (name in needed) and name not in optional:
            yield f"{path}/{name}"
    if "in" in needed and scheme.get("in") not in KEY_LOCATIONS:
        yield f"{path}/in"
