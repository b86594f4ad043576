"""An HTTP client for one agent: verifies its card, sends the credentials that it demands, and sends nothing elsewhere.

::

    http = verifying_client(
        "https://agent.example.com",
        trust=TrustFile("trust.toml"),
        credentials={"key": ApiKey(SecretFile("/run/secrets/key"), origins=["https://agent.example.com"])},
    )

It is an ``httpx.AsyncClient``, for the a2a-sdk, Google's ADK, BeeAI and other libraries that accept one.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from a2a_trust.card.schema import CARD_PATHS
from a2a_trust.client.answer import check_credentials
from a2a_trust.client.card_auth import CardAuth, CardDemands, CredentialsError, ReadBody, Step
from a2a_trust.client.certificates import OwnCertificate, client_context
from a2a_trust.client.credentials import Credential
from a2a_trust.client.destinations import UnsafePassAnything
from a2a_trust.client.fetching import card_urls
from a2a_trust.client.flow import Answered, Flow
from a2a_trust.client.memory import CardMemory
from a2a_trust.client.transport import NO_CARDS, AsyncVerifyingTransport
from a2a_trust.client.verification import ANY_KEY, Verification
from a2a_trust.errors import ConfigurationError
from a2a_trust.keys.policy import Policy
from a2a_trust.keys.trust import TrustSource, TrustStore
from a2a_trust.net.urls import HttpWithin

_TIMEOUT: Final = httpx.Timeout(10.0, read=300.0)  # agents think for minutes


def verifying_client(
    url: str,
    *,
    trust: TrustSource,
    credentials: Mapping[str, Credential | OwnCertificate],
    skills: Iterable[str] = (),
    memory: CardMemory | None = None,
    policy: Policy = ANY_KEY,
    cards: Mapping[str, str] = NO_CARDS,
    also: Iterable[str] | UnsafePassAnything = (),
    http_within: Iterable[str] = (),
    authorities: Path | str | None = None,
    timeout: httpx.Timeout = _TIMEOUT,
    clock: Callable[[], float] = time.time,
) -> httpx.AsyncClient:
    """A client for the agent at that URL. Its card is fetched and verified before the first request.

    - ``url``: the URL of the agent, or of its card, which ends in ``.json``. Write the URL of the card if its server
      demands the client's certificate for it.
    - ``credentials``, ``skills``: as for ``CardAuth``. Their origins may use http within ``http_within``.
    - ``trust``, ``memory``, ``policy``, ``cards``, ``also``, ``http_within``: as for ``AsyncVerifyingTransport``.
    - ``authorities``: a file of CA certificates in PEM, for agents in a private network.
    - ``timeout``: the limit for each step of a request; by default 10 seconds, and 300 for reading an answer.

    Requests fail as for ``CardAuth`` and ``AsyncVerifyingTransport``. ConfigurationError: an argument is wrong.
    """
    mesh = HttpWithin(http_within)
    check_credentials(credentials, mesh)
    certificates = [each for each in credentials.values() if not isinstance(each, Credential)]
    if len(certificates) > 1:
        raise ConfigurationError(
            "credentials: there are several certificates, and a connection uses one; give one for all schemes"
        )
    mutual_tls = {}
    if certificates:
        certified = httpx.AsyncHTTPTransport(verify=client_context(certificates[0], authorities=authorities))
        mutual_tls = dict.fromkeys(certificates[0].origins, certified)
    places = card_urls(url)
    transport = AsyncVerifyingTransport(
        httpx.AsyncHTTPTransport(verify=ssl.create_default_context(cafile=authorities)),
        trust,
        memory=memory,
        policy=policy,
        cards=cards if len(places) > 1 else {url: url, **cards},
        also=also,
        http_within=mesh.suffixes,
        mutual_tls=mutual_tls,
        clock=clock,
    )
    verification = Verification(trust=trust, policy=policy, clock=clock)
    auth = _AgentAuth(places, verification, credentials, skills, mesh)
    return httpx.AsyncClient(transport=transport, auth=auth, timeout=timeout, trust_env=False)


class _AgentAuth(CardAuth):
    """As ``CardAuth``, for a card that the client fetches through its transport, which verifies it, too."""

    def __init__(
        self,
        places: tuple[str, ...],
        verification: Verification,
        credentials: Mapping[str, Credential | OwnCertificate],
        skills: Iterable[str],
        mesh: HttpWithin,
    ) -> None:
        self._setup(credentials, skills, verification, mesh)
        self._places = places
        self._known = None
        #: The fetch that is under way: concurrent requests share one.
        self._fetching: Future[None] | None = None

    def _card(self, request: httpx.Request) -> Generator[Step, Any, CardDemands | None]:
        if request.method == "GET" and _is_of_card(request.url, self._places):
            return None
        if self._fetching is not None:
            yield _end_of(self._fetching)
            if self._known is not None and self._known.counts(self._verification):
                return self._known
        ours = self._fetching = Future[None]()
        ours.set_running_or_notify_cancel()
        try:
            known = self._known
            if known is None or (yield known.verify_again(self._verification)) is not None:
                known = yield from self._fetched(request)  # the agent may have a newer card
            self._known = known
        finally:  # if it fails, each request that waited fetches by itself
            self._fetching = None
            ours.set_result(None)
        return known

    def _rejected(self) -> None:
        self._known = None  # the card may have changed

    def _fetched(self, request: httpx.Request) -> Generator[Step, Any, CardDemands]:
        limits = {"timeout": request.extensions["timeout"]} if "timeout" in request.extensions else {}
        status, stores = 0, list[TrustStore]()
        for place in self._places:
            response = yield httpx.Request("GET", place, headers={"Accept": "application/json"}, extensions=limits)
            yield ReadBody(response)
            if response.is_success:
                now = self._verification.clock()
                card = yield self._verification.verify(response.content, place, lambda _, store: stores.append(store))
                try:
                    known = self._answered(card, place)
                except ConfigurationError as error:  # the card may have changed since the program was written
                    raise CredentialsError(f"the request is not sent: {error}", request=request) from error
                known.is_verified(card, stores[0], now)
                return known
            status = response.status_code
            if status != 404:
                break
        raise CredentialsError(
            f"cannot fetch the card of the agent: {self._places[0]} answers with status {status}; write the URL of "
            "the agent, not the URL of an interface. If the card itself needs a credential, use "
            "fetch_card(url, trust, credentials=…) and CardAuth",
            request=request,
        )


def _end_of(fetching: Future[None]) -> Flow[None]:
    yield Answered(fetching, 0)


def _is_of_card(url: httpx.URL, places: tuple[str, ...]) -> bool:
    return url.path.endswith(CARD_PATHS) or url.path in {urlsplit(place).path for place in places}
