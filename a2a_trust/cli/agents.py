"""Cards that agents are asked for by URL, as ``fetch_card`` asks for them: through the fetcher, and with a memory."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from a2a_trust.cli.sources import default_memory_path, needing_client, read_input
from a2a_trust.errors import ConfigurationError

if TYPE_CHECKING:
    from a2a_trust.client.memory import CardMemory
    from a2a_trust.keys.trust import TrustStore
    from a2a_trust.signing.verify import VerifiedCard

__all__ = ["Agents", "agents", "is_url", "received"]

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def is_url(name: str) -> bool:
    """Whether a card is to be asked for; a file whose name looks like that is written with its path: ./…"""
    return _SCHEME.match(name) is not None


def received(name: str) -> bytes:
    """The card of that name as it came, unverified: of the agent at that URL, or of a file.

    FetchError, OSError: it cannot be had. ConfigurationError: the URL could mean an agent or a card.
    """
    if not is_url(name):
        return read_input(name)
    with needing_client("to ask agents"):
        from a2a_trust.client.fetching import finding
        from a2a_trust.client.flow import run
    _, fetched = run(finding(name))
    return fetched.body


@dataclass(frozen=True, slots=True)
class Agents:
    """What is remembered of agents, and whether the keys that they publish themselves are believed at first."""

    memory: CardMemory
    on_first_use: bool

    def verify(self, document: bytes, origin: str, trust: TrustStore) -> VerifiedCard:
        """The proof of a card that was asked for; the errors are those of ``fetch_card``."""
        with needing_client("to ask agents"):
            from a2a_trust.client.first_use import TrustOnFirstUse
            from a2a_trust.client.flow import run
            from a2a_trust.client.verification import Verification
        on_first_use = TrustOnFirstUse() if self.on_first_use else None
        return run(Verification(trust=trust, memory=self.memory, on_first_use=on_first_use).verify(document, origin))


def agents(options: argparse.Namespace) -> Agents | None:
    """What the arguments say of the agents that they name; None when they name none.

    ConfigurationError, CardMemoryUnavailableError, OSError: the memory cannot be had.
    """
    if not any(map(is_url, options.files)):
        if options.memory is not None or options.on_first_use:
            raise ConfigurationError("--memory and --on-first-use are for cards that are asked for: https://…")
        return None
    from a2a_trust.client.memory_store import SqliteCardMemory

    if options.memory is not None:
        return Agents(SqliteCardMemory(options.memory, create=True), options.on_first_use)
    path = default_memory_path()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return Agents(SqliteCardMemory(path, create=True), options.on_first_use)
    except OSError as error:
        raise OSError(f"the memory of this user cannot be made: {error}; name another: --memory FILE") from None
