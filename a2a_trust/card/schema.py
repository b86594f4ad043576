"""Which members of a card exist for the specification, and when one counts as present: A2A 8.4.1 rule 1.

One table for every message and field of AgentCard in ``a2a.proto`` 1.0.1. A test compares it with the descriptors
of the released a2a-sdk. ``signatures`` and AgentCardSignature are left out: no payload holds them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from a2a_trust.card.view import proto_name

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["MESSAGES", "Field", "Kind", "Presence"]


class Kind(Enum):
    """What the JSON value of a field looks like."""

    STRING = auto()
    BOOL = auto()
    STRINGS = auto()
    """A list of strings."""
    STRING_MAP = auto()
    """An object with free member names and strings as values."""
    MESSAGE = auto()
    """An object described by another message of the table."""
    MESSAGES = auto()
    """A list of such objects."""
    MESSAGE_MAP = auto()
    """An object with free member names and such objects as values."""
    STRUCT = auto()
    """Any object (``google.protobuf.Struct``)."""


class Presence(Enum):
    """When a member that is there counts as set (A2A 5.7)."""

    REQUIRED = auto()
    """Always: it stays, even at its default."""
    EXPLICIT = auto()
    """When it is written down: ``optional`` fields, single messages, variants of a oneof."""
    IMPLICIT = auto()
    """Only when it differs from its default (empty string, false, empty list, empty map)."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of one message; ``oneof`` names the group of which at most one member may be set."""

    name: str
    kind: Kind
    presence: Presence
    message: str = ""
    oneof: str = ""
    proto_name: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "proto_name", proto_name(self.name))


def _required(name: str, kind: Kind, message: str = "") -> Field:
    return Field(name, kind, Presence.REQUIRED, message)


def _explicit(name: str, kind: Kind, message: str = "") -> Field:
    return Field(name, kind, Presence.EXPLICIT, message)


def _implicit(name: str, kind: Kind, message: str = "") -> Field:
    return Field(name, kind, Presence.IMPLICIT, message)


def _variant(name: str, message: str, oneof: str) -> Field:
    return Field(name, Kind.MESSAGE, Presence.EXPLICIT, message, oneof)


