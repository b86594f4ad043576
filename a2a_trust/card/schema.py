"""The members of a card in every generation: what they look like, and when one counts as present.

One table has every message and field of AgentCard in ``a2a.proto`` 1.0.1, with presence by A2A 8.4.1 rule 1. A test
compares it with the descriptors of the released a2a-sdk. ``signatures`` and AgentCardSignature are left out: no payload
holds them. A second table has what 0.1 to 0.3 have beside 1.0, from those versions' JSON schemas; a third which of all
these the models of a2a-python 0.3 know. A test compares that with the models of the released SDK.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from functools import lru_cache
from types import MappingProxyType
from typing import Final

CARD_PATHS: Final = ("/.well-known/agent-card.json", "/.well-known/agent.json")
"""Where agents serve their public card: 0.3 and 1.0, and 0.2."""


class Generation(StrEnum):
    """The versions whose cards and requests look alike."""

    V0_1 = "0.1"
    V0_3 = "0.3"
    """0.2 too: its members, paths and methods are those of 0.3."""
    V1_0 = "1.0"

    @property
    def is_legacy(self) -> bool:
        """Whether it is one before 1.0."""
        return self is not Generation.V1_0


@lru_cache(maxsize=1024)
def proto_name(name: str) -> str:
    """The name in ``a2a.proto`` of the field with this JSON name; ProtoJSON readers take either."""
    return "".join(f"_{char.lower()}" if "A" <= char <= "Z" else char for char in name)


class Kind(Enum):
    """The kind of JSON value that a field has."""

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


_FIELDS_1_0: Final[dict[str, tuple[Field, ...]]] = {
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

_FIELDS_BEFORE_1_0: Final[dict[str, tuple[Field, ...]]] = {
    "AgentCard": (
        _explicit("url", Kind.STRING),
        _explicit("preferredTransport", Kind.STRING),
        _explicit("additionalInterfaces", Kind.MESSAGES, "AgentInterface03"),
        _explicit("protocolVersion", Kind.STRING),
        _explicit("security", Kind.MESSAGES, "SecurityRequirement03"),
        _explicit("supportsAuthenticatedExtendedCard", Kind.BOOL),
        _explicit("authentication", Kind.MESSAGE, "Authentication01"),
    ),
    "AgentCapabilities": (_explicit("stateTransitionHistory", Kind.BOOL),),
    "AgentSkill": (_explicit("security", Kind.MESSAGES, "SecurityRequirement03"),),
    "AgentInterface03": (_explicit("url", Kind.STRING), _explicit("transport", Kind.STRING)),
    "Authentication01": (_explicit("schemes", Kind.STRINGS), _explicit("credentials", Kind.STRING)),
    "SecurityScheme": (
        _explicit("type", Kind.STRING),
        _explicit("description", Kind.STRING),
        _explicit("in", Kind.STRING),
        _explicit("name", Kind.STRING),
        _explicit("scheme", Kind.STRING),
        _explicit("bearerFormat", Kind.STRING),
        _explicit("flows", Kind.MESSAGE, "OAuthFlows03"),
        _explicit("openIdConnectUrl", Kind.STRING),
        _explicit("oauth2MetadataUrl", Kind.STRING),
    ),
    # The same flows as in 1.0, but several may stand side by side.
    "OAuthFlows03": tuple(_explicit(flow.name, flow.kind, flow.message) for flow in _FIELDS_1_0["OAuthFlows"]),
    # Free member names with lists of scopes as values: ``card.ambiguity`` checks them.
    "SecurityRequirement03": (),
}


def _by_name(messages: Mapping[str, tuple[Field, ...]]) -> Mapping[str, Mapping[str, Field]]:
    return MappingProxyType(
        {message: MappingProxyType({field.name: field for field in fields}) for message, fields in messages.items()}
    )


MESSAGES: Final = _by_name(_FIELDS_1_0)
"""The members of 1.0: message name, then JSON name of the field."""

LEGACY: Final = _by_name(_FIELDS_BEFORE_1_0)
"""The additional members of 0.1, 0.2 and 0.3, likewise. Names of messages that only they have end in "03"."""

LEGACY_MEMBERS: Final = LEGACY["AgentCard"].keys()
"""Members of a card that 0.1 to 0.3 have and 1.0 does not."""

REQUIREMENT_MEMBERS: Final = ("securityRequirements", "security_requirements", "security")
SCHEME_MEMBERS: Final = ("securitySchemes", "security_schemes")
"""The members of a card with its requirements (of a skill too) and its schemes, in every spelling that is read."""

SCHEME_TYPES: Final = {
    "apiKeySecurityScheme": "apiKey",
    "httpAuthSecurityScheme": "http",
    "oauth2SecurityScheme": "oauth2",
    "openIdConnectSecurityScheme": "openIdConnect",
    "mtlsSecurityScheme": "mutualTLS",
}
"""Wrapper of a security scheme in 1.0 -> its ``type`` in 0.2 and 0.3."""

KEY_LOCATIONS: Final = ("header", "query", "cookie")
"""The places of an API key: ``location`` of its scheme in 1.0, ``in`` before."""

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

_MEMBERS_0_3: Final[Mapping[str, tuple[str, str]]] = {
    "AgentCard": (
        "name description url version capabilities defaultInputModes defaultOutputModes skills",
        "additionalInterfaces documentationUrl iconUrl preferredTransport protocolVersion provider security "
        "securitySchemes supportsAuthenticatedExtendedCard",
    ),
    "AgentInterface": ("url transport", ""),
    "AgentProvider": ("organization url", ""),
    "AgentCapabilities": ("", "extensions pushNotifications stateTransitionHistory streaming"),
    "AgentExtension": ("uri", "description params required"),
    "AgentSkill": ("id name description tags", "examples inputModes outputModes security"),
    # Every model of a scheme at once: a scheme with the members of two is signed with those of one, and then refused.
    "SecurityScheme": ("", " ".join(name for name in LEGACY["SecurityScheme"] if name != "type")),
    "OAuthFlows": ("", "authorizationCode clientCredentials implicit password"),
    "AuthorizationCodeOAuthFlow": ("authorizationUrl tokenUrl scopes", "refreshUrl"),
    "ClientCredentialsOAuthFlow": ("tokenUrl scopes", "refreshUrl"),
    "ImplicitOAuthFlow": ("authorizationUrl scopes", "refreshUrl"),
    "PasswordOAuthFlow": ("tokenUrl scopes", "refreshUrl"),
}
"""The models of a2a-python 0.3: the members that each needs, and those that it may have beside them.

