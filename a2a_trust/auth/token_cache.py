"""Valid answers about opaque tokens in Redis or Valkey, so that all replicas ask the issuer once for a token.

The rules:

1. An answer is sealed (``keys.sealed``) for its token and for the configuration of the verifier that asked. To read or
   make one takes the secret of the replicas: access to the server alone reveals no claim and makes no identity.
2. The key of an answer is a digest. No token is in its name or its value.
3. An answer has the time of the introspection request. A reader accepts it for as long as an answer of its own, by its
   own clock. An answer from more than ten seconds ahead is a miss.
4. The reader applies its own rules to the answer, as if the issuer had just given it.
5. A server that cannot be used, a value that does not open, and an answer that is too large are misses: the issuer is
   asked. The server may drop answers.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import struct
from asyncio import Task
from collections.abc import Mapping
from contextlib import suppress
from contextvars import Context
from typing import Any, Final, NamedTuple

from a2a_trust.base import strict_json
from a2a_trust.base.cache import LookUps
from a2a_trust.base.databases.availability import REQUEST_SECONDS, Pooled
from a2a_trust.base.databases.redis import RedisServer
from a2a_trust.base.strict_json import JSONObject
from a2a_trust.errors import ConfigurationError, KeySourceUnavailableError, MalformedError
from a2a_trust.keys.sealed import MIN_SECRET, Seal

SKEW: Final = 10.0
"""By how many seconds the clocks of replicas may differ."""

_log: Final = logging.getLogger(__name__)

_VERSION: Final = b"1"
_PREFIX: Final = b"a2a:token:" + _VERSION + b":"
_LARGEST: Final = 65_536
"""The largest sealed answer, in bytes: no more is ever read from the server."""
_ROUND_TRIP_SECONDS: Final = 0.2
"""Shorter than a request waits, so a request makes no second round trip after one that failed."""
_TIME: Final = struct.Struct(">d")


class SharedAnswer(NamedTuple):
    """The issuer's answer about a token, and the time of the request, in seconds since the epoch."""

    asked: float
    answer: JSONObject


def slot_of(configuration: bytes, token: bytes) -> bytes:
    """The key of the answer about a token, for verifiers of one configuration; both are SHA-256 digests."""
    return _PREFIX + hashlib.sha256(configuration + token).digest()


class RedisTokenCache(Pooled[RedisServer]):
    """Shares valid answers about opaque tokens: ``IntrospectionVerifier(…, shared=RedisTokenCache(url, secret=…))``.

    A request waits for the server for a quarter of a second at most, and after a failure one request per second tries
    it again. Several verifiers may have the same cache.
    """

    def __init__(self, url: str, *, secret: bytes) -> None:
        """``url``: ``rediss://HOST:6379/0``, or ``redis://…`` without TLS. ``secret``: at least 32 random bytes, the
        same for all replicas of an agent; it must not be on the server. ConfigurationError: an argument is wrong.
        """
        if type(secret) is not bytes or len(secret) < MIN_SECRET:
            raise ConfigurationError(
                f"RedisTokenCache: the secret must be {MIN_SECRET} bytes or more; make one with "
                "secrets.token_bytes(32), and give the same one to all replicas of the agent"
            )
        self._server = RedisServer(url, what="cache of opaque tokens", timeout=_ROUND_TRIP_SECONDS, may_drop=True)
        self._seal = Seal(secret, b"a2a_trust introspection " + _VERSION)
        self._look_ups = LookUps(self._round_trip)
        self._removing = set[Task[None]]()
        self._is_logged = False

    async def aclose(self) -> None:
        loop = asyncio.get_running_loop()
        removing = [task for task in self._removing if task.get_loop() is loop]
        if removing:
            await asyncio.wait(removing)
        await super().aclose()

    async def find(self, slot: bytes, *, first: bool) -> SharedAnswer | None:
        """The answer in the slot; None if there is none, or the server cannot be used. ``first`` as in ``LookUps``."""
        if not self._server.pause.may_try():
            return None
        found = await self._look_ups.find_within(REQUEST_SECONDS, [slot], first=first)
        return self._open(slot, found[slot]) if found else None

    async def keep(self, slot: bytes, shared: SharedAnswer, seconds: float) -> None:
        """Keep the answer for so many seconds, if the server can."""
        value = _TIME.pack(shared.asked) + json.dumps(shared.answer, separators=(",", ":")).encode()
        sealed = self._seal.seal(value, slot)
        milliseconds = int(seconds * 1000)
        if len(sealed) > _LARGEST or milliseconds < 1 or not self._server.pause.may_try():
            return
        with suppress(KeySourceUnavailableError):
            async with self._server.session() as client:
                await client.set(slot, sealed, px=milliseconds)

    def forget(self, slot: bytes) -> None:
        """Remove the answer, if the server can: in the background of the event loop, or while the caller waits."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            with suppress(KeySourceUnavailableError), self._server.blocking() as client:
                client.delete(slot)
            return
        task = loop.create_task(self._remove(slot), context=Context())
        self._removing.add(task)
        task.add_done_callback(self._removing.discard)

    async def _remove(self, slot: bytes) -> None:
        with suppress(KeySourceUnavailableError):
            async with self._server.session() as client:
                await client.delete(slot)

    async def _round_trip(self, slots: tuple[bytes, ...]) -> Mapping[bytes, bytes]:
        async with self._server.session() as client, client.pipeline(transaction=False) as pipeline:
            for slot in slots:
                pipeline.getrange(slot, 0, _LARGEST - 1)
            values = await pipeline.execute()
        return {slot: value for slot, value in zip(slots, values, strict=True) if value}

    def _open(self, slot: bytes, sealed: Any) -> SharedAnswer | None:
        value = self._seal.open(sealed, slot) if type(sealed) is bytes else None
        if value is None:
            if not self._is_logged:
                self._is_logged = True
                _log.warning(
                    "the %s has a value that was not sealed with this secret, so the issuer is asked; give all "
                    "replicas the same secret, or find out who else writes to that server",
                    self._server.what,
                )
            return None
        try:
            answer = strict_json.parse(value[_TIME.size :], what="answer")
        except MalformedError:
            return None
        return SharedAnswer(_TIME.unpack_from(value)[0], answer) if type(answer) is dict else None
