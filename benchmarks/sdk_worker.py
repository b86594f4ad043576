"""a2a-sdk at work in its own environment: reads requests as JSON lines, and times its own calls.

Run by the interpreter of that environment, never imported here.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable
from itertools import repeat
from time import perf_counter
from typing import Any

import jwt
from a2a.types import AgentCard  # type: ignore[import-not-found, unused-ignore]
from a2a.utils import signing  # type: ignore[import-not-found, unused-ignore]
from google.protobuf.json_format import (  # type: ignore[import-not-found, import-untyped, unused-ignore]
    MessageToDict,
    ParseDict,
)


def card_of(value: Any) -> Any:
    return ParseDict(value, AgentCard(), ignore_unknown_fields=True)


def prepared(request: dict[str, Any]) -> Callable[[], Any]:
    """The work that a request names, with everything made that is made once."""
    document = request["document"].encode()
    value = json.loads(document)
    if request["work"] == "canonical bytes of a dict":
        return lambda: signing._canonicalize_agent_card(card_of(value))
    if request["work"] == "canonical bytes of bytes":
        return lambda: signing._canonicalize_agent_card(card_of(json.loads(document)))
    keys = {key["kid"]: jwt.PyJWK(key) for key in request["keys"]}
    if request["work"] == "sign":
        ((kid, key),) = keys.items()
        header = {"kid": kid, "alg": "ES256", "typ": "JOSE", "jku": None}
        signer = signing.create_agent_card_signer(key, {name: text for name, text in header.items() if text})
        return lambda: MessageToDict(signer(card_of(json.loads(document))))
    verifier = signing.create_signature_verifier(lambda kid, _jku: keys[kid], ["ES256"])
    if request["work"] == "verify":
        return lambda: verifier(card_of(json.loads(document)))
    documents = [json.dumps(card) for card in value]  # "verify all"
    return lambda: [verifier(card_of(json.loads(each))) for each in documents]


def main() -> None:
    gc.disable()
    works: list[Callable[[], Any]] = []
    for line in sys.stdin:
        request = json.loads(line)
        if "work" in request:
            works.append(prepared(request))
            works[-1]()  # a refusal ends this process before anything is measured
            answer: float = len(works) - 1
        else:
            work = works[request["number"]]
            start = perf_counter()
            for _ in repeat(None, request["calls"]):
                work()
            answer = perf_counter() - start
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
