"""The memory in a real PostgreSQL server: shared by processes, and never empty without a word when it is lost."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import asyncpg  # type: ignore[import-untyped]
import pytest

from a2a_trust.base.databases.postgres import migrate
from a2a_trust.base.net.urls import MAX_URL
from a2a_trust.client import PostgresCardMemory
from a2a_trust.client.location import Location, location_of
from a2a_trust.client.memory import Admission, CardTable
from a2a_trust.errors import CardMemoryUnavailableError, ConfigurationError, PinnedKeyError, RolledBackCardError
from tests.client.test_memory import AGENT, ALICE, BOB, CARD, NOW, proof, thumbprint
from tests.databases import SECONDS, PostgresServer, eventually, installed, line, temporary_folder

pytestmark = pytest.mark.anyio

KEY = thumbprint(ALICE)
OTHER_HOST = "https://other.example.com"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def memory(postgres_url: str) -> PostgresCardMemory:
    return PostgresCardMemory(postgres_url, timeout=SECONDS)


def name_of(url: str) -> str:
    """The name of the database."""
    return url.rpartition("/")[2]


_STARTED: list[subprocess.Popen[str]] = []


@pytest.fixture(autouse=True)
def no_process_outlives_its_test() -> Iterator[None]:
    yield
    while _STARTED:
        with _STARTED.pop() as process:
            process.kill()


def start(url: str, body: str, timeout: float = 20) -> subprocess.Popen[str]:
    """Another process, with the memory as ``memory``; its warnings are errors."""
    program = (
        "import os, sys, threading, time\nfrom a2a_trust.client import PostgresCardMemory\n"
        f"memory = PostgresCardMemory(sys.argv[1], timeout={timeout})\n{body}"
    )
    process = subprocess.Popen([sys.executable, "-X", "dev", "-c", program, url], stdout=subprocess.PIPE, text=True)
    _STARTED.append(process)
    return process


@contextmanager
def inside(url: str, timeout: float) -> Iterator[subprocess.Popen[str]]:
    """Another process that has removed the agent, and has not committed that."""
    body = (
        "from a2a_trust.client.location import Location\n"
        "with memory._writing() as table:\n"
        f"    table.remove(Location({AGENT!r}))\n"
        "    print('inside', flush=True)\n"
        "    time.sleep(60)\n"
    )
    process = start(url, body, timeout)
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == "inside\n"
        try:
            yield process
        finally:
            process.kill()
            process.wait()


# --- several at once


@pytest.mark.real
def test_processes_that_write_at_once_lose_nothing(postgres_url: str) -> None:
    processes = [
        start(
            postgres_url,
            f"for n in range(20): memory.accept(f'https://one.example/{number}/{{n}}', [{KEY!r}], now=1.0)",
        )
        for number in range(3)
    ]
    for process in processes:
        process.communicate(timeout=60)
        assert process.returncode == 0
    assert len(PostgresCardMemory(postgres_url, timeout=60).records()) == 60


@pytest.mark.real
def test_of_two_hosts_that_name_one_interface_at_once_the_second_is_checked_against_the_first(
    postgres: PostgresServer,
    memory: PostgresCardMemory,
) -> None:
    """Their cards are at other hosts than the interface, so neither host alone is what both wait for."""
    hosts = ("cards.example.com", "copies.example.com")
    newer, older = (replace(proof(ALICE, iat=NOW - age), origin=host) for age, host in zip((0, 10), hosts, strict=True))
    ours = f"SELECT pid FROM pg_stat_activity WHERE datname = '{name_of(memory._database.url.text)}'"
    waiting = f"SELECT 1 / count(*) FROM pg_locks WHERE NOT granted AND pid IN ({ours})"
    with ThreadPoolExecutor(1) as thread:
        with memory._writing() as table:
            location = location_of(f"https://{hosts[0]}")
            table.put(Admission(table, newer, location, now=NOW, hint=memory._hint).decide().remembered)
            second = thread.submit(memory.admit, older, f"https://{hosts[1]}", now=NOW)
            eventually(lambda: postgres.sql(waiting))
        with pytest.raises(RolledBackCardError, match=hosts[0]):
            second.result()
    assert [each.location.host for each in memory.records()] == [hosts[0]]


@pytest.mark.real
def test_a_process_that_dies_while_it_writes_leaves_all_as_it_was(memory: PostgresCardMemory) -> None:
    before = memory.accept(AGENT, [KEY], now=NOW)
    with inside(memory._database.url.text, SECONDS) as process:
        process.send_signal(signal.SIGKILL)
        process.wait(SECONDS)
        assert memory.admit(proof(ALICE), AGENT, now=NOW).before == before
    assert len(memory.records()) == 1


@pytest.mark.real
def test_a_process_that_is_stopped_while_it_writes_holds_up_its_host_only_and_not_for_long(
    memory: PostgresCardMemory,
) -> None:
    url = memory._database.url.text
    before = memory.accept(AGENT, [KEY], now=NOW)
    hasty, patient = PostgresCardMemory(url), PostgresCardMemory(url, timeout=SECONDS)
    with inside(url, 2) as process:
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(CardMemoryUnavailableError, match=r"no answer within 0\.25 seconds"):
            hasty.admit(proof(ALICE), AGENT, now=NOW)
        assert patient.expects_signature(AGENT)  # a reader goes on, and sees what is committed
        patient.accept(OTHER_HOST, [KEY], now=NOW)  # so does another host
        assert memory.admit(proof(ALICE), AGENT, now=NOW).before == before  # after the server has ended the other
    assert {record.location for record in memory.records()} == {AGENT, OTHER_HOST}


@pytest.mark.real
def test_who_is_slower_than_the_limit_writes_nothing(postgres_url: str) -> None:
    memory, patient = PostgresCardMemory(postgres_url, timeout=0.2), PostgresCardMemory(postgres_url, timeout=SECONDS)
    record = patient.accept(OTHER_HOST, [KEY], now=NOW)
    eventually(memory.records)  # on a connection that is made

    def slow(then: Callable[[CardTable], object]) -> None:
        with memory._writing() as table:
            table.put(replace(record, location=location_of(AGENT)))
            time.sleep(0.3)
            then(table)

    for then in (lambda table: table.get(location_of(AGENT)), lambda _: None):
        with pytest.raises(CardMemoryUnavailableError, match=r"no answer within 0\.2 seconds"):
            slow(then)
    assert [record.location for record in memory.records()] == [OTHER_HOST]


@pytest.mark.real
def test_many_threads_share_few_connections(memory: PostgresCardMemory) -> None:
    def work(number: int) -> None:
        for turn in range(5):
            memory.accept(f"https://host-{number % 3}.example/{number}/{turn}", [KEY], now=NOW)
            assert memory.expects_signature(f"https://host-{number % 3}.example/{number}/{turn}")

    with ThreadPoolExecutor(40) as threads:
        list(threads.map(work, range(40)))
    assert len(memory.records()) == 200


@pytest.mark.real
def test_after_a_fork_parent_and_children_have_connections_of_their_own(memory: PostgresCardMemory) -> None:
    body = f"""
