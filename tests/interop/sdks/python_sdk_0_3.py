"""a2a-python 0.3 at work: reads requests as JSON lines, writes an answer per line.

Run by the interpreter of that SDK's own environment, never imported by a test.
"""

from __future__ import annotations

import json
import sys
import traceback
import types
import typing
from enum import Enum
from typing import Any

import jwt
from a2a.types import AgentCard, SecurityScheme  # type: ignore[import-not-found, unused-ignore]
from a2a.utils.signing import (  # type: ignore[import-not-found, unused-ignore]
    SignatureVerificationError,
    create_agent_card_signer,
    create_signature_verifier,
)
from pydantic import BaseModel, ValidationError  # type: ignore[import-not-found, unused-ignore]

ALGORITHMS = ["ES256", "EdDSA", "RS256"]


def verify(request: dict[str, Any]) -> dict[str, Any]:
    keys = {key["kid"]: jwt.PyJWK(key) for key in request["keys"]}

    def key_named(kid: str | None, _jku: str | None) -> jwt.PyJWK:
        if kid not in keys:
            raise jwt.PyJWKClientError("no such key")
        return keys[kid]

    try:
        create_signature_verifier(key_named, ALGORITHMS)(AgentCard.model_validate(json.loads(request["card"])))
    except (ValidationError, SignatureVerificationError) as error:
        return {"refused": type(error).__name__}
    return {"refused": None}


def sign(request: dict[str, Any]) -> dict[str, Any]:
    key = request["key"]
    header = {"kid": key["kid"], "alg": key["alg"], "typ": "JOSE", "jku": request["jku"]}
    signer = create_agent_card_signer(jwt.PyJWK(key), {name: value for name, value in header.items() if value})
    try:
        signed = signer(AgentCard.model_validate(json.loads(request["card"])))
    except ValidationError:
        return {"card": None}
    # As the SDK's own server sends it.
    return {"card": json.dumps(signed.model_dump(exclude_none=True, by_alias=True))}


def describe(_request: dict[str, Any]) -> dict[str, Any]:
    """Every model that can be reached from AgentCard, field by field; the models of a scheme under their own names."""
    messages: dict[str, list[dict[str, Any]]] = {}
    waiting = [AgentCard]
    while waiting:
        model = waiting.pop()
        if model.__name__ in messages:
            continue
        if model is SecurityScheme:
            waiting.extend(typing.get_args(model.model_fields["root"].annotation))
            continue
        fields = messages[model.__name__] = []
        for name, field in model.model_fields.items():
            shape, value = _shape(field.annotation)
            is_model = isinstance(value, type) and issubclass(value, BaseModel)
            fields.append(
                {
                    "name": field.alias,
                    "proto_name": name,
                    "shape": shape,
                    "type": "message" if is_model else _plain(value),
                    "message": value.__name__ if is_model else None,
                    "required": field.is_required(),
                    "default": None if field.is_required() else field.default,
                }
            )
            if is_model:
                waiting.append(value)
    return {"messages": messages}


def _shape(annotation: Any) -> tuple[str, Any]:
    """Whether a field holds one, a list, or a map, and of what."""
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        annotation = next(each for each in typing.get_args(annotation) if each is not type(None))
    if typing.get_origin(annotation) is list:
        return "list", typing.get_args(annotation)[0]
    if typing.get_origin(annotation) is dict:
        return "map", typing.get_args(annotation)[1]
    return "single", annotation


def _plain(value: Any) -> str:
    if value is str or (isinstance(value, type) and issubclass(value, Enum)):
        return "string"
    if typing.get_origin(value) is typing.Literal:
        return "literal"
    return "bool" if value is bool else "any"


if __name__ == "__main__":
    answers = {"verify": verify, "sign": sign, "describe": describe}
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = answers[request["do"]](request)
        except Exception:  # noqa: BLE001  the test that asked fails with it, and the next one finds us alive
            answer = {"crashed": traceback.format_exc()}
        print(json.dumps(answer), flush=True)
