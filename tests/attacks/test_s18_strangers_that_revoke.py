"""S18: a stranger's key set cannot revoke another party's key, nor block another party's first use.

Measured here: a revocation was by kid and spread by thumbprint from wherever that kid stood. So evil.example.net listed
the bank's public key under a kid of its own that had been revoked, and the bank was revoked with it. A key that the
operator revoked, on the other hand, stays revoked under another name.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from a2a_trust import CardVerificationError, TrustStore, generate_signer, sign_card
from a2a_trust.cli.main import main
from a2a_trust.client import TrustOnFirstUse
from a2a_trust.errors import FailureReason, UntrustedCardError
from a2a_trust.keys import LocalSigner
from a2a_trust.keys.jwk import PublicKey
from a2a_trust.keys.trust.file import TrustFile, read_trust
from tests.attacks.forgery import JSONObject
from tests.attacks.verifying import HOST, NOW, ORIGIN, refusal, verified
from tests.tables import walk

EVIL_SET, BANK_SET = "https://evil.example.net/jwks.json", "https://bank.example/jwks.json"
BANK = generate_signer(kid="bank")
EVIL = generate_signer(kid="evil-1")
REVOKED = FailureReason.REVOKED_KEY


def named(signer: LocalSigner, kid: str) -> PublicKey:
    return dataclasses.replace(signer.public_key, kid=kid)


def inline(key: PublicKey) -> str:
    return "jwk = { " + ", ".join(f'{name} = "{value}"' for name, value in key.to_jwk().items()) + " }"


def text(*tables: str, bank: str = f'jwks_url = "{BANK_SET}"') -> str:
    return "\n".join(
        [
            "version = 1",
            f'[[trust]]\nname = "bank"\norigins = ["{HOST}"]\n{bank}',
            f'[[trust]]\nname = "evil"\norigins = ["evil.example.net", "{HOST}"]\njwks_url = "{EVIL_SET}"',
            *tables,
        ]
    )


def store(document: str, evil: list[PublicKey], bank: list[PublicKey] | None = None) -> TrustStore:
    fetched = {EVIL_SET: tuple(evil), BANK_SET: tuple(bank or [BANK.public_key])}
    return read_trust(document.encode(), "trust.toml").store({}, fetched)


#: How the operator may have written that evil's key is revoked.
REVOCATIONS = {
    "by kid": '[[revoked]]\nkid = "evil-1"',
    "by kid in its entry": '[[revoked]]\nkid = "evil-1"\nentry = "evil"',
    "by kid in the entry of that URL": f'[[revoked]]\nkid = "evil-1"\nentry = "{EVIL_SET}"',
    "by a thumbprint that evil chose, in its entry": (
        f'[[revoked]]\nthumbprint = "{BANK.public_key.thumbprint}"\nentry = "evil"'
    ),
    "by thumbprint": f'[[revoked]]\nkid = "evil-1"\nthumbprint = "{EVIL.public_key.thumbprint}"',
}


@walk("bank", [f'jwks_url = "{BANK_SET}"', inline(BANK.public_key)], ids=["fetched", "inline"])
@walk("how", REVOCATIONS)
def test_the_banks_key_under_a_revoked_kid_of_evil_revokes_evil_only(how: str, bank: str, card: JSONObject) -> None:
    document = text(REVOCATIONS[how], bank=bank)
    signed = sign_card(card, BANK).card
    assert verified(signed, store(document, [named(BANK, "evil-1")])).key == BANK.public_key
    if "chose" not in how:
        by_evil = sign_card(card, EVIL, companion=True).card
        refusal(UntrustedCardError, by_evil, store(document, [EVIL.public_key]), REVOKED, FailureReason.COMPANION)


def test_a_revocation_in_one_entry_leaves_the_same_kid_of_another(card: JSONObject) -> None:
    twin = LocalSigner(BANK.private_key, kid="evil-1")
    document = text('[[revoked]]\nkid = "evil-1"\nentry = "evil"')
    trust = store(document, [EVIL.public_key], [twin.public_key])
    assert verified(sign_card(card, twin).card, trust).key == twin.public_key


@walk("how", ["listed", *REVOCATIONS])
def test_a_strangers_set_does_not_block_the_first_use_of_a_key_that_it_lists(how: str, card: JSONObject) -> None:
    url = "https://victim.example.org"
    victim = LocalSigner(BANK.private_key, kid="victim")
    document = text(*([] if how == "listed" else [REVOCATIONS[how]]))
    for kid in ("victim", "evil-1"):
        trust = store(document, [named(victim, kid)], [generate_signer().public_key])
        first = TrustOnFirstUse().trust_store([victim.public_key], url, trust)
        assert [entry.key for entry in first.keys] == [victim.public_key]


def test_a_key_that_the_operator_revoked_is_not_believed_at_first_use() -> None:
    document = text(f'[[revoked]]\nthumbprint = "{BANK.public_key.thumbprint}"')
    trust = store(document, [EVIL.public_key], [generate_signer().public_key])
    for kid in ("bank", "other"):
        assert TrustOnFirstUse().trust_store([named(BANK, kid)], "https://victim.example.org", trust).keys == ()


def test_a_key_that_the_operator_revoked_stays_revoked_under_another_name(
    card: JSONObject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Offline, by the command, and whatever becomes of its entry."""
    monkeypatch.chdir(tmp_path)
    path = Path("trust.toml")
    path.write_text(f'version = 1\n[[trust]]\norigins = ["{HOST}"]\n{inline(BANK.public_key)}\n')
    assert main(["trust", "revoke", "trust.toml", "bank"]) == 0
    assert main(["trust", "remove", "trust.toml", "bank"]) == 0
    Path("again.json").write_text(json.dumps({**BANK.public_key.to_jwk(), "kid": "bank-again"}))
    assert main(["trust", "add", "trust.toml", "--origin", HOST, "--public-key", "again.json"]) == 0
    again = sign_card(card, LocalSigner(BANK.private_key, kid="bank-again")).card
    with pytest.raises(CardVerificationError) as error:
        verified(again, TrustFile(path).trust_store(), origin=ORIGIN, now=NOW)
    assert REVOKED in [failure.reason for failure in error.value.failures]
    # And when somebody publishes it under that name:
    fetched = read_trust(path.read_bytes() + text().removeprefix("version = 1").encode(), "trust.toml")
    with pytest.raises(CardVerificationError):
        verified(again, fetched.store({}, {BANK_SET: (named(BANK, "bank-again"),), EVIL_SET: ()}))