def work(who):
    for turn in range(30):
        memory.accept(f"https://{{who}}.example/{{turn}}", [{KEY!r}], now=1.0)
        assert memory.expects_signature(f"https://{{who}}.example/{{turn}}")
    assert len([each for each in memory.records() if each.location.host == f"{{who}}.example"]) == 30

import warnings
warnings.simplefilter("ignore", DeprecationWarning)  # of a fork in a program with threads, from Python 3.12 on
memory.records()  # connect now: a thread that connects during a fork leaves a lock of OpenSSL held in the child
busy = threading.Thread(target=work, args=["thread"])
busy.start()
children = []
for number in range(3):
    child = os.fork()
    if not child:
        try:
            work(f"child-{{number}}")
        except BaseException as error:
            print(repr(error), flush=True)
            os._exit(1)
        os._exit(0)
    children.append(child)
work("parent")
busy.join()
print([os.waitpid(child, 0)[1] for child in children])
"""
    process = start(memory._database.url.text, body)
    assert process.communicate(timeout=60)[0] == "[0, 0, 0]\n"
    assert process.returncode == 0
    assert len(memory.records()) == 150


@pytest.mark.real
async def test_it_works_beside_a_running_event_loop(memory: PostgresCardMemory) -> None:
    first = proof(ALICE, on_first_use=True)
    outcomes = await asyncio.gather(*[asyncio.to_thread(memory.admit, first, AGENT, now=NOW) for _ in range(20)])
    assert [each.before for each in outcomes].count(None) == 1
    assert memory.admit(first, AGENT, now=NOW).before is not None  # also in the thread of the loop


# --- the server is lost


@pytest.mark.real
def test_a_server_that_dies_in_a_transaction_has_written_nothing_and_is_found_again(
    postgres: PostgresServer,
    postgres_url: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    memory = PostgresCardMemory(postgres_url, timeout=SECONDS)
    memory.accept(OTHER_HOST, [KEY], now=NOW)
    record = memory.records()[0]

    def die() -> None:
        with memory._writing() as table:
            table.put(replace(record, location=location_of(AGENT)))
            postgres.kill()

    try:
        with pytest.raises(CardMemoryUnavailableError) as caught:
            die()
        assert str(caught.value).startswith(f"the memory of cards in {postgres_url} cannot be used now: ")
        for use in (
            lambda: memory.admit(proof(BOB, on_first_use=True), AGENT, now=NOW),
            lambda: memory.expects_signature(AGENT),
            memory.records,
            lambda: memory.accept(AGENT, [KEY], now=NOW),
            lambda: memory.forget(OTHER_HOST),
        ):
            with pytest.raises(CardMemoryUnavailableError):
                use()
    finally:
        if postgres.process is None:
            postgres.start()
    eventually(memory.records)
    assert memory.records() == (record,)
    events = [(each.audit["event"], each.audit["detail"]) for each in caplog.records if hasattr(each, "audit")]
    assert [event for event, _ in events][-2:] == ["store-lost", "store-found"]
    assert postgres_url in events[-2][1]


@pytest.mark.real
def test_a_server_that_is_frozen_is_an_error_in_time_and_is_found_again(
    postgres: PostgresServer,
    postgres_url: str,
) -> None:
    memory, patient = PostgresCardMemory(postgres_url), PostgresCardMemory(postgres_url, timeout=SECONDS)
    eventually(lambda: memory.accept(AGENT, [KEY], now=NOW))
    with postgres.frozen():
        for use in (
            lambda: memory.admit(proof(BOB, on_first_use=True), AGENT, now=NOW),  # on a connection from before
            lambda: memory.admit(proof(BOB, on_first_use=True), AGENT, now=NOW),  # which makes a new one
            lambda: memory.expects_signature(AGENT),
            memory.records,
        ):
            with pytest.raises(CardMemoryUnavailableError, match=r"no answer within 0\.25 seconds"):
                use()
    eventually(memory.records)
    assert patient.expects_signature(AGENT)
    with pytest.raises(PinnedKeyError):
        patient.admit(proof(BOB, on_first_use=True), AGENT, now=NOW)


@pytest.mark.real
@pytest.mark.parametrize("at", ["query", "commit"])
def test_a_server_that_freezes_in_a_transaction_is_an_error_in_time(
    postgres: PostgresServer,
    postgres_url: str,
    at: str,
) -> None:
    memory, patient = PostgresCardMemory(postgres_url), PostgresCardMemory(postgres_url, timeout=SECONDS)
    eventually(lambda: memory.accept(AGENT, [KEY], now=NOW))

    def freeze() -> None:
        with memory._writing() as table:
            table.remove(Location(AGENT))
            postgres.signal(signal.SIGSTOP)
            if at == "query":
                table.get(Location(AGENT))

    try:
        with pytest.raises(CardMemoryUnavailableError):
            freeze()
    finally:
        postgres.signal(signal.SIGCONT)
    eventually(lambda: memory.accept(OTHER_HOST, [KEY], now=NOW))
    if at == "query":
        assert patient.expects_signature(AGENT)


@pytest.mark.real
def test_a_line_that_is_cut_or_silent_is_an_error_and_no_new_first_use(
    postgres: PostgresServer,
    postgres_url: str,
) -> None:
    with line(postgres.port) as between:
        memory = PostgresCardMemory(postgres_url.replace(str(postgres.port), str(between.port)))
        eventually(lambda: memory.accept(AGENT, [KEY], now=NOW))

        def cut() -> None:
            with memory._writing() as table:
                between.cut()
                table.remove(Location(AGENT))

        with pytest.raises(CardMemoryUnavailableError):
            cut()
        eventually(memory.records)
        between.is_dead = True
        for _ in range(2):
            with pytest.raises(CardMemoryUnavailableError, match="no answer"):
                memory.admit(proof(BOB, on_first_use=True), AGENT, now=NOW)
        between.is_dead = False
        eventually(memory.records)
        with pytest.raises(PinnedKeyError):
            PostgresCardMemory(postgres_url, timeout=SECONDS).admit(proof(BOB, on_first_use=True), AGENT, now=NOW)


@pytest.mark.real
def test_a_standby_is_not_asked_and_is_found_when_it_is_promoted() -> None:
    with temporary_folder() as one, temporary_folder() as two:
        primary, standby = PostgresServer(one), PostgresServer(two)
        try:
            primary.make()
            primary.start()
            name = name_of(primary.database())
            copy = installed("pg_basebackup", "postgresql", *map(str, Path("/usr/lib/postgresql").glob("*/bin")))
            command = [copy, "-d", primary.url(), "-D", str(standby.data), "-R", "-c", "fast"]
            subprocess.run(command, check=True, cwd=two, **standby._as_owner())
            standby.start()
            places = f"127.0.0.1:{standby.port},127.0.0.1:{primary.port}"
            memory = PostgresCardMemory(f"postgresql://postgres@{places}/{name}", timeout=SECONDS)
            record = memory.accept(AGENT, [KEY], now=NOW)
            with pytest.raises(CardMemoryUnavailableError, match="no server in the URL is the primary"):
                PostgresCardMemory(standby.url(name), timeout=SECONDS).expects_signature(AGENT)
            eventually(lambda: standby.sql("SELECT 1 / count(*) FROM a2a_trust.card", name))
            primary.kill()
            with pytest.raises(CardMemoryUnavailableError):
                memory.records()
            standby.sql("SELECT pg_promote()")
            eventually(memory.records)
            assert memory.records() == (record,)
            memory.accept(OTHER_HOST, [KEY], now=NOW)
        finally:
            primary.kill()
            standby.kill()


@pytest.mark.real
def test_a_refusal_is_no_loss_of_the_database(memory: PostgresCardMemory, caplog: pytest.LogCaptureFixture) -> None:
    memory.accept(AGENT, [KEY], now=NOW)
    caplog.set_level(logging.DEBUG)
    with pytest.raises(ConfigurationError, match="there is no record"):
        memory.forget(OTHER_HOST)
    with pytest.raises(PinnedKeyError):
        memory.admit(proof(BOB, on_first_use=True), AGENT, now=NOW)
    assert [each for each in caplog.records if hasattr(each, "audit")] == []


# --- the database is another one


@pytest.mark.real
def test_tables_that_are_missing_old_new_or_gone_are_an_error(
    postgres: PostgresServer,
) -> None:
    url = postgres.database(tables=False)
    memory = PostgresCardMemory(url, timeout=SECONDS)
    advice = f"run: a2a-sign database migrate {url}"
    for change in (
        "SELECT 1",
        "CREATE SCHEMA a2a_trust",
        "CREATE TABLE a2a_trust.schema_version AS SELECT 0 AS version, 0 AS works_from",
    ):
        postgres.sql(change, name_of(url))
        with pytest.raises(CardMemoryUnavailableError) as caught:
            memory.expects_signature(AGENT)
        assert advice in str(caught.value)
    postgres.sql("DROP SCHEMA a2a_trust CASCADE", name_of(url))
    migrate(url, unavailable=CardMemoryUnavailableError, timeout=SECONDS)
    assert not memory.expects_signature(AGENT)
    postgres.sql("DROP TABLE a2a_trust.card CASCADE", name_of(url))
    with pytest.raises(CardMemoryUnavailableError, match=r"card.*does not exist; run: a2a-sign database migrate"):
        memory.expects_signature(AGENT)
    postgres.sql("UPDATE a2a_trust.schema_version SET version = 1000, works_from = 1000", name_of(url))
    with pytest.raises(CardMemoryUnavailableError, match="newer release"):
        PostgresCardMemory(url, timeout=SECONDS).expects_signature(AGENT)


@pytest.mark.real
def test_a_role_without_rights_is_an_error(
    postgres: PostgresServer,
    memory: PostgresCardMemory,
    caplog: pytest.LogCaptureFixture,
) -> None:
    database = name_of(memory._database.url.text)
    role = f"reader_of_{database}"
    postgres.sql(f"CREATE ROLE {role} LOGIN", database)
    url = memory._database.url.text.replace("postgres@", f"{role}@")
    with pytest.raises(CardMemoryUnavailableError, match="permission denied for schema a2a_trust"):
        PostgresCardMemory(url, timeout=SECONDS).records()
    postgres.sql(f"GRANT USAGE ON SCHEMA a2a_trust TO {role}", database)
    tables = "a2a_trust.card, a2a_trust.card_interface"
    postgres.sql(f"GRANT SELECT ON {tables}, a2a_trust.schema_version TO {role}", database)
    reader = PostgresCardMemory(url, timeout=SECONDS)
    assert reader.records() == ()
    for _ in range(2):
        with pytest.raises(CardMemoryUnavailableError, match="permission denied for table card"):
            reader.admit(proof(ALICE), AGENT, now=NOW)
    postgres.sql(f"GRANT INSERT, UPDATE, DELETE ON {tables} TO {role}", database)
    assert reader.admit(proof(ALICE), AGENT, now=NOW).before is None  # as docs/memory.md says, this is enough
    events = [each.audit["event"] for each in caplog.records if hasattr(each, "audit")]
    assert events == ["store-lost", "store-lost", "store-found"]  # of two memories; one event for each change


@pytest.mark.real
def test_the_database_itself_refuses_what_is_no_record(
    postgres: PostgresServer,
    memory: PostgresCardMemory,
) -> None:
    memory.accept(AGENT, [KEY], now=NOW)
    for change in (
        "thumbprints = ''",
        f"thumbprints = '{KEY},{KEY}'",
        f"thumbprints = '{KEY[:-1]}'",
        f"thumbprints = '{KEY[:-1]}ä'",
        "version = '7'",
        "version = 'null'",
        "first_seen = NULL",
        "on_first_use = NULL",
        "host = ''",
        "location = ''",
    ):
        with pytest.raises(asyncpg.IntegrityConstraintViolationError):
            postgres.sql(f"UPDATE a2a_trust.card SET {change}", name_of(memory._database.url.text))
    for change in (f"digest = '{KEY[:-1]}'", f"digest = '{KEY[:-1]}+'", f"location = '{OTHER_HOST}'"):
        memory.admit(proof(ALICE, on_first_use=True), AGENT, now=NOW)
        with pytest.raises(asyncpg.IntegrityConstraintViolationError):
            postgres.sql(f"UPDATE a2a_trust.card_interface SET {change}", name_of(memory._database.url.text))
    with pytest.raises(asyncpg.InvalidTextRepresentationError):
        postgres.sql("UPDATE a2a_trust.card SET version = 'x'", name_of(memory._database.url.text))


# --- texts of strangers


@pytest.mark.real
@pytest.mark.parametrize(
    "version",
    [
        "'; DROP TABLE a2a_trust.card; --",
        "1' OR '1'='1",
        '"; $1 $9 %s %(x)s 100% \\',
        "1\x00.2",
        "\x00" * 64,
        "\U0001f512" * 64,
        "é\u202e\n",
        "",
        "null",
        '"',
        "\ufffe\uffff",
    ],
)
def test_a_version_is_kept_as_it_is(memory: PostgresCardMemory, version: str) -> None:
    card = replace(proof(ALICE), payload=json.dumps(CARD | {"version": version}).encode())
    assert memory.admit(card, AGENT, now=NOW).remembered.version == version
    assert [record.version for record in memory.records()] == [version]
    assert memory.admit(card, AGENT, now=NOW).before == memory.records()[0]


@pytest.mark.real
@pytest.mark.parametrize(
    "path",
    [
        "/'; DROP TABLE a2a_trust.card; --",
        "/?x=';DELETE+FROM+a2a_trust.card;--",
        "/a%00b%25s$1{}%25(x)s",
        "/%27%20OR%20%271%27=%271",
        "/" + "a" * 700 + "?" + "%27" * 400,
    ],
)
def test_a_location_is_kept_as_it_is(memory: PostgresCardMemory, path: str) -> None:
    place = AGENT + quote(path, safe="%/?=;+'$(){}*")
    memory.accept(OTHER_HOST, [KEY], now=NOW)
    record = memory.accept(place, [KEY], now=NOW)
    assert record.location == location_of(place, with_query=True)
    assert memory.records() == (record, memory.accept(OTHER_HOST, [KEY], now=NOW))
    assert memory.expects_signature(record.location)
    neighbour = memory.accept(AGENT, [KEY], now=NOW)
    with memory._writing() as table:
        assert list(table.neighbours(neighbour.location)) == [record]
    memory.forget(AGENT)
    assert memory.forget(place) == record
    assert [each.location for each in memory.records()] == [OTHER_HOST]


@pytest.mark.real
def test_the_longest_location_fits_and_a_longer_one_is_refused(memory: PostgresCardMemory) -> None:
    noise = secrets.token_urlsafe(1500)  # which no index makes shorter
    place = f"{AGENT}/{noise}"[:1000] + "?" + noise[:1047]
    assert len(place) == MAX_URL
    assert memory.accept(place, [KEY], now=NOW).location == place
    assert memory.forget(place).location == place
    long = f"{AGENT}/{'<' * 600}?{noise[:800]}"  # its escapes are longer than it is
    with pytest.raises(ConfigurationError, match="location: longer than 2048 characters"):
        memory.accept(long, [KEY], now=NOW)
    assert memory.records() == ()


@pytest.mark.real
@pytest.mark.parametrize(
    "host", ["a'b.example", 'a".example', "a%.example", "a_.example;", "a\x00.example", "*.example"]
)
def test_a_host_with_such_characters_is_no_location(memory: PostgresCardMemory, host: str) -> None:
    for use in (lambda: memory.accept(f"https://{host}/", [KEY], now=NOW), lambda: memory.expects_signature(host)):
        with pytest.raises(ConfigurationError, match="location"):
            use()
    assert memory.records() == ()


@pytest.mark.real
def test_hosts_that_a_pattern_would_take_for_neighbours_are_none(memory: PostgresCardMemory) -> None:
    for host in ("a_b.example", "axb.example", "a-b.example", "sub.a_b.example"):
        memory.admit(replace(proof(ALICE, iat=NOW), origin=host), f"https://{host}/agent", now=NOW)
    with memory._writing() as table:
        assert list(table.neighbours(location_of("https://a_b.example"))) == [
            record for record in memory.records() if record.location == "https://a_b.example/agent"
        ]


# --- the way out of an error


def test_the_way_out_names_the_database_without_its_password() -> None:
    url = "postgresql://ann:hunter2@db.example:5433/cards?sslmode=verify-full&password=hunter2&options=-chunter2"
    memory = PostgresCardMemory(url)
    command = memory._hint("accept", AGENT, ["-" + "x" * 42])
    assert "hunter2" not in command + repr(memory._database.url) + memory._database.what
    assert shlex.split(command) == [
        "a2a-sign", "memory", "accept", "--file", "postgresql://ann@db.example:5433/cards?sslmode=verify-full", "--",
        AGENT, "-" + "x" * 42,
    ]  # fmt: skip
    assert shlex.split(memory._hint("forget", AGENT))[-3:] == [
        "--file", "postgresql://ann@db.example:5433/cards?sslmode=verify-full", AGENT,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "url",
    [
        "cards.db",
        "mysql://ann:hunter2@db.example/cards",
        "postgresql://ann:hunter2@db.example:x/cards",
        "postgresql://ann:12/hunter2@db.example/cards",
        "postgresql://ann:12?hunter2@db.example/cards",
        "postgresql://ann:hunter2@db.example/cards#",
        "postgresql://ann:hunter2@db.example:99999/cards",
    ],
)
def test_what_is_no_url_of_postgresql_is_refused_without_being_shown(url: str) -> None:
    with pytest.raises(ConfigurationError, match="write postgresql://USER@HOST/DATABASE") as caught:
        PostgresCardMemory(url)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("timeout", [0, -1, float("nan")])
def test_a_time_limit_is_above_nothing(timeout: float) -> None:
    with pytest.raises(ConfigurationError, match="timeout"):
        PostgresCardMemory("postgresql://127.0.0.1/cards", timeout=timeout)


def test_nothing_is_connected_before_the_first_use() -> None:
    memory = PostgresCardMemory("postgresql://127.0.0.1:1/cards")
    with pytest.raises(CardMemoryUnavailableError, match="Connect call failed"):
        memory.expects_signature(AGENT)
