"""Finds the interface of a card that a request is for, by path and method.

The path of an interface in the application is the path of its URL without the server's ``root_path``. Behind a proxy
that changes paths it is the path in ``served_at``. It is never guessed. Source: A2A 1.0.1 5, 9.1, 11.1.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from a2a_trust.card.operations import (
    ABSENT_BESIDE_1_0,
    EXTENDED_CARD_0_2,
    ROUTES,
    Binding,
    Operation,
    ends_like_operation,
    fold_path,
    is_foldable,
    path_of_interface,
)
from a2a_trust.card.schema import Generation
from a2a_trust.card.view import CardView, Interface, NamedScheme
from a2a_trust.errors import ConfigurationError
from a2a_trust.middleware.documents import is_preflight


class Target(NamedTuple):
    """A request of an interface. ``operation`` is None where the body names it. ``tenants`` are the tenants in the
    path, for every way to read it."""

    binding: Binding
    generation: Generation | None = None
    operation: Operation | None = None
    tenants: frozenset[str] = frozenset()
    task_id: str = ""
    has_body: bool = True


class Other(NamedTuple):
    """A request of no interface. ``is_json_rpc``: a POST to the path is a request of an interface, or looks like it."""

    is_json_rpc: bool = False


class Undeclared(NamedTuple):
    """A request that looks like one of an interface, but belongs to none in the card. ``why`` says how to admit it."""

    why: str
    may_be_named: bool = True
    """Whether an entry of ``other_paths`` can admit it."""


Meaning = Target | Other | Undeclared

_OTHER: Final = Other()
_OTHER_AT_JSON_RPC: Final = Other(is_json_rpc=True)
_JSON_RPC: Final = Target(binding=Binding.JSONRPC)
_READ: Final = ("GET", "HEAD")
_OF_HTTP: Final = (Binding.JSONRPC, Binding.HTTP_JSON)


def route_path(scope: Mapping[str, Any]) -> str:
    """The path as Starlette's router sees it: without ``root_path``, if it begins with that, in whole segments."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    if root and path.startswith(root) and path[len(root) : len(root) + 1] in ("", "/"):
        return path[len(root) :]
    return path


def is_exact(scope: Mapping[str, Any]) -> bool:
    """Whether the path came without escapes or other spellings, which a router may read differently."""
    return scope.get("raw_path") in (None, scope["path"].encode())


def is_read(scope: Mapping[str, Any]) -> bool:
    """Whether the request is GET, HEAD or a preflight of exactly its path."""
    is_one = scope["type"] == "http" and (scope["method"] in _READ or is_preflight(scope))
    return is_one and is_exact(scope)


def quote_path(path: str) -> str:
    """The path as a string of a program, cut, in ASCII, for logs."""
    return json.dumps(path[:128])


