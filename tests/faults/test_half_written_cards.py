"""A card file that is rewritten in place, cut off, removed or replaced by something else, while clients ask for it.

Seen here: every request between the two halves of a write got 503.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from a2a_trust.keys.signer import LocalSigner, generate_signer
from a2a_trust.signing.sign import sign_card
from tests.faults.agent_of_a_card import CARD
from tests.faults.card_servers import CARD_PATH, CardServer, card_server


@pytest.fixture
def signer() -> LocalSigner:
    return generate_signer()


def card(signer: LocalSigner, version: int) -> bytes:
    return json.dumps(sign_card(CARD | {"version": str(version)}, signer).card).encode()


@pytest.fixture
def server(signer: LocalSigner, tmp_path: Path) -> Iterator[CardServer]:
    tmp_path.joinpath("card.json").write_bytes(card(signer, 0))
    with card_server(tmp_path, signer=signer) as running:
        yield running


def version_served(server: CardServer) -> str:
    """The version of the card that a client gets, which is a good one."""
    answer = server.http.get(CARD_PATH)
    assert answer.status_code == 200
    server.check(answer.content)
    version: str = answer.json()["version"]
    return version


def is_served(server: CardServer, version: int) -> bool:
    until = time.monotonic() + 60
    while version_served(server) != str(version) and time.monotonic() < until:
        time.sleep(0.1)
    return version_served(server) == str(version)


def put_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


HARM: dict[str, Callable[[Path], object]] = {
    "cut off": lambda path: os.truncate(path, 300),
    "gone": Path.unlink,
    "a pipe": put_a_pipe,
}


def test_the_last_good_card_is_served_until_the_file_is_good_again(server: CardServer, signer: LocalSigner) -> None:
    for version, harm in enumerate(HARM.values(), 1):
        harm(server.card_file)
        looked_at = time.monotonic() + 2.5  # once per second
        while time.monotonic() < looked_at:
            assert version_served(server) == str(version - 1)
            time.sleep(0.05)
        server.card_file.unlink(missing_ok=True)
        server.card_file.write_bytes(card(signer, version))
        assert is_served(server, version)


def test_no_request_is_lost_while_the_file_is_rewritten_in_place(
    server: CardServer, signer: LocalSigner, is_long: bool
) -> None:
    rounds = 1_000 if is_long else 100
    statuses: list[int] = []
    cards = [card(signer, version) for version in range(1, rounds + 1)]

    def rewrite() -> None:
        for body in cards:
            with server.card_file.open("wb", buffering=0) as file:
                file.write(body[:300])
                time.sleep(0.01)
                file.write(body[300:])
            time.sleep(0.01)

    writer = threading.Thread(target=rewrite)
    writer.start()
    while writer.is_alive():
        answer = server.http.get(CARD_PATH)
        statuses.append(answer.status_code)
        if answer.status_code == 200:
            server.check(answer.content)
    writer.join()
    lost = len([status for status in statuses if status != 200])
    print(f"\n{rounds} rewrites: {lost} of {len(statuses)} requests lost")
    assert lost == 0
    assert is_served(server, rounds)
