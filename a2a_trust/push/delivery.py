"""Delivers push notifications: a transport that reaches only checked addresses, and an ``Auth`` that signs.

A caller chooses the URL of a webhook. So each delivery resolves its name again and connects to a checked address
(``base.net.fetcher``): https only, no redirects, no proxies, 5 seconds in all, and 2.5 at most to connect. An answer is
its status; up to 64 kB of it are read and dropped. A slow host holds only its own deliveries up.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Generator
from threading import BoundedSemaphore
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

from a2a_trust.base import strict_json
from a2a_trust.base.net.fetcher import OWN_HEADERS, Fetcher, SystemResolver, check_fetcher
from a2a_trust.errors import ConfigurationError, FetchError
from a2a_trust.push.token import HEADER, push_token, task_of

if TYPE_CHECKING:
    from a2a_trust.middleware.card import SignerSource

TOKEN_HEADER: Final = "X-A2A-Notification-Token"  # noqa: S105  the name of a header
_AT_ONCE: Final = 100
_AT_ONCE_TO_HOST: Final = 4
_SECONDS: Final = 5.0


class Delivering:
    """Sends each request with a ``Fetcher``; the answer has no headers and no body.

    ``fetcher`` may name the private origins of your own webhooks. A caller can then have notifications sent to these
    origins, so do not pass one that also fetches keys or cards. FetchError: a request cannot be delivered.
    """

    _response: type[Any]

    def __init__(self, fetcher: Fetcher | None = None) -> None:
        check_fetcher(fetcher)
        resolver = SystemResolver(BoundedSemaphore(_AT_ONCE))  # names that never answer delay no other part
        self._fetcher = Fetcher(resolver=resolver) if fetcher is None else fetcher
        self._slots = asyncio.Semaphore(_AT_ONCE)
        #: By host; they are gone when no delivery to the host runs or waits.
        self._of_host = WeakValueDictionary[str, asyncio.Semaphore]()

    async def handle_async_request(self, request: Any) -> Any:
        body: bytes = await request.aread()
        headers = {name: value for name, value in request.headers.items() if name not in OWN_HEADERS}
        of_host = self._of_host.setdefault(request.url.host, asyncio.Semaphore(_AT_ONCE_TO_HOST))
        headers["Content-Type"] = request.headers.get("content-type", "application/json")
        try:
            # The slot of the host first, so that one host cannot wait in all slots.
            async with asyncio.timeout(_SECONDS), of_host, self._slots:
                answer = await self._fetcher.exchange(
                    request.method, str(request.url), configured=True, headers=headers, content=body
                )
        except TimeoutError:
            raise FetchError(f"{request.url.host}: too many push notifications wait for it") from None
        return self._response(answer.status, request=request)


class Signing:
    """Signs push notifications, for the ``AsyncClient`` of the SDK's sender.

    - ``keys``: the key ring that signs the card, such as ``KeyRingFile``.
    - ``issuer``: the agent's URL, on the host of its card.
    - ``configs``: the store of the SDK with the registrations. The request does not show what the client asked for, so
      its registration is found here, by task, URL and token.

    Credentials of a registration are sent as the client registered them (A2A 1.0.1 4.3.3), by every version of the SDK.
    FetchError: no registration is found, or two that differ, so nothing is sent.
    """

    def __init__(
        self, keys: SignerSource, *, issuer: str, configs: Any, clock: Callable[[], float] = time.time
    ) -> None:
        if not callable(getattr(keys, "signer", None)) or not callable(getattr(configs, "get_info", None)):
            raise ConfigurationError("SignedPush: write SignedPush(KeyRingFile(path), issuer=url, configs=store)")
        self._keys, self._issuer, self._clock = keys, issuer, clock
        self._find = getattr(configs, "get_info_for_dispatch", configs.get_info)  # from 1.1 on, of all owners

    def sync_auth_flow(self, request: Any) -> Generator[Any, Any, None]:  # noqa: ARG002
        raise ConfigurationError("SignedPush: it is for AsyncClient")

    async def async_auth_flow(self, request: Any) -> AsyncGenerator[Any, Any]:
        body: bytes = await request.aread()
        task = task_of(strict_json.parse(body, what="push notification"))
        url, scheme, credentials = await self._registration(task, request)
        now = self._clock()
        token = push_token(self._keys.signer(now), issuer=self._issuer, url=url, task=task, body=body, now=now)
        if scheme.lower() == "bearer" and not credentials:
            request.headers["Authorization"] = f"{scheme} {token}"
        else:
            request.headers[HEADER] = token
            if scheme and credentials:
                request.headers["Authorization"] = f"{scheme} {credentials}"
        yield request

    async def _registration(self, task: str, request: Any) -> tuple[str, str, str]:
        """URL, scheme and credentials as the client registered them; "" for what it left out."""
        token = request.headers.get(TOKEN_HEADER, "")
        found = {
            (each.url, *_authentication(each))
            for each in await self._find(task) or ()
            if (each.token or "") == token and _is_at(each.url, request.url)
        }
        if len(found) != 1:
            text = f"{request.url.host}: {len(found)} different registrations are for this push notification, not one"
            raise FetchError(f"{text}; pass configs= the store of the sender")
        return found.pop()


def _authentication(config: Any) -> tuple[str, str]:
    """Scheme and credentials: 0.2 and 0.3 have a list of schemes, 1.0 has one."""
    given = config.authentication
    schemes = [*getattr(given, "schemes", ()), getattr(given, "scheme", "")]
    bearer = (each for each in schemes if each.lower() == "bearer")
    return next(bearer, schemes[0]), getattr(given, "credentials", "") or ""


def _is_at(registered: str, url: Any) -> bool:
    """Whether the library reads the registered URL as this one, which it has normalized."""
    try:
        return bool(type(url)(registered) == url)
    except Exception:  # noqa: BLE001  of the library: the URL of another registration is invalid
        return False
