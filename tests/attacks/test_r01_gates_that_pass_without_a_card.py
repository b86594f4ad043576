"""R1: a step of a pipeline is green although no card was verified, or not bound to anything.

A pull request renames the cards, so that the glob of the gate names nothing; or the gate never said where a card has to
be from, so a card that its owner signed for another host passes; or a card is stripped to what is still signed, and
``--if-needed`` leaves it as it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from a2a_trust.cli.main import main
from tests.attacks.forgery import JSONObject, pruned
from tests.attacks.verifying import ORIGIN
from tests.tables import walk

Sign = Callable[..., int]
KEYS = ["--jwks", "key.jwks.json"]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, card: JSONObject) -> Sign:
    """The command, in a folder with a key and a card that it signed."""
    monkeypatch.chdir(tmp_path)
    Path("cards").mkdir()
    Path("cards/card.json").write_text(json.dumps(card))
    assert main(["keygen", "-o", "key.pem"]) == 0
    assert main(["cards/card.json", "--key", "key.pem"]) == 0

    def run(*arguments: str) -> int:
        return main(list(arguments))

    return run


@pytest.mark.parametrize("named", [["cards"], ["cards/*.json"], ["cards/**/*.json"], ["--files-from", "list"]])
@pytest.mark.parametrize(
    "gate", [["verify", *KEYS, "--origin", ORIGIN], ["lint"], ["sign", "--key", "key.pem", "--check"], ["inspect"]]
)
def test_a_gate_without_a_card_is_red(gate: list[str], named: list[str], command: Sign) -> None:
    Path("list").write_text("cards/card.json\n")
    assert command(*gate, *named) == 0
    Path("cards/card.json").rename("cards/card.jsonc")
    Path("list").write_text("\n")
    assert command(*gate, *named) == 2
    Path("cards/card.jsonc").unlink()
    Path("cards").rmdir()
    assert command(*gate, *named) != 0


@pytest.mark.parametrize("named", ["cards", "cards/**/*.json", "**/agent-card.json"])
@pytest.mark.parametrize("gate", [["verify", *KEYS, "--origin", ORIGIN], ["sign", "--key", "key.pem", "--check"]])
def test_the_card_that_is_served_is_not_passed_over(gate: list[str], named: str, command: Sign) -> None:
    """A static site has its card in a hidden directory, beside others: ``site/.well-known/agent-card.json``."""
    Path("cards/.well-known").mkdir()
    served, beside = Path("cards/.well-known/agent-card.json"), Path("cards/agent-card.json")
    for path in (served, beside):
        path.write_bytes(Path("cards/card.json").read_bytes())
    assert command(*gate, named) == 0
    served.write_text(served.read_text().replace('"name"', '"Name"', 1))
    assert command(*gate, named) == 1


@walk("gate", ["verify", "inspect"])
@walk("form", [[], ["--json"], ["--json-lines"], ["-q"]])
def test_a_file_is_never_verified_for_nowhere_by_mistake(gate: str, form: list[str], command: Sign) -> None:
    Path("trust.toml").write_text("version = 1\n")
    assert command("trust", "add", "trust.toml", "--origin", ORIGIN, *KEYS) == 0
    form = [] if gate == "inspect" and form == ["-q"] else form
    for keys in (KEYS, ["--trust", "trust.toml"], ["--public-key", "key.jwks.json"]):
        assert command(gate, "cards/card.json", *keys, *form) == 2
    assert command(gate, "cards/card.json", "--trust", "trust.toml", "--origin-from-card", *form) == 0
    assert command(gate, "cards/card.json", *KEYS, "--origin-from-card", *form) == 2  # would trust any host


def test_a_card_does_not_choose_a_host_that_its_key_may_not_speak_for(command: Sign, card: JSONObject) -> None:
    assert command("trust", "add", "trust.toml", "--origin", "honest.example.com", *KEYS) == 0
    assert command("verify", "cards/card.json", "--trust", "trust.toml", "--origin-from-card") == 4
    # One interface of the host that the key speaks for does not carry another one along, in whatever order.
    first, *_ = card["supportedInterfaces"]
    honest = {**first, "url": "https://honest.example.com/"}
    for interfaces, code in (([honest], 0), ([honest, first], 4), ([first, honest], 4), ([], 1)):
        Path("own.json").write_text(json.dumps({**card, "supportedInterfaces": interfaces}))
        assert command("own.json", "--key", "key.pem") == 0
        assert command("verify", "own.json", "--trust", "trust.toml", "--origin-from-card") == code


def test_a_card_that_was_changed_is_never_left_as_it_is(command: Sign, card: JSONObject) -> None:
    assert command("cards/card.json", "--key", "key.pem", "--companion") == 0
    signed = json.loads(Path("cards/card.json").read_text())
    shapes = {
        "with a companion, as it was signed": signed,
        "stripped": {**pruned(signed), "signatures": signed["signatures"]},
        "companion only": {**signed, "signatures": signed["signatures"][1:]},
        "no requirement": {name: value for name, value in signed.items() if name != "securityRequirements"},
        "open": {**signed, "securityRequirements": [{}]},
        "moved": {
            **signed,
            "supportedInterfaces": [{**signed["supportedInterfaces"][0], "url": "https://evil.example/"}],
        },
        "unsigned": card,
    }
    for shape, changed in shapes.items():
        Path("cards/card.json").write_text(json.dumps(changed))
        assert command("cards", "--key", "key.pem", "--check") == 1, shape
        assert command("cards", "--key", "key.pem", "--if-needed") == 0, shape
        assert command("verify", "cards", *KEYS, "--origin", "evil.example" if shape == "moved" else ORIGIN) == 0, shape


def test_a_pipeline_does_not_use_the_memory_that_another_job_left(
    command: Sign, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each job has an empty memory, or one that another branch filled: neither shows that a card is not an old one."""
    monkeypatch.setenv("XDG_DATA_HOME", "data")
    monkeypatch.setenv("CI", "true")
    url = "https://agent.invalid"
    assert command("verify", url, *KEYS) == 6
    assert "rollback was not checked" in capsys.readouterr().err
    assert not Path("data").exists()
    assert command("verify", url, *KEYS, "--memory", "cards.db") == 6
    assert "rollback was not checked" not in capsys.readouterr().err
    assert Path("cards.db").exists()
