"""Three replicas of an agent and all that they need, on this machine: ``python examples/production/run.py FOLDER``.

nginx, PostgreSQL with its backup, Redis, an OpenID provider and Prometheus, on free ports of the loopback interface.
Every file is made in FOLDER by the scripts beside this one. A second start continues with what is there. A program that
ends is started again, as a supervisor does; a file ``stop/NAME`` ends a program and keeps it down. Ctrl-C ends all.
"""

from __future__ import annotations

import math
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROGRAMS = ["nginx", "initdb", "pg_receivewal", "redis-server", "prometheus", "openssl", "node", "npm", "setpriv"]
PORTS = [
    "AGENT_PORT", "ISSUER_PORT", "DATABASE_PORT", "REDIS_PORT", "PROMETHEUS_PORT",
    *(f"{kind}_{number}_PORT" for kind in ("REPLICA", "METRICS") for number in (1, 2, 3)),
]  # fmt: skip
START_SECONDS = 120
PAUSE_SECONDS = 1  # between two starts of a program


def free_ports() -> dict[str, int]:
    """Ports that are free, below those that Linux gives to connections."""
    found: dict[str, int] = {}
    while len(found) < len(PORTS):
        port = random.randrange(10_240, 32_768)  # noqa: S311
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        if port not in found.values():
            found[PORTS[len(found)]] = port
    return found


def read_settings(path: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in path.read_text().splitlines())


def settings_of(folder: Path) -> dict[str, str]:
    """The settings of FOLDER, which is new, or was used before: ports.env, and settings.env from it."""
    folder.mkdir(exist_ok=True)
    ports = folder / "ports.env"
    if not ports.exists():
        ports.write_text("".join(f"{name}={port}\n" for name, port in free_ports().items()))
    settings = read_settings(ports)
    database = f"127.0.0.1:{settings['DATABASE_PORT']}/agents"
    settings |= {
        "AGENT_URL": f"https://localhost:{settings['AGENT_PORT']}",
        "ISSUER": f"https://localhost:{settings['ISSUER_PORT']}",
        "AGENT_DATABASE": f"postgresql://agent@{database}",
        "OWNER_DATABASE": f"postgresql://owner@{database}",
        "AGENT_REDIS": f"redis://127.0.0.1:{settings['REDIS_PORT']}/0",
    }
    (folder / "settings.env").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return settings


@dataclass
class Program:
    """One program that runs until it is stopped. ``is_ready`` says whether it serves."""

    name: str
    command: list[str]
    is_ready: Callable[[], bool]
    environment: dict[str, str] = field(default_factory=dict)
    stop: signal.Signals = signal.SIGTERM
    process: subprocess.Popen[bytes] | None = None
    started: float = -math.inf


