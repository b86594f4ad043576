"""Handles an agent's answer of 401 or 403: whether to send the request once more, and the error if not.

The answer is not trusted: its scopes are used only if the verified card and the program allow them, and its URLs are
only shown.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, cast

import httpx

from a2a_trust.auth.principal import SCOPE
from a2a_trust.client.answer import Answer
from a2a_trust.client.credentials import CredentialValue
from a2a_trust.client.dpop import nonce_of
from a2a_trust.errors import TrustError
from a2a_trust.signing.forms import shown

_MAX_SHOWN: Final = 300
_NO_SCOPES: Final[frozenset[str]] = frozenset()
_ERRORS: Final = ("invalid_request", "invalid_token", "insufficient_scope", "invalid_dpop_proof", "use_dpop_nonce")
_OF_BODIES: Final = (b"content-length", b"content-encoding", b"transfer-encoding")
_MAX_CHALLENGES: Final = 8192
_WORD: Final = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"
_PARAMETER: Final = re.compile(rf'({_WORD})[ \t]*=[ \t]*(?:({_WORD})|"((?:[^"\\]|\\.)*)")(?=[ \t]*(?:,|\Z))')
_SCHEME: Final = re.compile(rf"({_WORD})(?:[ \t]+(?:([A-Za-z0-9._~+/-]+=*)(?=[ \t]*(?:,|\Z)))?|(?=[ \t]*(?:,|\Z)))")
_BETWEEN: Final = re.compile(r"[ \t,]*")
_URL: Final = re.compile(r"[ -~]{1,300}")


@dataclass(frozen=True, slots=True)
class Challenge:
    """One challenge; ``scheme`` and the names of the parameters are in lower case."""

    scheme: str
    parameters: dict[str, str]

    @property
    def scopes(self) -> frozenset[str]:
        """The scopes that the agent asks for (RFC 6750 3); empty if one of them is not a scope."""
        names = self.parameters.get("scope", "").split(" ")
        return frozenset(names) if all(SCOPE.fullmatch(name) for name in names) else frozenset()

    @property
    def resource_metadata(self) -> str:
        """The URL of the agent's metadata (RFC 9728 5.1), to be shown and not followed; "" without one."""
        url = self.parameters.get("resource_metadata", "")
        return url if _URL.fullmatch(url) else ""


def challenges_of(lines: Iterable[str]) -> tuple[Challenge, ...]:
    """The challenges in these lines of ``WWW-Authenticate`` (RFC 9110 11.6.1); empty if one of them is malformed."""
    text = ", ".join(lines)
    found: list[Challenge] = []
    at = 0
    while len(text) <= _MAX_CHALLENGES and (at := _end(_BETWEEN.match(text, at), at)) < len(text):
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


class CredentialsRejectedError(TrustError, httpx.HTTPStatusError):
    """The agent rejects the credentials (401), or asks for scopes that the token lacks (403).

    ``schemes`` are the names of the schemes with credentials in the request. ``scopes`` are the scopes that the card
    demands or the agent asks for. ``resource_metadata`` is the URL of the agent's metadata (RFC 9728), unverified.
    ``response`` has the status and the headers, without the body.
    """

    code = "credentials-rejected"

    def __init__(
        self,
        message: str,
        *,
        request: httpx.Request,
        response: httpx.Response,
        schemes: tuple[str, ...] = (),
        scopes: tuple[str, ...] = (),
        resource_metadata: str = "",
    ) -> None:
        self.schemes = schemes
        self.scopes = scopes
        self.resource_metadata = resource_metadata
        super().__init__(message, request=request, response=response)


