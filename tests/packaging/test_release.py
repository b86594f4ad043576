"""``make dist`` builds what is released, checks it, and says what it is made of."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_what_is_released_is_checked_and_listed(tmp_path: Path) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MAKE") and name != "MFLAGS"}
    done = subprocess.run(
        ["make", "dist", f"DIST={tmp_path / 'dist'}"], cwd=ROOT, env=clean, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("PASSED") == 2  # twine, of wheel and sdist
    names = {path.name for path in (tmp_path / "dist").iterdir()}
    (version,) = {name.split("-")[1] for name in names if name.endswith(".whl")}
    wheel, sdist, bom = f"a2a_trust-{version}-py3-none-any.whl", f"a2a_trust-{version}.tar.gz", "a2a-trust.cdx.json"
    assert names == {wheel, sdist, bom, "SHA256SUMS"}
    for line in (tmp_path / "dist" / "SHA256SUMS").read_text().splitlines():
        digest, _, name = line.partition("  ")
        assert digest == hashlib.sha256((tmp_path / "dist" / name).read_bytes()).hexdigest()

    text = (tmp_path / "dist" / bom).read_text()
    assert str(ROOT) not in text
    said = json.loads(text)
    assert (said["bomFormat"], said["metadata"]["component"]["name"]) == ("CycloneDX", "a2a-trust")
    assert "timestamp" not in said["metadata"]
    parts = {(part["name"].lower().replace("_", "-"), part["version"]) for part in said["components"]}
    locked = (ROOT / "requirements" / "runtime.txt").read_text().splitlines()
    lines = [re.sub(r"\[.*\]", "", line.split(" ")[0]) for line in locked if line[:1].isalpha() and ";" not in line]
    pins = {tuple(line.split("==")) for line in lines}
    assert pins <= parts
    assert {"cryptography", "joserfc", "starlette", "httpx", "authlib", "pydantic"} <= {name for name, _ in parts}
    assert len({entry["ref"] for entry in said["dependencies"] if entry.get("dependsOn")}) > 5  # a graph, not a list
