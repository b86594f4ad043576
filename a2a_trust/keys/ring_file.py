"""Key rings in files: one JSON file, for its owner only, written whole, changed by one process at a time."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from a2a_trust.errors import ConfigurationError, TrustError
from a2a_trust.files.atomic import locked, write_atomically
from a2a_trust.files.watched import Stamp, Watched, open_regular, stamp_of, stamp_of_path
from a2a_trust.keys.files import PassphraseNeededError, read_key_file
from a2a_trust.keys.jwk import PublicKey
from a2a_trust.keys.origins import UnsafeAnyOrigin
from a2a_trust.keys.rotation import KeyRing, key_ring_bytes, read_key_ring
from a2a_trust.keys.signer import LocalSigner
from a2a_trust.keys.trust import TrustedKey, TrustStore
from a2a_trust.strict_json import MAX_BYTES

__all__ = ["KeyRingFile", "load_key_ring", "save_key_ring", "update_key_ring"]

_log: Final = logging.getLogger(__name__)


def load_key_ring(path: Path | str, *, passphrase: str | None = None) -> KeyRing:
    """The ring in a file that only its owner can read; refusals and warnings as of ``load_private_key``."""
    path = Path(path)
    with path.open("rb") as file:
        data = read_key_file(file, path, max_bytes=MAX_BYTES)
    return read_key_ring(data, passphrase=passphrase)


def save_key_ring(path: Path | str, ring: KeyRing) -> None:
    """After this a new file, of mode 0600, holds the ring. FileExistsError: change a file with ``update_key_ring``."""
    write_atomically(Path(path), key_ring_bytes(ring), mode=0o600, replace=False)


def update_key_ring(
    path: Path | str, change: Callable[[KeyRing], KeyRing], *, passphrase: str | None = None
) -> KeyRing:
    """The ring that ``change`` makes of the one in the file, which then holds it; others who change it wait so long.

    Readers do not wait: they see the old ring or the new one. Where ``change`` raises, the file stays as it was. The
    file keeps its mode. OSError: the file cannot be written, or another program changed it meanwhile without the lock.
    """
    path = Path(path)
    with locked(path) as file:
        data = read_key_file(file.opened, path, max_bytes=MAX_BYTES)
        ring = change(read_key_ring(data, passphrase=passphrase))
        changed = key_ring_bytes(ring)
        if changed != data:
            file.prepare(changed)
            file.commit()
    return ring


class KeyRingFile:
    """The ring in a file, for servers: read when it is made, and again as soon as the file has changed.

    Why this is a class: it remembers what it read and what the file looked like then. A file that cannot be read any
    more leaves the last ring in its place, and the log says so; its keys go on by their times. It stands wherever a
    signer or published keys are asked for by time: ``CardSigner(file)``, ``JwksEndpoint(file)``; and where trusted keys
    are, for one's own cards: ``CardFile(path, trust=file)``.
    """

    def __init__(self, path: Path | str, *, passphrase: str | None = None) -> None:
        """OSError, MalformedError, ConfigurationError: the ring cannot be read, or cannot sign, from the start."""
        self._path = Path(path)
        self._passphrase = passphrase
        self._file = Watched(
            self._read,
            lambda: stamp_of_path(self._path),
            failures=(TrustError, OSError, Warning),  # warnings may be made errors
            tell=self._tell,
        )
        self._trusted = self.ring(), _trusted(self.ring())

    def ring(self) -> KeyRing:
        """The ring as the file has it now. An unchanged file costs one look at its times and size."""
        return self._file.value()

    def signer(self, now: float) -> LocalSigner:
        """The signer with the key that is active now."""
        return self.ring().signer(now)

    def published(self, now: float) -> tuple[PublicKey, ...]:
        """The public halves to publish now."""
        return self.ring().published(now)

    def revoked(self) -> tuple[PublicKey, ...]:
        """The public halves of the revoked keys."""
        return self.ring().revoked()

    def trust_store(self) -> TrustStore:
        """The keys of the ring, each until it is removed, and the revoked ones as such. They speak for every host: a
        ring does not know for which ones its owner lets it speak."""
        ring = self.ring()
        if ring is not self._trusted[0]:
            self._trusted = ring, _trusted(ring)
        return self._trusted[1]

    def _read(self) -> tuple[KeyRing, Stamp]:
        with open_regular(self._path) as file:
            stamp = stamp_of(os.fstat(file.fileno()))
            data = read_key_file(file, self._path, max_bytes=MAX_BYTES)
        ring = read_key_ring(data, passphrase=self._passphrase)
        if not ring.is_open:
            raise PassphraseNeededError(f"key ring: {self._path} is encrypted and no passphrase was given")
        return ring, stamp

    def _tell(self, failure: Exception | None) -> None:
        if failure is None:
            _log.info("key ring %s was read again", self._path)
        else:
            _log.error(
                "key ring %s cannot be read; keeping the previous version: %s", self._path, _reason(failure, self._path)
            )


def _trusted(ring: KeyRing) -> TrustStore:
    return TrustStore(
        TrustedKey(key=key.public_key, origins=UnsafeAnyOrigin(), not_after=key.removed_at, revoked=key.is_revoked)
        for key in ring.keys
    )


def _reason(error: Exception, path: Path) -> str:
    """What the log may say: the text about a broken file could repeat a part of it."""
    if isinstance(error, TrustError) and not isinstance(error, ConfigurationError):
        return f"it is no sound key ring; see: a2a-sign keys list {path}"
    return (error.strerror or type(error).__name__) if isinstance(error, OSError) else str(error)
