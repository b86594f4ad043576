"""A program that calls agents with ADK's own client.

It reads cases as JSON from its input and writes what came of each: the answer or the error, and which requests were
answered how. Run by the interpreter of ADK's environment, never imported by a test.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import warnings
from typing import Any

from tests.frameworks.clients import client_of, noted
from tests.real.one_line_clients import adk


async def run(case: dict[str, Any]) -> dict[str, Any]:
    async with client_of(case) as http:
        requests = noted(http)
        try:
            return {"answer": await adk(http, case["url"]), "requests": requests}
        except Exception as error:  # noqa: BLE001  of any type
            return {"error": str(error), "requests": requests}


async def main() -> None:
    print(json.dumps([await run(case) for case in json.load(sys.stdin)]))


if __name__ == "__main__":
    logging.disable()
    warnings.simplefilter("ignore")
    asyncio.run(main())
