"""The keys that a command is told to trust: by a trust file, or one by one."""

from __future__ import annotations

import argparse
import errno
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from a2a_trust.card.ambiguity import check_card
from a2a_trust.card.view import interface_urls
from a2a_trust.cli.named_cards import is_url
from a2a_trust.cli.report import warn
from a2a_trust.cli.sources import given_alg, needing_client, public_key, public_keys
from a2a_trust.errors import ConfigurationError, KeySourceUnavailableError, MalformedError, TrustError
from a2a_trust.keys.jwk import PublicKey
from a2a_trust.keys.origins import Origins, UnsafeAnyOrigin, host_of, interface_host
from a2a_trust.keys.trust import SigningTool, TrustedKey, TrustStore
from a2a_trust.strict_json import parse

if TYPE_CHECKING:
    from a2a_trust.keys.trust_file import TrustFile

__all__ = ["TrustedKeys", "trusted_keys"]


@dataclass(frozen=True, slots=True)
class TrustedKeys:
    """Keys, and the URL or host that all cards are from, if it was named.

    ``origin_from_card``: a card is from the host of its first interface. The entry of the signing key has to cover that
    host then, and those of all other interfaces, as for every card.
    """

    origin: str | None
    origin_from_card: bool = False
    file: TrustFile | None = None
    keys: tuple[PublicKey, ...] = ()
    signer: SigningTool | None = None

    def origin_of(self, name: str, document: bytes) -> str | UnsafeAnyOrigin:
        """Where the card of that name is from, as far as is known: an agent's card is from where it was asked.

        MalformedError: it is from where it says itself, and does not say it.
        """
        if self.origin is not None:
            return self.origin
        if is_url(name):
            return name
        if not self.origin_from_card:
            return UnsafeAnyOrigin()
        card = parse(document, what="card")
        check_card(card)
        urls = interface_urls(card)
        if not urls:
            raise MalformedError(
                "card: no interface, so no host to take for its origin; if it is an Agent Card, add --origin URL"
            )
        return interface_host(urls[0][1])

    def store_for(self, document: bytes, origin: str | UnsafeAnyOrigin) -> TrustStore:
        """The keys for a card; those on the network are fetched for its hosts, and what fails is a warning."""
        if self.file is None:
            origins = Origins(host_of(origin)) if isinstance(origin, str) else origin
            return TrustStore(TrustedKey(key=key, origins=origins, signer=self.signer) for key in self.keys)
        if not self.file.document.urls:
            return self.file.trust_store()
        import asyncio  # only the network needs it, and the start is to be fast

        hosts = [origin] if isinstance(origin, str) else _hosts_in(document)
        for host in hosts:
            try:
                asyncio.run(self.file.fetch(host))
            except KeySourceUnavailableError as error:
                warn(f"going on without its keys: {error}")
        return self.file.trust_store()

    def names_no_signer(self, kids: set[str | None]) -> bool:
        """Whether nothing is said of how the signer of one of these keys signs."""
        if self.file is None:
            return self.signer is None
        return any(each.signer is None for each in self.file.trust_store().keys if each.key.kid in kids)


def trusted_keys(options: argparse.Namespace) -> TrustedKeys:
    """What the arguments name; ConfigurationError, MalformedError, OSError."""
    inputs = [*options.files, *options.jwks, *options.public_key]
    if [*inputs, options.files_from].count("-") > 1:
        raise ConfigurationError("- (standard input) can be read only once")
    if options.trust is not None and (
        options.jwks or options.public_key or options.signer or options.kid is not None or options.alg is not None
    ):
        raise ConfigurationError(
            "--trust says which keys and signers; leave out --jwks, --public-key, --kid, --alg and --signer"
        )
    _check_origin(options)
    if options.trust is not None:
        return TrustedKeys(options.origin, options.origin_from_card, _trust_file(Path(options.trust)))
    signer = None if options.signer is None else SigningTool(options.signer)
    return TrustedKeys(options.origin, keys=_named_keys(options), signer=signer)


def _check_origin(options: argparse.Namespace) -> None:
    """Every card is bound to a host, unless the caller says that it is not: nothing is left out by mistake."""
    if options.origin is not None:
        try:
            host_of(options.origin)
        except MalformedError:
            raise ConfigurationError(
                "--origin: write the URL or the host of the agent, as in https://agent.example.com"
            ) from None
    if options.origin_from_card and options.trust is None:
        raise ConfigurationError(
            "--origin-from-card needs --trust FILE, which says for which hosts each key may speak; with --jwks and "
            "--public-key name the host: --origin URL"
        )
    is_said = options.origin is not None or options.origin_from_card or options.any_origin
    if not is_said and (unbound := next((name for name in options.files if not is_url(name)), None)):
        if not os.path.lexists(unbound) and unbound != "-":
            raise FileNotFoundError(
                errno.ENOENT, f"no such file; for an agent write its URL: https://{unbound}", unbound
            )
        raise ConfigurationError(
            f"{unbound}: say where the card is from: --origin URL (of the agent), --origin-from-card (with --trust: "
            "the hosts of its interfaces), or --any-origin (not bound to a host)"
        )


def _trust_file(path: Path) -> TrustFile:
    from a2a_trust.keys.trust_file import TrustFile, load_trust

    if not load_trust(path).urls:
        return TrustFile(path)
    with needing_client(f"for the key sets on the network that {path} names"):
        from a2a_trust.net.fetcher import Fetcher
    return TrustFile(path, fetcher=Fetcher())


def _hosts_in(document: bytes) -> list[str]:
    """The hosts of the card's interfaces; none where it cannot be read: verifying will say why."""
    hosts: list[str] = []
    with suppress(TrustError):
        card = parse(document, what="card")
        check_card(card)
        hosts = [interface_host(url) for _, url in interface_urls(card)]
    return list(dict.fromkeys(hosts))


def _named_keys(options: argparse.Namespace) -> tuple[PublicKey, ...]:
    """The keys of --jwks and --public-key, for the algorithm of --alg where they do not say so themselves."""
    keys: list[PublicKey] = []
    for name in options.jwks:
        if is_url(name):
            raise ConfigurationError(
                f"--jwks {name}: this is a file; a trust file names key sets on the network: a2a-sign trust add "
                "trust.toml --origin HOST --jwks-url URL, and then --trust trust.toml"
            )
        keys.extend(given_alg(public_keys(name), options.alg, name))
    for name in options.public_key:
        keys.extend(given_alg([public_key(name, options.kid)], options.alg, name))
    return tuple(dict.fromkeys(keys))
