"""The main job from nothing: make a key, sign a real card, verify it, and see every change refused.

Runs the command ``a2a-sign`` as a person or a pipeline would, in a temporary folder.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

SAMPLE = Path(__file__).with_name("georoute-agent-card.json")
COMMAND = Path(sys.executable).with_name("a2a-sign")


class Demo:
    """One telling of the story; ``surprises`` counts what did not end as announced."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.surprises = 0

    def say(self, text: str) -> None:
        print(f"\n{text}")

    def run(self, *arguments: str, exit_code: int) -> None:
        """Run a2a-sign and show what it says; note when it ends otherwise than with ``exit_code``."""
        print(f"   $ a2a-sign {' '.join(arguments)}")
        done = subprocess.run([COMMAND, *arguments], cwd=self.folder, capture_output=True, text=True, check=False)
        for line in (done.stdout + done.stderr).splitlines():
            print(f"   {line}")
        if done.returncode != exit_code:
            self.surprises += 1
            print(f"   !! exit code {done.returncode}, expected {exit_code}")

    def read(self, name: str) -> dict[str, Any]:
        card: dict[str, Any] = json.loads((self.folder / name).read_text(encoding="utf-8"))
        return card

    def write(self, name: str, card: dict[str, Any]) -> None:
        (self.folder / name).write_text(json.dumps(card, indent=2, ensure_ascii=False), encoding="utf-8")

    def verify(self, name: str, exit_code: int) -> None:
        origin = "https://georoute-agent.example.com"
        self.run("verify", name, "--jwks", "key.jwks.json", "--origin", origin, exit_code=exit_code)

    def tell(self) -> None:
        self.say("1. A signing key, and the key set to publish.")
        self.run("keygen", "-o", "key.pem", exit_code=0)

        self.say("2. The sample card of the A2A specification (8.5): signed in place, then verified for its host.")
        shutil.copy(SAMPLE, self.folder / "card.json")
        self.run("card.json", "--key", "key.pem", exit_code=0)
        self.verify("card.json", exit_code=0)

        self.say("3. One byte of it changed on the way: refused.")
        text = (self.folder / "card.json").read_text(encoding="utf-8")
        (self.folder / "changed.json").write_text(text.replace("a2a/v1", "a2a/v2", 1), encoding="utf-8")
        self.verify("changed.json", exit_code=1)

        self.say(
            "4. The same agent asks for a client certificate too. That requirement has no scopes, so the form that\n"
            "   other SDKs sign leaves it out. a2a-sign signs the full card, and a companion for those SDKs beside it."
        )
        card = self.read("card.json")
        card["securitySchemes"]["certificate"] = {"mtlsSecurityScheme": {}}
        card["securityRequirements"][0]["schemes"]["certificate"] = {}
        self.write("strict.json", card)
        self.run("strict.json", "--key", "key.pem", exit_code=0)
        self.verify("strict.json", exit_code=0)

        self.say("5. The requirement stripped from the signed card: refused.")
        stripped = self.read("strict.json")
        del stripped["securitySchemes"]["certificate"]
        del stripped["securityRequirements"][0]["schemes"]["certificate"]
        self.write("stripped.json", stripped)
        self.verify("stripped.json", exit_code=1)

        self.say("6. And the full signature deleted with it, so that only the companion is left, which fits: refused.")
        del stripped["signatures"][0]
        self.write("companion.json", stripped)
        self.verify("companion.json", exit_code=4)

        self.say("7. All signatures deleted: refused.")
        del stripped["signatures"]
        self.write("unsigned.json", stripped)
        self.verify("unsigned.json", exit_code=3)


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        demo = Demo(Path(folder))
        demo.tell()
    print("\nEverything ended as announced." if not demo.surprises else f"\n{demo.surprises} surprises.")
    return 1 if demo.surprises else 0


if __name__ == "__main__":
    sys.exit(main())
