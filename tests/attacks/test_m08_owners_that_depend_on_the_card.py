"""M8: the owner of data changes with the card's words, or two owners become one.

An operator renames a scheme or sorts the requirements, and what callers own is lost, or is another caller's. Or two
stores have one name, and ann of one store owns what ann of the other has.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from a2a_trust.auth import BasicVerifier, CredentialKind, MemoryPasswords, SeveralIssuers
from a2a_trust.auth.api_key.verifier import ApiKeyVerifier, MemoryApiKeys
from a2a_trust.auth.certificate.identities import AllIssued, FromDns, FromUri
from a2a_trust.auth.certificate.verifier import CertificateVerifier, ClientAuthority
from a2a_trust.auth.credentials import CERTIFICATES
from a2a_trust.auth.guard import Guard
from a2a_trust.auth.jwt import IdTokenVerifier, JwtVerifier
from a2a_trust.auth.principal import Identity, Principal
from a2a_trust.card.view import read_card
from a2a_trust.errors import AuthorizationError, ConfigurationError, MissingCredentialsError
from tests.auth.deciding import admitted, cached
from tests.auth.test_jwt import AUDIENCE, EC, ISSUER, NOW, Keys, claims, token
from tests.certificates import Authority
from tests.middleware.agent import KEY, POOR_KEY, STORE
from tests.tables import walk

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


SCHEMES: dict[str, Any] = {
    "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}},
    "sid": {"apiKeySecurityScheme": {"location": "cookie", "name": "sid"}},
    "oauth": {"oauth2SecurityScheme": {"flows": {}}},
    "basic": {"httpAuthSecurityScheme": {"scheme": "Basic"}},
    "mtls": {"mtlsSecurityScheme": {}},
}
CALLERS = {
    "a key": {b"x-api-key": KEY},
    "a token": {b"authorization": f"Bearer {token()}"},
    "a key and the token of another": {b"x-api-key": KEY, b"authorization": f"Bearer {token(claims(sub='zoe'))}"},
    "two keys of two owners": {b"x-api-key": KEY, b"cookie": f"sid={POOR_KEY}"},
    "two keys of one owner": {b"x-api-key": KEY, b"cookie": f"sid={KEY}"},
    "all": {b"x-api-key": KEY, b"cookie": f"sid={POOR_KEY}", b"authorization": f"Bearer {token()}"},
}
REQUIREMENTS: dict[str, list[dict[str, list[str]]]] = {
    "either": [{"key": []}, {"oauth": []}, {"sid": []}],
    "both": [{"key": [], "oauth": []}, {"key": [], "sid": []}, {"oauth": []}],
    "scopes": [{"key": ["read"]}, {"sid": []}, {"oauth": ["read", "write"]}, {"key": [], "sid": []}],
}


def guard(requirements: list[dict[str, list[str]]], skills: Sequence[dict[str, Any]] = (), **names: Any) -> Guard:
    """A guard whose card gives the schemes these ``names``."""
    verifiers: dict[str, Any] = {
        "key": ApiKeyVerifier(STORE),
        "sid": ApiKeyVerifier(STORE),
        "oauth": JwtVerifier(Keys(EC), issuer=ISSUER, audience=AUDIENCE),
    }
    called = {name: names.get(name, name) for name in verifiers}
    demands = [{called[name]: {"list": scopes} for name, scopes in each.items()} for each in requirements]
    card = {
        "name": "agent",
        "securitySchemes": {called[name]: SCHEMES[name] for name in called},
        "securityRequirements": [{"schemes": each} for each in demands],
        "skills": [*skills],
    }
    given = {called[name]: verifier for name, verifier in verifiers.items()}
    return Guard(read_card(card), given, skills_are_checked=True)


async def caller_of(judge: Guard, carried: dict[bytes, str]) -> Principal | None:
    """The caller, asked twice, as the second time it may be answered from memory; None if it is not admitted."""
    headers = [(name, value.encode()) for name, value in carried.items()]
    scope = {"type": "http", "headers": headers, "query_string": b""}
    try:
        found = await admitted(judge, scope, NOW)
    except (AuthorizationError, MissingCredentialsError):
        return None
    assert isinstance(found, Principal)
    assert cached(judge, scope, NOW) in (found, None)
    return found


NAMES = [dict(zip(("key", "sid", "oauth"), names, strict=True)) for names in permutations(("a", "b", "c"))]


@walk("carried", list(CALLERS.values()), ids=list(CALLERS))
@walk("requirements", list(REQUIREMENTS.values()), ids=list(REQUIREMENTS))
async def test_renamed_schemes_and_reordered_requirements_keep_the_owner(
    carried: dict[bytes, str], requirements: list[dict[str, list[str]]]
) -> None:
    guards = [guard(requirements, [], **names) for names in NAMES]
    guards += [guard([*order]) for order in permutations(requirements)]
    ids = {found and found.id for found in [await caller_of(each, carried) for each in guards]}
    assert len(ids) == 1


async def test_the_owners_of_the_guide_are_these() -> None:
    found = [await caller_of(guard(REQUIREMENTS["both"]), carried) for carried in CALLERS.values()]
    assert [each and each.id for each in found] == [
        None,
        f"alice@{ISSUER}",
        f"zoe@{ISSUER}",
        "ann@api-keys,bob@api-keys",
        "ann@api-keys",
        f"alice@{ISSUER}",
    ]


async def test_credentials_beside_the_deciding_ones_change_neither_id_nor_scopes() -> None:
    judge = guard([{"key": []}, {"key": [], "oauth": []}, {"key": [], "sid": []}])
    plain = await caller_of(judge, CALLERS["a key"])
    assert plain is not None
    for name in ("a key and the token of another", "two keys of two owners", "two keys of one owner", "all"):
        more = await caller_of(judge, CALLERS[name])
        assert more is not None
        assert (more.id, more.scopes, more.client_id, more.actors) == (plain.id, plain.scopes, None, ())
        assert more.for_skills == ()


async def test_a_credential_for_a_skill_changes_neither_id_nor_scopes() -> None:
    skill = {"id": "pay", "securityRequirements": [{"schemes": {"oauth": {"list": ["read"]}}}]}
    judge = guard([{"key": []}], skills=[skill])
    plain = await caller_of(judge, CALLERS["a key"])
    more = await caller_of(judge, CALLERS["a key and the token of another"])
    assert plain is not None
    assert more is not None
    assert (more.id, more.scopes, more.client_id) == (plain.id, plain.scopes, None)
    assert [(name, each.subject) for name, each in more.for_skills] == [("oauth", "zoe")]


class Shown:
    """A verifier of certificates of gateways, all valid: it takes their content for the subject."""

    async def verify(self, credential: tuple[bytes, ...], now: float) -> Identity:
        return Identity(issuer="x509:gateways", subject=credential[0].decode())


@walk("order", [1, -1])
async def test_users_behind_the_certificate_of_one_gateway_are_not_the_gateway(order: int) -> None:
    card = {
        "name": "agent",
        "securitySchemes": {"key": SCHEMES["key"], "tls": {"mtlsSecurityScheme": {"description": "gateways"}}},
        "securityRequirements": [{"schemes": {"key": {}}}, {"schemes": {"tls": {}}}][::order],
    }
    judge = Guard(read_card(card), {"key": ApiKeyVerifier(STORE), "tls": Shown()})
    for gateway in (b"a gateway", b"z gateway"):
        for key, owner in ((KEY, "ann@api-keys"), (POOR_KEY, "bob@api-keys")):
            headers = [(b"x-api-key", key.encode())]
            scope = {"type": "http", "method": "POST", "path": "/", "headers": headers, CERTIFICATES: (gateway,)}
            found = await judge.authenticate(scope, NOW)
            assert isinstance(found, Principal)
            assert found.id == owner


# Two stores


class Own:
    """A verifier of somebody's own, over some store."""

    def __init__(self, **stores: object) -> None:
        self.stores_by_issuer = {name.replace("_", "-"): store for name, store in stores.items()}

    async def verify(self, credential: str, now: float) -> Identity:
        raise NotImplementedError