@pytest.mark.parametrize("by", ['kid = "bank"', 'kid = "bank"\nentry = "bank"'])
def test_a_kid_that_the_operator_revoked_by_hand_revokes_the_key_that_he_wrote_down(by: str, card: JSONObject) -> None:
    again = f'[[trust]]\norigins = ["{HOST}"]\n{inline(named(BANK, "bank-again"))}'
    trust = store(text(again, f"[[revoked]]\n{by}", bank=inline(BANK.public_key)), [named(BANK, "bank-3")])
    for kid in ("bank", "bank-again", "bank-3"):
        with pytest.raises(UntrustedCardError) as error:
            verified(sign_card(card, LocalSigner(BANK.private_key, kid=kid)).card, trust)
        assert error.value.failures[0].reason is REVOKED


def test_revoking_what_nobody_knows_fails_loudly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A slip of the pen must not look like a revocation."""
    monkeypatch.chdir(tmp_path)
    Path("trust.toml").write_text(text())
    before = Path("trust.toml").read_bytes()
    assert main(["trust", "revoke", "trust.toml", "evil-l"]) == 2
    assert "has the kid 'evil-l'" in capsys.readouterr().err
    assert main(["trust", "revoke", "trust.toml", "evil-1", "--entry", "evli"]) == 2
    assert Path("trust.toml").read_bytes() == before
