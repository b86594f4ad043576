"""For clients with httpx: sends the credentials that a verified card demands, only to the agent of that card.

::

    auth = CardAuth(verified, {"key": ApiKey("…", origins=["https://agent.example.com"])}, trust=trust)
    httpx.AsyncClient(auth=auth)

The rules:

1. Credentials are sent with requests to the URLs that the card names. Other requests are sent without credentials. An
   ambiguous URL is an error. So is plain http to another machine; ``verifying_client`` permits that within a service
   mesh, because its transport checks the addresses.
2. ``answer`` chooses the credentials. If they satisfy no alternative, the request is not sent.
3. httpx, its log and its redirects never see a credential: ``attachment``.
4. A request is sent once more in these cases: after a 401, if there is another token, key or file to try; after
   ``insufficient_scope``, with the scopes that the agent asks for, if the verified card names them and
   ``allowed_scopes`` has them; with a DPoP nonce, if the agent asks for one.
5. A request whose body is a stream is never sent twice. An answer after a redirect is passed on.
6. A 401 that remains is a ``CredentialsRejectedError``.
7. The card is verified again when the trusted keys change, when its signatures or keys expire, and every 5 minutes,
   because key sets of others change, too. If it is no longer verified, the request is not sent.
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeAlias

import httpx

from a2a_trust.auth.credentials import InCookie, InHeader, InQuery
from a2a_trust.cache import BoundedCache
from a2a_trust.card.view import read_card
from a2a_trust.client.answer import (
    Answer,
    Part,
    answer_for,
    check_credentials,
    demands_of,
    scopes_named,
    words_for,
)
from a2a_trust.client.attachment import Attachment, attach, detach, sent_to
from a2a_trust.client.certificates import OwnCertificate
from a2a_trust.client.credentials import Credential, CredentialValue
from a2a_trust.client.destinations import Destination, Destinations
from a2a_trust.client.dpop import ath_of
from a2a_trust.client.flow import Flow, run, run_async
from a2a_trust.client.rejection import CredentialsRejectedError, Dropped, Rejection
from a2a_trust.client.verification import VERIFY_AGAIN_SECONDS, Verification
from a2a_trust.errors import CardVerificationError, ConfigurationError, MalformedError, TrustError
from a2a_trust.keys.trust import TrustSource, TrustStore
from a2a_trust.net.urls import NO_MESH, HttpWithin
from a2a_trust.signing.verify import VerifiedCard

_COOKIE_VALUE: Final = re.compile(r"[!#-+\--:<-\[\]-~]+")  # RFC 6265 4.1.1
_MAX_URLS: Final = 256
_MAX_SHOWN: Final = 300
_NO_SCOPES: Final[frozenset[str]] = frozenset()


class CredentialsError(TrustError, httpx.RequestError):
    """A request was not sent: no credential fits, or cannot be obtained, or the card is not verified any more.

    ``__cause__`` says why.
    """

    code = "credentials"


_MoreScopes: TypeAlias = Mapping[str, frozenset[str]]


class _Sent:
    """The credentials of requests to one origin, for as long as their values are valid.

    ``more_scopes`` are scopes beyond those that the card demands, by the names of schemes.
    """

    def __init__(self, answer: Answer, values: list[CredentialValue], more_scopes: _MoreScopes) -> None:
        self.answer: Final[Answer] = answer
        self.values: Final[list[CredentialValue]] = values
        self.more_scopes: Final[_MoreScopes] = more_scopes
        self._is_for_one_request = any(part.credential.depends_on_request for part in answer.parts)
        self.has_proofs: Final[bool] = any(value.proofs is not None for value in values)
        self.made: Attachment | None = None
        """The same for every request; None before the first one, and where each needs its own proofs."""

    def serves_further(self, now: float) -> bool:
        return not self._is_for_one_request and all(now < value.until for value in self.values)

    def attachment(self, request: httpx.Request, origin: str) -> Attachment:
        attachment = _attachment_of(request, self.answer, self.values, origin)
        if not self.has_proofs:
            self.made = attachment
        return attachment

    def learn(self, response: httpx.Response, origin: str) -> None:
        """Remember the nonce for the next proof."""
        for value in self.values:
            if value.proofs is not None:
                value.proofs.learn(origin, response.headers.get_list("DPoP-Nonce"))


class CardDemands:
    """The demands of a verified card, and the credentials that are sent for them."""

    def __init__(
        self,
        card: VerifiedCard,
        url: str,
        credentials: Mapping[str, Credential | OwnCertificate],
        skills: tuple[str, ...],
        mesh: HttpWithin,
    ) -> None:
        self._card = card
        #: The trusted keys that verified the card last, and from when until when it counts. It is replaced.
        self._verified: tuple[TrustStore | None, float, float] = None, 0.0, 0.0
        self._view = read_card(card.card)
        self._demands = demands_of(self._view, skills)
        self._credentials = credentials
        self._is_whole = not card.unverified
        self._mesh = mesh
        self._destinations = Destinations.of(card, url, mesh)
        #: The origin of a URL, "" for one that the card does not name.
        self._origins = BoundedCache[tuple[str, bytes, int | None, bytes], str](max_entries=_MAX_URLS)
        self._answers: dict[str, Answer] = {}
        #: Origin -> the credentials of the last request.
        self.sent: dict[str, _Sent] = {}
        #: Scopes beyond those that the card demands, for further requests. It is replaced and never changed.
        self.more_scopes: _MoreScopes = {}

    def counts(self, verification: Verification) -> bool:
        """Whether the card is verified now, without verifying it again."""
        store, since, until = self._verified
        return since <= verification.clock() < until and verification.trust.trust_store() is store

    def is_verified(self, card: VerifiedCard, store: TrustStore, now: float) -> None:
        """The card was verified by these trusted keys."""
        self._verified = store, now, min(card.valid_until, now + VERIFY_AGAIN_SECONDS)

    def verify_again(self, verification: Verification) -> Flow[CardVerificationError | None]:
        """Verify the card again; returns why it is not verified any more."""
        now = verification.clock()
        try:
            card, store = yield from verification.verify_again(self._card)
        except CardVerificationError as error:
            return error.with_traceback(None)
        self.is_verified(card, store, now)
        return None

    def origin(self, request: httpx.Request) -> str:
        """The origin that the request goes to; "" for a URL that the card does not name."""
        url = request.url
        key = url.scheme, url.raw_host, url.port, url.raw_path
        known = self._origins.entry(key)
        if known is not None and "target" not in request.extensions:
            return known[0]
        called = Destination.of(sent_to(request), self._mesh)
        origin = called.origin if self._destinations.cover(called) else ""
        self._origins.put(key, origin)
        return origin

    def answer(self, origin: str) -> Answer:
        answer = self._answers.get(origin)
        if answer is None:
            answer = self._answers[origin] = answer_for(
                self._view, self._demands, self._credentials, origin, is_whole=self._is_whole
            )
        return answer

    def ask_further_for(self, sent: _Sent) -> None:
        """Ask for the scopes of that request from now on, except where the next request may be for another caller."""
        if sent.more_scopes is not self.more_scopes:
            names = [part.name for part in sent.answer.parts if not part.credential.depends_on_request]
            kept = {name: sent.more_scopes[name] for name in names if name in sent.more_scopes}
            self.more_scopes = _united(self.more_scopes, kept)

    def scopes_named(self, name: str) -> frozenset[str]:
        return scopes_named(self._view, name)

    def demand(self) -> str:
        """The demands of the card, in words."""
        alternatives = [
            " and ".join(words_for(name, self._view.schemes.get(name), scopes) for name, scopes in each.schemes[:2])
            for each in self._demands[:2]
        ]
        return ", or ".join(alternatives)[:_MAX_SHOWN]


class _Again(Enum):
    """Why a request is sent once more."""

    WITH_NONCE = "with nonce"
    WITH_OTHER_VALUES = "with other values"
    WITH_MORE_SCOPES = "with more scopes"


def _attachment_of(request: httpx.Request, answer: Answer, values: list[CredentialValue], origin: str) -> Attachment:
    """The credentials of a request to that origin. MalformedError: a key cannot stand in a cookie."""
    pairs = [*zip(answer.parts, values, strict=True)]
    headers: list[tuple[bytes, bytes]] = []
    for part, value in pairs:
        if part.place is None:  # first these, before another secret is a local: a signer in a cloud may fail
            headers += _authorization(request, part, value, origin)
    cookies: list[tuple[str, str]] = []
    parameters: list[tuple[str, str]] = []
    for part, value in pairs:
        match part.place:
            case InHeader():
                headers.append((part.place.name.lower().encode(), value.text.encode()))
            case InQuery():
                parameters.append((part.place.name, value.text))
            case InCookie():
                if not _COOKIE_VALUE.fullmatch(value.text):
                    raise MalformedError(
                        f"credentials[{part.name[:80]!a}]: the key has characters that a cookie must not have"
                    )
                cookies.append((part.place.name, value.text))
    return Attachment(tuple(headers), tuple(cookies), tuple(parameters))


def _authorization(
    request: httpx.Request, part: Part, value: CredentialValue, origin: str
) -> list[tuple[bytes, bytes]]:
    if value.proofs is None:
        return [(b"authorization", f"{part.word} {value.text}".encode())]
    path = request.url.raw_path.partition(b"?")[0].decode("ascii")
    proof = value.proofs.proof(request.method, origin, path, ath_of(value.text))
    return [(b"authorization", f"DPoP {value.text}".encode()), (b"dpop", proof.encode())]


def _not_obtained(request: httpx.Request, error: TrustError) -> CredentialsError:
    return CredentialsError(f"no credential for the request: {error}", request=request)


def _skill_ids(skills: Iterable[str]) -> tuple[str, ...]:
    if isinstance(skills, str):
        raise ConfigurationError(f"skills: write a list, even of one: [{skills[:80]!r}]")
    return tuple(dict.fromkeys(skills))


@dataclass(frozen=True, slots=True)
class ReadBody:
    """Asks the driver to read the body of an answer."""

    response: httpx.Response


Step: TypeAlias = httpx.Request | ReadBody | Flow[Any]
"""A request of an exchange to its driver: to send a request, to read its answer, or to run a flow."""


class CardAuth(httpx.Auth):
    """Sends the credentials that ``card`` demands, for ``httpx.Client(auth=…)`` and ``httpx.AsyncClient(auth=…)``.

    - ``credentials``: by the names of the card's schemes. A certificate for mutual TLS is ``CertificateFiles`` or
      ``CertificateInMemory``; give it to the client's transport, too: ``VerifyingTransport(mutual_tls=…)``.
    - ``trust``: the trusted keys, as for ``fetch_card``. Each request asks whether they still verify the card.
    - ``skills``: the ids of the skills that the requests are for, if the card demands more for them.
    - ``clock``: gives seconds since the epoch.

    Threads and tasks may share one. Requests fail with ``CredentialsError`` if no credential fits, and with
    ``CredentialsRejectedError`` if the agent rejects the credentials. ConfigurationError: an argument is wrong, or the
    card does not have a skill. Source: A2A 1.0.1 4.5, 7.3; RFC 6750 3, RFC 9449 7.
    """

    def __init__(
        self,
        card: VerifiedCard,
        credentials: Mapping[str, Credential | OwnCertificate],
        *,
        trust: TrustSource,
        skills: Iterable[str] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not isinstance(card, VerifiedCard):
            raise ConfigurationError("card: it is not a VerifiedCard; write CardAuth(fetch_card(url, trust), …)")
        self._setup(credentials, skills, Verification(trust=trust, clock=clock), NO_MESH)
        self._known: CardDemands | None = self._answered(card, "")

    def _setup(
        self,
        credentials: Mapping[str, Credential | OwnCertificate],
        skills: Iterable[str],
        verification: Verification,
        mesh: HttpWithin,
    ) -> None:
        check_credentials(credentials, mesh)
        self._mesh = mesh
        self._credentials, self._skills, self._verification = dict(credentials), _skill_ids(skills), verification

    def sync_auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        exchange = self._exchange(request)
        answer: Any = None
        try:
            while True:
                step = exchange.send(answer)
                if isinstance(step, httpx.Request):
                    answer = yield step
                else:
                    answer = step.response.read() if isinstance(step, ReadBody) else run(step)
        except StopIteration:
            return
        except (ConfigurationError, CredentialsError, CredentialsRejectedError):
            raise
        except TrustError as error:
            raise _not_obtained(request, error) from error.with_traceback(None)
        finally:  # now: a traceback that somebody keeps would keep it open
            exchange.close()

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        exchange = self._exchange(request)
        answer: Any = None
        try:
            while True:
                step = exchange.send(answer)
                if isinstance(step, httpx.Request):
                    answer = yield step
                else:
                    answer = await (step.response.aread() if isinstance(step, ReadBody) else run_async(step))
        except StopIteration:
            return
        except (ConfigurationError, CredentialsError, CredentialsRejectedError):
            raise
        except TrustError as error:
            raise _not_obtained(request, error) from error.with_traceback(None)
        finally:  # now: a traceback that somebody keeps would keep it open
            exchange.close()

    def _answered(self, card: VerifiedCard, url: str) -> CardDemands:
        return CardDemands(card, url, self._credentials, self._skills, self._mesh)

    def _rejected(self) -> None:
        """The agent rejected what its card demands."""

    def _card(self, request: httpx.Request) -> Generator[Step, Any, CardDemands | None]:
        """The card for a request, if it has to be verified again; None for a request without credentials."""
        error = None if self._known is None else (yield self._known.verify_again(self._verification))
        if error is not None:
            raise CredentialsError(
                "the request is not sent, because the card is not verified any more; call fetch_card again, and make a "
                f"new CardAuth: {error}",
                request=request,
            ) from error
        return self._known

    def _exchange(self, request: httpx.Request) -> Generator[Step, Any, None]:
        """The one flow of both clients."""
        known = self._known
        if known is None or not known.counts(self._verification):
            known = yield from self._card(request)
        origin = "" if known is None else known.origin(request)
        if known is None or not origin:
            response = yield request
            if response.status_code == 401:
                self._rejected()  # the agent may have moved, and a newer card may name this URL
            return
        sent = known.sent.get(origin)
        if sent is None or not sent.serves_further(self._verification.clock()):
            sent = known.sent[origin] = yield from _values(known.answer(origin), known.more_scopes)
        tried: set[_Again] = set()
        while True:
            attach(request, sent.made or sent.attachment(request, origin))
            try:
                response = yield request
            finally:
                detach(request)
            if response.request is not request:  # the answer is from the target of a redirect
                return
            if sent.has_proofs:
                sent.learn(response, origin)
            if response.status_code not in (401, 403):
                return
            again = yield from self._once_more(known, origin, sent, response, tried)
            if again is None:
                return
            sent = again
            response.stream = Dropped(response.stream)

    def _once_more(
        self, known: CardDemands, origin: str, sent: _Sent, response: httpx.Response, tried: set[_Again]
    ) -> Generator[Step, Any, _Sent | None]:
        """The credentials for sending the request once more; None: the answer is passed on.

        CredentialsRejectedError: the agent rejects the credentials, and there are no others.
        """
        rejection = Rejection(sent.answer, sent.values, response, demand=known.demand, scopes_named=known.scopes_named)
        again, more_scopes = self._again(rejection, sent.more_scopes, tried)
        if again is None:
            if not rejection.is_of_credentials:
                return None
            self._rejected()
            raise rejection.error()
        tried.add(again)
        if again is not _Again.WITH_NONCE:
            sent = known.sent[origin] = yield from _values(sent.answer, more_scopes)
            known.ask_further_for(sent)
        rejection.check_replayable(response.request)
        if again is _Again.WITH_OTHER_VALUES and rejection.is_same(sent.values):
            self._rejected()
            raise rejection.error()
        return sent

    def _again(
        self, rejection: Rejection, more_scopes: _MoreScopes, tried: set[_Again]
    ) -> tuple[_Again | None, _MoreScopes]:
        """Why to send the request once more, and with which scopes; None: it is not sent once more."""
        if rejection.status == 401:
            if _Again.WITH_NONCE not in tried and rejection.wants_nonce:
                return _Again.WITH_NONCE, more_scopes
            if _Again.WITH_OTHER_VALUES not in tried and rejection.renew():
                return _Again.WITH_OTHER_VALUES, more_scopes
        elif _Again.WITH_MORE_SCOPES not in tried and rejection.is_for_scopes:
            more = rejection.more_scopes(more_scopes)
            if more:
                return _Again.WITH_MORE_SCOPES, _united(more_scopes, more)
        return None, more_scopes

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"


def _united(some: _MoreScopes, others: _MoreScopes) -> _MoreScopes:
    return {name: some.get(name, _NO_SCOPES) | others.get(name, _NO_SCOPES) for name in {**some, **others}}


def _values(answer: Answer, more_scopes: _MoreScopes) -> Generator[Step, Any, _Sent]:
    """Obtain the values of an answer."""
    values: list[CredentialValue] = []
    for part in answer.parts:
        scopes = part.scopes | more_scopes.get(part.name, _NO_SCOPES)
        values.append((yield part.credential.obtain(scopes)))
    return _Sent(answer, values, more_scopes)
