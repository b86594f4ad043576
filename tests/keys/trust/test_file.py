"""The trust file: what people write is understood, or refused with the line and the member."""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import given
from hypothesis import strategies as st

from a2a_trust.base.files.watched import Stamp, stamp_of_path
from a2a_trust.errors import CardVerificationError, ConfigurationError, KeySourceUnavailableError, UntrustedCardError
from a2a_trust.keys.jwk import PublicKey, public_key_from_object, publish_jwks
from a2a_trust.keys.signer import LocalSigner, generate_signer
from a2a_trust.keys.trust.edit import update_trust_file, with_entries
from a2a_trust.keys.trust.file import RevokedKey, TrustDocument, TrustFile, read_trust
from a2a_trust.keys.trust.origins import Origins, UnsafeAnyOrigin
from a2a_trust.keys.trust.policy import Threshold
from a2a_trust.keys.trust.store import SigningTool, TrustStore
from a2a_trust.signing.sign import sign_card
from a2a_trust.signing.verify import CardVerifier, verify_card
from tests.tables import walk

ANN, BOB, EVE = (generate_signer(kid=name) for name in ("ann", "bob", "eve"))
URL = "https://keys.example.com/jwks.json"
CARD: dict[str, Any] = {
    "name": "Invoice Agent",
    "supportedInterfaces": [
        {"url": "https://invoice.example.com/a2a", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    ],
}
NOW = 1_800_000_000.0


def inline(key: PublicKey) -> str:
    return "{ " + ", ".join(f'{name} = "{value}"' for name, value in key.to_jwk().items()) + " }"


def entry(signer: LocalSigner = ANN, /, **members: str) -> str:
    given = {"origins": '["invoice.example.com"]', "jwk": inline(signer.public_key), **members}
    return "\n[[trust]]\n" + "".join(f"{name} = {value}\n" for name, value in given.items() if value)


def written(folder: Path, *parts: str) -> Path:
    path = folder / "trust.toml"
    path.write_text("version = 1\n" + "".join(parts), encoding="utf-8")
    return path


def store(folder: Path, *parts: str) -> TrustStore:
    return TrustFile(written(folder, *parts)).trust_store()


def is_verified(trust: TrustStore, *signers: LocalSigner, now: float = NOW) -> bool:
    card = sign_card(CARD, signers[0]).card
    for signer in signers[1:]:
        card = sign_card(card, signer).card
    try:
        verify_card(card, trust, origin="https://invoice.example.com", now=now)
    except CardVerificationError:
        return False
    return True


def test_a_kid_that_is_listed_shows_a_mistake_in_the_thumbprint() -> None:
    document = read_trust(("version = 1" + entry(ANN, name='"one"') + entry(BOB, name='"two"')).encode(), "trust.toml")
    listed = [(each, each.keys) for each in document.entries]
    ann, eve = ANN.public_key.thumbprint, EVE.public_key.thumbprint
    for key, is_mistake in (
        (RevokedKey(kid="ann", thumbprint=eve), True),
        (RevokedKey(kid="ann", thumbprint=eve, entry="one"), True),
        (RevokedKey(kid="ann", thumbprint=eve, entry="two"), False),
        (RevokedKey(kid="bob", thumbprint=ann), False),
        (RevokedKey(kid="bob", thumbprint=ann, entry="two"), True),
        (RevokedKey(kid="ann", thumbprint=ann), False),
        (RevokedKey(kid="eve", thumbprint=eve), False),
        (RevokedKey(kid="ann"), False),
        (RevokedKey(thumbprint=eve), False),
    ):
        assert (key.mistake(listed) is not None) is is_mistake, key
    assert ann in (RevokedKey(kid="ann", thumbprint=eve).mistake(listed) or "")


WAYS: dict[str, Callable[[Path, PublicKey], str]] = {
    "inline": lambda folder, key: entry(jwk=inline(key)),
    "PEM": lambda folder, key: entry(jwk="", pem=f'"""\n{key.to_pem().decode()}"""', kid=f'"{key.kid}"'),
    "a file with a set": lambda folder, key: _file(folder, json.dumps(publish_jwks([key]))),
    "a file with a JWK": lambda folder, key: _file(folder, json.dumps(key.to_jwk())),
    "a file with PEM": lambda folder, key: _file(folder, key.to_pem().decode(), kid=f'"{key.kid}"'),
}


def _file(folder: Path, content: str, **members: str) -> str:
    (folder / "sub").mkdir(exist_ok=True)
    (folder / "sub" / "ann.keys").write_text(content)
    return entry(ANN, jwk="", keys='"sub/ann.keys"', **members)


@pytest.mark.parametrize("way", WAYS)
def test_a_key_is_trusted_however_it_is_written(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")  # files are relative to the trust file
    trust = store(tmp_path, WAYS[way](tmp_path, ANN.public_key))
    (key,) = trust.keys
    assert (key.key, key.origins, key.signer) == (ANN.public_key, Origins("invoice.example.com"), None)
    assert (key.not_before, key.not_after, key.revoked, key.source) == (float("-inf"), float("inf"), False, None)
    assert is_verified(trust, ANN)
    assert not is_verified(trust, EVE)


def test_an_entry_says_how_far_a_key_is_trusted(tmp_path: Path) -> None:
    trust = store(
        tmp_path,
        entry(
            origins='["*.example.com", "other.example"]',
            signer='"a2a-python"',
            name='"finance"',
            not_before="2026-01-31",
            not_after="2026-02-01T12:00:00+02:00",
        ),
    )
    (key,) = trust.keys
    assert key.origins == Origins("*.example.com", "other.example")
    assert (key.signer, key.name) == (SigningTool.A2A_PYTHON, "finance")
    assert (key.not_before, key.not_after) == (1_769_817_600.0, 1_769_940_000.0)
    assert [is_verified(trust, ANN, now=now) for now in (1_769_817_599, 1_769_817_600, 1_769_940_000)] == [
        False,
        True,
        False,
    ]


@pytest.mark.parametrize("way", ["inline", "a file with a JWK", "a file with PEM"])
def test_a_key_goes_by_the_name_that_the_entry_gives_it(way: str, tmp_path: Path) -> None:
    text = WAYS[way](tmp_path, ANN.public_key).replace('kid = "ann"\n', "") + 'kid = "her-new-name"\n'
    (key,) = store(tmp_path, text).keys
    assert (key.key.kid, key.key.thumbprint) == ("her-new-name", ANN.public_key.thumbprint)


def test_a_key_for_every_host_has_to_be_called_unsafe(tmp_path: Path) -> None:
    (key,) = store(tmp_path, entry(origins="", unsafe_any_origin="true")).keys
    assert key.origins == UnsafeAnyOrigin()


def test_a_revoked_key_proves_nothing_wherever_it_is_listed(tmp_path: Path) -> None:
    revoked = '\n[[revoked]]\nkid = "ann"\nat = 2026-11-21T09:00:00Z\nreason = "its laptop was stolen"\n'
    trust = store(tmp_path, entry(), entry(BOB), revoked)
    assert not is_verified(trust, ANN)
    assert is_verified(trust, BOB)
    (found,) = read_trust(written(tmp_path, revoked).read_bytes(), "trust.toml").revoked
    assert (found.kid, found.at, found.reason) == ("ann", 1_795_251_600.0, "its laptop was stolen")


POLICY = '\n[[policy]]\norigins = ["*.example.com"]\nparties = ["Ann", "Bob"]\n'


def test_a_policy_says_what_cards_of_a_host_need(tmp_path: Path) -> None:
    ann, bob = entry(name='"Ann"'), entry(BOB, name='"Bob"')
    trust = store(tmp_path, ann, bob, POLICY)
    assert trust.policies[0].policy == Threshold(2, frozenset({"Ann", "Bob"}))
    assert [is_verified(trust, ANN), is_verified(trust, BOB), is_verified(trust, BOB, ANN)] == [False, False, True]
    assert is_verified(store(tmp_path, ann, bob, POLICY, "count = 1\n"), BOB)
    elsewhere = POLICY.replace("*.example.com", "bank.example.org")
    assert is_verified(store(tmp_path, ann, bob, elsewhere), ANN)
    by_thumbprint = POLICY.replace("Bob", BOB.public_key.thumbprint)
    assert is_verified(store(tmp_path, ann, entry(BOB), by_thumbprint), BOB, ANN)


def test_a_policy_names_no_kid_and_the_error_says_what_to_write(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"line 14: policy\[0\]\.parties: 'ann' is a kid.*write the") as error:
        store(tmp_path, entry(), entry(BOB, name='"Bob"'), POLICY.replace("Ann", "ann"))
    assert ANN.public_key.thumbprint in str(error.value)
    assert "the entry on line 3" in str(error.value)
    with pytest.raises(ConfigurationError, match=r"no \[\[trust\]\] has the name 'Ann'; write the name of an entry"):
        store(tmp_path, entry(), entry(BOB, name='"Bob"'), POLICY)


def test_one_name_stands_on_one_entry(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"trust\[1\]\.name: the entry on line 3 has this name already"):
        store(tmp_path, entry(name='"Ann"'), entry(BOB, name='"Ann"'))


def test_a_kid_can_be_revoked_in_one_entry(tmp_path: Path) -> None:
    twin = generate_signer(kid="ann")
    entries = (entry(name='"Ann"'), entry(twin, name='"Twin"'))
    trust = store(tmp_path, *entries, '\n[[revoked]]\nkid = "ann"\nentry = "Twin"\n')
    assert [is_verified(trust, ANN), is_verified(trust, twin)] == [True, False]
    trust = store(tmp_path, *entries, f'\n[[revoked]]\nkid = "ann"\nthumbprint = "{twin.public_key.thumbprint}"\n')
    assert [is_verified(trust, ANN), is_verified(trust, twin)] == [True, False]
    trust = store(tmp_path, *entries, '\n[[revoked]]\nkid = "ann"\n')
    assert [is_verified(trust, ANN), is_verified(trust, twin)] == [False, False]


ONE, TWO = "M" * 43, "N" * 43
REMOTE = "version = 1\n[[trust]]\njwks_url = 'https://a.example/k'\n"
SOUND = f"{REMOTE}origins = ['a.example']\n"
POLICIES = "version = 1\n[[policy]]\norigins = ['a.example']\n"


@walk(("line", "text", "what"), [
    (1, "version = 2\n", r"version: write version = 1"),
    (1, "version = true\n", r"version: write version = 1"),
    (1, "", r"version: write version = 1"),
    (2, "version = 1\ntrusts = 1\n", r"trusts: unknown member; the tables are \[\[trust\]\], "),
    (2, "version = 1\n[trust]\nkid = 'a'\n", r"begin every entry with the line \[\[trust\]\]"),
    (4, "version = 1\n[[trust]]\norigins = ['a.example']\nkey = 'k'\n", r"key: unknown member; the members"),
    (3, "version = 1\n# none\n[[trust]]\norigins = ['a.example']\n", r"exactly one of keys, jwk, pem, jwks_url"),
    (3, f"{REMOTE}pem = 'x'\n", r"exactly one of"),
    (3, "version = 1\n[[trust]]\njwks_url = 'http://a.example/k'\n", r"jwks_url: write an https URL"),
    (3, "version = 1\n[[trust]]\njwks_url = 'https://u@a.example/k'\n", r"jwks_url: write an https URL"),
    (4, f"{REMOTE}kid = 'a'\n", r"kid: the keys of a set"),
    (3, "version = 1\n[[trust]]\npem = 'no key'\norigins = ['a.example']\n", r"pem: PEM: not a public key"),
    (3, "version = 1\n[[trust]]\njwk = 'x'\norigins = ['a.example']\n", r"jwk: JWK: not a JSON object"),
    (3, "version = 1\n[[trust]]\njwk = { kty = 'oct', k = 'AA' }\n", r"jwk: JWK: it holds private or symmetric"),
    (2, f"{REMOTE}", r"origins: name hosts"),
    (4, f"{REMOTE}origins = []\n", r"origins: name hosts"),
    (4, f"{REMOTE}origins = 'a.example'\n", r"origins: name hosts"),
    (4, f"{REMOTE}origins = ['https://a.example']\n", r"only a host"),
    (4, f"{REMOTE}origins = ['*.com']\n", r"two labels"),
    (5, f"{SOUND}unsafe_any_origin = true\n",
     r"unsafe_any_origin: write true, and remove origins"),
    (4, f"{REMOTE}unsafe_any_origin = 1\n", r"write true"),
    (5, f"{SOUND}signer = 'all'\n", r'signer: write one of "a2a-trust", "a2a-python", "a2a-js", "whole"'),
    (5, f"{SOUND}signer = ['a2a-js']\n", r"signer: write one of"),
    (5, f"{SOUND}name = ''\n", r"name: write 1 to 128 printable"),
    (5, f"{SOUND}name = 7\n", r"name: write 1 to 128 printable"),
    (5, f"{SOUND}name = '{'M' * 43}'\n", r"name: it looks like the thumbprint"),
    (5, f"{SOUND}not_after = 2027-01-01T12:00:00\n",
     r"not_after: write a date, or a time with its zone"),
    (5, f"{SOUND}not_before = '2027-01-01'\n",
     r"not_before: write a date"),
    (6, f"{SOUND}not_before = 2027-01-01\nnot_after = 2027-01-01\n",
     r"not_after: write a later moment"),
    (2, POLICIES, r"policy\[0\]\.parties: name trust entries or thumbprints"),
    (4, f"{POLICIES}keys = ['a']\n", r"policy\[0\]\.keys: unknown member; the members are count, origins, parties"),
    (5, f"{POLICIES}parties = ['{ONE}', '{ONE}']\ncount = 2\n", r"count: write a number from 1 to 1"),
    (5, f"{POLICIES}parties = ['{ONE}', '{TWO}']\ncount = 0\n", r"count: write a number from 1 to 2"),
    (5, f"{POLICIES}parties = ['{ONE}', '{TWO}']\ncount = true\n", r"count: write a number"),
    (3, "version = 1\n[[policy]]\nunsafe_any_origin = true\nparties = ['a']\n", r"unsafe_any_origin: unknown member"),
    (2, "version = 1\n[[revoked]]\nreason = 'x'\n", r"revoked\[0\]: write the kid or the thumbprint of the key"),
    (3, "version = 1\n[[revoked]]\nthumbprint = 'x'\n", r"revoked\[0\]\.thumbprint: write the RFC 7638"),
    (4, "version = 1\n[[revoked]]\nkid = 'a'\nentry = 'x'\n", r"revoked\[0\]\.entry: no \[\[trust\]\] has this"),
    (3, "version = 1\n[[revoked]]\nkid = 7\n", r"revoked\[0\]\.kid: write a text"),
    (9, "version = 1\n[[revoked]]\nkid = 'a'\nreason = '''\n[[revoked]]\nkid = 1\n'''\n[[revoked]]\nkid = 7\n",
     r"revoked\[1\]\.kid: write a text"),
    (1, "[[revoked]]\nkid = 'a'\n\nversion = 1\n", r"version: write version = 1 above the tables"),
    (4, "version = 1\n# \"\"\"\n\n[[trsut]]\n", r"trsut: unknown member; the tables are"),
    (2, "version = 1\ntrust = [{ jwks_url = 'https://a.example/k', origins = ['a.example'] }]\n",
     r"trust: begin every entry with the line \[\[trust\]\]"),
    (2, "version = 1\nrevoked = []\n", r"revoked: begin every entry with the line \[\[revoked\]\]"),
    (3, "version = 1\n[[trust]]\n[trust.jwk]\nkty = 'EC'\nkid = 'a'\n", r"trust\[0\]\.jwk: JWK: crv must be"),
    (4, "version = 1\n[[revoked]]\nkid = 'a'\nat = 9999-12-31T23:59:59-12:00\n", "at: write a moment in the years"),
    (8, "version = 1\n# \'\'\' \"\"\"\n[[revoked]]\nkid = 'a\"\"\"'\nreason = \"\"\"\\\"\"\"'\"\"\"\"\n\n"
     "[[revoked]]\nkid = 7\n", r"revoked\[1\]\.kid: write a text"),
    (6, 'version = 1\n[[ "revoked" ]]\nkid = "a"\n[[revoked]]\n"kid" = "b"\n"at" = 1\n', r"at: write a date"),
])  # fmt: skip
def test_what_is_wrong_is_named_by_line_and_member(line: int, text: str, what: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"^trust\.toml, line {line}: .*{what}"):
        read_trust(text.encode(), "trust.toml")


@walk(("text", "where"), [
    (b"version = 1\n\nkid = ", "line 3"),
    (b"version = 1\n[[trust]", "line 2"),
    (b"version = 1\n[[trust]]\norigins = [\n'a'\n\n\n", "line 4"),
    (b"version = 1\nversion = 1\n", "line 2"),
    (b"version = 1\n[[revoked]]\nat = 2026-13-01\n", "line 3"),
    (b"\xff", "UTF-8"),
    (b"version = " + b"9" * 5000, "digits"),
    (b"version = " + b"[" * 5000, "recursion"),
])  # fmt: skip
def test_what_is_no_toml_is_told(text: bytes, where: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"^trust\.toml: .*TOML.*{where}"):
        read_trust(text, "trust.toml")


@given(st.text(max_size=200).map(str.encode) | st.binary(max_size=200))
def test_any_text_is_understood_or_refused(text: bytes) -> None:
    with suppress(ConfigurationError):
        read_trust(b"version = 1\n" + text, "trust.toml")


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (None, "No such file"),
        ("", "public keys"),
        ('{"keys": []}', "no key in this JWK Set can verify a card"),
        ("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "private key, which only its signer needs"),
    ],
)
def test_a_key_file_that_is_of_no_use_is_named_with_its_line(content: str | None, what: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "ann.keys").write_text(content)
    path = written(tmp_path, entry(jwk="", keys='"ann.keys"'))
    with pytest.raises(ConfigurationError, match=rf"trust\.toml, line 3: .*ann\.keys: .*{what}"):
        TrustFile(path)


def test_a_private_jwk_in_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ann.keys").write_text(json.dumps({**ANN.public_key.to_jwk(), "d": "AAAA"}))
    with pytest.raises(ConfigurationError, match="private"):
        store(tmp_path, entry(jwk="", keys='"ann.keys"'))


# Changes


def test_changes_count_within_a_second(tmp_path: Path, next_second: Callable[[], None]) -> None:
    file = TrustFile(written(tmp_path, entry()))
    first = file.trust_store()
    assert file.trust_store() is first
    written(tmp_path, entry(), entry(BOB))
    next_second()
    assert is_verified(file.trust_store(), BOB)
    written(tmp_path, entry(), entry(BOB), '\n[[revoked]]\nkid = "bob"\n')
    next_second()
    assert not is_verified(file.trust_store(), BOB)


def test_so_do_those_of_key_files(tmp_path: Path, next_second: Callable[[], None]) -> None:
    file = TrustFile(written(tmp_path, _file(tmp_path, json.dumps(publish_jwks([ANN.public_key])))))
    _file(tmp_path, json.dumps(publish_jwks([ANN.public_key, BOB.public_key])))
    next_second()
    assert is_verified(file.trust_store(), BOB)


def test_no_number_of_key_files_slows_a_verification_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them was looked at for every card: 1,000 key files cost forty times the verification."""
    looked, now = list[Path](), [100.0]
    monkeypatch.setattr("a2a_trust.base.files.watched.monotonic", lambda: now[0])
    file = TrustFile(written(tmp_path, _file(tmp_path, json.dumps(publish_jwks([ANN.public_key])))))
    real = stamp_of_path

    def look(path: Path) -> Stamp | None:
        looked.append(path)
        return real(path)

    monkeypatch.setattr("a2a_trust.keys.trust.file.stamp_of_path", look)
    for _ in range(3):
        assert is_verified(file.trust_store(), ANN)
        now[0] += 0.25
    assert looked == []
    now[0] += 0.25
    for _ in range(3):
        assert is_verified(file.trust_store(), ANN)
    assert [path.name for path in looked] == ["trust.toml", "ann.keys"]


@pytest.mark.skipif(os.name != "posix", reason="there are no such rights here")
def test_files_that_everybody_can_write_say_nothing_about_trust(tmp_path: Path) -> None:
    path = written(tmp_path, entry(keys='"bob.json"', jwk=""))
    keys = tmp_path / "bob.json"
    keys.write_text(json.dumps(publish_jwks([BOB.public_key])))
    for file in (path, keys):
        file.chmod(0o666)
        with pytest.raises(ConfigurationError, match=r"everybody can write to .*chmod o-w"):
            TrustFile(path)
        file.chmod(0o644)  # as configuration is: everybody can read it
        assert is_verified(TrustFile(path).trust_store(), BOB)
    path.chmod(0o666)
    with pytest.raises(ConfigurationError, match="chmod o-w"):
        update_trust_file(path, lambda text, _: with_entries(text, []))


def test_a_file_that_is_broken_later_leaves_the_last_one_and_a_line_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, next_second: Callable[[], None]
) -> None:
    path = written(tmp_path, entry())
    file = TrustFile(path)
    path.write_text("version = 1\n[[trust]]\n")
    for _ in range(3):
        next_second()
        assert is_verified(file.trust_store(), ANN)
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "line 2: trust[0]: write exactly one of" in record.message
    path.unlink()
    next_second()
    assert is_verified(file.trust_store(), ANN)
    written(tmp_path, entry(BOB))
    next_second()
    assert not is_verified(file.trust_store(), ANN)


def test_a_verifier_follows_them(tmp_path: Path, next_second: Callable[[], None]) -> None:
    file = TrustFile(written(tmp_path, entry()))
    verifier = CardVerifier(file, clock=lambda: NOW)
    card = json.dumps(sign_card(CARD, ANN).card).encode()
    origin = "https://invoice.example.com"
    assert verifier.verify(card, origin=origin) is verifier.verify(card, origin=origin)
    written(tmp_path, entry(), '\n[[revoked]]\nkid = "ann"\n')
    next_second()
    with pytest.raises(UntrustedCardError, match="revoked"):
        verifier.verify(card, origin=origin)


# Key sets on the network


class Fetchers:
    """Servers of key sets, as a fetcher would reach them."""

    def __init__(self, **sets: Any) -> None:
        self.sets, self.fetched = sets, list[str]()

    def loader(self, url: str, *, configured: bool) -> Any:
        assert configured

        async def load() -> tuple[bytes, float | None]:
            self.fetched.append(url)
            keys = self.sets[url.rpartition("/")[2]]
            if isinstance(keys, Exception):
                raise keys
            return json.dumps(publish_jwks(keys)).encode(), None

        return load


def remote(name: str, host: str) -> str:
    return entry(jwk="", origins=f'["{host}"]', jwks_url=f'"https://keys.example.com/{name}"')


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.anyio
async def test_only_the_key_sets_of_the_host_are_fetched(tmp_path: Path) -> None:
    fetchers: Any = Fetchers(a=[ANN.public_key], b=[BOB.public_key])
    path = written(tmp_path, remote("a", "*.example.com"), remote("b", "other.example"))
    file = TrustFile(path, fetcher=fetchers)
    assert not is_verified(file.trust_store(), ANN)
    trust = await file.fetch("https://invoice.example.com/a2a")
    assert fetchers.fetched == ["https://keys.example.com/a"]
    assert is_verified(trust, ANN)
    assert file.trust_store() is trust
    assert await file.fetch("invoice.example.com") is trust
    assert fetchers.fetched == ["https://keys.example.com/a"]  # still fresh
    await file.fetch()
    assert fetchers.fetched == ["https://keys.example.com/a", "https://keys.example.com/b"]


@pytest.mark.anyio
async def test_a_key_set_that_leaves_the_file_is_forgotten_and_the_others_stay_fresh(
    tmp_path: Path, next_second: Callable[[], None]
) -> None:
    fetchers: Any = Fetchers(a=[ANN.public_key], b=[BOB.public_key])
    both = remote("a", "invoice.example.com"), remote("b", "invoice.example.com")
    file = TrustFile(written(tmp_path, *both), fetcher=fetchers)
    await file.fetch()
    written(tmp_path, both[1])
    next_second()
    assert not is_verified(await file.fetch(), ANN)
    assert [*file._caches] == ["https://keys.example.com/b"]
    written(tmp_path, *both)
    next_second()
    assert is_verified(await file.fetch(), ANN)
    assert [url[-1] for url in fetchers.fetched] == ["a", "b", "a"]


@pytest.mark.anyio
async def test_a_key_set_that_is_out_of_reach_leaves_the_other_keys(tmp_path: Path) -> None:
    fetchers: Any = Fetchers(a=OSError("down"), b=[BOB.public_key])
    path = written(tmp_path, remote("a", "invoice.example.com"), remote("b", "invoice.example.com"), entry(EVE))
    file = TrustFile(path, fetcher=fetchers)
    with pytest.raises(KeySourceUnavailableError, match=r"keys\.example\.com/a"):
        await file.fetch("invoice.example.com")
    trust = file.trust_store()
    assert [is_verified(trust, signer) for signer in (ANN, BOB, EVE)] == [False, True, True]


@pytest.mark.anyio
async def test_keys_of_a_set_that_is_out_of_reach_for_too_long_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetchers: Any = Fetchers(a=[ANN.public_key])
    file = TrustFile(written(tmp_path, remote("a", "invoice.example.com")), fetcher=fetchers)
    assert is_verified(await file.fetch(), ANN)
    fetchers.sets["a"] = OSError("down")
    real = time.monotonic
    cache = file._cache("https://keys.example.com/a")
    monkeypatch.setattr(cache, "_clock", lambda: real() + 100_000)
    with pytest.raises(KeySourceUnavailableError):
        await file.fetch()
    assert file.trust_store().keys == ()


@pytest.mark.anyio
async def test_a_revocation_in_the_file_counts_for_fetched_keys(
    tmp_path: Path, next_second: Callable[[], None]
) -> None:
    file = TrustFile(written(tmp_path, remote("a", "invoice.example.com")), fetcher=Fetchers(a=[ANN.public_key]))  # type: ignore[arg-type]
    assert is_verified(await file.fetch(), ANN)
    written(tmp_path, remote("a", "invoice.example.com"), '\n[[revoked]]\nkid = "ann"\n')
    next_second()
    assert not is_verified(file.trust_store(), ANN)
    written(tmp_path, entry(EVE))
    next_second()
    assert [key.key.kid for key in file.trust_store().keys] == ["eve"]


@pytest.mark.anyio
async def test_a_revocation_that_another_thread_reads_during_a_fetch_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, next_second: Callable[[], None]
) -> None:
    """Seen here: the store was made of the file as it had been, and stayed until the file changed again."""
    parts = remote("a", "invoice.example.com"), entry(ANN), entry(EVE)
    file = TrustFile(written(tmp_path, *parts), fetcher=Fetchers(a=[BOB.public_key]))  # type: ignore[arg-type]
    made, readers = TrustDocument.store, list[Thread]()

    def make(document: TrustDocument, *given: Any) -> TrustStore:
        if not readers:  # in the fetch, which has looked at the file before
            written(tmp_path, *parts, '\n[[revoked]]\nkid = "ann"\n')
            next_second()
            readers.append(Thread(target=file.trust_store))
            readers[0].start()
            readers[0].join(0.5)  # it is through, or it waits
        return made(document, *given)

    monkeypatch.setattr(TrustDocument, "store", make)
    assert is_verified(await file.fetch(), BOB)
    readers[0].join(10)
    assert [is_verified(file.trust_store(), signer) for signer in (ANN, BOB, EVE)] == [False, True, True]


@pytest.mark.anyio
async def test_keys_that_share_a_kid_are_all_usable_whatever_the_jku(tmp_path: Path) -> None:
    twin = generate_signer(kid="ann")
    fetchers: Any = Fetchers(a=[ANN.public_key], b=[twin.public_key])
    path = written(tmp_path, remote("a", "invoice.example.com"), remote("b", "invoice.example.com"))
    trust = await TrustFile(path, fetcher=fetchers).fetch()
    for signer in (ANN, twin):
        for jku in (None, "https://keys.example.com/a", "https://evil.example/a"):
            card = sign_card(CARD, signer, jku=jku).card
            verified = verify_card(card, trust, origin="https://invoice.example.com", now=NOW)
            assert verified.key == signer.public_key
    assert fetchers.fetched == ["https://keys.example.com/a", "https://keys.example.com/b"]


def test_a_file_with_urls_needs_a_fetcher(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="fetcher=Fetcher"):
        TrustFile(written(tmp_path, remote("a", "invoice.example.com")))


# The algorithm of an entry


def bare_rsa(rsa_key: rsa.RSAPrivateKey) -> str:
    jwk = public_key_from_object(rsa_key, kid="rsa").to_jwk()
    members = [f'{name} = "{value}"' for name, value in jwk.items() if name != "alg"]
    return f"{{ {', '.join(members)} }}"


def test_an_entry_says_the_algorithm_of_keys_that_do_not(tmp_path: Path, rsa_key: rsa.RSAPrivateKey) -> None:
    pem = public_key_from_object(rsa_key).to_pem().decode()
    for member in ({"jwk": bare_rsa(rsa_key)}, {"jwk": "", "pem": f"'''{pem}'''"}):
        (found,) = store(tmp_path, entry(**member, alg='"PS384"')).keys
        assert (found.key.alg, found.key.algorithms) == ("PS384", ("PS384",))
        assert [each.key.alg for each in store(tmp_path, entry(**member)).keys] == ["RS256"]


@pytest.mark.parametrize(
    ("alg", "what"),
    [
        ('"RS256"', "algorithm RS256 does not fit this key; leave it out, or use ES256"),
        ('"HS256"', "no signature algorithm is named 'HS256'"),
        ('""', "write a text"),
        ("256", "write a text"),
    ],
)
def test_an_algorithm_that_does_not_fit_is_named_by_its_line(tmp_path: Path, alg: str, what: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"line 6: trust\[0\]\.alg: {re.escape(what)}"):
        store(tmp_path, entry(alg=alg))


def test_a_key_file_without_a_key_for_the_algorithm_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ann.json").write_text(json.dumps(publish_jwks([ANN.public_key])))
    with pytest.raises(ConfigurationError, match="no key in it is for PS256, the alg of the entry"):
        store(tmp_path, entry(jwk="", keys='"ann.json"', alg='"PS256"'))


@pytest.mark.anyio
async def test_fetched_keys_for_another_algorithm_are_skipped(
    tmp_path: Path, rsa_key: rsa.RSAPrivateKey, caplog: pytest.LogCaptureFixture
) -> None:
    says = public_key_from_object(rsa_key, kid="says")
    fetchers: Any = Fetchers(a=[ANN.public_key, says])  # what is published says its algorithm
    text = remote("a", "invoice.example.com") + 'alg = "RS256"\n'
    trust = await TrustFile(written(tmp_path, text), fetcher=fetchers).fetch()
    assert [each.key.kid for each in trust.keys] == ["says"]
    assert "skipped key 'ann': algorithm RS256 does not fit this key" in caplog.text
