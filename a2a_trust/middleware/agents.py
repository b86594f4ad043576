"""The agents of one application: finds the agent of each request, and makes agents whose cards exist late.

A request is for the agent with the longest prefix that its path begins with. These paths get 404: a path that a lenient
router could read as another agent's, and a path below no prefix unless ``unguarded_paths`` names it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from inspect import iscoroutinefunction
from math import inf
from time import monotonic
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import parse_qsl

import anyio

from a2a_trust.auth.credentials import lines_without
from a2a_trust.base.cache import SingleFlight
from a2a_trust.card.operations import fold_path, is_foldable
from a2a_trust.card.schema import CARD_PATHS
from a2a_trust.card.view import CardView
from a2a_trust.errors import ConfigurationError, TrustError
from a2a_trust.middleware import audit
from a2a_trust.middleware.application import ASK_SECONDS
from a2a_trust.middleware.caller import Running, this_task
from a2a_trust.middleware.decision import CONTROL
from a2a_trust.middleware.documents import ASGIApp, Receive, Scope, Send, close_websocket, send_without_body
from a2a_trust.middleware.door import NOT_STARTED, Door, Readiness
from a2a_trust.middleware.lifespan import closing, run_lifespans
from a2a_trust.middleware.options import OtherPaths, ends_like_card
from a2a_trust.middleware.rejection import NOT_FOUND, rejection_of, send_rejection
from a2a_trust.middleware.routing import is_read, quote_path, route_path

_log: Final = logging.getLogger(__name__)

_LONGEST: Final = 8_192
"""The longest path, in characters: every path is folded before its caller is known."""
_MOST_SIGNS: Final = 64
"""The most parameters and escapes of a query that ``card_of`` gets: each takes its time, before the caller is known."""

CardOf: TypeAlias = Callable[[Mapping[str, str]], str | None]
"""Returns the prefix of the agent that the parameters of a query name, or None."""


class GuardedAgent(NamedTuple):
    """An application behind the card of an agent, the public documents that it has among several agents by their paths,
    the paths of its interfaces, and the paths that its rules name."""

    documents: Mapping[str, ASGIApp]
    door: Door
    interfaces: tuple[str, ...]
    named: tuple[str, ...]


class Agent:
    """One agent: ``guarded`` is None until its card exists, and ``make`` makes it then."""

    def __init__(
        self,
        *,
        name: str = "",
        certificate_headers: frozenset[bytes] = frozenset(),
        guarded: GuardedAgent | None = None,
        make: Callable[[Scope], Awaitable[GuardedAgent]] | None = None,
    ) -> None:
        """``name`` is its prefix, for errors, where there are several. ``certificate_headers`` are the headers in which
        its proxy writes the client's certificate."""
        self.guarded, self._make = guarded, make
        self.certificate_headers = certificate_headers
        self.name: str = f"agent {name!r}: " if name else ""
        self._flights = SingleFlight[str, None]()
        self._failed_at, self._logged = -inf, ""

    async def start(self, asked_from: Scope, accept: Callable[[GuardedAgent], None]) -> ConfigurationError | None:
        """Make it for the lifespan or the request with this scope; returns the error if that failed. Concurrent calls
        wait for one start, which goes on when their clients disconnect."""
        try:
            await self._flights.run("", partial(self._start, asked_from, accept))
        except ConfigurationError as error:
            return error
        return None

    async def start_at_a_request(self, asked_from: Scope, accept: Callable[[GuardedAgent], None]) -> None:
        """Make it, once in ten seconds at most. A failure is logged, and the agent stays missing."""
        if monotonic() - self._failed_at < ASK_SECONDS:
            return
        error = await self.start(asked_from, accept)
        if error is not None and str(error) != self._logged:
            self._logged = str(error)
            _log.error("requests get 503 until the card can be made: %s", error, exc_info=error.__cause__)

    async def _start(self, asked_from: Scope, accept: Callable[[GuardedAgent], None]) -> None:
        if self.guarded is not None or self._make is None:
            return
        try:
            guarded = await self._make(asked_from)
            accept(guarded)
        except TrustError as error:
            self._failed_at = monotonic()
            raise ConfigurationError(f"{self.name}{error}") from None
        except Exception as error:  # user code may raise anything
            self._failed_at = monotonic()
            raise ConfigurationError(
                f"{self.name}card: making it failed with {type(error).__name__}: {error}"
            ) from error
        self.guarded = guarded


