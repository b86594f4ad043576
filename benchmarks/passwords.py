"""HTTP Basic: what a request pays whose password is remembered, and one whose password is hashed."""

from __future__ import annotations

import itertools
import time
from base64 import b64encode
from collections.abc import Iterator

from a2a_trust.auth.basic.hashing import NOBODY, hashing
from a2a_trust.auth.basic.records import MemoryPasswords
from a2a_trust.auth.basic.verifier import BasicVerifier
from a2a_trust.errors import InvalidCredentialsError
from benchmarks.rounds import Contender, Row, Timer, repeated
from benchmarks.setting import Setting
from benchmarks.tokens import awaited

__all__ = ["rows"]


def rows(setting: Setting) -> Iterator[Row]:
    """A user name and a password to an identity."""
    store = MemoryPasswords()
    issued = store.create(user="ann")
    yield Row(
        title="password of HTTP Basic",
        baseline="argon2id alone (argon2-cffi, RFC 9106 low memory)",
        contenders=(
            Contender(
                name="argon2id alone (argon2-cffi, RFC 9106 low memory)", timer=_bare(issued.record.hash, issued.text)
            ),
            Contender(name="a2a_trust, remembered", timer=_remembered(store, issued.text), at_most=50e-6),
            Contender(name="a2a_trust, wrong, hashed", timer=_rejected(store, "ann")),
            Contender(name="a2a_trust, unknown user, hashed", timer=_rejected(store, "nobody")),
        ),
        rounds=setting.rounds(15),
    )


def _bare(hashed: str, password: str) -> Timer:
    hasher = hashing()._hasher
    assert hashed.split("$")[3] == NOBODY.split("$")[3]
    return repeated(lambda: hasher.verify(hashed, password))


def _remembered(store: MemoryPasswords, password: str) -> Timer:
    verifier, now = BasicVerifier(store), time.time()
    credential = b64encode(f"ann:{password}".encode()).decode()
    return awaited(lambda: verifier.verify(credential, now))


def _rejected(store: MemoryPasswords, user: str) -> Timer:
    verifier, now, numbers = BasicVerifier(store), time.time(), itertools.count()

    async def attempt() -> None:
        try:
            await verifier.verify(b64encode(f"{user}:wrong {next(numbers)}".encode()).decode(), now)
        except InvalidCredentialsError:
            return
        raise AssertionError("a wrong password was accepted")

    return awaited(attempt)
