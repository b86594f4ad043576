"""What the command loads: start-up is paid by every step of every pipeline."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from a2a_trust.cli.arguments import COMMANDS, SIGNERS
from a2a_trust.keys.files import load_private_key
from a2a_trust.keys.trust.store import SigningTool
from tests.cli.conftest import COMMAND

HEAVY = ("pydantic", "httpx", "starlette", "authlib", "rich", "click", "joserfc", "asyncio", "http", "ssl")

SCRIPT = """
import sys
from a2a_trust.cli.main import main
code = main(sys.argv[1:])
print("LOADED", *sorted({name.split(".")[0] for name in sys.modules}), file=sys.stderr)
sys.exit(code)
"""


def loaded(*arguments: str, cwd: Path) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments], cwd=cwd, capture_output=True, text=True, check=True, timeout=60
    )
    return set(done.stderr.rpartition("LOADED ")[2].split())


def test_signing_loads_nothing_heavy(card: Path, key: Path, tmp_path: Path) -> None:
    modules = loaded("card.json", "--key", "key.pem", cwd=tmp_path)
    assert "cryptography" in modules
    assert not modules & {*HEAVY, "logging", "msgspec"}


def test_signing_loads_nothing_that_verifies_cards(card: Path, key: Path, tmp_path: Path) -> None:
    """Policies, the trust store and what verifies with them are for --if-needed only."""
    verifying = {f"a2a_trust.{name}" for name in ("keys.trust.store", "keys.trust.policy", "signing.verify_signature")}
    for arguments, expected in (["card.json", "-o", "signed.json"], set()), (["signed.json", "--if-needed"], verifying):
        script = SCRIPT.replace('name.split(".")[0]', "name")
        done = subprocess.run(
            [sys.executable, "-c", script, *arguments, "--key", "key.pem"],
            cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
        assert verifying & {*done.stderr.rpartition("LOADED ")[2].split()} == expected, arguments


def test_verifying_a_file_loads_no_network(card: Path, key: Path, tmp_path: Path) -> None:
    (tmp_path / "key.pub").write_bytes(load_private_key(key).public_key.to_pem())
    loaded("card.json", "--key", "key.pem", cwd=tmp_path)
    for command in ("verify", "inspect"):
        modules = loaded(command, "card.json", "--public-key", "key.pub", "--any-origin", cwd=tmp_path)
        assert "cryptography" in modules
        assert not modules & {*HEAVY, "anyio", "httpcore", "msgspec", "sqlite3"}


RENDERED = """
import sys
from a2a_trust.cli.main import main
main(["card.json", "--key", "key.pem"])
classes = {c for n, m in list(sys.modules.items()) if n.startswith("a2a_trust") for c in vars(m).values()
           if isinstance(c, type) and c.__module__ == n and hasattr(c, "__dataclass_fields__")}
print("RECORDS", len(classes), *(c.__name__ for c in classes if (c.__doc__ or "").startswith(f"{c.__name__}(")))
from a2a_trust import protect
print("WAITING", "anyio" in sys.modules, "anyio._core._synchronization" in sys.modules)
"""


def test_no_start_renders_signatures_or_loads_what_only_threads_need(card: Path, key: Path, tmp_path: Path) -> None:
    """A dataclass without a docstring renders its signature: each takes 0.3 % of `a2a-sign card.json`."""
    done = subprocess.run(
        [sys.executable, "-c", RENDERED], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
    )
    records, waiting = done.stdout.splitlines()[-2:]
    word, count, *rendered = records.split()
    assert (word, int(count) > 15, rendered) == ("RECORDS", True, [])
    assert waiting == "WAITING True False"


@pytest.mark.parametrize("collects", [True, False])
def test_a_program_that_calls_the_command_keeps_its_collector(*, collects: bool, tmp_path: Path) -> None:
    """Also when the command cannot be imported."""
    (tmp_path / "card.json").write_text("{}")
    program = f"""
import gc, sys
from a2a_trust.cli.main import main
{"gc.enable" if collects else "gc.disable"}()
codes = [int(main(arguments)) for arguments in (["--help"], ["lint", "card.json"])]
sys.modules["a2a_trust.cli.trusted"] = None
try:
    main(["verify", "card.json", "--any-origin", "--jwks", "keys.json"])
