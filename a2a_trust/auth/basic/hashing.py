"""Slow hashes of passwords: argon2id with the second recommended parameters of RFC 9106 (64 MiB, 3 passes, 4 lanes).

There is one set of parameters: a record with others is not read. So a hash costs the same for every user, known or
unknown, and a record cannot demand gigabytes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple

from a2a_trust.auth.peers import FairQueue, Path
from a2a_trust.errors import ConfigurationError, KeySourceUnavailableError

if TYPE_CHECKING:
    from argon2 import PasswordHasher

_FORM: Final = re.compile(r"\$argon2id\$v=19\$m=65536,t=3,p=4\$[A-Za-z0-9+/]{22}\$[A-Za-z0-9+/]{43}")
NOBODY: Final = f"$argon2id$v=19$m=65536,t=3,p=4${'A' * 22}${'A' * 43}"
"""The hash for users who do not exist: it costs the same, and no password matches it."""
_THREADS: Final = 2
_MOST_WAITING: Final = 64
"""Each hash takes 64 MiB, so two run at once. If more than 64 wait, one of the peer with the most is rejected."""

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


class _Task(NamedTuple):
    future: Future[bool]
    hashed: str
    password: str

    def __repr__(self) -> str:
        return "_Task(…)"  # tracebacks may show locals


class Hashing:
    """Verifies passwords in two threads of its own, so the event loop is not blocked. Peers take turns."""

    def __init__(self) -> None:
        self._hasher = _hasher()
        self._begin_in_this_process()

    def _begin_in_this_process(self) -> None:
        self._process = os.getpid()
        self._lock = Lock()
        self._running = 0
        self._waiting = FairQueue[_Task]()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="a2a-trust-passwords")

    async def is_right(self, hashed: str, password: str, path: Path) -> bool:
        """Whether the hash belongs to the password, which the peer with this path sent. KeySourceUnavailableError: too
        many wait, or the hash failed."""
        if self._process != os.getpid():
            self._begin_in_this_process()  # a forked child has none of its parent's threads
        task = _Task(Future(), hashed, password)
        try:
            self._begin(path, task)
            return await asyncio.wrap_future(task.future)
        finally:
            with self._lock:
                self._waiting.remove(path, task)  # if it was cancelled before it began

    def _begin(self, path: Path, task: _Task) -> None:
        dropped = None
        with self._lock:
            self._waiting.put(path, task)
            if self._running + len(self._waiting) > _THREADS + _MOST_WAITING:
                dropped = self._waiting.drop(path)
        if dropped is not None:  # the thread that was started for it takes the new task
            _end(dropped, KeySourceUnavailableError("too many passwords wait to be verified"))
            return
        try:
            self._threads.submit(self._work)
        except RuntimeError as error:  # no thread can be started, or the interpreter ends
            raise _hash_error(error) from None

    def _work(self) -> None:
        with self._lock:
            if not self._waiting:
                return
            task = self._waiting.pop()
            self._running += 1
        result: bool | BaseException
        try:
            result = self._verify(task.hashed, task.password)
        except BaseException as error:  # noqa: BLE001  the waiting request gets it
            result = error
        with self._lock:
            self._running -= 1
        _end(task, result)

    def _verify(self, hashed: str, password: str) -> bool:
        from argon2.exceptions import VerifyMismatchError

        try:
            return bool(self._hasher.verify(hashed, password))
        except VerifyMismatchError:
            return False
        except Exception as error:  # noqa: BLE001  there is no memory for it
            raise _hash_error(error) from None


def _end(task: _Task, result: bool | BaseException) -> None:
    if not task.future.set_running_or_notify_cancel():
        return
    if isinstance(result, bool):
        task.future.set_result(result)
    else:
        task.future.set_exception(result)


def _hash_error(error: Exception) -> KeySourceUnavailableError:
    _log.warning("a password could not be verified: %s", type(error).__name__)
    return KeySourceUnavailableError("a password could not be verified")
