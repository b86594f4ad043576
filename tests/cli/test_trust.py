"""``a2a-sign trust``, and what ``verify`` and ``inspect`` make of a trust file."""

from __future__ import annotations

import json
import os
import re
import shlex
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from a2a_trust import Fetcher, generate_signer, publish_jwks, sign_card
from a2a_trust.base.files.watched import stamp_of_path
from a2a_trust.base.strict_json import MAX_BYTES
from a2a_trust.cli.main import main
from a2a_trust.keys import LocalSigner
from a2a_trust.keys.rotation import read_key_ring
from a2a_trust.keys.trust.file import TrustDocument, read_trust
from tests.base.net.test_fetcher import Authority
from tests.cli.conftest import CARD, Done
from tests.cli.test_verify import pruned
from tests.client.agents import serving_agent
from tests.tables import walk

ANN, BOB = (generate_signer(kid=name) for name in ("ann", "bob"))
HOST = "invoice.example.com"
A2aSign = Callable[[str], Done]


@pytest.fixture
def a2a_sign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> A2aSign:
    """Run the command with these arguments, in a folder with the keys of Ann and Bob and cards of theirs."""
    for signer in (ANN, BOB):
        (tmp_path / f"{signer.kid}.jwks.json").write_text(json.dumps(publish_jwks([signer.public_key])))
        (tmp_path / f"{signer.kid}.jwk").write_text(json.dumps(signer.public_key.to_jwk()))
        (tmp_path / f"{signer.kid}.card.json").write_text(json.dumps(sign_card(CARD, signer).card))
    (tmp_path / "both.card.json").write_text(json.dumps(sign_card(sign_card(CARD, ANN).card, BOB).card))
    monkeypatch.chdir(tmp_path)

    def run(arguments: str) -> Done:
        code = main(shlex.split(arguments))
        out, err = capsys.readouterr()
        return Done(code, out, err)

    return run


def written() -> TrustDocument:
    return read_trust(Path("trust.toml").read_bytes(), "trust.toml")


def jwk(signer: LocalSigner) -> str:
    members = [f'{name} = "{value}"' for name, value in signer.public_key.to_jwk().items()]
    return f"jwk = {{ {', '.join(members)} }}"


#: As somebody has written it: in an order and with blanks of his own.
BY_HAND = f"""# Whom we trust. Ask Zoe before you change it.
version   =   1   # stays 1

  # -- the finance agents --
[[trust]]   # Ann's
  origins = [
    "{HOST}",      # the one that pays
    "*.agents.example.com",
  ]
  {jwk(ANN)}

# Travel; see ticket 12
[[trust]]
jwks_url = 'https://travel.example.com/jwks.json'
origins = ['travel.example.com']

[[policy]]
origins = ["bank.example.com"]
parties = ["{ANN.public_key.thumbprint}", "{BOB.public_key.thumbprint}"]   # both

# end of file"""


@pytest.fixture
def by_hand(a2a_sign: A2aSign) -> Path:
    path = Path("trust.toml")
    path.write_text(BY_HAND, encoding="utf-8")
    return path


# add


def test_the_first_entry_makes_the_file(a2a_sign: A2aSign) -> None:
    done = a2a_sign("trust add trust.toml --origin https://Invoice.Example.com:8443/a2a --public-key ann.jwk")
    assert (done.code, done.out, done.err) == (0, f"made trust.toml\n  ann is trusted for {HOST}\n", "")
    (entry,) = written().entries
    assert entry.keys == (ANN.public_key,)
    assert a2a_sign(f"verify ann.card.json --trust trust.toml --origin {HOST}").code == 0
    assert a2a_sign(f"verify bob.card.json --trust trust.toml --origin {HOST}").code == 4


def test_adding_leaves_every_byte_where_it_was(a2a_sign: A2aSign, by_hand: Path) -> None:
    assert a2a_sign("trust add trust.toml --origin b.example.com --jwks bob.jwks.json").code == 0
    assert by_hand.read_text().startswith(f"{BY_HAND}\n\n[[trust]]\n")
    assert len(written().entries) == 3


def test_several_hosts_name_signer_and_times_are_written(a2a_sign: A2aSign) -> None:
    done = a2a_sign(
        "trust add trust.toml --origin a.example --origin '*.b.example' --public-key ann.jwk --name Ann "
        "--signer a2a-js --not-before 2026-01-31 --not-after 2096-01-31T12:00:00+02:00"
    )
    assert "ann is trusted for a.example, *.b.example" in done.out
    text = Path("trust.toml").read_text()
    for line in (
        'origins = ["a.example", "*.b.example"]',
        'name = "Ann"',
        'signer = "a2a-js"',
        "not_before = 2026-01-31T00:00:00Z",
        "not_after = 2096-01-31T10:00:00Z",
    ):
        assert line in text.splitlines()


