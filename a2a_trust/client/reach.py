"""The origins and URLs that a card leads callers to: an extended card must not lead further than the public card."""

from __future__ import annotations

from dataclasses import dataclass

from a2a_trust.card.view import CardView, OAuth2Scheme, OpenIdConnectScheme
from a2a_trust.errors import CardVerificationError, MalformedError
from a2a_trust.keys.origins import url_of
from a2a_trust.signing.forms import shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """``origins`` are the origins of the interfaces. ``logins`` are the URLs that credentials and users are sent to:
    for tokens, authorization, refresh, devices, and metadata with such URLs."""

    origins: frozenset[str]
    logins: frozenset[str]

    @classmethod
    def of(cls, view: CardView) -> Reach:
        """The reach of a verified card."""
        logins: set[str] = set()
        for scheme in view.schemes.values():
            if isinstance(scheme, OAuth2Scheme):
                logins |= {url for flow in scheme.flows for _, url in flow.urls}
                logins |= {scheme.metadata_url} if scheme.metadata_url else set()
            elif isinstance(scheme, OpenIdConnectScheme):
                logins.add(scheme.discovery_url)
        return cls(origins=frozenset(origin_in(each.url) for each in view.interfaces), logins=frozenset(logins))


def origin_in(url: str) -> str:
    """The origin of a URL; for an ambiguous URL, the URL itself, which equals no origin."""
    try:
        return url_of(url).origin
    except MalformedError:
        return url


def check_extension(public: Reach, extended: Reach) -> None:
    """CardVerificationError when an extended card leads further than the public one that promised it."""
    further = sorted(extended.origins - public.origins)
    if further:
        raise CardVerificationError(
            f"the extended card has interfaces at origins that the public card does not name: {shown(tuple(further))}"
        )
    elsewhere = sorted(extended.logins - public.logins)
    if elsewhere:
        raise CardVerificationError(
            f"the extended card sends credentials to URLs that the public card does not name: {shown(tuple(elsewhere))}"
        )
