"""``a2a-sign serve``: enforce an agent's card in front of it, by a configuration file."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import signal
import sys
from functools import partial
from pathlib import Path
from ssl import SSLContext, VerifyMode
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from a2a_trust.card.view import CardView, HttpScheme, MutualTlsScheme, OAuth2Scheme, OpenIdConnectScheme, read_card
from a2a_trust.cli.moments import rfc3339
from a2a_trust.cli.report import printable, put
from a2a_trust.cli.sources import read_input
from a2a_trust.errors import ConfigurationError
from a2a_trust.keys.trust.jwks_cache import JwksCache
from a2a_trust.keys.trust.origins import origin_of

if TYPE_CHECKING:
    from a2a_trust.serve.application import ServedAgent


def run(options: argparse.Namespace) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    if options.init is not None:
        _init(options.init)
    elif options.check:
        _check(Path(options.file))
    else:
        agent = _application().ServedAgent(options.file)
        asyncio.run(_serve(agent, Path(options.file).absolute().parent))


def _application() -> ModuleType:
    try:
        from a2a_trust.serve import application
    except ModuleNotFoundError as error:
        raise ConfigurationError(f'serve needs {error.name}: pip install "./a2a-trust[serve]"') from None
    return application


async def _serve(agent: ServedAgent, folder: Path) -> None:
    """Serve until SIGTERM or SIGINT; requests that run then have ``stop_within`` seconds."""
    from a2a_trust.servers import hypercorn

    class Config(hypercorn.Config):
        def create_ssl_context(self) -> SSLContext | None:
            context = super().create_ssl_context()
            if context is not None:
                agent.renew_certificate = partial(context.load_cert_chain, str(self.certfile), self.keyfile)
            return context

    listen, config = agent.configuration.listen, Config()
    config.bind = [listen.address]
    config.include_server_header = False
    config.graceful_timeout = listen.stop_within
    config.errorlog = logging.getLogger("hypercorn.error")
    if (listen.certificate is None) != (listen.key is None) or (listen.client_ca and listen.key is None):
        raise ConfigurationError("listen: write certificate and key, both, for https; client_ca needs them")
    if listen.key is not None:
        config.certfile, config.keyfile = str(folder / listen.certificate), str(folder / listen.key)
        if listen.client_ca is not None:
            config.ca_certs, config.verify_mode = str(folder / listen.client_ca), VerifyMode.CERT_OPTIONAL
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    await hypercorn.serve(agent, config, shutdown_trigger=stopped.wait)


class _JsonLines(logging.Formatter):
    """A line of JSON for each record of the log, with the values of audit events."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {"time": rfc3339(record.created), "level": record.levelname.lower()}
        line |= {"logger": record.name, "message": record.getMessage()}
        if "audit" in vars(record):
            line["audit"] = vars(record)["audit"]
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line)


def _check(path: Path) -> None:
    """Fetch the key sets, and say what would be enforced."""
    agent = _application().make_agent(path)
    configuration = agent.configuration
    sets = asyncio.run(_key_sets([*agent.objects.made.values()]))
    asked = getattr(configuration, "form", None)
    put(f"{path}: ok; {f'{asked} asks' if asked else f'requests go to {configuration.upstream.url}'}")
    for line in sets:
        put(line)
    card = configuration.card if isinstance(configuration.card, Path) else getattr(configuration.card, "path", None)
    if not isinstance(card, Path):
        put("  the card comes from the agent, when it runs")
        return
    view = read_card(read_input(str(path.absolute().parent / card)))
    for interface in view.interfaces:
        put(f"  {interface.binding} {printable(interface.url)}")
    for alternative in view.requirements or ():
        needs = (
            " ".join([f"{printable(name)} ({configuration.verifiers[name].type})", *map(printable, sorted(scopes))])
            for name, scopes in alternative.schemes
        )
        put(f"  callers need {' and '.join(needs) or 'no credential'}")


async def _key_sets(parts: list[Any]) -> list[str]:
    """A line for each key set of the verifiers. KeySourceUnavailableError: it cannot be fetched."""
    lines = []
    for part in parts:  # which grows meanwhile
        parts += (each for each in getattr(part, "parts", ()) if each not in parts)
        if isinstance(part, JwksCache):
            lines.append(f"  {printable(part.name)}: {len(await part.keys())} keys")
    return lines


_HEAD: Final = """\
# The configuration of a2a-sign serve: docs/serve.md. Paths are relative to this file.
card = {card}
url = {url}   # where callers reach the agent

[upstream]
url = "http://127.0.0.1:9000"   # the agent; only this proxy may reach it

[listen]
address = "127.0.0.1:8080"
# certificate = "server.pem"
# key = "server.key"

[caller]                        # how the agent gets to know its caller
plain = true                    # headers A2A-Caller-Id, A2A-Caller-Scopes, A2A-Caller-Client
# keys = "caller.json"          # or a signed A2A-Caller-Token: a2a-sign keys create caller.json

[rules]
# other_paths = ["/docs"]       # paths of the agent that belong to no interface of the card"""
_BEARER: Final = """type = "JwtVerifier"            # or a preset, such as "keycloak": docs/providers
issuer = "https://idp.example.com"
audience = {url}
keys = {{ type = "OpenIdKeys", issuer = "https://idp.example.com" }}"""
_KEY: Final = """type = "ApiKeyVerifier"         # a2a-sign api-key create --store keys.db --owner NAME
store = {{ type = "SqliteApiKeys", path = "keys.db" }}"""
_BASIC: Final = """type = "BasicVerifier"          # a2a-sign password create --store passwords.db --user NAME
source = {{ type = "SqlitePasswords", path = "passwords.db" }}"""
_TLS: Final = """type = "CertificateVerifier"
[[verifiers.{name}.authorities]]
name = "partners"
certificates = "ca.pem"         # listen.client_ca is the same file
identity = {{ type = "FromDns" }}
allowed = {{ type = "AllIssued" }}"""


def _init(card: str) -> None:
    """Print a file for a card, with a verifier for every scheme that its requirements name."""
    view = read_card(read_input(card))
    url = json.dumps(origin_of(view.interfaces[0].url) if view.interfaces else "https://agent.example.com")
    put(_HEAD.format(card=json.dumps(card), url=url))
    if any(interface.tenant for interface in view.interfaces):
        put('may_use_tenant = { scope = "tenant:{tenant}" }')
    if view.has_push_notifications:
        put('webhooks = { type = "Webhooks" }   # hosts = ["*.example.com"]: where callers may have notifications sent')
    if view.has_extended_card:
        put('\n[extended_card]\nsource = "extended-card.json"\nmay_read = { scopes = [] }')
    used = sorted({name for each in view.alternatives for name, _ in each.schemes})
    if any(isinstance(view.schemes[name], MutualTlsScheme) for name in used):
        put('\n[client_certificates]\ntype = "FromTls"')
    for name in used:
        quoted = json.dumps(name)
        put(f"\n[verifiers.{quoted}]\n{_verifier_for(view, name).format(url=url, name=quoted)}")


def _verifier_for(view: CardView, name: str) -> str:
    scheme = view.schemes[name]
    if isinstance(scheme, MutualTlsScheme):
        return _TLS
    if isinstance(scheme, HttpScheme) and scheme.scheme == "basic":
        return _BASIC
    return _BEARER if isinstance(scheme, OAuth2Scheme | OpenIdConnectScheme | HttpScheme) else _KEY
