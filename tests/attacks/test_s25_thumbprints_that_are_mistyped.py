"""S25: a key leaked, its thumbprint in ``[[revoked]]`` is mistyped, and the key goes on to verify in silence.

Measured here: the kid beside a thumbprint is for people, so such a table revoked nothing, and ``trust revoke`` ended
with 0. The thumbprint alone still decides: a publisher chooses kids. But somebody is told.
"""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path

import pytest

from a2a_trust import Fetcher, TrustFile, generate_signer, sign_card
from a2a_trust.cli.main import main
from tests.attacks.forgery import JSONObject
from tests.attacks.verifying import HOST, verified
from tests.base.net.test_fetcher import Authority, Names
from tests.client.agents import serving_agent
from tests.tables import walk

LEAKED, OTHER = generate_signer(kid="leaked"), generate_signer(kid="other")
RIGHT = LEAKED.public_key.thumbprint
MISTYPED = RIGHT[:-2] + ("AA" if not RIGHT.endswith("AA") else "BB")
TOLD = f"no listed key has the revoked thumbprint {MISTYPED}"


@pytest.fixture(params=["inline", "file"])
def trust(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = Path("trust.toml")
    Path("keys.json").write_text(json.dumps({"keys": [LEAKED.public_key.to_jwk(), OTHER.public_key.to_jwk()]}))
    if request.param == "inline":
        assert main(["trust", "add", "trust.toml", "--origin", HOST, "--jwks", "keys.json"]) == 0
    else:
        path.write_text(f'version = 1\n[[trust]]\nname = "bank"\norigins = ["{HOST}"]\nkeys = "keys.json"\n')
    return path


def test_trust_revoke_does_not_end_with_success(
    card: JSONObject, trust: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    for _ in range(2):  # also when it is written already
        assert main(["trust", "revoke", "trust.toml", "leaked", f"--thumbprint={MISTYPED}"]) == 2
        said = capsys.readouterr()
        assert (said.out, TOLD in said.err, RIGHT in said.err) == ("", True, True)
    assert main(["trust", "revoke", "trust.toml", "leaked", f"--thumbprint={MISTYPED}", "--json"]) == 2
    assert TOLD in json.loads(capsys.readouterr().out)["error"]["message"]
    # The thumbprint alone revokes, and the command in the error revokes the key.
    assert verified(sign_card(card, LEAKED).card, TrustFile(trust).trust_store()).key == LEAKED.public_key
    assert "Revoke that key: a2a-sign trust revoke trust.toml leaked;" in said.err
    assert main(["trust", "revoke", "trust.toml", "leaked"]) == 0
    assert [key.revoked for key in TrustFile(trust).trust_store().keys] == [True, False]


def test_trust_list_and_the_log_tell_it(
    trust: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with trust.open("a") as file:
        file.write(f'\n[[revoked]]\nkid = "leaked"\nthumbprint = "{MISTYPED}"\n')
    capsys.readouterr()
    assert main(["trust", "list", "trust.toml"]) == 0
    assert f"warning: trust.toml: [[revoked]]: {TOLD}" in capsys.readouterr().err
    caplog.clear()
    TrustFile(trust)
    assert [TOLD in record.message for record in caplog.records] == [True]


@walk(
    "table",
    [
        f'thumbprint = "{RIGHT}"\nkid = "leaked"',
        f'thumbprint = "{RIGHT}"\nkid = "other"',  # of another listed key, which is revoked
        f'thumbprint = "{MISTYPED}"',
        f'thumbprint = "{MISTYPED}"\nkid = "gone"',
        'kid = "leaked"',
    ],
    ids=range(5),
)
def test_control_a_table_that_shows_no_mistake_is_not_told(
    trust: Path, table: str, caplog: pytest.LogCaptureFixture
) -> None:
    with trust.open("a") as file:
        file.write(f"\n[[revoked]]\n{table}\n")
    with caplog.at_level(logging.WARNING):
        TrustFile(trust)
    assert not caplog.records


def test_only_the_entry_that_the_table_names_is_in_scope(
    trust: Path, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    Path("more.json").write_text(json.dumps({"keys": [OTHER.public_key.to_jwk()]}))
    for entry, told in (("more", False), ("one", True)):
        Path("scope.toml").write_text(
            f'version = 1\n[[trust]]\nname = "one"\norigins = ["{HOST}"]\nkeys = "keys.json"\n'
            f'[[trust]]\nname = "more"\norigins = ["{HOST}"]\nkeys = "more.json"\n'
            f'[[revoked]]\nkid = "leaked"\nthumbprint = "{MISTYPED}"\nentry = "{entry}"\n'
        )
        caplog.clear()
        TrustFile("scope.toml")
        assert [TOLD in record.message for record in caplog.records] == [True] * told


def test_the_log_tells_it_of_a_fetched_set(
    tls_authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with serving_agent(tls_authority.server("keys.test")) as server:
        server.pages["/jwks.json"] = json.dumps({"keys": [LEAKED.public_key.to_jwk()]}).encode()
        url = f"{server.origin('keys.test')}/jwks.json"
        path = tmp_path / "trust.toml"
        revoked = f'[[revoked]]\nkid = "leaked"\nthumbprint = "{MISTYPED}"\nentry = "{url}"\n'
        path.write_text(f'version = 1\n[[trust]]\norigins = ["{HOST}"]\njwks_url = "{url}"\n{revoked}')
        fetcher = Fetcher(
            private_origins=[server.origin("keys.test")],
            ssl_context=tls_authority.client(),
            resolver=Names(keys_test=[["127.0.0.1"]]),
        )
        trust = TrustFile(path, fetcher=fetcher)
        assert not caplog.records
        store = asyncio.run(trust.fetch(HOST))
    assert [key.key for key in store.keys] == [LEAKED.public_key]
    assert [TOLD in record.message for record in caplog.records if record.levelno == logging.WARNING] == [True]