class Rejection:
    """An answer of 401 or 403, and what went along with its request.

    ``demand`` gives what the card asks for, in words; ``scopes_named`` gives the scopes that it has for a scheme.
    """

    def __init__(
        self,
        answer: Answer,
        values: list[CredentialValue],
        response: httpx.Response,
        *,
        demand: Callable[[], str],
        scopes_named: Callable[[str], frozenset[str]],
    ) -> None:
        self._answer, self._values, self._response = answer, values, response
        self._demand, self._scopes_named = demand, scopes_named
        self._challenges = challenges_of(response.headers.get_list("WWW-Authenticate"))
        self.status: Final[int] = response.status_code

    @property
    def wants_nonce(self) -> bool:
        """Whether a proof with the nonce that came along may do (RFC 9449 9)."""
        asked = any(
            each.scheme == "dpop" and each.parameters.get("error") == "use_dpop_nonce" for each in self._challenges
        )
        nonce = nonce_of(self._response.headers.get_list("DPoP-Nonce"))
        return asked and nonce is not None and any(value.proofs is not None for value in self._values)

    @property
    def is_for_scopes(self) -> bool:
        """Whether the token lacks scopes (RFC 6750 3.1)."""
        return any(each.parameters.get("error") == "insufficient_scope" for each in self._challenges)

    @property
    def scopes(self) -> frozenset[str]:
        """The scopes that the agent asks for."""
        return _NO_SCOPES.union(*[each.scopes for each in self._challenges])

    def renew(self) -> bool:
        """Forget the values; whether there may be others."""
        renewed = [part.credential.renew(value) for part, value in zip(self._answer.parts, self._values, strict=True)]
        return any(renewed)

    def is_same(self, values: list[CredentialValue]) -> bool:
        """Whether these are the values that were rejected."""
        return [each.text for each in values] == [each.text for each in self._values]

    def more_scopes(self, known: Mapping[str, frozenset[str]]) -> dict[str, frozenset[str]]:
        """The scopes to ask for in addition, by scheme; none if the agent asks for one that is not allowed.

        ``known`` are those that are asked for beyond what the card demands.
        """
        more: dict[str, frozenset[str]] = {}
        for part in self._answer.parts:
            missing = self.scopes - part.scopes - known.get(part.name, _NO_SCOPES)
            if missing and missing == part.credential.may_step_up(missing & self._scopes_named(part.name)):
                more[part.name] = missing
        return more

    def _forbidden(self, scopes: frozenset[str]) -> str:
        """Why no token with these scopes is asked for."""
        for part in self._answer.parts if self.is_for_scopes else ():
            allowed = part.credential.may_step_up(scopes)
            if allowed is None:
                continue
            unnamed, denied = scopes - self._scopes_named(part.name), scopes - allowed
            if unnamed:
                return f"; no token is asked for with {shown(sorted(unnamed), ' ')}: the card does not name it"
            if denied:
                return f"; allowed_scopes does not have {shown(sorted(denied), ' ')}"
        return ""

    @property
    def is_of_credentials(self) -> bool:
        """False for a 403 without ``insufficient_scope``."""
        return self.status == 401 or self.is_for_scopes

    def check_replayable(self, request: httpx.Request) -> None:
        """Raise CredentialsRejectedError when the request cannot be sent twice."""
        if not isinstance(request.stream, httpx.ByteStream):
            raise self.error("; the body is a stream, which cannot be sent twice: make the request again")

    def error(self, hint: str = "") -> CredentialsRejectedError:
        """The error for the program; ``hint`` is added to the text."""
        names = self._answer.schemes
        demanded = _NO_SCOPES.union(*[part.scopes for part in self._answer.parts])
        scopes = self.scopes
        metadata = next((each.resource_metadata for each in self._challenges if each.resource_metadata), "")
        asked = ", ".join(
            [
                *sorted({_shown(each) for each in self._challenges}),
                *([f"scopes {' '.join(sorted(scopes))}"] if scopes else []),
                *([f"metadata at {metadata}"] if metadata else []),
            ]
        )
        if any(value.is_in(asked) for value in self._values):
            asked, scopes, metadata = "something that repeats a credential", _NO_SCOPES, ""
        sent = "with " + shown(f"'{name}'" for name in names) if names else "without a credential"
        request = self._response.request
        # As bytes: httpx reads headers that are not ASCII, and does not write them.
        headers = [line for line in self._response.headers.raw if line[0].lower() not in _OF_BODIES]
        return CredentialsRejectedError(
            f"{request.url.scheme}://{request.url.netloc.decode('ascii')} answers {self.status} to a request {sent}. "
            f"In the card, {self._demand() or 'no credential is demanded'}. "
            f"The agent asks for {asked[:_MAX_SHOWN] or 'a credential of unknown kind'}{self._forbidden(scopes)}{hint}",
            request=request,
            response=httpx.Response(self.status, headers=headers, request=request),
            schemes=names,
            scopes=tuple(sorted(scopes | demanded)),
            resource_metadata=metadata,
        )


def _shown(challenge: Challenge) -> str:
    error = challenge.parameters.get("error", "")
    return f"{challenge.scheme} ({error})" if error in _ERRORS else challenge.scheme


class Dropped(httpx.SyncByteStream, httpx.AsyncByteStream):
    """Replaces a body that is not read: httpx reads the whole of it before it sends a request again."""

    def __init__(self, stream: httpx.SyncByteStream | httpx.AsyncByteStream) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[bytes]:
        return iter(())

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for nothing in self:
            yield nothing

    def close(self) -> None:
        cast("httpx.SyncByteStream", self._stream).close()

    async def aclose(self) -> None:
        await cast("httpx.AsyncByteStream", self._stream).aclose()
