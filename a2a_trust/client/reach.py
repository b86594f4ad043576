"""Where a card sends its callers and their credentials, so that one card cannot lead further than another."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from a2a_trust.card import OAuth2Scheme, OpenIdConnectScheme, read_card
from a2a_trust.errors import CardVerificationError
from a2a_trust.signing.forms import shown
from a2a_trust.signing.verify import VerifiedCard

__all__ = ["Reach", "check_extension", "origin_in"]

_PORTS = {"https": "443", "http": "80", "grpc": ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """``origins`` are those of the interfaces; ``logins`` are the URLs that credentials, users and their browsers are
    sent to: of tokens, authorization, refreshing, devices, and the metadata that names such URLs."""

    origins: frozenset[str]
    logins: frozenset[str]

    @classmethod
    def of(cls, card: VerifiedCard) -> Reach:
        """MalformedError: the card says it in a way that cannot be read."""
        view = read_card(card.card)
        logins: set[str] = set()
        for scheme in view.schemes.values():
            if isinstance(scheme, OAuth2Scheme):
                logins |= {url for flow in scheme.flows for _, url in flow.urls}
                logins |= {scheme.metadata_url} if scheme.metadata_url else set()
            elif isinstance(scheme, OpenIdConnectScheme):
                logins.add(scheme.discovery_url)
        return cls(origins=frozenset(origin_in(each.url) for each in view.interfaces), logins=frozenset(logins))


def origin_in(url: str) -> str:
    """Scheme, host and port in one spelling, of a URL whose host was read already; gRPC's ``host:port`` has none."""
    parts = urlsplit(url if "//" in url else f"//{url}")
    host, _, port = parts.netloc.lower().rpartition(":")
    if not port.isdigit():
        host, port = parts.netloc.lower(), _PORTS.get(parts.scheme, "")
    return f"{parts.scheme}://{host}:{port}"


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
