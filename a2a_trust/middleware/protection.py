"""``protect`` and ``protect_agents``: put whole agents behind their cards, in one call.

The card that is served is the card that is enforced: both have one source. ``door`` has the order of the checks.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlsplit

from starlette.routing import Mount, Route, WebSocketRoute

from a2a_trust.auth.credentials import CertificateSource
from a2a_trust.auth.guard_config import CredentialAt
from a2a_trust.auth.peers import Networks
from a2a_trust.auth.principal import Verifier
from a2a_trust.base.net.urls import read_url
from a2a_trust.card.given import GivenCard
from a2a_trust.card.merge import CardSecurity
from a2a_trust.card.operations import Binding, ends_like_operation
from a2a_trust.card.schema import CARD_PATHS
from a2a_trust.card.view import CardView, read_card
from a2a_trust.errors import CardNotServedError, ConfigurationError, MalformedError, TrustError
from a2a_trust.keys.trust.origins import JWKS_PATH, origin_of
from a2a_trust.middleware.agents import Agent, Agents, CardOf, GuardedAgent
from a2a_trust.middleware.application import (
    Ask,
    CardFunction,
    FromApplication,
    GeneratedCard,
    ask_again,
    asking,
    card_of_application,
    check_urls,
    is_function,
)
from a2a_trust.middleware.audit import Observer, Trail
from a2a_trust.middleware.card import (
    CardReaders,
    CardSignedHere,
    CardSigner,
    CardSource,
    FixedCard,
    PublicCard,
    SignerSource,
    for_networks,
)
from a2a_trust.middleware.decision import Access, CallRules
from a2a_trust.middleware.documents import ASGIApp, Document, JwksEndpoint, ProtectedResource, PublishedKeys, Scope
from a2a_trust.middleware.door import AppT, Door, Installation, endpoint_at, readiness_of
from a2a_trust.middleware.extended_card import ExtendedCard, ExtendedCardEndpoint
from a2a_trust.middleware.options import RequestRules, exact_path, read_list, takes_requests
from a2a_trust.middleware.routing import Interfaces

if TYPE_CHECKING:
    from a2a_trust.auth.dpop import DPoP
    from a2a_trust.keys.signer import Signer

_log: Final = logging.getLogger(__name__)

_MOST_HIDDEN: Final = 20
_PARAMETER: Final = re.compile(r"\{(\w+)(?::\w+)?\}")
_REST_OF_PATH: Final = re.compile(r"\{\w+:path\}")
#: Addresses that servers listen at; clients cannot connect to them everywhere.
_UNSPECIFIED: Final = ("0.0.0.0", "[::]")  # noqa: S104


class OtherFrontEnd(Protocol):
    """Serves the same agent by another protocol, with the guard of ``protect``."""

    def guard_by(self, access: Access, calls: CallRules, agent: ProtectedAgent, clock: Callable[[], float]) -> None:
        """ConfigurationError: the card or a rule cannot be enforced there."""


class SigningKeys(SignerSource, PublishedKeys, Protocol):
    """Something that knows which key signs now and which are published, such as ``KeyRingFile``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardServing:
    """How the public card is served.

    - ``signer``: a key or a key ring that signs the card here.
    - ``lifetime``: how long a signature is valid, a timedelta or seconds, 60 or more. None: until the key is revoked.
    - ``companion``: as for ``sign_card``.
    - ``max_age``: how long callers may keep the card, in seconds.
    - ``readers``: who may read it: ``CardReaders``, or peers in ``Networks``.
    - ``card_paths``: further paths of the card, in addition to the two well-known ones.
    """

    signer: Signer | SigningKeys | None = None
    lifetime: float | timedelta | None = None
    companion: bool | None = None
    max_age: int = 300
    readers: CardReaders | Networks = CardReaders.EVERYBODY
    card_paths: Iterable[str] = ()

    def __post_init__(self) -> None:
        for name in ("lifetime", "companion"):
            if self.signer is None and getattr(self, name) is not None:
                raise ConfigurationError(f"{name}: there is no signer; write CardServing(signer=…, {name}=…)")
        if not isinstance(self.readers, CardReaders | Networks):
            raise ConfigurationError('readers: write CardReaders.CALLERS or Networks("10.0.0.0/8", …)')
        paths = tuple(exact_path("card_paths", path) for path in read_list("card_paths", self.card_paths))
        object.__setattr__(self, "card_paths", paths)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtectedAgent:
    """One of several agents in an application: its card, and the other options of ``protect``.

    Paths in its options are paths of the whole application, and lie below the agent's prefix. Paths that belong to no
    interface must be named in ``rules.other_paths``.
    """

    card: GivenCard | CardSource | CardFunction | FromApplication = field(repr=False)
    verifiers: Mapping[str, Verifier[Any] | CredentialAt] = field(repr=False)
    url: str | None = None
    security: CardSecurity | None = None
    serving: CardServing = CardServing()
    extended_card: ExtendedCard | None = None
    rules: RequestRules = RequestRules()  # noqa: RUF009  frozen
    client_certificates: CertificateSource | None = None
    dpop: DPoP | None = None
    grpc: OtherFrontEnd | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.verifiers, Mapping):
            raise ConfigurationError(
                "verifiers: write a dict, by the names of the card's schemes: verifiers={'key': …}"
            )
        card: object = self.card
        if card is FromApplication:
            raise ConfigurationError("card: write FromApplication(), with parentheses")
        if not isinstance(self.serving, CardServing):
            raise ConfigurationError(
                "serving: write CardServing(…), as in CardServing(signer=load_private_key('key.pem'))"
            )
        if not isinstance(self.rules, RequestRules):
            raise ConfigurationError("rules: write RequestRules(…), as in RequestRules(other_paths=['/docs'])")
        if self.security is not None and not isinstance(self.security, CardSecurity):
            raise ConfigurationError("security: write CardSecurity(schemes={…}, requirements=[…])")
        if self.security is not None and isinstance(self.card, CardSource):
            raise ConfigurationError(
                f"security: {type(self.card).__name__} serves cards as they are, so nothing can be added; pass the "
                "card itself"
            )


