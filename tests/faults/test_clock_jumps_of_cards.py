"""A server whose clock ran ahead, and came back: what it signed meanwhile begins in the future for everybody else.

Seen here: such a card was served until the server was started again, and verifiers refused it.
"""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from pathlib import Path

import httpx
import pytest

from a2a_trust.errors import TrustError
from tests.faults.agent_of_a_card import KEY
from tests.faults.card_servers import CARD_PATH, CardServer, card_server

DAY = 86_400
EXTENDED = "/rest/extendedAgentCard"


def get(server: CardServer, path: str) -> httpx.Response:
    return server.http.get(path, headers={"X-API-Key": KEY}).raise_for_status()


@pytest.mark.parametrize("path", [CARD_PATH, EXTENDED])
def test_the_card_is_signed_again_when_the_clock_comes_back(path: str, tmp_path: Path, is_long: bool) -> None:
    with card_server(tmp_path, ahead=DAY) as server:
        for days in range(1, 30 if is_long else 3):
            server.put_clock(days * DAY)
            ahead = get(server, path)
            if days == 1:
                with pytest.raises(TrustError, match="in the future"):
                    server.check(ahead.content)
            server.put_clock(0)
            back = get(server, path)
            server.check(back.content)
            assert get(server, path).content == back.content


def test_no_cache_keeps_a_card_from_the_future(tmp_path: Path) -> None:
    with card_server(tmp_path, ahead=DAY) as server:
        ahead = get(server, CARD_PATH)
        server.put_clock(0)
        for name, header in (("If-None-Match", "etag"), ("If-Modified-Since", "last-modified")):
            again = server.http.get(CARD_PATH, headers={name: ahead.headers[header]})
            assert again.status_code == 200
            server.check(again.content)
            assert parsedate_to_datetime(again.headers["last-modified"]) < parsedate_to_datetime(
                ahead.headers["last-modified"]
            )
