"""D1: a proof of possession that is for another request, that was used before, or that nobody remembers.

``htu`` is compared with the configured public URL and the raw path that the client used; ``jti`` is remembered per key
only after all other checks, and until the window ends; a full memory refuses and never evicts.
"""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from a2a_trust import generate_signer
from a2a_trust.auth.dpop import DPoP, ServerNonces, _read_key
from a2a_trust.auth.jwt import JwtVerifier
from a2a_trust.auth.proofs.memory import VolatileProofMemory
from a2a_trust.keys.jwk import PublicKey
from a2a_trust.middleware.door import CardEnforcementMiddleware
from tests.auth.proofs import BASE, CLIENT, OTHER, bound_token, by_dpop, proof
from tests.auth.test_jwt import AUDIENCE, EC, ISSUER, NOW, Keys, claims, token
from tests.middleware.agent import CARD, Agent, guarded, verifiers
from tests.tables import walk

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


OAUTH = {**CARD, "securityRequirements": [{"schemes": {"oauth": {"list": ["read"]}}}]}


def agent(**options: Any) -> tuple[CardEnforcementMiddleware, Agent]:
    app = Agent()
    given = {
        "verifiers": {"oauth": JwtVerifier(Keys(EC), issuer=ISSUER, audience=AUDIENCE)},
        "dpop": DPoP(url=BASE),
        **options,
    }
    return guarded(app, OAUTH, **given), app


async def ask(
    app: Any,
    headers: list[tuple[bytes, bytes]],
    *,
    method: str = "POST",
    url: str = f"{BASE}/rpc",
    root_path: str = "",
) -> httpx.Response:
    transport = httpx.ASGITransport(app=app, root_path=root_path)
    async with httpx.AsyncClient(transport=transport) as http:
        return await http.request(method, url, headers=headers)


def told(answer: httpx.Response, scheme: str = "DPoP") -> str:
    """The error code in the challenge of that scheme."""
    assert answer.status_code == 401
    challenges = answer.headers.get_list("www-authenticate")
    (challenge,) = [line for line in challenges if line.split(" ")[0] == scheme]
    return challenge.partition('error="')[2].partition('"')[0]


async def test_the_control_is_good() -> None:
    app, inner = agent()
    thine = bound_token()
    for _ in range(3):  # remembered, too
        answer = await ask(app, by_dpop(thine, proof(thine)))
        assert answer.status_code == 200
        assert answer.json()["user"] == f"alice@{ISSUER}"
    assert inner.paths == ["/rpc"] * 3


# Another request


@walk("remembered", [False, True])
@walk(
    "changes",
    [
        {"htm": "GET"},
        {"htu": f"{BASE}/rest"},
        {"htu": "https://other.example/rpc"},
        {"htu": "http://agent.example/rpc"},
        {"ath": ...},
        {"ath": "fUHyO2r2Z3DZ53EsNrWBb0xWXoaNy59IiKCAqksmQEo"},
        {"iat": NOW - 61},
        {"iat": NOW + 61},
        {"jti": ...},
        {"header": {"typ": "JWT"}},
    ],
)
async def test_a_proof_that_is_not_for_this_request_is_none(changes: dict[str, Any], remembered: bool) -> None:
    app, inner = agent()
    thine = bound_token()
    if remembered:
        assert (await ask(app, by_dpop(thine, proof(thine)))).status_code == 200
        inner.scopes.clear()
    assert told(await ask(app, by_dpop(thine, proof(thine, **changes)))) == "invalid_dpop_proof"
    assert inner.paths == []


async def test_a_proof_for_one_token_is_none_for_another_of_the_same_key() -> None:
    app, inner = agent()
    one, two = bound_token(), bound_token(sub="root")
    assert told(await ask(app, by_dpop(two, proof(one)))) == "invalid_dpop_proof"
    assert inner.paths == []


