"""Chooses the alternative of a verified card that the client's credentials satisfy, and the credentials to send.

The rules:

1. The first alternative that the credentials satisfy completely is chosen, in the order of the card. With skills, the
   alternatives are all combinations of one of the card and one of each skill.
2. A request without a credential is sent only if the whole card is verified, the card permits it (``{}``, or no
   requirements), no credential is configured for a scheme of another alternative, and every configured credential has
   the name of a scheme of the card.
3. A credential satisfies a scheme if it has the scheme's name in ``credentials``, is of the scheme's kind, and is bound
   to the origin of the request.
4. Two credentials of one alternative must not need the same place in the request.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import nsmallest
from itertools import product
from math import prod
from typing import Final, TypeAlias

from a2a_trust.base.net.urls import NO_MESH, HttpWithin
from a2a_trust.card.places import CookiePlace, HeaderPlace, QueryPlace, key_place
from a2a_trust.card.view import Alternative, ApiKeyScheme, CardView, MutualTlsScheme, SecurityScheme
from a2a_trust.client.certificates import OwnCertificate
from a2a_trust.client.credentials import Credential, http_scheme, kind_of
from a2a_trust.client.destinations import check_plain
from a2a_trust.errors import ConfigurationError, MissingCredentialsError
from a2a_trust.signing.forms import shorten

Credentials: TypeAlias = Mapping[str, Credential | OwnCertificate]
"""By the names of schemes."""

_MOST_COMBINATIONS: Final = 256
_ANYBODY: Final = (Alternative(()),)
_MOST_CHARACTERS: Final = 300
_SHOWN: Final = 4
"""The number of alternatives in an error, and of schemes and problems of each: a hostile card has thousands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One credential of an answer, and where it goes. ``place`` is None for the Authorization header."""

    name: str
    scheme: SecurityScheme
    credential: Credential
    scopes: frozenset[str]
    place: HeaderPlace | QueryPlace | CookiePlace | None

    @property
    def word(self) -> str:
        """The HTTP authentication scheme, for the Authorization header."""
        return "Basic" if http_scheme(self.scheme) == "basic" else "Bearer"


@dataclass(frozen=True, slots=True)
class Answer:
    """A satisfied alternative: its schemes, and the credentials of the request. A certificate is of the connection."""

    schemes: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()


def check_credentials(credentials: Credentials, mesh: HttpWithin = NO_MESH) -> None:
    """ConfigurationError: it is not a mapping to credentials, or this client must not send one over http."""
    if not isinstance(credentials, Mapping):
        raise ConfigurationError('credentials: write a dict by the names of schemes in the card, {"key": ApiKey(…)}')
    for name, credential in credentials.items():
        if not isinstance(credential, Credential) and not callable(getattr(credential, "load", None)):
            raise ConfigurationError(
                f"credentials[{name!a}]: write ApiKey(…), BasicCredentials(…), BearerToken(…), ClientCredentials(…), "
                "RefreshToken(…), TokenExchange(…) or CertificateFiles(…)"
            )
        try:
            check_plain(credential.origins, mesh)
        except ConfigurationError as error:
            raise ConfigurationError(f"credentials[{name!a}]: {error}") from None


def demands_of(view: CardView, skills: Iterable[str]) -> tuple[Alternative, ...]:
    """The alternatives of the card, combined with the skills' own. ConfigurationError: unknown, or too many."""
    by_id = {skill.id: skill for skill in view.skills}
    unknown = [name for name in skills if name not in by_id]
    if unknown:
        raise ConfigurationError(f"skills: the card has no skill with the id {unknown[0]!a}; write ids as in the card")
    demands = [view.requirements or _ANYBODY, *[by_id[name].requirements or _ANYBODY for name in skills]]
    if prod(map(len, demands)) > _MOST_COMBINATIONS:
        raise ConfigurationError(
            f"skills: their requirements have more than {_MOST_COMBINATIONS} combinations; name fewer skills"
        )
    return tuple(map(_together, product(*demands)))


def _together(alternatives: tuple[Alternative, ...]) -> Alternative:
    scopes: dict[str, frozenset[str]] = {}
    for alternative in alternatives:
        for name, wanted in alternative.schemes:
            scopes[name] = scopes.get(name, frozenset()) | wanted
    return Alternative(tuple(sorted(scopes.items())))


def scopes_named(view: CardView, name: str) -> frozenset[str]:
    """All scopes that the card names for a scheme, in its requirements and in the scheme's flows."""
    demanded = [scopes for each in view.alternatives for scheme, scopes in each.schemes if scheme == name]
    flows = getattr(view.schemes.get(name), "flows", ())
    return frozenset().union(*demanded, *[flow.scopes for flow in flows])


