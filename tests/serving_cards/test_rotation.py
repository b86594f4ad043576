"""Keys rotate in the file of a running agent, while clients ask for its card again and again."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import NamedTuple

import httpx
import pytest

from a2a_trust.errors import TrustError
from a2a_trust.keys.ring_file import load_key_ring, update_key_ring
from tests.serving_cards.agent_card import REST
from tests.serving_cards.conftest import Agents, agents_serving, verified

pytestmark = pytest.mark.real

CARD, JWKS, EXTENDED = "/.well-known/agent-card.json", "/.well-known/jwks.json", f"{REST}/extendedAgentCard"
POLLERS = 4


class Poll(NamedTuple):
    """One conditional request for the card, and the key set asked for afterwards."""

    began: float
    ended: float
    status: int
    kid: str
    card: bytes
    jwks: bytes


@pytest.fixture
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agents]:
    with agents_serving(tmp_path_factory.mktemp("agents"), sdk="") as running:
        yield running


def kid_in(card: bytes) -> str:
    """The name of the key that made all of its signatures."""
    protected = [base64.urlsafe_b64decode(each["protected"] + "==") for each in json.loads(card)["signatures"]]
    (kid,) = {str(json.loads(header)["kid"]) for header in protected}
    return kid


def poll(agents: Agents, stop: Event) -> list[Poll]:
    """Ask until told to stop. Whatever is held, and every extended card, has to be verified by the key set of now."""
    origin, polls, card, tag = agents.origins["sdk"], [], b"", ""
    with httpx.Client(base_url=origin) as http:
        while not stop.is_set():
            began = time.time()
            answer = http.get(CARD, headers={"If-None-Match": tag})
            ended = time.time()
            assert answer.status_code in (200, 304)
            if answer.status_code == 200:
                card, tag = answer.content, answer.headers["etag"]
            extended = http.get(EXTENDED, headers=agents.credential("ann")).raise_for_status().content
            jwks = http.get(JWKS).raise_for_status().content
            verified(card, jwks, origin)
            verified(extended, jwks, origin)
            polls.append(Poll(began, ended, answer.status_code, kid_in(card), card, jwks))
            time.sleep(0.01)
    return polls


def test_no_request_is_lost_and_the_next_one_sees_the_new_signature(agents: Agents) -> None:
    stop, switches, known = Event(), [0.0], []
    kids = [load_key_ring(agents.ring).active(time.time()).kid]
    with ThreadPoolExecutor() as pool:
        polling = [pool.submit(poll, agents, stop) for _ in range(POLLERS)]
        try:
            for _ in range(2):
                ring = update_key_ring(agents.ring, lambda ring: ring.rotate(time.time(), overlap=1, keep=60))
                known.append(time.time())
                following = ring.next(known[-1])
                assert following is not None
                kids.append(following.kid)
                switches.append(following.active_from)
                time.sleep(following.active_from + 0.5 - time.time())
        finally:
            stop.set()
        polls = [each.result() for each in polling]

    for own in polls:
        # One whole card at the start and one for every switch; nothing had changed in between.
        assert [each.kid for each in own if each.status == 200] == kids
        for number, kid in enumerate(kids):
            ends = switches[number + 1] if number + 1 < len(kids) else float("inf")
            between = [each for each in own if each.began >= switches[number] and each.ended < ends]
            assert {each.kid for each in between} == {kid}
        for number, knew in enumerate(known):
            # Whoever has read the key set since the rotation began needs no other one for the new signature.
            seen = next(each for each in own if each.began >= knew)
            new = next(each for each in own if each.kid == kids[number + 1])
            assert verified(new.card, seen.jwks, agents.origins["sdk"])["name"] == "Ledger"


def test_a_revoked_key_is_out_of_card_and_key_set_at_once(agents: Agents) -> None:
    origin = agents.origins["sdk"]
    with httpx.Client(base_url=origin) as http:
        first = http.get(CARD)
        tag = {"If-None-Match": first.headers["etag"]}
        assert http.get(CARD, headers=tag).status_code == 304
        update_key_ring(agents.ring, lambda ring: ring.revoke(kid_in(first.content), time.time()))
        second = http.get(CARD, headers=tag)
        jwks = http.get(JWKS).content
    assert second.status_code == 200
    assert verified(second.content, jwks, origin)["name"] == "Ledger"
    assert [key["kid"] for key in json.loads(jwks)["keys"]] == [kid_in(second.content)]
    with pytest.raises(TrustError):
        verified(first.content, jwks, origin)