def protect(
    app: AppT,
    *,
    card: GivenCard | CardSource | CardFunction | FromApplication,
    verifiers: Mapping[str, Verifier[Any] | CredentialAt],
    url: str | None = None,
    security: CardSecurity | None = None,
    serving: CardServing = CardServing(),
    extended_card: ExtendedCard | None = None,
    rules: RequestRules = RequestRules(),  # noqa: B008  frozen
    client_certificates: CertificateSource | None = None,
    dpop: DPoP | None = None,
    grpc: OtherFrontEnd | None = None,
    observer: Observer | None = None,
    clock: Callable[[], float] = time.time,
) -> AppT:
    """Put ``app`` behind its card: only callers that the card allows reach it, and the card is served.

    A Starlette or FastAPI application is returned itself, with the guard in front of everything it does. Any other ASGI
    application is wrapped: the result is a ``ProtectedApplication``, with its public attributes. Serve only the
    returned application, on asyncio or uvloop.

    - ``card``: the agent's own card. A dict, bytes, JSON text, a ``Path`` (read once), an ``AgentCard`` of a2a-sdk or
      ``a2a_trust.card.models``, or a source such as ``CardFile``. For a card that exists late, pass a function, sync or
      async, or ``FromApplication()``. It is served at both well-known paths, in place of the application's own.
    - ``verifiers``: a verifier for every scheme that the card demands, by the scheme's name in the card.
    - ``url``: the agent's public URL. With it, the metadata of the protected resource is served and named in
      challenges, and the key set is served and named in signatures (``jku``, only for https). Without it, pages may
      call with a cookie, a password or a client certificate only if ``rules`` name their origin.
    - ``security``: schemes and requirements to add to a card without them.
    - ``serving``: how the card is served and signed.
    - ``extended_card``: the card for authenticated callers.
    - ``rules``: which requests are accepted.
    - ``client_certificates``: where the certificates of callers come from: ``FromTls()`` or ``FromProxy(…)``.
    - ``dpop``: accepts tokens that are bound to a key of their client, with a proof. Without it they are rejected.
    - ``grpc``: ``GrpcGuard()`` of ``a2a_trust.grpc``, which guards the agent's gRPC server by the same card and rules.
    - ``observer``: gets every decision, for metrics and traces, such as ``OpenTelemetryObserver()``.

    ConfigurationError: a rule of the card would not be enforced, or an option is wrong. For a card that exists late,
    the lifespan fails to start with this error. Without a lifespan the error is logged, all requests get 503, and the
    card is made again at most once in ten seconds.
    """
    installation = Installation(app)
    agent = ProtectedAgent(
        card=card,
        verifiers=verifiers,
        url=url,
        security=security,
        serving=serving,
        extended_card=extended_card,
        rules=rules,
        client_certificates=client_certificates,
        dpop=dpop,
        grpc=grpc,
    )
    made = _agent(installation.unguarded, agent, "", clock, trail := Trail(observer), is_alone=True)
    if made.guarded is None:
        return installation.finish(Agents(installation.unguarded, {"": made}, trail))
    made.guarded.door.on_start = partial(_warn_of_hidden, app, made.guarded.door)  # the application has all routes then
    return installation.finish(made.guarded.door)


