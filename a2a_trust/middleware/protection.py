"""``protect``: a whole agent behind its card, in one call.

From outside to inside: the documents that anybody may read (card, key set, metadata), the guard, the rules for
requests and the extended card, the application. The card that is served is the card that is enforced: both have
one source.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol
from urllib.parse import urlsplit

from a2a_trust.auth.dpop import DPoP
from a2a_trust.auth.guard_config import CredentialAt
from a2a_trust.auth.principal import Verifier
from a2a_trust.card.given import GivenCard
from a2a_trust.card.schema import CARD_PATHS
from a2a_trust.card.view import CardView, read_card
from a2a_trust.errors import CardNotServedError, ConfigurationError, MalformedError
from a2a_trust.keys.keyset import JWKS_PATH
from a2a_trust.keys.origins import origin_of
from a2a_trust.keys.signer import Signer
from a2a_trust.middleware.authentication import CardEnforcementMiddleware, is_exactly
from a2a_trust.middleware.card import CardSignedHere, CardSigner, CardSource, FixedCard, PublicCard, SignerSource
from a2a_trust.middleware.card_access import CardReaders, InNetworks
from a2a_trust.middleware.client_certificate import CertificateSource
from a2a_trust.middleware.documents import ASGIApp, Document, Receive, Scope, Send, is_preflight
from a2a_trust.middleware.extended_card import ExtendedCard, ExtendedCardEndpoint
from a2a_trust.middleware.metadata import JwksEndpoint, ProtectedResource, PublishedKeys
from a2a_trust.middleware.options import MAX_BODY, RequestRules, check_app
from a2a_trust.middleware.peer import Networks
from a2a_trust.middleware.routing import Interfaces, route_path
from a2a_trust.middleware.rules import RulesMiddleware

__all__ = ["CardServing", "SigningKeys", "protect"]


class SigningKeys(SignerSource, PublishedKeys, Protocol):
    """Something that knows which key signs now and which are published, such as ``KeyRingFile``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardServing:
    """How the public card is served.

    ``signer``, a key or a key ring, signs the card here; a signature is good for ``lifetime`` seconds. Callers may keep
    the card for ``max_age`` seconds. ``readers`` says who may read it: ``CardReaders``, or peers in ``Networks``.
    """

    signer: Signer | SigningKeys | None = None
    lifetime: float | None = None
    max_age: int = 300
    readers: CardReaders | Networks = CardReaders.EVERYBODY

    def __post_init__(self) -> None:
        if self.signer is None and self.lifetime is not None:
            raise ConfigurationError("lifetime: nobody signs; write CardServing(signer=…, lifetime=…)")
        if not isinstance(self.readers, CardReaders | Networks):
            raise ConfigurationError('readers: write CardReaders.CALLERS or Networks("10.0.0.0/8", …)')