async def test_the_path_and_the_method_of_the_request_count_and_not_those_that_headers_claim() -> None:
    app, inner = agent()
    thine = bound_token()
    for headers, options in [
        ([], {"url": f"{BASE}/rest"}),
        ([], {"method": "PUT"}),
        ([(b"x-http-method-override", b"POST")], {"method": "PUT"}),
        ([(b"x-original-url", b"/rpc"), (b"x-rewrite-url", b"/rpc")], {"url": f"{BASE}/rest"}),
        ([(b"x-forwarded-prefix", b"/rpc")], {"url": f"{BASE}/"}),
        ([], {"url": f"{BASE}/a/%2e%2e/rpc"}),
        ([], {"url": f"{BASE}//rpc"}),
        ([], {"url": f"{BASE}/rpc%2F"}),
    ]:
        answer = await ask(app, [*by_dpop(thine, proof(thine)), *headers], **options)
        assert told(answer) == "invalid_dpop_proof"
    assert inner.paths == []


@pytest.mark.parametrize("host", ["evil.example", "agent.example:8443", "127.0.0.1"])
async def test_a_poisoned_host_is_not_the_agents_url(host: str) -> None:
    """A proof that somebody was made to sign for his own server is not good here, whatever Host says."""
    app, inner = agent()
    thine = bound_token()
    stolen = proof(thine, htu=f"https://{host}/rpc")
    forwarded = [(b"x-forwarded-host", host.encode()), (b"forwarded", f"host={host};proto=https".encode())]
    for extra in ([], forwarded):
        answer = await ask(app, [*by_dpop(thine, stolen), *extra], url=f"https://{host}/rpc")
        assert told(answer) == "invalid_dpop_proof"
    assert inner.paths == []
    # and the right one is good whatever Host says: a proxy may have changed that
    assert (await ask(app, by_dpop(thine, proof(thine)), url=f"http://{host}/rpc")).status_code == 200


async def test_behind_a_prefix_a_proof_is_for_the_url_with_it() -> None:
    app, inner = agent(dpop=DPoP(url=f"{BASE}/team"))
    thine = bound_token()
    with_it, without = f"{BASE}/team/rpc", f"{BASE}/rpc"
    for url, root_path in [(with_it, "/team"), (without, "")]:
        answer = await ask(app, by_dpop(thine, proof(thine, htu=with_it)), url=url, root_path=root_path)
        assert answer.status_code == 200
        answer = await ask(app, by_dpop(thine, proof(thine, htu=without)), url=url, root_path=root_path)
        assert told(answer) == "invalid_dpop_proof"
    assert len(inner.paths) == 2


# Another key, or none


async def test_a_stolen_token_is_worth_nothing_without_its_key() -> None:
    app, inner = agent()
    thine = bound_token()
    assert (await ask(app, by_dpop(thine, proof(thine)))).status_code == 200
    inner.scopes.clear()
    assert told(await ask(app, by_dpop(thine, proof(thine, OTHER)))) == "invalid_token"
    assert told(await ask(app, by_dpop(thine))) == "invalid_dpop_proof"
    with_his_name = proof(thine, OTHER, header={"jwk": dict(CLIENT.public_key.jwk)})
    assert told(await ask(app, by_dpop(thine, with_his_name))) == "invalid_dpop_proof"
    assert inner.paths == []


async def test_two_proofs_are_none_whichever_is_good() -> None:
    app, inner = agent()
    thine = bound_token()
    for proofs in ([proof(thine), proof(thine)], [proof(thine), "x"], ["x", proof(thine)]):
        assert told(await ask(app, by_dpop(thine, *proofs))) == "invalid_dpop_proof"
        assert told(await ask(app, by_dpop(thine, ", ".join(proofs)))) == "invalid_dpop_proof"
    assert inner.paths == []


@pytest.mark.parametrize("remembered", [False, True])
async def test_a_bound_token_is_no_bearer_token_with_a_proof_neither(remembered: bool) -> None:
    app, inner = agent()
    thine = bound_token()
    if remembered:
        assert (await ask(app, by_dpop(thine, proof(thine)))).status_code == 200
        inner.scopes.clear()
    for proofs in ([], [proof(thine)]):
        headers = [(b"authorization", b"Bearer " + thine.encode()), *by_dpop(thine, *proofs)[1:]]
        answer = await ask(app, headers)
        assert (told(answer, "Bearer"), told(answer)) == ("invalid_token", "")
    assert inner.paths == []


