"""Servers that the tests run as processes: what they are told, and which token requests reached them."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

__all__ = ["ServerProcess", "TokenRequest"]

_END_SECONDS: Final = 30


@dataclass(frozen=True)
class TokenRequest:
    """A request that came to the token endpoint, and the status of its answer.

    ``method`` is how the client authenticated: a name of RFC 7591, "certificate", or "none".
    """

    grant: str | None
    client: str | None
    method: str
    scope: str | None
    resource: tuple[str, ...]
    audience: tuple[str, ...]
    dpop: bool
    status: int


class ServerProcess:
    """A process that answers every JSON line on its standard input with one. ``close`` ends it."""

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115  closed in close()
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            encoding="utf-8",
        )

    def close(self) -> None:
        try:
            self._process.communicate(timeout=_END_SECONDS)  # the end of its input ends it
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            raise
        finally:
            self._errors.close()

    def tell(self, command: str, **more: Any) -> dict[str, Any]:
        """Have the process do something; what it answers."""
        pipes = self._process
        assert pipes.stdin is not None
        assert pipes.stdout is not None
        line = ""
        if pipes.poll() is None:
            pipes.stdin.write(json.dumps({"do": command, **more}) + "\n")
            pipes.stdin.flush()
            line = pipes.stdout.readline()
        if not line:
            self._errors.seek(0)
            raise AssertionError(f"the server's process ended:\n{self._errors.read()[-4000:]}")
        answer: dict[str, Any] = json.loads(line)
        assert "crashed" not in answer, answer["crashed"]
        return answer

    def token_requests(self) -> list[TokenRequest]:
        """The requests at the token endpoint since this was last asked, in the order of their answers."""
        return [
            TokenRequest(**{**each, "resource": tuple(each["resource"]), "audience": tuple(each["audience"])})
            for each in self.tell("tokenRequests")["requests"]
        ]
