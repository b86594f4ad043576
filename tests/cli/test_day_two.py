"""The tasks of the second day, as a shell transcript: many teams, an alarm, a rotation, a leak and a restore."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import CARD

pytestmark = pytest.mark.real

ORIGIN = "https://invoice.example.com"
#: What was there on the evening before.
FIRST_DAY = f"""
a2a-sign keys create ring.json
a2a-sign keys export ring.json -o published.json
a2a-sign trust add trust.toml --origin {ORIGIN} --jwks published.json
a2a-sign card.json --key ring.json --expires 30d
"""
#: The lines of docs/a2a-sign.md, docs/operations.md and docs/pipelines.md.
NOW = f"""
seq -f team-%g 50 >teams.txt
a2a-sign api-key create --store keys.db --owners-from teams.txt -o secrets --scope read --expires 90d
sqlite3 keys.db ".backup 'backup.db'"
a2a-sign api-key revoke --store keys.db --owner team-7
a2a-sign api-key list --store keys.db --expires-within 100d -q >soon.txt
a2a-sign verify card.json --trust trust.toml --origin-from-card --expires-within 14d
a2a-sign keys rotate ring.json
a2a-sign keys export ring.json -o published.json
a2a-sign trust add trust.toml --origin {ORIGIN} --jwks published.json
a2a-sign keys create new-ring.json
a2a-sign keys export new-ring.json -o new-published.json
a2a-sign trust add trust.toml --origin {ORIGIN} --jwks new-published.json
a2a-sign trust revoke trust.toml --ring ring.json --reason "the secret of the pipeline was read"
a2a-sign card.json --key new-ring.json --expires 30d
mv backup.db keys.db
a2a-sign api-key revoke --store keys.db --owner team-7
"""
#: What the same tasks took before 2026-11-26: one owner and one key at a time, and no alarm in the command. ``keys
#: rotate`` was ``rotate``.
BEFORE = f"""
mkdir -m 700 secrets
for number in $(seq 50); do
  a2a-sign api-key create --store keys.db --owner "team-$number" --scope read --expires 90d >"secrets/team-$number"
done
sqlite3 keys.db ".backup 'backup.db'"
of_owner() {{
  python3 -c 'import json, sys
for key in json.load(sys.stdin)["keys"]:
    if key["owner"] == sys.argv[1]:
        print(key["id"])' "$1"
}}
for id in $(a2a-sign api-key list --store keys.db --json | of_owner team-7); do
  a2a-sign api-key revoke --store keys.db "$id"
done
a2a-sign api-key list --store keys.db --json | python3 -c 'import json, sys, datetime
soon = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=100)
for key in json.load(sys.stdin)["keys"]:
    if key["state"] == "valid" and datetime.datetime.fromisoformat(key["expires"].replace("Z", "+00:00")) < soon:
        print(key["id"])' >soon.txt
a2a-sign verify card.json --trust trust.toml --origin-from-card
python3 -c 'import base64, json, sys, time
for signature in json.load(open("card.json"))["signatures"]:
    header = json.loads(base64.urlsafe_b64decode(signature["protected"] + "=="))
    if header["exp"] < time.time() + 14 * 86400:
        sys.exit(1)'
a2a-sign keys rotate ring.json
a2a-sign keys export ring.json -o published.json
a2a-sign trust add trust.toml --origin {ORIGIN} --jwks published.json
a2a-sign keys create new-ring.json
a2a-sign keys export new-ring.json -o new-published.json
a2a-sign trust add trust.toml --origin {ORIGIN} --jwks new-published.json
kids() {{ python3 -c 'import json, sys; print(*(key["kid"] for key in json.load(sys.stdin)["keys"]), sep="\\n")'; }}
for kid in $(a2a-sign keys list ring.json --json | kids); do
  a2a-sign trust revoke trust.toml "$kid" --reason "the secret of the pipeline was read"
done
a2a-sign card.json --key new-ring.json --expires 30d
mv backup.db keys.db
for id in $(a2a-sign api-key list --store keys.db --json | of_owner team-7); do
  a2a-sign api-key revoke --store keys.db "$id"
done
"""


def lines_of(transcript: str) -> int:
    return len(transcript.strip().splitlines())


def a2a_sign(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = str(Path(sys.executable).with_name("a2a-sign"))
    return subprocess.run([program, *arguments], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("transcript", [NOW, pytest.param(BEFORE, marks=pytest.mark.long)], ids=["now", "before"])
def test_the_tasks_are_done(transcript: str, tmp_path: Path) -> None:
    (tmp_path / "card.json").write_text(json.dumps(CARD))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", FIRST_DAY + transcript],
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "XDG_DATA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    keys = json.loads(a2a_sign(tmp_path, "api-key", "list", "--store", "keys.db", "--json").stdout)["keys"]
    assert {key["owner"] for key in keys if key["state"] == "revoked"} == {"team-7"}
    assert sum(key["state"] == "valid" for key in keys) == 49
    assert len((tmp_path / "soon.txt").read_text().splitlines()) == 49
    assert (tmp_path / "secrets").stat().st_mode & 0o777 == 0o700
    verify = ("verify", "card.json", "--trust", "trust.toml", "--origin-from-card")
    assert a2a_sign(tmp_path, *verify, "--expires-within", "14d").returncode == 0
    assert a2a_sign(tmp_path, *verify, "--expires-within", "60d").returncode == 1
    (tmp_path / "card.json").write_text(json.dumps(CARD))
    a2a_sign(tmp_path, "card.json", "--key", "ring.json")
    assert "the key is revoked" in a2a_sign(tmp_path, *verify).stdout


def test_they_take_half_the_lines_that_they_took() -> None:
    assert lines_of(NOW) == 16
    assert 2 * lines_of(NOW) <= lines_of(BEFORE) == 40
