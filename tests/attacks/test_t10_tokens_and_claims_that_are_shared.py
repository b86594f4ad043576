"""T10: what is remembered of a token is shared: by the requests that carry it, and by the other spellings of its
signature.

Measured here: a handler that changed ``claims["roles"]`` changed them for all later requests with the token; and of a
forgotten token the ECDSA twin, which anybody can make, was still remembered.
"""

from __future__ import annotations

import base64
import copy
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from a2a_trust import generate_signer
from a2a_trust.auth.principal import Identity
from a2a_trust.errors import InvalidCredentialsError
from a2a_trust.keys import LocalSigner
from a2a_trust.middleware.caller import principal_of
from tests.auth.test_jwt import EC, NOW, Keys, b64, claims, token, verifier
from tests.middleware.agent import guarded, verifiers
from tests.tables import walk

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


NESTED = {
    "roles": ["reader"],
    "realm_access": {"roles": ["reader", {"of": ["ledger"]}]},
    "aud": ["https://agent.example"],
}

CHANGES: list[Callable[[Any], Any]] = [
    lambda it: it.update(admin=True),
    lambda it: it.__setitem__("scope", "admin"),
    lambda it: it.pop("roles"),
    lambda it: it.clear(),
    lambda it: it["roles"].append("admin"),
    lambda it: it["roles"].__setitem__(0, "admin"),
    lambda it: it["realm_access"].update(roles=["admin"]),
    lambda it: it["realm_access"]["roles"].append("admin"),
    lambda it: it["realm_access"]["roles"][1].update(of=["everything"]),
    lambda it: it["realm_access"]["roles"][1]["of"].append("everything"),
]


class OfOnesOwn:
    """A verifier of somebody's own, who hands out what it keeps."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = copy.deepcopy(NESTED)

    async def verify(self, credential: str, now: float) -> Identity:
        return Identity(issuer="own", subject=credential, scopes=frozenset({"read"}), claims=self.kept)


@walk("change", CHANGES)
@walk("own", [False, True])
async def test_a_handler_cannot_change_the_claims_that_the_next_one_gets(change: Any, own: bool) -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        identity = principal_of(scope).by_scheme("oauth")
        assert identity is not None
        seen.append(
            (repr(identity.claims), identity.claims["roles"], identity.claims["realm_access"]["roles"][1]["of"])
        )
        with pytest.raises((TypeError, AttributeError)):
            change(identity.claims)
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    given = {**verifiers(), "oauth": OfOnesOwn()} if own else verifiers()
    credential = token(claims(**NESTED))
    transport = httpx.ASGITransport(guarded(app, verifiers=given))
    async with httpx.AsyncClient(transport=transport, base_url="http://agent.example") as http:
        for _ in range(2):
            answer = await http.post("/rpc", headers={"Authorization": f"Bearer {credential}"})
            assert answer.status_code == 204
    first, second = seen
    assert first == second
    assert first[1:] == (("reader",), ("ledger",))


async def test_what_a_verifier_keeps_in_sets_and_buffers_is_not_shared() -> None:
    kept: dict[str, Any] = {"roles": {"reader"}, "realm": [{"key": bytearray(b"k")}]}
    seen = Identity(issuer="own", subject="ann", claims=kept).claims
    kept["roles"].add("admin")
    kept["realm"][0]["key"][:] = b"x"
    with pytest.raises(AttributeError):
        seen["roles"].add("admin")
    with pytest.raises(AttributeError):
        seen["realm"][0]["key"].append(1)
    assert (seen["roles"], seen["realm"][0]["key"]) == ({"reader"}, b"k")


ORDERS = {
    "ES256": 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551,
    "ES384": 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFC7634D81F4372DDF581A0DB248B0A77AECEC196ACCC52973,
}


def twin(credential: str, alg: str) -> str:
    """The same token with the other signature (r, n - s) over the same bytes, made without any key."""
    signed, _, signature = credential.rpartition(".")
    octets = base64.urlsafe_b64decode(signature + "==")
    half = len(octets) // 2
    s = ORDERS[alg] - int.from_bytes(octets[half:], "big")
    return f"{signed}.{b64(octets[:half] + s.to_bytes(half, 'big'))}"


@pytest.mark.parametrize("alg", ORDERS)
async def test_a_forgotten_token_is_forgotten_under_its_twin_too(alg: str) -> None:
    signer = EC if alg == "ES256" else generate_signer(alg, kid="other")
    keys = Keys(signer)
    judge, one, another = verifier(keys), token(signer=signer), token(claims(jti="2"), signer=signer)
    second = twin(one, alg)
    assert isinstance(signer.private_key, ec.EllipticCurvePrivateKey)
    assert second != one
    for forgotten in (one, second):
        for each in (one, second, another):
            assert (await judge.verify(each, NOW)).subject == "alice"
        judge.forget(forgotten)
        kept, keys.keys = keys.keys, []  # nothing can be verified now: what still counts was remembered
        for each in (one, second):
            with pytest.raises(InvalidCredentialsError):
                await judge.verify(each, NOW)
        assert (await judge.verify(another, NOW)).subject == "alice"
        keys.keys = kept


@pytest.mark.parametrize("signer", [generate_signer(alg, kid="k") for alg in ("EdDSA", "PS256")], ids=lambda it: it.alg)
async def test_other_signatures_have_no_twin(signer: LocalSigner) -> None:
    judge, good = verifier(Keys(signer)), token(signer=signer)
    await judge.verify(good, NOW)
    signed, _, signature = good.rpartition(".")
    octets = base64.urlsafe_b64decode(signature + "==")
    order = 2**252 + 27742317777372353535851937790883648493
    if signer.alg == "EdDSA":
        s = int.from_bytes(octets[32:], "little") + order
        others = [octets[:32] + s.to_bytes(32, "little")]
    else:
        modulus = signer.private_key.public_key().public_numbers().n  # type: ignore[union-attr]
        longer = int.from_bytes(octets, "big") + modulus
        others = [longer.to_bytes(len(octets) + 1, "big"), b"\0" + octets]
    for other in others:
        with pytest.raises(InvalidCredentialsError):
            await judge.verify(f"{signed}.{b64(other)}", NOW)
