"""Protects against cross-site request forgery: requests that a browser sends for a page of another site.

A browser attaches cookies, passwords (HTTP Basic) and client certificates by itself, for every page. So these prove
who the user is, but not that the user wants the request. Browsers name the page in headers that no page can write:

1. ``Sec-Fetch-Site`` and ``Origin`` come at most once each, and the first has one of its four values.
2. ``same-origin`` and ``none`` (the user asked) pass.
3. ``same-site`` and ``cross-site`` need an ``Origin`` that is allowed.
4. Without ``Sec-Fetch-Site``, as from old browsers and over plain http, an ``Origin`` must be allowed, or the agent's
   own. Without both headers, the request is not from a browser, or changes nothing: browsers send ``Origin`` with every
   websocket, and with every request except GET and HEAD.

Source: Fetch Metadata Request Headers (W3C) 2.4; Fetch 3.2; RFC 6455 10.2.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from a2a_trust.auth.credentials import Extractor, HeaderLines, HttpAuthorization, InHeader, InQuery, Lines
from a2a_trust.errors import ConfigurationError, CrossSiteError, MalformedError
from a2a_trust.keys.trust.origins import origin_of

_SITE: Final = b"sec-fetch-site"
_ORIGIN: Final = b"origin"
_SAME: Final = frozenset({b"same-origin", b"none"})
_FOREIGN: Final = frozenset({b"same-site", b"cross-site"})
_NONE: Final[Lines] = []


def is_attached_by_browsers(place: Extractor) -> bool:
    """Whether a browser may send the credential at this place by itself.

    True for cookies, client certificates, passwords (RFC 7617 2.2), and unknown places. False for tokens, and for keys
    in headers and queries: a page would have to know them.
    """
    if isinstance(place, HttpAuthorization):
        return place.scheme == "basic"
    return not isinstance(place, InHeader | InQuery)


class BrowserRules:
    """Checks requests whose caller is authenticated by a credential that a browser attaches.

    ``url`` is the agent's public URL; pages of its origin may call the agent. ``allowed_origins`` are the origins of
    other pages that may call it, as browsers write them: ``https://app.example``.
    """

    def __init__(self, *, url: str | None = None, allowed_origins: Iterable[str] = ()) -> None:
        self._allowed = frozenset(origin.encode() for origin in allowed_origins)
        try:
            self._own = frozenset() if url is None else frozenset({origin_of(url).encode()})
        except MalformedError as error:
            raise ConfigurationError(f"url: {error}") from None
        self._lines = HeaderLines((_SITE, _ORIGIN))

    def check(self, scope: Any) -> None:
        """Return when the request is not from a page of another site, or that page is allowed; else CrossSiteError."""
        lines = self._lines.find(scope["headers"])
        site, origin = _only(lines, _SITE), _only(lines, _ORIGIN)
        if site in _SAME:
            return
        if site is None:
            if origin is None or origin in self._own | self._allowed:
                return
        elif site not in _FOREIGN:
            raise CrossSiteError(
                f"Sec-Fetch-Site: {site[:32].decode('latin-1')!a} is not same-origin, same-site, cross-site or none"
            )
        elif origin in self._allowed:
            return
        page = "a page of an unknown origin" if origin is None else f"a page of {origin[:128].decode('latin-1')!a}"
        raise CrossSiteError(
            f"{page} sent this request with a cookie, a password or a client certificate; if that page may call, write "
            "rules=RequestRules(allowed_origins=['https://…'])"
        )


def _only(lines: dict[bytes, Lines], name: bytes) -> bytes | None:
    """The value of the only line; None when there is none."""
    found = lines.get(name, _NONE)
    if not found:
        return None
    if len(found) > 1 or found[0] is None:
        raise CrossSiteError(f"the header {name.decode()} came more than once, or with an underscore in its name")
    return found[0].strip(b" \t")
