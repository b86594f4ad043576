"""The keys of an issuer, found where the issuer itself says: OpenID Connect Discovery 1.0 and RFC 8414.

The rules:

1. The operator names the issuer. Where its metadata lies follows from its name; no URL out of a card is followed.
2. The document's ``issuer`` must be that name, character by character (Discovery 4.3, RFC 8414 3.3). Otherwise
   the writer of one page on a host could name keys for another issuer of that host.
3. ``jwks_uri`` comes from the metadata of that issuer, and is fetched by the rules of the fetcher. Plain http within
   a service mesh (``net.urls``) is for the issuer's own origin: a document must not choose among its servers.
4. The two documents are always read together, as one load of ``JwksCache``: a ``jwks_uri`` that moved is found as soon
   as a key that is only there, what fails leaves the known keys as they are for a bounded time, and single flight,
   back-off and cool-down hold for both. ``signed_metadata`` is not read.

Nothing is fetched before the first token comes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from a2a_trust import strict_json
from a2a_trust.errors import ConfigurationError, FetchError, MalformedError
from a2a_trust.keys.jwks_cache import JwksCache, JwksCacheTimes
from a2a_trust.net.addresses import is_this_machine
from a2a_trust.net.metadata import metadata_locations, metadata_urls
from a2a_trust.net.urls import read_url

if TYPE_CHECKING:
    from a2a_trust.net.fetcher import Fetcher


class IssuerKeys(JwksCache):
    """The keys that an issuer's metadata name. Use ``OpenIdKeys`` or ``OAuth2Keys``.

    ``issuer`` is the ``iss`` of its tokens, ``metadata_url`` the URL of its metadata.
    """

    def __init__(
        self, issuer: str, metadata_url: str, fetcher: Fetcher, times: JwksCacheTimes | None, clock: Callable[[], float]
    ) -> None:
        from a2a_trust.net.fetcher import check_fetcher

        check_fetcher(fetcher)
        try:
            self._metadata = fetcher.loader(metadata_url, configured=True)
        except FetchError as error:
            raise ConfigurationError(f"issuer {issuer[:128]!a}: {error}") from None
        super().__init__(self._fetch_keys, name=f"keys of {issuer}", times=times, clock=clock)
        self.issuer = issuer
        self.metadata_url = metadata_url
        self._fetcher = fetcher

    async def _fetch_keys(self) -> tuple[bytes, float | None]:
        # The server of the keys says how long they are fresh; the metadata are fetched with every load of them.
        document, _ = await self._metadata()
        return await self._fetcher.loader(self._jwks_uri(document), configured=True)()

    def _jwks_uri(self, document: bytes) -> str:
        try:
            metadata = strict_json.parse(document, what="metadata")
        except MalformedError:
            raise FetchError(f"{self.metadata_url}: malformed JSON") from None  # the original text may quote it
        if type(metadata) is not dict or metadata.get("issuer") != self.issuer:
            raise FetchError(
                f"{self.metadata_url}: the document does not name the issuer {self.issuer!a}. Write the issuer as in "
                "the document; if the two cannot be the same, pass the URL of its keys: "
                "JwksCache(fetcher.loader(jwks_uri, configured=True))"
            )
        jwks_uri = metadata.get("jwks_uri")
        if type(jwks_uri) is not str:
            raise FetchError(f"{self.metadata_url}: the document has no jwks_uri")
        if self._is_elsewhere_in_mesh(jwks_uri):
            raise FetchError(
                f"{self.metadata_url}: its jwks_uri is plain http at another origin; serve the keys at the issuer's "
                "origin, or over https"
            )
        return jwks_uri

    def _is_elsewhere_in_mesh(self, jwks_uri: str) -> bool:
        try:
            parts, own = read_url(jwks_uri), read_url(self.metadata_url)
        except MalformedError:
            return False  # the fetcher refuses it, and says why
        return parts.scheme == "http" and not is_this_machine(parts.host) and parts.origin != own.origin


class OpenIdKeys(IssuerKeys):
    """The keys of an OpenID provider, for a card with ``openIdConnectUrl``.

    ``OpenIdKeys("https://idp.example", Fetcher())`` reads https://idp.example/.well-known/openid-configuration.
    ConfigurationError: the fetcher does not permit that URL. Source: OpenID Connect Discovery 1.0, 4.
    """

    def __init__(
        self,
        issuer: str,
        fetcher: Fetcher,
        *,
        times: JwksCacheTimes | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(issuer, metadata_locations(issuer, "openid-configuration")[1], fetcher, times, clock)


class OAuth2Keys(IssuerKeys):
    """The keys of an OAuth 2.0 authorization server, for a card with ``oauth2MetadataUrl``.

    ``OAuth2Keys("https://as.example/tenant", Fetcher())`` reads
    https://as.example/.well-known/oauth-authorization-server/tenant, as in RFC 8414 3.1. For a server with another URL,
    pass ``metadata_url``: the well-known part may also stand after the path, and be that of OpenID Connect
    (RFC 8414 5). ConfigurationError: another URL, or the fetcher does not permit it.
    """

    def __init__(
        self,
        issuer: str,
        fetcher: Fetcher,
        *,
        metadata_url: str | None = None,
        times: JwksCacheTimes | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        known = metadata_urls(issuer)
        url = known[0] if metadata_url is None else metadata_url
        if url not in known:
            raise ConfigurationError(
                f"metadata_url: {url[:128]!a} cannot be that of the issuer {issuer[:128]!a}; write one of "
                f"{', '.join(known)}"
            )
        super().__init__(issuer, url, fetcher, times, clock)
