"""One JWS over ready canonical bytes: verify it, make it."""

from __future__ import annotations

from collections.abc import Iterator

import orjson

from a2a_trust.base.strict_json.jcs import canonicalize
from a2a_trust.keys import base64url
from a2a_trust.keys.jws import read_header, signing_input, verify_signed
from benchmarks import cards
from benchmarks.peers import Peers
from benchmarks.rounds import Contender, Row, repeated
from benchmarks.setting import Setting

__all__ = ["rows_sign", "rows_verify"]


def rows_verify(setting: Setting) -> Iterator[Row]:
    """Is this signature over these canonical bytes?"""
    yield _verify(setting, setting.es256, target=1.20)
    yield _verify(setting, setting.rs256, target=1.5)


def _verify(setting: Setting, peers: Peers, *, target: float) -> Row:
    payload = canonicalize(cards.without_surprises())
    protected, signature = _sign(peers, payload)
    data = signing_input(protected, payload)
    raw_verify = peers.raw_verifier(base64url.decode(signature, "signature"))
    key = peers.signer.public_key
    return Row(
        title=f"verify from canonical bytes, {peers.signer.alg}",
        baseline="cryptography verify (floor)",
        contenders=(
            Contender(name="cryptography verify (floor)", timer=repeated(lambda: raw_verify(data))),
            Contender(
                name="a2a_trust verify_signed, header and payload read",
                timer=repeated(
                    lambda: verify_signed(read_header(protected), signature, signing_input(protected, payload), key)
                ),
                target=target,
            ),
            Contender(
                name="joserfc, flattened JSON",
                timer=repeated(lambda: peers.joserfc_verify(protected, payload, signature)),
            ),
            Contender(name="PyJWT, compact", timer=repeated(lambda: peers.pyjwt_verify(protected, payload, signature))),
        ),
        rounds=setting.rounds(80),
    )


def rows_sign(setting: Setting) -> Iterator[Row]:
    """Canonical bytes to header and signature, as a card carries them."""
    peers = setting.es256
    payload = canonicalize(cards.without_surprises())
    data = signing_input(_sign(peers, payload)[0], payload)
    yield Row(
        title="sign from canonical bytes, ES256",
        baseline="cryptography sign (floor)",
        contenders=(
            Contender(name="cryptography sign (floor)", timer=repeated(lambda: peers.raw_sign(data))),
            Contender(
                name="a2a_trust LocalSigner, with header",
                timer=repeated(lambda: _sign(peers, payload)),
                target=1.5,
            ),
            Contender(name="joserfc, flattened JSON", timer=repeated(lambda: peers.joserfc_sign(payload))),
            Contender(name="PyJWT, compact", timer=repeated(lambda: peers.pyjwt_sign(payload))),
        ),
        rounds=setting.rounds(80),
    )


def _sign(peers: Peers, payload: bytes) -> tuple[str, str]:
    """What ``sign_card`` does for one signature, without verifying its own work."""
    signer = peers.signer
    header = {"alg": signer.alg, "kid": signer.kid, "typ": "JOSE"}
    protected = base64url.encode(orjson.dumps(header, option=orjson.OPT_SORT_KEYS))
    return protected, base64url.encode(signer.sign(signing_input(protected, payload)))
