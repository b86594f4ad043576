"""The arguments of public classes and functions as tables of a configuration file.

Nothing is written twice: the members of a table, and the types of their values, come from the Python call. ``type``
is the public name of the class or function, where there are several. ``NO_FORM`` has the reasons for arguments that no
file can express. Secrets are never in the file: they are ``{file = "…"}`` or ``{env = "…"}``.
"""

from __future__ import annotations

import collections.abc
import inspect
import os
import ssl
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from functools import cache, partial, reduce
from importlib import import_module
from operator import or_
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, Union, cast, get_args, get_origin, get_type_hints

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, create_model

from a2a_trust.auth.dpop import DPoP
from a2a_trust.auth.proofs.memory import VolatileProofMemory
from a2a_trust.base.databases.availability import DatabaseUrl
from a2a_trust.base.files.watched import stamp_of_path
from a2a_trust.card.view import CardView
from a2a_trust.errors import ConfigurationError
from a2a_trust.keys.files import load_private_key
from a2a_trust.middleware.protection import protect
from a2a_trust.serve.forward_auth import ForwardAuth

_PROVIDERS: Final = (
    "keycloak", "keycloak_introspection", "entra_id", "auth0", "okta", "cognito", "zitadel", "ory_hydra", "authentik",
    "kubernetes", "spiffe", "github_actions",
)  # fmt: skip
_TOKEN_VERIFIERS: Final = ("JwtVerifier", "IdTokenVerifier", "IntrospectionVerifier", *_PROVIDERS)
_KEY_SOURCES: Final = ("OpenIdKeys", "OAuth2Keys", "JwksFile", "SeveralKeySources")

#: The name of an argument's type -> the public names that make such an object.
ROLES: Final[Mapping[str, tuple[str, ...]]] = {
    "Verifier": ("ApiKeyVerifier", "BasicVerifier", "CertificateVerifier", "SeveralIssuers", *_TOKEN_VERIFIERS),
    "TokenVerifier": _TOKEN_VERIFIERS,
    "ApiKeyStore": ("SqliteApiKeys", "PostgresApiKeys", "RedisApiKeys"),
    "PasswordStore": ("SqlitePasswords",),
    "KeySource": _KEY_SOURCES,
    "JwksCache": ("OpenIdKeys", "OAuth2Keys"),
    "EndpointAuthentication": ("ClientSecret", "PrivateKeyJwt", "TlsClientAuth"),
    "ProofMemory": ("VolatileProofMemory", "SqliteProofMemory", "RedisProofMemory", "PostgresProofMemory"),
    "CertificateSource": ("FromTls", "FromProxy"),
    "ProxyForm": ("Nginx", "HAProxy", "Apache", "Caddy", "Envoy", "Traefik", "AwsAlb", "Rfc9440"),
    "IdentityRule": ("FromUri", "FromDns", "FromEmail", "FromSubject"),
    "Extractor": ("HttpAuthorization", "InHeader", "InQuery", "InCookie"),
    "Signer": ("load_private_key", "KeyRingFile"),
    "SigningKeys": ("load_private_key", "KeyRingFile"),
    "TrustSource": ("TrustFile", "KeyRingFile"),
    "CardSource": ("CardFile",),
    "Observer": ("OpenTelemetryObserver",),
}
_PACKAGES: Final = (
    "a2a_trust", "a2a_trust.auth", "a2a_trust.middleware", "a2a_trust.keys", "a2a_trust.client", "a2a_trust.proxies",
    "a2a_trust.certificates", "a2a_trust.providers", "a2a_trust.telemetry",
)  # fmt: skip
_ALONE: Final = (
    "CredentialAt", "CardFile", "FromApplication", "Webhooks", "UnsafeAnyWebhook",
    "CardSecurity", "CardServing", "ExtendedCard", "RequestRules",
    "ActorRules", "Actor", "FailureLimits", "RedisCounters", "RedisTokenCache", "AccessTokenMark", "Fetcher",
    "JwksCacheTimes", "DPoP", "ServerNonces", "ClientAuthority", "Networks", "UnixSocket", "ProxySecret", "AllIssued",
    "OnlyIdentities", "OnlyThumbprints",
)  # fmt: skip
"""Public classes that are types of arguments themselves."""