def jwt(issuer: str = ISSUER, kind: type[JwtVerifier] = JwtVerifier) -> JwtVerifier:
    return kind(Keys(EC), issuer=issuer, audience=AUDIENCE)


def keys(store: Any = None, issuer: str = "api-keys") -> ApiKeyVerifier:
    return ApiKeyVerifier(MemoryApiKeys() if store is None else store, issuer=issuer)


def passwords(issuer: str = "passwords") -> BasicVerifier:
    return BasicVerifier(MemoryPasswords(), issuer=issuer)


async def ask(user: str, password: str) -> Identity | None:
    """A function, which names the issuer in its identities."""
    return Identity(issuer="directory", subject=user) if password else None


def start(**verifiers: Any) -> Guard:
    requirements: list[Any] = [{"schemes": {name: {}}} for name in verifiers]
    card = {"name": "agent", "securitySchemes": SCHEMES, "securityRequirements": requirements}
    return Guard(read_card(card), verifiers)


@walk(
    ("first", "second", "issuer"),
    [
        ({"key": keys()}, {"sid": keys()}, "api-keys"),
        ({"sid": keys(issuer="staff")}, {"key": keys(issuer="staff")}, "staff"),
        ({"key": keys(issuer="staff")}, {"basic": passwords("staff")}, "staff"),
        ({"key": keys(issuer=ISSUER)}, {"oauth": jwt()}, ISSUER),
        ({"key": keys(issuer="https://b")}, {"oauth": SeveralIssuers([jwt(), jwt("https://b")])}, "https://b"),
        ({"key": keys()}, {"sid": Own(api_keys=object())}, "api-keys"),
        ({"key": Own(mine=object())}, {"sid": Own(other=1, mine=object())}, "mine"),
        ({"key": Own(mine=[])}, {"sid": Own(mine=[])}, "mine"),
    ],
)
def test_two_stores_of_one_issuer_do_not_start(first: dict[str, Any], second: dict[str, Any], issuer: str) -> None:
    start(**first)
    start(**second)
    with pytest.raises(ConfigurationError, match="so two owners of one name would be one caller; give") as caught:
        start(**first, **second)
    names = sorted({**first, **second})
    assert str(caught.value).startswith(
        f"verifiers: {names[0]!r} and {names[1]!r} have the issuer {issuer!a} and different stores"
    )


