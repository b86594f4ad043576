"""Cards of agents that are named by URL. They are fetched and verified as ``fetch_card`` does, with a card memory."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from a2a_trust.base.net.addresses import is_this_machine
from a2a_trust.base.net.urls import DEFAULT_PORTS, read_url
from a2a_trust.card.places import HeaderPlace
from a2a_trust.cli.named_cards import is_url
from a2a_trust.cli.report import warn
from a2a_trust.cli.sources import default_memory_path, in_pipeline, needing_client, read_input
from a2a_trust.errors import ConfigurationError, FetchError, MalformedError
from a2a_trust.keys.trust.origins import host_of

if TYPE_CHECKING:
    from a2a_trust.base.net.fetcher import Fetcher
    from a2a_trust.client.memory import CardMemory
    from a2a_trust.keys.trust.store import TrustStore
    from a2a_trust.signing.verify import VerifiedCard


def read_or_fetch(name: str, options: argparse.Namespace) -> bytes:
    """The unverified bytes of the card of that name, from the agent at that URL or from a file. The headers and the
    certificate of the arguments go to this one URL, and not with a request for keys.

    FetchError, OSError: it cannot be fetched or read. ConfigurationError: the URL could mean an agent or a card.
    """
    if not is_url(name):
        return read_input(name)
    with needing_client("to fetch cards"):
        from a2a_trust.client.flow import HiddenHeaders, run
        from a2a_trust.client.verification import finding
    headers = HiddenHeaders(_headers_in(options.header_from) if options.header_from else {})
    certificate = options.client_certificate and (options.client_certificate, options.client_key)
    fetcher = _fetcher(name, private=options.private_origins, certificate=certificate)
    _, fetched = run(finding(name, fetcher, headers, is_place=is_elsewhere(name, options.origin)))
    return fetched.body


def is_elsewhere(url: str, origin: str | None) -> bool:
    """Whether the URL is only a place of the card, such as a registry's, and --origin the agent."""
    return origin is not None and host_of(url) != host_of(origin)


def _headers_in(name: str) -> dict[str, str]:
    """The headers in the file of --header-from, one on a line. ConfigurationError: one is malformed, or not safe."""
    headers: dict[str, str] = {}
    for number, line in enumerate(read_input(name).decode("ascii", errors="replace").rstrip("\n").split("\n"), 1):
        header, colon, value = line.partition(": ")
        try:
            if header.lower() != "authorization":
                HeaderPlace(header)
        except ConfigurationError:
            colon = ""  # the line may be a secret, and is not shown
        if not colon or header.lower() in map(str.lower, headers):
            raise ConfigurationError(
                f"--header-from {name}: line {number}: not a header for a credential, or not once; write lines such as "
                "Authorization: Bearer … or X-API-Key: …, without Host, Cookie and headers of the connection"
            )
        headers[header] = value
    return headers


def check_private_origins(options: argparse.Namespace) -> None:
    """ConfigurationError for --private-origins without the URL of an agent, and for a credential for several cards."""
    has_certificate, has_key = options.client_certificate is not None, options.client_key is not None
    if has_certificate is not has_key:
        raise ConfigurationError("--client-certificate and --client-key: give both, or leave out both")
    if options.header_from is not None or has_certificate:
        (url, *more) = options.files or [""]
        is_card = url.partition("?")[0].endswith(".json") or is_elsewhere(url, options.origin)
        if more or not is_card or not is_url(url):
            raise ConfigurationError(
                "--header-from and --client-certificate: name only the URL of one card, which ends in .json"
            )
    if options.private_origins and not any(map(is_url, options.files)):
        raise ConfigurationError(
            "--private-origins works only with the URL of an agent, such as http://localhost:8000; leave it out for "
            "files"
        )


def _fetcher(url: str, *, private: bool, certificate: Sequence[str] | None = None) -> Fetcher | None:
    """A fetcher for an agent at a private address, or that asks for a certificate; None: the default one will do."""
    if not private and not certificate:
        return None
    from a2a_trust.base.net.fetcher import Fetcher
    from a2a_trust.client.certificates import CertificateFiles, client_context

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
    context = client_context(CertificateFiles(*certificate, origins=[parts.origin])) if certificate else None
    try:
        return Fetcher(private_origins=[parts.origin] if private else (), ssl_context=context)
    except ConfigurationError:
        raise FetchError(
            f"{parts.origin}: cards are never fetched from link-local, metadata and other special addresses; write "
            "another URL"
        ) from None


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """How cards are fetched.

    Without a ``memory``, rollback is not checked. ``on_first_use``: the keys of unknown agents are trusted on first
    use. ``clock`` gives the moment of the verification.
    """

    memory: CardMemory | None
    on_first_use: bool
    private_origins: bool
    clock: Callable[[], float] = time.time

    def verify(self, document: bytes, url: str, origin: str, trust: TrustStore) -> VerifiedCard:
        """Verify a card that was fetched from that URL. Errors as of ``fetch_card``."""
        with needing_client("to fetch cards"):
            from a2a_trust.client.flow import run
            from a2a_trust.client.verification import TrustOnFirstUse, Verification
        on_first_use = TrustOnFirstUse() if self.on_first_use else None
        fetcher = _fetcher(url, private=self.private_origins)
        verification = Verification(
            trust=trust, memory=self.memory, on_first_use=on_first_use, fetcher=fetcher, clock=self.clock
        )
        return run(verification.verify(document, origin, is_elsewhere=is_elsewhere(url, origin)))


def fetch_settings(options: argparse.Namespace, at: float | None) -> FetchSettings | None:
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
    if at is not None:
        if options.memory is not None or options.on_first_use:
            raise ConfigurationError("--at uses no memory: leave out --memory and --on-first-use")
        return FetchSettings(None, False, options.private_origins, partial(float, at))
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