_FIELDS: Final[dict[str, tuple[Field, ...]]] = {
    "AgentCard": (
        _required("name", Kind.STRING),
        _required("description", Kind.STRING),
        _required("supportedInterfaces", Kind.MESSAGES, "AgentInterface"),
        _explicit("provider", Kind.MESSAGE, "AgentProvider"),
        _required("version", Kind.STRING),
        _explicit("documentationUrl", Kind.STRING),
        _required("capabilities", Kind.MESSAGE, "AgentCapabilities"),
        _implicit("securitySchemes", Kind.MESSAGE_MAP, "SecurityScheme"),
        _implicit("securityRequirements", Kind.MESSAGES, "SecurityRequirement"),
        _required("defaultInputModes", Kind.STRINGS),
        _required("defaultOutputModes", Kind.STRINGS),
        _required("skills", Kind.MESSAGES, "AgentSkill"),
        _explicit("iconUrl", Kind.STRING),
    ),
    "AgentInterface": (
        _required("url", Kind.STRING),
        _required("protocolBinding", Kind.STRING),
        _implicit("tenant", Kind.STRING),
        _required("protocolVersion", Kind.STRING),
    ),
    "AgentProvider": (
        _required("url", Kind.STRING),
        _required("organization", Kind.STRING),
    ),
    "AgentCapabilities": (
        _explicit("streaming", Kind.BOOL),
        _explicit("pushNotifications", Kind.BOOL),
        _implicit("extensions", Kind.MESSAGES, "AgentExtension"),
        _explicit("extendedAgentCard", Kind.BOOL),
    ),
    "AgentExtension": (
        _implicit("uri", Kind.STRING),
        _implicit("description", Kind.STRING),
        _implicit("required", Kind.BOOL),
        _explicit("params", Kind.STRUCT),
    ),
    "AgentSkill": (
        _required("id", Kind.STRING),
        _required("name", Kind.STRING),
        _required("description", Kind.STRING),
        _required("tags", Kind.STRINGS),
        _implicit("examples", Kind.STRINGS),
        _implicit("inputModes", Kind.STRINGS),
        _implicit("outputModes", Kind.STRINGS),
        _implicit("securityRequirements", Kind.MESSAGES, "SecurityRequirement"),
    ),
    "SecurityRequirement": (_implicit("schemes", Kind.MESSAGE_MAP, "StringList"),),
    "StringList": (_implicit("list", Kind.STRINGS),),
    "SecurityScheme": (
        _variant("apiKeySecurityScheme", "APIKeySecurityScheme", "scheme"),
        _variant("httpAuthSecurityScheme", "HTTPAuthSecurityScheme", "scheme"),
        _variant("oauth2SecurityScheme", "OAuth2SecurityScheme", "scheme"),
        _variant("openIdConnectSecurityScheme", "OpenIdConnectSecurityScheme", "scheme"),
        _variant("mtlsSecurityScheme", "MutualTlsSecurityScheme", "scheme"),
    ),
    "APIKeySecurityScheme": (
        _implicit("description", Kind.STRING),
        _required("location", Kind.STRING),
        _required("name", Kind.STRING),
    ),
    "HTTPAuthSecurityScheme": (
        _implicit("description", Kind.STRING),
        _required("scheme", Kind.STRING),
        _implicit("bearerFormat", Kind.STRING),
    ),
    "OAuth2SecurityScheme": (
        _implicit("description", Kind.STRING),
        _required("flows", Kind.MESSAGE, "OAuthFlows"),
        _implicit("oauth2MetadataUrl", Kind.STRING),
    ),
    "OpenIdConnectSecurityScheme": (
        _implicit("description", Kind.STRING),
        _required("openIdConnectUrl", Kind.STRING),
    ),
    "MutualTlsSecurityScheme": (_implicit("description", Kind.STRING),),
    "OAuthFlows": (
        _variant("authorizationCode", "AuthorizationCodeOAuthFlow", "flow"),
        _variant("clientCredentials", "ClientCredentialsOAuthFlow", "flow"),
        _variant("implicit", "ImplicitOAuthFlow", "flow"),
        _variant("password", "PasswordOAuthFlow", "flow"),
        _variant("deviceCode", "DeviceCodeOAuthFlow", "flow"),
    ),
    "AuthorizationCodeOAuthFlow": (
        _required("authorizationUrl", Kind.STRING),
        _required("tokenUrl", Kind.STRING),
        _implicit("refreshUrl", Kind.STRING),
        _required("scopes", Kind.STRING_MAP),
        _implicit("pkceRequired", Kind.BOOL),
    ),
    "ClientCredentialsOAuthFlow": (
        _required("tokenUrl", Kind.STRING),
        _implicit("refreshUrl", Kind.STRING),
        _required("scopes", Kind.STRING_MAP),
    ),
    "ImplicitOAuthFlow": (
        _implicit("authorizationUrl", Kind.STRING),
        _implicit("refreshUrl", Kind.STRING),
        _implicit("scopes", Kind.STRING_MAP),
    ),
    "PasswordOAuthFlow": (
        _implicit("tokenUrl", Kind.STRING),
        _implicit("refreshUrl", Kind.STRING),
        _implicit("scopes", Kind.STRING_MAP),
    ),
    "DeviceCodeOAuthFlow": (
        _required("deviceAuthorizationUrl", Kind.STRING),
        _required("tokenUrl", Kind.STRING),
        _implicit("refreshUrl", Kind.STRING),
        _required("scopes", Kind.STRING_MAP),
    ),
}

MESSAGES: Final[Mapping[str, Mapping[str, Field]]] = MappingProxyType(
    {message: MappingProxyType({field.name: field for field in fields}) for message, fields in _FIELDS.items()}
)
"""Message name, then JSON name of the field."""
