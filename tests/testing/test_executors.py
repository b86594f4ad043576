"""Executors of released SDKs know a fake caller: the SDK makes its contexts from the fake request by itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.servers.environments import python_of
from tests.servers.serving import ROOT

PROGRAM = Path(__file__).with_name("sdk_context.py")


@pytest.mark.parametrize("sdk", ["server-1.3.0", "python-0.3.26"])
def test_the_contexts_of_the_sdk_have_the_caller(sdk: str) -> None:
    # This package, and behind its own packages what the servers of the SDK need.
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    servers = python_of("server-1.3.0").parents[1] / "lib" / python / "site-packages"
    own = python_of(sdk).parents[1] / "lib" / python / "site-packages"
    path = os.pathsep.join(map(str, (ROOT, own, sysconfig.get_path("purelib"), servers)))
    command = [str(python_of(sdk)), str(PROGRAM)]
    done = subprocess.run(command, env={"PYTHONPATH": path}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout) == {
        "names": ["key:bob@api-keys"],
        "scopes": ["read"],
        "authenticated": [True, False],
        "anonymous": True,
    }
