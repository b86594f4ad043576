"""Real servers of Redis and PostgreSQL on loopback, which tests kill, freeze, cut off, slow down and fill."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import asyncpg  # type: ignore[import-untyped]
import pytest
import redis

from a2a_trust.auth import introspection, throttle
from a2a_trust.auth.proofs.shared import SERVER
from a2a_trust.base.databases.postgres import migrate
from a2a_trust.errors import KeySourceUnavailableError
from tests.tiers import missing

__all__ = ["Line", "PostgresServer", "RedisServer", "line", "postgres", "postgres_url", "redis_server", "redis_url"]

SECONDS = 60.0


def free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


def installed(name: str, package: str, *folders: str) -> str:
    """The path of a program of a Debian package."""
    path = os.pathsep.join((*sorted(folders, reverse=True), os.environ["PATH"]))
    found = shutil.which(name, path=path)
    if found is None:
        missing(f"{name}, of the package {package},", "real-databases")
    return found


def eventually(works: Callable[[], Any]) -> None:
    """Until that no longer raises."""
    ends = time.monotonic() + SECONDS
    while True:
        try:
            works()
        except Exception:
            if time.monotonic() > ends:
                raise
            time.sleep(0.02)
        else:
            return


class Process:
    """A server, with its children."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None

    def pids(self) -> list[int]:
        """The server first, then its children."""
        assert self.process is not None
        parent, found = self.process.pid, []
        for each in Path("/proc").iterdir():
            if each.name.isdigit():
                with suppress(OSError, ProcessLookupError):
                    if int((each / "stat").read_text().rpartition(")")[2].split()[1]) == parent:
                        found.append(int(each.name))
        return [parent, *found]

    def signal(self, number: int) -> None:
        for pid in self.pids():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self) -> None:
        """As a power cut, but for the disk."""
        if self.process is not None:
            self.signal(signal.SIGKILL)
            self.process.wait(SECONDS)
            self.process = None

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """For the block the server is there, and does nothing."""
        self.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.signal(signal.SIGCONT)


_Server = TypeVar("_Server", bound=Process)