class Interfaces:
    """The interfaces of a card that this application serves; finds the operation of each request.

    ``unguarded`` are the URLs of interfaces that are served elsewhere. ``served_at`` has paths by the URLs of
    interfaces, where the application's router sees another path than the URL has. ConfigurationError: an interface
    cannot be guarded here.
    """

    def __init__(
        self, card: CardView, *, unguarded: frozenset[str] = frozenset(), served_at: Mapping[str, str] | None = None
    ) -> None:
        served_at = served_at or {}
        guarded = _find_guarded(card, unguarded)
        _check_served_at(served_at, guarded)
        self._served = tuple(
            _ServedInterface(interface, urlsplit(interface.url).path or "/", served_at.get(interface.url))
            for interface in guarded
        )
        self._is_legacy = all(interface.is_legacy for interface in guarded)
        # A card of 0.1 names one URL: the URL of JSON-RPC, or the base of its REST paths.
        self._has_0_1 = any(isinstance(scheme, NamedScheme) for scheme in card.schemes.values()) or any(
            interface.generation is Generation.V0_1 for interface in guarded
        )
        self._below = lru_cache(maxsize=16)(self._paths_below)
        self._below("")  # of nearly all requests

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the interfaces: in their URLs, and in the application."""
        return tuple(path for served in self._served for path in served.paths)

    @property
    def served_paths(self) -> tuple[str, ...]:
        """The paths of the interfaces in the application, without regard to a root path."""
        return tuple(served.served_at or unquote(served.path) for served in self._served)

    @property
    def url(self) -> str | None:
        """The URL of one of the interfaces, which all have the same host; None without interfaces."""
        return self._served[0].url if self._served else None

    def meaning(self, path: str, root: str, method: str | None) -> Meaning:
        """The meaning of a request with this path, as the router sees it. A websocket's handshake has no method."""
        paths = self._below(root)
        if path in paths.json_rpc:
            if method == "POST":
                return _JSON_RPC
            if method in _READ:
                return _OTHER_AT_JSON_RPC
            return Undeclared(f"{quote_path(path)} accepts only POST, for JSON-RPC", may_be_named=False)
        if not is_foldable(path):
            return Undeclared(
                f"{quote_path(path)} is too long for a path with escapes or letters beyond ASCII", may_be_named=False
            )
        target = paths.target(path, method)
        if target is not None:
            return target
        if ends_like_operation(path):
            why = f"{quote_path(path)} ends like an operation of A2A, and no interface of the card has it for {method}"
            return self._explain(why, Binding.HTTP_JSON, path, root)
        folded = fold_path(path)
        # Applications may remove a prefix that this layer does not know, as FastAPI does with its own root_path.
        if method is None or not (folded in paths.like_json_rpc or folded.endswith(paths.ends_json_rpc)):
            return _OTHER
        if method in _READ:
            return _OTHER_AT_JSON_RPC
        if path.rstrip("/") in paths.json_rpc or f"{path}/" in paths.json_rpc:
            exact = path.rstrip("/") if path.endswith("/") else f"{path}/"
            why = (
                f"{quote_path(path)} differs from the JSON-RPC interface at {quote_path(exact)} only by a slash at its "
                f"end; call {quote_path(exact)}, or correct the URL in the card"
            )
            return Undeclared(why, may_be_named=not path.endswith("/"))
        why = f"{quote_path(path)} resembles the path of a JSON-RPC interface, but differs from it"
        return self._explain(why, Binding.JSONRPC, path, root)

    def language(self, path: str, root: str) -> tuple[Binding, bool]:
        """The binding for the answer to a rejected request, and whether its version is before 1.0."""
        paths = self._below(root)
        if path in paths.json_rpc:  # on a shared URL, clients of both versions understand the body of JSON-RPC
            return Binding.JSONRPC, False
        for base, generations in paths.bases:
            if f"{path}/".startswith(f"{base}/"):
                # Where both share a URL, 0.3 has its paths under /v1 (0.3, 3.2.3).
                is_shared = Generation.V1_0 in generations and len(generations) > 1
                is_legacy = path.startswith(f"{base}/v1/") if is_shared else Generation.V1_0 not in generations
                return Binding.HTTP_JSON, is_legacy
        return Binding.HTTP_JSON, self._is_legacy

    def _explain(self, why: str, binding: Binding, path: str, root_path: str) -> Undeclared:
        """``why`` with the option to write if a proxy has changed the path of an interface to this path."""
        base = path_of_interface(path) if binding is Binding.HTTP_JSON else path
        found = [served for served in self._served if served.binding is binding]
        # First the interface that ends like the request's path, for a prefix that was removed.
        found.sort(key=lambda served: not served.path.rstrip("/").endswith(base.rstrip("/")))
        if found:
            here = found[0].below(root_path)
            where = (
                f"is served at {quote_path(here)}" if here else f"is not below the root_path {quote_path(root_path)}"
            )
            why += (
                f"; {found[0].url} {where}: if a proxy changes its path, write "
                f"rules=RequestRules(served_at={{{quote_path(found[0].url)}: {quote_path(base)}}})"
            )
        return Undeclared(why)

    def _paths_below(self, root_path: str) -> _Paths:
        json_rpc: set[str] = set()
        likely: set[str] = set()
        bases: dict[str, set[Generation]] = {}
        extended: set[str] = set()
        for served in self._served:
            here = served.below(root_path)
            if served.binding is Binding.JSONRPC:  # also one that is not below the root path: routers accept it
                likely.update(served.paths)
            if here is None:
                continue
            base = here.rstrip("/")
            if served.binding is Binding.JSONRPC:
                json_rpc.add(here)
            else:
                bases.setdefault(base, set()).add(served.generation)
            if served.is_legacy:
                extended |= {above + EXTENDED_CARD_0_2 for above in ("", base, base.rpartition("/")[0])}
                if self._has_0_1:
                    bases.setdefault(base, set()).add(Generation.V0_1)
        # Longer paths first: of two bases that match, the longer one is meant.
        return _Paths(
            json_rpc=frozenset(json_rpc),
            bases=tuple(sorted(((base, frozenset(of)) for base, of in bases.items()), reverse=True)),
            extended_0_2=frozenset(extended),
            like_json_rpc=frozenset(fold_path(ending) for path in json_rpc | likely for ending in _endings(path)),
            ends_json_rpc=tuple({fold_path(path) for path in json_rpc | likely} - {"/"}),
        )


