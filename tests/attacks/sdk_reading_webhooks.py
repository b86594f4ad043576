"""The URL that a2a-sdk 1.3.0 reads of a registration: the SDK's own parser of HTTP+JSON, without a guard.

Run by the interpreter of the server's environment, never imported by a test. An error of the parser is its text.
"""

# mypy: disable-error-code="import-not-found, import-untyped, misc, unused-ignore"

from __future__ import annotations

import json
import sys

from a2a.types import SendMessageRequest, TaskPushNotificationConfig
from google.protobuf.json_format import Parse, ParseError


def url_of(kind: str, body: str) -> str:
    try:
        if kind == "create":
            return str(Parse(body, TaskPushNotificationConfig(), ignore_unknown_fields=True).url)
        message = Parse(body, SendMessageRequest(), ignore_unknown_fields=True)
    except ParseError as error:
        return f"error: {error}"
    return str(message.configuration.task_push_notification_config.url)


if __name__ == "__main__":
    print(json.dumps([url_of(kind, body) for kind, body in json.load(sys.stdin)]))
