"""The presence table is what the protobuf descriptors of the released SDK say, message by message, both ways."""

from __future__ import annotations

from typing import Any, Final

import pytest

from a2a_trust.card.schema import MESSAGES, Field, Kind, Presence
from tests.interop.sdk_process import SdkProcess

#: How a field of each kind is declared: its shape, its type (of the values, for a map), and what its messages are.
DECLARED: Final = {
    Kind.STRING: ("single", "string", None),
    Kind.BOOL: ("single", "bool", None),
    Kind.STRINGS: ("list", "string", None),
    Kind.STRING_MAP: ("map", "string", None),
    Kind.MESSAGE: ("single", "message", "a2a"),
    Kind.MESSAGES: ("list", "message", "a2a"),
    Kind.MESSAGE_MAP: ("map", "message", "a2a"),
    Kind.STRUCT: ("single", "message", "google.protobuf.Struct"),
}

#: No payload holds a signature: these are no part of the table.
LEFT_OUT: Final = {"AgentCard": {"signatures"}}
LEFT_OUT_MESSAGES: Final = {"AgentCardSignature"}


def _from_descriptor(field: dict[str, Any]) -> dict[str, Any]:
    # A2A 5.7: REQUIRED counts before presence; presence is that of `optional`, of messages and of oneofs.
    if field["required"]:
        presence = Presence.REQUIRED
    else:
        presence = Presence.EXPLICIT if field["has_presence"] else Presence.IMPLICIT
    return {**field, "presence": presence}


def _from_table(field: Field) -> dict[str, Any]:
    shape, kind, message = DECLARED[field.kind]
    single_message = shape == "single" and kind == "message"
    return {
        "name": field.name,
        "proto_name": field.proto_name,
        "shape": shape,
        "map_key": "string" if shape == "map" else None,
        "type": kind,
        "message": field.message if message == "a2a" else message,
        "required": field.presence is Presence.REQUIRED,
        # Of a REQUIRED field the table need not tell presence: a message has it, all others of A2A have not.
        "has_presence": single_message if field.presence is Presence.REQUIRED else field.presence is Presence.EXPLICIT,
        "oneof": field.oneof or None,
        "presence": field.presence,
    }


@pytest.mark.real
def test_the_presence_table_equals_the_descriptors_of_the_released_sdk(python_1_3_0: SdkProcess) -> None:
    described = {
        message: {
            field["name"]: _from_descriptor(field)
            for field in fields
            if field["name"] not in LEFT_OUT.get(message, set())
        }
        for message, fields in python_1_3_0.describe().items()
        if message not in LEFT_OUT_MESSAGES
    }
    table = {
        message: {name: _from_table(field) for name, field in fields.items()} for message, fields in MESSAGES.items()
    }
    assert table.keys() == described.keys()
    for message in described:
        assert table[message] == described[message], message


@pytest.mark.real
def test_the_descriptors_reach_every_message_of_a_card(python_1_3_0: SdkProcess) -> None:
    described = python_1_3_0.describe()
    assert described.keys() >= LEFT_OUT_MESSAGES
    assert "signatures" in {field["name"] for field in described["AgentCard"]}
    assert len(described) == len(MESSAGES) + len(LEFT_OUT_MESSAGES) == 21


def test_every_member_of_the_table_is_found_under_its_own_name() -> None:
    for fields in MESSAGES.values():
        assert all(name == field.name for name, field in fields.items())
    assert {field.message for fields in MESSAGES.values() for field in fields.values() if field.message} == (
        set(MESSAGES) - {"AgentCard"}
    )