class _ServedInterface:
    def __init__(self, interface: Interface, path: str, served_at: str | None) -> None:
        self.url, self.path, self.served_at = interface.url, path, served_at
        self.binding, self.is_legacy = Binding(interface.binding), interface.is_legacy
        self.generation = interface.generation

    @property
    def paths(self) -> tuple[str, ...]:
        """The path of its URL, and its path in ``served_at``, if it has one."""
        here = unquote(self.path)
        return (here,) if self.served_at is None else (self.served_at, here)

    def below(self, root_path: str) -> str | None:
        """The path as the router sees it; None if the URL is not below ``root_path``."""
        if self.served_at is not None:
            return self.served_at
        path, root = unquote(self.path), root_path.rstrip("/")
        if not path.startswith(root) or path[len(root) : len(root) + 1] not in ("", "/"):
            return None
        return path[len(root) :] or "/"


class _Paths(NamedTuple):
    json_rpc: frozenset[str]
    bases: tuple[tuple[str, frozenset[Generation]], ...]
    extended_0_2: frozenset[str]
    like_json_rpc: frozenset[str]
    """The folded paths of JSON-RPC, and their endings, for a proxy that removes a prefix."""
    ends_json_rpc: tuple[str, ...]
    """The folded paths of JSON-RPC, as endings of longer paths."""

    def target(self, path: str, method: str | None) -> Target | None:
        """The operation that path and method name, with the tenants of all ways to read the path."""
        readings = [
            reading for base, generations in self.bases for reading in _readings(path, method, base, generations)
        ]
        if path in self.extended_0_2 and method in _READ:
            readings.append((Generation.V0_3, Operation.GET_EXTENDED_CARD, "", ""))
        if not readings:
            return None
        generation, operation, task, _ = readings[0]
        return Target(
            binding=Binding.HTTP_JSON,
            generation=generation,
            operation=operation,
            tenants=frozenset(tenant for *_, tenant in readings if tenant),
            task_id=task,
            has_body=method == "POST",
        )