#: (class or function, argument) -> why a file has no form for it; "*" is any.
NO_FORM: Final[Mapping[tuple[str, str], str]] = {
    ("*", "clock"): "only for tests",
    ("protect", "app"): "the application is the proxy, see [upstream]",
    ("protect", "grpc"): "the server of gRPC is a program of its own",
    ("ForwardAuth", "tokens"): "see [caller]",
    ("ForwardAuth", "plain"): "see [caller]",
    ("RequestRules", "skill_of"): "it reads the message, in the agent's own convention",
    ("OpenTelemetryObserver", "meters"): "the providers are the global ones",
    ("OpenTelemetryObserver", "tracers"): "the providers are the global ones",
    ("Fetcher", "resolver"): "it is a program's own resolver",
}


class Table(BaseModel):
    """A table of the file. Its repr, and errors about it, do not show values."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)
    maker: ClassVar[Callable[..., Any]]

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        return ()


@dataclass(slots=True)
class Objects:
    """The objects that a file describes. After a change, objects whose description is the same stay the same, with
    their caches, counters, connections and memories.

    ``folder`` is the file's: paths are relative to it. ``files`` are the files that were read once, for the next look.
    """

    folder: Path
    before: Objects | None = None
    made: dict[Any, Any] = field(default_factory=dict)
    files: list[Path] = field(default_factory=list)

    def make(self, value: Any, at: str) -> Any:
        """The argument that the value ``at`` this place of the file stands for."""
        if isinstance(value, Table):
            names = value.model_fields_set - {"type"}
            given = {name: self.make(getattr(value, name), f"{at}.{name}") for name in names}
            try:
                return self._call(type(value).maker, given)
            except ConfigurationError as error:
                raise ConfigurationError(f"{at}: {error}") from None
        if isinstance(value, Path):
            return self.folder / value
        if isinstance(value, dict):
            return {name: self.make(each, f"{at}.{name}") for name, each in value.items()}
        return [self.make(each, f"{at}[{n}]") for n, each in enumerate(value)] if isinstance(value, list) else value

    def _call(self, maker: Callable[..., Any], given: dict[str, Any]) -> Any:
        parameters = inspect.signature(maker).parameters.values()
        positional: list[Any] = []
        if any(each.kind is each.VAR_POSITIONAL for each in parameters):  # they come after the others
            for each in parameters:
                if each.kind is each.VAR_POSITIONAL:
                    positional += given.pop(each.name, ())
                elif each.kind is each.POSITIONAL_OR_KEYWORD and each.name in given:
                    positional.append(given.pop(each.name))
        if any(each.name == "fetcher" and each.default is each.empty for each in parameters):
            given.setdefault("fetcher", self._call(_public("Fetcher"), {}))
        if maker is DPoP:  # one memory for all versions, or a proof would count again after a change
            given.setdefault("memory", self._call(VolatileProofMemory, {}))
        files = [each for each in given.values() if isinstance(each, Path) and maker in _READ_ONCE]
        self.files += files
        key = (
            *(maker, *map(stamp_of_path, files), *map(_key_of, positional)),
            *((name, _key_of(given[name])) for name in sorted(given)),
        )
        if key not in self.made:
            found = None if self.before is None else self.before.made.get(key)
            self.made[key] = maker(*positional, **given) if found is None else found
        return self.made[key]


def secret_text(*, file: Path | None = None, env: str | None = None) -> str:
    """A secret: the content of a file, without the end of its line, or a variable of the environment."""
    try:
        return secret_octets(file=file, env=env).decode()
    except UnicodeDecodeError:
        raise ConfigurationError(f"the secret in {file or env} is not UTF-8") from None


def secret_octets(*, file: Path | None = None, env: str | None = None) -> bytes:
    """As ``secret_text``, as bytes."""
    if (file is None) == (env is None):
        raise ConfigurationError('write the secret as {file = "…"} or {env = "…"}')
    octets = os.environb.get((env or "").encode(), b"") if file is None else file.read_bytes()
    octets = octets.removesuffix(b"\n").removesuffix(b"\r")
    if not octets:
        raise ConfigurationError(f"the secret in {file or env} is missing or empty")
    return octets


def _renewed_secret(*, file: Path | None = None, env: str | None = None) -> Any:
    """As ``secret_text``; a file is read again after a change."""
    text = secret_text(file=file, env=env)
    return text if file is None else _public("SecretFile")(file)


def _allowing(scope: str) -> Callable[[Any, str], bool]:
    """``may_use_tenant`` for callers with a scope in which ``{tenant}`` stands for the tenant."""
    if "{tenant}" not in scope:
        raise ConfigurationError('may_use_tenant: write the tenant into the scope: {scope = "tenant:{tenant}"}')
    return lambda caller, tenant: scope.replace("{tenant}", tenant) in caller.scopes


def _reading(scopes: list[str]) -> Callable[[Any], bool]:
    """``may_read`` for callers with all of these scopes."""
    needed = frozenset(scopes)
    return lambda caller: needed <= caller.scopes


def _trusting(ca: Path) -> ssl.SSLContext:
    """``ssl_context`` that trusts the authorities in a file, in place of the system's."""
    return ssl.create_default_context(cafile=str(ca))


