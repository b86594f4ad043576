"""The SDKs that these tests run are the released ones: of every fixture they say what others have recorded.

Without this a broken harness that takes every card, or none, would pass for an SDK.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from tests.interop.sdk_process import SDKS, SdkProcess

#: Our fixture of the SDK, and its name in the manifest. Python cards went through the SDK's resolver there.
RECORDED: Final = (
    ("python_1_3_0", "a2a-sdk 1.3.0", "resolver"),
    ("python_1_0_0", "a2a-sdk 1.0.0", "resolver"),
    ("python_1_1_3", "a2a-sdk 1.0.0", "resolver"),  # it was not recorded itself, and verifies as 1.0.0 does
    ("python_0_3_26", "a2a-sdk 0.3.26", "plain"),
    ("js_1_3_0", "@a2a-js/sdk 1.3.0 (raw JSON)", "plain"),
)


@pytest.mark.real
@pytest.mark.parametrize(("fixture", "name", "reader"), RECORDED, ids=[row[0] for row in RECORDED])
def test_an_sdk_says_of_every_fixture_what_was_recorded(
    vectors: Path, request: pytest.FixtureRequest, fixture: str, name: str, reader: str
) -> None:
    sdk: SdkProcess = request.getfixturevalue(fixture)
    keys = json.loads((vectors / "sdk" / "public.jwks.json").read_bytes())["keys"]
    manifest = json.loads((vectors / "sdk" / "manifest.json").read_bytes())
    recorded = {entry["file"]: entry["verify"][name] for entry in manifest["files"]}
    said = {
        file: sdk.refusal((vectors / "sdk" / file).read_text(encoding="utf-8"), *keys, reader=reader)
        for file in recorded
    }
    assert {file: "PASS" if refusal is None else "FAIL" for file, refusal in said.items()} == {
        file: verdict[:4] for file, verdict in recorded.items()
    }
    assert all(refusal is None or refusal in recorded[file] for file, refusal in said.items())


@pytest.mark.parametrize("name", ["python-0.3.26", "python-1.0.0", "python-1.1.3", "python-1.3.0"])
def test_a_python_sdk_is_locked_to_its_version_with_a_hash_for_every_file(name: str) -> None:
    locked = (SDKS / name / "requirements.txt").read_text(encoding="utf-8")
    requirements = [line for line in locked.splitlines() if "==" in line]
    assert f"a2a-sdk=={name.removeprefix('python-')} \\" in requirements
    assert all(line.endswith("\\") for line in requirements)  # a hash follows
    assert "--hash=sha256:" in locked
    assert "://" not in locked


def test_the_javascript_sdk_is_locked_by_digests_and_without_addresses() -> None:
    lock: dict[str, Any] = json.loads((SDKS / "js-1.3.0" / "package-lock.json").read_bytes())
    packages = {path: entry for path, entry in lock["packages"].items() if path}
    assert packages["node_modules/@a2a-js/sdk"]["version"] == "1.3.0"
    assert all(entry["integrity"].startswith("sha512-") for entry in packages.values())
    assert not [path for path, entry in packages.items() if "resolved" in entry]
