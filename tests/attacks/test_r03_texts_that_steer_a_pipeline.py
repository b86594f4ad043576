"""R3: a name or a text of a card is a command to the pipeline in whose log it appears.

GitHub takes lines that begin with ``::``, and ``##[…]`` anywhere, as commands: a pull request could set the outputs of
a step, or hide what follows. Azure Pipelines takes ``##vso[…]`` anywhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from a2a_trust.cli.main import main
from tests.attacks.forgery import JSONObject
from tests.tables import walk

COMMANDS = [
    "::set-output name=changed::false",
    "::add-mask::e",
    "##[set-output name=changed;]false",
    "##vso[task.setvariable variable=changed]false",
    "###[group]",
    "\n::stop-commands::x",
    "\r##vso[x]",
]


def steering(log: str) -> Iterator[str]:
    """The lines of a log that a pipeline takes as commands."""
    for line in re.split(r"[\r\n]", log):
        if line.lstrip().startswith("::") or "##[" in line or re.search(r"##\w+\[", line):
            yield line


def test_the_search_finds_what_pipelines_take() -> None:
    assert [bool(list(steering(each))) for each in COMMANDS] == [True] * len(COMMANDS)


@walk("form", [[], ["--json"], ["--json-lines"]])
@walk("text", COMMANDS)
def test_no_name_and_no_text_is_a_command(
    text: str,
    form: list[str],
    card: JSONObject,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["keygen", "-o", "key.pem"]) == 0
    name = text.replace("/", "_")
    odd = {**card, "name": text, "description": text, text: text, "provider": {"organization": text, "url": text}}
    cards = {
        name: json.dumps(card),
        f"{name}.json": json.dumps(odd),
        f"{name}.bad.json": json.dumps({text: 1})[:-1] + f", {json.dumps(text)}: 2}}",
        f"{name}.worse.json": text,
    }
    for file, content in cards.items():
        Path(file).write_text(content)
    Path("list").write_text("\0".join([*cards, f"{name}.gone"]))
    Path("key.jwks.json").rename(f"{name}.keys")
    keys = ["--jwks", f"{name}.keys", "--any-origin"]
    for command in (
        ["sign", "--key", "key.pem", "--check"],
        ["sign", "--key", "key.pem"],
        ["verify", *keys],
        ["lint"],
        ["inspect", *keys],
        ["inspect"],
    ):
        assert main([*command, "--files-from", "list", *form]) != 0
    assert main(["sign", "--key", "key.pem", "--kid", text, f"./{name}", *form]) == 0
    assert main(["sign", "--key", "key.pem", "--kid", text, f"./{name}", "--check", *form]) == 0
    main(["sign", "--key", f"{name}.keys", name, *form])
    for arguments in (["lint", f"--{name}.json"], [f"--{name}.json"]):  # as a shell gives them without -- before them
        assert main([*arguments, *form]) in (2, 6)  # an unknown option, or, with a blank in it, no such file
    main(["lint", f"{name}.gone", "--sarif"])
    out, err = capsys.readouterr()
    assert list(steering(out + "\n" + err)) == []
    assert "add-mask" not in text or "add-mask" in out + err  # it is shown, escaped