def protect_agents(
    app: AppT,
    agents: Mapping[str, ProtectedAgent],
    *,
    unguarded_paths: Iterable[str] = (),
    card_of: CardOf | None = None,
    lifespans: Iterable[ASGIApp] = (),
    observer: Observer | None = None,
    clock: Callable[[], float] = time.time,
) -> AppT:
    """Put several agents of one application behind their cards, each behind its own.

    - ``agents``: the agents by the prefix of their paths (``"/billing"``). Only the card of the agent with the longest
      matching prefix applies to a request. ``"/"`` is for all paths below no other prefix. The card and the key set of
      an agent are served below its prefix; its metadata is at the root (RFC 9728).
    - ``unguarded_paths``: paths of no agent that reach the application unchecked; entries as in ``other_paths``. Every
      other path of no agent gets 404.
    - ``card_of``: a function for the well-known paths at the root. It gets the parameters of the query, and returns the
      prefix of the agent whose card is meant, or None.
    - ``lifespans``: applications that are mounted in ``app`` and whose lifespan must run; Starlette does not run it.
    - ``observer``: as for ``protect``; a decision has the prefix of its agent.

    ConfigurationError: as for ``protect``, and for agents that share a path.
    """
    installation = Installation(app)
    inner = installation.unguarded
    made, trail = {}, Trail(observer)
    for prefix, agent in _by_prefix(agents).items():
        try:
            made[prefix] = _agent(inner, agent, prefix, clock, trail.of(prefix or "/"), is_alone=False)
        except TrustError as error:
            raise ConfigurationError(f"agent {prefix or '/'!r}: {error}") from None
    mounted = _check_lifespans(app, lifespans)
    unguarded = read_list("unguarded_paths", unguarded_paths)
    return installation.finish(Agents(inner, made, trail, unguarded=unguarded, card_of=card_of, lifespans=mounted))


def _check_lifespans(app: ASGIApp, lifespans: Any) -> tuple[ASGIApp, ...]:
    if not isinstance(lifespans, Iterable) or isinstance(lifespans, str):
        raise ConfigurationError("lifespans: write a list, even of one: lifespans=[…]")
    mounted = tuple(lifespans)
    for each in mounted:
        if isinstance(each, type) or not takes_requests(each):
            raise ConfigurationError(
                f"lifespans: {each!a:.128} is not an ASGI application; write the application that is mounted"
            )
        if each is app:
            raise ConfigurationError("lifespans: the application's own lifespan runs anyway; leave it out")
    if len({*map(id, mounted)}) < len(mounted):
        raise ConfigurationError("lifespans: an application is listed twice; name each once")
    return mounted


def _by_prefix(agents: Any) -> dict[str, ProtectedAgent]:
    """The agents by their prefixes; the prefix of an agent at "/" is empty."""
    if not isinstance(agents, Mapping) or not agents:
        raise ConfigurationError('agents: write {"/prefix": ProtectedAgent(card=…, verifiers=…), …}')
    found: dict[str, ProtectedAgent] = {}
    urls: dict[str, str] = {}
    for given, agent in agents.items():
        if not isinstance(given, str) or not given.startswith("/"):
            raise ConfigurationError(f"agents: a prefix begins with a slash: {f'/{given}'!r:.128}")
        prefix = "" if given == "/" else exact_path("agents", given)
        if not isinstance(agent, ProtectedAgent):
            raise ConfigurationError(
                f"agents: {given!r} is a {type(agent).__name__}; write ProtectedAgent(card=…, verifiers=…)"
            )
        if prefix.endswith("/"):
            raise ConfigurationError(f"agents: write the prefix without a slash at its end: {given.rstrip('/')!r}")
        if agent.url is not None and urls.setdefault(agent.url.rstrip("/"), given) != given:
            raise ConfigurationError(
                f"agents: {given!r} and {urls[agent.url.rstrip('/')]!r} have the same url=, so each would accept "
                "tokens for the other; give each its own"
            )
        path = urlsplit(agent.url or prefix).path.rstrip("/")
        if not path.endswith(prefix) and not agent.rules.served_at:
            raise ConfigurationError(
                f"agents: url={agent.url!a:.128} does not end with the prefix {prefix!r}; make both alike, or, behind "
                "a proxy that changes paths, write rules=RequestRules(served_at={url: path})"
            )
        found[prefix] = agent
    return found


