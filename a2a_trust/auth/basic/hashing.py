"""Slow hashes of passwords: argon2id with the second recommended parameters of RFC 9106 (64 MiB, 3 passes, 4 lanes).

There is one set of parameters: a record with others is not read. So the hash of every user costs the same, also that of
a user who does not exist, and a record cannot demand gigabytes. A release with stronger parameters will name both sets,
and ``rotate`` makes records of the stronger one; servers only read their stores, so no login rewrites a record.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Final

from a2a_trust.errors import ConfigurationError, KeySourceUnavailableError

if TYPE_CHECKING:
    from argon2 import PasswordHasher

__all__ = ["NOBODY", "Hashing", "hash_of", "hashing", "is_hash"]

_FORM: Final = re.compile(r"\$argon2id\$v=19\$m=65536,t=3,p=4\$[A-Za-z0-9+/]{22}\$[A-Za-z0-9+/]{43}")

NOBODY: Final = f"$argon2id$v=19$m=65536,t=3,p=4${'A' * 22}${'A' * 43}"
"""Stands in for users who do not exist: it costs the same, and no password matches it."""

_THREADS: Final = 2
_MOST_WAITING: Final = 64
"""Each hash takes 64 MiB, so two run at once. When 64 wait, some seconds of work, others are rejected."""

_log = logging.getLogger("a2a_trust")


def is_hash(text: str) -> bool:
    """Whether this is an encoded hash with these parameters."""
    return _FORM.fullmatch(text) is not None


def hash_of(password: str) -> str:
    """The hash of a new password, with a salt of its own. It takes a tenth of a second or two."""
    return str(_hasher().hash(password))


def _hasher() -> PasswordHasher:
    try:
        from argon2 import PasswordHasher
        from argon2.profiles import RFC_9106_LOW_MEMORY
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f'the hashes of passwords need {error.name}: pip install "./a2a-trust[server,basic]"'
        ) from None
    return PasswordHasher.from_parameters(RFC_9106_LOW_MEMORY)


@cache
def hashing() -> Hashing:
    """The threads of this process, which all verifiers share."""
    return Hashing()


class Hashing:
    """Verifies passwords in two threads of its own; the event loop goes on meanwhile."""

    def __init__(self) -> None:
        self._hasher = _hasher()
        self._begin_in_this_process()

    def _begin_in_this_process(self) -> None:
        self._process = os.getpid()
        self._lock = Lock()
        self._unfinished = 0
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="a2a-trust-passwords")

    async def is_right(self, hashed: str, password: str) -> bool:
        """Whether the hash is that of the password. KeySourceUnavailableError: too many wait, or it cannot be told."""
        return await asyncio.wrap_future(self._begin(hashed, password))

    def _begin(self, hashed: str, password: str) -> Future[bool]:
        if self._process != os.getpid():
            self._begin_in_this_process()  # a forked child has none of its parent's threads
        with self._lock:
            if self._unfinished >= _THREADS + _MOST_WAITING:
                raise KeySourceUnavailableError("too many passwords wait to be verified")
            self._unfinished += 1
        try:
            future = self._threads.submit(self._verify, hashed, password)
        except RuntimeError as error:  # no thread can be started, or the interpreter ends
            self._finish(None)
            raise _not_told(error) from None
        future.add_done_callback(self._finish)  # also of one that was cancelled before it began
        return future

    def _verify(self, hashed: str, password: str) -> bool:
        from argon2.exceptions import VerifyMismatchError

        try:
            return bool(self._hasher.verify(hashed, password))
        except VerifyMismatchError:
            return False
        except Exception as error:  # noqa: BLE001  there is no memory for it
            raise _not_told(error) from None

    def _finish(self, _: object) -> None:
        with self._lock:
            self._unfinished -= 1


def _not_told(error: Exception) -> KeySourceUnavailableError:
    _log.warning("a password could not be verified: %s", type(error).__name__)
    return KeySourceUnavailableError("a password could not be verified")
