"""The door of a client for httpx, which ``a2a_trust.client`` exports. Its rules are in ``adapters``."""

from __future__ import annotations

from typing import Final

import httpx

from a2a_trust.client import adapters
from a2a_trust.client.library import Library
from a2a_trust.errors import TrustError


class UnverifiedCardError(TrustError, httpx.RequestError, code="unverified-card"):
    """A card is not verified, or no verified card names the URL of a request. ``__cause__`` says why."""


class CredentialsError(TrustError, httpx.RequestError, code="credentials"):
    """A request was not sent: no credential fits or can be had, or its card is not verified; ``__cause__`` says why."""


class CredentialsRejectedError(
    TrustError, adapters.RejectedByAgent, httpx.HTTPStatusError, code="credentials-rejected"
):
    """The agent rejects the credentials, as ``adapters.RejectedByAgent`` describes."""


_LIBRARY: Final = Library(httpx, UnverifiedCardError, CredentialsError, CredentialsRejectedError)


class VerifyingTransport(adapters.BlockingTransport[httpx.BaseTransport], httpx.BaseTransport):
    _library = _LIBRARY


class AsyncVerifyingTransport(adapters.AwaitingTransport[httpx.AsyncBaseTransport], httpx.AsyncBaseTransport):
    _library = _LIBRARY


class CardAuth(adapters.Authenticating, httpx.Auth):
    _library = _LIBRARY


_CLIENTS: Final = adapters.Clients[httpx.AsyncClient, httpx.Timeout](
    httpx.AsyncClient, AsyncVerifyingTransport, httpx.AsyncHTTPTransport
)
_SYNC_CLIENTS: Final = adapters.Clients[httpx.Client, httpx.Timeout](
    httpx.Client, VerifyingTransport, httpx.HTTPTransport
)
verifying_client: Final = _CLIENTS.verifying_client
verifying_clients: Final = _CLIENTS.verifying_clients
sync_verifying_client: Final = _SYNC_CLIENTS.verifying_client
sync_verifying_clients: Final = _SYNC_CLIENTS.verifying_clients