def _agent(
    app: ASGIApp, agent: ProtectedAgent, prefix: str, clock: Callable[[], float], trail: Trail, *, is_alone: bool
) -> Agent:
    """The agent behind its card, now or when the card exists."""
    jku = f"{agent.url.rstrip('/')}{JWKS_PATH}" if agent.url is not None and agent.url.startswith("https://") else None
    serving = agent.serving
    signer = None
    if serving.signer is not None:
        signer = CardSigner(serving.signer, lifetime=serving.lifetime, jku=jku, companion=serving.companion)
    guarded = partial(_guard, app, agent, prefix, signer, clock, trail, is_alone=is_alone)

    def finish(card: GivenCard) -> GivenCard:
        return card if agent.security is None else agent.security.added_to(card)

    def sign(card: GivenCard) -> CardSource:
        return FixedCard(card, clock=clock) if signer is None else CardSignedHere(card, signer, clock=clock)

    proxy: Any = getattr(agent.client_certificates, "headers", None)
    headers = proxy if isinstance(proxy, frozenset) else frozenset()  # the guard says what is wrong with others
    options: dict[str, Any] = {"name": "" if is_alone else prefix or "/", "certificate_headers": headers}
    card: Any = agent.card
    ask: Ask | None = asking(card) if is_function(card) else None
    if isinstance(card, FromApplication):
        ask = partial(card_of_application, app, card, prefix, agent.url)
    if ask is not None:

        async def make(asked_from: Scope) -> GuardedAgent:
            source = GeneratedCard(ask, finish, sign)
            await source.make(asked_from)
            return guarded(source)

        return Agent(make=make, **options)
    if not isinstance(card, CardSource):
        return Agent(guarded=guarded(sign(finish(card))), **options)
    if signer is not None:
        raise ConfigurationError(
            f"card: {type(card).__name__} serves cards as they are, so the signer of serving= would not sign; pass the "
            "card itself, or leave out the signer"
        )
    return Agent(guarded=guarded(card), **options)


def _guard(
    app: ASGIApp,
    agent: ProtectedAgent,
    prefix: str,
    signer: CardSigner | None,
    clock: Callable[[], float],
    trail: Trail,
    source: CardSource,
    *,
    is_alone: bool,
) -> GuardedAgent:
    view = read_card(source.document(clock()).body)
    of_grpc = [each.url for each in view.interfaces if agent.grpc is not None and each.binding == Binding.GRPC]
    rules = replace(agent.rules, unguarded=(*agent.rules.unguarded, *of_grpc))
    _warn_of_unspecified(agent.url, view)
    if isinstance(agent.card, FromApplication):
        check_urls([interface.url for interface in view.interfaces], agent.url)
    resource = _resource_of(agent, view, clock)
    access = Access(
        view,
        agent.verifiers,
        rules=rules,
        url=agent.url,
        certificates=agent.client_certificates,
        dpop=agent.dpop,
        resource_metadata=None if resource is None else resource.url,
        trail=trail,
    )
    interfaces = access.interfaces
    _check_hosts(agent.url, interfaces, agent.dpop)
    cards = _public_cards(source, view, agent.serving, prefix, clock, trail)
    of_url = _of_url(agent, prefix, resource, clock)
    extended = ExtendedCardEndpoint(
        view, agent.extended_card, signer=signer, application=app, security=agent.security, trail=trail, clock=clock
    )
    calls = CallRules(access, rules, extended, others_must_be_named=not is_alone)
    _check_paths(prefix, agent, interfaces, of_url)
    is_for_callers = agent.serving.readers is CardReaders.CALLERS  # the cards are served behind the guard then
    ready = partial(readiness_of, access.guard, _AsEnforced(source, view), clock)
    documents = {**({} if is_for_callers else cards), **of_url, **endpoint_at(rules.readiness_path, ready)}
    door = Door(
        app,
        access,
        calls=calls,
        documents=documents if is_alone else {},  # documents of several agents are found before the agent is
        for_callers=cards if is_for_callers else {},
        ends_streams=rules.end_streams_with_credential,
        clock=clock,
    )
    door.readiness = ready
    if agent.grpc is not None:
        agent.grpc.guard_by(access, calls, agent, clock)
    named = (*rules.other_paths, *rules.public_paths)
    return GuardedAgent({} if is_alone else documents, door, interfaces.served_paths, named)


