"""``protect``: a whole agent behind its card, in one call.

From outside to inside: the documents that anybody may read (card, key set, metadata), the guard, the rules for
requests and the extended card, the application. The card that is served is the card that is enforced: both have
one source.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol
from urllib.parse import urlsplit

from a2a_trust.auth.dpop import DPoP
from a2a_trust.auth.guard_config import Anonymity, AnonymousRefused, At, Skills, SkillsRefused
from a2a_trust.auth.principal import Principal, Verifier
from a2a_trust.card.schema import CARD_PATHS
from a2a_trust.card.view import CardView, read_card
from a2a_trust.errors import CardNotServedError, ConfigurationError, MalformedError
from a2a_trust.keys.keyset import JWKS_PATH
from a2a_trust.keys.origins import origin_of
from a2a_trust.keys.signer import Signer
from a2a_trust.middleware.authentication import (
    AuthenticationMiddleware,
    is_exactly,
)
from a2a_trust.middleware.card import CardSignedHere, CardSigner, CardSource, FixedCard, PublicCard, SignerSource
from a2a_trust.middleware.card_access import CardForCallers, CardForEverybody, CardForNetworks, CardReaders, InNetworks
from a2a_trust.middleware.client_certificate import CertificateSource
from a2a_trust.middleware.documents import ASGIApp, Document, Receive, Scope, Send, is_preflight
from a2a_trust.middleware.extended_card import ExtendedCard, Provider
from a2a_trust.middleware.metadata import JwksEndpoint, ProtectedResource, PublishedKeys
from a2a_trust.middleware.options import check_app, listed
from a2a_trust.middleware.routing import Interfaces, route_path
from a2a_trust.middleware.rules import RequestRules, RulesMiddleware

__all__ = ["SigningKeys", "protect"]


class SigningKeys(SignerSource, PublishedKeys, Protocol):
    """Something that knows which key signs now and which are published, such as ``KeyRingFile``."""


def protect(
    app: ASGIApp,
    *,
    card: bytes | Mapping[str, Any] | CardSource,
    verifiers: Mapping[str, Verifier[Any] | At],
    url: str | None = None,
    signer: Signer | SigningKeys | None = None,
    signature_lifetime: float | None = None,
    card_max_age: int = 300,
    card_readers: CardReaders = CardForEverybody(),  # noqa: B008  frozen and without fields
    extended_card: bytes | Mapping[str, Any] | Provider | None = None,
    may_read_extended_card: Callable[[Principal], bool] | None = None,
    rules: RequestRules = RequestRules(),  # noqa: B008  frozen
    public_paths: Iterable[str] = (),
    unguarded: Iterable[str] = (),
    anonymous: Anonymity = AnonymousRefused(),  # noqa: B008  frozen and without fields
    skills: Skills = SkillsRefused(),  # noqa: B008
    client_certificates: CertificateSource | None = None,
    dpop: DPoP | None = None,
    allow_cors_preflight: bool = False,
    hide_credentials: bool = False,
    clock: Callable[[], float] = time.time,
) -> ASGIApp:
    """``app`` behind its card: one line around a Starlette, FastAPI or a2a-sdk application.

    ``card`` is the agent's own card, as bytes, as a dict, or as a source such as ``CardFile``; it is served at both
    well-known paths, whatever the application has there. ``verifiers`` has a verifier for every scheme that the card
    demands, by the scheme's name in the card.

    ``signer``, a key or a key ring, signs the card here; a signature is good for ``signature_lifetime`` seconds,
    and callers may keep the card for ``card_max_age`` seconds; ``card_readers`` says who may read it. ``url`` is
    the agent's public URL: with it the metadata of the protected resource is served and named in challenges, and
    the key set is served and named in signatures (``jku``, when the URL is https).

    ``extended_card`` is the card for known callers, or an async function of (principal, tenant) that gives it;
    ``may_read_extended_card`` says who may have it. ``rules`` says what requests may ask for: which tenants, and which
    paths of the application beside those of the card's interfaces.

    The other options are those of ``AuthenticationMiddleware``. ConfigurationError for whatever would be left open.
    """
    check_app(app)
    if signer is None and signature_lifetime is not None:
        raise ConfigurationError("signature_lifetime: nobody signs; pass signer=… too")
    jku = f"{url.rstrip('/')}{JWKS_PATH}" if url is not None and url.startswith("https://") else None
    card_signer = None if signer is None else CardSigner(signer, lifetime=signature_lifetime, jku=jku)
    source = _source(card, card_signer, clock)
    view = read_card(source.document(clock()).body)
    public_paths = listed("public_paths", public_paths)
    if not set(CARD_PATHS).isdisjoint(public_paths):
        raise ConfigurationError("public_paths: who may read the card is said by card_readers; leave its paths out")
    if not isinstance(card_readers, CardForEverybody | CardForCallers | CardForNetworks):
        raise ConfigurationError("card_readers: write CardForCallers() or CardForNetworks(…), with parentheses")
    shared = isinstance(card_readers, CardForEverybody)
    public_card: ASGIApp = PublicCard(_AsEnforced(source, view), max_age=card_max_age, shared=shared, clock=clock)
    if isinstance(card_readers, CardForNetworks):
        public_card = InNetworks(public_card, card_readers.networks)
    cards: dict[str, ASGIApp] = dict.fromkeys(CARD_PATHS, public_card)
    is_for_callers = isinstance(card_readers, CardForCallers)
    documents = {} if is_for_callers else cards.copy()
    metadata_url = None
    if url is not None:
        certificate_bound = client_certificates is not None
        resource = ProtectedResource(url, view, verifiers, dpop=dpop, certificate_bound=certificate_bound, clock=clock)
        documents[resource.path], metadata_url = resource, resource.url
    if url is not None and signer is not None:
        keys = JwksEndpoint((signer.public_key,) if isinstance(signer, Signer) else signer, clock=clock)
        # The jku has the URL's path. Whether requests have it depends on who is in front, and whether it says so.
        documents[JWKS_PATH] = documents[f"{urlsplit(url).path.rstrip('/')}{JWKS_PATH}"] = keys
    extended = ExtendedCard(view, extended_card, may_read=may_read_extended_card, signer=card_signer, clock=clock)
    if not isinstance(rules, RequestRules):
        raise ConfigurationError("rules: write RequestRules(…), as in RequestRules(other_paths=['/docs'])")
    unguarded = frozenset(listed("unguarded", unguarded))
    interfaces = Interfaces(view, unguarded=unguarded, served_at=rules.served_at)
    _check_hosts(url, interfaces, dpop)
    checked = RulesMiddleware(app, card=view, interfaces=interfaces, extended=extended, rules=rules)
    guarded = AuthenticationMiddleware(
        _Front(cards, checked) if is_for_callers else checked,
        card=view,
        verifiers=verifiers,
        public_paths=public_paths,
        unguarded=unguarded,
        served_at=rules.served_at,
        anonymous=anonymous,
        skills=skills,
        client_certificates=client_certificates,
        dpop=dpop,
        allow_cors_preflight=allow_cors_preflight,
        url=url,
        allowed_origins=rules.allowed_origins,
        hide_credentials=hide_credentials,
        resource_metadata=metadata_url,
        clock=clock,
    )
    return _Front(documents, guarded)


def _source(
    card: bytes | Mapping[str, Any] | CardSource, signer: CardSigner | None, clock: Callable[[], float]
) -> CardSource:
    if not isinstance(card, bytes | Mapping):
        if not callable(getattr(card, "document", None)):
            raise ConfigurationError(
                "card: pass its bytes, as in Path('card.json').read_bytes(), a dict, or a source such as "
                "CardFile('card.json', trust=…)"
            )
        if signer is not None:
            raise ConfigurationError("card: a source of its own signs by itself; pass the card as bytes or as a dict")
        return card
    return FixedCard(card, clock=clock) if signer is None else CardSignedHere(card, signer, clock=clock)


def _check_hosts(url: str | None, interfaces: Interfaces, dpop: Any) -> None:
    """Return when the agent is said to be at one place; callers would find nothing at the others."""
    if url is None:
        return
    host, base = _origin(url).partition("://")[2], getattr(dpop, "url", url)
    if interfaces.url is not None and _origin(interfaces.url).partition("://")[2] != host:
        raise ConfigurationError(
            f"url: {url!a:.128} is at another host than the card's interface {interfaces.url!a:.128}; make both alike"
        )
    if _origin(base) != _origin(url):
        raise ConfigurationError(
            f"url: {url!a:.128} is of another origin than DPoP(url={base!a:.128}), so every proof would be refused; "
            "make both alike"
        )


def _origin(url: str) -> str:
    try:
        return origin_of(url)
    except MalformedError:
        return url


class _Front:
    """Answers for documents, by their exact paths; everything else goes on."""

    def __init__(self, documents: Mapping[str, ASGIApp], app: ASGIApp) -> None:
        self._documents, self._paths, self._app = documents, frozenset(documents), app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and is_exactly(self._paths, scope) and _is_read(scope):
            await self._documents[route_path(scope)](scope, receive, send)
        else:
            await self._app(scope, receive, send)


def _is_read(scope: Scope) -> bool:
    """Whether the request reads: by GET or HEAD, or a browser asks whether it may."""
    return scope["method"] in ("GET", "HEAD") or is_preflight(scope)


class _AsEnforced:
    """The card of a source, while it says what the guard was made of: else callers would be told other rules."""

    def __init__(self, source: CardSource, view: CardView) -> None:
        self._source, self._rules = source, _rules(view)
        self._seen: Document | None = None
        self._is_as_enforced = False

    def document(self, now: float) -> Document:
        document = self._source.document(now)
        if document is not self._seen:
            self._seen, self._is_as_enforced = document, _rules(read_card(document.body)) == self._rules
        if not self._is_as_enforced:
            raise CardNotServedError("it says other rules than those that are enforced; restart the agent")
        return document


def _rules(view: CardView) -> tuple[Any, ...]:
    return view.schemes, view.requirements, view.interfaces, view.skills, view.has_extended_card
