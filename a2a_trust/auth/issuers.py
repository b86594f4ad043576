"""Several issuers for one security scheme."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from a2a_trust.auth.principal import (
    BoundVerifier,
    CredentialKind,
    Identity,
    TokenBinding,
    TokenVerifier,
    verification_of,
)
from a2a_trust.errors import ConfigurationError, UnrecognizedCredentialsError


class SeveralIssuers(BoundVerifier[str]):
    """Verifies the access tokens of several issuers for one security scheme, each by its own verifier.

    ::

        SeveralIssuers([JwtVerifier(OpenIdKeys(issuer, fetcher), issuer=issuer, audience=AGENT) for issuer in ISSUERS])

    The verifiers get the token in their order, and the first one that recognizes its issuer decides. So an outage of
    one issuer does not affect the tokens of another. Opaque tokens do not name their issuer: only one verifier may
    introspect, because its server would get the tokens of the others.
    """

    kind = CredentialKind.ACCESS_TOKEN

    def __init__(self, verifiers: Iterable[TokenVerifier]) -> None:
        """ConfigurationError: two verifiers are for JWTs of one issuer, two introspect, or one is for other tokens."""
        given: Any = verifiers
        self._verifiers: tuple[TokenVerifier, ...] = tuple(given) if isinstance(given, Iterable) else ()
        for each in self._verifiers:
            if getattr(each, "kind", None) is not CredentialKind.ACCESS_TOKEN or not hasattr(each, "issuers"):
                raise ConfigurationError(
                    f"SeveralIssuers: {type(each).__name__} is not a verifier of access tokens; write "
                    "JwtVerifier(…) or IntrospectionVerifier(…)"
                )
        if len(self._verifiers) < 2:
            raise ConfigurationError("SeveralIssuers: write a list of two verifiers or more")
        asking = [each for each in self._verifiers if asks_issuer(each)]
        if len(asking) > 1:
            raise ConfigurationError(
                "SeveralIssuers: two verifiers introspect, and each server would be sent the other's tokens; keep one"
            )
        known = [issuer for each in self._verifiers if not asks_issuer(each) for issuer in each.issuers]
        for issuer in known:
            if known.count(issuer) > 1:
                raise ConfigurationError(
                    f"SeveralIssuers: two verifiers are for the issuer {issuer!a}; write one, with a list of audiences "
                    "or profiles"
                )
        self.parts: Final[tuple[object, ...]] = self._verifiers
        self._verify = tuple(verification_of(each) for each in self._verifiers)

    @property
    def issuers(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(issuer for each in self._verifiers for issuer in each.issuers))

    @property
    def audiences(self) -> frozenset[str]:
        return frozenset[str]().union(*(getattr(each, "audiences", ()) for each in self._verifiers))

    @property
    def binding(self) -> TokenBinding:
        """REQUIRED if all of them require it."""
        is_required = all(each.binding is TokenBinding.REQUIRED for each in self._verifiers)
        return TokenBinding.REQUIRED if is_required else TokenBinding.OPTIONAL

    @property
    def metadata_urls(self) -> tuple[str, ...]:
        """The URLs of the issuers' metadata; the card names one of them."""
        return tuple(dict.fromkeys(url for each in self._verifiers for url in each.metadata_urls))

    @property
    def asks_issuer(self) -> bool:
        """Whether one of them sends tokens to its issuer."""
        return any(map(asks_issuer, self._verifiers))

    async def verify_bound(self, credential: str, now: float) -> Identity:
        """The identity by the first verifier that recognizes the token. As ``Verifier.verify``."""
        reasons = []
        for verify in self._verify:
            try:
                return await verify(credential, now)
            except UnrecognizedCredentialsError as error:
                reasons.append(str(error))
        raise UnrecognizedCredentialsError("; ".join(dict.fromkeys(reasons)))


def asks_issuer(verifier: Any) -> bool:
    """Whether a verifier sends tokens that do not name their issuer to its own."""
    return getattr(verifier, "asks_issuer", False) is True
