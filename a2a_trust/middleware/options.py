"""Options of an agent that several parts read, checks of options, and the paths that options name.

A wrong option is a ConfigurationError at start that says how to write it. A path of an option is exact, a template or a
folder, and written as in requests. A path that a router could read as an operation of A2A, or as the path of a card, is
named only where that is meant.
"""

from __future__ import annotations

import re
from asyncio import timeout
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from inspect import iscoroutinefunction, signature
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from a2a_trust.auth.principal import Actor, Anonymous, Principal, id_of
from a2a_trust.auth.throttle import FailureLimits
from a2a_trust.auth.token_claims import MOST_ACTORS
from a2a_trust.base.cache import BoundedCache
from a2a_trust.card.operations import ends_like_operation, fold_path
from a2a_trust.card.schema import CARD_PATHS
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
    counts: BoundedCache[tuple[str, str], int] = field(
        default_factory=lambda: BoundedCache(max_entries=65_536), init=False, repr=False, compare=False
    )
    """How many webhooks a caller has registered for a task. They are kept here so that a new guard goes on counting."""

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


_NOT_EXACT: Final = re.compile(r"[?#%*{}\\\x00-\x20\x7f]|//|/\.{1,2}(?:/|$)")
_PLACEHOLDER: Final = re.compile(r"\{\w+\}")
_RESOLVED: Final = re.compile(r"//|\\|/\.{1,2}(?:/|$)|%")
_ENTRY: Final = re.compile(r"/|(?:/(?:\{\w+\}|[^/{}?#%*\\\x00-\x20\x7f])+)+/?")
_CARD_ENDINGS: Final = tuple(f"/{path.rpartition('/')[2]}" for path in CARD_PATHS)


def exact_path(option: str, path: Any) -> str:
    if type(path) is not str or not path.startswith("/") or not path.isascii() or _NOT_EXACT.search(path):
        raise ConfigurationError(
            f"{option}: {path!r:.128} is not an exact path; write it as in requests, such as '/healthz', not a pattern"
        )
    return path


def public_path(path: str) -> str:
    """A path of ``public_paths``; ConfigurationError when it is not exact, or is for callers only."""
    if ends_like_operation(path):
        raise ConfigurationError(f"public_paths: {path!r} is an operation of A2A, for callers only; leave it out")
    if path not in CARD_PATHS and ends_like_card(fold_path(path)):
        raise ConfigurationError(
            f"public_paths: {path!r} ends like the path of a card, and the application's own card would be public "
            "there; leave it out. protect() serves the card itself: mount it where the agent's prefix is"
        )
    return exact_path("public_paths", path)


def ends_like_card(folded: str) -> bool:
    return folded.endswith(_CARD_ENDINGS)


class OtherPaths:
    """The paths that an option names, in addition to the paths of the interfaces."""

    def __init__(self, option: str, entries: Sequence[str], interfaces: Sequence[str] = ()) -> None:
        for entry in entries:
            _check_entry(option, entry, interfaces)
        exact = [entry for entry in entries if entry == "/" or not entry.endswith("/")]
        self._subtrees = tuple(entry for entry in entries if entry not in exact)
        self._exact = frozenset(exact)
        templates = [entry for entry in exact if "{" in entry]
        self._templates = _matching(templates)
        # A template that is an operation only through its placeholders was meant for pages.
        self._operations = _matching([each for each in templates if ends_like_operation(_PLACEHOLDER.sub("x", each))])

    def names(self, path: str) -> bool:
        return path in self._exact

    def names_operation(self, path: str) -> bool:
        """Whether an entry is the path, or a template of it that itself ends like an operation."""
        return path in self._exact or self._operations.fullmatch(path) is not None

    def has(self, path: str) -> bool:
        """Whether an entry is the path, a template of it, or a folder above it."""
        if path in self._exact or self._templates.fullmatch(path):
            return True
        # A path that a lenient router resolves to another path is below no entry.
        return path.startswith(self._subtrees) and not _RESOLVED.search(path)


def _matching(templates: list[str]) -> re.Pattern[str]:
    patterns = ["[^/]+".join(map(re.escape, _PLACEHOLDER.split(template))) for template in templates]
    return re.compile("|".join(patterns) or r"(?!)")


def _check_entry(option: str, entry: Any, interfaces: Sequence[str]) -> None:
    if not isinstance(entry, str) or not _ENTRY.fullmatch(entry) or _RESOLVED.search(entry):
        raise ConfigurationError(
            f'{option}: {entry!a:.128} is not a path; write an exact path ("/docs"), a template ("/tasks/{{id}}"), or '
            'a prefix that ends in a slash ("/docs/")'
        )
    if entry == "/" or not entry.endswith("/"):
        return
    if "{" in entry:
        raise ConfigurationError(f"{option}: {entry!a} is a template and cannot stand for all paths below it")
    for path in interfaces:
        if f"{path}/".startswith(entry):
            raise ConfigurationError(
                f"{option}: {entry!a} covers the interface at {path!a}, whose requests must be checked; name the other "
                "paths one by one"
            )
