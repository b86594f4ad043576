"""Hashes of passwords that take microseconds: real argon2id with the least memory and work, written as ours are."""

from __future__ import annotations

import os
from functools import cache

import pytest
from argon2 import PasswordHasher
from argon2.exceptions import VerifyMismatchError

from a2a_trust.auth.basic import hashing

__all__ = ["CheapHasher", "cheap_hashes"]

_CHEAP = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
_REAL = PasswordHasher()
_PARAMETERS = ("m=8,t=1,p=1", "m=65536,t=3,p=4")
_SALT = b"cheap!"


class CheapHasher:
    """Its hashes are read by it only; one that the real parameters made costs as much as ever, once."""

    def hash(self, password: str) -> str:
        return _CHEAP.hash(password, salt=_SALT + os.urandom(10)).replace(*_PARAMETERS)

    def verify(self, hashed: str, password: str) -> bool:
        if hashed == hashing.NOBODY or "$Y2hlYXAh" in hashed:
            return _CHEAP.verify(hashed.replace(*reversed(_PARAMETERS)), password)
        if not _is_right(hashed, password):
            raise VerifyMismatchError
        return True


@cache
def _is_right(hashed: str, password: str) -> bool:
    try:
        return _REAL.verify(hashed, password)
    except VerifyMismatchError:
        return False


@pytest.fixture
def cheap_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passwords that this process makes and verifies have cheap hashes."""
    monkeypatch.setattr(hashing, "_hasher", CheapHasher)
    monkeypatch.setattr(hashing.hashing(), "_hasher", CheapHasher())