#: (class or function, argument) -> the function that makes it from a table.
_STATIC: Final[Mapping[tuple[str, str], Callable[..., Any]]] = {
    ("RequestRules", "may_use_tenant"): _allowing,
    ("ExtendedCard", "may_read"): _reading,
    ("Fetcher", "ssl_context"): _trusting,
}
_READ_ONCE: Final = {secret_text, secret_octets, _trusting, load_private_key}
"""Functions that read a file once: their results change with the file."""


def _key_of(value: Any) -> Any:
    """A value that is equal for equal descriptions. Objects are compared by identity: equal ones are one object."""
    if isinstance(value, dict):
        return tuple((name, _key_of(each)) for name, each in value.items())
    if isinstance(value, list):
        return tuple(map(_key_of, value))
    return (type(value), value) if isinstance(value, str | bytes | int | float | Enum | Path) else id(value)


@cache
def _public(name: str) -> Callable[..., Any]:
    for package in _PACKAGES:
        module = import_module(package)
        if name in dir(module):
            return cast("Callable[..., Any]", getattr(module, name))
    raise AttributeError(name)


@cache
def table_of(maker: Callable[..., Any], *, named: bool = True) -> type[Table]:
    """The table for the arguments of a class or function; ``named``: with its name as ``type``."""
    name, hints = maker.__name__, _hints_of(maker)
    fields: dict[str, Any] = {"type": (Literal[name], ... if named else name)}
    for parameter in inspect.signature(maker).parameters.values():
        if parameter.name not in hints or {(name, parameter.name), ("*", parameter.name)} & {*NO_FORM}:
            continue
        hint = hints[parameter.name]
        if parameter.kind is parameter.VAR_POSITIONAL:
            hint = types.GenericAlias(list, hint)
        form = form_of(name, parameter.name, hint)
        is_required = parameter.default is parameter.empty and parameter.kind is not parameter.VAR_POSITIONAL
        fields[parameter.name] = (form, ... if is_required and parameter.name != "fetcher" else None)
    made = create_model(name, __base__=Table, **fields)
    made.maker = staticmethod(maker)
    return made


