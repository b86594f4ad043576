"""Requests that a browser sends for a page of another site, with the credentials of whoever sits in front of it.

A browser attaches cookies, passwords (HTTP Basic) and client certificates by itself, whichever page asks for the
request. So a caller that is known by one of them has proven who it is, and not that it wants the request (cross-site
request forgery). The browser says which page asks, in headers that no page can write:

1. Each of ``Sec-Fetch-Site`` and ``Origin`` comes once at most, and the first has one of its four values.
2. ``same-origin`` and ``none`` (the user asked) pass.
3. ``same-site`` and ``cross-site`` need an ``Origin`` that is allowed.
4. Without ``Sec-Fetch-Site``, as from old browsers and over plain http, an ``Origin`` must be allowed, or the agent's
   own. Without both, the request is not from a browser, or changes nothing: browsers send ``Origin`` with every
   websocket, and with every request but GET and HEAD.

Source: Fetch Metadata Request Headers (W3C) 2.4; Fetch 3.2; RFC 6455 10.2.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from a2a_trust.auth.credentials import Extractor, HeaderLines, HttpAuthorization, InHeader, InQuery, Lines
from a2a_trust.errors import ConfigurationError, CrossSiteError, MalformedError
from a2a_trust.keys.origins import origin_of

__all__ = ["BrowserRules", "is_attached_by_browsers"]

_SITE: Final = b"sec-fetch-site"
_ORIGIN: Final = b"origin"
_SAME: Final = frozenset({b"same-origin", b"none"})
_FOREIGN: Final = frozenset({b"same-site", b"cross-site"})
_NONE: Final[Lines] = []


def is_attached_by_browsers(place: Extractor) -> bool:
    """Whether a browser may send by itself what travels there: cookies, client certificates, and passwords, which it
    sends again to where they were once accepted (RFC 7617 2.2). Keys in headers, queries that a link would have to
    hold, and tokens need a program. Any other place is taken for one that a browser fills."""
    if isinstance(place, HttpAuthorization):
        return place.scheme == "basic"
    return not isinstance(place, InHeader | InQuery)


class BrowserRules:
    """Checks requests whose caller is known by what a browser attaches.

    ``url`` is the agent's public URL, whose origin is its own; ``allowed_origins`` are those of other pages that may
    call it, as browsers write them: ``https://app.example``.
    """

    def __init__(self, *, url: str | None = None, allowed_origins: Iterable[str] = ()) -> None:
        self._allowed = frozenset(origin.encode() for origin in allowed_origins)
        try:
            self._own = frozenset() if url is None else frozenset({origin_of(url).encode()})
        except MalformedError as error:
            raise ConfigurationError(f"url: {error}") from None
        self._lines = HeaderLines((_SITE, _ORIGIN))

    def check(self, scope: Any) -> None:
        """Return when no page of another site asks for the request, or one that is allowed; CrossSiteError."""
        lines = self._lines.find(scope["headers"])
        site, origin = _only(lines, _SITE), _only(lines, _ORIGIN)
        if site in _SAME:
            return
        if site is None:
            if origin is None or origin in self._own | self._allowed:
                return
        elif site not in _FOREIGN:
            raise CrossSiteError(f"Sec-Fetch-Site: {site[:32].decode('latin-1')!a} is not one of its values")
        elif origin in self._allowed:
            return
        page = (
            "a page that does not say its origin" if origin is None else f"a page of {origin[:128].decode('latin-1')!a}"
        )
        raise CrossSiteError(
            f"{page} asks for this with a cookie, a password or a client certificate; if that page may, write "
            "rules=RequestRules(allowed_origins=['https://…'])"
        )


def _only(lines: dict[bytes, Lines], name: bytes) -> bytes | None:
    """The value of the only line; None when there is none."""
    found = lines.get(name, _NONE)
    if not found:
        return None
    if len(found) > 1 or found[0] is None:
        raise CrossSiteError(f"{name.decode()}: it came more than once, or with an underscore in its name")
    return found[0].strip(b" \t")
