"""Headers that keep caches from giving one caller's answer to another caller.

Caches protect answers to requests with ``Authorization`` by themselves (RFC 9111 3.5). They do not recognize a key in
another header, in a cookie or in the query, or a client certificate.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from typing import Any, Final

from a2a_trust.auth.credentials import Extractor, HttpAuthorization
from a2a_trust.middleware.documents import Send

_CACHE_CONTROL: Final = len("cache-control")
_VARY: Final = len("vary")


class CachingRules:
    """Adds caching headers to answers, for requests that may carry credentials in ``places``.

    ``Cache-Control: private``, unless the application sets that header, and ``Vary`` with the headers of credentials,
    in addition to the application's. Source: RFC 9110 12.5.5, RFC 9111 4.1, 5.2.2.7.
    """

    def __init__(self, places: Iterable[Extractor]) -> None:
        places = [place for place in places if not isinstance(place, HttpAuthorization)]
        self._is_needed = bool(places)
        self._vary = sorted({place.header for place in places if place.header is not None})
        self._both = [(b"cache-control", b"private"), *([(b"vary", b", ".join(self._vary))] if self._vary else [])]

    def applied(self, send: Send) -> Send:
        """``send``, with these headers in the answer; ``send`` itself where they are not needed."""
        if not self._is_needed:
            return send

        async def sent(message: MutableMapping[str, Any]) -> None:
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                message = {**message, "headers": self._headers([*message.get("headers", ())])}
            await send(message)

        return sent

    def _headers(self, headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        lengths = [len(name) for name, _ in headers]
        if _CACHE_CONTROL not in lengths and _VARY not in lengths:  # as in most answers
            headers += self._both
            return headers
        if not any(name.lower() == b"cache-control" for name, _ in headers):
            headers.append((b"cache-control", b"private"))
        lists = b",".join(value for name, value in headers if name.lower() == b"vary")
        named = {word.strip().lower() for word in lists.split(b",")}
        missing = [] if b"*" in named else [name for name in self._vary if name not in named]
        if missing:
            headers.append((b"vary", b", ".join(missing)))
        return headers
