"""A key store on a disk that is full, mounted read-only, or not ours to write: who could come in still can."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from a2a_trust import Origins, TrustedKey, TrustStore, generate_signer, sign_card, verify_card
from a2a_trust.auth.api_key.verifier import ApiKeyVerifier
from a2a_trust.auth.record_table import SqliteApiKeys
from a2a_trust.client.memory_store import SqliteCardMemory
from a2a_trust.errors import CardMemoryUnavailableError, InvalidCredentialsError, KeySourceUnavailableError
from tests.auth.api_key.test_verifier import NOW, Clock, background
from tests.cli.conftest import COMMAND
from tests.faults.folders import TMPFS, small_disk
from tests.faults.processes import started
from tests.faults.stores import hot_journal

#: A server of another user, who may read the store and write nothing: what the keys on standard input prove.
SERVER = """
import asyncio, concurrent.futures.thread, os, sys, time
from a2a_trust import ApiKeyVerifier, SqliteApiKeys, TrustError
os.setgroups([]); os.setgid(65534); os.setuid(65534)
async def serve():
    verifier = ApiKeyVerifier(SqliteApiKeys(sys.argv[1]), refresh=0.05, stale_if_error=0.1)
    for line in sys.stdin:
        await asyncio.sleep(0.2)
        try:
            print((await verifier.verify(line.strip(), time.time())).subject, flush=True)
        except TrustError as error:
            print(error.code, flush=True)
asyncio.run(serve())
"""


@contextmanager
def stranger(path: Path) -> Iterator[subprocess.Popen[str]]:
    """A running ``SERVER``."""
    command = [sys.executable, "-c", SERVER, str(path)]
    pipe = subprocess.PIPE
    with started(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as server:
        yield server


def asked(server: subprocess.Popen[str], key: str) -> str:
    """What the server makes of the key."""
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(f"{key}\n")
    server.stdin.flush()
    return server.stdout.readline().strip()


AS_ROOT = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0,
    reason="*** NOT TESTED: only root can become another user ***",
)


@TMPFS
def test_on_a_full_disk_keys_are_read_and_changes_say_why_they_failed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def served() -> None:
        with small_disk(tmp_path / "disk", "128k") as disk:
            path = disk.path / "keys.db"
            store, clock = SqliteApiKeys(path, create=True), Clock()
            issued, later = store.create(owner="alice"), store.create(owner="bob")
            disk.fill()
            verifier = ApiKeyVerifier(SqliteApiKeys(path), refresh=2.0, clock=clock)
            for _ in range(20):  # far beyond the time that an outage would be survived
                assert (await verifier.verify(issued.text, NOW)).subject == "alice"
                await background(verifier)
                clock.at += 10
            assert (await verifier.verify(later.text, NOW)).subject == "bob"  # its first use
            await background(verifier)
            with pytest.raises(KeySourceUnavailableError, match=r"keys\.db: database or disk is full"):
                store.revoke(issued.record.key_id)
            done = subprocess.run(
                [COMMAND, "api-key", "create", "--store", path, "--owner", "carol"],
                capture_output=True,
                text=True,
                check=False,
            )
            assert (done.returncode, done.stdout) == (6, "")
            assert f"{path}: database or disk is full" in done.stderr
            assert {file.name for file in disk.path.iterdir()} == {"keys.db", "filler"}
            disk.empty()
            store.revoke(issued.record.key_id)
            clock.at += 2
            with pytest.raises(InvalidCredentialsError, match="revoked"):
                await verifier.verify(issued.text, NOW)

    asyncio.run(served())
    told = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(told) == len(set(told)) == 1
    assert "last use of API keys could not be written" in told[0]


@TMPFS
def test_on_a_read_only_mount_keys_are_read_and_a_revocation_made_elsewhere_is_seen(tmp_path: Path) -> None:
    """As with a volume that the server has read-only and the operator's pod does not."""
    with small_disk(tmp_path / "disk", "256k") as disk:
        store = SqliteApiKeys(disk.path / "keys.db", create=True)
        issued, later = store.create(owner="alice"), store.create(owner="bob")
        mounted = tmp_path / "mounted"
        mounted.mkdir()
        subprocess.run(["mount", "--bind", disk.path, mounted], check=True)
        try:
            subprocess.run(["mount", "-o", "remount,bind,ro", mounted], check=True)
            with pytest.raises(OSError, match="Read-only"):
                (mounted / "file").touch()

            async def served() -> None:
                clock = Clock()
                verifier = ApiKeyVerifier(SqliteApiKeys(mounted / "keys.db"), refresh=2.0, clock=clock)
                assert (await verifier.verify(issued.text, NOW)).subject == "alice"
                await asyncio.to_thread(store.revoke, issued.record.key_id)
                new = await asyncio.to_thread(store.create, owner="carol")
                clock.at += 2
                with pytest.raises(InvalidCredentialsError, match="revoked"):
                    await verifier.verify(issued.text, NOW)
                for key, owner in ((later, "bob"), (new, "carol")):
                    assert (await verifier.verify(key.text, NOW)).subject == owner
                await background(verifier)

            asyncio.run(served())
        finally:
            subprocess.run(["umount", "--lazy", mounted], check=True)
        assert [file.name for file in disk.path.iterdir()] == ["keys.db"]


