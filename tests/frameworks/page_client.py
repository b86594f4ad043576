"""Runs cases with the client of a framework: by the lines of its page, or as it is, without them.

The page's second block has a function ``ask``. Imported by programs in the environments of the frameworks only.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import os
import sys
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

import httpx

from tests.frameworks.clients import noted
from tests.frameworks.guide import run_page

__all__ = ["answer_cases"]

Plain: TypeAlias = Callable[[httpx.AsyncClient, dict[str, Any]], Awaitable[str]]
"""The client of a framework as it is: it gets an httpx client with the headers of the case, and the case."""


def answer_cases(page: str, plain: Plain) -> None:
    """Read cases as JSON, and write what came of each: the answer or the errors, and which requests were made."""
    logging.disable()
    warnings.simplefilter("ignore")
    os.chdir(os.environ["FOLDER"])
    print(json.dumps([asyncio.run(_outcome(page, plain, case)) for case in json.load(sys.stdin)]))


async def _outcome(page: str, plain: Plain, case: dict[str, Any]) -> dict[str, Any]:
    async with httpx.AsyncClient(headers=case.get("headers"), trust_env=False, timeout=60) as http:
        requests = noted(http)
        asked = _by_page(page, case) if "key" in case else plain(http, case)
        try:
            return {"answer": await asked, "requests": requests}
        except Exception as error:  # noqa: BLE001  each framework has its own
            return {"errors": _chain(error), "requests": requests}


async def _by_page(page: str, case: dict[str, Any]) -> str:
    os.environ["AGENT_URL"] = case["url"]
    Path("agent-key").touch(0o600)
    Path("agent-key").write_text(case["key"], encoding="utf-8")
    names: dict[str, Any] = {}
    run_page(page, names, 1)
    answer = names["ask"]("hello")
    return str(await answer if inspect.isawaitable(answer) else answer)


def _chain(error: BaseException | None) -> list[str]:
    """The error and its causes, each with the name of its class."""
    chain = []
    while error is not None:
        chain.append(f"{type(error).__name__}: {error}")
        error = error.__cause__ or error.__context__
    return chain
