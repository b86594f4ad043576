"""Key rings in files: one JSON file that only its owner can read, changed by one process at a time."""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Final

from a2a_trust.base.files.atomic import lock_file, write_atomically
from a2a_trust.base.files.watched import (
    Stamp,
    Watched,
    log_outcome,
    missing_file,
    open_regular,
    reason_of,
    stamp_of,
    stamp_of_path,
)
from a2a_trust.base.strict_json import MAX_BYTES
from a2a_trust.errors import ConfigurationError, TrustError
from a2a_trust.keys.files import PassphraseNeededError, read_key_file
from a2a_trust.keys.jwk import PublicKey
from a2a_trust.keys.rotation import KeyRing, key_ring_bytes, read_key_ring
from a2a_trust.keys.signer import LocalSigner
from a2a_trust.keys.trust.origins import UnsafeAnyOrigin
from a2a_trust.keys.trust.store import TrustedKey, TrustStore

_log: Final = logging.getLogger(__name__)


def load_key_ring(path: Path | str, *, passphrase: str | None = None) -> KeyRing:
    """Read a key ring from a file that only its owner can read; errors and warnings as ``load_private_key``."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            data = read_key_file(file, path, max_bytes=MAX_BYTES)
    except FileNotFoundError:
        raise _missing_ring(path) from None
    return read_key_ring(data, passphrase=passphrase)


def save_key_ring(path: Path | str, ring: KeyRing) -> None:
    """Write the ring to a new file of mode 0600. FileExistsError: use ``update_key_ring`` to change a file."""
    write_atomically(Path(path), key_ring_bytes(ring), mode=0o600, replace=False)


def update_key_ring(
    path: Path | str, change: Callable[[KeyRing], KeyRing], *, passphrase: str | None = None
) -> KeyRing:
    """Replace the ring in the file by the result of ``change``, and return it.

    Other writers wait; readers do not, and see the old ring or the new one. If ``change`` raises, the file stays as it
    was. The file keeps its mode. OSError: the file cannot be written, or another program changed it without the lock.
    """
    path = Path(path)
    with lock_file(path) as file:
        data = read_key_file(file.opened, path, max_bytes=MAX_BYTES)
        ring = change(read_key_ring(data, passphrase=passphrase))
        changed = key_ring_bytes(ring)
        if changed != data:
            file.prepare(changed)
            file.commit()
    return ring


class KeyRingFile:
    """The key ring in a file, for servers: read at the start, and again after each change of the file.

    If a changed file is unreadable, the last ring stays in use, and the log says so; the states of its keys still
    change with time. Use it as a signer and for published keys, as in ``CardSigner(file)`` and
    ``JwksEndpoint(file)``, and as the trusted keys for your own cards: ``CardFile(path, trust=file)``.
    """

    def __init__(self, path: Path | str, *, passphrase: str | None = None) -> None:
        """Read the ring. OSError, MalformedError, ConfigurationError: it cannot be read, or it cannot sign."""
        self._path = Path(path)
        self._passphrase = passphrase
        self._file = Watched(
            self._read,
            lambda: stamp_of_path(self._path),
            failures=(TrustError, OSError, Warning),  # a program may turn warnings into errors
            tell=log_outcome(_log, f"key ring {path}", self._reason),
        )
        self._trusted = self.ring(), _trust_in(self.ring())

    def ring(self) -> KeyRing:
        """The ring that is in the file now. An unchanged file costs one check of its times and size."""
        return self._file.value()

    def signer(self, now: float) -> LocalSigner:
        return self.ring().signer(now)

    def published(self, now: float) -> tuple[PublicKey, ...]:
        return self.ring().published(now)

    def revoked(self) -> tuple[PublicKey, ...]:
        return self.ring().revoked()

    def trust_store(self) -> TrustStore:
        """The keys of the ring, each until it is removed, and its revoked keys. They are trusted for every host,
        because a ring does not record hosts."""
        ring = self.ring()
        if ring is not self._trusted[0]:
            self._trusted = ring, _trust_in(ring)
        return self._trusted[1]

    def _read(self) -> tuple[KeyRing, Stamp]:
        try:
            with open_regular(self._path) as file:
                stamp = stamp_of(os.fstat(file.fileno()))
                data = read_key_file(file, self._path, max_bytes=MAX_BYTES)
        except FileNotFoundError:
            raise _missing_ring(self._path) from None
        ring = read_key_ring(data, passphrase=self._passphrase)
        if not ring.is_open:
            raise PassphraseNeededError(
                f"key ring: {self._path} is encrypted and no passphrase was given; pass passphrase="
            )
        return ring, stamp

    def _reason(self, error: Exception) -> str:
        """The text for the log. The text of MalformedError is left out: it could repeat a part of the secret file."""
        if isinstance(error, TrustError) and not isinstance(error, ConfigurationError):
            return f"it is not a valid key ring; for details run: a2a-sign keys list {self._path}"
        return reason_of(error)


def _missing_ring(path: Path) -> FileNotFoundError:
    return missing_file(path, "key ring", f"a2a-sign keys create {shlex.quote(str(path))}")


def _trust_in(ring: KeyRing) -> TrustStore:
    return TrustStore(
        TrustedKey(key=key.public_key, origins=UnsafeAnyOrigin(), not_after=key.removed_at, revoked=key.is_revoked)
        for key in ring.keys
    )
