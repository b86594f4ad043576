"""Makes DPoP proofs: a client proves that it has the key of its access token (RFC 9449).

Every request has a new proof, for its method, its URL without query and fragment, the current time, and its access
token, if it has one. A nonce from a server is used only in the next proofs for that server. This module only computes
values; ``oauth`` and ``demands`` send proofs, and send a request again for a nonce.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from collections.abc import Callable
from typing import Final

from a2a_trust.cache import BoundedCache
from a2a_trust.keys import base64url
from a2a_trust.keys.signer import Signer, sign_jwt

_NONCE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,1024}")  # 1*NQCHAR (RFC 9449 8.1), of bounded length
_MAX_ORIGINS: Final = 64  # with a remembered nonce, for one key


class DPoPProofs:
    """The proofs of one key, and the nonces that servers gave for them, by origin.

    Threads and tasks may share one. ``clock`` gives seconds since the epoch. Source: RFC 9449 4 and 8.
    """

    def __init__(self, signer: Signer, clock: Callable[[], float] = time.time) -> None:
        self._signer = signer
        self._clock = clock
        self._header = {"typ": "dpop+jwt", "alg": signer.alg, "jwk": dict(signer.public_key.jwk)}
        self._nonces = BoundedCache[str, str](max_entries=_MAX_ORIGINS)

    def proof(self, method: str, origin: str, path: str, ath: str | None) -> str:
        """A proof for one request, with the newest nonce of that origin. ``path`` is the path that is sent; ``ath`` is
        the hash of the access token, or None."""
        claims = {
            "jti": secrets.token_urlsafe(16),
            "htm": method,
            "htu": f"{origin}{path}",
            "iat": int(self._clock()),
            "ath": ath,
            "nonce": self._nonces.get(origin),
        }
        known = {name: value for name, value in claims.items() if value is not None}
        return sign_jwt(self._header, known, self._signer)

    def learn(self, origin: str, lines: list[str]) -> bool:
        """Remember the nonce in the ``DPoP-Nonce`` lines of an answer; returns whether there was a valid one."""
        nonce = nonce_of(lines)
        if nonce is not None:
            self._nonces.put(origin, nonce)
        return nonce is not None

    def __repr__(self) -> str:
        return f"DPoPProofs(jkt={self._signer.public_key.thumbprint!r})"


def ath_of(token: str) -> str:
    """The hash of the access token, for a proof (RFC 9449 4.2)."""
    return base64url.encode(hashlib.sha256(token.encode("ascii")).digest())


def nonce_of(lines: list[str]) -> str | None:
    """The nonce in the ``DPoP-Nonce`` lines of an answer; None if there is no valid one."""
    return lines[0] if len(lines) == 1 and _NONCE.fullmatch(lines[0]) else None