async def test_a_token_that_is_bound_to_nothing_is_no_dpop_token() -> None:
    app, inner = agent()
    for each in (token(), token(claims(cnf={"x5t#S256": "A4DtL2JmUMhAsvJj5tKyn64SqzmuXbMrJa0n761y5v0"}))):
        for proofs in ([], [proof(each)]):
            assert told(await ask(app, by_dpop(each, *proofs))) == "invalid_token"
    assert inner.paths == []


async def test_both_schemes_at_once_are_refused() -> None:
    app, inner = agent()
    thine, plain = bound_token(), token()
    bearer = (b"authorization", b"Bearer " + plain.encode())
    good = by_dpop(thine, proof(thine))
    for headers in ([bearer, *good], [*good, bearer]):
        assert (await ask(app, headers)).status_code == 401
    joined = (b"authorization", b"DPoP " + thine.encode() + b", Bearer " + plain.encode())
    assert (await ask(app, [joined, good[1]])).status_code == 401
    assert inner.paths == []


@walk("value", ["DPoP", "DPoP ", "DPoP  x", "DPoP\tx", "DPoP x y", "DPoP =", "DPoP x,y"])
async def test_a_dpop_token_written_oddly_is_refused(value: str) -> None:
    app, inner = agent()
    answer = await ask(app, [(b"authorization", value.encode()), (b"dpop", b"x")])
    assert answer.status_code == 401
    assert inner.paths == []


async def test_where_no_proofs_are_taken_a_bound_token_is_refused_under_any_name() -> None:
    app, inner = agent(dpop=None)
    thine = bound_token()
    for name in (b"Bearer ", b"DPoP "):
        headers = [(b"authorization", name + thine.encode()), (b"dpop", proof(thine).encode())]
        answer = await ask(app, headers)
        assert answer.status_code == 401
        assert not any("DPoP" in line for line in answer.headers.get_list("www-authenticate"))
    assert inner.paths == []


# Used before


async def test_a_proof_that_was_seen_on_its_way_is_not_good_again() -> None:
    app, inner = agent()
    thine = bound_token()
    seen = by_dpop(thine, proof(thine))
    assert (await ask(app, seen)).status_code == 200
    for _ in range(3):
        assert told(await ask(app, seen)) == "invalid_dpop_proof"
    assert len(inner.paths) == 1


async def test_a_proof_that_was_refused_is_not_used_up_by_the_refusal() -> None:
    """Else whoever sees a proof on its way, and not the token, could use it up before its owner does."""
    app, inner = agent()
    thine, jti = bound_token(), "named-by-the-owner"
    good = proof(thine, jti=jti)
    for headers, options in [
        (by_dpop(bound_token(sub="mallory"), good), {}),
        (by_dpop(thine, good), {"method": "PUT"}),
        (by_dpop(thine, good), {"url": f"{BASE}/rest"}),
        (by_dpop(thine, proof(thine, jti=jti, iat=NOW - 61)), {}),
        (by_dpop(thine, f"{good[:-4]}AAAA"), {}),
        (by_dpop(thine, proof(thine, OTHER, jti=jti)), {}),
        ([(b"authorization", b"Bearer " + thine.encode()), (b"dpop", good.encode())], {}),
    ]:
        assert (await ask(app, headers, **options)).status_code == 401
    mallorys = bound_token(OTHER)
    assert (await ask(app, by_dpop(mallorys, proof(mallorys, OTHER, jti=jti)))).status_code == 200
    assert (await ask(app, by_dpop(thine, good))).status_code == 200
    assert len(inner.paths) == 2


async def test_a_proof_is_remembered_until_its_window_ends_and_not_as_long_as_it_is_young() -> None:
    now = [NOW]
    app, inner = agent(clock=lambda: now[0])
    thine = bound_token()
    from_the_future = by_dpop(thine, proof(thine, iat=NOW + 60))
    assert (await ask(app, from_the_future)).status_code == 200
    for now[0] in (NOW + 61, NOW + 90, NOW + 120):
        assert told(await ask(app, from_the_future)) == "invalid_dpop_proof"
    assert len(inner.paths) == 1


