"""An agent behind its card, by a configuration file that is read again after a change.

A change counts whole or not at all: a file that is not valid, or an agent that does not start with it, leaves the
agent as it was, and the log says why. Stores, memories of proofs, counters of failures and caches stay. Requests that
run meanwhile end by the rules with which they began.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup

from a2a_trust.auth.throttle import FailureLimits, KeptLimits
from a2a_trust.base.databases.availability import Pooled
from a2a_trust.base.files.watched import Stamp, stamp_of_path
from a2a_trust.errors import ConfigurationError, TrustError
from a2a_trust.keys.ring_file import KeyRingFile
from a2a_trust.keys.signer import LocalSigner
from a2a_trust.middleware.calls import INVALID
from a2a_trust.middleware.documents import ASGIApp, Receive, Scope, Send, close_websocket
from a2a_trust.middleware.lifespan import Lifespan
from a2a_trust.middleware.options import RequestRules
from a2a_trust.middleware.protection import protect
from a2a_trust.middleware.rejection import rejection_of, send_rejection
from a2a_trust.serve.caller_token import CallerTokens
from a2a_trust.serve.configuration import read_configuration
from a2a_trust.serve.forms import FORWARD_AUTH, PROTECT, Objects
from a2a_trust.serve.forward_auth import ForwardAuth
from a2a_trust.serve.proxy import ReverseProxy, reason_to_reject

_log: Final = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 1.0


@dataclass(slots=True, kw_only=True)
class Version:
    """The agent of one version of the file. ``files`` were read once, with their stamps."""

    configuration: Any
    objects: Objects
    rules: RequestRules
    app: ASGIApp
    proxy: ReverseProxy | None
    files: dict[Path, Stamp | None]

    async def close(self, after: Version) -> None:
        """Close what the version after it does not use, and the connections to the agent when no request needs them."""
        kept = {id(each) for each in after.objects.made.values()}
        for each in self.objects.made.values():
            if isinstance(each, Pooled) and id(each) not in kept:
                await each.aclose()
        if self.proxy is not None:
            await self.proxy.stop()


def make_agent(path: Path, before: Version | None = None) -> Version:
    """The agent that a file describes. ConfigurationError, OSError, another TrustError: it cannot start so."""
    stamp = stamp_of_path(path)
    configuration = read_configuration(path)
    objects = Objects(path.absolute().parent, None if before is None else before.objects)
    is_proxy = hasattr(configuration, "upstream")
    names = configuration.model_fields_set & {*(PROTECT if is_proxy else FORWARD_AUTH).model_fields} - {"type"}
    arguments = {name: objects.make(getattr(configuration, name), name) for name in names}
    arguments["rules"] = _with_kept_counters(arguments.get("rules", RequestRules()), before)
    for card in (arguments["card"], getattr(arguments.get("extended_card"), "source", None)):
        if isinstance(card, Path):
            objects.files.append(card)
    listen = configuration.listen
    objects.files += [objects.folder / each for each in (listen.certificate, listen.key) if each is not None]
    stamps = {file: stamp_of_path(file) for file in objects.files}  # before they are read
    about = {"tokens": _tokens_of(configuration, objects), "plain": configuration.caller.plain}
    objects.before = None  # else every version would keep all that were before it
    proxy = None
    if is_proxy:
        upstream = configuration.upstream
        proxy = ReverseProxy(upstream.url, timeout=upstream.timeout, connections=upstream.connections, **about)
    app: ASGIApp = ForwardAuth(**arguments, **about) if proxy is None else protect(proxy, **arguments)
    return Version(
        configuration=configuration,
        objects=objects,
        rules=arguments["rules"],
        app=app,
        proxy=proxy,
        files={path: stamp, **stamps},
    )


def _with_kept_counters(rules: RequestRules, before: Version | None) -> RequestRules:
    """The rules with the counters of failures of the version before, unless their limits have changed."""
    limits = {each.name: getattr(rules.failures, each.name) for each in fields(FailureLimits)}
    kept = KeptLimits(**limits)
    return replace(rules, failures=before.rules.failures if before and before.rules.failures == kept else kept)


def _tokens_of(configuration: Any, objects: Objects) -> CallerTokens | None:
    caller = configuration.caller
    if caller.keys is None:
        return None
    audience = caller.audience or getattr(getattr(configuration, "upstream", None), "url", "").rstrip("/")
    if configuration.url is None or not audience:
        raise ConfigurationError(
            'caller.keys: tokens need the agent\'s url, and its audience if a proxy asks; write url = "https://…"'
        )
    passphrase = objects.make(caller.passphrase, "caller.passphrase")
    ring = KeyRingFile(objects.folder / caller.keys, passphrase=passphrase)
    _check_own_keys(ring, objects.made.values())
    return CallerTokens(ring, issuer=configuration.url, audience=audience)


def _check_own_keys(ring: KeyRingFile, others: Iterable[Any]) -> None:
    """ConfigurationError: a key that signs the card, or something else in the file, also signs tokens about callers."""
    ours = {key.public_key.thumbprint for key in ring.ring().keys}
    for each in others:
        keys = [key.public_key for key in each.ring().keys] if isinstance(each, KeyRingFile) else []
        keys += [each.public_key] if isinstance(each, LocalSigner) else []
        if not ours.isdisjoint(key.thumbprint for key in keys):
            raise ConfigurationError(
                "caller.keys: one of its keys has another use in this file, such as to sign the card; make a key ring "
                "of its own: a2a-sign keys create caller.json"
            )


class ServedAgent:
    """The agent of a configuration file, as an ASGI application: ``ServedAgent("agent.toml")``.

    The file is read again on SIGHUP, and within two seconds after it or a file that it names has changed.
    ConfigurationError, OSError: it is not valid, or cannot be read.
    """

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)
        self._agent = make_agent(self._path)
        self._told = asyncio.Event()
        self.renew_certificate: Callable[[], None] = lambda: None

    @property
    def configuration(self) -> Any:
        """The configuration that is in force."""
        return self._agent.configuration

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        reason = reason_to_reject(scope)
        if reason is None:
            await self._agent.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await close_websocket(receive, send)
        else:
            _log.info("rejected before the guard: %s", reason)
            await send_rejection(rejection_of(INVALID, None), scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()  # lifespan.startup
        async with anyio.create_task_group() as tasks:
            self._life = _Life(self._agent.app)
            failure = await self._life.begin(tasks)
            if not failure:
                await send({"type": "lifespan.startup.complete"})
                watching = asyncio.create_task(self._watch(tasks))
                await receive()  # lifespan.shutdown
                watching.cancel()
                with suppress(asyncio.CancelledError):
                    await watching
            await self._life.lifespan.stop()
            tasks.cancel_scope.cancel()
        ended = {"type": "lifespan.shutdown.complete"}
        await send({"type": "lifespan.startup.failed", "message": failure} if failure else ended)

    async def _watch(self, tasks: TaskGroup) -> None:
        """Read the file again whenever it has changed, or SIGHUP has come."""
        with suppress(NotImplementedError, RuntimeError, ValueError, AttributeError):  # only the main thread can
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._told.set)
        seen = self._agent.files
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._told.wait()
            stamps = {path: stamp_of_path(path) for path in self._agent.files}
            if self._told.is_set() or stamps != seen:
                self._told.clear()
                seen = self._agent.files if await self._reload(tasks) else stamps

    async def _reload(self, tasks: TaskGroup) -> bool:
        before = self._agent
        try:
            agent = await asyncio.to_thread(make_agent, self._path, before)
            if agent.configuration.listen != before.configuration.listen:
                raise ConfigurationError("listen: it changes only with a restart")
            self.renew_certificate()
            life = _Life(agent.app)
            if failure := await life.begin(tasks):
                raise ConfigurationError(f"the agent does not start: {failure}")
        except (TrustError, OSError, ValueError) as error:
            _log.error("%s cannot be used; keeping the previous version: %s", self._path, error)
            return False
        old, self._life, self._agent = self._life, life, agent
        _log.warning("%s was read again", self._path)
        old.scope.cancel()  # not stopped, because it would close the stores that both use
        await before.close(agent)
        return True


class _Life:
    """The lifespan of one version."""

    def __init__(self, app: ASGIApp) -> None:
        self.lifespan = Lifespan(app, {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}})
        self.scope = anyio.CancelScope()

    async def begin(self, tasks: TaskGroup) -> str:
        """Start; returns the failure, or an empty string."""
        tasks.start_soon(self._run)
        return await self.lifespan.started()

    async def _run(self) -> None:
        with self.scope:
            await self.lifespan.run()