def _hints_of(maker: Callable[..., Any]) -> dict[str, Any]:
    """The types of the arguments, also of those that are imported for type checkers only."""
    late = {name: _public(name) for name in ("DPoP", "Fetcher", "Signer", "TrustSource")}
    return get_type_hints(maker.__init__ if isinstance(maker, type) else maker, localns=late)  # type: ignore[misc]


def form_of(owner: str, argument: str, hint: Any) -> Any:
    """The type of the value in a file, for an argument."""
    if argument in ("secret", "passphrase"):
        is_text = hint in (str, str | None)
        return table_of(secret_octets if hint is bytes else secret_text if is_text else _renewed_secret, named=False)
    if argument == "url" and owner.startswith(("Postgres", "Redis")):
        read = DatabaseUrl.postgres if owner.startswith("Postgres") else DatabaseUrl.redis
        return Annotated[str, AfterValidator(partial(_without_password, read))] | table_of(secret_text, named=False)
    if (owner, argument) in _STATIC:
        return table_of(_STATIC[owner, argument], named=False)
    return _form(hint)


def _form(hint: Any) -> Any:
    if hint is Any or hint in (str, int, float, bool):
        return hint
    if hint is Path:
        return Annotated[Path, Field(strict=False)]
    if get_origin(hint) in (Union, types.UnionType):
        return _union(get_args(hint))
    if get_origin(hint) is Literal:
        return hint
    if isinstance(hint, type) and issubclass(hint, Enum):
        members = {_word(each): each for each in hint}
        return Annotated[Literal[tuple(members)], AfterValidator(members.__getitem__)]
    origin, inner = get_origin(hint) or hint, get_args(hint)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return types.GenericAlias(dict, (str, _form(inner[1])))
    if isinstance(origin, type) and issubclass(origin, Iterable) and inner:
        return types.GenericAlias(list, _form(inner[0]))
    return _tables(_names(hint))


def _without_password(read: Callable[[str], DatabaseUrl], url: str) -> str:
    if read(url).has_password:
        raise ConfigurationError('the URL has a password; write {file = "…"} or {env = "…"} in place of the URL')
    return url


def _names(hint: Any) -> tuple[str, ...]:
    """The public names that make a value of this type."""
    name = getattr(get_origin(hint) or hint, "__name__", "")
    return ROLES.get(name, (name,) if name in _ALONE else ())


MISSING: Final[dict[str, str]] = {}
"""Public name -> why it cannot be used here: its extra is not installed."""


def _tables(names: Iterable[str]) -> Any:
    made = []
    for name in dict.fromkeys(names):
        try:
            made.append(table_of(_public(name)))
        except ImportError as error:
            MISSING[name] = str(error)
    if not made and MISSING.keys() & {*names}:
        return Annotated[Any, AfterValidator(partial(_say_missing, tuple(names)))]
    if len(made) == 1:
        return table_of(made[0].maker, named=False)
    return Annotated[reduce(or_, made), Field(discriminator="type")] if made else None


def _say_missing(names: tuple[str, ...], _: object) -> None:
    raise ConfigurationError("; ".join(dict.fromkeys(MISSING[name] for name in names)))


def _union(hints: tuple[Any, ...]) -> Any:
    """The forms of a union: a path for a text or a path, one table for all classes, and the rest."""
    forms: list[Any] = []
    names = [name for hint in hints for name in _names(hint)]
    for hint in hints:
        if hint in (type(None), bytes, timedelta) or _names(hint) or (get_origin(hint) or hint) is Mapping:
            continue
        if get_origin(hint) is collections.abc.Callable or getattr(hint, "_is_protocol", False):
            continue  # a function, or an object of an SDK
        if hint is CardView or (hint is str and Path in hints):
            continue
        forms.append(_form(hint))
    if names:
        forms.append(_tables(names))
    return reduce(or_, forms)


def _word(member: Enum) -> str:
    return member.value if isinstance(member.value, str) else member.name


PROTECT: Final[type[Table]] = table_of(protect, named=False)
FORWARD_AUTH: Final[type[Table]] = table_of(ForwardAuth, named=False)