@TMPFS
def test_on_a_disk_that_becomes_read_only_everybody_goes_on(tmp_path: Path) -> None:
    """The server holds nothing open for writing, so the disk can be made read-only under it."""

    async def served() -> None:
        with small_disk(tmp_path / "disk") as disk:
            path, clock = disk.path / "keys.db", Clock()
            store = SqliteApiKeys(path, create=True)
            issued, later = store.create(owner="alice"), store.create(owner="bob")
            verifier = ApiKeyVerifier(store, refresh=2.0, clock=clock)
            assert (await verifier.verify(issued.text, NOW)).subject == "alice"
            await background(verifier)
            with disk.read_only():
                for _ in range(10):
                    clock.at += 10
                    assert (await verifier.verify(issued.text, NOW)).subject == "alice"
                assert (await verifier.verify(later.text, NOW)).subject == "bob"
                assert (await ApiKeyVerifier(SqliteApiKeys(path)).verify(later.text, NOW)).subject == "bob"
                await background(verifier)
                with pytest.raises(KeySourceUnavailableError, match="readonly"):
                    store.revoke(issued.record.key_id)

    asyncio.run(served())


@AS_ROOT
def test_a_server_that_may_only_read_sees_changes_and_waits_for_what_a_kill_left() -> None:
    """A hot journal can be undone only by somebody who may write: until then the server cannot tell, and says so."""
    with tempfile.TemporaryDirectory() as folder:  # not pytest's: other users may not enter that
        Path(folder).chmod(0o755)
        _served_to_a_stranger(Path(folder, "keys.db"))


def _served_to_a_stranger(path: Path) -> None:
    store = SqliteApiKeys(path, create=True)
    path.chmod(0o644)
    issued, later = store.create(owner="alice"), store.create(owner="bob")
    with stranger(path) as server:
        assert asked(server, issued.text) == "alice"
        store.revoke(issued.record.key_id)
        assert asked(server, issued.text) == "invalid-credentials"
        assert asked(server, later.text) == "bob"
        journal = hot_journal(path)
        assert asked(server, later.text) == "key-source-unavailable"
        assert journal.exists()
        subprocess.run([COMMAND, "api-key", "list", "--store", path, "--json"], capture_output=True, check=True)
        assert asked(server, later.text).rstrip("x") == "bob"
        server.kill()
        _, said = server.communicate()
    assert "run any command of a2a-sign on the file as a user who may write" in said
    assert [file.name for file in path.parent.iterdir()] == ["keys.db"]


@TMPFS
def test_a_memory_of_cards_is_read_on_a_read_only_mount_and_admits_no_card(tmp_path: Path) -> None:
    url, signer = "https://agent.example.com", generate_signer()
    interface = {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    signed = sign_card({"name": "Agent", "supportedInterfaces": [interface]}, signer).card
    key = TrustedKey(key=signer.public_key, origins=Origins("agent.example.com"))
    verified = verify_card(signed, TrustStore([key]), origin=url)
    with small_disk(tmp_path / "disk") as disk:
        memory = SqliteCardMemory(disk.path / "cards.db", create=True)
        memory.admit(verified, url)
        with disk.read_only():
            with pytest.raises(CardMemoryUnavailableError, match="readonly"):
                memory.admit(verified, url)  # a known agent, and nothing has changed
            assert SqliteCardMemory(disk.path / "cards.db").expects_signature("https://agent.example.com")
            with pytest.raises(CardMemoryUnavailableError, match="readonly"):
                memory.accept("https://other.example.com", ["A" * 43], now=NOW)
        assert [file.name for file in disk.path.iterdir()] == ["cards.db"]


@TMPFS
def test_a_store_that_does_not_fit_on_the_disk_is_not_made_and_the_error_names_it(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        disk.fill()
        path = disk.path / "keys.db"
        with pytest.raises(KeySourceUnavailableError, match=r"keys\.db: ") as caught:
            SqliteApiKeys(path, create=True)
        assert f".{path.name}" not in str(caught.value)
        assert [file.name for file in disk.path.iterdir()] == ["filler"]
