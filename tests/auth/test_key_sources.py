"""Keys from a file, and from several key sets: what is found, what is ambiguous, and what an outage changes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from a2a_trust import generate_signer, publish_jwks
from a2a_trust.auth.discovery import JwksFile, SeveralKeySources
from a2a_trust.auth.jwt import JwtVerifier
from a2a_trust.errors import ConfigurationError, InvalidCredentialsError, KeySourceUnavailableError
from a2a_trust.keys.signer import LocalSigner
from a2a_trust.keys.trust.jwks_cache import JwksCache
from tests.auth.test_jwt import AUDIENCE, ISSUER, NOW, token
from tests.tables import walk
from tests.waiting import settled

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


A, B = generate_signer("ES256", kid="a"), generate_signer("ES256", kid="b")


def written(path: Path, *signers: LocalSigner) -> Path:
    new = path.with_suffix(".new")
    new.write_text(json.dumps(publish_jwks([signer.public_key for signer in signers])))
    return new.rename(path)


class Published:
    """A key set on the network, as far as a cache can tell."""

    def __init__(self, *signers: LocalSigner) -> None:
        self.signers, self.loads, self.is_down = signers, 0, False
        self.answers = asyncio.Event()
        self.answers.set()

    async def load(self) -> tuple[bytes, float | None]:
        self.loads += 1
        await self.answers.wait()
        if self.is_down:
            raise OSError("down")
        return json.dumps(publish_jwks([signer.public_key for signer in self.signers])).encode(), None

    def cache(self, **options: Any) -> JwksCache:
        return JwksCache(self.load, **options)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


# A file


async def test_a_file_has_the_keys_and_a_change_counts_within_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "jwks.json", A)
    keys = JwksFile(path)
    clock = Clock()
    monkeypatch.setattr(keys, "_clock", clock)
    judge = JwtVerifier(keys, issuer=ISSUER, audience=AUDIENCE)
    assert (await judge.verify(token(signer=A), NOW)).subject == "alice"
    written(path, B)
    assert (await judge.verify(token(signer=B), NOW)).subject == "alice", "an unknown name is looked for at once"
    with pytest.raises(InvalidCredentialsError, match="no EC key named 'a'"):
        await judge.verify(token(signer=A), NOW)
    path.unlink()
    clock.now = 6
    assert await keys.key("b", "EC") == B.public_key, "while the file is missing the known keys hold"


@pytest.mark.parametrize("idle", [5.1, 60, 299])
async def test_a_withdrawn_key_does_not_count_after_an_idle_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, idle: float
) -> None:
    path = written(tmp_path / "jwks.json", A)
    keys, clock = JwksFile(path), Clock()
    monkeypatch.setattr(keys, "_clock", clock)
    assert await keys.key("a", "EC") == A.public_key
    written(path, B)
    clock.now = idle
    with pytest.raises(InvalidCredentialsError, match="no EC key named 'a'"):
        await keys.key("a", "EC")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "No such file"),
        (b"{", "JSON"),
        (b'{"keys":[]}', "no usable public key; write the issuer's JWK Set there"),
        (b" " * 262_145, "larger than 262144 bytes"),
    ],
)
def test_a_file_without_keys_does_not_start(tmp_path: Path, content: bytes | None, why: str) -> None:
    path = tmp_path / "jwks.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=why) as caught:
        JwksFile(path)
    assert str(path) in str(caught.value)


# Several key sets


async def test_keys_of_all_sets_count_and_known_names_are_not_looked_for() -> None:
    one, other = Published(A), Published(B)
    keys = SeveralKeySources([one.cache(), other.cache()])
    for signer in (A, B, A, B):
        assert await keys.key(signer.kid, "EC") == signer.public_key
    assert (one.loads, other.loads) == (1, 1)
    with pytest.raises(InvalidCredentialsError, match="no EC key named 'c'"):
        await keys.key("c", "EC")
    assert (one.loads, other.loads) == (2, 2)


async def test_a_rotation_in_one_set_is_found() -> None:
    one, other = Published(A), Published(B)
    keys = SeveralKeySources([one.cache(), other.cache()])
    await keys.key("a", "EC")
    new = generate_signer("ES256", kid="new")
    other.signers = (B, new)
    assert await keys.key("new", "EC") == new.public_key


async def test_a_set_that_is_out_of_reach_affects_only_its_own_keys() -> None:
    one, other = Published(A), Published(B)
    other.is_down = True
    keys = SeveralKeySources([one.cache(), other.cache()])
    assert await keys.key("a", "EC") == A.public_key
    with pytest.raises(KeySourceUnavailableError):
        await keys.key("b", "EC")


async def test_a_set_that_hangs_is_not_waited_for() -> None:
    one, other = Published(A), Published(B)
    other.answers.clear()
    slow = other.cache()
    assert await SeveralKeySources([slow, one.cache()]).key("a", "EC") == A.public_key
    hanging = asyncio.create_task(slow.keys())
    await settled()
    assert not hanging.done(), "it was waited for until it failed"
    other.answers.set()
    await hanging


async def test_two_keys_of_one_name_are_neither() -> None:
    twin = generate_signer("ES256", kid="a")
    keys = SeveralKeySources([Published(A).cache(), Published(twin).cache()])
    await asyncio.gather(*(source.keys() for source in keys._sources))
    with pytest.raises(InvalidCredentialsError, match="they disagree about the key"):
        await keys.key("a", "EC")


async def test_the_only_key_is_the_only_one_of_all_sets() -> None:
    assert await SeveralKeySources([Published(A).cache(), Published(A).cache()]).only_key("EC") == A.public_key
    keys = SeveralKeySources([Published(A).cache(), Published(B).cache()])
    await asyncio.gather(*(source.keys() for source in keys._sources))
    with pytest.raises(InvalidCredentialsError):
        await keys.only_key("EC")


async def test_a_key_that_one_set_loses_ends_what_it_has_verified() -> None:
    one, other = Published(A), Published(B)
    keys = SeveralKeySources([one.cache(), other.cache()])
    await keys.key("a", "EC")
    await keys.key("b", "EC")
    before = keys.generation
    one.signers = ()
    with pytest.raises(InvalidCredentialsError):
        await keys.key("c", "EC")
    assert keys.generation > before


@walk("wrong", [[], ["https://idp.example/jwks"], [None]])
def test_several_sources_are_a_list_of_key_sets(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="SeveralKeySources: write a list"):
        SeveralKeySources(wrong)
