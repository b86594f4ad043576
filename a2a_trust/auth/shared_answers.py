"""Answers of introspection endpoints in Redis or Valkey, so that replicas ask about a token once.

Only positive answers are shared, and for as long as one process remembers them. Every replica applies all of its rules
to an answer from here, as if the endpoint had just given it. Values are sealed: a stranger in Redis can neither forge
an identity nor read claims, and a value of another token, agent or issuer does not open.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from typing import Any, Final

from a2a_trust import strict_json
from a2a_trust.cache import SingleFlight
from a2a_trust.databases.availability import REQUEST_SECONDS
from a2a_trust.databases.redis import RedisServer
from a2a_trust.errors import KeySourceUnavailableError, MalformedError
from a2a_trust.keys.sealed import Sealer
from a2a_trust.strict_json import JSONObject

__all__ = ["RedisAnswers"]

_PAUSE: Final = 1.0
"""So many seconds after a failed trip Redis is left alone: not every request waits for it."""


class RedisAnswers:
    """Answers about tokens: ``IntrospectionVerifier(…, shared=RedisAnswers("rediss://HOST:6379/0", secret=…))``.

    While Redis is down, each replica asks for itself.
    """

    def __init__(self, url: str, *, secret: bytes, timeout: float = REQUEST_SECONDS) -> None:
        """``url``: ``rediss://HOST:6379/0``, or ``redis://…`` without TLS. ``secret``: at least 32 random bytes, the
        same in all replicas. ``timeout``: the longest, in seconds, that a trip to the server takes; a request makes
        two at most, one to ask and one to share. ConfigurationError: an argument is wrong.
        """
        self._sealer = Sealer(secret, what="RedisAnswers")
        self._server = RedisServer(
            url,
            what="answers about tokens",
            unavailable=KeySourceUnavailableError,
            timeout=timeout,
            may_drop=True,
        )
        self._removing = SingleFlight[bytes, None]()
        self._retry_at = -math.inf

    async def get(self, token: bytes, rules: str) -> tuple[JSONObject, float] | None:
        """The answer about the token with this digest, and when it was given; None without one.

        ``rules`` are those of the verifier that decide what an answer means.
        """
        context = _context(token, rules)
        sealed = await self._trip("get", self._name(context))
        if sealed is None:
            return None
        try:
            value = strict_json.parse(self._sealer.open(sealed, context), what="answer")
        except MalformedError:
            return None
        return value["answer"], value["at"]

    async def put(self, token: bytes, rules: str, answer: JSONObject, *, at: float, seconds: float) -> None:
        """Share an answer that was given at ``at``, for so many seconds."""
        context = _context(token, rules)
        sealed = self._sealer.seal(json.dumps({"answer": answer, "at": at}).encode(), context)
        await self._trip("set", self._name(context), sealed, px=max(1, int(seconds * 1000)))

    def forget(self, token: bytes, rules: str) -> None:
        """Remove an answer, in the background."""
        name = self._name(_context(token, rules))
        self._removing.begin(name, lambda: self._trip("delete", name))

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        await self._server.aclose()

    async def _trip(self, command: str, *arguments: Any, **options: Any) -> Any:
        """The result of a command; None while Redis is down."""
        if time.monotonic() < self._retry_at:
            return None
        try:
            async with self._server.session() as client:
                return await getattr(client, command)(*arguments, **options)
        except KeySourceUnavailableError:
            self._retry_at = time.monotonic() + _PAUSE
            return None

    def _name(self, context: bytes) -> bytes:
        return b"a2a:token:" + self._sealer.name(context)


def _context(token: bytes, rules: str) -> bytes:
    return hashlib.sha256(rules.encode()).digest() + token
