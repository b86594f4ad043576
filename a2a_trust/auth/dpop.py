"""Proofs that a caller has the key that its access token is bound to (DPoP, RFC 9449).

The rules, in the order in which they are applied (4.3):

1. One header line ``DPoP``, and in it one compact JWS.
2. ``typ`` is dpop+jwt, ``alg`` one of our asymmetric ones, ``jwk`` a valid public key for it, without private members.
3. The token is bound to the key (RFC 7638 thumbprint), and the signature is the key's.
4. ``htm`` is the request's method.
5. ``htu`` is the configured public URL with the path that the request has. No header says where the agent lives.
6. ``ath`` is the digest of this token.
7. ``nonce`` is one of ours and not expired, if nonces are configured.
8. ``iat`` differs from the current time by the window at most.
9. ``jti`` was not used before with this key. The memory stores it only now, until the window ends.

The token is verified before, so a caller without a valid token cannot fill the memory.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping, MutableMapping
from typing import Any, Final
from urllib.parse import quote, unquote

from a2a_trust.auth.credentials import NEXT_NONCE, Lines
from a2a_trust.auth.proofs.memory import MAX_WINDOW, ProofMemory, VolatileProofMemory
from a2a_trust.base import strict_json
from a2a_trust.base.cache import BoundedCache
from a2a_trust.base.net.urls import DEFAULT_PORTS, with_plain_escapes
from a2a_trust.base.strict_json import JSONObject
from a2a_trust.errors import ConfigurationError, InvalidCredentialsError, InvalidSignatureError, MalformedError
from a2a_trust.keys import base64url
from a2a_trust.keys.algorithms import algorithm_of
from a2a_trust.keys.jwk import PublicKey, public_key_from_jwk
from a2a_trust.keys.jws import read_header, verify_signed

MAX_PROOF: Final = 8192
MAX_JTI: Final = 512
"""The longest proof that is looked at, and the longest ``jti``, in characters."""
_PERIOD: Final = 300  # seconds
_MIN_SECRET: Final = 32


class ServerNonces:
    """Nonces that proofs must have (RFC 9449 8 and 9). An attacker with short access to a key cannot make proofs with
    later ``iat`` for later use.

    A nonce is valid for the five minutes in which it is given, and for the next five; in these, the answer has a new
    nonce. Nonces are not stored, but computed from ``secret``, at least 32 random bytes, the same for all processes.
    """

    def __init__(self, secret: bytes) -> None:
        if type(secret) is not bytes or len(secret) < _MIN_SECRET:
            raise ConfigurationError(
                f"ServerNonces: the secret must be {_MIN_SECRET} bytes or more; make one with "
                "secrets.token_bytes(32), and give the same one to all processes of the agent"
            )
        self._secret = secret

    def given(self, now: float) -> str:
        """The nonce that callers get now."""
        return self._of(int(now // _PERIOD))

    def take(self, nonce: str, now: float) -> bool:
        period, octets = int(now // _PERIOD), nonce.encode()
        return any(hmac.compare_digest(octets, self._of(each).encode()) for each in (period, period - 1))

    def _of(self, period: int) -> str:
        octets = b"a2a_trust DPoP nonce %d" % period
        return base64url.encode(hmac.digest(self._secret, octets, "sha256"))


class DPoP:
    """Accepts access tokens that are bound to a key of their client, with a proof of that key in every request.

    - ``url``: the beginning of the public URLs, before the paths that this application sees:
      ``https://agent.example``, or ``https://agent.example/team`` if a proxy removes ``/team``, or the application is
      mounted there.
    - ``window``: by how many seconds the time of a proof may differ from now. A proof can be used for that long.
    - ``memory``: stores used proofs. An agent with several processes needs a shared one.
    - ``nonces``: a proof must also have a nonce of ours; callers get the first one with a rejection.

    Source: RFC 9449 4.3, 7, 9, 11.1.
    """

    def __init__(
        self, *, url: str, window: float = 60.0, memory: ProofMemory | None = None, nonces: ServerNonces | None = None
    ) -> None:
        base = _normal(url) if type(url) is str and "?" not in url and "#" not in url else None
        if base is None:
            raise ConfigurationError(
                f"DPoP: url {url!a:.128} is not the beginning of an agent's URLs; write url='https://host', or "
                "'https://host/prefix' if a proxy removes the prefix"
            )
        if not 0 < window <= MAX_WINDOW:
            raise ConfigurationError(
                f"DPoP: window={window!r:.40} must be above 0, and at most {MAX_WINDOW:.0f} seconds"
            )
        if nonces is not None and not isinstance(nonces, ServerNonces):
            raise ConfigurationError("DPoP: write nonces=ServerNonces(secret)")
        memory = VolatileProofMemory() if memory is None else memory
        if isinstance(memory, type) or not callable(getattr(memory, "first_use", None)):
            raise ConfigurationError("DPoP: memory has no method first_use; write memory=VolatileProofMemory()")
        self.url: Final = base.rstrip("/")
        self._window, self._memory, self._nonces = window, memory, nonces
        self.parts: Final[tuple[object, ...]] = (memory,)
        #: Thumbprint -> the header of a proof, and the key in it. One for each key, so varied headers of one client
        #: evict no entry of another.
        self._keys: BoundedCache[str, tuple[str, PublicKey]] = BoundedCache(max_entries=_CACHED_KEYS)

    def nonce(self, now: float) -> str | None:
        """The nonce that callers get now; None without nonces."""
        return None if self._nonces is None else self._nonces.given(now)

    async def check(self, lines: Lines, scope: MutableMapping[str, Any], *, token: str, jkt: str, now: float) -> None:
        """Return if the request proves the key ``jkt`` (a thumbprint), with a proof that was not used before. ``lines``
        are the lines of the header ``DPoP``.

        If the proof's nonce ends soon, ``scope[NEXT_NONCE]`` has the next one, for the answer (8.2).
        InvalidCredentialsError; TooManyRequestsError, KeySourceUnavailableError: as ``ProofMemory.first_use``.
        """
        try:
            claims = self._check(lines, scope, token, jkt, now)
        except MalformedError as error:
            raise _proof_error(str(error)) from None
        # 9
        issued, window = float(claims["iat"]), self._window
        if await self._memory.first_use(jkt, claims["jti"], now=now, issued=issued, window=window) is not True:
            raise _proof_error("it was used before (jti)")
        nonce = self.nonce(now)
        if nonce is not None and claims["nonce"] != nonce:
            scope[NEXT_NONCE] = nonce

    def _check(self, lines: Lines, scope: Mapping[str, Any], token: str, jkt: str, now: float) -> JSONObject:
        """Steps 1 to 8: the claims of a proof that is valid if it is new."""
        claims = self._signed_claims(lines, jkt)
        # 4 and 5
        if claims.get("htm") != scope.get("method", "GET"):  # the handshake of a websocket is a GET
            raise _proof_error("htm is not the method of this request")
        if not self._is_for(claims.get("htu"), scope):
            raise _proof_error(f"htu is not the URL of this request, which begins with {self.url}")
        # 6
        if claims.get("ath") != base64url.encode(hashlib.sha256(token.encode("ascii")).digest()):
            raise _proof_error("ath is not the digest of the token")
        # 7
        nonce = claims.get("nonce")
        if self._nonces is not None and not (type(nonce) is str and self._nonces.take(nonce, now)):
            raise _proof_error("its nonce is missing, unknown or expired", "use_dpop_nonce")
        # 8
        iat, jti = claims.get("iat"), claims.get("jti")
        if (type(iat) is not int and type(iat) is not float) or not abs(now - iat) <= self._window:
            raise _proof_error(f"iat differs from the current time by more than {self._window:g} seconds")
        if type(jti) is not str or not 0 < len(jti) <= MAX_JTI:
            raise _proof_error(f"jti is missing, or longer than {MAX_JTI} characters")
        return claims

    def _signed_claims(self, lines: Lines, jkt: str) -> JSONObject:
        # 1
        if not lines:
            raise _proof_error("it is missing, and the token is bound to a key")
        if len(lines) > 1 or lines[0] is None:
            raise _proof_error("it came more than once")
        proof = lines[0].strip(b" \t")
        signed, _, signature = proof.decode("latin-1").rpartition(".")
        protected, dot, encoded = signed.partition(".")
        if len(proof) > MAX_PROOF or not dot or "." in encoded:
            raise _proof_error("too long, or not three parts")
        # 2 and 3; the thumbprint first: it is cheaper to check
        key = self._key(protected, jkt)
        payload = base64url.decode(encoded, "payload")
        try:
            verify_signed(read_header(protected), signature, signed.encode("ascii"), key)
        except InvalidSignatureError:
            raise _proof_error("the signature is not by the key in its header") from None
        claims = strict_json.parse(payload, what="claims", max_bytes=MAX_PROOF)
        if type(claims) is not dict:
            raise _proof_error("the claims are not a JSON object")
        return claims

    def _key(self, protected: str, jkt: str) -> PublicKey:
        """The key in a proof's header, to which the token is bound."""
        known = self._keys.get(jkt)
        if known is not None and known[0] == protected:  # a client's proofs all have the same header
            return known[1]
        key = _read_key(protected)
        if key.thumbprint != jkt:
            raise _proof_error("it is by another key than the token's (cnf)", "invalid_token")
        if len(protected) <= _TYPICAL_HEADER:
            self._keys.put(jkt, (protected, key))
        return key

    def _is_for(self, htu: object, scope: Mapping[str, Any]) -> bool:
        path = _path_of(scope)
        if path is None or type(htu) is not str:
            return False
        if htu == f"{self.url}{path}" and "/." not in path and "%" not in path:
            return True
        claimed = _normal(htu)
        if claimed is None:
            return False
        # A server that removes a prefix leaves "/", whether or not a slash came after the prefix.
        paths = ("/", "") if path == "/" else (path,)
        return claimed in [_normal(f"{self.url}{each}") for each in paths]


