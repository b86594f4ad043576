"""``make dist`` builds what is released, checks it, and says what it is made of."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import tarfile
import zipfile
from pathlib import Path

from tests.conftest import ROOT
from tests.pipelines.pipelines import git, source_repository

ENVIRONMENTS = (".venv", ".sdk/release", ".sdk/runtime")
#: Files that nobody has committed, where a build of the folder would find them.
PRIVATE = ("a2a_trust/key.pem", "a2a_trust/.env", "tests/prod.jwk", "docs/notes.md", "vault/a2a_trust/ring.json")


def make(folder: Path, *arguments: str) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MAKE") and name != "MFLAGS"}
    done = subprocess.run(["make", *arguments], cwd=folder, env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_what_is_released_is_committed_checked_and_listed(tmp_path: Path) -> None:
    ready = [f"{each}/ready" for each in ENVIRONMENTS]
    make(ROOT, *ready)
    clone = tmp_path / "clone"
    clone.mkdir()
    source_repository(clone, left_out=())
    committed = set(git(clone, "ls-files").splitlines())
    (clone / ".sdk").mkdir()
    for each in ENVIRONMENTS:
        (clone / each).symlink_to(ROOT / each)
    for name in PRIVATE:
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        (clone / name).write_text("secret")
    (clone / "a2a_trust" / "__init__.py").write_text("raise SystemExit('not committed')")

    said = make(clone, "dist", *(f"--old-file={each}" for each in ready), f"DIST={tmp_path / 'dist'}")
    assert "changes that are not committed are left out" in said
    assert said.count("PASSED") == 2  # twine, of wheel and sdist
    names = {path.name for path in (tmp_path / "dist").iterdir()}
    (version,) = {name.split("-")[1] for name in names if name.endswith(".whl")}
    wheel, sdist, bom = f"a2a_trust-{version}-py3-none-any.whl", f"a2a_trust-{version}.tar.gz", "a2a-trust.cdx.json"
    assert names == {wheel, sdist, bom, "SHA256SUMS"}
    for line in (tmp_path / "dist" / "SHA256SUMS").read_text().splitlines():
        digest, _, name = line.partition("  ")
        assert digest == hashlib.sha256((tmp_path / "dist" / name).read_bytes()).hexdigest()

    with tarfile.open(tmp_path / "dist" / sdist) as archive:
        released = {name.partition("/")[2] for name in archive.getnames()} - {"PKG-INFO"}
    with zipfile.ZipFile(tmp_path / "dist" / wheel) as archive:
        released |= {name for name in archive.namelist() if ".dist-info/" not in name}
        assert archive.read("a2a_trust/__init__.py") == (ROOT / "a2a_trust" / "__init__.py").read_bytes()
    assert released - committed == set()

    text = (tmp_path / "dist" / bom).read_text()
    assert str(ROOT) not in text
    bill = json.loads(text)
    assert (bill["bomFormat"], bill["metadata"]["component"]["name"]) == ("CycloneDX", "a2a-trust")
    assert "timestamp" not in bill["metadata"]
    parts = {(part["name"].lower().replace("_", "-"), part["version"]) for part in bill["components"]}
    locked = (ROOT / "requirements" / "runtime.txt").read_text().splitlines()
    lines = [re.sub(r"\[.*\]", "", line.split(" ")[0]) for line in locked if line[:1].isalpha() and ";" not in line]
    pins = {tuple(line.split("==")) for line in lines}
    assert pins <= parts
    assert {"cryptography", "joserfc", "starlette", "httpx", "authlib", "pydantic"} <= {name for name, _ in parts}
    assert len({entry["ref"] for entry in bill["dependencies"] if entry.get("dependsOn")}) > 5  # a graph, not a list
