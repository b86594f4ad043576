"""S24: a key is revoked, and something else that is wrong beside it makes the revocation disappear.

Measured here: a JWK with ``revoked: true`` that was skipped for another reason was forgotten with its revocation. The
key went on to verify by another entry of the trust file, by another set of the command, or on first use.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from a2a_trust import Origins, TrustedKey, TrustFile, TrustStore, generate_signer, sign_card
from a2a_trust.cli.main import main
from a2a_trust.client import TrustOnFirstUse
from a2a_trust.errors import FailureReason, InvalidCredentialsError, UntrustedCardError
from a2a_trust.keys import LocalSigner, read_jwks
from a2a_trust.keys.trust.file import read_trust
from a2a_trust.keys.trust.jwks_cache import JwksCache
from tests.attacks.forgery import JSONObject
from tests.attacks.verifying import HOST, NOW, refusal, verified
from tests.tables import walk

VICTIM = "https://victim.example.org"
LEAKED, OTHER = generate_signer(kid="leaked"), generate_signer(kid="other")
KEY: JSONObject = {**LEAKED.public_key.to_jwk(), "revoked": True}
TWIN: JSONObject = generate_signer(kid="leaked").public_key.to_jwk()

#: What else is wrong with the revoked JWK; two keys for one kid are wrong both.
WRONG: dict[str, list[JSONObject]] = {
    "nothing": [KEY],
    "its kid is that of another key": [KEY, TWIN],
    "its kid is that of another key before it": [TWIN, KEY],
    "kid": [{**KEY, "kid": 7}],
    "use": [{**KEY, "use": "enc"}],
    "key_ops": [{**KEY, "key_ops": ["encrypt"]}],
    "key_ops is no list": [{**KEY, "key_ops": "verify"}],
    "exp": [{**KEY, "exp": "2027-01-01"}],
    "nbf": [{**KEY, "nbf": None}],
    "alg": [{**KEY, "alg": "ES384"}],
    "alg of encryption": [{**KEY, "alg": "ECDH-ES"}],
    "its private half": [{**KEY, "d": "AAAA"}],
    "x5c": [{**KEY, "x5c": ["AAAA"]}],
}
by_mistake = pytest.mark.parametrize("jwks", WRONG.values(), ids=WRONG)


def inline(key: JSONObject, kid: str) -> str:
    members = ", ".join(f"{name} = {json.dumps(value)}" for name, value in {**key, "kid": kid}.items())
    return f'[[trust]]\norigins = ["{HOST}"]\njwk = {{ {members} }}\n'


def entry(source: str, host: str = "elsewhere.example.org") -> str:
    return f'[[trust]]\norigins = ["{host}"]\n{source}\n'


@pytest.fixture
def store(tmp_path: Path) -> Callable[..., TrustStore]:
    """The store of a trust file whose first entry names a file with these JWKs."""

    def made(document: object, *entries: str, alg: str = "") -> TrustStore:
        (tmp_path / "keys.json").write_text(json.dumps(document))
        first = entry(f'keys = "keys.json"\n{alg}')
        (tmp_path / "trust.toml").write_text("\n".join(["version = 1", first, *entries]))
        return TrustFile(tmp_path / "trust.toml").trust_store()

    return made


@by_mistake
@walk("beside", [[], [OTHER.public_key.to_jwk()]], ids=["alone", "beside another key"])
def test_the_key_does_not_verify_by_another_entry(
    card: JSONObject, store: Callable[..., TrustStore], jwks: list[JSONObject], beside: list[JSONObject]
) -> None:
    for kid in ("leaked", "renamed"):
        trust = store({"keys": [*jwks, *beside]}, inline(LEAKED.public_key.to_jwk(), kid))
        signed = sign_card(card, LocalSigner(LEAKED.private_key, kid=kid)).card
        refusal(UntrustedCardError, signed, trust, FailureReason.REVOKED_KEY)


@by_mistake
def test_the_key_of_a_file_with_one_jwk_does_not_either(
    card: JSONObject, store: Callable[..., TrustStore], jwks: list[JSONObject]
) -> None:
    signed = sign_card(card, LEAKED).card
    for jwk in jwks:
        if jwk is not TWIN:
            trust = store(jwk, inline(LEAKED.public_key.to_jwk(), "leaked"))
            refusal(UntrustedCardError, signed, trust, FailureReason.REVOKED_KEY)


def test_a_key_for_another_alg_than_that_of_its_entry_is_revoked_all_the_same(
    card: JSONObject, rsa_owner: LocalSigner, store: Callable[..., TrustStore]
) -> None:
    key = rsa_owner.public_key.to_jwk()
    for document in ({"keys": [{**key, "revoked": True}]}, {**key, "revoked": True}):
        trust = store(document, inline(key, rsa_owner.kid), alg='alg = "PS256"')
        signed = sign_card(card, rsa_owner).card
        refusal(UntrustedCardError, signed, trust, FailureReason.REVOKED_KEY)


@by_mistake
def test_the_key_is_not_believed_on_first_use(store: Callable[..., TrustStore], jwks: list[JSONObject]) -> None:
    trust = store({"keys": jwks})
    assert TrustOnFirstUse().trust_store([LEAKED.public_key], VICTIM, trust).keys == ()


@by_mistake
def test_an_agents_own_set_revokes_its_key_on_first_use(card: JSONObject, jwks: list[JSONObject]) -> None:
    again = {**LEAKED.public_key.to_jwk(), "kid": "again"}
    published = read_jwks(json.dumps({"keys": [*jwks, again]}).encode()).keys
    first = TrustOnFirstUse().trust_store(published, f"https://{HOST}", TrustStore([]))
    signed = sign_card(card, LocalSigner(LEAKED.private_key, kid="again")).card
    refusal(UntrustedCardError, signed, first, FailureReason.REVOKED_KEY)


@by_mistake
def test_a_fetched_set_revokes_its_own_key_and_no_other(card: JSONObject, jwks: list[JSONObject]) -> None:
    urls = ["https://evil.example.net/jwks.json", "https://bank.example/jwks.json"]
    document = "version = 1\n" + "".join(entry(f'jwks_url = "{url}"', HOST) for url in urls)
    again = {**LEAKED.public_key.to_jwk(), "kid": "again"}
    evil = read_jwks(json.dumps({"keys": [*jwks, again]}).encode()).keys
    trust = read_trust(document.encode(), "trust.toml").store({}, {urls[0]: evil, urls[1]: (LEAKED.public_key,)})
    assert verified(sign_card(card, LEAKED).card, trust).key == LEAKED.public_key
    theirs = sign_card(card, LocalSigner(LEAKED.private_key, kid="again")).card
    refusal(UntrustedCardError, theirs, trust, FailureReason.REVOKED_KEY)
    first = TrustOnFirstUse().trust_store([LEAKED.public_key], VICTIM, trust)
    assert [each.key for each in first.keys] == [LEAKED.public_key]


@by_mistake
def test_tokens_by_the_key_are_rejected(jwks: list[JSONObject]) -> None:
    again = {**LEAKED.public_key.to_jwk(), "kid": "again"}

    async def load() -> tuple[bytes, float | None]:
        return json.dumps({"keys": [*jwks, again]}).encode(), None

    async def key(kid: str) -> Any:
        return await JwksCache(load).key(kid, "EC")

    for kid in ("leaked", "again"):
        with pytest.raises(InvalidCredentialsError):
            asyncio.run(key(kid))


@by_mistake
def test_a_store_made_by_a_program_has_what_the_set_revokes(card: JSONObject, jwks: list[JSONObject]) -> None:
    found = read_jwks(json.dumps({"keys": jwks}).encode())
    trust = TrustStore([TrustedKey(key=LEAKED.public_key, origins=Origins(HOST))], revoked=found.revoked)
    refusal(UntrustedCardError, sign_card(card, LEAKED).card, trust, FailureReason.REVOKED_KEY)


@by_mistake
def test_the_command_keeps_the_revocation(
    card: JSONObject,
    jwks: list[JSONObject],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("card.json").write_text(json.dumps(sign_card(card, LEAKED).card))
    Path("good.json").write_text(json.dumps({"keys": [LEAKED.public_key.to_jwk()]}))
    Path("bad.json").write_text(json.dumps({"keys": [*jwks, OTHER.public_key.to_jwk()]}))
    for sets in (["good.json", "bad.json"], ["bad.json", "good.json"]):
        options = [word for name in sets for word in ("--jwks", name)]
        assert main(["verify", "card.json", "--origin", HOST, *options]) == 4
    Path("files.toml").write_text("version = 1\n" + entry("keys = 'bad.json'") + entry("keys = 'good.json'", HOST))
    assert main(["verify", "card.json", "--origin", HOST, "--trust", "files.toml"]) == 4
    capsys.readouterr()
    assert main(["trust", "list", "files.toml", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["entries"]
    assert [row["state"] for row in rows if row["file"] == "good.json"] == ["revoked"]
    assert main(["trust", "add", "added.toml", "--origin", HOST, "--jwks", "good.json"]) == 0
    assert main(["trust", "add", "added.toml", "--origin", "elsewhere.example.org", "--jwks", "bad.json"]) == 0
    assert main(["verify", "card.json", "--origin", HOST, "--trust", "added.toml"]) == 4
    before = Path("added.toml").read_bytes()
    assert main(["trust", "add", "added.toml", "--origin", "elsewhere.example.org", "--jwks", "bad.json"]) == 0
    assert Path("added.toml").read_bytes() == before


@by_mistake
def test_a_file_that_only_revokes_takes_effect_while_a_program_runs(
    card: JSONObject, jwks: list[JSONObject], tmp_path: Path, next_second: Callable[[], None]
) -> None:
    """An error would keep the previous version, in which the key verifies."""
    path = tmp_path / "trust.toml"
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": [LEAKED.public_key.to_jwk()]}))
    path.write_text("version = 1\n" + entry("keys = 'keys.json'", HOST))
    trust = TrustFile(path)
    signed = sign_card(card, LEAKED).card
    assert verified(signed, trust.trust_store(), now=NOW).key == LEAKED.public_key
    keys.write_text(json.dumps({"keys": jwks}))
    next_second()
    with pytest.raises(UntrustedCardError):
        verified(signed, trust.trust_store())
    with pytest.raises(UntrustedCardError):
        verified(signed, TrustFile(path).trust_store())
