"""The pydantic models have exactly the members of the schema table, and lose nothing of a card."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from a2a_trust.card import models
from a2a_trust.card.ambiguity import check_card
from a2a_trust.card.merge import merged_card
from a2a_trust.card.models import AgentCard, AgentCard03, CardModel, model_of
from a2a_trust.card.schema import MESSAGES, MESSAGES_0_3, SCHEME_TYPES, Field, Kind, Presence, proto_name
from a2a_trust.card.view import read_card
from a2a_trust.errors import ConfigurationError, MalformedError
from a2a_trust.keys.signer import generate_signer
from a2a_trust.keys.trust.origins import UnsafeAnyOrigin
from a2a_trust.keys.trust.store import TrustedKey, TrustStore
from a2a_trust.signing.sign import sign_card
from a2a_trust.signing.verify import verify_card
from tests.interop.made_cards import EVERY_FIELD, EVERY_FIELD_AT_ITS_DEFAULT
from tests.signing.cards import cards, full_card, legacy_card
from tests.signing.json_values import canonicalizable, texts
from tests.tables import walk

Table = Mapping[str, Mapping[str, Field]]

#: The messages that 0.3 has as 1.0 has them; their models have no "03".
SHARED: Final = {"AgentProvider", "ClientCredentialsOAuthFlow"}

#: Members of the models that the table leaves out: no payload holds them.
UNSIGNED: Final = {("AgentCard", "signatures"), ("AgentCard03", "signatures"), ("SecurityScheme03", "type")}

#: Members of 0.1, which the table of 0.3 leaves out.
OF_0_1: Final = {
    ("AgentCard03", "authentication"),
    ("Authentication01", "schemes"),
    ("Authentication01", "credentials"),
}

REFUSED: Final = {
    **dict.fromkeys(["018", "019", "059"], "a requirement without schemes"),
    **dict.fromkeys(["049", "050", "051", "053"], "the gate refuses it too: a text in place of a boolean"),
    **dict.fromkeys(["098", "099"], "skills: null"),
    "143": "push_notifications in place of pushNotifications",
    **dict.fromkeys(["038", "039", "041"], "security beside supportedInterfaces"),
    **dict.fromkeys(["165", "166", "167"], "schemes of 0.3 beside supportedInterfaces"),
}
"""The real cards that the models refuse, by id."""


def name_of(message: str, table: Table) -> str:
    return f"{message}03" if table is MESSAGES_0_3 and message not in SHARED else message


def type_of(field: Field, table: Table) -> Any:
    """What the attribute is when it is set."""
    if field.name == "security":
        return Sequence[Mapping[str, Sequence[str]]]
    message: Any = getattr(models, name_of(field.message, table), None)
    return {
        Kind.STRING: str,
        Kind.BOOL: bool,
        Kind.STRINGS: Sequence[str],
        Kind.STRING_MAP: Mapping[str, str],
        Kind.STRUCT: Mapping[str, Any],
        Kind.MESSAGE: message,
        Kind.MESSAGES: Sequence[message],
        Kind.MESSAGE_MAP: Mapping[str, message],
    }[field.kind]


def classes() -> dict[str, type[CardModel]]:
    found = inspect.getmembers(models, inspect.isclass)
    models_by_name = {
        name: each for name, each in found if issubclass(each, CardModel) and each.model_fields and name[0] != "_"
    }
    for model in models_by_name.values():
        model.model_rebuild()  # what pydantic does on first use: members of classes further below
    return models_by_name


def members_of_models() -> dict[tuple[str, str], tuple[Any, bool]]:
    """Model and JSON name -> the type of the attribute, and whether it is always there."""
    found = {}
    for name, model in classes().items():
        hints = get_type_hints(model)
        for attribute, info in model.model_fields.items():
            kinds = get_args(hints[attribute])
            is_always = type(None) not in kinds
            found[name, str(info.alias)] = (hints[attribute] if is_always else kinds[0], is_always)
    return found


def members_of_tables() -> dict[tuple[str, str], tuple[Any, bool]]:
    return {
        (name_of(message, table), field.name): (type_of(field, table), field.presence is Presence.REQUIRED)
        for table in (MESSAGES, MESSAGES_0_3)
        for message, fields in table.items()
        for field in fields.values()
    }


def test_the_models_have_the_members_types_and_required_members_of_the_table() -> None:
    of_models = members_of_models()
    assert of_models.keys() >= UNSIGNED | OF_0_1
    compared = {
        place: member
        for place, member in of_models.items()
        if place not in UNSIGNED | OF_0_1 and place[0] != "AgentCardSignature"
    }
    assert compared == members_of_tables()


def test_messages_that_both_generations_share_are_the_same_in_both() -> None:
    for message in SHARED:
        shapes = [
            {(field.name, field.kind, field.presence is Presence.REQUIRED) for field in table[message].values()}
            for table in (MESSAGES, MESSAGES_0_3)
        ]
        assert shapes[0] == shapes[1]


def test_attributes_have_the_proto_names() -> None:
    fields = {
        field.name: field.proto_name
        for table in (MESSAGES, MESSAGES_0_3)
        for message in table.values()
        for field in message.values()
    }
    for model in classes().values():
        for attribute, info in model.model_fields.items():
            assert attribute.rstrip("_") == fields.get(str(info.alias), info.alias)


def check_round_trip(card: dict[str, Any]) -> AgentCard | AgentCard03:
    """The dump is the card: in value, in types of numbers, and in what can be written as JSON."""
    model = model_of(card)
    again = model.model_dump(by_alias=True, exclude_unset=True)
    assert json.dumps(again, sort_keys=True) == json.dumps(card, sort_keys=True)
    assert again == model.model_dump(mode="json", by_alias=True, exclude_unset=True) == card
    assert json.loads(model.model_dump_json(by_alias=True, exclude_unset=True)) == card
    return model


def test_every_real_card_round_trips_or_is_refused_for_its_reason(vectors: Path) -> None:
    refused = set()
    paths = sorted((vectors / "cards" / "files").glob("*.json"))
    assert len(paths) == 98
    for path in paths:
        card = json.loads(path.read_bytes())
        try:
            check_round_trip(card)
        except ValidationError:
            refused.add(path.stem)
    assert refused == REFUSED.keys()


@walk(
    "card",
    [
        json.loads(json.dumps(EVERY_FIELD).replace("a location", "header")),
        {**EVERY_FIELD_AT_ITS_DEFAULT, "securitySchemes": {}},  # a scheme without a kind is refused
        full_card(),
        legacy_card(),
        merged_card(full_card()),
    ],
)
def test_made_cards_round_trip(card: dict[str, Any]) -> None:
    check_round_trip(card)


needed = texts.filter(bool)


def values_of(field: Field, table: Table) -> st.SearchStrategy[Any]:
    strings = st.lists(texts, max_size=2)
    if field.name == "security":
        return st.lists(st.dictionaries(texts, st.lists(needed, max_size=2), max_size=2), max_size=2)
    if field.name in ("location", "in"):
        return st.sampled_from(["header", "query", "cookie"])
    message = st.deferred(lambda: messages(field.message, table))
    return {
        Kind.STRING: texts if field.name in ("description", "version") else needed,
        Kind.BOOL: st.booleans(),
        Kind.STRINGS: st.lists(needed, max_size=2) if field.name == "list" else strings,
        Kind.STRING_MAP: st.dictionaries(texts, texts, max_size=2),
        Kind.STRUCT: st.dictionaries(texts, canonicalizable, max_size=2),
        Kind.MESSAGE: message,
        Kind.MESSAGES: st.lists(message, max_size=2),
        Kind.MESSAGE_MAP: st.dictionaries(texts, message, max_size=2),
    }[field.kind]


SCHEMES: Final = {"SecurityScheme", *MESSAGES["SecurityScheme"].keys()} | {
    field.message for field in MESSAGES["SecurityScheme"].values()
}
PLACES: Final = {
    ("AgentCard", "supportedInterfaces"), ("AgentCard", "url"), ("AgentInterface", "url"), ("AgentInterface03", "url")
}  # fmt: skip


@st.composite
def messages(draw: st.DrawFn, message: str, table: Table) -> dict[str, Any]:
    """A message that ``read_card`` reads. Members are absent, null where they may be, or set; some are of nobody."""
    members: dict[str, Any] = {}
    variants = [field.name for field in table[message].values() if field.oneof]
    variant = draw(st.sampled_from(variants)) if variants else ""
    for field in table[message].values():
        is_required = field.presence is Presence.REQUIRED
        way = draw(st.sampled_from(["value", "value", "absent", "value" if is_required else "null"]))
        if message in SCHEMES or (message, field.name) in PLACES:
            way = "value"  # a scheme that is not complete cannot be read, nor can an interface without a URL
        if way != "absent" and field.name in (variant, field.name if not field.oneof else ""):
            members[field.name] = None if way == "null" else draw(values_of(field, table))
    if message == "SecurityScheme" and table is MESSAGES_0_3:
        members["type"] = draw(st.sampled_from([*SCHEME_TYPES.values()]))
    if message not in ("SecurityRequirement", "StringList") and draw(st.booleans()):
        members |= draw(st.dictionaries(texts.filter(str.isprintable).map("x-{}".format), canonicalizable, max_size=2))
    return members


# What counts is in the attributes

Demands = frozenset[tuple[tuple[str, frozenset[str]], ...]] | None


def shown_by(model: AgentCard | AgentCard03) -> tuple[set[tuple[str, str]], list[Demands]]:
    """Names and kinds of the schemes, and the requirements of the card and its skills, by attributes alone."""
    schemes = set[tuple[str, str]]()
    demands: list[Any]
    if isinstance(model, AgentCard):
        for name, scheme in (model.security_schemes or {}).items():
            kinds = {kind for kind in type(scheme).model_fields if getattr(scheme, kind) is not None}
            schemes |= {(name, KINDS[kind]) for kind in kinds}
        demands = [
            each and [{n: s.list_ or () for n, s in (one.schemes or {}).items()} for one in each]
            for each in [model.security_requirements, *[skill.security_requirements for skill in model.skills]]
        ]
    else:
        schemes = {(name, KINDS[scheme.type]) for name, scheme in (model.security_schemes or {}).items()}
        demands = [model.security, *[skill.security for skill in model.skills]]
        if model.authentication is not None:
            demands[0] = [{word: ()} for word in model.authentication.schemes]
            schemes |= {(word, "NamedScheme") for word in model.authentication.schemes} - schemes
    return schemes, [
        None if each is None else frozenset(tuple(sorted((n, frozenset(s)) for n, s in one.items())) for one in each)
        for each in demands
    ]


KINDS: Final = {
    name: kind
    for wrapper, (old, kind) in {
        "api_key_security_scheme": ("apiKey", "ApiKeyScheme"),
        "http_auth_security_scheme": ("http", "HttpScheme"),
        "oauth2_security_scheme": ("oauth2", "OAuth2Scheme"),
        "open_id_connect_security_scheme": ("openIdConnect", "OpenIdConnectScheme"),
        "mtls_security_scheme": ("mutualTLS", "MutualTlsScheme"),
    }.items()
    for name in (wrapper, old)
}


def check_it_shows_what_counts(card: dict[str, Any]) -> bool:
    """Whether there is a model; if so, its attributes say what the guard and ``CardAuth`` read."""
    try:
        model = model_of(card)
    except ValidationError:
        return False
    view = read_card(card)
    schemes = {(name, type(scheme).__name__) for name, scheme in view.schemes.items()}
    demands = [view.requirements, *[skill.requirements for skill in view.skills]]
    read = [None if each is None else frozenset(one.schemes for one in each) for each in demands]
    assert shown_by(model) == (schemes, read)
    return True


def test_the_models_of_real_cards_show_what_counts(vectors: Path) -> None:
    paths = sorted((vectors / "cards" / "files").glob("*.json"))
    assert sum(check_it_shows_what_counts(json.loads(path.read_bytes())) for path in paths) == len(paths) - len(REFUSED)


@st.composite
def mixed(draw: st.DrawFn) -> dict[str, Any]:
    """A card with members of the other generation beside or in place of its own, and with misspelled ones."""
    table, other = draw(st.permutations([MESSAGES, MESSAGES_0_3]))
    card = draw(messages("AgentCard", table))
    donor = draw(messages("AgentCard", other))
    holders = [(card, donor), *zip(card.get("skills") or [], donor.get("skills") or [], strict=False)]
    for holder, others in holders:
        for name in ("security", "securityRequirements", "securitySchemes"):
            if name in others and draw(st.booleans()):
                holder[name] = others[name]
            if name in holder and draw(st.integers(0, 4)) == 0:
                spelling = draw(st.sampled_from([proto_name(name), name.lower(), name.upper()]))
                holder[spelling] = holder.pop(name)
        if draw(st.integers(0, 4)) == 0:
            holder["authentication"] = {"schemes": draw(st.lists(needed, max_size=2))}
    for name in ("url", "supportedInterfaces"):
        if draw(st.booleans()):
            card.pop(name, None)
    return card


@given(mixed())
def test_what_counts_is_in_the_model_or_the_model_is_refused(card: dict[str, Any]) -> None:
    check_it_shows_what_counts(card)


@given(messages("AgentCard", MESSAGES))
def test_merged_cards_show_what_counts(card: dict[str, Any]) -> None:
    try:
        merged = merged_card(card)
    except (ConfigurationError, MalformedError):
        return
    assert check_it_shows_what_counts(merged)


@walk(
    "card",
    [
        {**full_card(), "security": [{"bearer": []}]},
        {**full_card(), "securityRequirements": None, "security": [{"bearer": []}]},
        {**legacy_card(), "securityRequirements": [{"schemes": {"key": {}}}]},
        {**full_card(), "skills": [{"id": "s", "security": [{"bearer": []}]}]},
        {**legacy_card(), "skills": [{"id": "s", "securityRequirements": [{"schemes": {"key": {}}}]}]},
        {**full_card(), "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}}},
        {**legacy_card(), "securitySchemes": {"oauth": {"mtlsSecurityScheme": {}}, "key": {"mtlsSecurityScheme": {}}}},
        {**full_card(), "authentication": {"schemes": ["bearer"]}},
        {**legacy_card(), "SecurityRequirements": []},
    ],
)
def test_a_card_that_says_more_than_its_model_is_refused(card: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        model_of(card)


@given(messages("AgentCard", MESSAGES))
def test_generated_cards_of_1_0_round_trip(card: dict[str, Any]) -> None:
    model = AgentCard.model_validate(card)
    assert model.model_dump(by_alias=True, exclude_unset=True) == card


@given(messages("AgentCard", MESSAGES_0_3))
def test_generated_cards_of_0_3_round_trip(card: dict[str, Any]) -> None:
    model = AgentCard03.model_validate(card)
    assert model.model_dump(by_alias=True, exclude_unset=True) == card


@given(cards)
def test_what_the_gate_accepts_is_refused_only_for_the_reasons_in_the_documentation(card: dict[str, Any]) -> None:
    check_card(card)
    try:
        check_round_trip(card)
    except ValidationError as error:
        for reason in error.errors(include_url=False):
            where, value = reason["loc"], reason["input"]
            is_missing = reason["type"] == "missing" and where in (("supportedInterfaces",), ("url",))
            is_list_of_scopes = where[-3:-1] and "schemes" in where and isinstance(value, list)
            is_known = is_missing or value is None or is_list_of_scopes or "write " in reason["msg"]
            if not is_known:
                with pytest.raises(MalformedError):
                    read_card(card)


def test_a_verified_card_round_trips_and_reads() -> None:
    signer = generate_signer()
    trust = TrustStore([TrustedKey(key=signer.public_key, origins=UnsafeAnyOrigin())])
    verified = verify_card(sign_card(full_card(), signer).card, trust, origin=UnsafeAnyOrigin(), now=2e9)
    card = AgentCard.model_validate(verified.card)
    assert card.model_dump(by_alias=True, exclude_unset=True) == verified.card
    assert card.supported_interfaces[0].protocol_binding == "JSONRPC"
    assert card.security_schemes is not None
    bearer = card.security_schemes["bearer"].http_auth_security_scheme
    assert bearer is not None
    assert bearer.bearer_format == "JWT"


def test_the_generation_chooses_the_model(vectors: Path) -> None:
    assert type(model_of(full_card())) is AgentCard
    assert type(model_of(legacy_card())) is AgentCard03
    merged = model_of(merged_card(full_card()))
    assert type(merged) is AgentCard
    assert "security" in (merged.model_extra or {})
    old = model_of({"name": "n", "url": "https://a.example", "authentication": {"schemes": ["apiKey"]}})
    assert isinstance(old, AgentCard03)
    assert old.authentication is not None
    assert (old.name, old.skills, old.authentication.schemes) == ("n", (), ["apiKey"])


@pytest.mark.parametrize(("model", "card"), [(AgentCard, legacy_card()), (AgentCard03, full_card())])
def test_a_card_of_another_generation_is_refused(model: type[CardModel], card: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="Field required"):
        model.model_validate(card)


@walk(
    ("card", "words"),
    [
        ({"name": "n"}, "supportedInterfaces"),
        ({"name": "n", "protocolVersion": "0.3.0"}, "url"),
        ({**full_card(), "skills": None}, "skills"),
        ({**full_card(), "name": None}, "name"),
        ({**legacy_card(), "icon_url": "https://a.example"}, "icon_url: write iconUrl"),
        ({**full_card(), "securityRequirements": [{"bearer": []}]}, "other members would go unread"),
        ({**full_card(), "securityRequirements": [{"schemes": {"bearer": []}}]}, "schemes.bearer"),
    ],
)
def test_what_the_gate_accepts_and_the_models_refuse(card: dict[str, Any], words: str) -> None:
    check_card(card)
    with pytest.raises(ValidationError, match=words):
        model_of(card)


def test_nothing_is_converted() -> None:
    for streaming in ("true", 1, 0.0):
        card = {**full_card(), "capabilities": {"streaming": streaming}}
        with pytest.raises(ValidationError, match="should be a valid boolean"):
            model_of(card)
        with pytest.raises(MalformedError):
            check_card(card)


def test_models_are_frozen() -> None:
    card = AgentCard.model_validate(full_card())
    with pytest.raises(ValidationError, match="frozen"):
        card.name = "other"


def test_without_pydantic_the_models_say_what_to_install() -> None:
    program = "import sys; sys.modules['pydantic'] = None; import a2a_trust.card.models"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert 'pip install "./a2a-trust[models]"' in done.stderr.splitlines()[-1]
