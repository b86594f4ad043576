"""Two callers of ``sdk_shared_task.py``, in the words of the generation of its SDK."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx

from a2a_trust import SqliteApiKeys
from tests.servers.environments import python_of
from tests.servers.serving import free_port, serving

__all__ = ["SDKS", "Answer", "Call", "Caller", "Shared", "sharing"]

SDKS: Final = ["server-1.3.0", "server-1.0.0", "server-0.3.26"]
_PROGRAM: Final = Path(__file__).resolve().parent / "sdk_shared_task.py"
_SECONDS: Final = 60


class Call(Enum):
    """The methods of 1.0 and 0.3."""

    SEND = ("SendMessage", "message/send")
    STREAM = ("SendStreamingMessage", "message/stream")
    GET = ("GetTask", "tasks/get")
    SUBSCRIBE = ("SubscribeToTask", "tasks/resubscribe")
    CANCEL = ("CancelTask", "tasks/cancel")


class Answer(NamedTuple):
    text: str

    @property
    def is_error(self) -> bool:
        return '"error":' in self.text.replace(" ", "")[:200]


class Caller:
    """Each of its calls names itself by the owner of the key and a name."""

    def __init__(self, http: httpx.AsyncClient, owner: str, key: str, *, is_0_3: bool) -> None:
        self._http, self._owner, self._key, self._is_0_3 = http, owner, key, is_0_3

    def request(self, what: Call, name: str, task: Sequence[str]) -> httpx.Request:
        """``task`` has its own id and that of its context, or nothing for a new one."""
        if what in (Call.SEND, Call.STREAM):
            message: dict[str, Any] = {"messageId": name, "role": "ROLE_USER", "parts": [{"text": "hi"}]}
            if self._is_0_3:
                message |= {"role": "user", "parts": [{"kind": "text", "text": "hi"}], "kind": "message"}
            params: dict[str, Any] = {"message": message | dict(zip(("taskId", "contextId"), task, strict=False))}
        else:
            params = {"id": task[0]}
        call = {"jsonrpc": "2.0", "id": 1, "method": what.value[self._is_0_3], "params": params}
        version = "0.3" if self._is_0_3 else "1.0"
        headers = {"X-API-Key": self._key, "A2A-Version": version, "X-Call": f"{self._owner} {name}"}
        return self._http.build_request("POST", "/rpc", json=call, headers=headers)

    async def call(self, what: Call, name: str, task: Sequence[str]) -> Answer:
        """The answer; of a subscription, which goes on until the task ends, the first event."""
        answer = await self._http.send(self.request(what, name, task), stream=True)
        text = ""
        async for piece in answer.aiter_text():
            text += piece
            if what is Call.SUBSCRIBE and "\r\n\r\n" in text:
                break
        await answer.aclose()
        assert answer.status_code == 200, text
        return Answer(text)

    async def open(self, name: str, task: Sequence[str] = ()) -> tuple[httpx.Response, list[str]]:
        """A stream that the executor has begun with, of which nothing is read, and its task."""
        stream = await self._http.send(self.request(Call.STREAM, name, task), stream=True)
        async with asyncio.timeout(_SECONDS):
            while True:
                for each in await self.seen():
                    if (each["place"], each.get("call")) == ("execute", f"{self._owner} {name}"):
                        return stream, each["task"]
                await asyncio.sleep(0.05)

    async def seen(self) -> list[dict[str, Any]]:
        """What the agent has seen of all calls."""
        found = await self._http.get("/seen", headers={"X-API-Key": self._key})
        return found.raise_for_status().json()  # type: ignore[no-any-return]


class Shared(NamedTuple):
    """An agent that runs."""

    origin: str
    keys: dict[str, str]
    is_0_3: bool

    def callers(self, http: httpx.AsyncClient) -> Iterator[Caller]:
        for owner, key in self.keys.items():
            yield Caller(http, owner, key, is_0_3=self.is_0_3)

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self.origin, trust_env=False, timeout=_SECONDS)


@contextmanager
def sharing(sdk: str, folder: Path, **settings: str) -> Iterator[Shared]:
    """The agent of that SDK runs while the block does; its callers are ann and bob."""
    port, path = free_port(), folder / "keys.db"
    store = SqliteApiKeys(path, create=True)
    keys = {owner: store.create(owner=owner).text for owner in ("ann", "bob")}
    origin = f"http://127.0.0.1:{port}"
    given = {"PORT": str(port), "API_KEYS": str(path), **settings}
    with serving([str(python_of(sdk)), str(_PROGRAM)], f"{origin}/seen", given, folder):
        yield Shared(origin, keys, "-0.3." in sdk)