@pytest.mark.parametrize("options", ["", "--format jwk", "--encrypt", "--encrypt --format jwk"])
def test_a_private_key_is_refused(options: str, a2a_sign: A2aSign, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A2A_SIGN_KEY_PASSPHRASE", "known to the signer")
    assert a2a_sign(f"keygen -o carl {options}").code == 0
    for command in (
        "trust add trust.toml --origin a.example",
        "verify a.json --any-origin",
        "inspect a.json --any-origin",
    ):
        done = a2a_sign(f"{command} --public-key carl")
        assert (done.code, "carl is a private key, which only its signer needs" in done.err) == (2, True)
        assert "--jwks FILE" in done.err
    assert not Path("trust.toml").exists()
    assert a2a_sign("trust add trust.toml --origin a.example --jwks carl.jwks.json").code == 0


def test_a_key_set_on_the_network_is_only_named(a2a_sign: A2aSign) -> None:
    done = a2a_sign("trust add trust.toml --origin a.example --jwks-url https://nowhere.invalid/jwks.json")
    assert (done.code, done.err) == (0, "")
    (entry,) = written().entries
    assert entry.url == "https://nowhere.invalid/jwks.json"


def test_adding_the_same_twice_changes_nothing(a2a_sign: A2aSign) -> None:
    for command in (
        "trust add trust.toml --origin a.example --origin b.example --public-key ann.jwk",
        "trust add trust.toml --origin a.example --jwks-url https://keys.example.com/jwks.json",
    ):
        assert a2a_sign(command).code == 0
        before = stamp_of_path(Path("trust.toml"))
        done = a2a_sign(command)
        assert (done.code, done.out) == (0, "unchanged trust.toml\n  already there; nothing was changed\n")
        assert stamp_of_path(Path("trust.toml")) == before
    Path("both.json").write_text(json.dumps(publish_jwks([ANN.public_key, BOB.public_key])))
    done = a2a_sign("trust add trust.toml --origin b.example --origin a.example --jwks both.json --json")
    assert done.json["added"] == ["bob"]


@pytest.mark.parametrize(
    ("origin", "is_taken"),
    [
        ("a.example.com", True),
        ("*.example.com", True),
        ("*.a.example.com", False),
        ("example.com", False),
        ("b.example.com", False),
        ("x.c.example.com", True),
        ("*.d.c.example.com", True),
        ("c.example.com", False),
    ],
)
def test_a_second_entry_that_would_make_a_name_mean_nothing_is_refused(
    a2a_sign: A2aSign, origin: str, is_taken: bool
) -> None:
    assert (
        a2a_sign("trust add trust.toml --origin a.example.com --origin '*.c.example.com' --public-key ann.jwk").code
        == 0
    )
    before = Path("trust.toml").read_bytes()
    done = a2a_sign(f"trust add trust.toml --origin '{origin}' --jwks ann.jwks.json")
    assert done.code == (2 if is_taken else 0)
    assert (Path("trust.toml").read_bytes() == before) is is_taken
    if is_taken:
        assert "trust.toml, line 4: this entry trusts 'ann' for the same hosts already" in done.err
        (way_out,) = re.findall(r"a2a-sign (trust remove .*)", done.err)
        assert a2a_sign(way_out).code == 0
        assert a2a_sign(f"trust add trust.toml --origin '{origin}' --jwks ann.jwks.json").code == 0


def test_so_is_one_whose_name_a_key_file_or_a_key_set_has(a2a_sign: A2aSign) -> None:
    Path("trust.toml").write_text(f'version = 1\n[[trust]]\norigins = ["{HOST}"]\nkeys = "ann.jwks.json"\n')
    done = a2a_sign(f"trust add trust.toml --origin {HOST} --public-key ann.jwk")
    assert done.code == 2
    assert "line 2: this entry trusts 'ann'" in done.err
    assert "trust remove trust.toml ann.jwks.json" in done.err
    add = "trust add trust.toml --jwks-url https://keys.example.com/k"
    assert a2a_sign(f"{add} --origin '*.example.com'").code == 0
    assert a2a_sign(f"{add} --origin a.example.com").code == 2
    Path("trust.toml").write_text(f"version = 1\n[[trust]]\nunsafe_any_origin = true\n{jwk(ANN)}\n")
    assert a2a_sign("trust add trust.toml --origin a.example.com --public-key ann.jwk").code == 2


def test_adding_a_revoked_key_says_that_it_proves_nothing(a2a_sign: A2aSign) -> None:
    Path("trust.toml").write_text('version = 1\n[[revoked]]\nkid = "ann"\n')
    done = a2a_sign(f"trust add trust.toml --origin {HOST} --public-key ann.jwk")
    assert done.code == 0
    assert "ann: the key was added, but trust.toml revokes it" in done.err
    assert a2a_sign("verify ann.card.json --trust trust.toml --origin-from-card").code == 4


@walk(
    ("arguments", "code", "what"),
    [
        ("--origin 'https://a b/' --public-key ann.jwk", 2, "--origin: URL"),
        ("--origin '*.com' --public-key ann.jwk", 2, "error: --origin: '*.com': write \"*.\" and a parent"),
        ("--origin a.example/path --public-key ann.jwk", 2, "error: --origin: 'a.example/path': write only a host"),
        ("--origin '' --public-key ann.jwk", 2, "only a host"),
        ("--public-key ann.jwk", 2, "--origin"),
        ("--origin a.example", 2, "--public-key --jwks --jwks-url"),
        ("--origin a.example --public-key ann.jwk --jwks ann.jwks.json", 2, "not allowed with"),
        ("--origin a.example --jwks ann.jwks.json --kid x", 2, "--kid works only with --public-key"),
        ("--origin a.example --jwks-url http://a.example/k", 2, "error: --jwks-url: write an https URL"),
        ("--origin a.example --jwks-url https://u:p@a.example/k", 2, "error: --jwks-url: write an https URL"),
        (
            "--origin a.example --public-key ann.jwk --not-before 90d --not-after 30d",
            2,
            "--not-after: write a later moment than --not",
        ),
        (
            "--origin a.example --public-key ann.jwk --not-after 2020-01-01",
            2,
            "--not-after '2020-01-01': this moment has passed",
        ),
        (
            "--origin a.example --public-key ann.jwk --not-before 0001-01-01T00:00:00+14:00",
            2,
            ": this moment is outside of the years",
        ),
        (
            "--origin a.example --public-key ann.jwk --not-after 9999-12-31T23:59:59-14:00",
            2,
            ": this moment is outside of the years",
        ),
        ("--origin a.example --public-key ann.jwk --not-before soon", 2, "--not-before 'soon': write 90d"),
        ("--origin a.example --public-key ann.jwk --signer pruned", 2, "invalid choice"),
        ("--origin a.example --public-key ann.jwk --name ''", 2, "error: --name: write 1 to 128 printable characters"),
        (
            "--origin a.example --jwks two.json --name Ann",
            2,
            "--name: two.json has 2 keys, and --jwks makes an entry for each key",
        ),
        ("--origin a.example --public-key ann.jwks.json", 2, "give it with --jwks"),
        ("--origin a.example --jwks ann.jwk", 2, "JWK Set: no list of keys"),
        ("--origin a.example --jwks text.json", 2, "JWK Set"),
        ("--origin a.example --jwks none.json", 2, "no key in this JWK Set can verify a card"),
        ("--origin a.example --jwks secret.json", 2, "it holds a symmetric key"),
        ("--origin a.example --jwks missing.json", 6, "missing.json"),
        ("--origin a.example --public-key missing.jwk", 6, "missing.jwk"),
    ],
)
def test_what_cannot_be_added_makes_no_file(a2a_sign: A2aSign, arguments: str, code: int, what: str) -> None:
    Path("text.json").write_text("no JSON")
    Path("two.json").write_text(json.dumps(publish_jwks([ANN.public_key, BOB.public_key])))
    Path("none.json").write_text('{"keys": [{"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}]}')
    Path("secret.json").write_text('{"keys": [{"kty": "oct", "k": "AAAA"}]}')
    done = a2a_sign(f"trust add trust.toml {arguments}")
    assert done.code == code
    assert what in done.err
    assert not Path("trust.toml").exists()


def test_bad_keys_of_a_set_are_told_and_the_others_added(a2a_sign: A2aSign) -> None:
    keys = [{"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}, ANN.public_key.to_jwk()]
    Path("mixed.json").write_text(json.dumps({"keys": keys}))
    done = a2a_sign("trust add trust.toml --origin a.example --jwks mixed.json")
    assert done.code == 0
    assert "mixed.json: skipped key 0" in done.err
    assert [entry.keys for entry in written().entries] == [(ANN.public_key,)]


# remove


def test_removing_takes_the_lines_of_the_entry_and_no_others(a2a_sign: A2aSign, by_hand: Path) -> None:
    done = a2a_sign("trust remove trust.toml ann")
    assert (done.code, done.out) == (0, f"removed ann\n  it was trusted for {HOST}, *.agents.example.com\n")
    begins, ends = BY_HAND.index("[[trust]]   # Ann's"), BY_HAND.index("\n# Travel")
    assert by_hand.read_text() == BY_HAND[:begins] + BY_HAND[ends:]
    assert a2a_sign("trust remove trust.toml https://travel.example.com/jwks.json").code == 0
    assert written().entries == ()
    assert "# Travel; see ticket 12" in by_hand.read_text()


def test_every_entry_of_the_key_goes(a2a_sign: A2aSign) -> None:
    for host in ("a.example", "b.example"):
        assert a2a_sign(f"trust add trust.toml --origin {host} --public-key ann.jwk").code == 0
    assert a2a_sign("trust add trust.toml --origin a.example --public-key bob.jwk").code == 0
    done = a2a_sign("trust remove trust.toml ann --json")
    assert done.json == {
        "command": "trust remove",
        "ok": True,
        "exit": 0,
        "file": "trust.toml",
        "removed": "ann",
        "entries": 2,
    }
    assert [entry.keys[0].kid for entry in written().entries] == ["bob"]


@pytest.mark.parametrize("what", ["carl", "https://other.example.com/jwks.json", "", "invoice.example.com"])
def test_removing_what_is_not_there_is_told(a2a_sign: A2aSign, by_hand: Path, what: str) -> None:
    done = a2a_sign(f"trust remove trust.toml '{what}'")
    assert done.code == 2
    assert "no entry has the kid, name, URL or file" in done.err
    assert by_hand.read_text() == BY_HAND


def test_a_key_of_a_key_file_is_taken_out_there(a2a_sign: A2aSign) -> None:
    Path("trust.toml").write_text(f'version = 1\n[[trust]]\norigins = ["{HOST}"]\nkeys = "ann.jwks.json"\n')
    done = a2a_sign("trust remove trust.toml ann")
    assert done.code == 2
    assert "'ann' is a key in ann.jwks.json, which line 2 names" in done.err
    assert a2a_sign("trust remove trust.toml ann.jwks.json").code == 0
    assert Path("trust.toml").read_text() == "version = 1\n"


def test_an_entry_that_is_named_elsewhere_stays_and_the_lines_that_name_it_are_told(a2a_sign: A2aSign) -> None:
    named = f'[[trust]]\nname = "Ann"\norigins = ["{HOST}"]\n{jwk(ANN)}\n'
    policy = f'[[policy]]\norigins = ["{HOST}"]\nparties = ["Ann"]\n'
    revoked = '[[revoked]]\nkid = "old"\nentry = "Ann"\n'
    before = f"version = 1\n{named}{policy}{revoked}"
    Path("trust.toml").write_text(before)
    for what in ("Ann", "ann"):
        done = a2a_sign(f"trust remove trust.toml {what}")
        assert done.code == 2
        assert "trust.toml: this entry is still named on line 8 (policy.parties), line 11 (revoked.entry); " in done.err
        assert Path("trust.toml").read_text() == before
    Path("trust.toml").write_text(f"version = 1\n{named}")
    assert a2a_sign("trust remove trust.toml Ann").code == 0


def test_an_entry_goes_whole_though_its_last_line_looks_like_a_comment(a2a_sign: A2aSign) -> None:
    pem = ANN.public_key.to_pem().decode()
    text = f"version = 1\n[[trust]]\norigins = ['{HOST}']\npem = '''{pem}'''\nkid = '''ann\n# no comment'''\n"
    Path("trust.toml").write_text(text)
    assert a2a_sign("trust remove trust.toml 'ann\n# no comment'").code == 0
    assert Path("trust.toml").read_text() == "version = 1\n"


# revoke


def test_a_revoked_key_proves_nothing_any_more(a2a_sign: A2aSign, by_hand: Path) -> None:
    assert a2a_sign(f"verify ann.card.json --trust trust.toml --origin {HOST}").code == 0
    begun = int(time.time())
    done = a2a_sign("trust revoke trust.toml ann --reason 'its \"laptop\" was lost'")
    assert done.code == 0
    assert done.out == f"revoked ann\n  {HOST} loses ann; no key left\n  *.agents.example.com loses ann; no key left\n"
    assert by_hand.read_text().startswith(f"{BY_HAND}\n\n[[revoked]]\n")
    (revoked,) = written().revoked
    assert (revoked.kid, revoked.thumbprint) == ("ann", ANN.public_key.thumbprint)
    assert (revoked.entry, revoked.reason) == (None, 'its "laptop" was lost')
    assert revoked.at is not None
    assert begun <= revoked.at <= time.time()
    assert a2a_sign(f"verify ann.card.json --trust trust.toml --origin {HOST}").code == 4


def test_revoking_it_again_changes_nothing(a2a_sign: A2aSign, by_hand: Path) -> None:
    assert a2a_sign("trust revoke trust.toml ann").code == 0
    before = stamp_of_path(by_hand)
    done = a2a_sign("trust revoke trust.toml ann --reason later")
    assert (done.code, done.out) == (0, "revoked ann\n  it was revoked before; nothing was changed\n")
    assert stamp_of_path(by_hand) == before


def test_a_revoked_key_does_not_return_under_another_name(a2a_sign: A2aSign, by_hand: Path) -> None:
    assert a2a_sign("trust revoke trust.toml ann").code == 0
    Path("again.jwk").write_text(json.dumps({**ANN.public_key.to_jwk(), "kid": "ann-2"}))
    assert a2a_sign("trust remove trust.toml ann").code == 0
    done = a2a_sign(f"trust add trust.toml --origin {HOST} --public-key again.jwk")
    assert "ann-2: the key was added, but trust.toml revokes it" in done.err
    Path("again.json").write_text(json.dumps(sign_card(CARD, LocalSigner(ANN.private_key, kid="ann-2")).card))
    assert a2a_sign(f"verify again.json --trust trust.toml --origin {HOST}").code == 4


def test_a_key_in_a_key_file_is_revoked_by_its_thumbprint(a2a_sign: A2aSign) -> None:
    Path("trust.toml").write_text(f'version = 1\n[[trust]]\norigins = ["{HOST}"]\nkeys = "ann.jwks.json"\n')
    assert a2a_sign("trust revoke trust.toml ann").code == 0
    assert written().revoked[0].thumbprint == ANN.public_key.thumbprint


def test_a_revocation_does_not_wait_for_the_key_file_of_another_entry(a2a_sign: A2aSign) -> None:
    gone = f'[[trust]]\norigins = ["{HOST}"]\nkeys = "gone.json"\n'
    Path("trust.toml").write_text(f'version = 1\n{gone}[[trust]]\norigins = ["{HOST}"]\nkeys = "ann.jwks.json"\n')
    unknown = a2a_sign("trust revoke trust.toml bob")  # it may be in that file
    assert unknown.code == 2
    assert "line 2: gone.json: No such file" in unknown.err
    assert "--thumbprint" in unknown.err
    assert written().revoked == ()
    done = a2a_sign("trust revoke trust.toml ann")
    assert done.code == 0
    assert (
        "warning: this file could not be searched for the kid: trust.toml, line 2: gone.json: No such file" in done.err
    )
    assert [key.thumbprint for key in written().revoked] == [ANN.public_key.thumbprint]


def test_an_unknown_kid_is_told_with_the_ways_to_revoke_it(a2a_sign: A2aSign, by_hand: Path) -> None:
    done = a2a_sign("trust revoke trust.toml carl")
    assert done.code == 2
    assert "no key in trust.toml, or in a key file that it names, has the kid 'carl'" in done.err
    assert "add --entry NAME|URL" in done.err
    assert "--thumbprint" in done.err
    assert by_hand.read_text() == BY_HAND
    thumbprint = generate_signer().public_key.thumbprint
    done = a2a_sign(f"trust revoke trust.toml --thumbprint={thumbprint} --json")
    (key,) = done.json["keys"]
    assert (done.code, key["thumbprint"], key["was_revoked"]) == (0, thumbprint, False)
    assert [key.thumbprint for key in written().revoked] == [thumbprint]
    assert a2a_sign(f"trust revoke trust.toml --thumbprint={thumbprint} --json").json["keys"][0]["was_revoked"] is True


def test_all_keys_of_a_published_set_are_revoked_also_those_that_the_file_does_not_have(a2a_sign: A2aSign) -> None:
    stranger = generate_signer().public_key
    Path("both.json").write_text(json.dumps({"keys": [ANN.public_key.to_jwk(), stranger.to_jwk()]}))
    a2a_sign(f"trust add trust.toml --origin {HOST} --origin other.example.com --jwks ann.jwks.json")
    a2a_sign(f"trust add trust.toml --origin {HOST} --public-key bob.jwk")
    before = Path("trust.toml").read_bytes()
    refused = a2a_sign("trust revoke trust.toml --jwks both.json")
    assert (refused.code, Path("trust.toml").read_bytes()) == (2, before)
    assert "no key would be left for other.example.com; nothing was changed" in refused.err
    done = a2a_sign("trust revoke trust.toml --jwks both.json --yes --reason leaked")
    assert done.code == 0
    assert f"  {HOST} loses ann; 1 left\n  other.example.com loses ann; no key left" in done.out
    thumbprints = {ANN.public_key.thumbprint, stranger.thumbprint}
    assert {key.thumbprint for key in written().revoked} == thumbprints
    assert a2a_sign(f"verify ann.card.json --trust trust.toml --origin {HOST}").code == 4
    again = a2a_sign("trust revoke trust.toml --jwks both.json --json")
    assert ([key["was_revoked"] for key in again.json["keys"]], again.json["hosts"]) == ([True, True], [])


def test_a_key_set_on_the_network_is_a_key_left_and_a_key_of_tomorrow_is_none(a2a_sign: A2aSign) -> None:
    for origins in ('"a.example.com"', '"*.b.example.com"', '"c.example.com"'):
        a2a_sign(f"trust add trust.toml --origin {origins} --jwks ann.jwks.json")
    a2a_sign("trust add trust.toml --origin a.example.com --jwks-url https://a.example.com/jwks.json")
    a2a_sign("trust add trust.toml --origin x.b.example.com --public-key bob.jwk")  # is no key for other hosts below b
    a2a_sign("keygen -o carl.pem --kid carl")
    a2a_sign("trust add trust.toml --origin c.example.com --jwks carl.jwks.json --not-before 1d")
    rows = a2a_sign("trust revoke trust.toml --jwks ann.jwks.json --yes --json").json["hosts"]
    assert [(row["host"], row["left"]) for row in rows] == [
        ("a.example.com", 1),
        ("*.b.example.com", 0),
        ("c.example.com", 0),
        ("x.b.example.com", 1),
    ]


def test_a_key_that_the_key_set_of_another_entry_revokes_is_no_key_left(a2a_sign: A2aSign) -> None:
    a2a_sign(f"trust add trust.toml --origin {HOST} --jwks ann.jwks.json")
    a2a_sign(f"trust add trust.toml --origin {HOST} --public-key bob.jwk")
    bob = {**json.loads(Path("bob.jwk").read_text()), "use": "enc", "revoked": {"revoked_at": 1}}  # not read as a key
    Path("others.json").write_text(json.dumps({"keys": [bob, generate_signer().public_key.to_jwk()]}))
    with Path("trust.toml").open("a") as file:
        file.write('\n[[trust]]\norigins = ["other.example.com"]\nkeys = "others.json"\n')
    refused = a2a_sign("trust revoke trust.toml --jwks ann.jwks.json")
    assert refused.code == 2
    assert f"no key would be left for {HOST}" in refused.err


def test_of_a_ring_the_public_keys_are_revoked_without_its_private_ones(a2a_sign: A2aSign) -> None:
    for line in ("keys create ring.json", "keys rotate ring.json", "keys export ring.json -o published.json"):
        assert a2a_sign(line).code == 0
    a2a_sign(f"trust add trust.toml --origin {HOST} --jwks published.json")
    ring = json.loads(Path("ring.json").read_text())
    for key in ring["keys"]:
        key["private_key"] = "damaged"
    Path("ring.json").write_text(json.dumps(ring))
    assert a2a_sign("trust revoke trust.toml --ring ring.json").code == 2
    assert a2a_sign("trust revoke trust.toml --ring ring.json --yes").code == 0
    assert len(written().revoked) == 2
    assert a2a_sign("trust revoke trust.toml --ring published.json --yes").code == 2
    assert a2a_sign("trust revoke trust.toml ann --ring ring.json").code == 2
    assert a2a_sign("trust revoke trust.toml --thumbprint x --ring ring.json").code == 2


def test_a_kid_of_a_fetched_set_is_revoked_in_its_entry(a2a_sign: A2aSign, by_hand: Path) -> None:
    url = "https://travel.example.com/jwks.json"
    done = a2a_sign(f"trust revoke trust.toml ann --entry {url}")
    assert done.code == 0
    assert f"the kid is revoked in the entry {url} only" in done.out
    (revoked,) = written().revoked
    assert (revoked.kid, revoked.thumbprint, revoked.entry) == ("ann", None, url)
    assert a2a_sign(f"verify ann.card.json --trust trust.toml --origin {HOST}").code == 0  # another entry's key
    assert a2a_sign("trust remove trust.toml " + url).code == 2  # the revocation names it
    assert written().revoked == (revoked,)


def test_two_keys_of_one_kid_are_told_apart(a2a_sign: A2aSign) -> None:
    twin = generate_signer(kid="ann")
    Path("twin.jwk").write_text(json.dumps(twin.public_key.to_jwk()))
    for name, key in (("Ann", "ann"), ("Twin", "twin")):
        assert a2a_sign(f"trust add trust.toml --origin {HOST} --public-key {key}.jwk --name {name}").code == 0
    done = a2a_sign("trust revoke trust.toml ann")
    assert done.code == 2
    assert "2 keys of trust.toml have the kid 'ann'; name one of them with --thumbprint" in done.err
    assert a2a_sign("trust revoke trust.toml ann --entry Twin").code == 0
    assert [key.thumbprint for key in written().revoked] == [twin.public_key.thumbprint]
    assert [row["state"] for row in a2a_sign("trust list trust.toml --json").json["entries"]] == ["trusted", "revoked"]


@walk(
    ("arguments", "what"),
    [
        ("", "name the key: KID, or --thumbprint"),
        ("''", "has the kid ''"),
        ("'\udcff'", "has the kid '\\udcff'"),
        ("ann --entry Carl", "--entry: no entry of trust.toml has the name or jwks_url 'Carl'"),
        ("--thumbprint x", "not an RFC 7638 thumbprint"),
        (f"--thumbprint {'M' * 43} --fetch", "leave out --entry and --fetch"),
    ],
)
def test_what_names_no_key_is_refused(a2a_sign: A2aSign, by_hand: Path, arguments: str, what: str) -> None:
    done = a2a_sign(f"trust revoke trust.toml {arguments}")
    assert done.code == 2
    assert what in done.err
    assert by_hand.read_text() == BY_HAND


# list


def test_the_list_says_who_may_speak_for_whom(a2a_sign: A2aSign) -> None:
    Path("trust.toml").write_text(f'version = 1\n[[trust]]\norigins = ["{HOST}"]\nkeys = "bob.jwk"\n')
    for command in (
        f"add trust.toml --origin {HOST} --public-key ann.jwk --not-after 2096-01-31 --signer a2a-python --name Ann",
        "add trust.toml --origin a.example --jwks-url https://keys.example.com/k --not-before 2095-01-01",
        "revoke trust.toml bob --reason gone",
    ):
        assert a2a_sign(f"trust {command}").code == 0
    with Path("trust.toml").open("a") as file:
        file.write('[[policy]]\norigins = ["*.example.com"]\nparties = ["Ann"]\ncount = 1\n')
    done = a2a_sign("trust list trust.toml")
    assert (done.code, done.err) == (0, "")
    head, bob, ann, remote, policy, revoked = done.out.splitlines()
    columns = [re.split(r"\s{2,}", line) for line in (head, bob, ann, remote)]
    always, until, later = "always", "until 2096-01-31T00:00:00Z", "from 2095-01-01T00:00:00Z"
    assert columns == [
        ["KID", "ALG", "NAME", "TRUSTED FOR", "SIGNER", "VALID", "STATE", "KEY FROM"],
        ["bob", "ES256", HOST, always, "revoked", "bob.jwk"],
        ["ann", "ES256", "Ann", HOST, "a2a-python", until, "trusted", "here"],
        ["(of the set)", "a.example", later, "not yet valid", "https://keys.example.com/k"],
    ]
    assert policy == "policy: cards of *.example.com need signatures by all of Ann"
    assert re.fullmatch(r"revoked: bob since \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ: gone", revoked)
    report = a2a_sign("trust list trust.toml --json").json
    assert [(entry["kid"], entry["state"]) for entry in report["entries"]] == [
        ("bob", "revoked"),
        ("ann", "trusted"),
        (None, "not yet valid"),
    ]
    assert report["policies"] == [{"origins": ["*.example.com"], "parties": ["Ann"], "count": 1}]
    assert report["revoked"][0]["reason"] == "gone"
    assert report["entries"][1]["thumbprint"] == ANN.public_key.thumbprint


def test_a_list_is_read_as_every_command_reads_a_trust_file(a2a_sign: A2aSign, by_hand: Path) -> None:
    """It does not show as trusted what no other command would trust."""
    by_hand.chmod(0o666)
    done = a2a_sign("trust list trust.toml")
    assert (done.code, done.out) == (2, "")
    assert done.err == a2a_sign("trust remove trust.toml ann").err
    by_hand.chmod(0o644)
    assert a2a_sign("trust list trust.toml").code == 0
    with by_hand.open("a") as file:
        file.write("#" * MAX_BYTES)
    done = a2a_sign("trust list trust.toml")
    assert (done.code, done.out) == (2, "")


def test_nothing_in_the_file_steers_the_terminal(a2a_sign: A2aSign) -> None:
    Path("trust.toml").write_text('version = 1\n[[revoked]]\nkid = "a\\u001b[2J"\nreason = "x\\n\\u202ey"\n')
    done = a2a_sign("trust list trust.toml")
    assert "revoked: a\\x1b[2J: x\\n\\u202ey" in done.out


# Files that cannot be changed


BROKEN = [
    ("version = 1\n[[trust]\n", "in TOML: .*line 2"),
    ("version = 2\n", "line 1: version: write version = 1"),
    ("version = 1\n\n[[trsut]]\n", r"line 3: trsut: unknown member"),
    ("version = 1\n[[trust]]\norigins = ['a.example']\nkey = 'k'\n", r"line 4: trust\[0\]\.key: unknown member"),
    ("version = 1\ntrust = [{jwks_url = 'https://a.example/k', origins = ['a.example']}]\n", r"line 2: trust: begin"),
    ("version = 1\n[[revoked]]\nkid = 7\n", r"line 3: revoked\[0\]\.kid: write a text"),
]  # fmt: skip


@walk("action", ["add trust.toml --origin a.example --public-key ann.jwk", "remove trust.toml ann",
                                    "revoke trust.toml ann", "list trust.toml"])  # fmt: skip
@walk(("text", "what"), BROKEN)
def test_a_file_that_cannot_be_read_is_told_by_line_and_member_and_left_as_it_is(
    a2a_sign: A2aSign, action: str, text: str, what: str
) -> None:
    path = Path("trust.toml")
    path.write_text(text)
    before = stamp_of_path(path)
    done = a2a_sign(f"trust {action}")
    assert (done.code, done.out) == (2, "")
    assert re.search(rf"^a2a-sign: error: trust\.toml(:|,) .*{what}", done.err)
    assert stamp_of_path(path) == before
    report = a2a_sign(f"trust {action} --json").json
    assert (report["ok"], report["error"]["class"], report["command"]) == (False, "usage", f"trust {action.split()[0]}")
    for command in ("verify", "inspect"):
        done = a2a_sign(f"{command} ann.card.json --trust trust.toml --origin-from-card")
        assert done.code == 2
        assert re.search(what, done.err)


def test_a_file_that_is_not_there_is_made_by_nothing_but_add(a2a_sign: A2aSign) -> None:
    for action in ("remove trust.toml ann", "revoke trust.toml ann", "list trust.toml"):
        done = a2a_sign(f"trust {action}")
        assert done.code == 6
        assert "to make one: a2a-sign trust add trust.toml" in done.err
    assert a2a_sign("verify ann.card.json --trust trust.toml --origin-from-card").code == 6
    assert not Path("trust.toml").exists()
    done = a2a_sign("trust add folder/trust.toml --origin a.example --public-key ann.jwk")
    assert done.code == 6
    assert done.err == "a2a-sign: error: folder/trust.toml: No such file or directory\n"


@contextmanager
def as_somebody_else() -> Iterator[None]:
    """Root may write everywhere; nobody may not."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_folder_that_may_not_be_written_leaves_the_file(a2a_sign: A2aSign) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "trust.toml"
        path.write_text(BY_HAND)
        if os.geteuid() == 0:
            os.chown(path, 65534, -1)  # theirs to write, other than the folder
        folder.chmod(0o555)
        before = stamp_of_path(path)
        with as_somebody_else():
            done = a2a_sign(f"trust revoke {path} ann")
            fresh = a2a_sign(f"trust revoke {folder}/new.toml ann")
        folder.chmod(0o755)
        assert done.code == 6
        assert done.err.startswith(
            f"a2a-sign: error: {path}: Permission denied; you need the right to write to its folder"
        )
        assert fresh.code == 6
        assert stamp_of_path(path) == before
        assert [each.name for each in folder.iterdir()] == ["trust.toml"]


# verify --trust and inspect --trust


def trusting(*tables: str) -> None:
    Path("trust.toml").write_text("version = 1\n" + "\n".join(tables))


def entry(signer: LocalSigner = ANN, host: str = HOST, *more: str) -> str:
    return "\n".join(["[[trust]]", f'origins = ["{host}"]', jwk(signer), *more, ""])


REVOKED = '[[revoked]]\nkid = "ann"\n'
BOTH = f'[[policy]]\norigins = ["{HOST}"]\nparties = ["{ANN.public_key.thumbprint}", "{BOB.public_key.thumbprint}"]\n'
JS = 'signer = "a2a-js"'
OUT_OF_REACH = f'[[trust]]\norigins = ["{HOST}"]\njwks_url = "https://127.0.0.1:9/jwks.json"\n'


AT_HOST = f"--origin {HOST}"
FROM_CARD = "--origin-from-card"
CLASSES = {0: "ok", 1: "invalid", 4: "untrusted", 5: "uncovered"}


@walk("command", ["verify", "inspect"])
@walk(
    ("tables", "card", "origin", "code", "what"),
    [
        ([entry()], "ann", AT_HOST, 0, "verified"),
        ([entry(ANN, "*.example.com")], "ann", f"--origin https://{HOST}/a2a", 0, "verified"),
        ([entry()], "ann", "--any-origin", 0, "verified"),
        ([entry()], "ann", "--origin evil.example.com", 4, "the key is not trusted for evil.example.com"),
        ([entry(ANN, "other.example.com")], "ann", AT_HOST, 4, f"the key is not trusted for {HOST}"),
        ([entry(ANN, "other.example.com")], "ann", "--any-origin", 4, f"the key is not trusted for the host {HOST}"),
        ([entry()], "ann", FROM_CARD, 0, "verified"),
        ([entry(ANN, "other.example.com")], "ann", FROM_CARD, 4, f"the key is not trusted for {HOST}"),
        ([entry()], "spread", FROM_CARD, 4, "the key is not trusted for the host other.example.com"),
        ([entry(), entry(BOB), BOTH], "ann", FROM_CARD, 4, "1 of the 2 parties that the policy requires"),
        ([entry()], "bob", AT_HOST, 4, "no trusted EC key has this kid"),
        ([], "ann", AT_HOST, 4, "no trusted EC key has this kid"),
        ([entry(), REVOKED], "ann", AT_HOST, 4, "the key is revoked"),
        ([entry(), entry(BOB), REVOKED], "both", AT_HOST, 0, "verified"),
        ([entry(ANN, HOST, "not_before = 2090-01-01")], "ann", AT_HOST, 4, "not valid before 2090-01-01T00:00:00Z"),
        ([entry(ANN, HOST, "not_after = 2020-01-01")], "ann", AT_HOST, 4, "expired on 2020-01-01T00:00:00Z"),
        ([entry(ANN, HOST, "not_before = 2020-01-01", "not_after = 2090-01-01")], "ann", AT_HOST, 0, "verified"),
        ([entry()], "loose", AT_HOST, 5, "a valid signature, but nothing shows that it covers"),
        ([entry(ANN, HOST, JS)], "loose", AT_HOST, 5, "does not cover these members of the card"),
        ([entry(ANN, HOST, JS)], "pruned", AT_HOST, 0, "/securityRequirements"),
        ([entry(), entry(BOB), BOTH], "ann", AT_HOST, 4, "1 of the 2 parties that the policy requires"),
        ([entry(), entry(BOB), BOTH], "both", AT_HOST, 0, "verified"),
        ([entry(), entry(BOB), BOTH, "count = 1\n"], "bob", AT_HOST, 0, "verified"),
        ([entry(), BOTH], "ann", "--any-origin", 4, "1 of the 2 parties that the policy requires"),
        ([OUT_OF_REACH], "ann", AT_HOST, 4, "no trusted EC key has this kid"),
        ([OUT_OF_REACH, entry(BOB)], "bob", AT_HOST, 0, "verified"),
    ],
)
def test_what_a_trust_file_makes_of_a_card(
    a2a_sign: A2aSign, command: str, tables: list[str], card: str, origin: str, code: int, what: str
) -> None:
    trusting(*tables)
    Path("pruned.card.json").write_bytes(pruned(CARD, ANN))
    loose = {**CARD, "securityRequirements": [{"schemes": {"bearer": {}}}]}  # which that form drops
    Path("loose.card.json").write_bytes(pruned(loose, ANN))
    spread = [*CARD["supportedInterfaces"], {**CARD["supportedInterfaces"][0], "url": "https://other.example.com/"}]
    Path("spread.card.json").write_text(json.dumps(sign_card({**CARD, "supportedInterfaces": spread}, ANN).card))
    arguments = f"{command} {card}.card.json --trust trust.toml {origin}"
    done = a2a_sign(arguments)
    assert done.code == code
    assert what in done.out
    assert ("NOT VERIFIED" in done.out) is (code != 0)
    assert ("continuing without the keys of this key set: https://127.0.0.1:9/jwks.json: unreachable" in done.err) is (
        OUT_OF_REACH in tables
    )
    (result,) = a2a_sign(f"{arguments} --json").json["results"]
    assert (result["ok"], result["class"]) == (code == 0, CLASSES[code])


def test_the_keys_of_a_set_on_the_network_prove_cards_of_the_hosts_that_it_is_named_for(
    a2a_sign: A2aSign, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path_factory.mktemp("authority"))
    with serving_agent(authority.server("127.0.0.1")) as agent:
        url = agent.origin("127.0.0.1")
        agent.pages["/k"] = json.dumps(publish_jwks([ANN.public_key])).encode()
        fetcher = Fetcher(private_origins=[url], ssl_context=authority.client())
        monkeypatch.setattr("a2a_trust.base.net.fetcher.Fetcher", lambda: fetcher)
        trusting(f'[[trust]]\norigins = ["{HOST}"]\njwks_url = "{url}/k"\n')
        done = a2a_sign(f"verify ann.card.json ann.card.json --trust trust.toml --origin {HOST}")
        assert (done.code, done.err) == (0, "")
        assert agent.paths() == ["/k"]
        assert (
            a2a_sign("verify ann.card.json --trust trust.toml --origin-from-card").code == 0
        )  # by the host of its interface
        assert a2a_sign("verify ann.card.json --trust trust.toml --origin other.example.com").code == 4
        assert agent.paths() == ["/k", "/k"]  # whose keys are nobody's business there
        assert a2a_sign("trust revoke trust.toml ann").code == 2  # nobody wrote that key down
        assert a2a_sign(f"trust revoke trust.toml eve --entry {url}/k --fetch").code == 2
        assert a2a_sign(f"trust revoke trust.toml ann --entry {url}/k --fetch").code == 0
        assert written().revoked[0].thumbprint == ANN.public_key.thumbprint
        assert a2a_sign(f"inspect ann.card.json --trust trust.toml --origin {HOST}").code == 4


def test_a_card_without_interfaces_has_no_origin_of_its_own(a2a_sign: A2aSign) -> None:
    trusting(entry())
    Path("homeless.json").write_text(json.dumps(sign_card({**CARD, "supportedInterfaces": []}, ANN).card))
    for command in ("verify", "inspect"):
        done = a2a_sign(f"{command} homeless.json --trust trust.toml --origin-from-card")
        assert (done.code, "no interface, so no host can be read from it" in done.out + done.err) == (1, True)
    assert a2a_sign(f"verify homeless.json --trust trust.toml --origin {HOST}").code == 0


@walk("command", ["verify", "inspect"])
def test_keys_come_from_the_trust_file_alone(a2a_sign: A2aSign, command: str) -> None:
    trusting(entry())
    for more in ("--public-key bob.jwk", "--jwks bob.jwks.json", "--signer a2a-js", "--kid ann"):
        done = a2a_sign(f"{command} ann.card.json --trust trust.toml --any-origin {more}")
        assert done.code == 2
        assert "--trust already names keys and signers" in done.err


def test_a_key_file_that_is_gone_is_told_with_the_line_that_names_it(a2a_sign: A2aSign) -> None:
    trusting(f'[[trust]]\norigins = ["{HOST}"]\nkeys = "gone.json"\n')
    for command in (
        "verify ann.card.json --any-origin --trust",
        "inspect ann.card.json --any-origin --trust",
        "trust list",
    ):
        done = a2a_sign(f"{command} trust.toml")
        assert done.code == 2
        assert "trust.toml, line 2: gone.json: No such file" in done.err


def test_a_rotation_goes_by_the_trust_file(a2a_sign: A2aSign) -> None:
    for command in (
        "keys create ring.json",
        "keys export ring.json -o one.json",
        f"trust add trust.toml --origin {HOST} --jwks one.json",
        "keys rotate ring.json",
        "keys export ring.json -o two.json",
        f"trust add trust.toml --origin {HOST} --jwks two.json",
    ):
        assert a2a_sign(command).code == 0
    keys = read_key_ring(Path("ring.json").read_bytes()).published(time.time())
    assert {entry.keys[0] for entry in written().entries} == set(keys)
    assert len(written().entries) == 2


def test_help_names_every_action(a2a_sign: A2aSign) -> None:
    assert "{add,remove,list,revoke}" in a2a_sign("trust --help").out


@pytest.mark.parametrize("option", ["--junit", "--code-quality"])
def test_a_report_for_a_pipeline_replaces_only_an_earlier_one(a2a_sign: A2aSign, option: str) -> None:
    a2a_sign(f"trust add trust.toml --origin {HOST} --jwks ann.jwks.json")
    a2a_sign("keygen -o own.pem")
    Path("folder").mkdir()
    for command in ("lint ann.card.json", f"verify ann.card.json --trust trust.toml --origin {HOST}"):
        for taken in ("ann.card.json", "trust.toml", "own.pem", "ann.jwks.json", "folder"):
            before = Path(taken).read_bytes() if taken != "folder" else b""
            done = a2a_sign(f"{command} {option}={taken}")
            assert (done.code, done.out) == (2, "")
            assert f"{option} {taken}: it is not an earlier report, so it stays; name another file" in done.err
            assert (Path(taken).read_bytes() if taken != "folder" else b"") == before
        for _ in range(2):
            assert a2a_sign(f"{command} {option}=report").code == 0
        assert a2a_sign(f"lint bob.jwk {option}=report").code == 1  # with a finding
        assert a2a_sign(f"{command} {option}=report").code == 0
