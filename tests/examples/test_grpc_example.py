"""The example of gRPC, by the command of examples/README.md, with a2a-sdk 1.3.0."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.conftest import ROOT
from tests.servers.environments import python_of
from tests.servers.serving import free_port

pytestmark = pytest.mark.real
README = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")


def test_the_sample_card_runs_whole_over_three_bindings() -> None:
    (shown,) = re.findall(r"(?m)^\$ python (examples/grpc/georoute\.py)\n((?:(?!```).*\n)+)", README)
    settings = {"PYTHONPATH": str(ROOT), "PORT": str(free_port()), "GRPC_PORT": str(free_port())}
    command = [str(python_of("server-grpc-1.3.0")), str(ROOT / shown[0])]
    done = subprocess.run(command, env=settings, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == shown[1], done.stderr
