"""The answer at once beside the whole decision: whatever it says, the whole decision says, too."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_trust.auth.api_key.verifier import ApiKeyVerifier, MemoryApiKeys
from a2a_trust.auth.dpop import DPoP
from a2a_trust.auth.guard import Guard
from a2a_trust.auth.jwt import JwtVerifier
from a2a_trust.auth.principal import Identity, KeyBinding, Principal, cache_of
from a2a_trust.errors import InvalidCredentialsError
from tests.auth.deciding import cached
from tests.auth.test_guard import Words, guard
from tests.auth.test_jwt import AUDIENCE, EC, ISSUER, NOW, Keys, token
from tests.tables import walk

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Remembering(Words):
    """Words that the verifier always remembers; ``bound`` is a word that is bound to a key, ``old`` has expired."""

    def __init__(self, issuer: str, **words: str) -> None:
        super().__init__(issuer, **words)
        self.identities = {word: self._identity(word) for word in words}

    def _identity(self, word: str) -> Identity:
        return Identity(
            issuer=self.issuer,
            subject=word,
            scopes=frozenset(self.words[word].split()),
            expires_at=NOW if word == "old" else NOW + 60,
            bound_to=KeyBinding(jkt="x" * 43) if word == "bound" else None,
        )

    async def verify(self, credential: str, now: float) -> Identity:
        self.asked.append(credential)
        if credential not in self.identities:
            raise InvalidCredentialsError("no such word")
        return self.identities[credential]

    def remembered(self, credential: str, now: float) -> Identity | None:
        return self.identities.get(credential)


def remembering() -> dict[str, Any]:
    words = {"ann": "read write", "bob": "read", "eve": "", "old": "read write", "bound": "read write"}
    return {"key": Remembering("keys", **words), "oauth": Remembering("issuer", **words)}


GUARDS: dict[str, tuple[dict[str, list[str]], ...]] = {
    "either": ({"key": ["read"]}, {"oauth": ["read", "write"]}),
    "both": ({"key": ["read"], "oauth": ["read"]},),
    "both or one": ({"key": [], "oauth": []}, {"oauth": ["write"]}, {"key": ["write"]}),
    "one without scopes": ({"key": []},),
    "one twice": ({"key": ["write"]}, {"key": []}, {"oauth": []}, {"oauth": ["write"]}),
    "anonymous too": ({"key": ["read"]}, {}),
}


def made(name: str) -> Guard:
    used = {scheme for each in GUARDS[name] for scheme in each}
    verifiers = {scheme: verifier for scheme, verifier in remembering().items() if scheme in used}
    return guard(*GUARDS[name], given=verifiers, allow_anonymous={} in GUARDS[name])


NAMES = [b"x-api-key", b"X-API-Key", b"X_Api_Key", b"authorization", b"Authorization", b"dpop", b"cookie", b"x-other"]
VALUES = [
    *(b"ann", b"bob", b"eve", b"old", b"bound", b"nobody", b"", b" ann ", b"\xff", b"ann, bob", b"Bearer ann"),
    *(b"bearer bob", b"Bearer eve", b"Bearer old", b"Bearer bound", b"Bearer  ann", b"Bearer", b"DPoP ann"),
    *(b"Basic YTpi", b"Bearer nobody"),
]  # fmt: skip


@given(
    st.sampled_from(list(GUARDS)),
    st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES)), max_size=3),
    st.sampled_from([b"", b"k=ann", b"a=b"]),
)
def test_it_never_differs_from_the_whole_decision(name: str, headers: list[tuple[bytes, bytes]], query: bytes) -> None:
    scope = {"type": "http", "headers": headers, "query_string": query, "client": ("192.0.2.1", 1)}
    found = made(name)
    known = cached(found, scope, NOW)
    if known is not None:
        assert anyio.run(found.authenticate, scope, NOW) == known
        assert cached(found, scope, NOW) is known


def asking(*headers: tuple[bytes, bytes]) -> dict[str, Any]:
    return {"type": "http", "headers": [(b"host", b"a.example"), *headers], "query_string": b""}


@walk(
    ("name", "header", "subject"),
    [
        ("either", (b"x-api-key", b"ann"), "ann"),
        ("either", (b"X-API-Key", b" bob"), "bob"),
        ("either", (b"authorization", b"Bearer ann"), "ann"),
        ("both or one", (b"authorization", b"bearer ann"), "ann"),
        ("one without scopes", (b"x-api-key", b"eve"), "eve"),
        ("anonymous too", (b"x-api-key", b"bob"), "bob"),
        *((name, (b"x-api-key", word), None) for name in GUARDS for word in (b"old", b"bound", b"nobody", b"")),
        ("either", (b"x-api-key", b"eve"), None),
        ("either", (b"authorization", b"Bearer bob"), None),
        ("either", (b"authorization", b"DPoP ann"), None),
        ("either", (b"x_api_key", b"ann"), None),
        ("both", (b"x-api-key", b"ann"), None),
        ("both or one", (b"x-api-key", b"bob"), None),
    ],
)
def test_who_is_answered_at_once(name: str, header: tuple[bytes, bytes], subject: str | None) -> None:
    known = cached(made(name), asking(header), NOW)
    assert (known and known.identities[0][1].subject) == subject


@walk("more", [(b"x-api-key", b"ann"), (b"authorization", b"Bearer ann"), (b"X_API_KEY", b"bob")])
def test_two_credentials_are_for_the_whole_decision(more: tuple[bytes, bytes]) -> None:
    assert cached(made("either"), asking((b"x-api-key", b"ann"), more), NOW) is None


def test_schemes_that_share_a_verifier_have_principals_of_their_own() -> None:
    one = remembering()["key"]
    schemes = {"key": ["read"], "sid": [], "oauth": ["read", "write"]}
    found = guard(*({name: scopes} for name, scopes in schemes.items()), given=dict.fromkeys(schemes, one))
    lines = ((b"x-api-key", b"bob"), (b"cookie", b"sid=bob"), (b"authorization", b"Bearer bob"))
    for _ in range(2):
        known = [cached(found, asking(line), NOW) for line in lines]
        assert [each and each.identities[0][0] for each in known] == ["key", "sid", None]
        assert [each and each.id for each in known] == ["bob@keys", "bob@keys", None]


def test_a_proof_is_for_the_whole_decision() -> None:
    dpop = DPoP(url="https://agent.example")
    found = guard({"oauth": ["read"]}, given={"oauth": remembering()["oauth"]}, dpop=dpop)
    assert cached(found, asking((b"authorization", b"Bearer ann")), NOW) is not None
    assert cached(found, asking((b"authorization", b"DPoP ann")), NOW) is None
    assert cached(found, asking((b"authorization", b"Bearer ann"), (b"dpop", b"x.y.z")), NOW) is None


def test_schemes_that_share_a_header_or_have_none_are_for_the_whole_decision() -> None:
    oauth = remembering()["oauth"]
    shared = guard({"oauth": ["read"]}, {"oidc": ["read"]}, given={"oauth": oauth, "oidc": Words("i", ann="read")})
    assert cached(shared, asking((b"authorization", b"Bearer ann")), NOW) is None
    beside = guard({"key": ["read"]}, {"query": []}, given={"key": remembering()["key"], "query": Words("q", ann="")})
    assert cached(beside, asking((b"x-api-key", b"ann")), NOW) is None


def test_credentials_that_can_be_guessed_are_for_the_whole_decision() -> None:
    """It counts the guesses, and beyond the limit it rejects even the right one."""

    class Guessed(Remembering):
        async def verify(self, credential: str, now: float) -> Identity:
            return await super().verify(credential, now)

        def remembered(self, credential: str, now: float) -> Identity | None:
            return super().remembered(credential, now)

        def is_remembered(self, credential: str, now: float) -> bool:
            return False

    found = guard({"key": ["read"]}, given={"key": Guessed("keys", ann="read")})
    assert cache_of(Guessed("keys", ann="read")) is not None
    assert cached(found, asking((b"x-api-key", b"ann")), NOW) is None


class Stricter(Remembering):
    async def verify(self, credential: str, now: float) -> Identity:
        raise InvalidCredentialsError("not today")


def test_a_verify_that_was_overridden_is_called() -> None:
    assert cache_of(Remembering("keys", ann="")) is not None
    assert cache_of(Stricter("keys", ann="")) is None
    assert cache_of(Words("keys", ann="")) is None
    one = Remembering("keys", ann="")
    one.verify = Stricter("keys", ann="").verify  # type: ignore[method-assign]
    assert cache_of(one) is None
    other = Remembering("keys", ann="")
    other.remembered = Remembering("keys", ann="").remembered  # type: ignore[method-assign]
    other.remembered = lambda credential, now: other.identities["ann"]  # type: ignore[method-assign]
    assert cache_of(other) is None

    class StricterJwt(JwtVerifier):
        async def verify_bound(self, credential: str, now: float) -> Identity:
            raise InvalidCredentialsError("not today")

    assert cache_of(JwtVerifier(Keys(EC), issuer=ISSUER, audience=AUDIENCE)) is not None
    assert cache_of(StricterJwt(Keys(EC), issuer=ISSUER, audience=AUDIENCE)) is None


@walk("answer", ["ann", True, {"subject": "ann"}, object()])
def test_an_answer_that_is_no_identity_is_for_the_whole_decision(answer: Any) -> None:
    class Odd(Words):
        async def verify(self, credential: str, now: float) -> Identity:
            return await super().verify(credential, now)

        def remembered(self, credential: str, now: float) -> Any:
            return answer

    found = guard({"key": ["read"]}, given={"key": Odd("keys", ann="read")})
    assert cached(found, asking((b"x-api-key", b"ann")), NOW) is None


async def test_api_keys_are_answered_at_once_while_nothing_is_to_be_looked_up_or_noted() -> None:
    store, clock = MemoryApiKeys(), [0.0]
    issued = store.create(owner="ann")
    verifier = ApiKeyVerifier(store, clock=lambda: clock[0])
    assert verifier.remembered(issued.text, NOW) is None
    identity = await verifier.verify(issued.text, NOW)
    assert verifier.remembered(issued.text, NOW) is identity
    assert verifier.remembered(f"{issued.text}x", NOW) is None
    assert verifier.remembered("ä", NOW) is None
    assert verifier.remembered(issued.text, NOW + 3_600) is None  # its use has to be noted
    clock[0] = 1.0
    assert verifier.remembered(issued.text, NOW) is None  # it has to be looked up
    store.revoke(issued.record.key_id)
    clock[0] = 5.0
    with pytest.raises(InvalidCredentialsError):
        await verifier.verify(issued.text, NOW)
    assert verifier.remembered(issued.text, NOW) is None


async def test_tokens_are_answered_at_once_while_they_and_the_keys_are_valid() -> None:
    keys = Keys(EC)
    verifier = JwtVerifier(keys, issuer=ISSUER, audience=AUDIENCE)
    text = token()
    assert verifier.remembered(text, NOW) is None
    identity = await verifier.verify(text, NOW)
    assert verifier.remembered(text, NOW) is identity
    assert verifier.remembered(text, NOW + 400) is None
    assert verifier.remembered(text + "é", NOW) is None
    verifier.forget(text)
    assert verifier.remembered(text, NOW) is None
    await verifier.verify(text, NOW)
    keys.generation += 1
    assert verifier.remembered(text, NOW) is None


def test_principals_are_kept_for_some_identities_only() -> None:
    words = Remembering("keys", ann="read")
    found = guard({"key": ["read"]}, given={"key": words})
    first = cached(found, asking((b"x-api-key", b"ann")), NOW)
    assert isinstance(first, Principal)
    for _ in range(5_000):  # as after look-ups, which make an identity anew
        words.identities["ann"] = words._identity("ann")
        assert cached(found, asking((b"x-api-key", b"ann")), NOW) == first
    assert len(found._principals) <= 4_096
