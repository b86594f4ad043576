"""Whole processes: what a step of a pipeline waits for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Final

from a2a_trust import generate_signer
from a2a_trust.keys import save_private_key
from benchmarks import cards
from benchmarks.rounds import Contender, Row, Timer
from benchmarks.sdk import find_sdk
from benchmarks.setting import Setting

__all__ = ["rows"]

_SDK_SCRIPT: Final = """
import json, sys
from pathlib import Path
from a2a.types import AgentCard
from a2a.utils.signing import create_agent_card_signer
from google.protobuf.json_format import MessageToDict, ParseDict
card, key, output = map(Path, sys.argv[1:])
signer = create_agent_card_signer(key.read_text(), {"kid": "key", "alg": "ES256", "typ": "JOSE"})
signed = signer(ParseDict(json.loads(card.read_text()), AgentCard()))
output.write_text(json.dumps(MessageToDict(signed)))
"""


def rows(setting: Setting) -> Iterator[Row]:
    """The command beside a bare interpreter and beside a script with the a2a-sdk."""
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        (here / "card.json").write_text(json.dumps(cards.without_surprises(), indent=2))
        signer = generate_signer()
        save_private_key(here / "key.pem", signer)
        (here / "key.pub").write_bytes(signer.public_key.to_pem())
        command = Path(sys.executable).with_name("a2a-sign")
        contenders = [
            Contender(name="python -c pass", timer=_python(here, "pass")),
            Contender(name="import a2a_trust", timer=_python(here, "import a2a_trust"), target=1.6),
            Contender(name="import starlette.applications", timer=_python(here, "import starlette.applications")),
            Contender(
                name="from a2a_trust import protect", timer=_python(here, "from a2a_trust import protect"), target=15
            ),
            Contender(name="a2a-sign --help", timer=_timer(here, command, "--help"), target=2.3),
            Contender(
                name="a2a-sign card.json",
                timer=_timer(here, command, "card.json", "--key", "key.pem", "-o", "signed.json"),
                target=9,
            ),
            Contender(
                name="a2a-sign verify card.json",
                timer=_timer(here, command, "verify", "signed.json", "--public-key", "key.pub", "--origin", cards.HOST),
            ),
        ]
        sdk = find_sdk()
        if setting.sdk and sdk:
            timer = _timer(here, sdk, "-c", _SDK_SCRIPT, "card.json", "key.pem", "signed-by-sdk.json")
            contenders.append(Contender(name="python script with a2a-sdk", timer=timer))
        yield Row(
            title="whole processes",
            baseline="python -c pass",
            contenders=tuple(contenders),
            rounds=setting.rounds(25),
            notes=("with compiled modules, as an installed package has them",),
        )


def _python(folder: Path, code: str) -> Timer:
    return _timer(folder, sys.executable, "-c", code)


def _timer(folder: Path, *command: str | Path) -> Timer:
    # Otherwise every start of a package that was not installed by pip compiles all its modules anew.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def timer() -> float:
        start = perf_counter()
        subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, check=True)
        return perf_counter() - start

    return timer
