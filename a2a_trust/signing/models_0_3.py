"""What a2a-python 0.3 knows of a card: the members of its pydantic models, and which of them it does not sign.

``unread_in_0_3`` tells whether those models read a card as ``project`` does.

It signs a card without the members that its models do not have, and without those that are at the default of their
model: ``protocolVersion`` and ``preferredTransport`` (DEFAULTS), and the ``type`` of every security scheme, which is
the only value that the scheme's model takes. So ``type`` is left out of the table, as a member that it never signs.

No member is IMPLICIT: ``false`` has been set when it is there, the default being null. A test compares the table with
the models of the released SDK.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from a2a_trust.card.schema import Field, Kind, Presence
from a2a_trust.strict_json.pointer import escaped

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from a2a_trust.strict_json import JSONObject

__all__ = ["DEFAULTS", "MESSAGES_0_3", "REQUIRED_0_3", "SCHEMES_0_3", "unread_in_0_3"]

DEFAULTS: Final[Mapping[str, str]] = MappingProxyType({"protocolVersion": "0.3.0", "preferredTransport": "JSONRPC"})
"""Members of the card that are not signed when they have this value."""

_FLOW: Final = {"refreshUrl": Kind.STRING, "scopes": Kind.STRING_MAP}

# Values that hold no messages are pruned alike, whatever their kind: ANY is a list of objects of lists.
_ANY: Final = Kind.STRUCT

_MEMBERS: Final[dict[str, dict[str, Kind | tuple[Kind, str]]]] = {
    "AgentCard": {
        "additionalInterfaces": (Kind.MESSAGES, "AgentInterface"),
        "capabilities": (Kind.MESSAGE, "AgentCapabilities"),
        "defaultInputModes": Kind.STRINGS,
        "defaultOutputModes": Kind.STRINGS,
        "description": Kind.STRING,
        "documentationUrl": Kind.STRING,
        "iconUrl": Kind.STRING,
        "name": Kind.STRING,
        "preferredTransport": Kind.STRING,
        "protocolVersion": Kind.STRING,
        "provider": (Kind.MESSAGE, "AgentProvider"),
        "security": _ANY,
        "securitySchemes": (Kind.MESSAGE_MAP, "SecurityScheme"),
        "skills": (Kind.MESSAGES, "AgentSkill"),
        "supportsAuthenticatedExtendedCard": Kind.BOOL,
        "url": Kind.STRING,
        "version": Kind.STRING,
    },
    "AgentInterface": {"transport": Kind.STRING, "url": Kind.STRING},
    "AgentProvider": {"organization": Kind.STRING, "url": Kind.STRING},
    "AgentCapabilities": {
        "extensions": (Kind.MESSAGES, "AgentExtension"),
        "pushNotifications": Kind.BOOL,
        "stateTransitionHistory": Kind.BOOL,
        "streaming": Kind.BOOL,
    },
    "AgentExtension": {
        "description": Kind.STRING,
        "params": Kind.STRUCT,
        "required": Kind.BOOL,
        "uri": Kind.STRING,
    },
    "AgentSkill": {
        "description": Kind.STRING,
        "examples": Kind.STRINGS,
        "id": Kind.STRING,
        "inputModes": Kind.STRINGS,
        "name": Kind.STRING,
        "outputModes": Kind.STRINGS,
        "security": _ANY,
        "tags": Kind.STRINGS,
    },
    # Every model of a scheme at once: a scheme with the members of two is signed with those of one, and then refused.
    "SecurityScheme": {
        "bearerFormat": Kind.STRING,
        "description": Kind.STRING,
        "flows": (Kind.MESSAGE, "OAuthFlows"),
        "in": Kind.STRING,
        "name": Kind.STRING,
        "oauth2MetadataUrl": Kind.STRING,
        "openIdConnectUrl": Kind.STRING,
        "scheme": Kind.STRING,
    },
    "OAuthFlows": {
        "authorizationCode": (Kind.MESSAGE, "AuthorizationCodeOAuthFlow"),
        "clientCredentials": (Kind.MESSAGE, "ClientCredentialsOAuthFlow"),
        "implicit": (Kind.MESSAGE, "ImplicitOAuthFlow"),
        "password": (Kind.MESSAGE, "PasswordOAuthFlow"),
    },
    "AuthorizationCodeOAuthFlow": {"authorizationUrl": Kind.STRING, "tokenUrl": Kind.STRING, **_FLOW},
    "ClientCredentialsOAuthFlow": {"tokenUrl": Kind.STRING, **_FLOW},
    "ImplicitOAuthFlow": {"authorizationUrl": Kind.STRING, **_FLOW},
    "PasswordOAuthFlow": {"tokenUrl": Kind.STRING, **_FLOW},
}

REQUIRED_0_3: Final[Mapping[str, tuple[str, ...]]] = {
    "AgentCard": (
        "name",
        "description",
        "url",
        "version",
        "capabilities",
        "defaultInputModes",
        "defaultOutputModes",
        "skills",
    ),
    "AgentInterface": ("url", "transport"),
    "AgentProvider": ("organization", "url"),
    "AgentExtension": ("uri",),
    "AgentSkill": ("id", "name", "description", "tags"),
    "AuthorizationCodeOAuthFlow": ("authorizationUrl", "tokenUrl", "scopes"),
    "ClientCredentialsOAuthFlow": ("tokenUrl", "scopes"),
    "ImplicitOAuthFlow": ("authorizationUrl", "scopes"),
    "PasswordOAuthFlow": ("tokenUrl", "scopes"),
}
"""Message name, then the members without which its model refuses it."""


def _field(message: str, name: str, kind: Kind | tuple[Kind, str]) -> Field:
    kind, inner = kind if isinstance(kind, tuple) else (kind, "")
    presence = Presence.REQUIRED if name in REQUIRED_0_3.get(message, ()) else Presence.EXPLICIT
    return Field(name, kind, presence, inner)


MESSAGES_0_3: Final[Mapping[str, Mapping[str, Field]]] = MappingProxyType(
    {
        message: MappingProxyType({name: _field(message, name, kind) for name, kind in members.items()})
        for message, members in _MEMBERS.items()
    }
)
"""Message name, then JSON name of the field, as in ``presence.MESSAGES``."""

SCHEMES_0_3: Final[Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]] = MappingProxyType(
    {
        "apiKey": (("in", "name"), ("description",)),
        "http": (("scheme",), ("bearerFormat", "description")),
        "oauth2": (("flows",), ("description", "oauth2MetadataUrl")),
        "openIdConnect": (("openIdConnectUrl",), ("description",)),
        "mutualTLS": ((), ("description",)),
    }
)
"""The ``type`` of a security scheme, and the members that its model needs and may have beside it."""

_PLACES: Final = ("header", "query", "cookie")


def unread_in_0_3(card: JSONObject) -> str | None:
    """JSON pointer of a member because of which a2a-python 0.3 does not read the card as ``project`` does; else None.

    Either its models refuse the card (the member is missing, null, or has a value that they do not know), or they drop
    the member of a security scheme that is of another type. The card has passed the gate, so all types are right.
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
    if "in" in needed and scheme.get("in") not in _PLACES:
        yield f"{path}/in"
