"""Real agents and clients of a2a-sdk on gRPC: every method, credential and version, over plain text and over TLS."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from tests.certificates import SERVER, Authority
from tests.conftest import ROOT
from tests.docs.pages import PAGES
from tests.servers.environments import python_of

HERE = Path(__file__).parent
CHALLENGE = 'ApiKey in="header", name="X-API-Key"'
#: What each wrong credential gets, at every method.
WRONG = {
    **dict.fromkeys(
        ("nothing", "guessed", "twice", "underscores", "good and underscores"),
        f"UNAUTHENTICATED UNAUTHENTICATED {CHALLENGE}",
    ),
    "poor": f"PERMISSION_DENIED UNAUTHORIZED {CHALLENGE}",
    "binary": "INVALID_ARGUMENT INVALID_REQUEST",
}
#: What a good credential gets, where the SDK itself does not answer.
RIGHT = {
    "watch": "UNIMPLEMENTED METHOD_NOT_FOUND",
    "other tenant": "PERMISSION_DENIED UNAUTHORIZED",
    "tenant of a push configuration": "PERMISSION_DENIED UNAUTHORIZED",
    "large": "RESOURCE_EXHAUSTED INVALID_REQUEST",
}
OK = ("1.0 SendMessage", "1.0 SendStreamingMessage", "1.0 ListTasks", "1.0 GetExtendedAgentCard", "0.3 SendMessage")
OK_TOO = ("0.3 SendStreamingMessage", "0.3 GetAgentCard", "reflection", "own tenant")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The certificates of a server and two clients."""
    made, authority = tmp_path_factory.mktemp("certificates"), Authority()
    (made / "ca.pem").write_bytes(authority.pem)
    authority.issue(x509.DNSName("localhost"), usage=SERVER).write(made, "server")
    for name, owner in (("client", "ann"), ("other", "bob")):
        authority.issue(x509.UniformResourceIdentifier(f"spiffe://a.example/{owner}")).write(made, name)
    return made


def answer_of(version: str, program: str, folder: Path) -> Any:
    settings = {"FOLDER": str(folder), "PAGE": str(ROOT / "docs" / "grpc.md"), "PYTHONPATH": str(ROOT)}
    command = [str(python_of(f"server-grpc-{version}")), str(HERE / program)]
    done = subprocess.run(
        command, env={**os.environ, **settings}, capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def found(folder: Path) -> Any:
    return answer_of("1.3.0", "grpc_agent.py", folder)


def test_every_method_admits_the_callers_that_the_card_allows(found: Any) -> None:
    codes = {name: row for name, row in found["codes"].items() if not name.startswith("TLS")}
    assert len(codes) == 29
    assert codes.pop("health") == dict.fromkeys([*WRONG, "good"], "OK")
    assert codes.pop("unknown method") == dict.fromkeys([*WRONG, "good"], "UNIMPLEMENTED")
    for name, row in codes.items():
        good = row.pop("good")
        assert row == WRONG, name
        if name in (*OK, *OK_TOO):
            assert good == "OK", name
        else:
            assert good == RIGHT.get(name, good), name
            assert not good.startswith("UNAUTH"), name


def test_a_key_and_a_certificate_are_demanded_over_tls(found: Any) -> None:
    codes = {name: row for name, row in found["codes"].items() if name.startswith("TLS")}
    assert len(codes) == 3
    for row in codes.values():
        assert row == {
            "no certificate nothing": "UNAVAILABLE",  # of the handshake
            "no certificate good": "UNAVAILABLE",
            "client nothing": WRONG["nothing"],
            "client good": "OK",
            "other nothing": WRONG["nothing"],
            "other good": WRONG["nothing"],
        }


def test_the_agent_sees_its_caller_and_no_credential(found: Any) -> None:
    ann, both = "ann@api-keys", "ann@api-keys,spiffe://a.example/ann@x509:uri:house"
    assert [json.loads(each) for each in found["seen"]] == [[who, who, who, ["user-agent"]] for who in (ann, both)]


def test_both_versions_get_the_extended_card_with_its_demands(found: Any) -> None:
    assert found["extended"] == ["Echo, extended", "Echo, extended", ["api_key_security_scheme", ["read"]]]


def test_the_older_sdk_is_guarded_too(folder: Path) -> None:
    codes = answer_of("0.3.26", "grpc_agent_0_3.py", folder)
    assert {name.rpartition(" ")[2] for name in codes} == {"good", "guessed", "nothing"}
    for name, code in codes.items():
        method, _, credential = name.rpartition(" ")
        if credential != "good":
            assert code == "UNAUTHENTICATED", name
        elif method in ("SendMessage", "SendStreamingMessage"):
            assert code == "OK ann@api-keys", name
        else:
            assert code != "UNAUTHENTICATED", name


def test_the_page_runs(folder: Path) -> None:
    wrong, right = answer_of("1.3.0", "grpc_page.py", folder)
    assert "UNAUTHENTICATED" in wrong
    assert f"prints, with an agent that greets its caller:\n\n```text\n{right}```\n" in PAGES["docs/grpc.md"]