except ImportError:
    codes.append("missing")
print("AFTER", codes, gc.isenabled(), gc.get_freeze_count())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.splitlines()[-1] == f"AFTER [0, 1, 'missing'] {collects} 0"


def test_the_own_process_of_a_command_searches_no_modules_for_garbage(tmp_path: Path) -> None:
    program = """
import atexit, gc, sys
from a2a_trust.cli.main import main
atexit.register(lambda: print("AFTER", gc.isenabled(), gc.get_freeze_count() > 5_000))
sys.exit(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program, "--help"], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.splitlines()[-1] == "AFTER True True"


def test_the_list_of_commands_is_shown_with_one_parser_and_without_patterns_of_secrets() -> None:
    """A parser for each command takes a tenth of --help, and the patterns 3 %."""
    program = """
import argparse, re, sys
parsers, init = [], argparse.ArgumentParser.__init__
def counted(parser, *args, **settings):
    parsers.append(parser)
    init(parser, *args, **settings)
argparse.ArgumentParser.__init__ = counted
from a2a_trust.cli import file_names
from a2a_trust.cli.main import main
code = main(["--help"])
print("MADE", code, len(parsers), [name for name, value in vars(file_names).items() if isinstance(value, re.Pattern)])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "MADE 0 1 []"


EACH = """
import sys
from a2a_trust.cli.main import main
for arguments in ARGUMENTS:
    code = main(arguments)
    print("LOADED", " ".join(arguments), code, *sorted(sys.modules), sep="\\t")
"""


#: ``--no-such-option`` looks for similar ones.
_UNUSED_BY_HELP = {"--help": ("typing", "pathlib", "shutil", "difflib"), "--no-such-option": ()}


@pytest.mark.parametrize("mistake", ["--help", "--no-such-option"])
def test_help_and_mistakes_load_nothing_that_works(mistake: str) -> None:
    """One process shows the help of all commands, so a module that one of them loads is seen for all after it."""
    commands = [[], *([name] for name in COMMANDS), ["keys", "create"], ["trust", "add"]]
    script = EACH.replace("ARGUMENTS", repr([[*command, mistake] for command in commands]))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    shown = (done.stdout + done.stderr).count("usage: a2a-sign")
    lines = [line.split("\t") for line in done.stdout.splitlines() if line.startswith("LOADED\t")]
    assert (len(lines), shown) == (len(commands), len(commands))
    ours = {
        "a2a_trust",
        *(
            f"a2a_trust.{name}"
            for name in ("base", "base.exports", "cli", "cli.main", "cli.arguments", "cli.file_names")
        ),
    }
    for _, arguments, code, *modules in lines:
        assert code == ("0" if mistake == "--help" else "2"), arguments
        assert "argparse" in modules
        assert not {*modules} & {*HEAVY, "cryptography", "orjson", "json", "sqlite3", *_UNUSED_BY_HELP[mistake]}, (
            arguments
        )
        assert {name for name in modules if name.startswith("a2a_trust")} == ours, arguments


@pytest.mark.parametrize(
    ("arguments", "command"), [(["--help"], set()), (["memory", "list", "--file", "cards.db"], {"memory"})]
)
def test_only_the_command_that_is_called_is_loaded(arguments: list[str], command: set[str], tmp_path: Path) -> None:
    script = SCRIPT.replace('name.split(".")[0]', "name")
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    modules = done.stderr.rpartition("LOADED ")[2].split()
    assert "a2a_trust.cli.main" in modules
    assert {name for name in COMMANDS if f"a2a_trust.cli.{name.replace('-', '_')}" in modules} == command


def test_the_signers_are_the_tools_that_are_known() -> None:
    assert list(SIGNERS) == [tool.value for tool in SigningTool]


def test_the_command_is_the_module_too() -> None:
    from importlib.metadata import version

    for command in ([str(COMMAND)], [sys.executable, "-m", "a2a_trust"]):
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True, timeout=60)
        assert done.stdout == f"a2a-sign {version('a2a-trust')}\n"
        wrong = subprocess.run([*command, "keys"], capture_output=True, text=True, check=False, timeout=60)
        assert (wrong.returncode, wrong.stderr.startswith("usage: a2a-sign keys [-h]")) == (2, True)