def _resource_of(agent: ProtectedAgent, view: CardView, clock: Callable[[], float]) -> ProtectedResource | None:
    if agent.url is None:
        return None
    bound = agent.client_certificates is not None
    return ProtectedResource(agent.url, view, agent.verifiers, dpop=agent.dpop, certificate_bound=bound, clock=clock)


def _of_url(
    agent: ProtectedAgent, prefix: str, resource: ProtectedResource | None, clock: Callable[[], float]
) -> dict[str, ASGIApp]:
    """Metadata and key set by their paths; they need the agent's URL."""
    if agent.url is None or resource is None:
        return {}
    path = urlsplit(agent.url).path.rstrip("/")
    # A proxy may remove a part of the path, or add the agent's prefix; it does so with these paths, too.
    documents: dict[str, ASGIApp] = {resource.path if path.endswith(prefix) else f"{prefix}{resource.path}": resource}
    signer = agent.serving.signer
    if signer is not None:
        from a2a_trust.keys.signer import Signer  # it loads cryptography

        keys = JwksEndpoint((signer.public_key,) if isinstance(signer, Signer) else signer, clock=clock)
        # The jku has the URL's path. Requests may come without it, if a proxy removes it.
        documents[f"{prefix}{JWKS_PATH}"] = keys
        if path.endswith(prefix):
            documents[f"{path}{JWKS_PATH}"] = keys
    return documents


def _check_paths(prefix: str, agent: ProtectedAgent, interfaces: Interfaces, taken: Collection[str]) -> None:
    """Return when all paths of the agent are below its prefix, and no path of the card is used for something else."""
    ready = agent.rules.readiness_path
    for option, paths in (
        ("card_paths", agent.serving.card_paths),
        ("other_paths", agent.rules.other_paths),
        ("public_paths", agent.rules.public_paths),
        ("readiness_path", () if ready is None else (exact_path("readiness_path", ready),)),
    ):
        for path in paths:
            if not f"{path}/".startswith(f"{prefix}/"):
                raise ConfigurationError(f"{option}: {path!a:.128} is not below the prefix of its agent, {prefix!r}")
            if option != "other_paths" and path in map(f"{prefix}{{}}".format, CARD_PATHS):
                raise ConfigurationError(
                    f"{option}: the card is served at {path!a:.128} anyway, and CardServing(readers=…) says who may "
                    "read it; leave this path out"
                )
    named = {*taken, *agent.rules.public_paths, *agent.rules.other_paths, *agent.serving.card_paths}
    own = [("card_paths", path, taken) for path in agent.serving.card_paths]
    for option, path, others in own if ready is None else (*own, ("readiness_path", ready, named)):
        if path in others or path in interfaces.served_paths or ends_like_operation(path):
            raise ConfigurationError(
                f"{option}: {path!a:.128} is the path of an interface, of an operation of A2A or of another document, "
                "or another option names it; choose another path"
            )
    for path in interfaces.served_paths:
        if f"{prefix}/" not in f"{path}/":  # a root path may stand before it
            raise ConfigurationError(
                f"the card has an interface at {path!a:.128}, which is not below the prefix {prefix!r}; correct the "
                "prefix or the card's URL, or say where the application has it: RequestRules(served_at={url: path})"
            )


