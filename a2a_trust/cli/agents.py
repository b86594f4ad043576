"""Cards of agents that are named by URL. They are fetched and verified as ``fetch_card`` does, with a card memory."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING

from a2a_trust.base.net.addresses import is_this_machine
from a2a_trust.base.net.urls import DEFAULT_PORTS, read_url
from a2a_trust.cli.named_cards import is_url
from a2a_trust.cli.report import warn
from a2a_trust.cli.sources import default_memory_path, in_pipeline, needing_client, read_input
from a2a_trust.errors import ConfigurationError, FetchError, MalformedError

if TYPE_CHECKING:
    from a2a_trust.base.net.fetcher import Fetcher
    from a2a_trust.client.memory import CardMemory
    from a2a_trust.keys.trust.store import TrustStore
    from a2a_trust.signing.verify import VerifiedCard


def read_or_fetch(name: str, *, private_origins: bool) -> bytes:
    """The unverified bytes of the card of that name, from the agent at that URL or from a file.

    FetchError, OSError: it cannot be fetched or read. ConfigurationError: the URL could mean an agent or a card.
    """
    if not is_url(name):
        return read_input(name)
    with needing_client("to fetch cards"):
        from a2a_trust.client.fetching import finding
        from a2a_trust.client.flow import run
    _, fetched = run(finding(name), _fetcher(name) if private_origins else None)
    return fetched.body


def check_private_origins(options: argparse.Namespace) -> None:
    """ConfigurationError for --private-origins without the URL of an agent."""
    if options.private_origins and not any(map(is_url, options.files)):
        raise ConfigurationError(
            "--private-origins works only with the URL of an agent, such as http://localhost:8000; leave it out for "
            "files"
        )


def _fetcher(url: str) -> Fetcher | None:
    """A fetcher for an agent at a private address; None for a URL that no fetcher accepts."""
    from a2a_trust.base.net.fetcher import Fetcher

    try:
        parts = read_url(url)
    except MalformedError:
        return None
    if parts.scheme == "http" and not is_this_machine(parts.host):
        raise FetchError(
            f"{parts.origin}: http is for this machine only, even with --private-origins; write https://…, or for "
            "names in a service mesh use fetch_card in Python with Fetcher(http_within=[…])"
        )
    if parts.scheme not in DEFAULT_PORTS:
        return None
    try:
        return Fetcher(private_origins=[parts.origin])
    except ConfigurationError:
        raise FetchError(
            f"{parts.origin}: cards are never fetched from link-local, metadata and other special addresses; write "
            "another URL"
        ) from None


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """How cards are fetched.

    Without a ``memory``, rollback is not checked. ``on_first_use``: the keys of unknown agents are trusted on first
    use.
    """

    memory: CardMemory | None
    on_first_use: bool
    private_origins: bool

    def verify(self, document: bytes, url: str, origin: str, trust: TrustStore) -> VerifiedCard:
        """Verify a card that was fetched from that URL. Errors as of ``fetch_card``."""
        with needing_client("to fetch cards"):
            from a2a_trust.client.flow import run
            from a2a_trust.client.verification import TrustOnFirstUse, Verification
        on_first_use = TrustOnFirstUse() if self.on_first_use else None
        verification = Verification(trust=trust, memory=self.memory, on_first_use=on_first_use)
        return run(verification.verify(document, origin), _fetcher(url) if self.private_origins else None)


def fetch_settings(options: argparse.Namespace) -> FetchSettings | None:
    """The settings for agents that the arguments name; None if they name no agent.

    A pipeline uses no memory that is not named: an earlier job or another branch may have filled the user's memory.

    ConfigurationError, CardMemoryUnavailableError, OSError: the memory cannot be opened.
    """
    check_private_origins(options)
    if not any(map(is_url, options.files)):
        if options.memory is not None or options.on_first_use:
            raise ConfigurationError(
                "--memory and --on-first-use work only with the URL of an agent (https://…); leave them out for files"
            )
        return None
    from a2a_trust.cli.stores import card_memory

    if options.memory is not None:
        return FetchSettings(card_memory(options.memory, create=True), options.on_first_use, options.private_origins)
    if in_pipeline():
        if options.on_first_use:
            raise ConfigurationError(
                "--on-first-use: a pipeline (CI is set) uses no memory of a user; name one: --memory FILE|URL"
            )
        warn(
            "rollback was not checked: a pipeline (CI is set) uses no card memory of a user; to reject cards that are "
            "older than the last one, name a memory: --memory FILE|URL"
        )
        return FetchSettings(None, on_first_use=False, private_origins=options.private_origins)
    path = default_memory_path()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return FetchSettings(card_memory(str(path), create=True), options.on_first_use, options.private_origins)
    except OSError as error:
        raise OSError(f"the card memory of this user cannot be made: {error}; name another: --memory FILE") from None
