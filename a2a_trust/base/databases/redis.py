"""Redis and Valkey: connections for the event loops and the threads of every process, with short time limits.

- A URL without a password takes the one in ``REDISCLI_AUTH``, as redis-cli does.
- Each new connection checks that the server evicts nothing: an evicted record would look as if it never existed.

One server, or a failover behind one address; no cluster.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final

from a2a_trust.base.cache import PerLoop
from a2a_trust.base.databases.availability import Database, DatabaseUrl, Pause
from a2a_trust.errors import ConfigurationError, KeySourceUnavailableError, TrustError

_CONNECTIONS: Final = 16
"""The most connections of one event loop."""


class RedisServer(Database):
    """A Redis server."""

    def __init__(
        self,
        url: str,
        *,
        what: str,
        unavailable: type[TrustError] = KeySourceUnavailableError,
        timeout: float,
        may_drop: bool = False,
    ) -> None:
        """``may_drop`` says that the server may forget ``what`` it holds. ConfigurationError: the URL is not one of
        Redis, or the extra is not installed.
        """
        try:
            import redis
            import redis.asyncio
        except ImportError:
            raise ConfigurationError('Redis needs redis: pip install "./a2a-trust[redis]"') from None
        super().__init__("Redis", DatabaseUrl.redis(url), what, unavailable, timeout)
        self._redis: Final = redis
        self._errors = (OSError, TimeoutError, redis.RedisError)
        self._may_drop = may_drop
        self.pause: Final = Pause()
        self._clients: PerLoop[Any] = PerLoop(self._make_client)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Any]:
        """The client of the running event loop for the block, which must end in time, too."""
        client = self._clients.get()
        with self._translate(audits=True), self.pause.attempt():
            async with asyncio.timeout(self._timeout):
                yield client

    @contextmanager
    def blocking(self) -> Iterator[Any]:
        """A client for synchronous code, for the block."""
        with self._translate(), self._redis.Redis.from_url(self.url.text, **self._options()) as client:
            if not self._may_drop:
                self.check_room(client.info("memory"))
            yield client

    @contextmanager
    def transaction(self, watched: str) -> Iterator[Any]:
        """Commands for the block. After ``multi()`` they are gathered, and carried out together at its end.

        Other transactions wait for it, up to ``timeout`` seconds. If ``watched`` was changed all the same, nothing is
        carried out, and ``unavailable`` says so.
        """
        seconds = self._timeout
        with (
            self.blocking() as client,
            client.lock(f"{watched}:lock", timeout=4 * seconds, blocking_timeout=seconds, sleep=0.01),
            client.pipeline() as pipeline,
        ):
            pipeline.watch(watched)
            yield pipeline
            try:
                pipeline.execute()
            except self._redis.WatchError:
                raise self._unavailable(
                    f"the {self.what} were changed by another program at the same moment, so nothing was changed; "
                    "run the command again"
                ) from None

    async def aclose(self) -> None:
        """Close the connections of the running event loop. The next use opens new ones."""
        client = self._clients.pop()
        if client is not None:
            with suppress(*self._errors):
                await client.aclose()

    def _make_client(self) -> Any:
        pool = self._redis.asyncio.BlockingConnectionPool.from_url(
            self.url.text,
            max_connections=_CONNECTIONS,
            timeout=self._timeout,
            redis_connect_func=self._set_up,
            **self._options(),
        )
        return self._redis.asyncio.Redis.from_pool(pool)

    def _options(self) -> dict[str, Any]:
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        given = os.environ.get("REDISCLI_AUTH")
        return {
            **({} if given is None or self.url.has_password else {"password": given}),
            "socket_timeout": self._timeout,
            "socket_connect_timeout": self._timeout,
            "retry": Retry(NoBackoff(), 0),
        }

    async def _set_up(self, connection: Any) -> None:
        """Each new connection: log in, and check the server."""
        await connection.on_connect()
        if not self._may_drop:
            await connection.send_command("INFO", "memory")
            said = await connection.read_response()
            if type(said) is not bytes:
                raise self._redis.ConnectionError("what answers is not a Redis server")
            lines = said.decode(errors="replace").split("\r\n")
            self.check_room(dict(line.partition(":")[::2] for line in lines))

    def check_room(self, said: Mapping[str, object]) -> None:
        """redis.ConnectionError if, by its INFO, the server evicts records when its memory is full.

        This setting can change while connections are open, so callers that need all records check each time.
        """
        if str(said.get("maxmemory")) != "0" and said.get("maxmemory_policy") != "noeviction":
            raise self._redis.ConnectionError(
                "the server drops records when its memory is full (maxmemory-policy is "
                f"{said.get('maxmemory_policy', 'unknown')}); set maxmemory-policy noeviction"
            )

    def check_role(self, said: Mapping[str, object]) -> None:
        """redis.ConnectionError if, by its INFO, the server is a replica, which may lack the last changes."""
        if said.get("role") != "master":
            raise self._redis.ConnectionError("it is a replica, which may lack the last changes")

    def _reason(self, error: Exception) -> str:
        if isinstance(error, TimeoutError | self._redis.TimeoutError):
            return f"no answer within {self._timeout:g} seconds"
        if isinstance(error, self._redis.exceptions.LockError):
            return f"other programs change them, for longer than {self._timeout:g} seconds; run the command again"
        for kind, why in _FAULTS.items():
            if isinstance(error, getattr(self._redis.exceptions, kind)):
                return why
        if isinstance(error, self._redis.ConnectionError):
            return str(error)
        code = _CODE.search(str(error))
        return type(error).__name__ if code is None else f"the server answered {code[1]}"


#: By classes of ``redis.exceptions``, the first that fits; their own texts may repeat arguments.
_FAULTS: Final = {
    "AuthenticationError": "the server rejects the user name or the password",
    "NoPermissionError": "the user lacks the right to a command that is needed (ACL)",
    "OutOfMemoryError": "its memory is full (maxmemory)",
    "ReadOnlyError": "it is a replica that cannot be written to",
    "BusyLoadingError": "it is still loading its data",
}
#: The first word of an answer, which in a pipeline follows the command.
_CODE: Final = re.compile(r"(?:^|caused error: )([A-Z]{2,})\b")