def _public_cards(
    source: CardSource, view: CardView, serving: CardServing, prefix: str, clock: Callable[[], float], trail: Trail
) -> dict[str, ASGIApp]:
    is_shared = serving.readers is CardReaders.EVERYBODY
    card: ASGIApp = PublicCard(_AsEnforced(source, view), max_age=serving.max_age, shared=is_shared, clock=clock)
    if isinstance(source, GeneratedCard):
        card = ask_again(card, source)
    if isinstance(serving.readers, Networks):
        card = for_networks(card, serving.readers, trail)
    return dict.fromkeys([*(f"{prefix}{path}" for path in CARD_PATHS), *serving.card_paths], card)


def _check_hosts(url: str | None, interfaces: Interfaces, dpop: Any) -> None:
    """Return when ``url``, the card's interfaces and DPoP agree about the agent's host."""
    if url is None:
        return
    host, base = _origin(url).partition("://")[2], getattr(dpop, "url", url)
    if interfaces.url is not None and _origin(interfaces.url).partition("://")[2] != host:
        raise ConfigurationError(
            f"url: {url!a:.128} has another host than the card's interface {interfaces.url!a:.128}; make both the same"
        )
    if _origin(base) != _origin(url):
        raise ConfigurationError(
            f"url: {url!a:.128} has another origin than DPoP(url={base!a:.128}), so every proof would be rejected; "
            "make both the same"
        )


def _warn_of_unspecified(url: str | None, view: CardView) -> None:
    """Log a warning for URLs with the address that a server listens at; they lead callers to their own machine."""
    for place, each in (("url", url or ""), *(("the card's interface", one.url) for one in view.interfaces)):
        with suppress(MalformedError):  # other checks report an ambiguous URL
            if read_url(each).host in _UNSPECIFIED:
                _log.warning(
                    "%s: %s has the address that a server listens at, which no caller can connect to; write the name "
                    "that callers use, such as http://localhost:8000",
                    place,
                    ascii(each)[:128],
                )


def _warn_of_hidden(app: Any, door: Door) -> None:
    """Log one warning with the routes of the application that no request reaches, and the option that opens them."""
    hidden = [entry for entry, path, methods in _routes(app) if all(door.hides(each, path) for each in methods)]
    if hidden:
        more = f", and {len(hidden) - _MOST_HIDDEN} more" if len(hidden) > _MOST_HIDDEN else ""
        _log.warning(
            "these routes of the application belong to no interface of the card, so no request reaches them; if "
            "callers may have them, write rules=RequestRules(other_paths=%s)%s",
            *(ascii(hidden[:_MOST_HIDDEN]), more),
        )


def _routes(app: Any, prefix: str = "") -> Iterator[tuple[str, str, Collection[str | None]]]:
    """The routes of a Starlette application: how ``other_paths`` names each, a path of it, and its methods."""
    routes = getattr(app, "routes", None)
    for route in routes if isinstance(routes, list) else ():  # another framework may mean something else by it
        path = f"{prefix}{getattr(route, 'path', '')}"
        if isinstance(route, Mount):
            yield from [*_routes(route, path)] or [(f"{path}/", f"{path}/x", ("GET",))]
        elif isinstance(route, Route | WebSocketRoute):
            rest = _REST_OF_PATH.search(path)
            entry = _PARAMETER.sub(r"{\1}", path) if rest is None else path[: rest.start()]
            yield entry, _PARAMETER.sub("x", path), getattr(route, "methods", None) or (None,)


def _origin(url: str) -> str:
    try:
        return origin_of(url)
    except MalformedError:
        return url


class _AsEnforced:
    """The card of a source, as long as its rules are those that the guard enforces; else CardNotServedError."""

    def __init__(self, source: CardSource, view: CardView) -> None:
        self._source, self._rules = source, _rules(view)
        self._seen: Document | None = None
        self._is_as_enforced = False

    def document(self, now: float) -> Document:
        document = self._source.document(now)
        if document is not self._seen:
            self._seen, self._is_as_enforced = document, False
            self._is_as_enforced = _rules(read_card(document.body)) == self._rules
        if not self._is_as_enforced:
            raise CardNotServedError("its rules differ from those that are enforced; restart the agent to enforce them")
        return document


def _rules(view: CardView) -> tuple[Any, ...]:
    # A skill without requirements has no rules.
    skills = tuple(skill for skill in view.skills if skill.requirements is not None)
    return view.schemes, view.requirements, view.interfaces, skills, view.has_extended_card, view.has_push_notifications
