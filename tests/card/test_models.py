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
from a2a_trust.card.schema import MESSAGES, MESSAGES_0_3, Field, Kind, Presence
from a2a_trust.errors import MalformedError
from a2a_trust.keys.origins import UnsafeAnyOrigin
from a2a_trust.keys.signer import generate_signer
from a2a_trust.keys.trust import TrustedKey, TrustStore
from a2a_trust.signing.sign import sign_card
from a2a_trust.signing.verify import verify_card
from tests.interop.made_cards import EVERY_FIELD, EVERY_FIELD_AT_ITS_DEFAULT
from tests.signing.cards import cards, full_card, legacy_card
from tests.signing.cards import merged_card as card_of_two_generations
from tests.signing.json_values import canonicalizable, texts

Table = Mapping[str, Mapping[str, Field]]

#: The messages that 0.3 has as 1.0 has them; their models have no "03".
SHARED: Final = {"AgentProvider", "ClientCredentialsOAuthFlow"}

#: Members of the models that the table leaves out: no payload holds them.
UNSIGNED: Final = {("AgentCard", "signatures"), ("AgentCard03", "signatures"), ("SecurityScheme03", "type")}

REFUSED: Final = {
    **dict.fromkeys(["018", "019", "059"], "a requirement without schemes"),
    **dict.fromkeys(["049", "050", "051", "053"], "the gate refuses it too: a text in place of a boolean"),
    **dict.fromkeys(["098", "099"], "skills: null"),
    "143": "push_notifications in place of pushNotifications",
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
    models_by_name = {name: each for name, each in found if issubclass(each, CardModel) and each is not CardModel}
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
    assert of_models.keys() >= UNSIGNED
    compared = {
        place: member
        for place, member in of_models.items()
        if place not in UNSIGNED and place[0] != "AgentCardSignature"
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


def test_every_model_is_public() -> None:
    assert set(models.__all__) == {*classes(), "CardModel", "model_of"}


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


@pytest.mark.parametrize(
    "card",
    [
        EVERY_FIELD,
        EVERY_FIELD_AT_ITS_DEFAULT,
        full_card(),
        legacy_card(),
        card_of_two_generations(),
        merged_card(full_card()),
    ],
)
def test_made_cards_round_trip(card: dict[str, Any]) -> None:
    check_round_trip(card)


def values_of(field: Field, table: Table) -> st.SearchStrategy[Any]:
    strings = st.lists(texts, max_size=2)
    if field.name == "security":
        return st.lists(st.dictionaries(texts, strings, max_size=2), max_size=2)
    message = st.deferred(lambda: messages(field.message, table))
    return {
        Kind.STRING: texts,
        Kind.BOOL: st.booleans(),
        Kind.STRINGS: strings,
        Kind.STRING_MAP: st.dictionaries(texts, texts, max_size=2),
        Kind.STRUCT: st.dictionaries(texts, canonicalizable, max_size=2),
        Kind.MESSAGE: message,
        Kind.MESSAGES: st.lists(message, max_size=2),
        Kind.MESSAGE_MAP: st.dictionaries(texts, message, max_size=2),
    }[field.kind]


@st.composite
def messages(draw: st.DrawFn, message: str, table: Table) -> dict[str, Any]:
    """A message with members that are absent, null where they may be, or set, and with members of nobody."""
    members: dict[str, Any] = {}
    for field in table[message].values():
        is_required = field.presence is Presence.REQUIRED
        way = draw(st.sampled_from(["value", "value", "absent", "value" if is_required else "null"]))
        if way != "absent" or (message, field.name) in (("AgentCard", "supportedInterfaces"), ("AgentCard", "url")):
            members[field.name] = None if way == "null" else draw(values_of(field, table))
    if message != "SecurityRequirement" and draw(st.booleans()):
        members |= draw(st.dictionaries(texts.map("x-{}".format), canonicalizable, max_size=2))
    return members


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
            assert is_missing or value is None or is_list_of_scopes or "write " in reason["msg"]


def test_a_verified_card_round_trips_and_reads() -> None:
    signer = generate_signer()
    trust = TrustStore([TrustedKey(key=signer.public_key, origins=UnsafeAnyOrigin())])
    verified = verify_card(sign_card(full_card(), signer).card, trust, origin=UnsafeAnyOrigin(), now=0)
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
    merged = model_of(card_of_two_generations())
    assert type(merged) is AgentCard
    assert (merged.model_extra or {})["security"] == [{"oauth": ["read"]}]
    old = model_of({"name": "n", "url": "https://a.example", "authentication": {"schemes": ["apiKey"]}})
    assert (old.name, old.skills, old.model_extra) == ("n", (), {"authentication": {"schemes": ["apiKey"]}})


@pytest.mark.parametrize(("model", "card"), [(AgentCard, legacy_card()), (AgentCard03, full_card())])
def test_a_card_of_another_generation_is_refused(model: type[CardModel], card: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="Field required"):
        model.model_validate(card)


@pytest.mark.parametrize(
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
