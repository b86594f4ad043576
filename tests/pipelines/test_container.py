"""The container file: hadolint reads it, and its image signs and verifies."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.pipelines.pipelines import CARD, make_key, python_tools, source_repository

FILE = ROOT / "Containerfile"
TEXT = FILE.read_text(encoding="utf-8")


def test_hadolint_finds_nothing() -> None:
    done = subprocess.run([python_tools() / "hadolint", FILE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_what_is_copied_is_there_and_nothing_else_reaches_the_builder() -> None:
    copied = {name for names in re.findall(r"^COPY ((?!--from).*) \S+$", TEXT, re.MULTILINE) for name in names.split()}
    assert all((ROOT / name).exists() for name in copied)
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    assert {rule[1:] for rule in rules if rule.startswith("!")} == copied


def test_the_image_runs_the_command_as_a_user_without_rights() -> None:
    last = TEXT.rpartition("\nFROM ")[2]
    assert re.search(r"^USER (\d+)$", last, re.MULTILINE), "a number, so that Kubernetes can check runAsNonRoot"
    assert 'ENTRYPOINT ["/opt/a2a-sign/bin/a2a-sign"]' in last
    assert "ARG" not in last
    assert "SECRET" not in TEXT.upper().replace("NO SECRET", "")


def test_the_image_for_agents_serves_as_a_user_without_rights() -> None:
    (stage,) = re.findall(r"^FROM \$\{BASE\} AS serve\n(.*?)\n\n", TEXT, re.MULTILINE | re.DOTALL)
    assert re.search(r"^USER (\d+)$", stage, re.MULTILINE)
    assert 'ENTRYPOINT ["/opt/a2a-sign/bin/a2a-sign", "serve"]' in stage


@pytest.mark.long
def test_the_install_commands_work(tmp_path: Path) -> None:
    """The RUN line of the build stage, with other folders; nothing here builds an image."""
    line = re.findall(r"^RUN (python3 (?:.*\\\n)*.*)$", TEXT, re.MULTILINE)[0]
    place = tmp_path / "a2a-sign"
    line = (
        line.replace("/opt/a2a-sign", str(place))
        .replace("/source", str(ROOT))
        .replace("python3 ", f"{sys.executable} ")
    )
    subprocess.run(["sh", "-euc", line], check=True, capture_output=True)
    done = subprocess.run([place / "bin" / "a2a-sign", "lint", CARD], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not list(place.glob("lib/python*/site-packages/pip"))


def buildah(*arguments: str | Path) -> str:
    """Run buildah without a daemon and without namespaces; its output."""
    environment = {**os.environ, "BUILDAH_ISOLATION": "chroot", "STORAGE_DRIVER": "vfs"}
    done = subprocess.run(["buildah", *arguments], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"buildah {arguments}: {done.stdout}{done.stderr}"
    return done.stdout.strip()


@pytest.fixture
def image(tmp_path: Path) -> Iterator[str]:
    """The image of the container file, built from a clean clone, on a Debian of debootstrap."""
    if os.geteuid() or not (shutil.which("buildah") and shutil.which("debootstrap")):
        pytest.skip("NO IMAGE BUILT: as root on Debian, install buildah and debootstrap")
    root, source = tmp_path / "debian", tmp_path / "source"
    include = "--include=ca-certificates,python3,python3-venv"
    subprocess.run(["debootstrap", "--variant=minbase", include, "bookworm", root], check=True, capture_output=True)
    authorities = "etc/ssl/certs/ca-certificates.crt"  # a machine behind a proxy has one of its own
    shutil.copy(f"/{authorities}", root / authorities)
    source.mkdir()
    source_repository(source)
    base = buildah("from", "scratch")
    try:
        buildah("copy", "--quiet", base, root, "/")
        buildah("commit", "--quiet", base, "localhost/a2a-trust-test-base")
        buildah("bud", "--build-arg=BASE=localhost/a2a-trust-test-base", "--tag=localhost/a2a-trust-test", source)
        yield "localhost/a2a-trust-test"
    finally:
        buildah("rm", base)
        subprocess.run(["buildah", "rmi", "localhost/a2a-trust-test", "localhost/a2a-trust-test-base"], check=False)


@pytest.mark.long
def test_the_image_signs_with_the_key_of_the_environment(image: str, tmp_path: Path) -> None:
    keys, cards = tmp_path / "keys", tmp_path / "cards"
    keys.mkdir()
    cards.mkdir()
    pem = make_key(keys).read_text()
    (cards / "card.json").write_bytes(CARD.read_bytes())
    (cards / "trust.toml").write_bytes((keys / "trust.toml").read_bytes())
    for path in (cards, *cards.iterdir()):
        os.chown(path, 10001, 10001)
    container = buildah("from", image)
    try:
        run = ("run", f"--volume={cards}:/cards")
        command = ("--", "/opt/a2a-sign/bin/a2a-sign")
        assert "card.json: signed by" in buildah(*run, f"--env=A2A_SIGN_KEY={pem}", container, *command, "card.json")
        signed = (cards / "card.json").read_bytes()
        assert "unchanged" in buildah(
            *run, f"--env=A2A_SIGN_KEY={pem}", container, *command, "/cards/card.json", "--if-needed"
        )
        assert (cards / "card.json").read_bytes() == signed
        verify = ("verify", "card.json", "--trust", "trust.toml", "--origin-from-card")
        assert "card.json: verified" in buildah(*run, container, *command, *verify)
        assert buildah(*run, container, "--", "id", "-u") == "10001"
        assert pem.splitlines()[1] not in buildah("inspect", container)
    finally:
        buildah("rm", container)
