"""docs/canonical-forms.md is true: its bytes are those that this package and the released SDK sign."""

from __future__ import annotations

import base64
import json
import re
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import pytest

from a2a_trust import Origins, TrustedKey, TrustStore, generate_signer, sign_card, verify_card
from a2a_trust.errors import CardVerificationError
from a2a_trust.keys import private_key_to_jwk
from a2a_trust.signing.forms import Form, project
from tests.docs.pages import PAGES
from tests.interop.conftest import python_1_3_0
from tests.interop.sdk_process import SdkProcess

__all__ = ["python_1_3_0"]

BLOCKS = re.findall(r"(?ms)^```python\n(.*?)^```$", PAGES["docs/canonical-forms.md"])
(PRINTED,) = re.findall(r"(?ms)^```text\n(.*?)^```$", PAGES["docs/canonical-forms.md"])
AGENT = "https://agent.example.com"


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    """What the blocks of the page define. Their assertions hold, and they print what the page shows."""
    names: dict[str, Any] = {}
    with redirect_stdout(StringIO()) as printed:
        for block in BLOCKS:
            exec(compile(block, "docs/canonical-forms.md", "exec"), names)
    assert printed.getvalue() == PRINTED
    return names


def test_the_forms_are_those_of_this_package(names: dict[str, Any]) -> None:
    for card in (names["card"], names["attacked"]):
        assert project(card, Form.SPEC).payload == names["canonical"](card)
        assert project(card, Form.PRUNED).payload == names["canonical"](names["pruned"](card))
    assert set(names["card"]) - set(names["pruned"](names["card"])) == {
        "description",
        "capabilities",
        "skills",
        "securityRequirements",
    }


def test_the_header_is_that_of_our_signatures(names: dict[str, Any]) -> None:
    signed = sign_card(names["card"], generate_signer(kid="agent-1"), iat=False).card
    first = json.loads(base64.urlsafe_b64decode(signed["signatures"][0]["protected"] + "=="))
    assert {name: value for name, value in first.items() if name != "iat"} == names["header"]
    assert names["signing_input"].count(".") == 1


@pytest.mark.real
def test_we_notice_the_attack_and_the_sdk_does_not(names: dict[str, Any], python_1_3_0: SdkProcess) -> None:
    signer = generate_signer(kid="agent-1")
    trust = TrustStore([TrustedKey(key=signer.public_key, origins=Origins("agent.example.com"))])
    signed = sign_card(names["card"], signer).card
    attacked = {name: value for name, value in signed.items() if name != "securityRequirements"}
    verify_card(signed, trust, origin=AGENT)
    with pytest.raises(CardVerificationError):
        verify_card(attacked, trust, origin=AGENT)

    key = private_key_to_jwk(signer.private_key, alg=signer.alg, kid=signer.kid)
    theirs = json.loads(python_1_3_0.sign(json.dumps(names["card"]), key) or "null")
    stripped = {name: value for name, value in theirs.items() if name != "securityRequirements"}
    public = signer.public_key.to_jwk()
    assert "securityRequirements" in theirs
    assert python_1_3_0.refusal(json.dumps(theirs), public) is None
    assert python_1_3_0.refusal(json.dumps(stripped), public) is None
