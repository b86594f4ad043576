"""Introspection requests (RFC 7662 2), and the rules while the endpoint does not answer.

The rules:

1. A request is a POST through a ``Fetcher`` to the URL that the operator wrote, authenticated as a client.
2. An answer is strict JSON: an object with ``active``. With ``signed_answers``, the server must have signed it for this
   client within the last five minutes (RFC 9701 5).
3. At most 16 requests run at once. A request ends after ten seconds, and waits for its slot for five. At most 1,000
   wait; beyond that, one of the peer with the most is rejected. The peers take turns (``peers.FairQueue``). Tokens that
   were valid before wait in a queue of their own, which gets three of four slots: invalid tokens do not keep out valid
   ones, and a caller with many tokens does not keep out new ones.
4. While the server is unreachable, or has no usable answer, no token waits for it: after each failure, requests pause
   for a second, then for two, then for five. Then one request finds out whether the server answers again. The log has
   one line for the outage and one for its end.
5. Anybody can send a token that the server fails on, or for which a firewall in front of it cuts the connection. So
   after a request without a usable answer, the server is asked about a random token. If it answers that, there is no
   outage, and only the one token cannot be verified.
6. Status 429 is not an outage. Requests pause until the time in ``Retry-After``, from one second to 60. A token in the
   last five seconds of the pause waits for a slot, so the peer that caused the 429 gets no more slots than others.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import time
from asyncio import Future, TimerHandle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol
from urllib.parse import urlencode

from a2a_trust.auth.discovery import KeySource
from a2a_trust.auth.jwt import read_token
from a2a_trust.auth.peers import FairQueue, Path
from a2a_trust.auth.token_claims import is_for
from a2a_trust.base import strict_json
from a2a_trust.base.cache import PerLoop
from a2a_trust.base.net.fetcher import Fetcher, FormAnswer
from a2a_trust.base.net.metadata import EndpointClient
from a2a_trust.base.strict_json import JSONObject
from a2a_trust.errors import ConfigurationError, FetchError, MalformedError, TrustError, UnrecognizedCredentialsError

_log: Final = logging.getLogger(__name__)

# Rule 3, for each event loop; times are in seconds.
_AT_ONCE: Final = 16
_MOST_WAITING: Final = 1_000
_WAIT: Final = 5.0
_PATIENCE: Final = 10.0  # the fetcher is stricter, a signer or a source of secrets may not be
_MAX_BACKOFF: Final = 5.0
_MIN_PAUSE: Final = 1.0
_MAX_PAUSE: Final = 60.0
_QUIET: Final = 10.0
"""Between two log lines about failures, in seconds."""

_TOO_MANY: Final = 429
_JWT: Final = "token-introspection+jwt"
_MAX_AGE: Final = 300.0
_ERRORS: Final = frozenset(
    {"invalid_client", "unauthorized_client", "invalid_request", "unsupported_token_type", "access_denied"}
)


class EndpointAuthentication(Protocol):
    """How a client authenticates: ``ClientSecret``, ``PrivateKeyJwt`` and ``TlsClientAuth`` of ``a2a_trust.client``."""

    async def authenticated(self, client: EndpointClient, url: str, form: str) -> tuple[Mapping[str, str], bytes]:
        """The headers and the form of a request to ``url`` that proves who the client is."""


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """Why there is no usable answer; ``status`` is the HTTP status, None if no answer came.

    ``is_for_one_token``: the server answers, but not for this token. ``retry_after`` is as in ``FetchError``.
    """

    reason: str
    status: int | None = None
    is_for_one_token: bool = False
    retry_after: float | None = None


class _Slots:
    """The slots of one event loop for requests, and two queues that wait for them."""

    def __init__(self) -> None:
        self._free = _AT_ONCE
        self._queues = (FairQueue[Future[None]](), FairQueue[Future[None]]())
        self._begun = 0
        #: Set after a 429.
        self.pausing: TimerHandle | None = None

    async def take(self, path: Path, *, first: bool) -> bool:
        """Whether there was a slot within five seconds for the peer with this path."""
        loop = asyncio.get_running_loop()
        if self._free and self.pausing is None:
            self._free -= 1
            return True
        if self.pausing is not None and self.pausing.when() > loop.time() + _WAIT:
            return False
        queue = self._queues[0 if first else 1]
        slot = loop.create_future()
        queue.put(path, slot)
        if len(queue) > _MOST_WAITING:
            queue.drop(path).cancel()
        try:
            await asyncio.wait([slot], timeout=_WAIT)
        finally:
            if not slot.done():
                queue.remove(path, slot)
        return slot.done() and not slot.cancelled()

    def give_back(self) -> None:
        self._free += 1
        self._begin()

    def pause(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        ends = loop.time() + seconds
        if self.pausing is not None:
            self.pausing.cancel()
            ends = max(ends, self.pausing.when())  # of an earlier answer
        self.pausing = loop.call_at(ends, self._resume)

    def _resume(self) -> None:
        self.pausing = None
        self._begin()

    def _begin(self) -> None:
        first, then = self._queues
        while (first or then) and self._free and self.pausing is None:
            self._free -= 1
            self._begun += 1
            queue = then if not first or (then and self._begun % 4 == 0) else first
            queue.pop().set_result(None)


class IntrospectionEndpoint:
    """The endpoint of one server. It is an ``EndpointClient``.

    ConfigurationError: a URL that the fetcher rejects, or an empty ``client_id``.
    """

    clock: Final[Callable[[], float]] = staticmethod(time.time)

    def __init__(
        self,
        url: str,
        *,
        issuer: str,
        client_id: str,
        authentication: EndpointAuthentication,
        fetcher: Fetcher,
        signed_answers: KeySource | None = None,
    ) -> None:
        if type(client_id) is not str or not client_id.isascii() or not client_id.isprintable() or not client_id:
            raise ConfigurationError(
                "IntrospectionVerifier: client_id is empty, or not printable ASCII; write this agent's id at the "
                "authorization server"
            )
        if isinstance(authentication, type) or not callable(getattr(authentication, "authenticated", None)):
            raise ConfigurationError(
                "IntrospectionVerifier: authentication: write ClientSecret(…), PrivateKeyJwt(signer), JwtSvid(path) or "
                "TlsClientAuth()"
            )
        try:
            fetcher.loader(url, configured=True)
        except FetchError as error:
            hint = "; pass fetcher=Fetcher(private_origins=[…])" if "private_origins" in str(error) else ""
            raise ConfigurationError(f"IntrospectionVerifier: endpoint: {error}{hint}") from None
        self._url, self._fetcher, self._keys = url, fetcher, signed_answers
        self._name = url.partition("?")[0]  # a query may hold a secret
        self.client_id: Final[str] = client_id
        self.issuer: Final[str] = issuer
        self._authentication = authentication
        self._slots = PerLoop(_Slots)
        self._failures = 0
        self._retry_at = -math.inf
        #: Rises with each outage: failures of requests that were begun before it are the same outage.
        self._outages = 0
        self._is_logged = False
        self._quiet_until = -math.inf

    def _outage(self) -> NoAnswer | None:
        """Why the endpoint must not be asked now; None if it may be."""
        if time.monotonic() < self._retry_at:
            return NoAnswer(f"{self._name}: the endpoint is unreachable, and the token is not in the cache")
        return None

    async def ask(self, token: str, now: float, path: Path, *, was_valid: bool) -> JSONObject | NoAnswer:
        """The server's answer about a token of the peer with this path. Tokens that were valid come first."""
        outage = self._outage()
        if outage is not None:
            return outage
        slots = self._slots.get()
        if not await slots.take(path, first=was_valid):
            why = "too many unknown tokens wait to be introspected"
            return NoAnswer(f"{self._name}: {'the server limits the requests (429)' if slots.pausing else why}")
        try:
            # others may have failed meanwhile
            answer = self._outage() or await self._judge(token, now)
            if isinstance(answer, NoAnswer) and answer.status == _TOO_MANY:
                slots.pause(min(max(answer.retry_after or 0.0, _MIN_PAUSE), _MAX_PAUSE))
            return answer
        finally:
            slots.give_back()

    async def _judge(self, token: str, now: float) -> JSONObject | NoAnswer:
        """The answer, and its effects on other requests (rules 4 and 5)."""
        outages = self._outages
        if self._failures:
            self._retry_at = time.monotonic() + 2 * _PATIENCE  # no other request until this one ends
        answer = await self._answer(token, now)
        if isinstance(answer, NoAnswer) and answer.status != _TOO_MANY:
            of_unknown = await self._answer(secrets.token_urlsafe(32), now)
            if not isinstance(of_unknown, NoAnswer):
                self._note_success()
                return replace(answer, is_for_one_token=True)
            answer = of_unknown
        if not isinstance(answer, NoAnswer):
            self._note_success()
            return answer
        if answer.status == _TOO_MANY:
            self._note_success()
            if time.monotonic() >= self._quiet_until:
                self._quiet_until = time.monotonic() + _QUIET
                _log.warning("%s: the server limits the requests (429), so unknown tokens wait or get 503", self._name)
        elif outages == self._outages:
            self._note_failure(answer)
        return replace(answer, reason=f"{self._name}: {answer.reason}")

    def _note_success(self) -> None:
        self._failures, self._retry_at = 0, -math.inf
        if self._is_logged:
            self._is_logged = False
            _log.info("%s: it answers again", self._name)

    def _note_failure(self, failure: NoAnswer) -> None:
        now = time.monotonic()
        if failure.status == 400:  # some servers answer so for every unknown token: not an outage
            self._failures, self._retry_at = 0, -math.inf
        else:
            self._outages += 1
            self._failures += 1
            self._retry_at = now + min(2.0 ** min(self._failures - 1, 8), _MAX_BACKOFF)
        if self._is_logged or now < self._quiet_until:
            return
        self._is_logged, self._quiet_until = True, now + _QUIET
        if failure.status in (400, 401, 403):
            _log.error(
                "%s: the server rejects the requests of the client %a, so unknown tokens get 503: %s; correct "
                "client_id and authentication, or allow that client to introspect tokens on the server",
                self._name, self.client_id, failure.reason,
            )  # fmt: skip
        else:
            _log.warning("%s: no usable answer, so unknown tokens get 503: %s", self._name, failure.reason)

    async def _answer(self, token: str, now: float) -> JSONObject | NoAnswer:
        """One request and its answer. Nothing is raised: tracebacks show locals, and these are secrets."""
        answer_type = "" if self._keys is None else f"application/{_JWT}"
        try:
            async with asyncio.timeout(_PATIENCE):
                form = urlencode({"token": token, "token_type_hint": "access_token"})
                headers, content = await self._authentication.authenticated(self, self._url, form)
                answer = await self._fetcher.post_form(self._url, content, headers=headers, answer_type=answer_type)
                return await self._read(answer, now)
        except FetchError as error:
            return NoAnswer(str(error), error.status, retry_after=error.retry_after)
        except TimeoutError:
            return NoAnswer(f"no whole answer within {_PATIENCE:g} seconds")
        except ConfigurationError as error:  # of the secret that the client authenticates with
            return NoAnswer(str(error))
        except Exception as error:  # noqa: BLE001  a source of secrets or a signer may be anybody's
            return NoAnswer(f"the request cannot be made: {type(error).__name__}")

    async def _read(self, answer: FormAnswer, now: float) -> JSONObject | NoAnswer:
        if answer.status != 200:
            return NoAnswer(f"it answers with status {answer.status}{_error_of(answer)}", answer.status)
        if self._keys is None:
            members = _object_of(answer.body)
        else:
            opened = await self._open(answer.body, self._keys, now)
            if isinstance(opened, str):
                return NoAnswer(f"the signed answer is rejected: {opened}", answer.status)
            members = opened
        if members is None or type(members.get("active")) is not bool:
            return NoAnswer("the answer is not a JSON object with the member active (RFC 7662 2.2)", answer.status)
        return members

    async def _open(self, body: bytes, keys: KeySource, now: float) -> JSONObject | str:
        """The answer in a JWT that the server signed for this client now (RFC 9701 5), or why it is rejected."""
        try:
            token = read_token(body.decode("ascii").strip())
            if token.typ != _JWT:
                return f"its typ is not {_JWT}"
            token.verify_with(await token.key_in(keys), now)
        except (UnicodeDecodeError, MalformedError, UnrecognizedCredentialsError):
            return "it is not a JWT of three parts that can be read; encrypted ones are not"
        except TrustError as error:
            return str(error).removeprefix("token: ")
        claims = _object_of(token.payload)
        if claims is None:
            return "its claims are not a JSON object"
        if claims.get("iss") != self.issuer:
            return f"its iss is not {self.issuer!a}"
        if not is_for(claims.get("aud"), frozenset({self.client_id})):
            return f"its aud does not include the client_id {self.client_id!a}"
        iat = claims.get("iat")
        if (type(iat) is not int and type(iat) is not float) or not abs(now - iat) <= _MAX_AGE:
            return f"its iat is not within {_MAX_AGE:.0f} seconds of now"
        members = claims.get("token_introspection")
        return members if type(members) is dict else "token_introspection is not a JSON object"


def _object_of(body: bytes) -> JSONObject | None:
    try:
        members = strict_json.parse(body, what="answer")
    except MalformedError:
        return None
    return members if type(members) is dict else None


def _error_of(answer: FormAnswer) -> str:
    """The error of RFC 6749 5.2; "" for every other text, which may repeat a secret."""
    error = (_object_of(answer.body) or {}).get("error")
    return f" ({error})" if type(error) is str and error in _ERRORS else ""