def test_two_authorities_of_one_name_and_rule_do_not_start(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_bytes(Authority().pem)

    def partners(rule: Any, name: str = "partners") -> ClientAuthority:
        return ClientAuthority(name=name, certificates=tmp_path / "ca.pem", identity=rule, allowed=AllIssued())

    def both(first: ClientAuthority, second: ClientAuthority) -> Guard:
        card = {
            "name": "agent",
            "securitySchemes": {"one": SCHEMES["mtls"], "two": SCHEMES["mtls"]},
            "securityRequirements": [{"schemes": {"one": {}}}, {"schemes": {"two": {}}}],
        }
        return Guard(read_card(card), {"one": CertificateVerifier(first), "two": CertificateVerifier(second)})

    with pytest.raises(ConfigurationError, match="have the issuer 'x509:uri:partners' and different stores"):
        both(partners(FromUri("example.org")), partners(FromUri("example.com")))
    one = partners(FromUri("example.org"))
    both(one, one)
    both(one, partners(FromUri("example.org"), "others"))
    both(one, partners(FromDns()))


def test_one_store_or_one_issuer_of_tokens_may_have_several_schemes() -> None:
    shared, mine = MemoryApiKeys(), object()
    one = keys(shared)
    start(key=one, sid=one)
    start(key=keys(shared), sid=keys(shared))
    start(key=keys(), sid=keys(issuer="partners"))
    start(key=keys(), basic=passwords())
    start(key=keys(issuer="passwords"), basic=BasicVerifier(ask))
    start(key=Own(mine=mine), sid=Own(mine=mine))
    start(key=Own(), sid=Own())
    assert jwt(kind=IdTokenVerifier).kind is CredentialKind.ID_TOKEN
    card: dict[str, Any] = {
        "name": "agent",
        "securitySchemes": dict.fromkeys(("one", "two"), SCHEMES["oauth"]),
        "securityRequirements": [{"schemes": {"one": {}}}, {"schemes": {"two": {}}}],
    }
    Guard(read_card(card), {"one": jwt(), "two": jwt(kind=IdTokenVerifier)})
