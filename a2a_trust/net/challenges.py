"""Reads the challenges of a ``WWW-Authenticate`` header (RFC 9110 11.6.1): schemes and parameters.

The header is not trusted. Its URLs are never fetched, and a malformed header gives no challenges.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from a2a_trust.net.issuers import SCOPE

_MAX: Final = 8192
_WORD: Final = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"
_PARAMETER: Final = re.compile(rf'({_WORD})[ \t]*=[ \t]*(?:({_WORD})|"((?:[^"\\]|\\.)*)")(?=[ \t]*(?:,|\Z))')
_SCHEME: Final = re.compile(rf"({_WORD})(?:[ \t]+(?:([A-Za-z0-9._~+/-]+=*)(?=[ \t]*(?:,|\Z)))?|(?=[ \t]*(?:,|\Z)))")
_BETWEEN: Final = re.compile(r"[ \t,]*")
_SHOWN: Final = re.compile(r"[ -~]{1,300}")


@dataclass(frozen=True, slots=True)
class Challenge:
    """One challenge; ``scheme`` and the names of the parameters are in lower case."""

    scheme: str
    parameters: dict[str, str]

    @property
    def scopes(self) -> frozenset[str]:
        """The scopes that the agent requires (RFC 6750 3); empty if one of them is not a scope."""
        names = self.parameters.get("scope", "").split(" ")
        return frozenset(names) if all(SCOPE.fullmatch(name) for name in names) else frozenset()

    @property
    def resource_metadata(self) -> str:
        """The URL of the agent's metadata (RFC 9728 5.1), to be shown and not followed; "" without one."""
        url = self.parameters.get("resource_metadata", "")
        return url if _SHOWN.fullmatch(url) else ""


def challenges_of(lines: Iterable[str]) -> tuple[Challenge, ...]:
    """The challenges in these lines; empty if one of them is malformed."""
    text = ", ".join(lines)
    found: list[Challenge] = []
    at = 0
    while len(text) <= _MAX and (at := _end(_BETWEEN.match(text, at), at)) < len(text):
        parameter = _PARAMETER.match(text, at)
        if parameter is not None and found:
            name = parameter[1].lower()
            if name in found[-1].parameters:
                return ()
            quoted = parameter[3]
            found[-1].parameters[name] = parameter[2] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
            at = parameter.end()
            continue
        scheme = _SCHEME.match(text, at)
        if scheme is None:
            return ()
        found.append(Challenge(scheme[1].lower(), {}))
        at = scheme.end()
    return tuple(found) if at >= len(text) else ()


def _end(match: re.Match[str] | None, default: int) -> int:
    return default if match is None else match.end()
