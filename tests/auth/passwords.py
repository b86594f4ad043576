"""A verifier of passwords, for tests: real hashes in threads, and a memory of what was verified."""

from __future__ import annotations

import asyncio
import hashlib

from a2a_trust.auth.principal import Identity
from a2a_trust.errors import InvalidCredentialsError

__all__ = ["Passwords"]


class Passwords:
    """Verifies ``name:password``; ``hashed`` are the credentials that were hashed, in order."""

    cost = 2
    """scrypt's n: 2 takes microseconds, 16,384 about 30 ms."""

    def __init__(self, **passwords: str) -> None:
        self._hashes = {name: self._hash(f"{name}:{password}") for name, password in passwords.items()}
        self._remembered: set[str] = set()
        self.hashed: list[str] = []

    def _hash(self, text: str) -> bytes:
        return hashlib.scrypt(text.encode(), salt=b"salt", n=self.cost, r=8, p=1)

    def credential_name(self, credential: str) -> str:
        return credential.partition(":")[0]

    def is_remembered(self, credential: str, now: float) -> bool:
        return credential in self._remembered

    async def verify(self, credential: str, now: float) -> Identity:
        name = credential.partition(":")[0]
        if credential not in self._remembered:
            self.hashed.append(credential)
            if await asyncio.to_thread(self._hash, credential) != self._hashes.get(name):
                raise InvalidCredentialsError("wrong password")
            self._remembered.add(credential)
        return Identity(issuer="passwords", subject=name, scopes=frozenset({"read"}))
