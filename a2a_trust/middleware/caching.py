"""Headers that keep caches from giving one caller's answer to another caller.

Caches protect answers to requests with ``Authorization`` by themselves (RFC 9111 3.5). They do not recognize a key in
another header, in a cookie or in the query, or a client certificate.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, MutableMapping
from typing import Any, Final

from a2a_trust.auth.credentials import Extractor, HttpAuthorization
from a2a_trust.middleware.documents import Send

_LENGTHS: Final = (len("cache-control"), len("vary"))


class CachingRules:
    """Adds caching headers to answers, for requests that may carry credentials in ``places``.

    ``Cache-Control: private``, unless the application sets that header, and ``Vary`` with the headers of credentials,
    in addition to the application's. Source: RFC 9110 12.5.5, RFC 9111 4.1, 5.2.2.7.
    """

    def __init__(self, places: Iterable[Extractor]) -> None:
        places = [place for place in places if not isinstance(place, HttpAuthorization)]
        self._vary = sorted({place.header for place in places if place.header is not None})
        self._both = [(b"cache-control", b"private"), *([(b"vary", b", ".join(self._vary))] if self._vary else [])]
        self._lengths = _LENGTHS if places else None

    def apply(self, send: Send, nonce: str | None = None) -> Send:
        """``send``, with these headers in the answer; ``send`` itself where they are not needed.

        ``nonce`` is for the caller's next proof, in the answer, too (RFC 9449 8.2).
        """
        if self._lengths is None and nonce is None:
            return send

        def sent(message: MutableMapping[str, Any]) -> Awaitable[None]:
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                headers = [*message.get("headers", ())]
                if self._lengths is not None:
                    for name, _ in headers:
                        if len(name) in self._lengths:
                            self._add_missing(headers)
                            break
                    else:  # as in most answers
                        headers += self._both
                if nonce is not None:
                    headers.append((b"dpop-nonce", nonce.encode("ascii")))
                message = {**message, "headers": headers}
            return send(message)

        return sent

    def _add_missing(self, headers: list[tuple[bytes, bytes]]) -> None:
        if not any(name.lower() == b"cache-control" for name, _ in headers):
            headers.append((b"cache-control", b"private"))
        lists = b",".join(value for name, value in headers if name.lower() == b"vary")
        named = {word.strip().lower() for word in lists.split(b",")}
        missing = [] if b"*" in named else [name for name in self._vary if name not in named]
        if missing:
            headers.append((b"vary", b", ".join(missing)))