def _proof_error(why: str, oauth_error: str = "invalid_dpop_proof") -> InvalidCredentialsError:
    return InvalidCredentialsError(f"DPoP proof: {why}", oauth_error=oauth_error)


_TYPICAL_HEADER: Final = 1024  # with an RSA key of 3072 bits one has 750
_CACHED_KEYS: Final = 32_768
"""The number of cached keys, as many as tokens; a key of ES256 takes 3.4 kB."""


def _read_key(protected: str) -> PublicKey:
    """Step 2: the valid key in a proof's header, for the header's ``alg``."""
    header = read_header(protected)
    if header.get("typ") != "dpop+jwt":
        raise MalformedError("typ is not dpop+jwt")
    algorithm = algorithm_of(header["alg"])
    if algorithm is None:
        raise MalformedError("its alg is not accepted")
    return public_key_from_jwk(header.get("jwk"), alg=algorithm.name)


_HTTP_URL: Final = re.compile(
    r"(https?)://([a-z0-9._-]+|\[[0-9a-f:.]+\])(?::([0-9]{0,5}))?(/[^?#]*)?(?:\?[^#]*)?(?:#.*)?", re.IGNORECASE
)
_PATH: Final = re.compile(r"(?:/(?:[^\x00-\x20\x7f-\U0010ffff%?#\\]|%[0-9A-Fa-f]{2})*)?")


