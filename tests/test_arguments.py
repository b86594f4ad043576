"""Arguments that are easily confused: the error says what to write; and paths are given as text or as Path."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette

from a2a_trust import (
    CardFile,
    CardServing,
    CardVerifier,
    ConfigurationError,
    KeyRingFile,
    SqliteApiKeys,
    SqliteCardMemory,
    TrustFile,
    TrustStore,
    fetch_card,
    generate_signer,
    load_private_key,
    protect,
    sign_card,
    verify_card,
)
from a2a_trust.base.net.fetcher import Fetcher
from a2a_trust.client.certificates import CertificateFiles
from a2a_trust.keys import KeyRing, UnsafeAnyOrigin, save_private_key
from a2a_trust.keys.jwk import publish_jwks, read_jwks
from a2a_trust.keys.ring_file import load_key_ring, save_key_ring, update_key_ring
from a2a_trust.keys.trust.origins import Origins
from a2a_trust.keys.trust.store import TrustedKey
from a2a_trust.middleware.caller import principal_of
from a2a_trust.signing import Coverage
from tests.signing.cards import full_card
from tests.signing.making import trust_in
from tests.tables import walk

SIGNER = generate_signer("EdDSA")
CARD = json.dumps(full_card()).encode()
SIGNED = json.dumps(sign_card(CARD, SIGNER, iat=0).card).encode()
TRUST = trust_in(SIGNER)
KEY: Any = "key.pem"
SIGNERS: Any = [SIGNER]
KEYS: Any = ["agent.example.com"]
SWAPPED_SIGNER: Any = SIGNER
SWAPPED_CARD: Any = CARD
SWAPPED_TRUST: Any = TRUST
CARD_FILE: Any = "card.json"
TRUST_FILE: Any = "trust.toml"
URL_BYTES: Any = b"https://agent.example.com"
ANYWHERE = UnsafeAnyOrigin()


async def app(scope: Any, receive: Any, send: Any) -> None: ...


def new_app() -> Starlette:
    return Starlette()


CLASS: Any = Starlette
MAKER: Any = new_app
NO_APP: Any = lambda: None  # noqa: E731


def verified(card: Any = SIGNED, trust: Any = TRUST, **options: Any) -> Any:
    return verify_card(card, trust, **{"origin": ANYWHERE, "now": 0, **options})


WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: verified(TRUST, SIGNED), r"write verify_card\(document, TrustFile"),
    (lambda: verified("card.json"), "as the bytes that were served, as a Path or as a dict, and is str"),
    (lambda: verified(Path("card.json")), r"card\.json cannot be read"),
    (lambda: verified(trust="trust.toml"), "a TrustStore or a TrustFile, and is str"),
    (lambda: verified(trust=[SIGNER.public_key]), "a TrustStore or a TrustFile, and is list"),
    (lambda: verified(policy="auditor"), r"policy: write named\(\"bank\"\)"),
    (lambda: verified(policy=["bank", "auditor"]), r"policy: write named\(\"bank\"\)"),
    (lambda: verified(coverage="signed"), r"write Coverage\.WHOLE_CARD or"),
    (lambda: verified(coverage=Coverage), r"write Coverage\.WHOLE_CARD or"),
    (lambda: CardVerifier(TRUST_FILE, clock=lambda: 0), r"trust must be TrustFile"),
    (lambda: sign_card(SWAPPED_SIGNER, SWAPPED_CARD), r"bytes is not a signer; write sign_card\(card, signer\)"),
    (lambda: sign_card(SWAPPED_SIGNER, SIGNER), r"the first argument: \w+ is not a card; write a dict, bytes"),
    (lambda: sign_card(CARD_FILE, SIGNER), r"the text .* is not a card; write .* Path\('card.json'\)"),
    (lambda: sign_card(CARD, KEY), r"str is not a signer; .* load_private_key\(path\)"),
    (lambda: sign_card(CARD, SIGNERS), r"list is not a signer; .*\*signers"),
    (lambda: fetch_card(SWAPPED_TRUST, SWAPPED_CARD), "trust: write TrustFile"),
    (lambda: fetch_card(URL_BYTES, TRUST), "url: write the URL of the agent"),
    (
        lambda: protect(app, card=CARD, verifiers={}, serving=CardServing(signer=KEY)),
        r"signer: str is not a signer; write CardServing\(signer=load",
    ),
    (
        lambda: protect(app, card=CARD, verifiers={}, serving=CardServing(signer=SIGNERS)),
        "signer: list is not a signer",
    ),
    (lambda: protect(app, card={"name": "agent"}, verifiers=KEY), "verifiers: write a dict"),
    (lambda: fetch_card("https://agent.example.com", TRUST, KEY), r"options: write FetchOptions\("),
    (lambda: Fetcher(private_origins="http://localhost"), r"private_origins: write a list"),
    (lambda: publish_jwks(SIGNERS), r"publish_jwks\(\[signer\.public_key\]\)"),
    (lambda: read_jwks(KEY), r"read_bytes\(\)"),
    (lambda: Origins(KEYS), r"write hosts one by one"),
    (lambda: Origins("*"), r"UnsafeAnyOrigin\(\) for every host"),
    (lambda: TrustStore(SIGNERS), r"TrustStore\(\[TrustedKey\("),
    (lambda: TrustStore(SWAPPED_SIGNER), r"TrustStore\(\[TrustedKey\("),
    (lambda: TrustedKey(key=SWAPPED_SIGNER, origins=ANYWHERE), r"key=signer\.public_key"),
    (lambda: principal_of(KEY), r"did not come through protect"),
    (lambda: protect(CLASS, card=CARD, verifiers={}), r"app: Starlette is a class; write Starlette\(\)"),
    (lambda: protect(MAKER, card=CARD, verifiers={}), r"if it returns one, call it: new_app\(\)"),
    (lambda: protect(NO_APP, card=CARD, verifiers={}), r"does not take \(scope, receive, send\)"),
]


@walk(("call", "words"), WRONG, ids=[words for _, words in WRONG])
def test_arguments_that_are_confused_get_an_error_that_says_what_to_write(
    call: Callable[[], object], words: str
) -> None:
    with pytest.raises(ConfigurationError, match=words):
        call()


@pytest.mark.parametrize("as_given", [str, Path])
def test_a_path_is_text_or_a_path(as_given: Callable[[Path], Any], tmp_path: Path) -> None:
    key, ring, card, trust = (as_given(tmp_path / name) for name in ("key.jwk", "ring.json", "card.json", "trust.toml"))
    save_private_key(key, SIGNER, format="jwk")
    assert load_private_key(key).kid == SIGNER.kid
    save_key_ring(ring, KeyRing.begin(SIGNER, 0.0))
    assert load_key_ring(ring).keys == update_key_ring(ring, lambda held: held).keys
    assert KeyRingFile(ring).signer(1.0).kid == SIGNER.kid
    Path(card).write_bytes(SIGNED)
    assert CardFile(card, trust=TRUST).document(1.0).body == SIGNED
    Path(trust).write_text("version = 1\n")
    assert TrustFile(trust).trust_store() == TrustStore(())
    assert SqliteApiKeys(as_given(tmp_path / "keys.db"), create=True).records() == ()
    assert SqliteCardMemory(as_given(tmp_path / "cards.db"), create=True).records() == ()
    assert str(tmp_path) in repr(CertificateFiles(as_given(tmp_path / "chain.pem"), key, origins=["https://a.example"]))


@pytest.mark.parametrize("as_given", [str, Path])
def test_a_file_that_is_not_there_is_an_error_of_the_operating_system(
    as_given: Callable[[Path], Any], tmp_path: Path
) -> None:
    path = as_given(tmp_path / "no.pem")
    for load in (load_private_key, load_key_ring, KeyRingFile, lambda path: update_key_ring(path, lambda held: held)):
        with pytest.raises(FileNotFoundError):
            load(path)
