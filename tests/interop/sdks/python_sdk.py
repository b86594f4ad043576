"""One released Python SDK at work: reads requests as JSON lines, writes an answer per line.

Run by the interpreter of that SDK's own environment, never imported by a test.
"""

from __future__ import annotations

import json
import sys
import traceback
from typing import Any

import jwt
from a2a.client.card_resolver import parse_agent_card  # type: ignore[import-not-found, unused-ignore]
from a2a.server.request_handlers.response_helpers import (  # type: ignore[import-not-found, unused-ignore]
    agent_card_to_dict,
)
from a2a.types import AgentCard  # type: ignore[import-not-found, unused-ignore]
from a2a.utils.signing import (  # type: ignore[import-not-found, unused-ignore]
    SignatureVerificationError,
    create_agent_card_signer,
    create_signature_verifier,
)
from google.api.field_behavior_pb2 import (  # type: ignore[import-not-found, import-untyped, unused-ignore]
    REQUIRED,
    field_behavior,
)
from google.protobuf.descriptor_pb2 import (  # type: ignore[import-not-found, import-untyped, unused-ignore]
    DescriptorProto,
    FieldDescriptorProto,
)
from google.protobuf.json_format import (  # type: ignore[import-not-found, import-untyped, unused-ignore]
    MessageToDict,
    ParseDict,
    ParseError,
)

ALGORITHMS = ["ES256", "EdDSA", "RS256"]


def read_card(request: dict[str, Any]) -> Any:
    """The SDK's card from raw JSON: as protobuf reads it, or as the SDK's resolver does, which rewrites 0.3 members."""
    value = json.loads(request["card"])
    if request["reader"] == "resolver":
        return parse_agent_card(value)
    return ParseDict(value, AgentCard(), ignore_unknown_fields=True)


def verify(request: dict[str, Any]) -> dict[str, Any]:
    keys = {key["kid"]: jwt.PyJWK(key) for key in request["keys"]}

    def key_named(kid: str | None, _jku: str | None) -> jwt.PyJWK:
        if kid not in keys:
            raise jwt.PyJWKClientError("no such key")
        return keys[kid]

    try:
        create_signature_verifier(key_named, ALGORITHMS)(read_card(request))
    except (ParseError, SignatureVerificationError) as error:
        return {"refused": type(error).__name__}
    return {"refused": None}


def sign(request: dict[str, Any]) -> dict[str, Any]:
    key = request["key"]
    header = {"kid": key["kid"], "alg": key["alg"], "typ": "JOSE", "jku": request["jku"]}
    signer = create_agent_card_signer(jwt.PyJWK(key), {name: value for name, value in header.items() if value})
    try:
        signed = signer(read_card(request))
        # What the SDK's own server sends is more than was signed: the members of 0.3 are added after signing.
        card = agent_card_to_dict(signed) if request["wire"] == "served" else MessageToDict(signed)
    except (ParseError, TypeError, ValueError):
        return {"card": None}
    return {"card": json.dumps(card)}


def describe(_request: dict[str, Any]) -> dict[str, Any]:
    """Every message of A2A that can be reached from AgentCard, field by field, as the descriptors say."""
    messages: dict[str, list[dict[str, Any]]] = {}
    waiting = [AgentCard.DESCRIPTOR]
    while waiting:
        message = waiting.pop()
        if message.name in messages:
            continue
        declared = DescriptorProto()
        message.CopyToProto(declared)
        optional = {field.name for field in declared.field if field.proto3_optional}
        fields = messages[message.name] = []
        for field in message.fields:
            entry = field.message_type if field.message_type and field.message_type.GetOptions().map_entry else None
            value = entry.fields_by_name["value"] if entry else field
            target = value.message_type
            oneof = field.containing_oneof
            fields.append(
                {
                    "name": field.json_name,
                    "proto_name": field.name,
                    "shape": "map" if entry else "list" if field.is_repeated else "single",
                    "map_key": TYPES[entry.fields_by_name["key"].type] if entry else None,
                    "type": TYPES[value.type],
                    "message": target.full_name.removeprefix(f"{message.file.package}.") if target else None,
                    "required": REQUIRED in field.GetOptions().Extensions[field_behavior],
                    "has_presence": field.has_presence,
                    # protobuf makes a oneof of its own for each `optional` field; has_presence tells of those
                    "oneof": oneof.name if oneof and field.name not in optional else None,
                }
            )
            if target and target.file is message.file:
                waiting.append(target)
    return {"messages": messages}


TYPES = {number: name.removeprefix("TYPE_").lower() for name, number in FieldDescriptorProto.Type.items()}


if __name__ == "__main__":
    answers = {"verify": verify, "sign": sign, "describe": describe}
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = answers[request["do"]](request)
        except Exception:  # noqa: BLE001  the test that asked fails with it, and the next one finds us alive
            answer = {"crashed": traceback.format_exc()}
        print(json.dumps(answer), flush=True)
