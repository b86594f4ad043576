"""What a2a-python 0.3 knows of a card: the members of its pydantic models, and which of them it does not sign.

It signs a card without the members that its models do not have, and without those that are at the default of their
model: ``protocolVersion`` and ``preferredTransport`` (DEFAULTS), and the ``type`` of every security scheme, which is
the only value that the scheme's model takes. So ``type`` is left out of the table, as a member that it never signs.

Every member is EXPLICIT: ``false`` has been set when it is there, the default being null. A test compares the table
with the models of the released SDK.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from a2a_trust.signing.presence import Field, Kind, Presence

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DEFAULTS", "MESSAGES_0_3"]

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


def _field(name: str, kind: Kind | tuple[Kind, str]) -> Field:
    kind, message = kind if isinstance(kind, tuple) else (kind, "")
    return Field(name, kind, Presence.EXPLICIT, message)


MESSAGES_0_3: Final[Mapping[str, Mapping[str, Field]]] = MappingProxyType(
    {
        message: MappingProxyType({name: _field(name, kind) for name, kind in members.items()})
        for message, members in _MEMBERS.items()
    }
)
"""Message name, then JSON name of the field, as in ``presence.MESSAGES``."""
