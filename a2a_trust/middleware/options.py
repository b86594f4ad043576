"""Options of an agent that several parts read, and checks of options.

A wrong option is a ConfigurationError at start that says how to write it.
"""

from __future__ import annotations

from asyncio import timeout
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from inspect import iscoroutinefunction, signature
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from a2a_trust.auth.principal import Actor, Anonymous, Principal, id_of
from a2a_trust.auth.throttle import FailureLimits
from a2a_trust.auth.token_claims import MOST_ACTORS
from a2a_trust.errors import ConfigurationError, MalformedError
from a2a_trust.keys.trust.origins import Origins, origin_of
from a2a_trust.middleware.calls import Call

if TYPE_CHECKING:
    from a2a_trust.base.net.fetcher import Fetcher

MAX_BODY: Final = 16_777_216

RULE_SECONDS: Final = 1.0
"""How long an async rule may take."""

SkillRule: TypeAlias = Callable[[Call, bytes], str | None]
"""The id of the skill that a call is for, by the call and its body; None if it is for no certain skill."""

TenantRule: TypeAlias = Callable[[Principal | Anonymous, str], bool | Awaitable[bool]]
"""Whether a caller may use a tenant, whose name is not empty: a plain or an async function. Only True allows it."""

WebhookHostRule: TypeAlias = Callable[[Principal | Anonymous, str], bool | Awaitable[bool]]
"""Whether a caller may register webhooks at a host: a plain or an async function. Only True allows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorRules:
    """Which actors may act for a caller, of those that the issuer of the caller's token names (RFC 8693 4.1).

    - ``most``: how many actors a token may name; 0 accepts callers themselves only.
    - ``may_act``: the actors that may act, ``[Actor(issuer="https://idp.example", subject="planner")]``, or a plain
      function that returns True for an ``Actor``; None: all. Each actor of a token has to be one, earlier ones too.
    """

    most: int = 3
    may_act: Iterable[Actor] | Callable[[Actor], bool] | None = None

    def __post_init__(self) -> None:
        if type(self.most) is not int or not 0 <= self.most <= MOST_ACTORS:
            raise ConfigurationError(f"ActorRules: most={self.most!r:.40} must be a number, 0 to {MOST_ACTORS}")
        if self.may_act is None or (callable(self.may_act) and not iscoroutinefunction(self.may_act)):
            return
        actors = tuple(self.may_act) if isinstance(self.may_act, Iterable) else ()
        if not actors or not all(isinstance(actor, Actor) for actor in actors):
            raise ConfigurationError(
                'ActorRules: may_act: write a list of Actor(issuer="https://idp.example", subject="planner"), or a '
                "plain function (def or lambda, not async def) of an Actor; to accept no actor, write most=0"
            )
        object.__setattr__(self, "may_act", frozenset(actors))

    def objection(self, actors: tuple[Actor, ...]) -> str:
        """Why these actors are not accepted; "" if they are."""
        if len(actors) > self.most:
            return f"token: act names {len(actors)} actors; to accept so many, write ActorRules(most={len(actors)})"
        rule = (lambda _: True) if self.may_act is None else self.may_act
        rejected = [each for each in actors if (rule(each) if callable(rule) else each in rule) is not True]
        hint = "to accept it, add it to ActorRules(may_act=[...])"
        return f"token: the actor {id_of(rejected[0])!a:.200} may not act here; {hint}" if rejected else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardRules:
    """Which callers an application accepts, in addition to the rules of its card: the rules of
    ``CardEnforcementMiddleware``.

    - ``public_paths``: exact paths that anybody may GET without a credential (``"/healthz"``), in addition to the
      well-known paths of the card, for which ``readers`` counts.
    - ``unguarded``: URLs of interfaces in the card that are served elsewhere or by other means (gRPC). This guard
      cannot protect them.
    - ``served_at``: by the URL of an interface, the path at which the application sees it. Needed where a proxy changes
      paths and ``root_path`` does not say so.
    - ``allow_anonymous``: permits a card that admits callers without a credential. The next anonymous request cannot
      ask for the tasks of this one.
    - ``handlers_check_skills``: states that the agent's code checks the requirements of single skills, with
      ``require_skill``. Without it, an agent whose skills demand more than the card does not start.
    - ``allowed_origins``: origins of pages (``"https://app.example"``) that may call with a cookie, a password or a
      client certificate. Pages of the agent's own origin always may.
    - ``allow_cors_preflight``: passes preflights on to the application, without a credential and without a body.
    - ``hide_credentials``: removes credentials from requests before the application sees them. Write False for an
      application that verifies the same credential itself, or forwards it.
    - ``keep_subject_token``: keeps the access token of the caller for ``subject_token_of``, hidden or not.
    - ``actors``: which actors may act for callers, by their tokens: three at most, if it is left out.
    - ``failures``: how many wrong passwords and API keys are accepted, and in how much time.
    """

    public_paths: Iterable[str] = ()
    unguarded: Iterable[str] = ()
    served_at: Mapping[str, str] = field(default_factory=dict)
    allow_anonymous: bool = False
    handlers_check_skills: bool = False
    allowed_origins: Iterable[str] = ()
    allow_cors_preflight: bool = False
    hide_credentials: bool = True
    keep_subject_token: bool = False
    actors: ActorRules = field(default_factory=ActorRules)
    failures: FailureLimits = field(default_factory=FailureLimits)

    def __post_init__(self) -> None:
        for name in ("public_paths", "unguarded", "allowed_origins"):
            object.__setattr__(self, name, read_list(name, getattr(self, name)))
        if not isinstance(self.served_at, Mapping):
            raise ConfigurationError('served_at: write a dict: served_at={"https://host/path": "/path"}')
        for switch in [each.name for each in fields(self) if each.type == "bool"]:
            value = getattr(self, switch)
            if type(value) is not bool:
                raise ConfigurationError(f"{switch}: write True or False, not {value!r:.40}")
        if not isinstance(self.actors, ActorRules):
            raise ConfigurationError("actors: write ActorRules(…), as in actors=ActorRules(most=1)")
        if not isinstance(self.failures, FailureLimits):
            raise ConfigurationError(
                'failures: write FailureLimits(…), as in failures=FailureLimits(by_credential="10/minute", '
                'by_peer="100/minute")'
            )
        for origin in self.allowed_origins:
            _check_origin(origin)


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhooks:
    """Which URLs callers may register: https, at a public address, without user information.

    - ``hosts``: names, as in ``["hooks.example.com", "*.example.org"]``, or a plain or async function of the caller and
      the host. Any public host, if it is left out.
    - ``ports``: the ports in URLs.
    - ``fetcher``: names private origins of your own webhooks; pass the same one to ``PushTransport``.
    """

    hosts: Iterable[str] | WebhookHostRule | None = None
    ports: Iterable[int] = (443,)
    fetcher: Fetcher | None = None

    def __post_init__(self) -> None:
        if self.hosts is not None and not callable(self.hosts):
            object.__setattr__(self, "hosts", read_list("hosts", self.hosts))
            Origins(*self.hosts)
        ports = tuple(self.ports)
        if not ports or not all(type(port) is int and 0 < port < 65_536 for port in ports):
            raise ConfigurationError("Webhooks: write ports as numbers from 1 to 65535, as in ports=[443, 8443]")
        object.__setattr__(self, "ports", ports)


@dataclass(frozen=True, slots=True)
class UnsafeAnyWebhook:
    """The guard accepts every webhook: the application checks them, and where its deliveries go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRules(GuardRules):
    """Which requests an agent accepts, in addition to the rules of its card: the rules of ``protect``. The other
    options are as in ``GuardRules``.

    - ``may_use_tenant``: a plain or async function that says which caller may use which tenant. Without it, requests
      that name a tenant are rejected.
    - ``other_paths``: paths of the application that belong to no interface. An entry is an exact path (``"/docs"``;
      ``"/"`` is only the root), a template (``"/tasks/{id}"``: each name in braces stands for one segment), or, when it
      ends in ``/``, all paths that begin with it. Name them with ``may_use_tenant``, with an extended card, and for
      each of several agents. A path that ends like an operation of A2A must be named in any case, exactly or by a
      template, if the card has no interface for it.
    - ``skill_of``: finds the skill of a call, whose requirements the guard then checks, in addition to the card's.
    - ``max_body``: the largest body of a call, in bytes.
    - ``readiness_path``: an exact path (``"/readyz"``) where everybody can read whether the agent is ready (200, 503).
    - ``end_streams_with_credential``: ends an answer that still runs when the caller's credential has expired or is
      revoked.
    - ``webhooks``: which webhooks callers may register. A card that promises push notifications needs it.
    """

    may_use_tenant: TenantRule | None = None
    skill_of: SkillRule | None = None
    other_paths: Iterable[str] = ()
    max_body: int = MAX_BODY
    readiness_path: str | None = None
    end_streams_with_credential: bool = False
    webhooks: Webhooks | UnsafeAnyWebhook | None = None

    def __post_init__(self) -> None:
        GuardRules.__post_init__(self)
        if self.may_use_tenant is not None:
            check_rule("may_use_tenant", self.may_use_tenant)
        if self.skill_of is not None:
            check_rule("skill_of", self.skill_of)
            if iscoroutinefunction(self.skill_of):
                raise ConfigurationError("skill_of: write a plain function (def or lambda, not async def)")
        object.__setattr__(self, "other_paths", read_list("other_paths", self.other_paths))
        if not isinstance(self.webhooks, Webhooks | UnsafeAnyWebhook | None):
            raise ConfigurationError('webhooks: write Webhooks(…), as in webhooks=Webhooks(hosts=["*.example.com"])')
        if type(self.max_body) is not int or self.max_body < 1:
            raise ConfigurationError(f"max_body: write a number of bytes, 1 or more, not {self.max_body!r:.40}")


