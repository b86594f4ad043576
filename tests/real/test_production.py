"""examples/production starts with one command, and each of its drills passes as its page shows.

The drills check what callers get. These tests look at the other side, too: at the audit logs and the logs of all
programs, at Prometheus, and at what is left when the example ends.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import httpx
import pytest

from tests.conftest import ROOT
from tests.databases import temporary_folder
from tests.docs.pages import PAGES
from tests.interop.sdk_process import SdkUnavailableError, node_environment
from tests.real.openid_provider import LOCKED
from tests.real.test_metrics import all_queries, results
from tests.servers.serving import free_port
from tests.tiers import missing

HERE = ROOT / "examples" / "production"
#: Command on the page -> what it prints.
_TEXT = PAGES["examples/production/README.md"].replace(" \\\n   ", "")
PAGE = dict(re.findall(r"(?m)^\$ (.*)\n((?:(?!\$ |```).*\n)*)", _TEXT))
RUN = "python examples/production/run.py demo"
STALE_SECONDS = 10
END_SECONDS = 300  # only a defect takes so long
BUSY = "Credentials cannot be checked now."  # 503


def is_as_shown(printed: str, command: str) -> bool:
    """Whether a command printed what the page shows; "…" stands for any text in a line."""
    shown = re.escape(PAGE[command]).replace("…", ".*")
    return re.fullmatch(shown, printed) is not None


class Production:
    """The example in a folder of its own, which is named "demo" there."""

    def __init__(self, folder: Path) -> None:
        self.place, self.folder = folder, folder / "demo"
        clean = {
            name: value for name, value in os.environ.items() if not name.startswith(("A2A_SIGN", "COVERAGE", "PG"))
        }
        self.environment = {**clean, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
        self.process: subprocess.Popen[str] | None = None

    @property
    def settings(self) -> dict[str, str]:
        return dict(line.split("=", 1) for line in (self.folder / "settings.env").read_text().splitlines())

    @property
    def pids(self) -> dict[str, int]:
        return {path.stem: int(path.read_text()) for path in (self.folder / "stop").glob("*.pid")}

    def popen(self, command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=self.place,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def start(self) -> str:
        """What the example prints until it is ready."""
        self.process = self.popen(RUN)
        assert self.process.stdout is not None
        printed = ""
        for line in self.process.stdout:
            printed += line
            if line.startswith("ready"):
                return printed
        raise AssertionError(printed + "".join(path.read_text()[-2000:] for path in self.folder.glob("logs/*.log")))

    def end(self) -> str:
        """Ctrl-C, and what the example prints then."""
        assert self.process is not None
        self.process.send_signal(signal.SIGINT)
        printed, _ = self.process.communicate(timeout=END_SECONDS)
        assert self.process.returncode == 0, printed
        return printed

    def drill(self, name: str) -> None:
        command = f"python examples/production/drill.py demo {name}"
        passes(self.popen(command), command)

    def log(self) -> str:
        """Whatever the programs have logged."""
        return "".join(path.read_text(errors="replace") for path in sorted((self.folder / "logs").iterdir()))

    def audited(self, owner: str) -> list[float]:
        """When calls of this owner of API keys were admitted."""
        lines = [line for path in self.folder.glob("logs/audit-*.jsonl") for line in path.read_text().splitlines()]
        events = [event for event in map(json.loads, lines) if event.get("caller") == f"{owner}@api-keys"]
        return [event["time"] for event in events if event["event"] == "allowed"]

    def call(self) -> httpx.Response:
        key = (self.folder / "callers" / "keys" / "000001").read_text().strip()
        call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {}}
        origin = f"http://127.0.0.1:{self.settings['REPLICA_1_PORT']}"
        return httpx.post(f"{origin}/rpc", headers={"X-API-Key": key}, json=call, trust_env=False, timeout=60)


def passes(drill: subprocess.Popen[str], command: str) -> None:
    printed, _ = drill.communicate(timeout=END_SECONDS)
    assert drill.returncode == 0, printed
    assert is_as_shown(printed, command), printed


@pytest.fixture(scope="module")
def production() -> Iterator[Production]:
    try:
        _, provider = node_environment(LOCKED)
    except SdkUnavailableError as error:
        missing(f"the OpenID provider ({error})", "real-providers")
    with temporary_folder() as folder:
        (folder / "examples").symlink_to(ROOT / "examples")
        running = Production(folder)
        (running.folder / "provider").mkdir(parents=True)
        (running.folder / "provider" / "node_modules").symlink_to(provider / "node_modules")
        # Other ports than those that other tests were given.
        ports = "".join(f"{name}={free_port()}\n" for name in example_of_ports())
        (running.folder / "ports.env").write_text(ports)
        try:
            assert is_as_shown(running.start(), RUN)
            yield running
        finally:
            if running.process is not None and running.process.returncode is None:
                running.end()


@pytest.fixture(scope="module")
def rotating(production: Production) -> Iterator[subprocess.Popen[str]]:
    """The rotation takes a minute, in which the other drills go on."""
    process = production.popen("python examples/production/drill.py demo rotation")
    with process:
        yield process
        process.kill()


def example_of_ports() -> dict[str, int]:
    spec = importlib.util.spec_from_file_location("run", HERE / "run.py")
    assert spec is not None
    assert spec.loader is not None
    run = importlib.util.module_from_spec(spec)
    sys.modules["run"] = run  # for its dataclass
    spec.loader.exec_module(run)
    ports: dict[str, int] = run.free_ports()
    return ports


def test_the_page_has_these_commands_only() -> None:
    names = ["leaked-key", "revoked-team", "lost-postgresql", "lost-redis", "restore", "rotation"]
    drills = {f"python examples/production/drill.py demo {name}" for name in names}
    assert PAGE.keys() == {RUN, *drills, *(each for each in PAGE if each.startswith("curl "))}
    assert len(PAGE) == len(drills) + 2


def test_ports_are_chosen_once_each() -> None:
    ports = example_of_ports()
    assert len(set(ports.values())) == len(ports) == 11


def test_a_caller_gets_what_the_page_shows(production: Production) -> None:
    (command,) = (each for each in PAGE if each.startswith("curl "))
    end = time.monotonic() + 60
    printed = BUSY
    while BUSY in printed:  # a look-up may take longer than a request waits
        assert time.monotonic() < end
        printed, _ = production.popen(command).communicate(timeout=END_SECONDS)
    assert is_as_shown(f"{printed}\n", command), printed


def test_a_leaked_key(production: Production) -> None:
    production.drill("leaked-key")


@pytest.mark.usefixtures("rotating")
@pytest.mark.parametrize("name", ["revoked-team", "lost-postgresql", "lost-redis", "restore"])
def test_a_drill_during_the_rotation(production: Production, name: str) -> None:
    production.drill(name)


def test_the_rotation(rotating: subprocess.Popen[str]) -> None:
    passes(rotating, "python examples/production/drill.py demo rotation")


def test_the_audit_logs_have_no_admitted_call_by_a_revoked_key(production: Production) -> None:
    store = (
        f"PGPASSFILE=secrets/owner.pgpass a2a-sign api-key list --store {production.settings['OWNER_DATABASE']} --json"
    )
    listed = subprocess.run(
        ["bash", "-c", store], cwd=production.folder, env=production.environment, capture_output=True, check=True
    )
    keys = json.loads(listed.stdout)["keys"]
    revoked = {each["owner"]: each["revoked"] for each in keys if each["state"] == "revoked"}
    assert revoked.keys() == {"leaver", "former", "dismissed"}
    until = datetime.fromisoformat(revoked["leaver"]).timestamp() + 1 + STALE_SECONDS
    assert production.audited("leaver")
    assert max(production.audited("leaver")) < until
    assert production.audited("former") == production.audited("dismissed") == []
    assert len(production.audited("search")) > 100


def test_no_log_has_a_secret(production: Production) -> None:
    log = production.log()
    assert "search@api-keys" in log
    assert "store-lost" in log
    paths = [path for path in production.folder.glob("secrets/**/*") if path.is_file() and path.suffix != ".json"]
    paths += [*production.folder.glob("callers/keys/0*"), *production.folder.glob("callers/*.key")]
    secrets = [path.read_text().strip().rpartition(":")[2] for path in paths]
    assert len(secrets) > 10
    assert [path for path, secret in zip(paths, secrets, strict=True) if secret in log] == []
    assert re.findall(r"\beyJ[\w-]{20}", log) == []  # a token, a proof


def test_prometheus_has_all_replicas_and_answers_every_query(production: Production) -> None:
    url = f"http://127.0.0.1:{production.settings['PROMETHEUS_PORT']}/api/v1"
    with httpx.Client(base_url=url, trust_env=False, timeout=60) as queries:
        assert [each["value"][1] for each in results(queries, 'up{job="agents"}')] == ["1"] * 3
        for query in all_queries():
            results(queries, query)
        alerts = queries.get("/rules").json()["data"]["groups"][0]["rules"]
        assert len(alerts) == 6
        assert {each["health"] for each in alerts} <= {"ok", "unknown"}  # not evaluated yet
        (lost,) = results(queries, 'sum(increase(a2a_trust_state_changes_total{a2a_trust_change="store-lost"}[15m]))')
        assert float(lost["value"][1]) > 0


def test_ctrl_c_ends_all_and_a_second_start_continues(production: Production) -> None:
    pids = production.pids
    assert len(pids) == 9
    assert production.end().endswith("ending\nended\n")
    assert [name for name, pid in pids.items() if Path(f"/proc/{pid}").exists()] == []
    assert is_as_shown(production.start(), RUN)
    end = time.monotonic() + 60
    while (answer := production.call()).status_code == 503:  # a busy machine
        assert time.monotonic() < end
    assert answer.json()["result"]["message"]["parts"] == [{"text": "search, by replica 1"}]
