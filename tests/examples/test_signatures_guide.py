"""docs/signatures.md is true: its Python runs, and a part is never taken for the whole."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from a2a_trust import ConfigurationError, generate_signer, sign_card
from a2a_trust.errors import PartialSignatureError
from a2a_trust.keys import SigningTool
from a2a_trust.signing import Form
from tests.conftest import ROOT
from tests.signing.cards import full_card
from tests.signing.making import served, signed_in

GUIDE = (ROOT / "docs" / "signatures.md").read_text(encoding="utf-8")
(PROGRAM,) = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
(PRINTED,) = re.findall(r"```text\n(.*?)```", GUIDE, re.DOTALL)
OURS, THEIRS = generate_signer(), generate_signer()
CARD = {
    **full_card(),
    "supportedInterfaces": [
        {"url": "https://agent.example.com/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    ],
}


def run(document: bytes, program: str = PROGRAM) -> Any:
    names: dict[str, Any] = {"ours": OURS.public_key, "theirs": THEIRS.public_key, "document": document}
    exec(compile(program, "docs/signatures.md", "exec"), names)
    return names["verified"]


def test_the_program_verifies_a_card_of_operations(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(json.dumps(sign_card(CARD, OURS).card).encode()).unverified == ()
    assert capsys.readouterr().out == PRINTED


def test_the_vendors_sdk_proves_a_part_and_only_because_its_entry_says_so() -> None:
    by_vendor = PROGRAM.replace('named("operations")', 'named("vendor")')
    assert ", signer=SigningTool.A2A_PYTHON" in by_vendor
    document = served(signed_in(CARD, Form.PRUNED, THEIRS))
    assert "/securityRequirements" in run(document, by_vendor).unverified
    with pytest.raises(PartialSignatureError):
        run(document, by_vendor.replace(", signer=SigningTool.A2A_PYTHON", ""))


def test_a_policy_with_a_kid_is_a_mistake() -> None:
    with pytest.raises(ConfigurationError, match="never by kid"):
        run(json.dumps(sign_card(CARD, OURS).card).encode(), PROGRAM.replace('named("operations")', 'named("ops-1")'))


def test_the_table_names_every_tool() -> None:
    for tool in SigningTool:
        assert f'`SigningTool.{tool.name}`, `"{tool}"`' in GUIDE
