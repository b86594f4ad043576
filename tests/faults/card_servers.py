"""The agent of ``agent_of_a_card`` under uvicorn, and what its clients get."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from a2a_trust.keys.ring_file import save_key_ring
from a2a_trust.keys.rotation import KeyRing
from a2a_trust.keys.signer import LocalSigner, generate_signer
from a2a_trust.keys.trust.origins import Origins
from a2a_trust.keys.trust.store import TrustedKey, TrustStore
from a2a_trust.signing.verify import verify_card
from tests.servers.serving import ROOT, SERVERS, free_port, serving

CARD_PATH = "/.well-known/agent-card.json"


@dataclass
class CardServer:
    folder: Path
    signer: LocalSigner
    http: httpx.Client

    @property
    def card_file(self) -> Path:
        return self.folder / "card.json"

    def put_clock(self, seconds_ahead: float) -> None:
        offset = self.folder / "offset.new"
        offset.write_text(str(seconds_ahead))
        offset.replace(self.folder / "offset")

    def check(self, card: bytes) -> None:
        """Return when the card is verified at the true time."""
        trust = TrustStore([TrustedKey(key=self.signer.public_key, origins=Origins("agent.example"))])
        verify_card(card, trust, origin="http://agent.example", now=time.time())


@contextmanager
def card_server(folder: Path, *, signer: LocalSigner | None = None, ahead: float = 0) -> Iterator[CardServer]:
    """The server runs while the block does: with the file ``card.json`` of the folder, which the signer has signed, or,
    without a signer, it signs the card itself. Its clock is so many seconds ahead."""
    key = signer or generate_signer()
    save_key_ring(folder / "ring.json", KeyRing.begin(key, time.time() - 3600))
    port = free_port()
    origin = f"http://127.0.0.1:{port}"
    settings = {
        "RING": str(folder / "ring.json"),
        "OFFSET": str(folder / "offset"),
        "CARD_FILE": str(folder / "card.json") if signer else "",
    }
    with httpx.Client(base_url=origin, trust_env=False, timeout=60) as http:
        server = CardServer(folder, key, http)
        server.put_clock(ahead)
        command = [sys.executable, "-m", *SERVERS["uvicorn-httptools"]("tests.faults.agent_of_a_card:app", port)]
        with serving(command, f"{origin}{CARD_PATH}", settings, ROOT):
            yield server