def _normal(url: str) -> str | None:
    """The URL without query and fragment in its one spelling (RFC 3986 6.2.2, 6.2.3); None if it is not an http URL, or
    is ambiguous: with user names, dot segments, backslashes or stray signs.

    Not ``base.net.urls.read_url``: that rejects an empty port, reads 0443 as 443, and has another limit for the length.
    """
    match = _HTTP_URL.fullmatch(url) if url.isascii() else None
    if match is None:
        return None
    scheme, host, port, path = match[1].lower(), match[2].lower(), match[3] or "", match[4] or "/"
    path = with_plain_escapes(path) if _PATH.fullmatch(path) else "/.."
    if not {".", ".."}.isdisjoint(path.split("/")):
        return None
    return f"{scheme}://{host}{'' if port in ('', str(DEFAULT_PORTS[scheme])) else f':{port}'}{path}"


def _path_of(scope: Mapping[str, Any]) -> str | None:
    """The path that the request has behind the ``root_path``, as it came; None if it is uncertain."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    raw_path: bytes | None = scope.get("raw_path")
    raw = quote(path, safe="/:@!$&'()*+,;=~") if raw_path is None else raw_path.decode("latin-1")
    if not _PATH.fullmatch(raw):
        return None
    if not root or not path.startswith(root) or path[len(root) : len(root) + 1] not in ("", "/"):
        return raw  # the server's path is already without it, as the router has it too
    prefix = "/".join(raw.split("/")[: root.count("/") + 1])
    return raw[len(prefix) :] if unquote(prefix) == root else None