The ``type`` of a scheme is left out, because it is never signed: it is the only value that the scheme's model takes.
"""

REQUIRED_0_3: Final[Mapping[str, tuple[str, ...]]] = {
    message: tuple(required.split()) for message, (required, _) in _MEMBERS_0_3.items() if required
}
"""Message name, then the members without which the model of a2a-python 0.3 refuses it."""


REQUIRED_0_1: Final[Mapping[str, tuple[str, ...]]] = {
    "AgentCard": ("name", "url", "version", "capabilities", "skills"),
    "AgentSkill": ("id", "name"),
    "AgentProvider": ("organization",),
}
"""Message name, then the members that the JSON schema of 0.1 requires, where they differ from those of 0.3."""


def _field_0_3(message: str, name: str) -> Field:
    """The field as that SDK has it. No member is IMPLICIT: false has been set when it is there, the default is null."""
    known = MESSAGES[message].get(name) or LEGACY.get(message, {}).get(name) or LEGACY[f"{message}03"][name]
    presence = Presence.REQUIRED if name in REQUIRED_0_3.get(message, ()) else Presence.EXPLICIT
    if name == "security":  # a list of objects of lists; values that hold no messages are pruned alike
        return Field(name, Kind.STRUCT, presence)
    return Field(name, known.kind, presence, known.message.removesuffix("03"))


MESSAGES_0_3: Final = _by_name(
    {
        message: tuple(_field_0_3(message, name) for names in members for name in names.split())
        for message, members in _MEMBERS_0_3.items()
    }
)
"""The members that the models of a2a-python 0.3 have, as in ``MESSAGES``."""

DEFAULTS_0_3: Final[Mapping[str, str]] = MappingProxyType({"protocolVersion": "0.3.0", "preferredTransport": "JSONRPC"})
"""Members of a card of 0.3 that mean this when they are not there; a2a-python 0.3 does not sign them at this value."""
