"""The configuration file of ``a2a-sign serve``: the arguments of ``protect``, and where to listen and to pass requests.

::

    card = "agent-card.json"
    url = "https://agent.example.com"

    [upstream]
    url = "http://127.0.0.1:9000"

    [listen]
    address = "0.0.0.0:8443"
    certificate = "server.pem"
    key = "server.key"

    [verifiers.key]
    type = "ApiKeyVerifier"
    store = { type = "SqliteApiKeys", path = "keys.db" }
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import Field, ValidationError, create_model

from a2a_trust.errors import ConfigurationError
from a2a_trust.serve.forms import FORWARD_AUTH, MISSING, PROTECT, Table, secret_text, table_of

_MAX_BYTES: Final = 1_048_576
if TYPE_CHECKING:
    _Secret = Table
else:
    _Secret = table_of(secret_text, named=False)
_File = Annotated[Path, Field(strict=False)]


class Upstream(Table):
    """The agent. ``url`` is ``http://HOST:PORT`` or ``unix:/PATH``, without a path: requests keep theirs.

    ``timeout`` is the longest wait for the next bytes of an answer, in seconds; ``connections`` is their number at one
    time. Further requests are answered with 503.
    """

    url: Annotated[str, Field(pattern=r"^(http://[^/?#@\s]+/?|unix:/\S+)$")]
    timeout: Annotated[float, Field(gt=0, le=86_400)] = 300.0
    connections: Annotated[int, Field(ge=1, le=65_536)] = 1_000


class Listen(Table):
    """``address`` is ``HOST:PORT`` or ``unix:/PATH``. With ``certificate`` and ``key`` it is https, HTTP/2 included;
    ``client_ca`` also asks callers for a certificate of these authorities, as ``FromTls`` needs it.

    ``stop_within``: the seconds that requests may still take after SIGTERM.
    """

    address: str = "127.0.0.1:8080"
    certificate: _File | None = None
    key: _File | None = None
    client_ca: _File | None = None
    stop_within: Annotated[float, Field(ge=0, le=3_600)] = 10.0


class CallerHeaders(Table):
    """How the agent gets to know the caller.

    - ``keys``: a key ring of its own, for ``A2A-Caller-Token``, a JWT (``serve.caller_token``); ``audience`` is the
      agent, by default its URL in ``[upstream]``.
    - ``plain``: also ``A2A-Caller-Id``, ``A2A-Caller-Scopes`` and ``A2A-Caller-Client``. An agent that believes them
      must be reached by this proxy only.
    """

    keys: _File | None = None
    passphrase: _Secret | None = None
    audience: str | None = None
    plain: bool = False


Configuration: Any = create_model(
    "Configuration",
    __base__=PROTECT,
    upstream=(Upstream, ...),
    listen=(Listen, Listen()),
    caller=(CallerHeaders, CallerHeaders()),
)


Asked: Any = create_model(
    "Asked", __base__=FORWARD_AUTH, listen=(Listen, Listen()), caller=(CallerHeaders, CallerHeaders(plain=True))
)
"""The configuration of a proxy that asks: a file with ``form``."""


def read_configuration(path: Path) -> Any:
    """The ``Configuration`` in a file, or ``Asked``.

    ConfigurationError: it is not valid; the text names every table and member. OSError: it cannot be read.
    """
    with path.open("rb") as file:
        octets = file.read(_MAX_BYTES + 1)
    try:
        if len(octets) > _MAX_BYTES:
            raise ConfigurationError(f"{path}: longer than {_MAX_BYTES} bytes")
        values = tomllib.loads(octets.decode())
        model = Asked if "form" in values else Configuration
        return model.model_validate_json(json.dumps(values, default=str))
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path}: not UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{path}: not TOML: {error}") from None
    except ValidationError as error:
        lines = dict.fromkeys(_explain(each, values) for each in error.errors(include_input=False, include_url=False))
        raise ConfigurationError(f"{path}: " + "\n  ".join(lines)) from None


def _explain(error: Any, values: Any) -> str:
    """One mistake: where it is in the file, and what to write."""
    place, found = list[str](), values
    for step in error["loc"]:
        if isinstance(found, dict) and (step in found or error["type"] == "missing") and found.get("type") != step:
            place.append(str(step))
            found = found.get(step)
        elif isinstance(found, list) and isinstance(step, int):
            place[-1] += f"[{step}]"
            found = found[step]
    where, kind, context = ".".join(place) or "the file", error["type"], error.get("ctx", {})
    if kind == "extra_forbidden":
        return f"{where}: unknown member; check its spelling and its table"
    if kind == "missing":
        return f"{where}: missing"
    if kind == "union_tag_not_found":
        return f"{where}: write its type, one of {_expected(context)}"
    if context.get("tag") in MISSING:
        return f"{where}: {MISSING[context['tag']]}"
    if kind in ("union_tag_invalid", "literal_error"):
        return f"{where}: write one of {_expected(context)}"
    if kind == "value_error":
        return f"{where}: {context['error']}"
    return f"{where}: {error['msg'][:1].lower()}{error['msg'][1:]}"


def _expected(context: dict[str, Any]) -> str:
    return str(context.get("expected_tags") or context.get("expected") or "the types in docs/serve.md")
