"""``a2a-sign serve``: enforce an agent's card in front of it, by a configuration file."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from ssl import SSLContext, VerifyMode
from typing import TYPE_CHECKING, Any, Final

from a2a_trust.card.view import (
    CardView,
    HttpScheme,
    MutualTlsScheme,
    OAuth2Scheme,
    OpenIdConnectScheme,
    SecurityScheme,
    read_card,
)
from a2a_trust.cli.moments import rfc3339
from a2a_trust.cli.report import Exit, printable, put, report_failure, run_and_report
from a2a_trust.cli.sources import read_input
from a2a_trust.errors import ConfigurationError, TrustError

if TYPE_CHECKING:
    from a2a_trust.serve.application import ServedAgent


def run(options: argparse.Namespace) -> int:
    if options.init is not None:
        return run_and_report("serve", lambda: {"configuration": _init(options.init)}, as_json=False)
    path = Path(options.file)
    if options.check:
        return run_and_report("serve", lambda: _check(path), as_json=False)
    try:
        agent = _served(path)
        with _log_as_json():
            asyncio.run(_serve(agent, path))
    except (TrustError, OSError) as error:
        return report_failure("serve", error, as_json=False, code=Exit.USAGE, file=str(path))
    return Exit.OK


def _served(path: Path) -> ServedAgent:
    try:
        from a2a_trust.serve.application import ServedAgent
    except ModuleNotFoundError as error:
        raise ConfigurationError(f'serve needs {error.name}: pip install "a2a-trust[serve]"') from None
    return ServedAgent(path)


async def _serve(agent: ServedAgent, path: Path) -> None:
    """Serve until SIGTERM or SIGINT; requests that run then have ``stop_within`` seconds."""
    from a2a_trust.servers import hypercorn

    class Config(hypercorn.Config):
        def create_ssl_context(self) -> SSLContext | None:
            context = super().create_ssl_context()
            if context is not None:
                agent.renew_certificate = partial(context.load_cert_chain, str(self.certfile), self.keyfile)
            return context

    listen, folder = agent.configuration.listen, path.absolute().parent
    config = Config()
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

    async def wait_for_stop() -> None:
        await stopped.wait()

    await hypercorn.serve(agent, config, shutdown_trigger=wait_for_stop)


@contextmanager
def _log_as_json() -> Iterator[None]:
    """In the block, every record of the log is a line of JSON on standard error, with the values of audit events."""

    class JsonLines(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            line: dict[str, Any] = {"time": rfc3339(record.created), "level": record.levelname.lower()}
            line["logger"] = record.name
            line["message"] = record.getMessage()
            if "audit" in vars(record):
                line["audit"] = vars(record)["audit"]
            if record.exc_info:
                line["error"] = self.formatException(record.exc_info)
            return json.dumps(line)

    handler, root = logging.StreamHandler(sys.stderr), logging.getLogger()
    handler.setFormatter(JsonLines())
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        yield
    finally:
        root.removeHandler(handler)


def _check(path: Path) -> dict[str, Any]:
    """Say what would be enforced."""
    configuration = _served(path).configuration
    put(f"{path}: ok; requests go to {configuration.upstream.url}")
    card = configuration.card if isinstance(configuration.card, Path) else getattr(configuration.card, "path", None)
    if not isinstance(card, Path):
        put("  the card comes from the agent, when it runs")
        return {}
    view = read_card(read_input(str(path.absolute().parent / card)))
    for interface in view.interfaces:
        put(f"  {interface.binding} {printable(interface.url)}")
    for alternative in view.requirements or ():
        needs = (
            f"{printable(name)} ({configuration.verifiers[name].type})" + "".join(f" {each}" for each in sorted(scopes))
            for name, scopes in alternative.schemes
        )
        put(f"  callers need {' and '.join(needs) or 'no credential'}")
    return {}


#: A card's scheme -> the lines of its verifier.
_HTTP: Final = """type = "JwtVerifier"              # or a preset, such as "keycloak": docs/providers
issuer = "https://idp.example.com"
audience = "{url}"
keys = {{ type = "OpenIdKeys", issuer = "https://idp.example.com" }}"""
_KEY: Final = """type = "ApiKeyVerifier"
store = {{ type = "SqliteApiKeys", path = "keys.db" }}   # a2a-sign api-key create --store keys.db --owner NAME"""
_BASIC: Final = """type = "BasicVerifier"
source = {{ type = "SqlitePasswords", path = "passwords.db" }}   # a2a-sign password create"""
_TLS: Final = """type = "CertificateVerifier"
[[verifiers.{name}.authorities]]
name = "partners"
certificates = "ca.pem"
identity = {{ type = "FromDns" }}
allowed = {{ type = "AllIssued" }}"""


def _init(card: str) -> str:
    """Print a file for a card, with a verifier for every scheme that its requirements name."""
    view = read_card(read_input(card))
    url = view.interfaces[0].url if view.interfaces else "https://agent.example.com"
    put(f"""# The configuration of a2a-sign serve: docs/serve.md. Paths are relative to this file.
card = {json.dumps(card)}
url = {json.dumps(url)}   # where callers reach the agent

[upstream]
url = "http://127.0.0.1:9000"   # the agent; only this proxy may reach it

[listen]
address = "127.0.0.1:8080"
# certificate = "server.pem"
# key = "server.key"

[caller]                        # how the agent gets to know its caller
plain = true                    # headers A2A-Caller-Id, A2A-Caller-Scopes, A2A-Caller-Client
# keys = "caller.json"          # or a signed A2A-Caller-Token: a2a-sign keys create caller.json
""")
    used = {name for each in view.alternatives for name, _ in each.schemes}
    for name in sorted(used):
        key = json.dumps(name)
        put(f"[verifiers.{key}]\n{_lines_for(view.schemes[name]).format(url=url, name=key)}\n")
    if any(isinstance(view.schemes[name], MutualTlsScheme) for name in used):
        put('[client_certificates]\ntype = "FromTls"             # listen.client_ca must name the authorities\n')
    _put_rules(view)
    return card


def _lines_for(scheme: SecurityScheme) -> str:
    if isinstance(scheme, OAuth2Scheme | OpenIdConnectScheme):
        return _HTTP
    if isinstance(scheme, HttpScheme):
        return _BASIC if scheme.scheme == "basic" else _HTTP
    return _TLS if isinstance(scheme, MutualTlsScheme) else _KEY


def _put_rules(view: CardView) -> None:
    put('[rules]\n# other_paths = ["/docs"]       # paths of the agent that belong to no interface of the card')
    if any(interface.tenant for interface in view.interfaces):
        put('may_use_tenant = { scope = "tenant:{tenant}" }')
    if view.has_extended_card:
        put('\n[extended_card]\nsource = "extended-card.json"\nmay_read = { scopes = [] }')
