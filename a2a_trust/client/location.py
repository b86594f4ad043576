"""The agent location: the name, in one spelling, by which memories know an agent.

The location is the origin, and the path of the card's URL before the well-known name: ``https://example.com/agents/a``
for ``https://example.com/agents/a/.well-known/agent-card.json``. It comes from the URL that the client asked, never
from the card. The rules:

1. Both well-known names are one location. A card at another name is a location of its own, by its whole path.
2. Scheme and host are in lower case, and the default port is left out. A host without scheme is asked over https.
3. In the path, only characters that need it are percent-encoded, in upper case. Slashes at the end and repeated slashes
   are left out. A percent sign without two hexadecimal digits is rejected.
4. Dot segments are rejected in every spelling: httpx resolves ``..`` before it sends a request, and sends ``%2e%2e``
   unchanged, which servers read differently. ``Fetcher`` sends neither.
5. The query is ignored, so that adding one does not give a new first use. It is part of the location only in a URL that
   the user wrote with it (``cards`` of the transports, ``a2a-sign memory``), as it is written there.

Source: RFC 3986 6.2.2 and 6.2.3, RFC 8615.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from a2a_trust.base.net.urls import MAX_URL, has_dot_segment
from a2a_trust.card.schema import CARD_PATHS
from a2a_trust.errors import ConfigurationError, MalformedError
from a2a_trust.keys.trust.origins import host_of, origin_of, url_of

_PATH_CHARACTERS: Final = "!$&'()*+,;=:@"  # beside the unreserved ones: RFC 3986 3.3
#: In every case, as there are servers that do not tell them apart.
_WELL_KNOWN: Final = re.compile(rf"(?:{'|'.join(map(re.escape, CARD_PATHS))})+\Z", re.IGNORECASE)
_NO_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


class Location(str):
    """An agent location, made by ``location_of``, which returns it unchanged, with its query."""

    __slots__ = ()

    @property
    def origin(self) -> str:
        """Scheme, host and port: ``https://example.com``."""
        return origin_of(self)

    @property
    def host(self) -> str:
        """The host, for which a key of first use is trusted: ``example.com``."""
        return host_of(self)


def location_of(url: str, *, with_query: bool = False) -> Location:
    """The location of an agent, from its URL or the URL of its card: rules 1 to 5.

    ``with_query``: the user named the URL with its query, and it counts. MalformedError: it is not an http(s) URL or a
    host, or it is ambiguous.
    """
    if isinstance(url, Location):
        return url
    location = _WELL_KNOWN.sub("", plain_url(url))
    query = url_of(url).query if with_query else None
    if query:
        has_path = location.count("/") > 2
        location += f"?{query}" if has_path else f"/?{query}"
    if len(location) > MAX_URL:  # no URL is that long, but escapes can make it so
        raise MalformedError(f"location: longer than {MAX_URL} characters")
    return Location(location)


def named_location(url: str, *, with_query: bool = False) -> Location:
    """The location that the program named; ConfigurationError if it is not one."""
    try:
        return location_of(url, with_query=with_query)
    except MalformedError as error:
        raise ConfigurationError(str(error)) from None


def plain_url(url: str) -> str:
    """A URL without query and fragment, and without a slash at its end, in one spelling: rules 2 to 4."""
    try:
        parts = url_of(url)
    except (MalformedError, TypeError):
        raise MalformedError(
            "location: write the URL of the agent or of its card, as in https://agent.example.com"
        ) from None
    origin, path = parts._replace(scheme=parts.scheme or "https").origin, parts.path
    if not origin.startswith(("https://", "http://")):
        raise MalformedError("location: cards come over https (or http, on this machine); write https://host/path")
    segments = [unquote_to_bytes(segment) for segment in path.split("/") if segment]
    if _NO_ESCAPE.search(path) or has_dot_segment(path):
        raise MalformedError(
            "location: its path has a dot segment, or an invalid percent sign; write the path that the server sees, as "
            "in https://agent.example.com/agents/a"
        )
    return "/".join([origin, *[quote(segment, safe=_PATH_CHARACTERS) for segment in segments]])