class Supervisor:
    """Keeps programs running in FOLDER. They get PATH, HOME and variables of their own, and no other variable."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        self.programs: list[Program] = []

    def add(self, *programs: Program) -> None:
        """Start them, and wait until they serve."""
        self.programs += programs
        end = time.monotonic() + START_SECONDS
        for program in programs:
            while not program.is_ready():
                self.look()
                if time.monotonic() > end:
                    sys.exit(f"{program.name} does not start: {self.folder}/logs/{program.name}.log")
                time.sleep(0.05)

    def look(self) -> None:
        """Start programs that ended, and end programs that are to be down."""
        for each in self.programs:
            is_down = (self.folder / "stop" / each.name).exists()
            is_running = each.process is not None and each.process.poll() is None
            if is_running and is_down:
                self._end(each, signal.SIGQUIT if each.name == "postgres" else signal.SIGKILL)
            elif not is_running and not is_down and time.monotonic() > each.started + PAUSE_SECONDS:
                if each.process is not None and time.monotonic() > each.started + 10 * PAUSE_SECONDS:
                    print(f"{each.name} ended: {self.folder}/logs/{each.name}.log", flush=True)
                each.started = time.monotonic()
                self._start(each)

    def run(self, script: str) -> None:
        """Run a script beside this file in FOLDER, while the programs run."""
        # npm may need its settings and a proxy.
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("A2A_SIGN", "PG"))}
        with (self.folder / "logs" / f"{script}.log").open("ab") as log:
            process = subprocess.Popen(
                ["/bin/sh", HERE / script], cwd=self.folder, env=environment, stdout=log, stderr=log
            )
        while process.poll() is None:
            self.look()
            time.sleep(0.05)
        if process.returncode:
            sys.exit(f"{script} failed: {self.folder}/logs/{script}.log")

    def end(self) -> None:
        for each in reversed(self.programs):
            self._end(each, each.stop)

    def _start(self, program: Program) -> None:
        # If this process is killed, its programs end, too.
        command = ["setpriv", "--pdeathsig", "TERM", *program.command]
        with (self.folder / "logs" / f"{program.name}.log").open("ab") as log:
            program.process = subprocess.Popen(
                command,
                cwd=self.folder,
                env={**self.environment, **program.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for this process, which ends them in order
            )
        (self.folder / "stop" / f"{program.name}.pid").write_text(f"{program.process.pid}\n")

    def _end(self, program: Program, how: signal.Signals) -> None:
        process = program.process
        if process is None or process.poll() is not None:
            return
        process.send_signal(how)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def accepts(port: str) -> Callable[[], bool]:
    def is_ready() -> bool:
        try:
            socket.create_connection(("127.0.0.1", int(port)), timeout=5).close()
        except OSError:
            return False
        return True

    return is_ready


def answers(url: str) -> Callable[[], bool]:
    """Whether GET of that URL on this machine is answered with 200."""

    def is_ready() -> bool:
        try:
            urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=5).close()
        except OSError:
            return False
        return True

    return is_ready


def postgres_is_ready(port: str) -> Callable[[], bool]:
    command = ["pg_isready", "--quiet", "--host=127.0.0.1", f"--port={port}"]
    return lambda: subprocess.run(command, check=False).returncode == 0


def start(supervisor: Supervisor, settings: dict[str, str]) -> None:
    """Each step makes what the next one needs."""
    supervisor.run("make-files.sh")
    as_postgres = ["--reuid=postgres", "--regid=postgres", "--init-groups"] if os.geteuid() == 0 else []
    options = {
        "listen_addresses": "127.0.0.1",
        "port": settings["DATABASE_PORT"],
        "unix_socket_directories": "",
        "synchronous_standby_names": "backup",  # a change is acknowledged when the backup has it, too
    }
    configured = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
    supervisor.add(
        Program(
            "postgres",
            [*as_postgres, "postgres", "-D", "postgres", *configured],
            postgres_is_ready(settings["DATABASE_PORT"]),
            stop=signal.SIGINT,  # ends connections, and writes everything
        ),
        Program("redis", ["redis-server", "redis.conf"], accepts(settings["REDIS_PORT"])),
        Program("provider", ["node", "provider/provider.mjs"], accepts(settings["ISSUER_PORT"]), settings),
    )
    supervisor.run("make-roles.sh")
    supervisor.add(Program("receive-wal", ["sh", str(HERE / "receive-wal.sh")], lambda: True, stop=signal.SIGINT))
    supervisor.run("make-database.sh")
    redis_password = (supervisor.folder / "secrets" / "redis").read_text().strip()
    replicas = []
    for number in "123":
        port = settings[f"REPLICA_{number}_PORT"]
        environment = {
            **{name: settings[name] for name in ("AGENT_URL", "ISSUER", "AGENT_DATABASE", "AGENT_REDIS")},
            "METRICS_PORT": settings[f"METRICS_{number}_PORT"],
            "REPLICA": number,
            "PGPASSFILE": "secrets/agent.pgpass",
            "REDISCLI_AUTH": redis_password,
            "SSL_CERT_FILE": "tls/ca.pem",  # the authority of the provider
        }
        command = [sys.executable, "-m", "uvicorn", "--app-dir", str(HERE), "replica:app", "--port", port]
        command += ["--no-access-log", "--timeout-keep-alive", "75"]
        replicas.append(Program(f"replica-{number}", command, answers(f"http://127.0.0.1:{port}/readyz"), environment))
    prometheus = f"127.0.0.1:{settings['PROMETHEUS_PORT']}"
    supervisor.add(
        *replicas,
        Program("nginx", ["nginx", "-p", ".", "-e", "stderr", "-c", "nginx.conf"], accepts(settings["AGENT_PORT"])),
        Program(
            "prometheus",
            ["prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=prometheus",
             f"--web.listen-address={prometheus}"],
            answers(f"http://{prometheus}/-/ready"),
        ),
    )  # fmt: skip


def main() -> int:
    if len(sys.argv) != 2:
        sys.exit("run.py: write a folder, new or used before: run.py demo")
    folder = Path(sys.argv[1]).resolve()
    places = [Path(sys.executable).parent, os.environ["PATH"], "/usr/sbin"]
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    os.environ["PATH"] = os.pathsep.join(map(str, places))
    if missing := [name for name in PROGRAMS if shutil.which(name) is None]:
        packages = "nginx-light postgresql redis-server prometheus nodejs npm openssl"
        sys.exit(f"missing: {' '.join(missing)}; as root on Debian, run: apt-get install {packages}")
    settings = settings_of(folder)
    (folder / "logs").mkdir(exist_ok=True)
    supervisor = Supervisor(folder)
    for number in (signal.SIGINT, signal.SIGTERM):  # SIGINT may be ignored in the background of a shell
        signal.signal(number, signal.default_int_handler)
    try:
        start(supervisor, settings)
        print(f"agent       {settings['AGENT_URL']}, by nginx and three replicas")
        print(f"provider    {settings['ISSUER']}")
        print(f"Prometheus  http://127.0.0.1:{settings['PROMETHEUS_PORT']}/alerts")
        print(f"API keys    {folder}/callers/keys")
        print(f"audit log   {folder}/logs/audit-*.jsonl")
        print("ready; Ctrl-C ends all", flush=True)
        while True:
            supervisor.look()
            time.sleep(0.1)
    except KeyboardInterrupt:
        print("ending", flush=True)
    finally:
        supervisor.end()
    print("ended", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