class Agents:
    """Passes each request on to its agent; runs the lifespans, and makes agents whose cards exist late."""

    def __init__(
        self,
        app: ASGIApp,
        agents: Mapping[str, Agent],
        trail: audit.Trail,
        *,
        unguarded: Sequence[str] = (),
        card_of: CardOf | None = None,
        lifespans: Sequence[ASGIApp] = (),
    ) -> None:
        """``agents`` are by their prefixes; the prefix of an agent for all other paths is empty."""
        self._app, self._agents, self._lifespans, self._trail = app, agents, lifespans, trail
        self._prefixes = _Prefixes(agents)
        self._spelled = {fold_path(prefix) if prefix else "": prefix for prefix in agents}
        self._folded = _Prefixes(self._spelled)
        if len(self._spelled) < len(agents):
            raise ConfigurationError("agents: two prefixes differ only in their spelling; make them different")
        self._unguarded, self._entries = OtherPaths("unguarded_paths", unguarded), tuple(unguarded)
        for entry in unguarded:
            self._check_unguarded(entry)
        _check_card_of(card_of, agents)
        self._card_of = card_of
        self._certificate_headers = frozenset[bytes]().union(*(each.certificate_headers for each in agents.values()))
        self._documents: dict[str, tuple[str, ASGIApp]] = {}
        for prefix, agent in agents.items():
            if agent.guarded is not None:
                self._accept(prefix, agent.guarded)
        self._waiting = {prefix: agent for prefix, agent in agents.items() if agent.guarded is None}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        this_task()
        if scope["type"] == "lifespan":
            start = partial(self._start, scope)
            try:
                apps = (self._app, *self._lifespans)
                await run_lifespans(apps, scope, receive, closing(send, self._close), started=start)
            finally:
                self._trail.flush()
            return
        if scope["type"] not in ("http", "websocket"):
            raise ConfigurationError(f"ASGI scope type {scope['type']!r} is not understood, so it is rejected")
        path = route_path(scope)
        if self._waiting:
            await self._start_at_a_request(scope, path)
        if path in CARD_PATHS and self._card_of is not None and is_read(scope):
            there = f"{self._find_meant(scope, self._card_of)}{path}"
            whole = f"{scope['path'].removesuffix(path)}{there}"
            scope, path = {**scope, "path": whole, "raw_path": whole.encode()}, there
        if path in self._documents and is_read(scope):
            await self._documents[path][1](scope, receive, send)
            return
        await self._pass_on(path or "/", scope, receive, send)

    async def _close(self) -> None:
        for agent in self._agents.values():
            if agent.guarded is not None:
                await agent.guarded.door.access.guard.aclose()

    def card_for(self, method: str, path: str) -> tuple[str, CardView] | None:
        """As for a ``Door``; None also for paths of no agent."""
        prefix = self._prefixes.longest(path)
        guarded = None if prefix is None else self._agents[prefix].guarded
        found = None if guarded is None else guarded.door.card_for(method, path)
        return None if found is None else (prefix or "", found[1])

    def readiness(self) -> Readiness:
        """Ready when all agents are."""
        agents = self._agents.values()
        known = [(each.name, each.guarded.door.readiness() if each.guarded else NOT_STARTED) for each in agents]
        problems = {f"{name}{part}": why for name, each in known for part, why in each.problems.items()}
        return Readiness(all(each.ready for _, each in known), problems)

    async def _pass_on(self, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        prefix = self._prefixes.longest(path)
        why = self._why_not(path, prefix)
        if why:
            self._trail.rejected(scope, why, audit.Decision(audit.Reason.UNDECLARED_PATH, status=404))
            await _send_status(404, scope, receive, send)
        elif prefix is None:
            with Running(None, None):
                await self._app(self._without_certificates(scope), receive, send)
        else:
            agent = self._agents[prefix]
            if agent.guarded is None:
                await _send_status(503, scope, receive, send)
            else:
                inner = self._without_certificates(scope, agent.certificate_headers)
                await agent.guarded.door(inner, receive, send)

    def _why_not(self, path: str, prefix: str | None) -> str:
        """Why a path below that prefix gets 404, and what to write; empty when it does not."""
        if len(path) > _LONGEST or not is_foldable(path):
            return f"the path {quote_path(path)} is too long"
        if CONTROL.search(path):
            return f"the path {quote_path(path)} has a control character"
        folded = fold_path(path)
        is_named = self._unguarded.names(path)
        if self._is_of_another(folded, prefix) or (self._is_within_another(folded) and not is_named):
            return f"{quote_path(path)} could be read as the path of another agent{self._hint(path)}"
        if prefix is not None:
            return ""
        if path in CARD_PATHS:
            missing = "write card_of=... to say whose card is meant"
            advice = "card_of names no agent for this query" if self._card_of else missing
            return f"{quote_path(path)} belongs to no agent; {advice}"
        if ends_like_card(folded):
            return f"{quote_path(path)} ends like the path of a card, and belongs to no agent"
        if self._unguarded.has(path):
            return ""
        hint = self._hint(path) or f"; if it is public, write unguarded_paths=[{quote_path(path)}]"
        return f"{quote_path(path)} belongs to no agent{hint}"

    def _hint(self, path: str) -> str:
        """Advice for a path that looks like an interface at another path."""
        for prefix, agent in self._agents.items():
            for interface in () if agent.guarded is None else agent.guarded.interfaces:
                if path != "/" and (interface.endswith(path) or path.endswith(interface)):
                    return (
                        f"; the agent {prefix or '/'!r} has {quote_path(interface)}: write prefixes and paths without "
                        "the server's root path, and correct the root path or the URL in the card if they differ"
                    )
        return ""

    def _is_of_another(self, folded: str, prefix: str | None) -> bool:
        """Whether a lenient router finds another agent than the one with this prefix."""
        found = self._folded.longest(folded)
        return (None if found is None else self._spelled[found]) != prefix

    def _is_within_another(self, folded: str) -> bool:
        """Whether a router that removes first segments finds another agent. FastAPI removes the root_path that it was
        made with, which this layer does not know."""
        found = self._folded.longest(folded) or ""
        return self._folded.is_within(f"/{folded[len(found) :]}")

    def _without_certificates(self, scope: Scope, own: frozenset[bytes] = frozenset()) -> Scope:
        """The request without the headers of certificates and the secrets of proxies, except an agent's own."""
        hidden = self._certificate_headers - own
        return {**scope, "headers": lines_without(hidden, scope["headers"])} if hidden else scope

    def _find_meant(self, scope: Scope, card_of: CardOf) -> str:
        """The prefix of the agent whose card the query of a request names; empty if it names none."""
        query = scope.get("query_string", b"")
        if query.count(b"%") + query.count(b"&") > _MOST_SIGNS:
            return ""
        pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
        prefix = None
        if len(dict(pairs)) == len(pairs):
            try:
                prefix = card_of(dict(pairs))
            except Exception as error:  # noqa: BLE001  user code may raise anything for a caller's text
                _log.info("card_of raised %s for a query, so no agent is meant", type(error).__name__)
        return prefix if isinstance(prefix, str) and prefix in self._agents else ""

    async def _start_at_a_request(self, scope: Scope, path: str) -> None:
        """Make the agent that the request is for; requests for other agents do not wait."""
        owner = self._prefixes.longest(path)
        is_of_all = not owner and "/.well-known/" in path  # the place of documents, and of card_of
        async with anyio.create_task_group() as tasks:
            for prefix, agent in self._waiting.items():
                if prefix == owner or is_of_all:
                    tasks.start_soon(agent.start_at_a_request, scope, partial(self._accept, prefix))
        self._wait_for_the_rest()

    async def _start(self, scope: Scope) -> str:
        """Make all agents whose cards exist now; returns the failures, or an empty string."""
        failures: list[str] = []

        async def start(prefix: str, agent: Agent) -> None:
            error = await agent.start(scope, partial(self._accept, prefix))
            if error is not None:
                failures.append(str(error))

        async with anyio.create_task_group() as tasks:
            for prefix, agent in self._waiting.items():
                tasks.start_soon(start, prefix, agent)
        self._wait_for_the_rest()
        return "; ".join(failures)

    def _wait_for_the_rest(self) -> None:
        self._waiting = {prefix: agent for prefix, agent in self._waiting.items() if agent.guarded is None}

    def _check_unguarded(self, entry: str) -> None:
        if ends_like_card(fold_path(entry)):
            raise ConfigurationError(
                f"unguarded_paths: {entry!a:.128} ends like the path of a card, and the application's own card "
                "would be public there; leave it out"
            )
        path = entry.rstrip("/")
        prefix = self._prefixes.longest(path)
        folded = fold_path(path)
        is_never_meant = self._is_within_another(folded) and not self._unguarded.names(path)
        if prefix is not None or self._is_of_another(folded, prefix) or is_never_meant:
            raise ConfigurationError(
                f"unguarded_paths: {entry!a:.128} is a path of the agent {prefix or '/'!r}, or could be read as one of "
                "an agent; leave it out, or name it in the rules of that agent"
            )

    def _accept(self, prefix: str, guarded: GuardedAgent) -> None:
        """Serve the documents of an agent; ConfigurationError when one of its paths could be another agent's."""
        for path in (*guarded.interfaces, *guarded.named):
            self._check_path(prefix, path)
        for path in guarded.interfaces:
            opened = next((entry for entry in self._entries if _opens(entry, path)), None)
            if opened is not None:
                raise ConfigurationError(
                    f"unguarded_paths: with a root path, {opened!a:.128} would open {path!a:.128} of the agent "
                    f"{prefix or '/'!r}; leave it out, and write prefixes without the server's root path"
                )
        for path in guarded.documents:
            owner = self._documents[path][0] if path in self._documents else self._prefixes.longest(path)
            if owner != prefix and (owner or path in self._documents):
                raise ConfigurationError(
                    f"the agent {prefix or '/'!r} would have a document at {path!a:.128}, which belongs to "
                    f"{owner or '/'!r}; give each its own url="
                )
        self._documents |= {path: (prefix, document) for path, document in guarded.documents.items()}

    def _check_path(self, prefix: str, path: str) -> None:
        """Return when the path of an interface or of a rule is that agent's own, also for a lenient router."""
        owner = self._prefixes.longest(path)
        if prefix and not owner:  # below the root path, which is not known here
            return
        folded = fold_path(path)
        if owner != prefix or self._is_of_another(folded, prefix) or self._is_within_another(folded):
            raise ConfigurationError(
                f"{path!a:.128}, in the card or the rules of the agent {prefix or '/'!r}, is a path of another agent, "
                "or could be read as one; correct the prefix, or choose another path"
            )


class _Prefixes:
    """Finds the longest of these prefixes that a path is below. It compares by length, since paths may be long."""

    def __init__(self, prefixes: Iterable[str]) -> None:
        self._prefixes = frozenset(prefixes)
        self._lengths = sorted({len(prefix) for prefix in self._prefixes}, reverse=True)
        within = "|".join(re.escape(prefix[1:]) for prefix in self._prefixes if prefix)
        #: After a segment: one search for all of them.
        self._within = re.compile(rf"./(?:{within})(?:/|\Z)" if within else r"(?!)")

    def longest(self, path: str) -> str | None:
        for length in self._lengths:
            if path[length : length + 1] in ("", "/") and path[:length] in self._prefixes:
                return path[:length]
        return None

    def is_within(self, path: str) -> bool:
        """Whether the path, without some first segments, is below one of the prefixes that are not empty."""
        return self._within.search(path) is not None


def _opens(entry: str, interface: str) -> bool:
    """Whether an unguarded entry could be the interface, when a root path is removed from one of them."""
    if entry == "/" or interface == "/" or "{" in entry:
        return False
    if entry.endswith("/"):  # all paths below it; whole segments only, or "/health" would be in "/healthcheck/rpc"
        return entry in f"{interface}/"[1:]
    return interface.endswith(entry) or entry.endswith(interface)


def _check_card_of(card_of: Any, agents: Mapping[str, Agent]) -> None:
    if card_of is None:
        return
    if not callable(card_of) or iscoroutinefunction(card_of):
        raise ConfigurationError("card_of: write a plain function (def or lambda, not async def) of the parameters")
    if "" in agents:
        raise ConfigurationError("card_of: the agent at '/' has its card at the root; leave out card_of or that agent")


async def _send_status(status: int, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await close_websocket(receive, send, 1008 if status == 404 else 1013)
    elif status == 404:
        await send_rejection(rejection_of(NOT_FOUND, None), scope, receive, send)
    else:
        await send_without_body(send, status, [(b"retry-after", b"%d" % ASK_SECONDS), (b"cache-control", b"no-store")])
