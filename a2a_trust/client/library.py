"""Which HTTP library a door is for: httpx or httpx2, which have the same names, but not the same classes.

The door is written once, in ``adapters``, and makes the objects of the library that it gets here. An object of the
other library is rejected, not converted: its streams, time limits and errors mean nothing to this one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from a2a_trust.client.messages import NoReplyReason

DOORS: Final = {"httpx": "a2a_trust.client", "httpx2": "a2a_trust.client.httpx2"}
"""Library -> where to import the door for it."""


class HttpRequest(Protocol):
    """A request of the library. The door replaces its headers, its URL and its stream by others of the library."""

    method: str
    url: Any
    headers: Any
    stream: Any
    extensions: Any

    def read(self) -> bytes: ...


class HttpResponse(Protocol):
    """A response of the library."""

    status_code: int
    headers: Any
    stream: Any
    extensions: Any
    request: Any

    @property
    def has_redirect_location(self) -> bool: ...


class HttpTransport(Protocol):
    """A transport with ``close``, or an asynchronous one."""

    def handle_request(self, request: Any, /) -> HttpResponse: ...

    def close(self) -> None: ...


class AsyncHttpTransport(Protocol):
    async def handle_async_request(self, request: Any, /) -> HttpResponse: ...

    async def aclose(self) -> None: ...


RequestT = TypeVar("RequestT", bound=HttpRequest)
ResponseT = TypeVar("ResponseT", bound=HttpResponse)
RequestT_co = TypeVar("RequestT_co", bound=HttpRequest, covariant=True)
ResponseT_co = TypeVar("ResponseT_co", bound=HttpResponse, covariant=True)


class Module(Protocol[RequestT_co, ResponseT_co]):
    """The names in the module of the library that the door uses."""

    @property
    def __name__(self) -> str: ...
    @property
    def Request(self) -> Callable[..., RequestT_co]: ...  # noqa: N802
    @property
    def Response(self) -> Callable[..., ResponseT_co]: ...  # noqa: N802
    @property
    def ByteStream(self) -> type[Any]: ...  # noqa: N802
    @property
    def Timeout(self) -> type[Any]: ...  # noqa: N802
    @property
    def TransportError(self) -> type[Exception]: ...  # noqa: N802
    @property
    def ConnectError(self) -> type[Exception]: ...  # noqa: N802
    @property
    def ConnectTimeout(self) -> type[Exception]: ...  # noqa: N802


@dataclass(frozen=True, kw_only=True)  # with slots, Python 3.11 cannot make a class for some types of it
class Library(Generic[RequestT, ResponseT]):
    """``request``: the class of requests. ``rejected``: of ``CredentialsRejectedError``. ``dropped``: of a stream
    without chunks."""

    module: Module[RequestT, ResponseT]
    request: type[RequestT]
    errors: Mapping[NoReplyReason, Callable[..., Exception]]
    rejected: Callable[..., Exception]
    dropped: Callable[[Any], object]

    def check(self, what: str, given: object, kind: type) -> None:
        """TypeError: it is not an object of that class. If it is of the other library, the text names its door."""
        if isinstance(given, kind):
            return
        name = self.module.__name__
        theirs = {each.__module__.partition(".")[0] for each in type(given).__mro__}
        for library, door in DOORS.items():
            if library != name and library in theirs:
                raise TypeError(
                    f"{what}: {type(given).__name__} is of {library}, and this door is for {name}; for {library}, "
                    f"import from {door}"
                )
        raise TypeError(f"{what}: {type(given).__name__} is not an {name}.{kind.__name__}")
