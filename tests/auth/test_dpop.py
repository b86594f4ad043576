"""DPoP proofs: every rule of RFC 9449 4.3, its own example, nonces, and the memory of used proofs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import example, given
from hypothesis import strategies as st
from joserfc import jws
from joserfc.jwk import ECKey

from a2a_trust import generate_signer
from a2a_trust.auth import dpop as dpop_module
from a2a_trust.auth.dpop import (
    MAX_JTI,
    MAX_PROOF,
    DPoP,
    ServerNonces,
    _read_key,
)
from a2a_trust.auth.proofs.memory import VolatileProofMemory
from a2a_trust.errors import ConfigurationError, InvalidCredentialsError
from a2a_trust.keys import LocalSigner
from a2a_trust.keys.algorithms import ALG_NAMES
from a2a_trust.keys.jwk import PublicKey
from tests.auth.proofs import BASE, CLIENT, OTHER, bound_token, proof, scope_of, sealed
from tests.auth.test_jwt import NOW
from tests.tables import walk

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


TOKEN = bound_token()
RSA = generate_signer("PS256", rsa_bits=2048)
ED = generate_signer("EdDSA")


async def check(
    text: str | bytes,
    judge: DPoP | None = None,
    *,
    token: str = TOKEN,
    signer: LocalSigner = CLIENT,
    now: float = NOW,
    **scope: Any,
) -> None:
    line = text.encode() if isinstance(text, str) else text
    dpop = DPoP(url=BASE) if judge is None else judge
    await dpop.check([line], scope_of(**scope), token=token, jkt=signer.public_key.thumbprint, now=now)


async def refused(text: str | bytes, match: str, judge: DPoP | None = None, **options: Any) -> InvalidCredentialsError:
    with pytest.raises(InvalidCredentialsError, match=match) as caught:
        await check(text, judge, **options)
    return caught.value


# What is good


@walk("signer", [CLIENT, ED, RSA, generate_signer("ES384"), generate_signer("ES512")])
async def test_a_proof_by_the_key_of_the_token_is_good(signer: LocalSigner) -> None:
    await check(proof(TOKEN, signer), signer=signer)
    await check(f" {proof(TOKEN, signer)}\t", signer=signer)  # as a server hands it on that strips nothing


async def test_a_proof_of_another_library_is_good() -> None:
    pem = CLIENT.private_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    key = ECKey.import_key(pem)
    header = {"typ": "dpop+jwt", "alg": "ES256", "jwk": key.as_dict(private=False)}
    registry = jws.JWSRegistry(algorithms=["ES256"], strict_check_header=False)
    payload = proof(TOKEN).split(".")[1]
    text = jws.serialize_compact(header, _decoded(payload), key, registry=registry)
    await check(text)


def _decoded(part: str) -> bytes:
    from a2a_trust.keys import base64url

    return base64url.decode(part, "part")


async def test_the_example_of_the_rfc_is_good_at_its_time_alone() -> None:
    """RFC 9449 7.1, figure 12, and 6.1 for the thumbprint of its key."""
    text = (
        "eyJ0eXAiOiJkcG9wK2p3dCIsImFsZyI6IkVTMjU2IiwiandrIjp7Imt0eSI6IkVDIiwieCI6Imw4dEZyaHgtMzR0VjNoUklDUkRZOXpDa0Rsc"
        "EJoRjQyVVFVZldWQVdCRnMiLCJ5IjoiOVZFNGpmX09rX282NHpiVFRsY3VOSmFqSG10NnY5VERWclUwQ2R2R1JEQSIsImNydiI6IlAtMjU2In"
        "19.eyJqdGkiOiJlMWozVl9iS2ljOC1MQUVCIiwiaHRtIjoiR0VUIiwiaHR1IjoiaHR0cHM6Ly9yZXNvdXJjZS5leGFtcGxlLm9yZy9wcm90ZW"
        "N0ZWRyZXNvdXJjZSIsImlhdCI6MTU2MjI2MjYxOCwiYXRoIjoiZlVIeU8ycjJaM0RaNTNFc05yV0JiMHhXWG9hTnk1OUlpS0NBcWtzbVFFbyJ"
        "9.2oW9RP35yRqzhrtNP86L-Ey71EOptxRimPPToA1plemAgR6pxHF8y6-yqyVnmcw6Fy1dqd-jfxSYoMxhAJpLjA"
    )
    scope = scope_of(method="GET", path="/protectedresource")
    known = {
        "token": "Kz~8mXK1EalYznwH-LC-1fBAo.4Ljp~zsPE_NeO.gxU",
        "jkt": "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I",
    }
    await DPoP(url="https://resource.example.org").check([text.encode()], scope, now=1_562_262_618.0, **known)
    for then in (1_562_262_618.0 - 61, 1_562_262_618.0 + 61, NOW):
        with pytest.raises(InvalidCredentialsError, match="iat"):
            await DPoP(url="https://resource.example.org").check([text.encode()], scope, now=then, **known)


def test_the_algorithms_are_all_asymmetric() -> None:
    assert {name[:2] for name in ALG_NAMES} == {"ES", "RS", "PS", "Ed"}


# Each rule


@walk(
    ("changes", "match"),
    [
        ({"htm": "GET"}, "htm"),
        ({"htm": "post"}, "htm"),
        ({"htm": ...}, "htm"),
        ({"htm": ["POST"]}, "htm"),
        ({"ath": ...}, "ath"),
        ({"ath": None}, "ath"),
        ({"ath": "x"}, "ath"),
        ({"iat": ...}, "iat"),
        ({"iat": NOW + 61}, "iat"),
        ({"iat": NOW - 61}, "iat"),
        ({"iat": str(int(NOW))}, "iat"),
        ({"iat": True}, "iat"),
        ({"iat": 10**300}, "iat"),
        ({"jti": ...}, "jti"),
        ({"jti": ""}, "jti"),
        ({"jti": 7}, "jti"),
        ({"jti": "j" * (MAX_JTI + 1)}, "jti"),
        ({"htu": ...}, "htu"),
        ({"htu": None}, "htu"),
    ],
)
async def test_a_claim_that_is_missing_or_wrong_is_refused(changes: dict[str, Any], match: str) -> None:
    error = await refused(proof(TOKEN, **changes), f"DPoP proof: {match}")
    assert error.oauth_error == "invalid_dpop_proof"


@walk("iat", [NOW - 60, NOW - 59.5, NOW, NOW + 60])
async def test_the_window_is_as_wide_as_it_says_and_both_ways(iat: float) -> None:
    await check(proof(TOKEN, iat=iat))
    judge = DPoP(url=BASE, window=10)
    if abs(iat - NOW) > 10:
        await refused(proof(TOKEN, iat=iat), "iat", judge)
    else:
        await check(proof(TOKEN, iat=iat), judge)


HS256 = {"alg": "HS256"}
PRIVATE = {**CLIENT.public_key.jwk, "d": "AAAA"}


@walk(
    ("header", "match"),
    [
        ({"typ": "JWT"}, "typ"),
        ({"typ": ...}, "typ"),
        ({"typ": "DPOP+JWT"}, "typ"),
        ({"typ": "at+jwt"}, "typ"),
        ({"alg": "none"}, "alg"),
        (HS256, "alg"),
        ({"alg": ...}, "alg"),
        ({"alg": "ES384"}, "alg"),
        ({"jwk": ...}, "JWK"),
        ({"jwk": None}, "JWK"),
        ({"jwk": "x"}, "JWK"),
        ({"jwk": PRIVATE}, "private"),
        ({"jwk": {"kty": "oct", "k": "AAAA"}, **HS256}, "alg"),
        ({"jwk": {"kty": "oct", "k": "AAAA"}}, "private or symmetric"),
        ({"jwk": {**CLIENT.public_key.jwk, "use": "enc"}}, "use"),
        ({"jwk": {**CLIENT.public_key.jwk, "key_ops": ["sign"]}}, "key_ops"),
        ({"jwk": {**CLIENT.public_key.jwk, "alg": "ES384"}}, "alg"),
        ({"jwk": {**CLIENT.public_key.jwk, "x": "AAAA"}}, "length"),
        ({"crit": ["exp"], "exp": 1}, "crit"),
        ({"b64": False}, "b64"),
    ],
)
async def test_a_header_that_is_not_a_proofs_is_refused(header: dict[str, Any], match: str) -> None:
    for _ in range(2):  # the second time as the first: no refused key is remembered
        await refused(proof(TOKEN, header=header), match)


async def test_a_weak_key_proves_nothing() -> None:
    numbers = {**RSA.public_key.jwk, "e": "Aw"}  # 3
    await refused(proof(TOKEN, RSA, header={"jwk": numbers}), "exponent", signer=RSA)


async def test_the_key_is_that_of_the_token_and_the_signature_that_of_the_key() -> None:
    error = await refused(proof(TOKEN, OTHER), "another key than the token's")
    assert error.oauth_error == "invalid_token"
    signed_by_another = proof(TOKEN, OTHER, header={"jwk": dict(CLIENT.public_key.jwk)})
    await refused(signed_by_another, "signature")
    head, body, signature = proof(TOKEN).split(".")
    for changed in (
        f"{head}.{body}.",
        f"{head}.{body}.{signature[:-2]}",
        f"{head}.{proof(TOKEN).split('.')[1]}.{signature}",
    ):
        await refused(changed, "signature")


@walk(
    "text",
    [
        "",
        "x",
        "..",
        "a.b.c.d.e",
        "é.é.é",
        "[]",
        "undefined",
        f"{proof(TOKEN)}, {proof(TOKEN)}",
        f"{proof(TOKEN)} {proof(TOKEN)}",
        f"{proof(TOKEN)}.",
        f"{proof(TOKEN)}=",
        f"DPoP {proof(TOKEN)}",
        "a" * (MAX_PROOF + 1),
        sealed([], {}),
        sealed({}, {}),
    ],
    ids=range(15),
)
async def test_what_is_no_compact_jws_is_refused(text: str) -> None:
    error = await refused(text, "DPoP proof: ")
    assert error.oauth_error == "invalid_dpop_proof"


async def test_a_proof_of_any_length_is_not_even_read() -> None:
    head, body, signature = proof(TOKEN, padding="x" * MAX_PROOF).split(".")
    await refused(f"{head}.{body}.{signature}", "too long")


@walk("said", [b"[]", b"1", b"null", b"", b"{", b'{"jti":"a","jti":"b"}', b"\xff", b'{"iat":NaN}'])
async def test_claims_that_are_no_one_object_are_refused(said: bytes) -> None:
    header = {"typ": "dpop+jwt", "alg": "ES256", "jwk": dict(CLIENT.public_key.jwk)}
    await refused(sealed(header, said), "DPoP proof: ")


@walk("lines", [[], [None], [b"x", b"x"], [proof(TOKEN).encode()] * 2, [proof(TOKEN).encode(), None]])
async def test_there_is_exactly_one_header_line(lines: list[bytes | None]) -> None:
    with pytest.raises(InvalidCredentialsError, match=r"it is missing|more than once"):
        await DPoP(url=BASE).check(lines, scope_of(), token=TOKEN, jkt=CLIENT.public_key.thumbprint, now=NOW)


@given(st.one_of(st.text(max_size=200), st.binary(max_size=200)))
@example(proof(TOKEN)[:-1])
@example("." * 2)
def test_whatever_comes_is_refused_and_never_an_accident(text: str | bytes) -> None:
    line = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    with pytest.raises(InvalidCredentialsError):
        asyncio.run(check(line))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@given(
    header=st.fixed_dictionaries({}, optional={"typ": JSON, "alg": JSON, "jwk": JSON, "kid": JSON}),
    said=st.fixed_dictionaries({}, optional={"htm": JSON, "htu": JSON, "iat": JSON, "ath": JSON, "jti": JSON}),
)
def test_members_of_any_kind_are_refused_and_never_an_accident(header: dict[str, Any], said: dict[str, Any]) -> None:
    jti = said.get("jti", "1")
    is_good_name = type(jti) is str and jti
    if said.keys() - {"jti"} or header.keys() - {"kid"} or not is_good_name:
        with pytest.raises(InvalidCredentialsError):
            asyncio.run(check(proof(TOKEN, header=header, **said)))


# The URL


@walk(
    ("url", "path", "htu"),
    [
        ("https://agent.example", "/rpc", "https://agent.example/rpc"),
        ("https://agent.example/", "/rpc", "https://agent.example/rpc"),
        ("https://Agent.Example:443", "/rpc", "https://agent.example/rpc"),
        ("https://agent.example", "/rpc", "HTTPS://AGENT.example:443/rpc"),
        ("https://agent.example", "/rpc", "https://agent.example:/rpc"),
        ("https://agent.example", "/rpc", "https://agent.example/rpc?a=b"),
        ("https://agent.example", "/rpc", "https://agent.example/rpc#a"),
        ("https://agent.example", "/rpc", "https://agent.example/%72pc"),
        ("https://agent.example", "/", "https://agent.example"),
        ("https://agent.example", "/", "https://agent.example/"),
        ("https://agent.example:8443", "/rpc", "https://agent.example:8443/rpc"),
        ("http://[::1]:80", "/rpc", "http://[::1]/rpc"),
        ("https://agent.example/team", "/rpc", "https://agent.example/team/rpc"),
        ("https://agent.example/team/", "/rpc", "https://agent.example/team/rpc"),
        ("https://agent.example/team", "/", "https://agent.example/team"),
        ("https://agent.example/team", "/", "https://agent.example/team/"),
        ("https://agent.example", "//rpc", "https://agent.example//rpc"),
        ("https://agent.example", "/tasks/1:cancel", "https://agent.example/tasks/1:cancel"),
    ],
)
async def test_spellings_of_one_url_are_one(url: str, path: str, htu: str) -> None:
    await check(proof(TOKEN, htu=htu), DPoP(url=url), path=path)


@walk(
    "htu",
    [
        "",
        "/rpc",
        "agent.example/rpc",
        "//agent.example/rpc",
        "http://agent.example/rpc",
        "wss://agent.example/rpc",
        "https://agent.example:8443/rpc",
        "https://agent.example:0443/rpc",
        "https://other.example/rpc",
        "https://agent.example.evil.example/rpc",
        "https://agent.example./rpc",
        "https://me@agent.example/rpc",
        "https://agent.example@evil.example/rpc",
        "https://agent.example\\@evil.example/rpc",
        "https://agent%2Eexample/rpc",
        "https://agent.example",
        "https://agent.example/",
        "https://agent.example/rpc/",
        "https://agent.example//rpc",
        "https://agent.example/RPC",
        "https://agent.example/rpc/.",
        "https://agent.example/./rpc",
        "https://agent.example/a/../rpc",
        "https://agent.example/a/%2e%2E/rpc",
        "https://agent.example/rpc%20",
        "https://agent.example/%",
        "https://agent.example/rpc;a",
        "https://agent.example%2Frpc",
        "https://agent.example/%2Frpc",
        " https://agent.example/rpc",
        "https://agent.example/rpc\n",
        "https://agent.example/rpc ",
        "https://ågent.example/rpc",
        "https://agent.example/rpç",
        "https:/agent.example/rpc",
        "https:///rpc",
    ],
)
async def test_a_proof_for_another_url_is_none(htu: str) -> None:
    await refused(proof(TOKEN, htu=htu), "htu")


@walk("sent", [b"/rpc%2Fx", b"/a%20b", b"/%C3%A9", b"/a%2fb", b"/a[1]", b"/a|b"])
async def test_the_path_counts_as_it_was_sent(sent: bytes) -> None:
    from urllib.parse import unquote

    path = unquote(sent.decode())
    await check(proof(TOKEN, htu=BASE + sent.decode()), path=path, raw_path=sent)
    await refused(proof(TOKEN, htu=f"{BASE}/rpc/x"), "htu", path=path, raw_path=sent)


@walk("sent", [b"rpc", b"*", b"https://agent.example/rpc", b"/rpc?a", b"/rpc#a", b"/a\\b", b"/%zz", b"/\xe9"])
async def test_a_target_that_is_no_path_has_no_proof(sent: bytes) -> None:
    for htu in (f"{BASE}/rpc", BASE + sent.decode("latin-1"), f"{BASE}/{sent.decode('latin-1')}"):
        await refused(proof(TOKEN, htu=htu), "htu", path="/rpc", raw_path=sent)


@walk("sent", ["/a/../rpc", "/a/..", "/./rpc", "/%2e%2e/rpc"])
async def test_dot_segments_are_not_taken_out(sent: str) -> None:
    """The application may see the path as it was sent, so a proof for what it might mean is none for it."""
    await refused(proof(TOKEN, htu=f"{BASE}/rpc"), "htu", path=sent, raw_path=sent.encode())
    await refused(proof(TOKEN, htu=f"{BASE}/"), "htu", path=sent, raw_path=sent.encode())
    await refused(proof(TOKEN, htu=f"{BASE}{sent}"), "htu", path=sent, raw_path=sent.encode())


async def test_without_a_raw_path_the_decoded_one_counts() -> None:
    await check(proof(TOKEN, htu=f"{BASE}/a%20b/x:cancel"), path="/a b/x:cancel", raw_path=...)
    await check(proof(TOKEN, htu=f"{BASE}/rpc"), path="/rpc", raw_path=None)
    await refused(proof(TOKEN, htu=f"{BASE}/rpc"), "htu", path="/other", raw_path=None)


@walk(
    ("scope", "good"),
    [
        # a proxy has taken /team away, and the server was told (uvicorn) or was not, or hands it on apart (hypercorn)
        ({"path": "/team/rpc", "root_path": "/team"}, True),
        ({"path": "/rpc", "root_path": ""}, True),
        ({"path": "/rpc", "root_path": "/team"}, True),
        # nobody has taken anything away
        ({"path": "/team/rpc", "root_path": ""}, False),
        ({"path": "/team/rpc", "root_path": "/tea"}, False),
        ({"path": "/teamrpc", "root_path": "/team"}, False),
        # the server's two paths do not agree
        ({"path": "/team/rpc", "raw_path": b"/rpc", "root_path": "/team"}, False),
        ({"path": "/team/rpc", "raw_path": b"/other/rpc", "root_path": "/team"}, False),
        ({"path": "/team/rpc", "raw_path": b"/%74eam/rpc", "root_path": "/team"}, True),
    ],
)
async def test_behind_a_prefix_the_configured_url_is_the_truth(scope: dict[str, Any], good: bool) -> None:
    judge = DPoP(url=f"{BASE}/team")
    if good:
        await check(proof(TOKEN, htu=f"{BASE}/team/rpc"), judge, **scope)
    else:
        await refused(proof(TOKEN, htu=f"{BASE}/team/rpc"), "htu", judge, **scope)
    await refused(proof(TOKEN, htu=f"{BASE}/rpc"), "htu", judge, **scope)


async def test_a_mounted_application_has_its_mount_in_its_url() -> None:
    judge = DPoP(url=f"{BASE}/ä b".replace("ä b", "%C3%A4%20b"))
    mounted: dict[str, Any] = {"path": "/ä b/x", "raw_path": b"/%C3%A4%20b/x", "root_path": "/ä b"}
    await check(proof(TOKEN, htu=f"{BASE}/%C3%A4%20b/x"), judge, **mounted)
    await check(proof(TOKEN, htu=f"{BASE}/%c3%a4%20b/x"), judge, **mounted)
    at_its_root: dict[str, Any] = {"path": "/ä b", "raw_path": b"/%C3%A4%20b", "root_path": "/ä b"}
    await check(proof(TOKEN, htu=f"{BASE}/%C3%A4%20b"), judge, **at_its_root)
    await refused(proof(TOKEN, htu=f"{BASE}/%C3%A4%20b/"), "htu", judge, **at_its_root)


@given(st.text(alphabet="ab/.%2eEfF;:@~\\?#[] é", max_size=12), st.text(alphabet="ab/.%2eEfF;:@~\\?#[] é", max_size=12))
def test_two_paths_are_one_only_where_they_decode_to_one(asked: str, claimed: str) -> None:
    from urllib.parse import unquote

    path, sent = unquote(asked), asked.encode()
    try:
        asyncio.run(check(proof(TOKEN, htu=f"{BASE}/{claimed}"), path=f"/{path}", raw_path=b"/" + sent))
    except InvalidCredentialsError:
        return
    assert unquote(claimed.partition("#")[0].partition("?")[0]) == path


# Nonces


NONCES = ServerNonces(b"s" * 32)


async def test_with_nonces_a_proof_without_a_recent_one_is_refused_and_told_to_take_one() -> None:
    judge = DPoP(url=BASE, nonces=NONCES)
    nonce = judge.nonce(NOW)
    await check(proof(TOKEN, nonce=nonce), judge)
    await check(proof(TOKEN, nonce=judge.nonce(NOW - 300)), judge)  # given just before the last change
    others = (..., None, "", 7, "x", f"{nonce}A", judge.nonce(NOW - 600), judge.nonce(NOW + 300), "é" * 43)
    for other in (*others, ServerNonces(b"t" * 32).given(NOW)):
        error = await refused(proof(TOKEN, nonce=other), "nonce", judge)
        assert error.oauth_error == "use_dpop_nonce"


async def test_a_proof_with_a_nonce_is_otherwise_as_good_as_any() -> None:
    judge = DPoP(url=BASE, nonces=NONCES)
    nonce = judge.nonce(NOW)
    for changes in ({"iat": NOW - 61}, {"htm": "GET"}, {"ath": "x"}, {"htu": BASE}):
        error = await refused(proof(TOKEN, nonce=nonce, **changes), "iat|htm|ath|htu", judge)
        assert error.oauth_error == "invalid_dpop_proof"
    used = proof(TOKEN, nonce=nonce)
    await check(used, judge)
    await refused(used, "used before", judge)


async def test_processes_with_one_secret_take_each_others_nonces() -> None:
    given_by = DPoP(url=BASE, nonces=ServerNonces(b"s" * 32)).nonce(NOW)
    await check(proof(TOKEN, nonce=given_by), DPoP(url=BASE, nonces=ServerNonces(b"s" * 32)))
    await refused(proof(TOKEN, nonce=given_by), "nonce", DPoP(url=BASE, nonces=ServerNonces(b"t" * 32)))


async def test_without_nonces_none_is_given_and_any_is_taken() -> None:
    assert DPoP(url=BASE).nonce(NOW) is None
    await check(proof(TOKEN, nonce="of another server"))


# The memory


async def test_a_proof_counts_once() -> None:
    judge, used = DPoP(url=BASE), proof(TOKEN)
    await check(used, judge)
    for later in (0, 1, 59, 60):
        await refused(used, "used before", judge, now=NOW + later)
    await refused(used, "iat", judge, now=NOW + 61)


async def test_the_name_of_a_proof_counts_once_for_its_key_and_is_free_for_others() -> None:
    judge = DPoP(url=BASE)
    await check(proof(TOKEN, jti="1"), judge)
    await refused(proof(TOKEN, jti="1", iat=NOW - 5), "used before", judge)
    theirs = bound_token(OTHER)
    await check(proof(theirs, OTHER, jti="1"), judge, token=theirs, signer=OTHER)


@walk("iat", [NOW - 60, NOW - 53, NOW, NOW + 5, NOW + 60])
async def test_a_proof_is_remembered_as_long_as_it_could_be_used(iat: float) -> None:
    judge, used = DPoP(url=BASE), proof(TOKEN, iat=iat)
    await check(used, judge)
    moment = NOW
    while moment <= iat + 60:
        await check(proof(TOKEN, iat=moment), judge, now=moment)  # others come, and old ones are dropped
        await refused(used, "used before", judge, now=moment)
        moment += 7
    await refused(used, "used before", judge, now=iat + 60)
    await refused(used, "iat", judge, now=iat + 60.001)


class Recording:
    """A memory that says what it was asked, and answers as it is told."""

    def __init__(self, answer: Any = True) -> None:
        self.answer, self.asked = answer, [("", "", 0.0, 0.0, 0.0)][:0]

    async def first_use(self, jkt: str, jti: str, *, now: float, issued: float, window: float) -> Any:
        self.asked.append((jkt, jti, now, issued, window))
        return self.answer


async def test_a_memory_of_ones_own_is_asked_after_everything_else() -> None:
    memory = Recording()
    judge = DPoP(url=BASE, memory=memory, nonces=NONCES)
    nonce = judge.nonce(NOW)
    wrong: list[dict[str, Any]] = [
        {"htm": "GET"},
        {"htu": BASE},
        {"iat": 0},
        {"ath": "x"},
        {"nonce": "x"},
        {"header": {"typ": "JWT"}},
    ]
    for changes in wrong:
        await refused(proof(TOKEN, **{"nonce": nonce, **changes}), "DPoP proof", judge)
    await refused(proof(TOKEN, OTHER, nonce=nonce), "another key", judge)
    assert memory.asked == []
    await check(proof(TOKEN, nonce=nonce, jti="1", iat=NOW - 3), judge)
    assert memory.asked == [(CLIENT.public_key.thumbprint, "1", NOW, NOW - 3, 60)]


@walk("answer", [False, None, 0, "no", 1, "yes"])
async def test_what_is_not_true_is_no_first_use(answer: Any) -> None:
    await refused(proof(TOKEN), "used before", DPoP(url=BASE, memory=Recording(answer)))


async def test_a_proof_of_a_key_with_many_clients_is_read_once_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """513 clients in turn had every key read again."""
    read: list[str] = []

    def counted(header: str) -> PublicKey:
        read.append(header)
        return _read_key(header)

    monkeypatch.setattr(dpop_module, "_read_key", counted)
    clients = [generate_signer("ES256") for _ in range(600)]
    judge = DPoP(url=BASE)
    for _ in range(2):
        for client in clients:
            thine = bound_token(client)
            await check(proof(thine, client), judge, token=thine, signer=client)
    assert len(read) == 600


async def test_the_key_of_a_proof_is_remembered_for_its_own_header_alone() -> None:
    judge = DPoP(url=BASE)
    await check(proof(TOKEN), judge)
    for _ in range(2):
        await refused(proof(TOKEN, OTHER), "another key", judge)
        await refused(proof(TOKEN, header={"alg": "ES384"}), "alg", judge)
    await check(proof(TOKEN), judge)


# Wrong use


@walk(
    "url",
    [
        "",
        "agent.example",
        "/rpc",
        "ftp://agent.example",
        "https://",
        "https://me:secret@agent.example",
        "https://agent.example?x",
        "https://agent.example#x",
        "https://agent.example/../x",
        "https://agent.example/a b",
        "https://ågent.example",
        None,
        b"https://agent.example",
    ],
)
def test_a_url_that_is_no_agents_is_wrong_use(url: Any) -> None:
    with pytest.raises(ConfigurationError, match="write url='https://host'"):
        DPoP(url=url)


@walk(
    "options",
    [
        {"window": 0},
        {"window": -1},
        {"window": 301},
        {"window": float("nan")},
        {"window": float("inf")},
        {"memory": VolatileProofMemory},
        {"memory": object()},
        {"memory": {}},
        {"nonces": ServerNonces},
        {"nonces": b"s" * 32},
        {"nonces": True},
    ],
)
def test_other_wrong_use_says_what_to_write(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="DPoP: "):
        DPoP(url=BASE, **options)


@walk("secret", [b"", b"s" * 31, "s" * 32, None, bytearray(32)])
def test_a_secret_that_could_be_guessed_makes_no_nonces(secret: Any) -> None:
    with pytest.raises(ConfigurationError, match="token_bytes"):
        ServerNonces(secret)


def test_nothing_shows_the_secret() -> None:
    assert "ssss" not in repr(NONCES) + repr(vars(DPoP(url=BASE, nonces=NONCES)))
