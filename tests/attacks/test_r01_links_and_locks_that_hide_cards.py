"""R1: a gate is green although a card was not looked at.

A pull request moves a card behind a link, which a deployment follows and the search for cards does not; or a directory
cannot be read. And a search that follows links can be kept busy for ever.
"""

from __future__ import annotations

import os
from argparse import Namespace
from pathlib import Path

import pytest

from a2a_trust.cli.main import main
from a2a_trust.cli.named_cards import named_cards
from a2a_trust.errors import ConfigurationError


def named(*names: str) -> list[str]:
    return named_cards(Namespace(files=list(names), files_from=None))


@pytest.fixture
def agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for place in ("agents/ann", "agents/bob", "moved"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "card.json").write_text("{}")
    return tmp_path / "agents"


@pytest.mark.parametrize("name", ["agents", "agents/**/*.json", "**/card.json", "agents/**"])
@pytest.mark.parametrize("target", ["../moved", ".", "..", "ann"])
def test_a_card_behind_a_link_is_not_passed_over(
    target: str, name: str, agents: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(named(name)) in (2, 3)
    (agents / "eve").symlink_to(target)
    with pytest.raises(ConfigurationError, match="agents/eve: a link to a directory"):
        named(name)
    assert main(["lint", name]) == 2
    assert "agents/eve: a link to a directory" in capsys.readouterr().err


def test_one_step_goes_through_a_link_as_in_a_shell(agents: Path) -> None:
    (agents / "eve").symlink_to("../moved")
    assert named("agents/*/card.json") == [f"agents/{name}/card.json" for name in ("ann", "bob", "eve")]
    assert named("agents/e*") == ["agents/eve/card.json"]
    assert named("agents/eve") == ["agents/eve/card.json"]


@pytest.mark.parametrize("name", ["agents", "agents/**/*.json", "agents/*/card.json", "agents/*"])
def test_a_directory_that_cannot_be_read_is_an_error(name: str, agents: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = os.scandir

    def scandir(path: str) -> object:  # the tests may run as root, who can read everything
        if str(path).endswith("bob"):
            raise PermissionError(13, "Permission denied", str(path))
        return listed(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(PermissionError):
        named(name)


@pytest.mark.parametrize("command", [["lint"], ["sign", "--check"], ["verify", "--origin-from-card", "--trust", "t"]])
def test_a_link_to_a_device_keeps_nobody_waiting(
    command: list[str], agents: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody ever writes to the terminal behind ``/dev/ptmx``."""
    (agents / "eve.json").symlink_to("/dev/ptmx")
    for name in ("agents/eve.json", "agents"):
        assert main([*command, name]) == 2
        assert "agents/eve.json: not a regular file" in capsys.readouterr().err


def test_links_in_circles_keep_nobody_busy(agents: Path) -> None:
    for name in "abcdefgh":
        (agents / name).symlink_to(".")
    with pytest.raises(ConfigurationError, match="a link to a directory"):
        named("agents/**/*.json")
    assert len(named("agents/*/*/*.json")) == 8 * (2 + 8 * 0)
