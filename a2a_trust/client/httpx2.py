"""The door of a client for httpx2, with the same names as ``client.httpx``. Its rules are in ``adapters``."""

from __future__ import annotations

from typing import Final

from a2a_trust.client import adapters
from a2a_trust.client.library import Library
from a2a_trust.errors import TrustError

try:
    import httpx2
except ModuleNotFoundError as _error:
    _TEXT = f'a2a_trust.client.httpx2 needs {_error.name}: pip install "./a2a-trust[client-httpx2]"'
    raise ModuleNotFoundError(_TEXT, name=_error.name) from None


class UnverifiedCardError(TrustError, httpx2.RequestError, code="unverified-card"):
    """A card is not verified, or no verified card names the URL of a request. ``__cause__`` says why."""


class CredentialsError(TrustError, httpx2.RequestError, code="credentials"):
    """A request was not sent: no credential fits or can be had, or its card is not verified; ``__cause__`` says why."""


class CredentialsRejectedError(
    TrustError, adapters.RejectedByAgent, httpx2.HTTPStatusError, code="credentials-rejected"
):
    """The agent rejects the credentials, as ``adapters.RejectedByAgent`` describes."""


_LIBRARY: Final = Library(httpx2, UnverifiedCardError, CredentialsError, CredentialsRejectedError)


class VerifyingTransport(adapters.BlockingTransport[httpx2.BaseTransport], httpx2.BaseTransport):
    _library = _LIBRARY


class AsyncVerifyingTransport(adapters.AwaitingTransport[httpx2.AsyncBaseTransport], httpx2.AsyncBaseTransport):
    _library = _LIBRARY


class CardAuth(adapters.Authenticating, httpx2.Auth):
    _library = _LIBRARY


_CLIENTS: Final = adapters.Clients[httpx2.AsyncClient, httpx2.Timeout](
    httpx2.AsyncClient, AsyncVerifyingTransport, httpx2.AsyncHTTPTransport
)
_SYNC_CLIENTS: Final = adapters.Clients[httpx2.Client, httpx2.Timeout](
    httpx2.Client, VerifyingTransport, httpx2.HTTPTransport
)
verifying_client: Final = _CLIENTS.verifying_client
verifying_clients: Final = _CLIENTS.verifying_clients
sync_verifying_client: Final = _SYNC_CLIENTS.verifying_client
sync_verifying_clients: Final = _SYNC_CLIENTS.verifying_clients