async def test_a_full_memory_refuses_whoever_comes_and_lets_no_used_proof_in_again() -> None:
    app, inner = agent(dpop=DPoP(url=BASE, memory=VolatileProofMemory(capacity=2)))
    owners = [(signer, bound_token(signer)) for signer in (CLIENT, OTHER)]
    used = [by_dpop(thine, proof(thine, signer)) for signer, thine in owners]
    for each in used:
        assert (await ask(app, each)).status_code == 200
    third = generate_signer("ES256")
    thine = bound_token(third)
    for _ in range(5):
        full = await ask(app, by_dpop(thine, proof(thine, third)))
        assert (full.status_code, full.headers["retry-after"]) == (503, "5")
        assert "www-authenticate" not in full.headers
    for each in used:
        assert told(await ask(app, each)) == "invalid_dpop_proof"
    assert (await ask(app, [(b"authorization", b"Bearer " + token().encode())])).status_code == 200
    assert len(inner.paths) == 3


async def test_one_holder_of_a_good_token_cannot_fill_the_memory_for_the_others() -> None:
    """It took 1,670 requests a second: from then on everybody was refused, and it looked like an outage of ours."""
    app, inner = agent(dpop=DPoP(url=BASE, memory=VolatileProofMemory(capacity=64)))
    mallorys, thine = bound_token(OTHER), bound_token()
    flood = [await ask(app, by_dpop(mallorys, proof(mallorys, OTHER))) for _ in range(70)]
    assert [answer.status_code for answer in flood] == [200] * 4 + [429] * 66
    assert flood[-1].headers["retry-after"] == "5"
    assert "www-authenticate" not in flood[-1].headers
    another = bound_token(OTHER, sub="mallory again")  # the share is that of the key
    assert (await ask(app, by_dpop(another, proof(another, OTHER)))).status_code == 429
    for _ in range(3):
        assert (await ask(app, by_dpop(thine, proof(thine)))).status_code == 200
    assert len(inner.paths) == 7