def answer_for(
    view: CardView, demands: tuple[Alternative, ...], credentials: Credentials, origin: str, *, is_whole: bool
) -> Answer:
    """The answer for requests to that origin. MissingCredentialsError says what each alternative lacks."""
    answer, lacking = _first_satisfied(view, [each for each in demands if not each.is_anonymous], credentials, origin)
    if answer is not None:
        return answer
    demanded = {name for each in demands for name, _ in each.schemes}
    misnamed = sorted(ascii(name)[:80] for name in credentials if name not in view.schemes)
    lacking += [f"credentials[{name}] is not for a scheme of the card" for name in misnamed]
    if any(each.is_anonymous for each in demands) and demanded.isdisjoint(credentials):
        if is_whole and not misnamed:
            return Answer()
        if not is_whole:
            lacking.append("the card is verified only in part, so it does not show that no credential is needed")
    raise MissingCredentialsError(f"no alternative of the card can be satisfied at {origin}. {'. '.join(lacking)}")


def _first_satisfied(
    view: CardView, demanding: list[Alternative], credentials: Credentials, origin: str
) -> tuple[Answer | None, list[str]]:
    """The answer for the first alternative that is satisfied; else None, and what the first alternatives lack."""
    lacking: list[str] = []
    for alternative in demanding:
        is_shown = len(lacking) < _SHOWN
        parts, problems = _parts(view, alternative, credentials, origin, most=_SHOWN if is_shown else 1)
        if not problems:
            return Answer(tuple(name for name, _ in alternative.schemes), parts), []
        if is_shown:
            lacking.append(f"{shorten((name for name, _ in alternative.schemes), ' and ')[:80]}: {'; '.join(problems)}")
    if len(demanding) > _SHOWN:
        lacking.append(f"nor one of {len(demanding) - _SHOWN} other alternatives")
    return None, lacking


def _parts(
    view: CardView, alternative: Alternative, credentials: Credentials, origin: str, *, most: int
) -> tuple[tuple[Part, ...], list[str]]:
    """The credentials for one alternative, and why they do not satisfy it, in about ``most`` reasons."""
    parts: list[Part] = []
    problems: list[str] = []
    taken: dict[object, str] = {}
    for name, scopes in alternative.schemes:
        if len(problems) >= most:
            break
        scheme = view.schemes.get(name)
        if scheme is None:
            problems.append("the card does not declare this scheme")
            continue
        problems += _problems(name, scheme, scopes, credentials.get(name), origin)
        credential = credentials.get(name)
        if problems or not isinstance(credential, Credential):
            continue
        place = key_place(scheme) if isinstance(scheme, ApiKeyScheme) else getattr(credential, "place", None)
        where = place.header if isinstance(place, HeaderPlace) else place  # X-Key and x-key are one header
        if where in taken:
            names = shorten((taken[where], name), " and ")
            problems.append(f"{names} need the same place in the request, so this alternative cannot be used")
        taken[where] = name
        parts.append(Part(name=name, scheme=scheme, credential=credential, scopes=scopes, place=place))
    return tuple(parts), problems


def _problems(
    name: str,
    scheme: SecurityScheme,
    scopes: frozenset[str],
    credential: Credential | OwnCertificate | None,
    origin: str,
) -> Iterator[str]:
    kind, fix = kind_of(scheme)
    named = ascii(name[:80])[:80]
    if credential is None:
        yield f"{words_for(name, scheme, scopes)}: pass credentials={{{named}: {fix}}}"
    elif isinstance(scheme, MutualTlsScheme) is isinstance(credential, Credential):
        yield f"{named} asks for {kind}, and credentials[{named}] is another kind: pass {fix}"
    else:
        mismatch = credential.mismatch(scheme, scopes) if isinstance(credential, Credential) else ""
        if mismatch:
            yield f"{named} asks for {kind}, and {mismatch}"
        if origin not in credential.origins:
            yield f"credentials[{named}] is for {shorten(sorted(credential.origins))} and not for {origin}"
        if isinstance(scheme, ApiKeyScheme):
            try:
                key_place(scheme)
            except ConfigurationError as error:
                yield str(error)


def words_for(name: str, scheme: SecurityScheme | None, scopes: frozenset[str]) -> str:
    kind = "a scheme that the card does not declare" if scheme is None else kind_of(scheme)[0]
    scoped = f" with the scopes {shorten(nsmallest(9, scopes), ' ')[:200]}" if scopes else ""
    return f"{ascii(name[:80])[:80]} asks for {kind}{scoped}"


def demand_in_words(view: CardView, demands: tuple[Alternative, ...]) -> str:
    alternatives = [
        " and ".join(words_for(name, view.schemes.get(name), scopes) for name, scopes in each.schemes[:2])
        for each in demands[:2]
    ]
    return ", or ".join(alternatives)[:_MOST_CHARACTERS]
