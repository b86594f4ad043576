"""HTTP Basic, and failed credentials: what remembered, hashed, wrong and refused ones cost."""

from __future__ import annotations

import itertools
import time
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from a2a_trust.auth.api_key.verifier import ApiKeyVerifier, MemoryApiKeys
from a2a_trust.auth.basic.hashing import NOBODY, hashing
from a2a_trust.auth.basic.records import MemoryPasswords
from a2a_trust.auth.basic.verifier import BasicVerifier
from a2a_trust.auth.guard import Guard
from a2a_trust.card.view import read_card
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
    yield _failures(setting)


_CARD: Final = {
    "name": "agent",
    "securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "X-API-Key"}},
    "security": [{"key": []}],
}


def _failures(setting: Setting) -> Row:
    """The decision about a request, from its headers on; those beyond the limits are told 429."""
    issued = MemoryApiKeys().create(owner="ann")
    store = MemoryApiKeys([replace(issued.record, last_used=time.time())])  # so that no use has to be written
    guard, key = Guard(read_card(_CARD), {"key": ApiKeyVerifier(store)}), issued.text
    first = "a valid API key"
    return Row(
        title="failed credentials, counted",
        baseline=first,
        contenders=(
            Contender(name=first, timer=_decided(guard, key)),
            Contender(name="a wrong key beyond the limits", timer=_decided(guard, "wrong")),
        ),
        rounds=setting.rounds(15),
    )


def _decided(guard: Guard, key: str) -> Timer:
    now = time.time()

    async def decide() -> None:
        headers = [(b"x-api-key", key.encode())]
        await guard.authenticate({"type": "http", "headers": headers, "client": ("192.0.2.1", 5)}, now)

    return awaited(decide)


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