def read_list(name: str, values: Any) -> tuple[str, ...]:
    """The values of an option that takes a list; ConfigurationError for a single string."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        example = f"[{values!r:.128}]" if isinstance(values, str) else "[…]"
        raise ConfigurationError(f"{name}: write a list, even of one: {name}={example}")
    return tuple(values)


def check_app(app: Any) -> None:
    if isinstance(app, type):
        raise ConfigurationError(f"app: {app.__name__} is a class; write {app.__name__}(), with parentheses")
    if callable(app) and not takes_requests(app):
        name = getattr(app, "__name__", type(app).__name__)
        raise ConfigurationError(
            f"app: {name} does not take (scope, receive, send), so it is not an ASGI application; if it returns one, "
            f"call it: {name}()"
        )
    if not callable(app):
        raise ConfigurationError(
            f"app: {type(app).__name__} is not an ASGI application; pass the application that your server runs, such "
            "as Starlette(…), FastAPI() or the SDK's own"
        )


def takes_requests(app: Any) -> bool:
    try:
        signature(app).bind("scope", "receive", "send")
    except TypeError:
        return False
    except ValueError:  # its arguments are not known
        return callable(app)
    return True


def check_rule(name: str, rule: Any) -> None:
    if not callable(rule):
        raise ConfigurationError(f"{name}: write a function (def, async def or lambda), as in {name}={_EXAMPLES[name]}")


async def allows(answer: Awaitable[object]) -> bool | None:
    """Whether the answer of an async rule is True; None without an answer within ``RULE_SECONDS``. Exceptions of the
    rule are raised."""
    limit = timeout(RULE_SECONDS)
    try:
        async with limit:
            is_true = await answer is True
    except TimeoutError:
        if not limit.expired():  # the rule's own
            raise
        return None
    return None if limit.expired() else is_true  # expired: the rule has swallowed its cancellation


_EXAMPLES = {
    "may_use_tenant": 'lambda caller, tenant: f"tenant:{tenant}" in caller.scopes',
    "skill_of": 'lambda call, body: "search" if call.operation in ("SendMessage", "SendStreamingMessage") else None',
    "may_read": 'lambda caller: "card" in caller.scopes',
}


def _check_origin(origin: Any) -> None:
    try:
        spelling = origin_of(origin) if type(origin) is str else ""
    except MalformedError:
        spelling = ""
    if origin != spelling or not origin.startswith(("https://", "http://")):
        fix = f"; write {spelling!r}" if spelling.startswith("http") else " as in 'https://app.example'"
        raise ConfigurationError(
            f"allowed_origins: {origin!a:.128} is not scheme, host and port as browsers send them{fix}"
        )
