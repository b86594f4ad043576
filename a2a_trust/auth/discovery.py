"""Where the keys of an issuer come from: where the issuer itself says, a file, or several key sets.

The rules of OpenID Connect Discovery 1.0 and RFC 8414:

1. The operator names the issuer. Where its metadata lies follows from its name; no URL out of a card is followed.
2. The document's ``issuer`` must be that name, character by character (Discovery 4.3, RFC 8414 3.3). Otherwise
   the writer of one page on a host could name keys for another issuer of that host.
3. ``jwks_uri`` comes from the metadata of that issuer, and is fetched by the rules of the fetcher. Plain http within
   a service mesh (``base.net.urls``) is for the issuer's own origin: a document must not choose among its servers.
4. The two documents are always read together, as one load of ``JwksCache``, whose rules hold for both. So a
   ``jwks_uri`` that moved is found as soon as a token needs its keys. ``signed_metadata`` is not read.

Nothing is fetched before the first token comes. No source follows a URL out of a token (``jku``, ``x5u``).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from a2a_trust.base import strict_json
from a2a_trust.base.files.watched import open_regular
from a2a_trust.base.net.addresses import is_this_machine
from a2a_trust.base.net.metadata import metadata_locations, metadata_urls
from a2a_trust.base.net.urls import read_url
from a2a_trust.errors import (
    ConfigurationError,
    FetchError,
    InvalidCredentialsError,
    KeySourceUnavailableError,
    MalformedError,
)
from a2a_trust.keys.jwk import PublicKey, read_jwks
from a2a_trust.keys.trust.jwks_cache import JwksCache, JwksCacheTimes

if TYPE_CHECKING:
    from a2a_trust.base.net.fetcher import Fetcher

_T = TypeVar("_T")

_MAX_BYTES: Final = 262_144
#: Reading a file is quick, so after an idle time a token waits for it: no withdrawn key is accepted.
_TIMES: Final = JwksCacheTimes(default_max_age=5.0, min_max_age=5.0, revalidate=0.001)


class KeySource(Protocol):
    """Where the issuer's keys come from.

    ``OpenIdKeys`` and ``OAuth2Keys`` find them by the issuer's name;
    ``JwksCache(fetcher.loader("https://idp.example/jwks", configured=True))`` takes them from one URL.
    """

    @property
    def generation(self) -> int:
        """A number that rises whenever a key is lost: what was verified before then has to be verified again."""

    async def key(self, kid: str, kty: str) -> PublicKey:
        """The key of that name and type; InvalidCredentialsError, or KeySourceUnavailableError."""

    async def only_key(self, kty: str) -> PublicKey:
        """The one key of that type, for tokens without ``kid``; InvalidCredentialsError when there are several."""


class IssuerKeys(JwksCache):
    """The keys that an issuer's metadata name. Use ``OpenIdKeys`` or ``OAuth2Keys``.

    ``issuer`` is the ``iss`` of its tokens, ``metadata_url`` the URL of its metadata.
    """

    def __init__(
        self, issuer: str, metadata_url: str, fetcher: Fetcher, times: JwksCacheTimes | None, clock: Callable[[], float]
    ) -> None:
        from a2a_trust.base.net.fetcher import check_fetcher

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
            return False  # the fetcher rejects it, and says why
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
    pass ``metadata_url``: the well-known part may also stand after the path, or be the part of OpenID
    Connect (RFC 8414 5). ConfigurationError: another URL, or the fetcher does not permit it.
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
                f"metadata_url: {url[:128]!a} does not belong to the issuer {issuer[:128]!a}; write one "
                f"of {', '.join(known)}"
            )
        super().__init__(issuer, url, fetcher, times, clock)


class JwksFile(JwksCache):
    """The keys in a file: a JWK Set, as ``kubectl get --raw /openid/v1/jwks`` prints one.

    The file is read again every five seconds while tokens come. If it is missing or damaged, the log says so, and the
    known keys hold for an hour. Replace it whole, by renaming. ConfigurationError: it cannot be read now, or has no
    usable key.
    """

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)
        try:
            if not read_jwks(self._read_file()).keys:
                raise MalformedError("it has no usable public key; write the issuer's JWK Set there")
        except (OSError, MalformedError) as error:
            why = f"{error.strerror}; write the issuer's JWK Set there" if isinstance(error, OSError) else error
            raise ConfigurationError(f"key set file {path}: {why}") from None
        super().__init__(self._load_file, name=f"key set file {path}", times=_TIMES)

    def _read_file(self) -> bytes:
        with open_regular(self._path) as file:
            document = file.read(_MAX_BYTES + 1)
        if len(document) > _MAX_BYTES:
            raise MalformedError(f"it is larger than {_MAX_BYTES} bytes")
        return document

    async def _load_file(self) -> tuple[bytes, float | None]:
        return await asyncio.to_thread(self._read_file), None


class SeveralKeySources:
    """The keys of one issuer that has several key sets, such as one for each region.

    ::

        SeveralKeySources([JwksCache(fetcher.loader(url, configured=True)) for url in URLS])

    An unreachable key set affects only keys that are in no other. Different keys of one name are not used.
    """

    def __init__(self, sources: Iterable[JwksCache]) -> None:
        self._sources = (sources,) if isinstance(sources, JwksCache) else tuple(sources)
        self.parts: Final[tuple[object, ...]] = self._sources
        if not self._sources or not all(isinstance(source, JwksCache) for source in self._sources):
            raise ConfigurationError(
                "SeveralKeySources: write a list of key sets, as in [JwksFile('a.json'), "
                "JwksCache(fetcher.loader(url, configured=True))]"
            )

    @property
    def generation(self) -> int:
        return sum(source.generation for source in self._sources)

    async def key(self, kid: str, kty: str) -> PublicKey:
        """As ``KeySource.key``. A name that no cached set has is searched in all sources."""
        return await self._find(kid, kty)

    async def only_key(self, kty: str) -> PublicKey:
        """As ``KeySource.only_key``, for all sets together."""
        return await self._find(None, kty)

    async def _find(self, kid: str | None, kty: str) -> PublicKey:
        found = await self._find_known(kid, kty) or await self._search(kid, kty)
        if len(found) == 1:
            return found.pop()
        name = "" if kid is None else f" named {ascii(kid)[:64]}"
        why = "they disagree about the key" if found else f"no {kty} key{name} is valid now"
        raise InvalidCredentialsError(f"several key sets: {why}")

    async def _find_known(self, kid: str | None, kty: str) -> set[PublicKey]:
        """The keys in the first sets that arrive and have one. The loads of slower sets continue."""
        pending = {asyncio.create_task(_outcome(source.keys())) for source in self._sources}
        try:
            while pending:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                sets = [await task for task in done]
                keys = [key for each in sets if isinstance(each, tuple) for key in each]
                named = {key for key in keys if key.kty == kty and kid in (None, key.kid)}
                if found := {key for key in named if key.is_valid_at(time.time())}:
                    return found
            return set()
        finally:
            for task in pending:
                task.cancel()

    async def _search(self, kid: str | None, kty: str) -> set[PublicKey]:
        """The keys that the sources find. KeySourceUnavailableError: there are none, and a source is unavailable."""
        searches = [source.only_key(kty) if kid is None else source.key(kid, kty) for source in self._sources]
        answers = await asyncio.gather(*map(_outcome, searches))
        found = {each for each in answers if isinstance(each, PublicKey)}
        outages = [each for each in answers if isinstance(each, KeySourceUnavailableError)]
        if outages and not found:
            raise outages[-1]
        return found


async def _outcome(work: Awaitable[_T]) -> _T | InvalidCredentialsError | KeySourceUnavailableError:
    try:
        return await work
    except (InvalidCredentialsError, KeySourceUnavailableError) as error:
        return error
