"""Where the keys of an issuer come from: the protocol, a file, several key sets.

``discovery`` has the sources that follow an issuer's name, ``keys.trust.jwks_cache`` the one that everything here is
made of. No source follows a URL out of a token (``jku``, ``x5u``).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Iterable
from pathlib import Path
from typing import Final, Protocol, TypeVar

from a2a_trust.errors import (
    ConfigurationError,
    InvalidCredentialsError,
    KeySourceUnavailableError,
    MalformedError,
)
from a2a_trust.files.watched import open_regular
from a2a_trust.keys.jwk import PublicKey
from a2a_trust.keys.keyset import read_jwks
from a2a_trust.keys.trust.jwks_cache import JwksCache, JwksCacheTimes

_T = TypeVar("_T")

_MAX_BYTES: Final = 262_144
#: Reading a file is quick, so after an idle time a token waits for it: it must not count by a key that is withdrawn.
_TIMES: Final = JwksCacheTimes(default_max_age=5.0, min_max_age=5.0, revalidate=0.001)


class KeySource(Protocol):
    """Where the issuer's keys come from.

    ``OpenIdKeys`` and ``OAuth2Keys`` find them by the issuer's name;
    ``JwksCache(fetcher.loader("https://idp.example/jwks", configured=True))`` takes them from one URL.
    """

    @property
    def generation(self) -> int:
        """A number that rises whenever a key is lost: what was verified before then has to be verified again."""
        ...

    async def key(self, kid: str, kty: str) -> PublicKey:
        """The key of that name and type; InvalidCredentialsError, or KeySourceUnavailableError."""
        ...

    async def only_key(self, kty: str) -> PublicKey:
        """The one key of that type, for tokens without ``kid``; InvalidCredentialsError when there are several."""
        ...


class JwksFile(JwksCache):
    """The keys in a file: a JWK Set, as ``kubectl get --raw /openid/v1/jwks`` prints one.

    The file is read again every five seconds while tokens come. If it is missing or damaged, the log says so, and the
    known keys hold for an hour. Replace it whole, by renaming. ConfigurationError: it cannot be read now, or has no
    usable key.
    """

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)
        try:
            keys = read_jwks(self._document()).keys
        except OSError as error:
            raise ConfigurationError(
                f"key set file {path}: {error.strerror}; write the issuer's JWK Set there"
            ) from None
        except MalformedError as error:
            raise ConfigurationError(f"key set file {path}: {error}") from None
        if not keys:
            raise ConfigurationError(
                f"key set file {path}: it has no usable public key; write the issuer's JWK Set there"
            )
        super().__init__(self._loaded, name=f"key set file {path}", times=_TIMES)

    def _document(self) -> bytes:
        with open_regular(self._path) as file:
            document = file.read(_MAX_BYTES + 1)
        if len(document) > _MAX_BYTES:
            raise MalformedError(f"it is larger than {_MAX_BYTES} bytes")
        return document

    async def _loaded(self) -> tuple[bytes, float | None]:
        return await asyncio.to_thread(self._document), None


class SeveralKeySources:
    """The keys of one issuer that has several key sets, such as one for each region.

    ::

        SeveralKeySources([JwksCache(fetcher.loader(url, configured=True)) for url in URLS])

    A key set that is unreachable affects only the keys that are in no other. If two sets have different keys of one
    name, neither is used.
    """

    def __init__(self, sources: Iterable[JwksCache]) -> None:
        self._sources = (sources,) if isinstance(sources, JwksCache) else tuple(sources)
        if not self._sources or not all(isinstance(source, JwksCache) for source in self._sources):
            raise ConfigurationError(
                "SeveralKeySources: write a list of key sets, as in [JwksFile('a.json'), "
                "JwksCache(fetcher.loader(url, configured=True))]"
            )

    @property
    def generation(self) -> int:
        """As ``KeySource.generation``."""
        return sum(source.generation for source in self._sources)

    async def key(self, kid: str, kty: str) -> PublicKey:
        """As ``KeySource.key``. A name that no set has known until now is looked for in all of them."""
        return await self._found(kid, kty)

    async def only_key(self, kty: str) -> PublicKey:
        """As ``KeySource.only_key``, of all sets together."""
        return await self._found(None, kty)

    async def _found(self, kid: str | None, kty: str) -> PublicKey:
        found = await self._known(kid, kty) or await self._searched(kid, kty)
        if len(found) == 1:
            return found.pop()
        name = "" if kid is None else f" named {ascii(kid)[:64]}"
        why = "they disagree about the key" if found else f"no {kty} key{name} is valid now"
        raise InvalidCredentialsError(f"several key sets: {why}")

    async def _known(self, kid: str | None, kty: str) -> set[PublicKey]:
        """The keys in the first sets that come and have one: a set that is slow or unreachable is not waited for. Its
        load continues.
        """
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

    async def _searched(self, kid: str | None, kty: str) -> set[PublicKey]:
        """The keys that the sources find. KeySourceUnavailableError: there are none, and one cannot tell now."""
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