class RedisServer(Process):
    """One Redis server. Its data is lost with the process, or kept with ``keeps``."""

    def __init__(self, folder: Path, *, keeps: bool = False) -> None:
        super().__init__()
        self.folder, self.port, self._keeps = folder, free_port(), keeps

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def client(self) -> redis.Redis:
        return redis.Redis(port=self.port)

    def start(self, *options: str) -> None:
        program = installed("redis-server", "redis-server")
        kept = ("--appendonly", "yes", "--appendfsync", "always") if self._keeps else ("--appendonly", "no")
        self.process = subprocess.Popen(
            [program, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", *kept, *options],
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
        )

        def pings() -> None:
            with self.client() as client:
                client.ping()

        eventually(pings)

    def has_run_for_long(self) -> None:
        """No proof is refused because the server is new."""
        with self.client() as client:
            facts = {"server": client.info("server")["run_id"], "since": "0.0", "dropped": "-inf"}
            client.hset("a2a:proofs", mapping=facts)


class PostgresServer(Process):
    """One PostgreSQL server, with a database of its own for each test."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder, self.port, self._count = folder, free_port(), 0
        self.data = folder / "data"
        self._is_root = os.geteuid() == 0
        if self._is_root:  # the server refuses to run as root
            os.chown(folder, *self._owner())

    @staticmethod
    def _owner() -> tuple[int, int]:
        owner = pwd.getpwnam("postgres")
        return owner.pw_uid, owner.pw_gid

    def _as_owner(self) -> dict[str, Any]:
        return {"user": "postgres", "group": "postgres", "extra_groups": []} if self._is_root else {}

    def make(self) -> None:
        program = installed("initdb", "postgresql", *map(str, Path("/usr/lib/postgresql").glob("*/bin")))
        subprocess.run(
            [program, "-D", self.data, "-A", "trust", "-U", "postgres", "--no-sync", "-E", "UTF8"],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd=self.folder,
            **self._as_owner(),
        )

    def start(self, *options: str) -> None:
        program = installed("postgres", "postgresql", *map(str, Path("/usr/lib/postgresql").glob("*/bin")))
        settings = {
            "listen_addresses": "127.0.0.1", "unix_socket_directories": "", "port": self.port, "shared_buffers": "16MB",
            "max_connections": 200, "fsync": "off",  # a server that is killed would sync the files of all tests first
        }  # fmt: skip
        given = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        self.process = subprocess.Popen(
            [program, "-D", self.data, *given, *options],
            cwd=self.folder,
            stderr=subprocess.DEVNULL,
            **self._as_owner(),
        )
        eventually(lambda: self.sql("SELECT 1"))

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def sql(self, text: str, database: str = "postgres") -> list[Any]:
        """The rows of a query as the superuser."""

        async def run() -> list[Any]:
            connection = await asyncpg.connect(self.url(database), timeout=SECONDS)
            try:
                return list(await connection.fetch(text))
            finally:
                await connection.close()

        with ThreadPoolExecutor(1) as thread:  # the caller may be in an event loop
            return thread.submit(asyncio.run, run()).result()

    def sql_ignored(self, text: str) -> None:
        """Run it, whatever comes of it."""
        with suppress(Exception):
            self.sql(text)

    def database(self, *, tables: bool = True) -> str:
        """The URL of a new database."""
        self._count += 1
        name = f"test_{self._count}"
        self.sql(f"CREATE DATABASE {name}")
        if tables:
            migrate(self.url(name), unavailable=KeySourceUnavailableError, timeout=SECONDS)
        return self.url(name)


def has_known_proofs_for_long(server: PostgresServer, url: str) -> None:
    """No proof is refused because the database is new."""
    server.sql(
        f"INSERT INTO a2a_trust.proof_store (server, since, dropped) SELECT {SERVER}, 0, '-infinity' "
        "ON CONFLICT (only_row) DO UPDATE SET server = excluded.server, since = 0",
        url.rpartition("/")[2],
    )


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder that another user may enter: those of pytest are for the one who runs the tests."""
    folder = tempfile.mkdtemp(prefix="a2a-trust-")
    Path(folder).chmod(0o755)
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def ended(server: _Server) -> Iterator[_Server]:
    """The server, which is killed at the end of the block if it runs."""
    try:
        yield server
    finally:
        server.kill()


@contextmanager
def running_redis() -> Iterator[RedisServer]:
    """A Redis server that forgets everything when it ends."""
    with temporary_folder() as folder, ended(RedisServer(folder)) as server:
        server.start()
        yield server


@contextmanager
def running_postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server."""
    with temporary_folder() as folder, ended(PostgresServer(folder)) as server:
        server.make()
        server.start()
        yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """The Redis server of this worker."""
    with running_redis() as server:
        yield server


@pytest.fixture
def redis_url(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of an empty Redis server that has run for long. Counters and caches wait for it for longer than requests
    do, because a busy machine takes longer for a round trip."""
    for module in (throttle, introspection):
        monkeypatch.setattr(module, "REQUEST_SECONDS", 60.0)
        monkeypatch.setattr(module, "_ROUND_TRIP_SECONDS", 60.0)
    with redis_server.client() as client:
        client.flushall()
    redis_server.has_run_for_long()
    return redis_server.url


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """The PostgreSQL server of this worker."""
    with running_postgres() as server:
        yield server


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> str:
    """The URL of a new database with the tables, and with a memory of proofs that has been there for long."""
    url = postgres.database()
    has_known_proofs_for_long(postgres, url)
    return url


class Line:
    """A TCP line to a server that can be slow, dead or cut."""

    def __init__(self, port: int) -> None:
        self._to = port
        self.delay = 0.0
        """Seconds that each piece takes to the server."""
        self.is_dead = False
        """Whether nothing passes, though connections stay open."""
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = self._call(self._serve())
        self.port = int(self._server.sockets[0].getsockname()[1])

    def cut(self) -> None:
        """End all connections, at once; new ones work."""

        async def cut() -> None:
            for writer in [*self._writers]:
                writer.transport.abort()

        self._call(cut())

    def close(self) -> None:
        async def end() -> None:
            self._server.close()
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        self.cut()
        self._call(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(SECONDS)
        self._loop.close()

    def _call(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(SECONDS)

    async def _serve(self) -> asyncio.Server:
        return await asyncio.start_server(self._connected, "127.0.0.1", 0)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inner, outer = await asyncio.open_connection("127.0.0.1", self._to)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, outer}
        try:
            await asyncio.gather(self._copy(reader, outer, slowly=True), self._copy(inner, writer, slowly=False))
        finally:
            self._writers -= {writer, outer}

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, slowly: bool) -> None:
        with suppress(OSError):
            while piece := await reader.read(65_536):
                if slowly and self.delay:
                    await asyncio.sleep(self.delay)
                while self.is_dead:
                    await asyncio.sleep(0.01)
                writer.write(piece)
                await writer.drain()
        writer.transport.abort()


@contextmanager
def line(port: int) -> Iterator[Line]:
    """A line to the server at this port."""
    made = Line(port)
    try:
        yield made
    finally:
        made.close()
