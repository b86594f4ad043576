"""The members of a card in every generation: what they look like, and when one counts as present.

One table has every message and field of AgentCard in ``a2a.proto`` 1.0.1, with presence by A2A 8.4.1 rule 1.
``signatures`` and AgentCardSignature are left out: no payload holds them. A second table has what 0.1 to 0.3 have
beside 1.0, from their JSON schemas; a third which of all these the models of a2a-python 0.3 know. Tests compare them
with the released SDKs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum, auto
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Final

CARD_PATHS: Final = ("/.well-known/agent-card.json", "/.well-known/agent.json")
"""Where agents serve their public card: 0.3 and 1.0, and 0.2."""


class Generation(StrEnum):
    """The versions whose cards and requests look alike."""

    V0_1 = "0.1"
    V0_3 = "0.3"
    """0.2 too: it has the members, paths and methods of 0.3."""
    V1_0 = "1.0"

    @property
    def is_legacy(self) -> bool:
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


def _fields(
    presence: Presence, names: str, kind: Kind = Kind.STRING, message: str = "", oneof: str = ""
) -> tuple[Field, ...]:
    return tuple(Field(name, kind, presence, message, oneof) for name in names.split())


_required: Final = partial(_fields, Presence.REQUIRED)
_explicit: Final = partial(_fields, Presence.EXPLICIT)
_implicit: Final = partial(_fields, Presence.IMPLICIT)


def _variants(oneof: str, messages: dict[str, str]) -> tuple[Field, ...]:
    return tuple(Field(name, Kind.MESSAGE, Presence.EXPLICIT, each, oneof) for name, each in messages.items())


_SCHEMES: Final = {
    "apiKeySecurityScheme": ("APIKeySecurityScheme", "apiKey"),
    "httpAuthSecurityScheme": ("HTTPAuthSecurityScheme", "http"),
    "oauth2SecurityScheme": ("OAuth2SecurityScheme", "oauth2"),
    "openIdConnectSecurityScheme": ("OpenIdConnectSecurityScheme", "openIdConnect"),
    "mtlsSecurityScheme": ("MutualTlsSecurityScheme", "mutualTLS"),
}
"""Wrapper of a security scheme in 1.0 -> its message, and its ``type`` in 0.2 and 0.3."""

_FIELDS_1_0: Final[dict[str, tuple[Field, ...]]] = {
    "AgentCard": (
        *_required("name description"),
        *_required("supportedInterfaces", Kind.MESSAGES, "AgentInterface"),
        *_explicit("provider", Kind.MESSAGE, "AgentProvider"),
        *_required("version"),
        *_explicit("documentationUrl"),
        *_required("capabilities", Kind.MESSAGE, "AgentCapabilities"),
        *_implicit("securitySchemes", Kind.MESSAGE_MAP, "SecurityScheme"),
        *_implicit("securityRequirements", Kind.MESSAGES, "SecurityRequirement"),
        *_required("defaultInputModes defaultOutputModes", Kind.STRINGS),
        *_required("skills", Kind.MESSAGES, "AgentSkill"),
        *_explicit("iconUrl"),
    ),
    "AgentInterface": (*_required("url protocolBinding"), *_implicit("tenant"), *_required("protocolVersion")),
    "AgentProvider": _required("url organization"),
    "AgentCapabilities": (
        *_explicit("streaming pushNotifications", Kind.BOOL),
        *_implicit("extensions", Kind.MESSAGES, "AgentExtension"),
        *_explicit("extendedAgentCard", Kind.BOOL),
    ),
    "AgentExtension": (
        *_implicit("uri description"),
        *_implicit("required", Kind.BOOL),
        *_explicit("params", Kind.STRUCT),
    ),
    "AgentSkill": (
        *_required("id name description"),
        *_required("tags", Kind.STRINGS),
        *_implicit("examples inputModes outputModes", Kind.STRINGS),
        *_implicit("securityRequirements", Kind.MESSAGES, "SecurityRequirement"),
    ),
    "SecurityRequirement": _implicit("schemes", Kind.MESSAGE_MAP, "StringList"),
    "StringList": _implicit("list", Kind.STRINGS),
    "SecurityScheme": _variants("scheme", {wrapper: message for wrapper, (message, _) in _SCHEMES.items()}),
    "APIKeySecurityScheme": (*_implicit("description"), *_required("location name")),
    "HTTPAuthSecurityScheme": (*_implicit("description"), *_required("scheme"), *_implicit("bearerFormat")),
    "OAuth2SecurityScheme": (
        *_implicit("description"),
        *_required("flows", Kind.MESSAGE, "OAuthFlows"),
        *_implicit("oauth2MetadataUrl"),
    ),
    "OpenIdConnectSecurityScheme": (*_implicit("description"), *_required("openIdConnectUrl")),
    "MutualTlsSecurityScheme": _implicit("description"),
    "OAuthFlows": _variants(
        "flow",
        {
            "authorizationCode": "AuthorizationCodeOAuthFlow",
            "clientCredentials": "ClientCredentialsOAuthFlow",
            "implicit": "ImplicitOAuthFlow",
            "password": "PasswordOAuthFlow",
            "deviceCode": "DeviceCodeOAuthFlow",
        },
    ),
    "AuthorizationCodeOAuthFlow": (
        *_required("authorizationUrl tokenUrl"),
        *_implicit("refreshUrl"),
        *_required("scopes", Kind.STRING_MAP),
        *_implicit("pkceRequired", Kind.BOOL),
    ),
    "ClientCredentialsOAuthFlow": (
        *_required("tokenUrl"),
        *_implicit("refreshUrl"),
        *_required("scopes", Kind.STRING_MAP),
    ),
    "ImplicitOAuthFlow": (*_implicit("authorizationUrl refreshUrl"), *_implicit("scopes", Kind.STRING_MAP)),
    "PasswordOAuthFlow": (*_implicit("tokenUrl refreshUrl"), *_implicit("scopes", Kind.STRING_MAP)),
    "DeviceCodeOAuthFlow": (
        *_required("deviceAuthorizationUrl tokenUrl"),
        *_implicit("refreshUrl"),
        *_required("scopes", Kind.STRING_MAP),
    ),
}

_FIELDS_BEFORE_1_0: Final[dict[str, tuple[Field, ...]]] = {
    "AgentCard": (
        *_explicit("url preferredTransport"),
        *_explicit("additionalInterfaces", Kind.MESSAGES, "AgentInterface03"),
        *_explicit("protocolVersion"),
        *_explicit("security", Kind.MESSAGES, "SecurityRequirement03"),
        *_explicit("supportsAuthenticatedExtendedCard", Kind.BOOL),
        *_explicit("authentication", Kind.MESSAGE, "Authentication01"),
    ),
    "AgentCapabilities": _explicit("stateTransitionHistory", Kind.BOOL),
    "AgentSkill": _explicit("security", Kind.MESSAGES, "SecurityRequirement03"),
    "AgentInterface03": _explicit("url transport"),
    "Authentication01": (*_explicit("schemes", Kind.STRINGS), *_explicit("credentials")),
    "SecurityScheme": (
        *_explicit("type description in name scheme bearerFormat"),
        *_explicit("flows", Kind.MESSAGE, "OAuthFlows03"),
        *_explicit("openIdConnectUrl oauth2MetadataUrl"),
    ),
    # The same flows as in 1.0, but several may stand side by side.
    "OAuthFlows03": tuple(replace(flow, oneof="") for flow in _FIELDS_1_0["OAuthFlows"]),
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
"""The additional members of 0.1, 0.2 and 0.3, in the same form. Names of messages that only they have end in "03"."""

LEGACY_MEMBERS: Final = LEGACY["AgentCard"].keys()
"""Members of a card that 0.1 to 0.3 have and 1.0 does not."""

REQUIREMENT_MEMBERS: Final = ("securityRequirements", "security_requirements", "security")
SCHEME_MEMBERS: Final = ("securitySchemes", "security_schemes")
"""The members of a card with its requirements (of a skill too) and its schemes, in every spelling that is read."""

SCHEME_TYPES: Final = {wrapper: type_ for wrapper, (_, type_) in _SCHEMES.items()}
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
    # Every model of a scheme at once: a scheme with the members of two is signed as one of them, and then rejected.
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
"""Message name, then the members without which the model of a2a-python 0.3 rejects it."""

REQUIRED_0_1: Final[Mapping[str, tuple[str, ...]]] = {
    "AgentCard": ("name", "url", "version", "capabilities", "skills"),
    "AgentSkill": ("id", "name"),
    "AgentProvider": ("organization",),
}
"""Message name, then the members that the JSON schema of 0.1 requires, where they differ from 0.3."""


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
