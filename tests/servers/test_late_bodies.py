"""Bodies that come after the verifier has waited for its keys: every server hands them on."""

from __future__ import annotations

import json
import time
from http.client import HTTPConnection

import pytest

from tests.servers.guarded_servers import guarded_servers
from tests.servers.serving import SERVERS

pytestmark = pytest.mark.real

KEYS_TAKE_SECONDS = 0.4
BODY = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {}}).encode()


def test_a_body_after_the_wait_for_the_first_keys_arrives(subtests: pytest.Subtests) -> None:
    """The wait is long enough that messages are read ahead, and is over when the body comes."""
    with guarded_servers(KEYS_TAKE_SECONDS=str(KEYS_TAKE_SECONDS)) as servers:
        for server in SERVERS:
            with subtests.test(server):
                connection = HTTPConnection(servers.origins[server].removeprefix("http://"), timeout=10)
                connection.putrequest("POST", "/rpc")
                connection.putheader("Authorization", f"Bearer {servers.token}")
                connection.putheader("Content-Type", "application/json")
                connection.putheader("Content-Length", str(len(BODY)))
                connection.endheaders()
                time.sleep(2 * KEYS_TAKE_SECONDS)
                connection.send(BODY)
                assert connection.getresponse().status == 200
                connection.close()
