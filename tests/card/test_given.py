"""Every form of a card means the same wherever a card is given, and what is no card is refused there."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, Final

import httpx
import pytest
from pydantic import BaseModel, RootModel
from starlette.applications import Starlette

from a2a_trust import (
    ApiKeyVerifier,
    CardServing,
    ExtendedCard,
    MalformedError,
    TrustedKey,
    TrustStore,
    generate_signer,
    lint_card,
    merged_card,
    protect,
    sign_card,
)
from a2a_trust.auth import MemoryApiKeys
from a2a_trust.auth.principal import Principal
from a2a_trust.base.strict_json import MAX_BYTES, parse
from a2a_trust.card.given import read_given
from a2a_trust.card.models import AgentCard, model_of
from a2a_trust.errors import ConfigurationError
from a2a_trust.keys.trust.origins import UnsafeAnyOrigin
from a2a_trust.middleware import CardEnforcementMiddleware, CardSigner, ExtendedCardEndpoint, FixedCard
from a2a_trust.middleware.card import CardSignedHere
from tests.servers.environments import answer_of, python_of
from tests.signing.cards import legacy_card
from tests.tables import walk

HERE: Final = Path(__file__).resolve().parent
SIGNER: Final = generate_signer()
CALLER: Final = Principal(identities=())
CARD: Final[dict[str, Any]] = {
    "name": "Ledger",
    "description": "Keeps the books. Ünïcode.",
    "version": "1.0.0",
    "supportedInterfaces": [
        {"url": "https://agent.example/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    ],
    "capabilities": {"streaming": True, "extensions": [{"uri": "urn:x", "params": {"a": [1, 0.5, None]}}]},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [{"id": "greet", "name": "Greet", "description": "Says hello.", "tags": ["hello"]}],
    "securitySchemes": {"key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}}},
    "securityRequirements": [{"schemes": {"key": {"list": ["read"]}}}],
}
PROMISING: Final = {**CARD, "capabilities": {"extendedAgentCard": True}}
VERIFIERS: Final = {"key": ApiKeyVerifier(MemoryApiKeys())}


def served(app: Any) -> Any:
    async def get() -> httpx.Response:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="https://agent.example") as http:
            return await http.get("/.well-known/agent-card.json")

    return asyncio.run(get()).json()


def unsigned(body: bytes | dict[str, Any]) -> dict[str, Any]:
    card: dict[str, Any] = parse(body) if isinstance(body, bytes) else body
    assert card.pop("signatures")
    return card


def extended(source: Any) -> Any:
    provider = ExtendedCard(source).provider()
    assert provider is not None
    return provider(CALLER, "")


async def provided(card: Any) -> bytes:
    async def provide(caller: Principal, tenant: str) -> Any:
        return card

    endpoint = ExtendedCardEndpoint(PROMISING, ExtendedCard(provide))
    result = await endpoint._of_source(CALLER, "", asyncio.Event().wait, legacy=False)  # type: ignore[arg-type]
    assert isinstance(result, bytes)
    return result


def guard_of(card: Any) -> Any:
    return CardEnforcementMiddleware(Starlette(), card=card, verifiers=VERIFIERS)


#: Every place where a card is given, and the card that comes out of it.
DOORS: Final[dict[str, Callable[[Any], Any]]] = {
    "protect": lambda card: served(protect(Starlette(), card=card, verifiers=VERIFIERS)),
    "FixedCard": lambda card: parse(FixedCard(card).document(0.0).body),
    "CardSignedHere": lambda card: unsigned(CardSignedHere(card, CardSigner(SIGNER)).document(0.0).body),
    "ExtendedCard": lambda card: parse(asyncio.run(extended(card))),
    "a provider": lambda card: parse(asyncio.run(provided(card))),
    "sign_card": lambda card: unsigned(sign_card(card, SIGNER).card),
    "merged_card": merged_card,
    "lint_card": lint_card,
    "CardEnforcementMiddleware": lambda card: type(guard_of(card)),
    "ExtendedCardEndpoint": lambda card: type(ExtendedCardEndpoint(card, None)),
}
every_door = walk("door", DOORS.values(), ids=DOORS)


def as_file(folder: Path, content: bytes) -> Path:
    (folder / "card.json").write_bytes(content)
    return folder / "card.json"


#: Every form of the card, made in a folder.
FORMS: Final[dict[str, Callable[[Path], Any]]] = {
    "a dict": lambda folder: CARD,
    "a mapping": lambda folder: MappingProxyType(CARD),
    "bytes": lambda folder: json.dumps(CARD).encode(),
    "JSON text": lambda folder: json.dumps(CARD),
    "indented text": lambda folder: "\n " + json.dumps(CARD, indent=2, ensure_ascii=False) + "\n",
    "a path": lambda folder: as_file(folder, json.dumps(CARD).encode()),
    "our model": lambda folder: AgentCard.model_validate(CARD),
}


@every_door
@walk("form", FORMS.values(), ids=FORMS)
def test_every_form_means_the_same_at_every_door(
    door: Callable[[Any], Any], form: Callable[[Path], Any], tmp_path: Path
) -> None:
    assert door(form(tmp_path)) == door(CARD)


@every_door
@walk("card", ["card.json", "", "[]", None, 1, [], bytearray(b"{}"), AgentCard, SimpleNamespace()])
def test_what_is_no_card_says_what_to_write(door: Callable[[Any], Any], card: Any) -> None:
    if card is None and door is DOORS["a provider"]:
        return  # there it says that the caller has no card
    if isinstance(card, type) and door is DOORS["ExtendedCard"]:
        return  # whatever can be called is a provider
    with pytest.raises(ConfigurationError, match=r"is not a card; write a dict, bytes, JSON text, Path\('card.json'\)"):
        door(card)


@every_door
def test_a_file_that_cannot_be_read_is_named(door: Callable[[Any], Any], tmp_path: Path) -> None:
    if not (tmp_path / "pipe").exists():
        os.mkfifo(tmp_path / "pipe")
    for name, why in (("none.json", "No such file"), ("pipe", "not a regular file")):
        with pytest.raises(ConfigurationError, match=rf"{name} cannot be read: {why}"):
            door(tmp_path / name)


def test_files_and_texts_are_served_byte_for_byte(tmp_path: Path) -> None:
    text = json.dumps(CARD, indent=3, ensure_ascii=False)
    for card in (text, text.encode(), as_file(tmp_path, text.encode())):
        assert FixedCard(card).document(0.0).body == text.encode()


def test_a_file_is_read_once_and_to_a_limit(tmp_path: Path) -> None:
    path = as_file(tmp_path, json.dumps(CARD).encode())
    source = FixedCard(path)
    path.write_bytes(b"{}")
    assert parse(source.document(0.0).body) == CARD
    path.write_bytes(b" " * (2 * MAX_BYTES))
    assert len(read_given(path)) == MAX_BYTES + 1
    with pytest.raises(MalformedError, match="more than the limit of 1048576"):
        FixedCard(path)


@walk("text", ['{"name":"\ud800"}', '{"a":1,"a":2}', "{"])
def test_text_is_read_as_strictly_as_bytes(text: str) -> None:
    with pytest.raises(MalformedError):
        FixedCard(text)


def test_a_signed_card_as_a_model_still_verifies() -> None:
    trust = TrustStore([TrustedKey(key=SIGNER.public_key, origins=UnsafeAnyOrigin())])
    # A card before 1.0 is signed as it is, with its null.
    for card in (CARD, {**legacy_card(), "iconUrl": None}):
        signed = sign_card(card, SIGNER, iat=0).card
        assert parse(FixedCard(model_of(signed), trust=trust).document(0.0).body) == signed


class Model(BaseModel):
    name: str
    url: str | None = None
    number: float = 0.0


@pytest.mark.parametrize("model", [RootModel[list[int]]([1]), RootModel[str]("{}")])
def test_a_model_of_something_else_is_refused(model: Any) -> None:
    with pytest.raises(ConfigurationError, match="is not a card"):
        FixedCard(model)


def test_the_checks_of_cards_are_for_models_too() -> None:
    assert read_given(Model(name="n")) == {
        "name": "n",
        "number": 0.0,
    }  # without null, as the SDK serves its models
    with pytest.raises(MalformedError):
        FixedCard(Model(name="n", number=float("nan")))
    with pytest.raises(ConfigurationError):
        protect(Starlette(), card=Model(name="n"), verifiers={})


def test_a_source_signs_by_itself() -> None:
    with pytest.raises(ConfigurationError, match="the signer of serving= would not sign; pass the card itself"):
        protect(Starlette(), card=FixedCard(CARD), verifiers=VERIFIERS, serving=CardServing(signer=SIGNER))


SCRIPTS: Final = {
    "python-0.2.16": "sdk_models_0.py",
    "python-0.3.26": "sdk_models_0.py",
    "python-1.0.0": "sdk_models_1.py",
    "python-1.1.3": "sdk_models_1.py",
    "python-1.3.0": "sdk_models_1.py",
}


@pytest.mark.real
@pytest.mark.parametrize("sdk", SCRIPTS)
def test_a_card_of_a_released_sdk_is_taken_as_that_sdk_serves_it(sdk: str) -> None:
    # This package and what it needs, and behind them what the servers of the SDK need.
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    servers = python_of("server-1.3.0").parents[1] / "lib" / version / "site-packages"
    folders = [str(HERE.parents[1]), sysconfig.get_path("purelib"), str(servers)]
    for made in answer_of(sdk, str(HERE / SCRIPTS[sdk]), folders).values():
        assert made["served"] == made["extended"] == made["signed"] == made["sdk"]
        assert made["signatures"] >= 1
        assert "unreadable-document" not in made["findings"]


def test_nothing_is_imported_for_forms_that_do_not_need_it() -> None:
    program = (
        "import sys; from a2a_trust import sign_card, generate_signer; from pathlib import Path; "
        "sign_card(sys.argv[1], generate_signer()); "
        "assert not {'pydantic', 'google.protobuf', 'a2a'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program, json.dumps(CARD)], check=True)
