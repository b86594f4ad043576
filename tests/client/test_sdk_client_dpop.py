"""A program of the a2a-sdk 1.3.0 calls an agent that takes bound tokens only with their proofs, by ``CardAuth``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from a2a_trust import generate_signer, publish_jwks
from a2a_trust.keys.jwk import private_key_to_jwk
from tests.client.agents import OWNER
from tests.servers.callers import FOLDER
from tests.servers.environments import answer_of, python_of
from tests.servers.issuer import issuing
from tests.servers.serving import ROOT, free_port, serving

SCRIPT: Final = Path(__file__).resolve().parent / "sdk_client_dpop_1_3.py"
SIGNER, STRANGER = generate_signer("ES256"), generate_signer("ES256")

CASES: Final = {
    f"{binding} {carried}{' by events' if streaming else ''}": (binding, carried, streaming)
    for binding in ("JSONRPC", "HTTP+JSON")
    for carried in ("proofs", "Bearer", "DPoP", "proofs by another key")
    for streaming in (False, True)
}


pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def seen() -> dict[str, dict[str, Any]]:
    """What came of every case; one process of the SDK runs them all at once."""
    python = python_of("server-1.3.0")
    origin = f"http://127.0.0.1:{free_port()}"
    command = [str(python), "-m", "uvicorn", "tests.client.sdk_dpop_agent:app", "--log-level", "warning"]
    command += ["--host", "127.0.0.1", "--port", origin.rpartition(":")[2]]
    with issuing() as issuer:
        card_key = json.dumps(private_key_to_jwk(OWNER.private_key, alg=OWNER.alg, kid=OWNER.kid))
        settings = {"AGENT_URL": origin, "ISSUER": issuer.url, "PRIVATE_ORIGINS": issuer.url, "CARD_KEY": card_key}
        token = issuer.token(audience=origin, cnf={"jkt": SIGNER.public_key.thumbprint})
        questions = [
            {
                "url": origin,
                "trusted": publish_jwks([OWNER.public_key]),
                "binding": binding,
                "streaming": streaming,
                "carried": carried.split()[0],
                "token": token,
                "key": private_key_to_jwk(signer.private_key, alg=signer.alg, kid=signer.kid),
            }
            for binding, carried, streaming in CASES.values()
            for signer in [STRANGER if "another" in carried else SIGNER]
        ]
        with serving(command, origin, settings, FOLDER):
            answers = answer_of("server-1.3.0", str(SCRIPT), questions, PYTHONPATH=str(ROOT))
    return dict(zip(CASES, answers, strict=True))


@pytest.mark.parametrize("name", [name for name, (_, carried, _) in CASES.items() if carried == "proofs"])
def test_with_proofs_it_is_served(seen: dict[str, dict[str, Any]], name: str) -> None:
    assert seen[name] == {"statuses": [401, 200], "answer": "Hello World! You said: hi", "error": None}


@pytest.mark.parametrize("name", [name for name, (_, carried, _) in CASES.items() if carried != "proofs"])
def test_without_its_own_proofs_it_is_not(seen: dict[str, dict[str, Any]], name: str) -> None:
    assert set(seen[name]["statuses"]) == {401}
    assert seen[name]["answer"] == ""
    assert "401" in seen[name]["error"]
