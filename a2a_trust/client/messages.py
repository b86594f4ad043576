"""Requests and replies of HTTP as plain values, and the steps of a flow that send them.

This is all that the decisions of a client know of HTTP: ``adapters`` makes messages of an HTTP library of them. URLs,
headers and bodies may hold secrets, and tracebacks show locals, so no repr shows them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

from a2a_trust.errors import ConfigurationError, TrustError


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class Request:
    """A request. ``url`` is the URL that it is really sent to; ``body`` is None for a stream.

    ``headers`` are a mapping with names in any case, also of a ``Reply``, with ``get_list`` for all lines of a name.
    ``timeout`` has seconds by connect, read, write and pool. ``handle`` is the request of the HTTP library, which the
    program cannot change any more; None: the adapter makes one. ``is_own``: the program made it for this client, and
    not the library after a redirect.
    """

    method: str
    url: str
    headers: Any
    timeout: Mapping[str, float | None]
    body: bytes | None = b""
    handle: Any = None
    is_own: bool = False

    @property
    def address(self) -> str:
        """The URL without its query, which may be a secret."""
        return self.url.partition("#")[0].partition("?")[0]


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class Reply:
    """An answer. ``body`` is what to pass on in place of what arrives, if it is not None; without ``dropped`` headers.

    ``is_elsewhere``: it answers another request, to which this one was redirected.
    """

    status: int
    headers: Any
    handle: Any
    is_elsewhere: bool = False
    body: bytes | None = None
    dropped: tuple[bytes, ...] = ()

    def without(self, names: tuple[bytes, ...], body: bytes | None = None) -> Reply:
        return replace(self, dropped=self.dropped + names, body=self.body if body is None else body)


@dataclass(frozen=True, slots=True, repr=False)
class Attachment:
    """The credentials of one request: header lines (names in lower case), cookies and query parameters."""

    headers: tuple[tuple[bytes, bytes], ...] = ()
    cookies: tuple[tuple[str, str], ...] = ()
    parameters: tuple[tuple[str, str], ...] = ()


NOTHING: Final = Attachment()


@dataclass(slots=True, repr=False, eq=False)
class Send:
    """Send a request with these credentials, and return its reply. ``certified`` is the origin that sees the client's
    certificate, or "". ``host`` is the address to connect to in place of the name, within ``timeout``."""

    request: Request
    attachment: Attachment = NOTHING
    certified: str = ""
    host: str = ""
    timeout: Mapping[str, float | None] | None = None


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Read:
    """Read the body that a message streams. ``check`` gets what has come after each chunk, and may raise."""

    message: Request | Reply
    check: Callable[[bytearray], None]


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Close:
    """Close a reply, read or not."""

    reply: Reply


class NoReplyReason(Enum):
    NOT_SENT = "the request to {address} is not sent"
    NOT_PASSED_ON = "the card from {address} is not passed on"
    NO_CREDENTIALS = "no credential for the request"
    UNREACHABLE = "there is no address to connect to"
    TOO_SLOW = "connecting takes too long"
    REJECTED = "the agent rejects the credentials"


class NoReply(Exception):  # noqa: N818  the adapter raises an error
    """A request has no answer; for the adapter to raise as an error of its HTTP library, caused by ``cause``."""

    def __init__(self, reason: NoReplyReason, text: str, cause: TrustError | None = None) -> None:
        super().__init__(text)
        self.reason: Final[NoReplyReason] = reason
        self.text: Final[str] = text
        # Without its frames, which may show the URL.
        self.cause: Final[TrustError | None] = None if cause is None else cause.with_traceback(None)

    @classmethod
    def of(cls, reason: NoReplyReason, address: str, error: TrustError) -> Exception:
        """The error itself if it is the program's or its operator's, so that it says nothing of a card."""
        if isinstance(error, ConfigurationError):
            return error
        return cls(reason, f"{reason.value.replace('{address}', address)}: {error}", error)


class RejectedCredentials(NoReply):
    """The agent rejects the credentials; ``about`` are the arguments of the error that say more."""

    def __init__(self, text: str, reply: Reply, **about: Any) -> None:
        super().__init__(NoReplyReason.REJECTED, text)
        self.reply: Final[Reply] = reply
        self.about: Final[dict[str, Any]] = about