async def test_one_holder_of_a_good_token_cannot_drive_out_the_keys_of_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every header of a proof can be written in many ways; 512 of them had the keys of all others read again."""
    read: list[str] = []

    def counted(header: str) -> PublicKey:
        read.append(header)
        return _read_key(header)

    monkeypatch.setattr("a2a_trust.auth.dpop._read_key", counted)
    monkeypatch.setattr("a2a_trust.auth.dpop._CACHED_KEYS", 4)
    app, _ = agent()
    mallorys, thine = bound_token(OTHER), bound_token()
    assert (await ask(app, by_dpop(thine, proof(thine)))).status_code == 200
    for number in range(20):
        flood = by_dpop(mallorys, proof(mallorys, OTHER, header={"kid": str(number)}))
        assert (await ask(app, flood)).status_code == 200
    assert len(read) == 21
    assert (await ask(app, by_dpop(thine, proof(thine)))).status_code == 200
    assert len(read) == 21


async def test_whoever_has_no_good_token_can_fill_no_memory() -> None:
    app, inner = agent(dpop=DPoP(url=BASE, memory=VolatileProofMemory(capacity=1)))
    forged = bound_token().rpartition(".")[0] + ".AAAA"
    for _ in range(5):
        assert told(await ask(app, by_dpop(forged, proof(forged)))) == "invalid_token"
    thine = bound_token()
    assert (await ask(app, by_dpop(thine, proof(thine)))).status_code == 200
    assert len(inner.paths) == 1


async def test_a_memory_that_breaks_lets_nobody_in() -> None:
    class Broken:
        async def first_use(self, jkt: str, jti: str, *, now: float, issued: float, window: float) -> bool:
            raise OSError("connection lost")

    app, inner = agent(dpop=DPoP(url=BASE, memory=Broken()))
    thine = bound_token()
    with pytest.raises(OSError, match="connection lost"):
        await ask(app, by_dpop(thine, proof(thine)))
    assert inner.paths == []


# Nonces


async def test_a_proof_that_was_made_in_store_is_refused_by_its_nonce() -> None:
    """Whoever had the key for a moment made proofs for later; their ``iat`` is in order."""
    dpop = DPoP(url=BASE, nonces=ServerNonces(b"s" * 32))
    app, inner = agent(dpop=dpop)
    thine = bound_token()
    for nonce in (..., "guessed", dpop.nonce(NOW - 3600)):
        answer = await ask(app, by_dpop(thine, proof(thine, nonce=nonce)))
        assert told(answer) == "use_dpop_nonce"
        assert answer.headers["dpop-nonce"] == dpop.nonce(NOW)
        assert answer.headers["cache-control"] == "no-store"
    assert inner.paths == []
    good = await ask(app, by_dpop(thine, proof(thine, nonce=dpop.nonce(NOW))))
    assert (good.status_code, "dpop-nonce" in good.headers) == (200, False)
    aging = await ask(app, by_dpop(thine, proof(thine, nonce=dpop.nonce(NOW - 300))))
    assert (aging.status_code, aging.headers["dpop-nonce"]) == (200, dpop.nonce(NOW))
    assert not any(name.startswith("a2a_trust.dpop") for scope in inner.scopes for name in scope)


# In company


async def test_a_proof_alone_is_nobody_and_not_anonymous_either() -> None:

    card = {**CARD, "securityRequirements": [{"schemes": {"oauth": {"list": []}}}, {"schemes": {}}]}
    app = Agent()
    oauth = {"oauth": verifiers()["oauth"]}
    judged = guarded(app, card, verifiers=oauth, dpop=DPoP(url=BASE), allow_anonymous=True)
    assert (await ask(judged, [])).status_code == 200
    for headers in ([(b"dpop", b"x")], [(b"dpop", proof(bound_token()).encode())]):
        assert (await ask(judged, headers)).status_code == 401
    assert len(app.paths) == 1


async def test_the_bound_token_of_one_scheme_of_two_is_not_excused_by_the_other() -> None:
    """An AND of key and token, and an OR of them: a good API key saves no bound token."""
    from tests.middleware.agent import KEY

    thine = bound_token()
    key = (b"x-api-key", KEY.encode())
    for card in (CARD, {**CARD, "securityRequirements": [{"schemes": {"key": {"list": []}, "oauth": {"list": []}}}]}):
        app = Agent()
        judged = guarded(app, card, dpop=DPoP(url=BASE))
        for headers in (
            [key, (b"authorization", b"Bearer " + thine.encode())],
            [key, *by_dpop(thine)],
            [key, *by_dpop(thine, proof(thine, OTHER))],
            [key, *by_dpop(token(), proof(token()))],
        ):
            assert (await ask(judged, headers)).status_code == 401
        assert app.paths == []
        assert (await ask(judged, [key, *by_dpop(thine, proof(thine))])).status_code == 200


async def test_one_token_for_two_schemes_takes_one_proof_once() -> None:
    schemes: dict[str, Any] = {
        "a": {"oauth2SecurityScheme": {"flows": {}}},
        "b": {"oauth2SecurityScheme": {"flows": {}}},
    }
    both: list[Any] = [{"schemes": {"a": {"list": []}, "b": {"list": []}}}]
    card = {**CARD, "securitySchemes": schemes, "securityRequirements": both}
    app = Agent()
    judge = verifiers()["oauth"]
    judged = guarded(app, card, verifiers={"a": judge, "b": judge}, dpop=DPoP(url=BASE))
    thine = bound_token()
    used = by_dpop(thine, proof(thine))
    assert (await ask(judged, used)).status_code == 200
    assert told(await ask(judged, used)) == "invalid_dpop_proof"


async def test_the_proof_is_hidden_from_the_application_with_the_token() -> None:
    thine = bound_token()
    for hide in (False, True):
        app, inner = agent(hide_credentials=hide)
        assert (await ask(app, by_dpop(thine, proof(thine)))).status_code == 200
        (scope,) = inner.scopes
        assert {b"dpop", b"authorization"}.isdisjoint(name for name, _ in scope["headers"]) is hide
