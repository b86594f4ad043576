"""Requirements at work: OR of ANDs, scopes, anonymous callers, and the start-up errors that leave no hole."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_trust.auth.api_key.verifier import ApiKeyVerifier, MemoryApiKeys
from a2a_trust.auth.basic.records import MemoryPasswords
from a2a_trust.auth.basic.verifier import BasicVerifier
from a2a_trust.auth.credentials import HttpAuthorization, InCookie, InHeader, InQuery
from a2a_trust.auth.discovery import OAuth2Keys, OpenIdKeys
from a2a_trust.auth.dpop import DPoP
from a2a_trust.auth.guard import Guard, Rejected
from a2a_trust.auth.guard_config import CredentialAt
from a2a_trust.auth.jwt import JwtVerifier
from a2a_trust.auth.principal import Anonymous, CredentialKind, Identity, KeyBinding, Principal
from a2a_trust.base.net.fetcher import Fetcher
from a2a_trust.card.view import read_card
from a2a_trust.errors import (
    AuthorizationError,
    ConfigurationError,
    InvalidCredentialsError,
    KeySourceUnavailableError,
    MissingCredentialsError,
    UnrecognizedCredentialsError,
)
from tests.auth.deciding import admitted, refused
from tests.auth.test_jwt import AUDIENCE, EC, ISSUER, NOW, Keys, claims, token
from tests.tables import walk

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Words:
    """A verifier for words that the test knows: each proves a subject and scopes."""

    def __init__(self, issuer: str, **words: str) -> None:
        self.issuer, self.words = issuer, words
        self.asked: list[str] = []

    async def verify(self, credential: str, now: float) -> Identity:
        self.asked.append(credential)
        if credential not in self.words:
            raise InvalidCredentialsError("no such word")
        return Identity(issuer=self.issuer, subject=credential, scopes=frozenset(self.words[credential].split()))


SCHEMES: dict[str, Any] = {
    "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    "query": {"type": "apiKey", "in": "query", "name": "k"},
    "sid": {"type": "apiKey", "in": "cookie", "name": "sid"},
    "oauth": {"type": "oauth2"},
    "oidc": {"type": "openIdConnect", "openIdConnectUrl": "https://i/d"},
    "mtls": {"type": "mutualTLS"},
    "basic": {"type": "http", "scheme": "basic"},
    "digest": {"type": "http", "scheme": "digest"},
}


def verifiers() -> dict[str, Words]:
    return {
        "key": Words("keys", ann="read write", bob="read", eve=""),
        "query": Words("query", ann="admin"),
        "sid": Words("sid", ann=""),
        "oauth": Words("issuer", tok="read", full="read write"),
    }


def guard(*requirements: dict[str, list[str]], given: Any = None, **options: Any) -> Guard:
    """A guard for these alternatives, with the verifiers that they need."""
    used = {name for item in requirements for name in item}
    chosen = given if given is not None else {name: v for name, v in verifiers().items() if name in used}
    card = {"name": "n", "securitySchemes": SCHEMES, "security": list(requirements), **options.pop("card", {})}
    return Guard(read_card(card), chosen, **options)


def scope(key: str = "", token: str = "", query: str = "", sid: str = "", **headers: str) -> dict[str, Any]:
    lines = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    lines += [(b"x-api-key", key.encode())] if key else []
    lines += [(b"authorization", f"Bearer {token}".encode())] if token else []
    lines += [(b"cookie", f"sid={sid}".encode())] if sid else []
    return {"type": "http", "headers": lines, "query_string": f"k={query}".encode() if query else b""}


async def caller(judge: Guard, **carried: str) -> Principal:
    found = await admitted(judge, scope(**carried), NOW)
    assert isinstance(found, Principal)
    return found


# What operators learn of a 403


async def test_the_reason_of_a_403_names_the_claims_that_hold_the_scopes() -> None:
    judge = guard({"oauth": ["Tasks.Read"]}, given={"oauth": JwtVerifier(Keys(EC), issuer=ISSUER, audience=AUDIENCE)})
    roles = token(claims(roles=["Tasks.Read"], realm_access={"roles": ["Tasks.Read"]}))
    hint = "'oauth' needs Tasks.Read; for 'oauth', the claim 'roles' has some: write scopes_from='roles'$"
    with pytest.raises(AuthorizationError, match=f"demands: {hint}"):
        await admitted(judge, scope(token=roles), NOW)
    with pytest.raises(AuthorizationError, match=r"lack scopes that the card demands: 'oauth' needs Tasks.Read$"):
        await admitted(judge, scope(token=token()), NOW)


# OR of ANDs


async def test_any_one_alternative_is_enough() -> None:
    judge = guard({"key": []}, {"oauth": []})
    assert [name for name, _ in (await caller(judge, key="ann")).identities] == ["key"]
    assert [name for name, _ in (await caller(judge, token="tok")).identities] == ["oauth"]


async def test_an_and_needs_every_credential() -> None:
    judge = guard({"key": [], "oauth": []})
    both = await caller(judge, key="ann", token="tok")
    assert [(name, identity.subject) for name, identity in both.identities] == [("key", "ann"), ("oauth", "tok")]
    for carried in ({"key": "ann"}, {"token": "tok"}, {}):
        with pytest.raises(MissingCredentialsError):
            await admitted(judge, scope(**carried), NOW)


async def test_half_of_one_and_and_half_of_another_are_nothing() -> None:
    judge = guard({"key": [], "oauth": []}, {"query": [], "sid": []})
    for carried, missing in (
        ({"key": "ann", "query": "ann"}, "'oauth', or 'sid'"),
        ({"token": "tok"}, "'key', or 'query' and 'sid'"),
    ):
        with pytest.raises(MissingCredentialsError, match=f"missing: {missing}$"):
            await admitted(judge, scope(**carried), NOW)
    await caller(judge, query="ann", sid="ann")


@walk(
    ("requirements", "schemes"),
    [
        # An alternative that is not satisfied does not count.
        (({"key": ["admin"]}, {"key": [], "oauth": []}, {"oauth": []}), ["oauth"]),
        (({"key": ["admin"]}, {"key": [], "oauth": []}), ["key", "oauth"]),
        # The fewest owners.
        (({"key": [], "oauth": []}, {"oauth": []}), ["oauth"]),
        (({"key": [], "oauth": []}, {"key": [], "login": []}), ["key", "login"]),
        # The smallest id: "ann@keys" is smaller than "tok@issuer".
        (({"oauth": []}, {"key": []}), ["key"]),
        (({"key": []}, {"oauth": []}), ["key"]),
        # One id: the order of the card.
        (({"key": []}, {"login": []}), ["key"]),
        (({"login": []}, {"key": []}), ["login"]),
        (({"login": [], "key": []}, {"login": []}), ["key", "login"]),
        (({"key": []}, {"key": ["read"]}), ["key"]),
    ],
)
async def test_of_several_alternatives_the_fewest_owners_then_the_smallest_id_then_the_first_one(
    requirements: tuple[dict[str, list[str]], ...], schemes: list[str]
) -> None:
    keys = verifiers()["key"]
    used = {name for item in requirements for name in item}
    given = {name: verifier for name, verifier in {**verifiers(), "login": keys, "key": keys}.items() if name in used}
    login = {"type": "apiKey", "in": "header", "name": "X-Login"}
    judge = guard(*requirements, given=given, card={"securitySchemes": {**SCHEMES, "login": login}})
    carried = {name: word for name, word in (("key", "ann"), ("x_login", "ann")) if name.removeprefix("x_") in used}
    found = await caller(judge, **carried, **({"token": "tok"} if "oauth" in used else {}))
    assert [name for name, _ in found.identities] == schemes
    assert found.for_skills == ()
    assert {each.subject for _, each in found.identities} <= {"tok", "ann"}


async def test_verifiers_get_the_credential_of_their_own_scheme_only() -> None:
    given = verifiers()
    del given["sid"], given["query"]
    judge = guard({"key": []}, {"oauth": []}, given=given)
    await caller(judge, key="ann", token="tok")
    assert (given["key"].asked, given["oauth"].asked) == (["ann"], ["tok"])
    with pytest.raises(InvalidCredentialsError):
        await caller(judge, token="ann")


async def test_real_verifiers_for_an_api_key_or_a_token() -> None:
    store = MemoryApiKeys()
    issued = store.create(owner="ann", scopes=["read"])
    given = {
        "key": ApiKeyVerifier(store),
        "oauth": JwtVerifier(Keys(EC), issuer=ISSUER, audience=AUDIENCE),
    }
    judge = guard({"key": ["read"]}, {"oauth": ["read"]}, given=given)
    assert (await caller(judge, key=issued.text)).identities[0][1].subject == "ann"
    assert (await caller(judge, token=token())).identities[0][1].subject == "alice"
    with pytest.raises(AuthorizationError):
        await caller(judge, token=token(claims(scope="write")))
    with pytest.raises(InvalidCredentialsError):
        await caller(judge, token=issued.text)
    with pytest.raises(InvalidCredentialsError):
        await caller(judge, key=token())


# Scopes


async def test_all_scopes_of_a_scheme_are_needed() -> None:
    judge = guard({"key": ["read", "write"]})
    await caller(judge, key="ann")
    for word in ("bob", "eve"):
        with pytest.raises(AuthorizationError) as caught:
            await caller(judge, key=word)
        assert caught.value.scopes == ("read", "write")


async def test_the_scopes_of_one_scheme_never_stand_for_anothers() -> None:
    judge = guard({"key": ["write"], "oauth": ["read"]})
    await caller(judge, key="ann", token="tok")
    with pytest.raises(AuthorizationError):
        await caller(judge, key="bob", token="full")  # write, but on the other credential
    with pytest.raises(AuthorizationError):
        await caller(judge, key="eve", token="full")


async def test_scopes_are_compared_exactly() -> None:
    for wanted in ("READ", "rea", "read:all"):
        with pytest.raises(AuthorizationError):
            await caller(guard({"key": [wanted]}), key="ann")


async def test_a_caller_without_scopes_for_one_alternative_may_satisfy_another() -> None:
    judge = guard({"key": ["write"]}, {"key": ["read"]})
    assert (await caller(judge, key="bob")).identities[0][1].subject == "bob"


async def test_the_scopes_that_are_wanting_are_those_of_alternatives_whose_credentials_came() -> None:
    judge = guard({"key": ["write"]}, {"oauth": ["admin"]}, {"key": ["read", "x"]})
    with pytest.raises(AuthorizationError) as caught:
        await caller(judge, key="bob")
    assert caught.value.scopes == ("read", "write", "x")


async def test_the_scheme_that_lacks_scopes_is_told_which_it_needs_and_the_others_are_not() -> None:
    judge = guard({"key": ["read"], "oauth": ["write", "read"]})
    with pytest.raises(AuthorizationError) as caught:
        await caller(judge, key="bob", token="tok")
    assert caught.value.by_scheme == {"oauth": ("read", "write")}


# Presented but bad


@walk(
    ("carried", "words"),
    [
        ({"key": "ann", "token": "wrong"}, "no such word"),
        ({"key": "wrong", "token": "tok"}, "no such word"),
        ({"token": "tok", "X_API_Key": ""}, "empty"),
        ({"key": "ann", "X-Api-Key": "ann"}, "more than once"),
        ({"key": "ann", "authorization": "Bearer"}, "one credential"),
    ],
)
@walk("anonymous", [False, True])
async def test_a_bad_credential_is_refused_whatever_good_one_stands_beside_it(
    carried: dict[str, str], words: str, anonymous: bool
) -> None:
    requirements: list[dict[str, list[str]]] = [{"key": []}, {"oauth": []}, *([{}] if anonymous else [])]
    judge = guard(*requirements, allow_anonymous=True)
    with pytest.raises(InvalidCredentialsError, match=words):
        await admitted(judge, scope(**carried), NOW)


class Down:
    async def verify(self, credential: str, now: float) -> Identity:
        raise KeySourceUnavailableError("down")


def guard_with_oauth_down(*requirements: dict[str, list[str]], **options: Any) -> Guard:
    return guard(*requirements, given={**verifiers_for("key", "sid"), "oauth": Down()}, **options)


async def test_a_key_source_that_is_down_matters_only_where_nothing_else_lets_the_caller_in() -> None:
    judge = guard_with_oauth_down({"key": ["read"]}, {"oauth": []}, {"sid": []}, {}, allow_anonymous=True)
    assert [name for name, _ in (await caller(judge, key="ann", token="tok")).identities] == ["key"]
    assert (await caller(judge, key="ann")).identities[0][1].subject == "ann"
    for carried in ({"token": "tok"}, {"token": "tok", "key": "eve"}):  # not as anonymous, and not 403
        with pytest.raises(KeySourceUnavailableError):
            await admitted(judge, scope(**carried), NOW)


async def test_an_invalid_credential_is_rejected_whatever_cannot_be_judged_beside_it() -> None:
    judge = guard_with_oauth_down({"key": []}, {"oauth": []}, {"sid": []})
    for carried in ({"token": "tok", "key": "nobody"}, {"token": "tok", "key": "ann", "sid": "nobody"}):
        with pytest.raises(InvalidCredentialsError):
            await admitted(judge, scope(**carried), NOW)


async def test_a_key_source_that_is_down_is_not_waited_for_where_it_could_not_help() -> None:
    judge = guard_with_oauth_down({"oauth": [], "key": ["write"]})
    with pytest.raises(MissingCredentialsError):
        await admitted(judge, scope(token="tok", key="bob"), NOW)
    judge = guard_with_oauth_down({"oauth": [], "sid": []}, {"key": ["write"]})
    with pytest.raises(MissingCredentialsError):
        await admitted(judge, scope(token="tok"), NOW)
    with pytest.raises(AuthorizationError):
        await admitted(judge, scope(token="tok", key="bob"), NOW)
    with pytest.raises(KeySourceUnavailableError):
        await admitted(judge, scope(token="tok", sid="ann"), NOW)


async def test_of_two_verifiers_at_one_place_one_that_is_down_and_one_that_rejects_decide_nothing() -> None:
    judge = guard({"oauth": []}, {"oidc": []}, given={"oauth": Words("first", one=""), "oidc": Down()})
    assert (await caller(judge, token="one")).identities[0][0] == "oauth"
    with pytest.raises(KeySourceUnavailableError):
        await admitted(judge, scope(token="two"), NOW)


async def test_the_verifier_of_the_tokens_issuer_says_what_is_wrong_with_it() -> None:
    given = {name: JwtVerifier(Keys(EC), issuer=f"https://{name}", audience=AUDIENCE) for name in ("oauth", "oidc")}
    judge = guard({"oauth": []}, {"oidc": []}, given=given)
    for name in given:
        refusal = await refused(judge, scope(token=token(claims(iss=f"https://{name}", exp=NOW))), NOW)
        assert isinstance(refusal.error, InvalidCredentialsError)
        assert "it has expired" in str(refusal.error)
        assert refusal.scheme == name
    for foreign in (token(), "opaque"):
        with pytest.raises(UnrecognizedCredentialsError):
            await admitted(judge, scope(token=foreign), NOW)


async def test_two_verifiers_of_one_issuer_are_both_tried() -> None:
    given = {name: JwtVerifier(Keys(EC), issuer=ISSUER, audience=f"https://{name}") for name in ("oauth", "oidc")}
    judge = guard({"oauth": []}, {"oidc": []}, given=given)
    for name in given:
        assert (await caller(judge, token=token(claims(aud=f"https://{name}")))).identities[0][0] == name


async def test_opaque_tokens_go_to_a_verifier_of_ones_own_beside_one_of_jwts() -> None:
    keys = Keys(EC)
    given = {"oauth": JwtVerifier(keys, issuer=ISSUER, audience=AUDIENCE), "oidc": Words("introspection", opaque="")}
    judge = guard({"oauth": []}, {"oidc": []}, given=given)
    assert (await caller(judge, token="opaque")).identities[0][1].issuer == "introspection"
    assert keys.asked == 0
    assert (await caller(judge, token=token())).identities[0][1].issuer == ISSUER
    with pytest.raises(InvalidCredentialsError, match="no such word"):
        await admitted(judge, scope(token="unknown"), NOW)


async def test_a_caller_without_the_scopes_is_named_as_it_would_be_with_them() -> None:
    judge = guard({"oauth": ["admin"]}, {"key": ["admin"]})
    refusal = await refused(judge, scope(key="bob", token="tok"), NOW)
    assert isinstance(refusal.error, AuthorizationError)
    assert refusal.caller is not None
    assert refusal.caller.id == "bob@keys"
    assert refusal.caller.id == (await caller(guard({"oauth": []}, {"key": []}), key="bob", token="tok")).id


def verifiers_for(*names: str) -> dict[str, Words]:
    return {name: verifier for name, verifier in verifiers().items() if name in names}


# Anonymous callers


async def test_who_carries_nothing_is_missing_credentials() -> None:
    for judge in (guard({"key": []}), guard({"key": [], "oauth": []})):
        with pytest.raises(MissingCredentialsError):
            await admitted(judge, scope(), NOW)


async def test_the_anonymous_alternative_lets_in_whoever_carries_nothing_and_each_is_another() -> None:
    judge = guard({"key": []}, {}, allow_anonymous=True)
    one, other = [await admitted(judge, scope(accept="*/*"), NOW) for _ in range(2)]
    assert isinstance(one, Anonymous)
    assert isinstance(other, Anonymous)
    assert not one.is_authenticated
    assert one.scopes == frozenset()
    assert one.id != other.id
    assert len(one.id) > 32


async def test_the_anonymous_alternative_is_considered_last() -> None:
    judge = guard({}, {"key": []}, allow_anonymous=True)
    assert isinstance(await admitted(judge, scope(key="ann"), NOW), Principal)


async def test_too_few_scopes_do_not_make_a_caller_anonymous() -> None:
    judge = guard({}, {"key": ["admin"]}, allow_anonymous=True)
    with pytest.raises(AuthorizationError):
        await admitted(judge, scope(key="ann"), NOW)


async def test_half_of_an_and_does_not_make_a_caller_anonymous() -> None:
    judge = guard({}, {"key": [], "oauth": []}, allow_anonymous=True)
    with pytest.raises(MissingCredentialsError):
        await admitted(judge, scope(key="ann"), NOW)


async def test_a_credential_for_a_skill_leaves_nothing_but_that_skill_to_an_anonymous_caller() -> None:
    skills = {"skills": [{"id": "s", "security": [{"key": []}, {"oauth": []}]}]}
    given = {name: verifiers()[name] for name in ("key", "oauth")}
    dpop = DPoP(url="https://agent.example")
    judge = guard({}, given=given, card=skills, allow_anonymous=True, skills_are_checked=True, dpop=dpop)
    for carried in ({"key": "ann"}, {"token": "tok"}, {"key": "ann", "token": "tok"}):  # oidc has the place of oauth
        found = await admitted(judge, scope(**carried), NOW)
        assert isinstance(found, Anonymous)
        assert len(found.for_skills) == len(carried)
    for stray in ({"query": "x"}, {"sid": "x"}, {"authorization": "Basic eDp5"}, {"Authorization": "x"}, {"dpop": "x"}):
        with pytest.raises(MissingCredentialsError):
            await admitted(judge, scope(key="ann", **stray), NOW)


@walk(
    "carried",
    [
        {"query": "ann"},
        {"sid": "ann"},
        {"token": "tok"},
        {"authorization": "Basic YTpi"},
        {"authorization": "Negotiate x"},
        {"authorization": ""},
        {"Authorization": "junk"},
    ],
)
async def test_a_credential_for_a_scheme_that_nothing_demands_is_no_anonymous_request(carried: dict[str, str]) -> None:
    judge = guard({"key": []}, {}, allow_anonymous=True)
    with pytest.raises((MissingCredentialsError, InvalidCredentialsError)):
        await admitted(judge, scope(**carried), NOW)
    silent = guard(allow_anonymous=True)
    with pytest.raises((MissingCredentialsError, InvalidCredentialsError)):
        await admitted(silent, scope(**carried), NOW)


@walk(
    ("carried", "blamed"),
    [({"X_API_Key": ""}, "key"), ({"authorization": "Bearer"}, "oauth"), ({"cookie": "sid="}, None)],
)
async def test_an_oddly_written_credential_is_a_refusal_and_not_an_exception(
    carried: dict[str, str], blamed: str | None
) -> None:
    """The cookie is of a scheme that nothing demands."""
    judge = guard({"key": []}, {"oauth": []}, {}, allow_anonymous=True)
    refusal = await refused(judge, scope(**carried), NOW)
    assert isinstance(refusal.error, InvalidCredentialsError)
    assert (refusal.scheme, refusal.by_dpop) == (blamed, False)


# Start-up


@walk(
    "members",
    [
        {"security": None},
        {"security": []},
        {"security": [{}]},
        {"security": [{"key": []}, {}]},
        {"security": [{"schemes": {}}]},
        {"security": None, "securityRequirements": []},
        {"security": None, "authentication": {"schemes": []}},
        {"security": None, "securitySchemes": {}},
    ],
)
def test_a_card_that_lets_everybody_in_starts_only_with_the_named_permission(members: dict[str, Any]) -> None:
    given = verifiers_for("key") if members["security"] == [{"key": []}, {}] else {}
    with pytest.raises(ConfigurationError, match=r"pass rules=RequestRules\(allow_anonymous=True\)") as caught:
        guard(given=given, card=members)
    assert f'"security": [{{"{"key" if given else "NAME"}": []}}]' in str(caught.value)
    in_1_0 = {**members, "security": None, "supportedInterfaces": [{"url": "https://agent.example"}]}
    if "authentication" not in members and not given:
        with pytest.raises(
            ConfigurationError, match=r'has no securityRequirements, .* "securityRequirements": '
        ) as caught:
            guard(card=in_1_0, given={})
        assert '"securityRequirements": [{"schemes": {"NAME": {"list": []}}}]' in str(caught.value)
    assert isinstance(guard(given=given, card=members, allow_anonymous=True), Guard)


@pytest.mark.parametrize(
    "flag", [{"supportsAuthenticatedExtendedCard": True}, {"capabilities": {"extendedAgentCard": True}}]
)
def test_a_card_that_lets_everybody_in_and_promises_an_extended_card_does_not_start(flag: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="remove extendedAgentCard from the capabilities, or demand a scheme"):
        guard({"key": []}, {}, card=flag, allow_anonymous=True)
    assert guard({"key": []}, card=flag).schemes


def test_a_scheme_without_a_verifier_does_not_start() -> None:
    with pytest.raises(ConfigurationError, match=r"nothing verifies it; pass verifiers=\{'oauth': …\}") as caught:
        guard({"key": []}, {"oauth": []}, given=verifiers_for("key"))
    assert "ApiKeyVerifier(store)" in str(caught.value)
    assert "JwtVerifier(keys, issuer=…, audience=…)" in str(caught.value)


def test_a_requirement_that_names_no_declared_scheme_does_not_start() -> None:
    with pytest.raises(ConfigurationError, match=r"does not declare it; write \"securitySchemes\": \{\"kee\": …\}"):
        guard({"kee": []}, given={})


def test_a_verifier_for_no_declared_scheme_does_not_start() -> None:
    with pytest.raises(ConfigurationError, match=r"'kee' is not a scheme of the card; the card declares 'key'"):
        guard({"key": []}, given={**verifiers_for("key"), "kee": Words("x")})


@pytest.mark.parametrize("name", ["digest"])
def test_a_demanded_scheme_that_cannot_be_enforced_does_not_start(name: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be enforced; declare an API key, HTTP bearer"):
        guard({name: []}, given={name: Words("x")})
    with pytest.raises(ConfigurationError, match="cannot be enforced"):
        guard({"key": [], name: []}, given={**verifiers_for("key"), name: Words("x")})


def test_a_declared_scheme_that_nothing_demands_need_not_be_enforceable() -> None:
    assert guard({"key": []}).schemes == (read_card({"securitySchemes": SCHEMES}).schemes["key"],)


def test_an_unsafe_header_for_a_key_does_not_start() -> None:
    unsafe = {"key": {"type": "apiKey", "in": "header", "name": "Host"}}
    with pytest.raises(ConfigurationError, match=r'declare another header in the card, as in \{"location": "header"'):
        guard({"key": []}, card={"securitySchemes": unsafe})


def test_a_place_beside_the_cards_own_does_not_start() -> None:
    with pytest.raises(ConfigurationError, match="pass the verifier without CredentialAt"):
        guard({"key": []}, given={"key": CredentialAt(InHeader("X-Other"), Words("x"))})


def test_skills_that_demand_more_need_somebody_who_checks_it() -> None:
    card = {"skills": [{"id": "open"}, {"id": "closed", "security": [{"key": ["admin"]}]}]}
    with pytest.raises(
        ConfigurationError,
        match=r"'closed', and a request does not say which.* pass rules=RequestRules\(handlers_check_skills=True\)",
    ):
        guard({"key": []}, card=card)
    assert isinstance(guard({"key": []}, card=card, skills_are_checked=True), Guard)


def test_a_skill_is_demanded_of_a_caller_with_a_proof_in_the_challenge_for_proofs() -> None:
    skills = {"skills": [{"id": "s", "security": [{"oauth": ["write"]}]}]}
    given = {name: verifiers()[name] for name in ("key", "oauth")}
    judge = guard(
        {"key": []}, given=given, card=skills, skills_are_checked=True, dpop=DPoP(url="https://agent.example")
    )
    key = Identity(issuer="key", subject="ann")
    for binding, by_dpop in ((None, False), (KeyBinding(x5t_s256="a" * 43), False), (KeyBinding(jkt="a" * 43), True)):
        token = Identity(issuer="issuer", subject="tok", bound_to=binding)
        caller = Principal(identities=(("key", key),), for_skills=(("oauth", token),))
        rejected = judge.check_skill("s", caller)
        assert rejected is not None
        assert (type(rejected.error), rejected.by_dpop) == (AuthorizationError, by_dpop)


def test_skills_that_demand_an_undeclared_scheme_do_not_start() -> None:
    card = {"skills": [{"id": "s", "security": [{"nobody": []}]}]}
    with pytest.raises(ConfigurationError, match="the card demands the scheme 'nobody' and does not declare it"):
        guard({"key": []}, card=card, skills_are_checked=True)


# Cards of 0.1


def guard_of_words(*words: str, given: Any) -> Guard:
    return Guard(read_card({"name": "n", "authentication": {"schemes": list(words)}}), given)


@walk("word", ["apiKey", "public", "digest", "none"])
def test_a_word_of_0_1_that_names_no_place_needs_one(word: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        guard_of_words(word, given={word: Words("x")})
    assert f'verifiers={{{word!r}: CredentialAt(InHeader("X-API-Key"), …)}}' in str(caught.value)


@walk("place", [InHeader("X-API-Key"), InQuery("k"), InCookie("sid"), HttpAuthorization("bearer")])
async def test_a_word_of_0_1_is_enforced_where_it_is_said(place: Any) -> None:
    judge = guard_of_words("apiKey", given={"apiKey": CredentialAt(place, Words("x", ann=""))})
    carried = {InHeader: "key", InQuery: "query", InCookie: "sid", HttpAuthorization: "token"}[type(place)]
    assert (await caller(judge, **{carried: "ann"})).identities[0][1].subject == "ann"
    with pytest.raises(InvalidCredentialsError):
        await caller(judge, **{carried: "eve"})
    with pytest.raises(MissingCredentialsError):
        await admitted(judge, scope(), NOW)


@walk("word", ["bearer", "Bearer", "oauth2", "OAuth2", "openIdConnect"])
async def test_words_of_0_1_for_tokens_mean_the_authorization_header(word: str) -> None:
    judge = guard_of_words(word, given={word: Words("x", tok="")})
    assert (await caller(judge, token="tok")).identities[0][0] == word


# Names


async def test_two_callers_never_share_an_id() -> None:
    def principal(*identities: tuple[str, str, str]) -> Principal:
        return Principal(identities=tuple((s, Identity(issuer=i, subject=u)) for s, i, u in identities))

    callers = [
        principal(("a", "b", "c")),
        principal(("a", "b", "c"), ("d", "e", "f")),
        principal(("a", "b,c", "")),
        principal(("a", "", "b,c")),
        principal(("a", 'b","c', "d")),
        principal(("a", "b", 'c"],["d","e","f')),
        principal(("a", "x", "c")),
        principal(("a", "b", "C")),
        principal(("a", "b", "ü")),
        principal(("a", "b", "\\u00fc")),
        principal(("a", "b", "")),
    ]
    names = {one.id for one in callers}
    assert len(names) == len(callers)
    assert all(name.isascii() and name.isprintable() and " " not in name and "@" in name for name in names)


ALTERNATIVES: list[dict[str, list[str]]] = [
    {"key": [], "oauth": []}, {"oauth": ["write"]}, {"key": ["read"]}, {"sid": []}, {"query": [], "sid": []},
]  # fmt: skip


@given(
    st.permutations(ALTERNATIVES),
    st.integers(1, len(ALTERNATIVES)),
    st.permutations(["a", "b", "c", "d"]),
    st.fixed_dictionaries(
        {},
        optional={
            "key": st.sampled_from(["ann", "bob", "eve"]),
            "query": st.just("ann"),
            "sid": st.just("ann"),
            "token": st.sampled_from(["tok", "full"]),
        },
    ),
)
def test_the_id_depends_on_neither_the_order_of_the_card_nor_the_names_of_its_schemes(
    order: list[dict[str, list[str]]], number: int, names: list[str], carried: dict[str, str]
) -> None:
    """A card, and the same one with its requirements in another order and its schemes renamed."""
    named = dict(zip(["key", "query", "sid", "oauth"], names, strict=True))
    kept = [each for each in ALTERNATIVES if each in order[:number]]
    one = guard(*kept)
    used = {name for each in kept for name in each}
    other = guard(
        *({named[name]: scopes for name, scopes in reversed(each.items())} for each in order[:number]),
        given={named[name]: verifier for name, verifier in verifiers().items() if name in used},
        card={"securitySchemes": {named[name]: SCHEMES[name] for name in named}},
    )
    found: list[Any] = [anyio.run(judge.authenticate, scope(**carried), NOW) for judge in (one, other)]
    assert [type(each) for each in found] in ([Principal] * 2, [Rejected] * 2)
    callers = [each.caller if isinstance(each, Rejected) else each for each in found]
    assert (callers[0] and callers[0].id) == (callers[1] and callers[1].id)


async def test_the_scopes_of_a_principal_are_those_that_all_its_identities_have() -> None:
    both = await caller(guard({"key": [], "oauth": []}), key="ann", token="tok")
    assert both.scopes == {"read"}
    key = both.by_scheme("key")
    assert key is not None
    assert key.scopes == {"read", "write"}
    assert both.by_scheme("sid") is None
    assert both.is_authenticated


async def test_the_credential_is_in_no_repr() -> None:
    judge = guard({"key": []}, given={"key": ApiKeyVerifier(store := MemoryApiKeys())})
    secret = store.create(owner="ann").text
    assert secret not in repr(await caller(judge, key=secret))


@walk("scope", ["read ", "a b", "ü", 'a"b', "a\r\nX: y", "a\\b"])
async def test_a_scope_that_no_token_can_have_does_not_start(scope: str) -> None:
    with pytest.raises(ConfigurationError, match="is not valid in tokens"):
        guard({"key": [scope]})


async def test_a_verifier_that_returns_no_identity_lets_nobody_in() -> None:
    class SaysNothing:
        async def verify(self, credential: str, now: float) -> Any:
            return None

    judge = guard({"key": []}, {"oauth": []}, given={"key": verifiers()["key"], "oauth": SaysNothing()})
    with pytest.raises(TypeError, match="'oauth' returned NoneType"):
        await caller(judge, key="ann", token="x")


async def test_an_identity_that_has_expired_lets_nobody_in() -> None:
    class Late:
        async def verify(self, credential: str, now: float) -> Identity:
            return Identity(issuer="i", subject="s", expires_at=now)

    judge = guard({"key": []}, given={"key": Late()})
    with pytest.raises(InvalidCredentialsError, match="has expired"):
        await caller(judge, key="ann")


async def test_two_issuers_of_bearer_tokens_may_stand_side_by_side() -> None:
    first, second = Words("first", one=""), Words("second", two="")
    judge = guard({"oauth": []}, {"oidc": []}, given={"oauth": first, "oidc": second})
    assert (await caller(judge, token="one")).identities[0][1].issuer == "first"
    assert (await caller(judge, token="two")).identities[0][1].issuer == "second"
    with pytest.raises(InvalidCredentialsError):
        await caller(judge, token="three")


# The card and the verifier name one issuer

IDP = "https://idp.example/tenant"
OPENID = f"{IDP}/.well-known/openid-configuration"
RFC8414 = "https://idp.example/.well-known/oauth-authorization-server/tenant"


def of_card(scheme: dict[str, Any], verifier: JwtVerifier) -> Guard:
    card = {
        "name": "agent",
        "securitySchemes": {"login": scheme},
        "securityRequirements": [{"schemes": {"login": {"list": []}}}],
    }
    return Guard(read_card(card), {"login": verifier})


def by(keys: Any) -> JwtVerifier:
    return JwtVerifier(keys, issuer=IDP, audience=AUDIENCE)


@walk(
    ("scheme", "keys"),
    [
        ({"openIdConnectSecurityScheme": {"openIdConnectUrl": OPENID}}, OpenIdKeys(IDP, Fetcher())),
        ({"type": "openIdConnect", "openIdConnectUrl": OPENID}, OpenIdKeys(IDP, Fetcher())),
        ({"oauth2SecurityScheme": {"flows": {}, "oauth2MetadataUrl": RFC8414}}, OAuth2Keys(IDP, Fetcher())),
        (
            {"oauth2SecurityScheme": {"flows": {}, "oauth2MetadataUrl": OPENID}},
            OAuth2Keys(IDP, Fetcher(), metadata_url=OPENID),
        ),
        ({"oauth2SecurityScheme": {"flows": {}}}, OAuth2Keys(IDP, Fetcher())),
        ({"httpAuthSecurityScheme": {"scheme": "bearer"}}, OpenIdKeys(IDP, Fetcher())),
        # Keys whose URL the operator wrote say nothing about where callers get their tokens.
        ({"openIdConnectSecurityScheme": {"openIdConnectUrl": "https://b2c.example/x"}}, Keys(EC)),
    ],
    ids=lambda given: str(given) if isinstance(given, dict) else type(given).__name__,
)
def test_a_card_and_keys_of_one_issuer_agree(scheme: dict[str, Any], keys: Any) -> None:
    assert of_card(scheme, by(keys)).schemes


@walk(
    ("scheme", "keys"),
    [
        ({"openIdConnectSecurityScheme": {"openIdConnectUrl": f"{OPENID}/"}}, OpenIdKeys(IDP, Fetcher())),
        ({"openIdConnectSecurityScheme": {"openIdConnectUrl": "https://evil.example/x"}}, OpenIdKeys(IDP, Fetcher())),
        ({"openIdConnectSecurityScheme": {"openIdConnectUrl": OPENID}}, OAuth2Keys(IDP, Fetcher())),
        ({"oauth2SecurityScheme": {"flows": {}, "oauth2MetadataUrl": OPENID}}, OAuth2Keys(IDP, Fetcher())),
    ],
    ids=lambda given: str(given) if isinstance(given, dict) else type(given).__name__,
)
def test_a_card_that_sends_its_callers_to_another_issuer_does_not_start(scheme: dict[str, Any], keys: Any) -> None:
    with pytest.raises(ConfigurationError, match="callers would get tokens that are rejected"):
        of_card(scheme, by(keys))


UNVERIFYING: Any = MemoryApiKeys()


@walk("given", [UNVERIFYING, ApiKeyVerifier, "secret", None, CredentialAt(InHeader("X"), UNVERIFYING)])
def test_what_verifies_nothing_does_not_start(given: Any) -> None:
    card = {
        "name": "agent",
        "securitySchemes": {"key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}}},
        "securityRequirements": [{"schemes": {"key": {"list": []}}}],
    }
    with pytest.raises(ConfigurationError, match=r"ApiKeyVerifier\(store\)"):
        Guard(read_card(card), {"key": given})


def test_a_path_is_no_store_of_keys() -> None:
    for store in ("keys.db", MemoryApiKeys):
        with pytest.raises(ConfigurationError, match=r"ApiKeyVerifier\(SqliteApiKeys"):
            ApiKeyVerifier(store)  # type: ignore[arg-type]


API_KEYS, TOKENS = ApiKeyVerifier(MemoryApiKeys()), JwtVerifier(Keys(EC), issuer=ISSUER, audience=AUDIENCE)
BEARER: dict[str, Any] = {"type": "http", "scheme": "bearer"}


@walk("scheme", [SCHEMES["oauth"], SCHEMES["oidc"], SCHEMES["mtls"]])
def test_api_keys_are_verified_only_where_the_card_declares_them(scheme: dict[str, Any]) -> None:
    card = {"name": "n", "securitySchemes": {"s": scheme}, "security": [{"s": []}]}
    with pytest.raises(ConfigurationError, match=r"the verifier of 's' is for API keys, and the card .*; pass "):
        Guard(read_card(card), {"s": API_KEYS})


@pytest.mark.parametrize("verifier", [API_KEYS, TOKENS])
def test_http_bearer_is_for_either(verifier: ApiKeyVerifier | JwtVerifier) -> None:
    Guard(read_card({"name": "n", "securitySchemes": {"s": BEARER}, "security": [{"s": []}]}), {"s": verifier})


@walk("name", ["key", "query", "sid", "mtls"])
def test_tokens_are_verified_only_where_the_card_declares_them(name: str) -> None:
    with pytest.raises(
        ConfigurationError, match=f"the verifier of '{name}' is for tokens, and the card demands .*; pass "
    ):
        guard({name: []}, given={name: TOKENS})


@walk(("word", "wrong"), [("bearer", API_KEYS), ("OAuth2", API_KEYS), ("apiKey", TOKENS)])
def test_words_of_0_1_are_not_swapped_either(word: str, wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="and the card demands "):
        guard_of_words(word, given={word: CredentialAt(InHeader("X-API-Key"), wrong) if word == "apiKey" else wrong})


@pytest.mark.parametrize("of", [{"url": "https://a.example"}, {"supportedInterfaces": [{"url": "https://a.example"}]}])
def test_a_card_without_schemes_is_told_what_to_paste(of: dict[str, Any]) -> None:
    given: Any = {
        "key": API_KEYS,
        "login": JwtVerifier(OpenIdKeys(ISSUER, Fetcher()), issuer=ISSUER, audience=AUDIENCE),
        "tokens": TOKENS,
    }
    with pytest.raises(ConfigurationError, match=r"declares no security schemes, .* write into the card: ") as caught:
        Guard(read_card({"name": "n", **of}), given, allow_anonymous=True)
    pasted = json.loads("{" + str(caught.value).partition("write into the card: ")[2] + "}")
    assert set(pasted) == {"securitySchemes", "security" if "url" in of else "securityRequirements"}
    judge = Guard(read_card({"name": "n", **of, **pasted}), given)
    assert [scheme.name for scheme in judge.schemes] == ["key", "login", "tokens"]


def test_an_anonymous_caller_has_no_identity() -> None:
    assert Anonymous().by_scheme("key") is None


@walk("kind", ["token", 1, object(), {}])
async def test_a_kind_that_is_a_word_of_the_verifiers_own_says_nothing(kind: Any) -> None:
    given = verifiers_for("key")["key"]
    given.kind = kind  # type: ignore[attr-defined]
    assert (await caller(guard({"key": []}, given={"key": given}), key="ann")).identities[0][0] == "key"


async def test_a_verifier_that_says_another_kind_does_not_start() -> None:
    given = verifiers_for("key")["key"]
    given.kind = CredentialKind.CERTIFICATE  # type: ignore[attr-defined]
    with pytest.raises(ConfigurationError, match=r"is for client certificates.*the card demands API keys"):
        guard({"key": []}, given={"key": given})


# HTTP Basic

PASSWORDS = BasicVerifier(MemoryPasswords())
BEARER_AND_BASIC: dict[str, Any] = {
    "securitySchemes": {"basic": SCHEMES["basic"], "token": BEARER, "oauth": SCHEMES["oauth"]}
}


@walk("scheme", [*(SCHEMES[name] for name in ("key", "query", "sid", "oauth", "oidc", "mtls")), BEARER])
def test_passwords_are_verified_only_where_the_card_declares_basic(scheme: dict[str, Any]) -> None:
    card = {"name": "n", "securitySchemes": {"s": scheme}, "security": [{"s": []}]}
    with pytest.raises(ConfigurationError, match=r"'s' is for passwords, and the card demands .*declare HTTP basic in"):
        Guard(read_card(card), {"s": PASSWORDS})


@pytest.mark.parametrize("verifier", [API_KEYS, TOKENS])
def test_basic_is_for_nothing_but_passwords(verifier: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"demands passwords; pass BasicVerifier\(store\), or declare"):
        guard({"basic": []}, given={"basic": verifier})


def test_a_store_of_passwords_has_to_be_wrapped() -> None:
    with pytest.raises(ConfigurationError, match=r"BasicVerifier\(store\) for passwords"):
        guard({"basic": []}, given={"basic": MemoryPasswords()})
    with pytest.raises(ConfigurationError, match=r"for HTTP basic BasicVerifier\(store\)"):
        guard({"basic": []}, given={})


@pytest.mark.parametrize("other", ["token", "oauth"])
def test_one_request_cannot_carry_a_password_and_a_token(other: str) -> None:
    given = {"basic": PASSWORDS, other: TOKENS}
    with pytest.raises(ConfigurationError, match=rf"'basic' \(basic\) and '{other}' \(bearer\) together"):
        guard({"basic": []}, {"basic": [], other: []}, given=given, card=BEARER_AND_BASIC)


async def test_either_a_password_or_a_token_is_enough() -> None:
    store = MemoryPasswords()
    text = store.create(user="ann").text
    given = {"basic": BasicVerifier(store), "token": Words("issuer", tok="")}
    judge = guard({"basic": []}, {"token": []}, given=given, card=BEARER_AND_BASIC)
    by_password = await caller(judge, authorization=f"Basic {b64encode(f'ann:{text}'.encode()).decode()}")
    assert by_password.id == "ann@passwords"
    assert (await caller(judge, token="tok")).id == "tok@issuer"
    for wrong in ("Basic tok", "Basic YW5uOng=", f"Bearer {b64encode(f'ann:{text}'.encode()).decode()}"):
        with pytest.raises(InvalidCredentialsError):
            await admitted(judge, scope(authorization=wrong), NOW)


async def test_two_tokens_of_one_header_may_still_stand_together() -> None:
    given = {"token": Words("issuer", tok=""), "oauth": Words("other", tok="")}
    judge = guard({"token": [], "oauth": []}, given=given, card=BEARER_AND_BASIC)
    assert len((await caller(judge, token="tok")).identities) == 2


@pytest.mark.parametrize("said", [False, True])
async def test_the_word_basic_of_0_1_names_its_place(said: bool) -> None:
    store = MemoryPasswords()
    text = store.create(user="ann").text
    verifier: Any = BasicVerifier(store)
    judge = guard_of_words(
        "Basic", given={"Basic": CredentialAt(HttpAuthorization("basic"), verifier) if said else verifier}
    )
    carried = f"Basic {b64encode(f'ann:{text}'.encode()).decode()}"
    assert (await caller(judge, authorization=carried)).id == "ann@passwords"
    with pytest.raises(ConfigurationError, match="is for API keys, and the card demands passwords"):
        guard_of_words("basic", given={"basic": API_KEYS})
    with pytest.raises(ConfigurationError, match="is for passwords, and the card demands"):
        guard_of_words("own", given={"own": CredentialAt(InHeader("X-Own"), verifier)})


def test_a_card_without_schemes_is_told_how_to_declare_basic() -> None:
    with pytest.raises(ConfigurationError, match=r'"login": \{"httpAuthSecurityScheme": \{"scheme": "basic"'):
        Guard(read_card({"name": "n"}), {"login": PASSWORDS})
