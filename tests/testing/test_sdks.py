"""Released SDKs with what tests are given: contexts have the fake caller, and clients get answers in memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from tests.servers.environments import python_of
from tests.servers.serving import ROOT

pytestmark = pytest.mark.real
SDKS = pytest.mark.parametrize("sdk", ["server-1.3.0", "python-0.3.26"])


def printed(sdk: str, program: str) -> Any:
    """What the program prints as JSON when the interpreter of that SDK runs it."""
    # This package, and behind the SDK's own packages what it and the servers of the SDK need.
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    own, servers = (python_of(name).parents[1] / "lib" / python / "site-packages" for name in (sdk, "server-1.3.0"))
    path = os.pathsep.join(map(str, (ROOT, own, sysconfig.get_path("purelib"), servers)))
    command = [str(python_of(sdk)), str(Path(__file__).with_name(program))]
    done = subprocess.run(command, env={"PYTHONPATH": path}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


@SDKS
def test_the_contexts_of_the_sdk_have_the_caller(sdk: str) -> None:
    assert printed(sdk, "sdk_context.py") == {
        "names": ["bob@api-keys"],
        "scopes": ["read"],
        "authenticated": [True, False],
        "anonymous": True,
    }


@pytest.mark.parametrize(
    ("sdk", "refusal"), [("server-1.3.0", "A2AClientError"), ("python-0.3.26", "A2AClientHTTPError")]
)
def test_the_client_of_the_sdk_gets_answers_from_an_agent_in_memory(sdk: str, refusal: str) -> None:
    """At once and streamed; and with a key that lacks the scope."""
    assert printed(sdk, "sdk_client.py") == ["ann said hi", "ann said hi", refusal, refusal]
