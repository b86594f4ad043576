"""Counts the way of a request: ``python -m benchmarks.server_walks``.

A POST with an API key goes through ``protect`` to an application in this process. Counted are calls of functions of the
package, the modules that they are in, and the moves between modules: calls of a function in another module than the
function of the package that was entered before.
"""

from __future__ import annotations

import asyncio
import sys
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any, Final

import a2a_trust
from benchmarks.guards import KEY, protected

__all__ = ["main"]

_PACKAGE: Final = str(Path(a2a_trust.__file__).parent)
_BODY: Final = b'{"jsonrpc":"2.0","id":"1","method":"SendMessage","params":{"message":{"messageId":"m"}}}'
_SCOPE: Final[dict[str, Any]] = {
    "type": "http",
    "method": "POST",
    "scheme": "http",
    "path": "/rpc",
    "raw_path": b"/rpc",
    "root_path": "",
    "query_string": b"",
    "client": ("192.0.2.1", 50000),
    "headers": [
        (b"host", b"agent.example.com"),
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(_BODY)),
        (b"x-api-key", KEY.encode()),
    ],
}


async def _taking(scope: Any, receive: Any, send: Any) -> None:  # noqa: ARG001
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"{}"})


async def _walk(app: Any) -> list[tuple[str, str]]:
    """The functions of the package that one request enters, in order, as file and name."""
    entered: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(_PACKAGE):
            entered.append((frame.f_code.co_filename[len(_PACKAGE) + 1 :], frame.f_code.co_name))

    statuses: list[int] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": _BODY, "more_body": False}

    async def send(message: Any) -> None:
        statuses.append(message.get("status", 200))

    sys.setprofile(note)
    try:
        await app({**_SCOPE, "headers": [*_SCOPE["headers"]]}, receive, send)
    finally:
        sys.setprofile(None)
    if statuses != [200, 200]:
        raise AssertionError(f"answers {statuses}")
    return entered


async def _walks() -> None:
    await _walk(protected(_taking))  # what is compiled on first use is not of a walk
    app = protected(_taking)
    for name in ("first", "second", "repeated"):
        entered = await _walk(app)
        if "-v" in sys.argv:
            print(*(f"  {file}: {function}" for file, function in entered), sep="\n")
        modules = len({file for file, _ in entered})
        moves = sum(one != other for (one, _), (other, _) in pairwise(entered))
        print(f"{name}: {len(entered)} calls in {modules} modules, {moves} moves")


def main() -> None:
    asyncio.run(_walks())


if __name__ == "__main__":
    main()
