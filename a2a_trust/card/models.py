"""Pydantic models of a verified card, for reading: attributes that type checkers and editors know.

``model_of(verified.card)`` gives the model of the card's generation: ``AgentCard`` for 1.0, for merged cards too, and
``AgentCard03`` for 0.1 to 0.3. If you know the generation, write ``AgentCard.model_validate(verified.card)``. Models
whose names end in "03" are of 0.3, which has the members of 0.2.

Attributes have the proto names (``supported_interfaces``; ``list_`` and ``in_`` for the members ``list`` and ``in``).
A member that the specification requires is empty when it is missing, as ProtoJSON readers have it; other members are
None. Members that a model does not know are kept in ``model_extra``: in a merged card the members of 0.3.
``model_dump(by_alias=True, exclude_unset=True)`` is the card again, with its JSON names.

Nothing in this library decides by these models, but the attributes show every security scheme and every requirement,
of the card and of its skills, that it reads. So a card is rejected if a scheme or a requirement is only in members of
another generation (``security`` beside ``supportedInterfaces``, ``securityRequirements`` beside ``url``), or if
``card.view`` rejects it. The models also reject some cards that this library accepts:

- Cards without ``supportedInterfaces``, or before 1.0 without ``url``: they tell the generations apart.
- null in place of a required member. Signing drops it from a card of 1.0.
- Members under their proto names (``"icon_url"`` in place of ``"iconUrl"``).
- Requirements of 1.0 in another form than ``{"schemes": {name: {"list": […]}}}``: they would look like an absent
  requirement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Self

from a2a_trust.card.view import generation_of, read_card
from a2a_trust.errors import MalformedError

try:
    from pydantic import BaseModel, ConfigDict, Field, StrictBool, model_validator
except ModuleNotFoundError as _error:
    _TEXT = 'a2a_trust.card.models needs pydantic: pip install "./a2a-trust[models]"'
    raise ModuleNotFoundError(_TEXT, name=_error.name) from None


def model_of(card: Mapping[str, Any]) -> AgentCard | AgentCard03:
    """The card as a model of its generation. ``pydantic.ValidationError``: it does not fit the model."""
    return (AgentCard03 if generation_of(card).is_legacy else AgentCard).model_validate(card)


def _json_name(name: str) -> str:
    """The JSON name of the member with this attribute."""
    first, *others = name.rstrip("_").split("_")
    return first + "".join(map(str.capitalize, others))


class CardModel(BaseModel):
    """The base of all models: frozen, with all members of the card, known and unknown."""

    model_config: ClassVar[ConfigDict] = ConfigDict(alias_generator=_json_name, extra="allow", frozen=True)

    @model_validator(mode="after")
    def _has_json_names(self) -> Self:
        """Reject a member with the name of an attribute: the attribute would say that the member is not set."""
        for name in self.model_extra or ():
            if name in type(self).model_fields:
                raise ValueError(f"{name}: write {_json_name(name)}")
        return self


class _WholeCard(CardModel):
    @model_validator(mode="after")
    def _shows_all_rules(self) -> Self:
        """Reject a card whose schemes and requirements are not those that the attributes show."""
        try:
            rules = _rules(self.model_dump(mode="json", by_alias=True, exclude_unset=True))
        except MalformedError as error:
            raise ValueError(str(error)) from None
        with suppress(MalformedError):
            if _rules(_attributes_of(self)) == rules:
                return self
        raise ValueError(
            "a security scheme or requirement is only in a member of another generation, which this model does not "
            "show; write the members of one generation, or of both with equal content"
        )


def _attributes_of(value: Any) -> Any:
    """The members that attributes have, under their JSON names."""
    if isinstance(value, CardModel):
        names = [name for name in type(value).model_fields if name in value.model_fields_set]
        return {_json_name(name): _attributes_of(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {name: _attributes_of(each) for name, each in value.items()}
    return [_attributes_of(each) for each in value] if isinstance(value, list | tuple) else value


def _rules(card: Mapping[str, Any]) -> object:
    view = read_card(card)
    demands = [view.requirements, *[skill.requirements for skill in view.skills]]
    return dict(view.schemes), [None if each is None else set(each) for each in demands]


class AgentCard(_WholeCard):
    """A card of 1.0."""

    name: str = ""
    description: str = ""
    supported_interfaces: Sequence[AgentInterface]
    provider: AgentProvider | None = None
    version: str = ""
    documentation_url: str | None = None
    capabilities: AgentCapabilities = Field(default_factory=lambda: AgentCapabilities())
    security_schemes: Mapping[str, SecurityScheme] | None = None
    security_requirements: Sequence[SecurityRequirement] | None = None
    default_input_modes: Sequence[str] = ()
    default_output_modes: Sequence[str] = ()
    skills: Sequence[AgentSkill] = ()
    signatures: Sequence[AgentCardSignature] | None = None
    icon_url: str | None = None


class AgentInterface(CardModel):
    url: str = ""
    protocol_binding: str = ""
    tenant: str | None = None
    protocol_version: str = ""


class AgentProvider(CardModel):
    """The provider of the agent; also in 0.3."""

    url: str = ""
    organization: str = ""


class AgentCapabilities(CardModel):
    streaming: StrictBool | None = None
    push_notifications: StrictBool | None = None
    extensions: Sequence[AgentExtension] | None = None
    extended_agent_card: StrictBool | None = None


class AgentExtension(CardModel):
    uri: str | None = None
    description: str | None = None
    required: StrictBool | None = None
    params: Mapping[str, Any] | None = None


class _Skill(CardModel):
    id: str = ""
    name: str = ""
    description: str = ""
    tags: Sequence[str] = ()
    examples: Sequence[str] | None = None
    input_modes: Sequence[str] | None = None
    output_modes: Sequence[str] | None = None


class AgentSkill(_Skill):
    security_requirements: Sequence[SecurityRequirement] | None = None


class AgentCardSignature(CardModel):
    """A signature of the card; also in 0.3."""

    protected: str = ""
    signature: str = ""
    header: Mapping[str, Any] | None = None


class SecurityRequirement(CardModel):
    """Schemes that are required together, each with its scopes."""

    schemes: Mapping[str, StringList] | None = None

    @model_validator(mode="after")
    def _has_schemes_only(self) -> Self:
        if self.model_extra:
            raise ValueError('write {"schemes": {name: {"list": […]}}}; other members would go unread')
        return self


class StringList(CardModel):
    """A list of scopes."""

    list_: Sequence[str] | None = None


class SecurityScheme(CardModel):
    """A security scheme: one of these members is there."""

    api_key_security_scheme: APIKeySecurityScheme | None = None
    http_auth_security_scheme: HTTPAuthSecurityScheme | None = None
    oauth2_security_scheme: OAuth2SecurityScheme | None = None
    open_id_connect_security_scheme: OpenIdConnectSecurityScheme | None = None
    mtls_security_scheme: MutualTlsSecurityScheme | None = None


class APIKeySecurityScheme(CardModel):
    """An API key in a header, a query parameter or a cookie: ``location`` is one of those words."""

    description: str | None = None
    location: str = ""
    name: str = ""


class HTTPAuthSecurityScheme(CardModel):
    description: str | None = None
    scheme: str = ""
    bearer_format: str | None = None


class OAuth2SecurityScheme(CardModel):
    description: str | None = None
    flows: OAuthFlows = Field(default_factory=lambda: OAuthFlows())
    oauth2_metadata_url: str | None = None


class OpenIdConnectSecurityScheme(CardModel):
    description: str | None = None
    open_id_connect_url: str = ""


class MutualTlsSecurityScheme(CardModel):
    description: str | None = None


class OAuthFlows(CardModel):
    """The flow of OAuth 2.0: one of these members is there."""

    authorization_code: AuthorizationCodeOAuthFlow | None = None
    client_credentials: ClientCredentialsOAuthFlow | None = None
    implicit: ImplicitOAuthFlow | None = None
    password: PasswordOAuthFlow | None = None
    device_code: DeviceCodeOAuthFlow | None = None


class _TokenFlow(CardModel):
    token_url: str = ""
    refresh_url: str | None = None
    scopes: Mapping[str, str] = Field(default_factory=dict)


class AuthorizationCodeOAuthFlow(_TokenFlow):
    authorization_url: str = ""
    pkce_required: StrictBool | None = None


class ClientCredentialsOAuthFlow(_TokenFlow):
    """The client credentials flow; also in 0.3."""


class ImplicitOAuthFlow(CardModel):
    authorization_url: str | None = None
    refresh_url: str | None = None
    scopes: Mapping[str, str] | None = None


class PasswordOAuthFlow(CardModel):
    token_url: str | None = None
    refresh_url: str | None = None
    scopes: Mapping[str, str] | None = None


class DeviceCodeOAuthFlow(_TokenFlow):
    device_authorization_url: str = ""


class AgentCard03(_WholeCard):
    """A card of 0.2 or 0.3, or of 0.1 as far as it has their members."""

    name: str = ""
    description: str = ""
    url: str
    version: str = ""
    capabilities: AgentCapabilities03 = Field(default_factory=lambda: AgentCapabilities03())
    default_input_modes: Sequence[str] = ()
    default_output_modes: Sequence[str] = ()
    skills: Sequence[AgentSkill03] = ()
    additional_interfaces: Sequence[AgentInterface03] | None = None
    documentation_url: str | None = None
    icon_url: str | None = None
    preferred_transport: str | None = None
    protocol_version: str | None = None
    provider: AgentProvider | None = None
    security: Sequence[Mapping[str, Sequence[str]]] | None = None
    security_schemes: Mapping[str, SecurityScheme03] | None = None
    signatures: Sequence[AgentCardSignature] | None = None
    supports_authenticated_extended_card: StrictBool | None = None
    authentication: Authentication01 | None = None


class Authentication01(CardModel):
    """The requirements of a card of 0.1: one of these schemes is enough."""

    schemes: Sequence[str]
    credentials: str | None = None


class AgentInterface03(CardModel):
    url: str = ""
    transport: str = ""


class AgentCapabilities03(CardModel):
    extensions: Sequence[AgentExtension03] | None = None
    push_notifications: StrictBool | None = None
    state_transition_history: StrictBool | None = None
    streaming: StrictBool | None = None


class AgentExtension03(CardModel):
    uri: str = ""
    description: str | None = None
    params: Mapping[str, Any] | None = None
    required: StrictBool | None = None


class AgentSkill03(_Skill):
    security: Sequence[Mapping[str, Sequence[str]]] | None = None


class SecurityScheme03(CardModel):
    """A security scheme: ``type`` says which of the other members are there."""

    type: str = ""
    description: str | None = None
    in_: str | None = None
    name: str | None = None
    scheme: str | None = None
    bearer_format: str | None = None
    flows: OAuthFlows03 | None = None
    open_id_connect_url: str | None = None
    oauth2_metadata_url: str | None = None


class OAuthFlows03(CardModel):
    """The flows of OAuth 2.0: any of these members."""

    authorization_code: AuthorizationCodeOAuthFlow03 | None = None
    client_credentials: ClientCredentialsOAuthFlow | None = None
    implicit: ImplicitOAuthFlow03 | None = None
    password: PasswordOAuthFlow03 | None = None


class AuthorizationCodeOAuthFlow03(_TokenFlow):
    authorization_url: str = ""


class ImplicitOAuthFlow03(CardModel):
    authorization_url: str = ""
    scopes: Mapping[str, str] = Field(default_factory=dict)
    refresh_url: str | None = None


class PasswordOAuthFlow03(_TokenFlow):
    """The password flow."""
