"""The component for GitLab, run by gitlab-ci-local in a shell, and read by GitLab's schema."""

from __future__ import annotations

import base64
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.docs.pages import PAGES
from tests.pipelines.pipelines import (
    CARD,
    clean_environment,
    commit,
    git,
    make_key,
    node_tools,
    python_tools,
    source_repository,
)
from tests.tiers import missing

TEMPLATE = ROOT / "templates" / "a2a-sign.yml"
PROTECTED = "CI_COMMIT_REF_PROTECTED=true"
#: What everybody who includes the template has to give, with an example of each.
GIVEN = {
    "files": "agents/**/*.json",
    "repository": "https://gitlab.example.com/OWNER/a2a-trust.git",
    "commit": "0123456789abcdef0123456789abcdef01234567",
    "trust": "keys of all/trust.toml",
}
#: Examples of inputs that have a default.
OTHERS = {"expires": "90d", "expires-within": "30d", "companion": "true", "agent": "https://agent.example.com"}
INCLUDE = """
include:
  - local: templates/a2a-sign.yml
    inputs:
      files: "{files}"
      repository: {source}
      commit: {commit}
      trust: trust.toml
"""


def make_repository(folder: Path, files: str) -> tuple[Path, Path]:
    """A repository with a card, the template in its pipeline and a trust file; and the key that this trusts."""
    repository = folder / "repository"
    for name in ("source", "repository/agents", "repository/templates", "keys"):
        (folder / name).mkdir(parents=True)
    key = make_key(folder / "keys")
    revision = source_repository(folder / "source")
    shutil.copy(folder / "keys" / "trust.toml", repository)
    shutil.copy(TEMPLATE, repository / "templates")
    (repository / "agents" / "card.json").write_bytes(CARD.read_bytes())
    include = INCLUDE.format(files=files, source=folder / "source", commit=revision)
    (repository / ".gitlab-ci.yml").write_text(include)
    (repository / ".gitignore").write_text(".gitlab-ci-local/\n")
    commit(repository)
    git(repository, "remote", "add", "origin", "git@gitlab.example.com:group/agents.git")
    return repository, key


def gitlab(
    repository: Path, *arguments: str, variables: Sequence[str] = (PROTECTED,), secret: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run jobs as GitLab would with these variables of its own; the secret is not in argv, nor in the repository."""
    if shutil.which("rsync") is None:
        missing("rsync, which gitlab-ci-local runs,", "real-pipelines")
    node, modules = node_tools()
    (repository.parent / "variables.yml").write_text(f"A2A_SIGN_KEY: '{secret}'\n" if secret else "{}")
    command = [
        node,
        str(modules / ".bin" / "gitlab-ci-local"),
        "--force-shell-executor",
        "--variables-file=../variables.yml",
    ]
    return subprocess.run(
        command + [f"--variable={each}" for each in variables] + list(arguments),
        cwd=repository,
        env=clean_environment(repository.parent / "home"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("files", "jobs"),
    [("agents", ["a2a-sign"]), pytest.param("agents/**/*.json", ["a2a-lint", "a2a-sign"], marks=pytest.mark.long)],
)
def test_the_job_signs_with_a_key_in_base64_and_verifies(files: str, jobs: list[str], tmp_path: Path) -> None:
    """Each job makes an environment of its own; that of the other one is tried by `make test-long`."""
    repository, key = make_repository(tmp_path, files)
    secret = base64.b64encode(key.read_bytes()).decode()
    done = gitlab(repository, *jobs, secret=secret)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    (shown,) = re.findall(r"(?ms)^```text\n(.*?)^```$", PAGES["docs/gitlab.md"])
    assert shown.removesuffix("…\n") in said
    assert "agents/card.json: verified: signed by" in said
    assert ("agents/card.json: no problems found" in said) == ("a2a-lint" in jobs)
    signed = (repository / "agents" / "card.json").read_text()  # the artifact, as a later job gets it
    assert "signatures" in signed
    assert secret not in said
    assert key.read_text().splitlines()[1] not in said


@pytest.mark.long
def test_without_the_variable_nothing_is_signed(tmp_path: Path) -> None:
    repository, _ = make_repository(tmp_path, "agents")
    done = gitlab(repository, "a2a-sign")
    assert done.returncode != 0
    assert "no signing key: A2A_SIGN_KEY is not set" in done.stdout + done.stderr
    assert (repository / "agents" / "card.json").read_bytes() == CARD.read_bytes()


def test_the_signing_job_is_for_protected_refs_only(tmp_path: Path) -> None:
    repository, _ = make_repository(tmp_path, "agents")
    jobs = {}
    for name, variables in {
        "branch": ["CI_COMMIT_REF_PROTECTED=false"],
        "protected": [PROTECTED],
        "merge request": ["CI_PIPELINE_SOURCE=merge_request_event", PROTECTED],
    }.items():
        done = gitlab(repository, "--list-csv", variables=variables)
        assert done.returncode == 0, done.stderr
        jobs[name] = set(re.findall(r"^(a2a-\w+);", done.stdout, re.MULTILINE))
    assert jobs == {"branch": set(), "protected": {"a2a-lint", "a2a-sign"}, "merge request": {"a2a-lint"}}


def test_an_agent_that_is_named_is_probed_on_protected_refs(tmp_path: Path) -> None:
    repository, _ = make_repository(tmp_path, "agents")
    with (repository / ".gitlab-ci.yml").open("a") as file:
        file.write("      agent: https://agent.example.com\n")
    for variables, is_probed in (([PROTECTED], True), (["CI_COMMIT_REF_PROTECTED=false"], False)):
        done = gitlab(repository, "--list-csv", variables=variables)
        assert done.returncode == 0, done.stderr
        assert ("\na2a-probe;" in done.stdout) == is_probed


def test_the_template_fits_the_schema_of_gitlab(tmp_path: Path) -> None:
    """The schema is of one document: that of the inputs, and that of the jobs."""
    documents = TEMPLATE.read_text(encoding="utf-8").split("\n---\n")
    assert len(documents) == 2
    for number, document in enumerate(documents):
        file = tmp_path / f"{number}.yml"
        file.write_text(document)
        command = [str(python_tools() / "python"), "-m", "check_jsonschema", "--builtin-schema", "vendor.gitlab-ci"]
        done = subprocess.run([*command, str(file)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


def test_inputs_stand_in_scripts_in_quotes_that_no_input_contains() -> None:
    """As variables of the job they could be replaced: the variables of a pipeline come before those of a job.

    GitLab searches its ``regex``, RE2 without slashes around it, in the value; gitlab-ci-local does not read it.
    """
    inputs, jobs = TEMPLATE.read_text(encoding="utf-8").split("\n---\n")
    checked = dict(re.findall(r"^    ([\w-]+):\n      description: .*\n      regex: (.*)$", inputs, re.MULTILINE))
    scripts = "".join(re.findall(r"^  (?:before_)?script:\n((?:    .*\n)+)", jobs, re.MULTILINE))
    used = re.findall(r"(.)\$\[\[ inputs\.([\w-]+) \]\](.)", scripts)
    assert {(before, after) for before, _, after in used} == {("'", "'")}
    assert {name for _, name, _ in used} == set(checked) == {*GIVEN, *OTHERS}
    assert "variables:" not in jobs
    for name, regex in checked.items():
        right = {**GIVEN, **OTHERS}[name]
        assert re.search(regex, right), name
        for wrong in ("", f"{right}'; env; '", f"{right}\nenv", f"{right}\r"):
            assert not re.search(regex, wrong), (name, wrong)
