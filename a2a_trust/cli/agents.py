"""Cards that agents are asked for by URL, as ``fetch_card`` asks for them: through the fetcher, and with a memory."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING

from a2a_trust.cli.named_cards import is_url
from a2a_trust.cli.sources import default_memory_path, needing_client, read_input
from a2a_trust.errors import ConfigurationError, FetchError, MalformedError
from a2a_trust.net.addresses import is_this_machine
from a2a_trust.net.urls import DEFAULT_PORTS, read_url

if TYPE_CHECKING:
    from a2a_trust.client.memory import CardMemory
    from a2a_trust.keys.trust import TrustStore
    from a2a_trust.net.fetcher import Fetcher
    from a2a_trust.signing.verify import VerifiedCard

__all__ = ["Agents", "agents", "check_allow_private", "received"]


def received(name: str, *, allow_private: bool) -> bytes:
    """The card of that name as it came, unverified: of the agent at that URL, or of a file.

    FetchError, OSError: it cannot be had. ConfigurationError: the URL could mean an agent or a card.
    """
    if not is_url(name):
        return read_input(name)
    with needing_client("to ask agents"):
        from a2a_trust.client.fetching import finding
        from a2a_trust.client.flow import run
    _, fetched = run(finding(name), _fetcher(name) if allow_private else None)
    return fetched.body


def check_allow_private(options: argparse.Namespace) -> None:
    """ConfigurationError: --allow-private, and no agent is asked."""
    if options.allow_private and not any(map(is_url, options.files)):
        raise ConfigurationError("--allow-private is for cards that are asked for: https://…, http://localhost:8000")


def _fetcher(url: str) -> Fetcher | None:
    """A fetcher for the agent at that URL on this machine, or with private addresses; None for a URL that none fetches.

    FetchError: http to another machine, or an address that is never fetched from.
    """
    from a2a_trust.net.fetcher import Fetcher

    try:
        parts = read_url(url)
    except MalformedError:
        return None
    if parts.scheme == "http" and not is_this_machine(parts.host):
        raise FetchError(
            f"{parts.origin}: http is for this machine only, also with --allow-private; write https://…, or for names "
            "in a service mesh use fetch_card in Python with Fetcher(http_within=[…])"
        )
    if parts.scheme not in DEFAULT_PORTS:
        return None
    try:
        return Fetcher(private_origins=[parts.origin])
    except ConfigurationError:
        raise FetchError(
            f"{parts.origin}: link-local, metadata and other special addresses are never fetched from"
        ) from None


@dataclass(frozen=True, slots=True)
class Agents:
    """What is remembered of agents, and whether the keys that they publish themselves are believed at first."""

    memory: CardMemory
    on_first_use: bool
    allow_private: bool

    def verify(self, document: bytes, url: str, origin: str, trust: TrustStore) -> VerifiedCard:
        """The proof of a card that was asked for at that URL; the errors are those of ``fetch_card``."""
        with needing_client("to ask agents"):
            from a2a_trust.client.first_use import TrustOnFirstUse
            from a2a_trust.client.flow import run
            from a2a_trust.client.verification import Verification
        on_first_use = TrustOnFirstUse() if self.on_first_use else None
        verification = Verification(trust=trust, memory=self.memory, on_first_use=on_first_use)
        return run(verification.verify(document, origin), _fetcher(url) if self.allow_private else None)


def agents(options: argparse.Namespace) -> Agents | None:
    """What the arguments say of the agents that they name; None when they name none.

    ConfigurationError, CardMemoryUnavailableError, OSError: the memory cannot be had.
    """
    check_allow_private(options)
    if not any(map(is_url, options.files)):
        if options.memory is not None or options.on_first_use:
            raise ConfigurationError("--memory and --on-first-use are for cards that are asked for: https://…")
        return None
    from a2a_trust.client.memory_store import SqliteCardMemory

    if options.memory is not None:
        return Agents(SqliteCardMemory(options.memory, create=True), options.on_first_use, options.allow_private)
    path = default_memory_path()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return Agents(SqliteCardMemory(path, create=True), options.on_first_use, options.allow_private)
    except OSError as error:
        raise OSError(f"the memory of this user cannot be made: {error}; name another: --memory FILE") from None
