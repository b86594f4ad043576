"""An agent of the a2a-sdk that tells how the SDK reads a call, bare and behind ``protect``.

Run by the interpreter of the server's environment, never imported by a test. The question is a list of requests; the
answer tells of each of them what a handler of the SDK got, what the guard read, and which tenants were asked about.
"""

# mypy: disable-error-code="import-not-found, import-untyped, misc, unused-ignore"

from __future__ import annotations

import asyncio
import json
import logging
import sys
from typing import Any

from tests.fuzz.fuzz_readers import Recorder, agents, shown


async def main() -> None:
    recorder, found = Recorder(), []
    bare, guarded = agents(recorder)
    for asked in json.load(sys.stdin):
        outcome: dict[str, Any] = {}
        request = {**asked, "body": asked["body"].encode()}
        for name, app in (("bare", bare), ("guarded", guarded)):
            by_sdk = await recorder.of(app, request)
            outcome[name] = {"by_sdk": shown(by_sdk), "by_guard": shown(recorder.by_guard), "asked": recorder.asked}
        found.append(outcome)
    print(json.dumps(found))


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    asyncio.run(main())
