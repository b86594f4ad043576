"""The keys that the arguments of a command name as trusted: in a trust file, or one by one."""

from __future__ import annotations

import argparse
import errno
import os
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from a2a_trust.base.strict_json import parse
from a2a_trust.card.ambiguity import check_card
from a2a_trust.card.view import interface_urls
from a2a_trust.cli.named_cards import is_url
from a2a_trust.cli.report import warn
from a2a_trust.cli.sources import keys_for_alg, needing_client, public_key, public_keys, trust_file_command
from a2a_trust.errors import ConfigurationError, KeySourceUnavailableError, MalformedError, TrustError
from a2a_trust.keys.jwk import KeySet, PublicKey
from a2a_trust.keys.trust.origins import OriginFromCard, Origins, UnsafeAnyOrigin, host_of, interface_host
from a2a_trust.keys.trust.store import SigningTool, TrustedKey, TrustStore

if TYPE_CHECKING:
    from a2a_trust.keys.trust.file import TrustFile

_NO_KEYS: Final = KeySet(keys=())


@dataclass(frozen=True, slots=True)
class TrustedKeys:
    """The trusted keys, and the URL or host that all cards are from, if the arguments name it.

    ``store`` is the trust file as it was at the start; ``file`` is set if it names key sets on the network.
    """

    origin: str | OriginFromCard | UnsafeAnyOrigin | None
    store: TrustStore | None = None
    file: TrustFile | None = None
    keys: KeySet = _NO_KEYS
    signer: SigningTool | None = None

    def origin_of(self, name: str) -> str | OriginFromCard | UnsafeAnyOrigin:
        """Where the card of that name is from. A fetched card is from the URL of its agent."""
        if is_url(name) and not isinstance(self.origin, str):
            return name
        return UnsafeAnyOrigin() if self.origin is None else self.origin

    def store_for(self, document: bytes, origin: str | OriginFromCard | UnsafeAnyOrigin) -> TrustStore:
        """The keys for a card. Key sets on the network are fetched for its hosts; a failure is a warning."""
        if self.store is not None:
            return self.store
        if self.file is None:
            return _store_of(self.keys, self.signer, origin if isinstance(origin, str) else None)
        import asyncio  # slow, and only needed for the network

        hosts = [origin] if isinstance(origin, str) else _hosts_in(document)
        for host in hosts:
            try:
                asyncio.run(self.file.fetch(host))
            except KeySourceUnavailableError as error:
                warn(f"continuing without the keys of this key set: {error}")
        return self.file.trust_store()

    def names_no_signer(self, kids: set[str | None]) -> bool:
        """Whether the signer of one of these keys is not named."""
        store = self.store if self.file is None else self.file.trust_store()
        if store is None:
            return self.signer is None
        return any(each.signer is None for each in store.keys if each.key.kid in kids)


@lru_cache(maxsize=1024)  # many cards of one origin
def _store_of(given: KeySet, signer: SigningTool | None, origin: str | None) -> TrustStore:
    origins = UnsafeAnyOrigin() if origin is None else Origins(host_of(origin))
    trusted = [TrustedKey(key=key, origins=origins, signer=signer) for key in given.keys]
    return TrustStore(trusted, revoked=given.revoked)


def trusted_keys(options: argparse.Namespace) -> TrustedKeys:
    """The keys that the arguments name; ConfigurationError, MalformedError, OSError."""
    inputs = [*options.files, *options.jwks, *options.public_key, getattr(options, "cards_from", None)]
    if [*inputs, options.files_from].count("-") > 1:
        raise ConfigurationError("- (standard input) can be read only once")
    if options.trust is not None and (
        options.jwks or options.public_key or options.signer or options.kid is not None or options.alg is not None
    ):
        raise ConfigurationError(
            "--trust already names keys and signers; leave out --jwks, --public-key, --kid, --alg and --signer"
        )
    _check_origin(options)
    unbound = UnsafeAnyOrigin() if options.any_origin else None
    origin = OriginFromCard() if options.origin_from_card else options.origin or unbound
    if options.trust is not None:
        file = _trust_file(Path(options.trust))
        return TrustedKeys(origin, file=file) if file.document.urls else TrustedKeys(origin, file.trust_store())
    signer = None if options.signer is None else SigningTool(options.signer)
    return TrustedKeys(origin, keys=_named_keys(options), signer=signer)


def _check_origin(options: argparse.Namespace) -> None:
    """ConfigurationError when the arguments do not bind every card to a host; only --any-origin does without."""
    if options.origin is not None:
        try:
            host_of(options.origin)
        except MalformedError:
            raise ConfigurationError(
                "--origin: write the URL or the host of the agent, as in https://agent.example.com"
            ) from None
    if options.origin_from_card and options.trust is None:
        raise ConfigurationError(
            "--origin-from-card needs --trust FILE, which names the hosts that each key is trusted for; with --jwks "
            "and --public-key name the host: --origin URL"
        )
    is_said = options.origin is not None or options.origin_from_card or options.any_origin
    if not is_said and (unbound := next((name for name in options.files if not is_url(name)), None)):
        if not os.path.lexists(unbound) and unbound != "-":
            raise FileNotFoundError(
                errno.ENOENT, f"no such file; for an agent write its URL: https://{unbound}", unbound
            )
        raise ConfigurationError(
            f"{unbound}: say where the card is from: --origin URL (of the agent), --origin-from-card (with --trust: "
            "from the host of its first interface), or --any-origin (not bound to a host)"
        )


def _trust_file(path: Path) -> TrustFile:
    from a2a_trust.keys.trust.file import TrustFile, load_trust

    try:
        document = load_trust(path)
    except FileNotFoundError:
        text = f"--trust {path}: no such file; name your trust file, or make one: {trust_file_command(str(path))}"
        raise FileNotFoundError(text) from None
    if not document.urls:
        return TrustFile(path)
    with needing_client(f"to fetch the key sets that {path} names"):
        from a2a_trust.base.net.fetcher import Fetcher
    return TrustFile(path, fetcher=Fetcher())


def _hosts_in(document: bytes) -> list[str]:
    """The hosts of the card's interfaces; empty for an unreadable card, whose error comes when it is verified."""
    hosts: list[str] = []
    with suppress(TrustError):
        card = parse(document, what="card")
        check_card(card)
        hosts = [interface_host(url) for _, url in interface_urls(card)]
    return list(dict.fromkeys(hosts))


def _named_keys(options: argparse.Namespace) -> KeySet:
    """The keys of --jwks and --public-key; keys without an algorithm get the one of --alg."""
    keys: list[PublicKey] = []
    revoked: frozenset[str] = frozenset()
    for name in options.jwks:
        if is_url(name):
            raise ConfigurationError(
                f"--jwks {name}: --jwks needs a file. For a key set on the network make a trust file: a2a-sign trust "
                "add trust.toml --origin HOST --jwks-url URL, then verify with --trust trust.toml"
            )
        found = public_keys(name)
        keys.extend(keys_for_alg(found.keys, options.alg, name))
        revoked |= found.revoked
    for name in options.public_key:
        keys.extend(keys_for_alg([public_key(name, options.kid)], options.alg, name))
    return KeySet(keys=tuple(dict.fromkeys(keys)), revoked=revoked)
