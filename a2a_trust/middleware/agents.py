"""The agents of one application: which of them a request is for, and cards that exist late.

A request is for the agent whose prefix its path begins with; the longest counts. A path that a lenient router could
take for another agent's is of none, and is 404. So is a path of no agent, unless it is named.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from math import inf
from time import monotonic
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import parse_qsl

import anyio

from a2a_trust.card.operations import folded_path, is_foldable
from a2a_trust.card.schema import CARD_PATHS
from a2a_trust.errors import ConfigurationError, TrustError
from a2a_trust.middleware import audit
from a2a_trust.middleware.authentication import ends_like_card, is_exactly
from a2a_trust.middleware.documents import ASGIApp, Receive, Scope, Send, is_preflight, refuse
from a2a_trust.middleware.extended_card import respond
from a2a_trust.middleware.generated import ASK_SECONDS
from a2a_trust.middleware.lifespan import run_lifespans
from a2a_trust.middleware.routing import quoted, route_path
from a2a_trust.middleware.rules import NOT_FOUND, OtherPaths

__all__ = ["Agent", "Agents", "Behind", "CardOf", "Front"]

_log: Final = logging.getLogger(__name__)

_CARD_PATHS: Final = frozenset(CARD_PATHS)

CardOf: TypeAlias = Callable[[Mapping[str, str]], str | None]
"""Gives the prefix of the agent that the parameters of a query name, or None."""


class Behind(NamedTuple):
    """An application behind the card of an agent, the documents that anybody may read, by their paths, and the paths
    that the card and the rules name."""

    documents: Mapping[str, ASGIApp]
    app: ASGIApp
    named: tuple[str, ...]
    flush: Callable[[], None]


class Front:
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


class Agent:
    """One agent behind its card: ``behind`` is None until its card exists, and ``make`` makes it then."""

    def __init__(
        self,
        *,
        name: str = "",
        behind: Behind | None = None,
        make: Callable[[Scope], Awaitable[Behind]] | None = None,
    ) -> None:
        """``name`` is its prefix, for errors, where there are several."""
        self.behind, self._make = behind, make
        self._name = f"agent {name!r}: " if name else ""
        self._lock = anyio.Lock()
        self._failed_at, self._failure = -inf, ""

    async def start(self, around: Scope, accept: Callable[[Behind], None]) -> None:
        """Make it in the lifespan with this scope; ConfigurationError when that fails, or ``accept`` raises it."""
        async with self._lock:
            await self._start(around, accept)

    async def start_at_a_request(self, around: Scope, accept: Callable[[Behind], None]) -> None:
        """Make it, once in ten seconds at most. A failure is logged, and there is no agent then."""
        if monotonic() - self._failed_at < ASK_SECONDS:
            return
        async with self._lock:
            if monotonic() - self._failed_at < ASK_SECONDS:
                return
            try:
                with anyio.CancelScope(shield=True):  # whoever asked may go; the card is for all
                    await self._start(around, accept)
            except ConfigurationError as error:
                self._failed_at = monotonic()
                if str(error) != self._failure:
                    self._failure = str(error)
                    _log.error("requests are answered by 503: %s", error, exc_info=error.__cause__)

    async def _start(self, around: Scope, accept: Callable[[Behind], None]) -> None:
        if self.behind is not None or self._make is None:
            return
        try:
            behind = await self._make(around)
        except TrustError as error:
            raise ConfigurationError(f"{self._name}{error}") from None
        except Exception as error:  # the function that gives the card is anybody's
            raise ConfigurationError(
                f"{self._name}card: it could not be made: {type(error).__name__}: {error}"
            ) from error
        accept(behind)
        self.behind = behind


class Agents:
    """Passes each request on to its agent; runs the lifespans, and makes agents whose cards exist late."""

    def __init__(
        self,
        app: ASGIApp,
        agents: Mapping[str, Agent],
        *,
        unguarded: Sequence[str] = (),
        card_of: CardOf | None = None,
        lifespans: Sequence[ASGIApp] = (),
    ) -> None:
        """``agents`` are by their prefixes; that of an agent for all other paths is empty."""
        self._app, self._agents, self._lifespans = app, agents, lifespans
        self._prefixes = _Prefixes(agents)
        self._folded = {folded_path(prefix) if prefix else "": prefix for prefix in agents}
        self._folded_prefixes = _Prefixes(self._folded)
        if len(self._folded) < len(agents):
            raise ConfigurationError("agents: two prefixes differ only in their spelling; make them different")
        self._unguarded = OtherPaths("unguarded_paths", unguarded)
        for entry in unguarded:
            if ends_like_card(entry):
                raise ConfigurationError(
                    f"unguarded_paths: {entry!a:.128} ends like the path of a card, and the application's own card "
                    "would be public there; leave it out"
                )
            prefix = self._owner(entry.rstrip("/"))
            if prefix is not None or not self._is_clear(entry.rstrip("/"), prefix):
                raise ConfigurationError(
                    f"unguarded_paths: {entry!a:.128} is a path of the agent {prefix or '/'!r}, or looks like one; "
                    "leave it out, or name it in the rules of that agent"
                )
        if card_of is not None and "" in agents:
            raise ConfigurationError("card_of: the agent at '/' has its card at the root; leave one of them out")
        if card_of is not None and not callable(card_of):
            raise ConfigurationError("card_of: write a function, as in lambda query: f\"/agents/{query.get('id')}\"")
        self._card_of = card_of
        self._documents: dict[str, tuple[str, ASGIApp]] = {}
        self._paths = frozenset[str]()
        for prefix, agent in agents.items():
            if agent.behind is not None:
                self._accept(prefix, agent.behind)
        self._waiting = {prefix: agent for prefix, agent in agents.items() if agent.behind is None}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._run_lifespans(scope, receive, send)
            return
        if scope["type"] not in ("http", "websocket"):
            raise ConfigurationError(f"ASGI scope type {scope['type']!r} is not understood, so it is rejected")
        if self._waiting:
            await self._start_at_a_request(scope)
        if scope["type"] == "http":
            if self._card_of is not None and is_exactly(_CARD_PATHS, scope) and _is_read(scope):
                scope = self._for_card_of(scope, self._card_of)
            if is_exactly(self._paths, scope) and _is_read(scope):
                await self._documents[route_path(scope)][1](scope, receive, send)
                return
        await self._pass_on(scope, receive, send)

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = route_path(scope) or "/"
        prefix = self._owner(path)
        is_clear = self._is_clear(path, prefix)
        if prefix is not None and is_clear:
            agent = self._agents[prefix]
            if agent.behind is None:
                await _refuse(503, scope, receive, send)
            else:
                await agent.behind.app(scope, receive, send)
        elif prefix is None and is_clear and self._unguarded.has(path) and not ends_like_card(path):
            await self._app(scope, receive, send)
        else:
            audit.request_refused(scope, audit.Reason.UNDECLARED_PATH, _why(path, is_clear=is_clear))
            await _refuse(404, scope, receive, send)

    def _owner(self, path: str) -> str | None:
        """The longest prefix of an agent that the path is below."""
        return self._prefixes.longest(path)

    def _is_clear(self, path: str, owner: str | None) -> bool:
        """Whether the most lenient router finds the same agent, also one that takes a prefix off."""
        if not is_foldable(path):
            return False
        folded = folded_path(path)
        found = self._folded_prefixes.longest(folded)
        if (None if found is None else self._folded[found]) != owner:
            return False
        # FastAPI takes off the root_path that it was made with, which this layer knows nothing of. An agent names its
        # paths one by one; what is of no agent, or of the one for the rest, may be a subtree.
        return bool(owner) or self._unguarded.names(path) or not self._folded_prefixes.is_within(folded)

    def _for_card_of(self, scope: Scope, card_of: CardOf) -> Scope:
        """The request for the card of the agent that its query names; as it is where it names none."""
        pairs = parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
        prefix = None
        if len(dict(pairs)) == len(pairs):
            try:
                prefix = card_of(dict(pairs))
            except Exception as error:  # noqa: BLE001  the query is anybody's; what it does not expect names no agent
                _log.info("card_of: %s for a query", type(error).__name__)
        if not isinstance(prefix, str) or prefix not in self._agents:
            return scope
        path = route_path(scope)
        there = f"{scope['path'].removesuffix(path)}{prefix}{path}"
        return {**scope, "path": there, "raw_path": there.encode("ascii")}

    async def _start_at_a_request(self, scope: Scope) -> None:
        """Make the agent that the request is for; others must not hold it up."""
        path = route_path(scope)
        owner = self._owner(path)
        is_of_all = owner is None and "/.well-known/" in path  # where documents are, and card_of answers
        for prefix, agent in [*self._waiting.items()]:
            if prefix == owner or is_of_all:
                await agent.start_at_a_request(scope, partial(self._accept, prefix))
        self._wait_for_the_rest()

    async def _run_lifespans(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            started = partial(self._start, scope)
            await run_lifespans((self._app, *self._lifespans), scope, receive, send, started=started)
        finally:
            for agent in self._agents.values():
                if agent.behind is not None:
                    agent.behind.flush()

    async def _start(self, around: Scope) -> None:
        for prefix, agent in self._waiting.items():
            await agent.start(around, partial(self._accept, prefix))
        self._wait_for_the_rest()

    def _wait_for_the_rest(self) -> None:
        self._waiting = {prefix: agent for prefix, agent in self._waiting.items() if agent.behind is None}

    def _accept(self, prefix: str, behind: Behind) -> None:
        """Serve the documents of an agent; ConfigurationError when one of them is at a path of another agent."""
        for path in behind.named:
            owner = self._owner(path)
            if owner not in (prefix, "", None) or (not prefix and self._folded_prefixes.is_within(folded_path(path))):
                raise ConfigurationError(
                    f"agents: {prefix or '/'!r} has {path!a:.128} in its card or its rules, which is a path of another "
                    "agent, or could be read as one; correct the prefix, or take another path"
                )
        for path in behind.documents:
            below = self._owner(path)
            other = self._documents[path][0] if path in self._documents else below
            if other != prefix and (other or path in self._documents):
                raise ConfigurationError(
                    f"agents: {prefix or '/'!r} would have a document at {path!a:.128}, which belongs to "
                    f"{other or '/'!r}; give each its own url="
                )
        self._documents |= {path: (prefix, document) for path, document in behind.documents.items()}
        self._paths = frozenset(self._documents)


def _why(path: str, *, is_clear: bool) -> str:
    """Why there is nothing at this path, and what to write."""
    if not is_clear:
        return f"{quoted(path)} could be read as the path of another agent"
    if path in CARD_PATHS:
        return f"{quoted(path)} is of no agent; write card_of=... to say whose card is meant"
    if ends_like_card(path):
        return f"{quoted(path)} ends like the path of a card, and is of no agent"
    return f"{quoted(path)} is of no agent; write unguarded_paths=[{quoted(path)}] if everybody may have it"


class _Prefixes:
    """Finds the longest of these prefixes that a path is below, by their lengths: paths of callers may be long."""

    def __init__(self, prefixes: Iterable[str]) -> None:
        self._prefixes = frozenset(prefixes)
        self._lengths = sorted({len(prefix) for prefix in self._prefixes}, reverse=True)

    def longest(self, path: str) -> str | None:
        for length in self._lengths:
            if path[length : length + 1] in ("", "/") and path[:length] in self._prefixes:
                return path[:length]
        return None

    def is_within(self, path: str) -> bool:
        """Whether the path, less some first segments, is below one of the prefixes; the empty one is none."""
        return any(f"{path}/".find(f"{prefix}/", 1) > 0 for prefix in self._prefixes if prefix)


async def _refuse(status: int, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await receive()  # websocket.connect, which has to be taken before it can be refused
        await send({"type": "websocket.close", "code": 1008 if status == 404 else 1013, "reason": ""})
    elif status == 404:
        await respond(NOT_FOUND, None, scope, send)
    else:
        await refuse(send, status, [(b"retry-after", b"%d" % ASK_SECONDS), (b"cache-control", b"no-store")])