def _readings(
    path: str, method: str | None, base: str, generations: frozenset[Generation]
) -> Iterator[tuple[Generation, Operation, str, str]]:
    """The generation, the operation, the task and the tenant of every way to read the path; older generations first,
    like the routes of servers for several generations."""
    method = "GET" if method == "HEAD" else method
    if path.startswith(f"{base}/"):
        rest = path[len(base) :]
        for generation in sorted(generations):
            for operation, task in _matches(generation, method, rest):
                if generation is not Generation.V0_3 or Generation.V1_0 not in generations:
                    yield generation, operation, task, ""
                elif operation not in ABSENT_BESIDE_1_0:
                    yield generation, operation, task, ""
                    return  # a path of 0.3 below /v1 has no tenant of 1.0
    if Generation.V1_0 in generations:
        for tenant, rest in _tenants(path, base):
            for operation, task in _matches(Generation.V1_0, method, rest):
                yield Generation.V1_0, operation, task, tenant


def _tenants(path: str, base: str) -> Iterator[tuple[str, str]]:
    """Tenant and path of the operation. The tenant is after the interface's path (A2A 11.1), or before it (a2a-sdk)."""
    if path.startswith(f"{base}/"):
        tenant, slash, rest = path[len(base) + 1 :].partition("/")
        if tenant and slash:
            yield tenant, f"/{rest}"
    if base:
        tenant, slash, rest = path[1:].partition("/")
        if tenant and slash and f"/{rest}".startswith(f"{base}/"):
            yield tenant, f"/{rest}"[len(base) :]


_PATTERNS: Final[dict[tuple[Generation, str | None], list[tuple[Operation, re.Pattern[str]]]]] = {
    (generation, method): [
        (route.operation, re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(route.template))))
        for route in routes
        if method in route.methods
    ]
    for generation, routes in ROUTES.items()
    for method in ("GET", "POST", "DELETE")
}


def _matches(generation: Generation, method: str | None, rest: str) -> Iterator[tuple[Operation, str]]:
    for operation, pattern in _PATTERNS.get((generation, method), ()):
        match = pattern.fullmatch(rest)
        if match is not None:
            yield operation, match.groupdict().get("task", "")
            return


def _endings(path: str) -> Iterator[str]:
    """The path, and its endings without the first segments."""
    yield path
    for at, char in enumerate(path):
        if char == "/" and at:
            yield path[at:]
    yield "/"


def _find_guarded(view: CardView, unguarded: frozenset[str]) -> list[Interface]:
    """The interfaces that are guarded; ConfigurationError for one that cannot be guarded here."""
    unknown = unguarded - {interface.url for interface in view.interfaces}
    if unknown:
        raise ConfigurationError(
            f"unguarded: the card has no interface {', '.join(sorted(unknown))}; write URLs as they stand in the card"
        )
    guarded = [interface for interface in view.interfaces if interface.url not in unguarded]
    host = _split(guarded[0].url, guarded[0].pointer).netloc if guarded else ""
    for interface in guarded:
        parts = _split(interface.url, interface.pointer)
        if interface.binding in _OF_HTTP and not parts.netloc:
            raise ConfigurationError(
                f"{interface.pointer}: {interface.url!a:.128} has no host; write the whole URL, https://host/path"
            )
        if interface.binding not in _OF_HTTP or parts.scheme not in ("http", "https") or parts.netloc != host:
            raise ConfigurationError(
                f"{interface.pointer}: this application cannot guard {interface.url} ({interface.binding}); protect it "
                f"where it is served, and write rules=RequestRules(unguarded=[{interface.url!r}])"
            )
    return guarded


def _check_served_at(served_at: Mapping[str, Any], guarded: list[Interface]) -> None:
    known = {interface.url for interface in guarded}
    for url, path in served_at.items():
        if url not in known:
            raise ConfigurationError(
                f"served_at: the card has no interface {url!a} that is guarded here; it has {', '.join(sorted(known))}"
            )
        if not isinstance(path, str) or not path.startswith("/"):
            raise ConfigurationError(
                f'served_at: the path of {url!a} must begin with a slash, as in "/rpc"; not {path!a}'
            )


def _split(url: str, pointer: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:
        raise ConfigurationError(f"{pointer}: {url[:128]!a} is not a URL; write https://host/path") from None