def protect(
    app: ASGIApp,
    *,
    card: GivenCard | CardSource,
    verifiers: Mapping[str, Verifier[Any] | CredentialAt],
    url: str | None = None,
    serving: CardServing = CardServing(),
    extended_card: ExtendedCard | None = None,
    rules: RequestRules = RequestRules(),  # noqa: B008  frozen
    client_certificates: CertificateSource | None = None,
    dpop: DPoP | None = None,
    clock: Callable[[], float] = time.time,
) -> ASGIApp:
    """``app`` behind its card: one line around a Starlette, FastAPI or a2a-sdk application.

    ``card`` is the agent's own card: a dict, bytes, JSON text, a ``Path`` (read once), an ``AgentCard`` of a2a-sdk or
    ``a2a_trust.card.models``, or a source such as ``CardFile``. It is served at both well-known paths, whatever the
    application has there, as ``serving`` says. ``verifiers`` has a verifier for every scheme that the card demands, by
    the scheme's name in the card.

    ``url`` is the agent's public URL: with it the metadata of the protected resource is served and named in challenges,
    and the key set is served and named in signatures (``jku``, when the URL is https). Without it no page of a site may
    call with a cookie or a client certificate, unless ``rules`` name its origin.

    ``extended_card`` is the card for known callers. ``rules`` says which requests are accepted. ``client_certificates``
    is where the certificates of callers come from, ``FromTls()`` or ``FromProxy(…)``. ``dpop`` takes tokens that are
    bound to a key of their client, with its proof; without it they are refused.

    ConfigurationError for whatever would be left open.
    """
    check_app(app)
    _check_options(serving, rules)
    jku = f"{url.rstrip('/')}{JWKS_PATH}" if url is not None and url.startswith("https://") else None
    signer = None if serving.signer is None else CardSigner(serving.signer, lifetime=serving.lifetime, jku=jku)
    source = _source(card, signer, clock)
    view = read_card(source.document(clock()).body)
    cards = _public_cards(_AsEnforced(source, view), serving, clock)
    is_for_callers = serving.readers is CardReaders.CALLERS
    documents = {} if is_for_callers else cards.copy()
    metadata_url = None
    if url is not None:
        certificate_bound = client_certificates is not None
        resource = ProtectedResource(url, view, verifiers, dpop=dpop, certificate_bound=certificate_bound, clock=clock)
        documents[resource.path], metadata_url = resource, resource.url
    if url is not None and serving.signer is not None:
        keys = JwksEndpoint(
            (serving.signer.public_key,) if isinstance(serving.signer, Signer) else serving.signer, clock=clock
        )
        # The jku has the URL's path. Whether requests have it depends on who is in front, and whether it says so.
        documents[JWKS_PATH] = documents[f"{urlsplit(url).path.rstrip('/')}{JWKS_PATH}"] = keys
    interfaces = Interfaces(view, unguarded=frozenset(rules.unguarded), served_at=rules.served_at)
    _check_hosts(url, interfaces, dpop)
    extended = ExtendedCardEndpoint(view, extended_card, signer=signer, clock=clock)
    checked = RulesMiddleware(app, card=view, interfaces=interfaces, extended=extended, rules=rules)
    guarded = CardEnforcementMiddleware(
        _Front(cards, checked) if is_for_callers else checked,
        card=view,
        verifiers=verifiers,
        url=url,
        rules=replace(
            rules, may_use_tenant=None, other_paths=(), max_body=MAX_BODY, public_paths=rules.public_paths or ()
        ),
        client_certificates=client_certificates,
        dpop=dpop,
        resource_metadata=metadata_url,
        clock=clock,
    )
    return _Front(documents, guarded)


def _check_options(serving: Any, rules: Any) -> None:
    if not isinstance(serving, CardServing):
        raise ConfigurationError("serving: write CardServing(…), as in CardServing(signer=load_private_key('key.pem'))")
    if not isinstance(rules, RequestRules):
        raise ConfigurationError("rules: write RequestRules(…), as in RequestRules(other_paths=['/docs'])")
    if not set(CARD_PATHS).isdisjoint(rules.public_paths or ()):
        raise ConfigurationError("public_paths: CardServing(readers=…) says who may read the card; leave its paths out")


def _public_cards(source: CardSource, serving: CardServing, clock: Callable[[], float]) -> dict[str, ASGIApp]:
    """The public card at each of its paths, for those who may read it."""
    is_shared = serving.readers is CardReaders.EVERYBODY
    card: ASGIApp = PublicCard(source, max_age=serving.max_age, shared=is_shared, clock=clock)
    if isinstance(serving.readers, Networks):
        card = InNetworks(card, serving.readers)
    return dict.fromkeys(CARD_PATHS, card)


def _source(card: GivenCard | CardSource, signer: CardSigner | None, clock: Callable[[], float]) -> CardSource:
    if isinstance(card, CardSource):
        if signer is not None:
            raise ConfigurationError("card: a source of its own signs by itself; pass the card itself")
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
