"""Private keys in files: readable by their owner only, whole or not there, and never in a message."""

from __future__ import annotations

import json
import os
import stat
import threading
import warnings
from pathlib import Path
from typing import Any, Literal

import pytest
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed448, rsa, x25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from a2a_trust.errors import ConfigurationError, MalformedError
from a2a_trust.keys import base64url
from a2a_trust.keys.files import (
    KeyFileWarning,
    PassphraseNeededError,
    load_private_key,
    private_key_bytes,
    read_private_key,
    save_private_key,
)
from a2a_trust.keys.jwk import private_key_to_jwk
from a2a_trust.keys.signer import LocalSigner, generate_signer
from tests.tables import walk

Format = Literal["pem", "jwk"]
FORMATS: list[Format] = ["pem", "jwk"]
SIGNER = generate_signer("ES384", kid="mine")
PASSPHRASE = "correct horse ä\U0001f600"


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def holds_key(path: Path, **how: Any) -> bool:
    return load_private_key(path, **how).public_key.thumbprint == SIGNER.public_key.thumbprint


# --- what is in a file


@pytest.mark.parametrize("passphrase", [None, PASSPHRASE], ids=["plain", "encrypted"])
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("alg", ["ES256", "ES512", "EdDSA", "PS384"])
def test_a_key_comes_back_from_each_kind_of_file(
    tmp_path: Path, alg: str, format: Format, passphrase: str | None, rsa_key: rsa.RSAPrivateKey
) -> None:
    signer = LocalSigner(rsa_key, alg=alg, kid="mine") if alg == "PS384" else generate_signer(alg, kid="mine")
    path = tmp_path / "key"
    save_private_key(path, signer, format=format, passphrase=passphrase)
    if format == "jwk":
        again = load_private_key(path, passphrase=passphrase)
    else:  # PEM holds neither the name nor the algorithm of an RSA key
        again = load_private_key(path, passphrase=passphrase, alg=alg, kid="mine")
    assert again.public_key == signer.public_key
    assert load_private_key(path, passphrase=passphrase, alg=alg, kid="other").kid == "other"


def test_a_passphrase_is_stretched_by_default() -> None:
    token = private_key_bytes(SIGNER, passphrase=PASSPHRASE)
    header = json.loads(base64url.decode(token.split(b".")[0].decode(), "header"))
    assert (header["alg"], header["p2c"] >= 210_000) == ("PBES2-HS512+A256KW", True)
    assert private_key_bytes(SIGNER).startswith(b"-----BEGIN PRIVATE KEY-----")


def test_a_pem_without_a_name_takes_its_thumbprint() -> None:
    assert read_private_key(private_key_bytes(SIGNER)).kid == SIGNER.public_key.thumbprint
    assert read_private_key(private_key_bytes(SIGNER, format="jwk")).kid == "mine"


def test_blanks_around_a_key_do_not_matter() -> None:
    for kind in FORMATS:
        assert read_private_key(b"\n\n  " + private_key_bytes(SIGNER, format=kind) + b"\n\n").alg == "ES384"


def test_a_passphrase_that_is_not_needed_is_not_looked_at() -> None:
    for kind in FORMATS:
        assert read_private_key(private_key_bytes(SIGNER, format=kind), passphrase="any").alg == "ES384"


@pytest.mark.parametrize("format", FORMATS)
def test_an_encrypted_key_shows_nothing_of_itself(format: Format) -> None:
    jwk = private_key_to_jwk(SIGNER.private_key, alg=SIGNER.alg, kid=SIGNER.kid)
    plain = private_key_bytes(SIGNER, format=format)
    encrypted = private_key_bytes(SIGNER, format=format, passphrase=PASSPHRASE)
    assert jwk["d"].encode() not in encrypted
    assert b"mine" not in encrypted
    assert plain not in encrypted
    assert PASSPHRASE.encode() not in encrypted
    assert encrypted.startswith(b"-----BEGIN ENCRYPTED PRIVATE KEY-----" if format == "pem" else b"eyJ")
    assert encrypted != private_key_bytes(SIGNER, format=format, passphrase=PASSPHRASE)  # salted


@pytest.mark.parametrize("format", FORMATS)
def test_the_right_passphrase_is_needed(format: Format) -> None:
    data = private_key_bytes(SIGNER, format=format, passphrase=PASSPHRASE)
    with pytest.raises(PassphraseNeededError, match="encrypted and no passphrase was given"):
        read_private_key(data)
    for wrong in ("", "wrong-s3cret", PASSPHRASE + " ", PASSPHRASE.upper()):
        with pytest.raises(ConfigurationError, match=r"^private key: the passphrase is wrong$") as error:
            read_private_key(data, passphrase=wrong)
        assert not isinstance(error.value, PassphraseNeededError)
        assert error.value.__cause__ is None
    assert read_private_key(data, passphrase=PASSPHRASE).alg == "ES384"


@pytest.mark.parametrize("format", FORMATS)
def test_an_empty_passphrase_protects_nothing_and_is_a_mistake(format: Format) -> None:
    with pytest.raises(ConfigurationError, match="passphrase: it is empty"):
        private_key_bytes(SIGNER, format=format, passphrase="")


def test_an_encrypted_jwk_that_was_changed_does_not_open() -> None:
    token = private_key_bytes(SIGNER, format="jwk", passphrase=PASSPHRASE).strip()
    parts = token.split(b".")
    for index in range(5):
        changed = parts.copy()
        changed[index] = changed[index][:-2] + (b"AA" if changed[index][-2:] != b"AA" else b"BB")
        with pytest.raises((ConfigurationError, MalformedError)):
            read_private_key(b".".join(changed), passphrase=PASSPHRASE)


def test_an_encrypted_text_that_is_no_key_is_refused() -> None:
    from joserfc import jwe
    from joserfc.jwk import OctKey

    names = ["PBES2-HS512+A256KW", "A256GCM"]
    header = {"alg": names[0], "enc": names[1], "p2c": 1_000}
    secret = OctKey.import_key(b"a long passphrase")
    for text in (b"", b"not a key", b"[]", b"{}", b"null"):
        token = jwe.encrypt_compact(header, text, secret, algorithms=names).encode()
        with pytest.raises(MalformedError, match=r"^(private key|JWK): "):
            read_private_key(token, passphrase="a long passphrase")


@pytest.mark.parametrize("passphrase", [None, b"old passphrase"], ids=["plain", "encrypted"])
def test_older_kinds_of_pem_are_read(passphrase: bytes | None, rsa_key: rsa.RSAPrivateKey) -> None:
    encryption = NoEncryption() if passphrase is None else BestAvailableEncryption(passphrase)
    for key, begin in ((SIGNER.private_key, b"BEGIN EC PRIVATE KEY"), (rsa_key, b"BEGIN RSA PRIVATE KEY")):
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, encryption)
        assert begin in pem
        assert read_private_key(pem, passphrase=None if passphrase is None else passphrase.decode()).alg in (
            "ES384",
            "RS256",
        )
        if passphrase is not None:
            with pytest.raises(PassphraseNeededError):
                read_private_key(pem)
            with pytest.raises(ConfigurationError, match="passphrase is wrong"):
                read_private_key(pem, passphrase="wrong")


def test_the_format_of_openssh_is_refused_with_the_way_to_convert_it() -> None:
    pem = SIGNER.private_key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    for passphrase in (None, "passphrase"):
        with pytest.raises(MalformedError, match="ssh-keygen -p -m PKCS8 -f FILE"):
            read_private_key(pem, passphrase=passphrase)


@walk(
    "data",
    [
        b"",
        b" \n",
        b"s3cret",
        b"\x00\x01\x02",
        b"-----BEGIN PRIVATE KEY-----\ns3cret\n-----END PRIVATE KEY-----\n",
        b"-----BEGIN PRIVATE KEY-----\nczNjcmV0\n-----END PRIVATE KEY-----\n",
        b"-----BEGIN CERTIFICATE-----\nczNjcmV0\n-----END CERTIFICATE-----\n",
        b"-----BEGIN s3cret",
        SIGNER.public_key.to_pem(),
        SIGNER.private_key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()),
        b'"s3cret"',
        b"[]",
        b"{}",
        b'{"kty":"EC","d":"s3cret"}',
        b'{"kty":"oct","k":"s3cret"}',
        b'{"kty":"oct","k":"s3cret","d":"s3cret"}',
        b'{"d":"s3cret"',
        b'{"d":"s3cret","d":"s3cret"}',
        json.dumps(SIGNER.public_key.to_jwk()).encode(),
        json.dumps({"keys": [SIGNER.public_key.to_jwk()]}).encode(),
        b"eyJhbGciOiJFUzI1NiJ9.s3cret.s3cret",
        b"\xef\xbb\xbf" + private_key_bytes(SIGNER, format="jwk"),
    ],
)
def test_what_is_no_private_key_is_refused_without_telling_what_it_held(data: bytes) -> None:
    with pytest.raises(MalformedError, match=r"^(private key|JWK): ") as error:
        read_private_key(data, passphrase="s3cret")
    assert "s3cret" not in str(error.value)


@walk(
    "make",
    [
        lambda: ec.generate_private_key(ec.SECP256K1()),
        ed448.Ed448PrivateKey.generate,
        x25519.X25519PrivateKey.generate,
        lambda: dsa.generate_private_key(1024),
    ],
)
def test_keys_of_other_kinds_are_refused(make: Any) -> None:
    pem = make().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    with pytest.raises(MalformedError, match="only EC P-256"):
        read_private_key(pem)


def test_a_short_rsa_key_is_refused() -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    with pytest.raises(MalformedError, match="RSA key of 1024 bits"):
        read_private_key(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def test_an_algorithm_that_does_not_fit_the_key_is_a_mistake() -> None:
    with pytest.raises(ConfigurationError, match="does not fit this key; leave it out, or use ES384"):
        read_private_key(private_key_bytes(SIGNER), alg="ES256")


# --- files and their rights


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o277])
@pytest.mark.parametrize("format", FORMATS)
def test_a_saved_key_is_for_its_owner_only_whatever_the_umask(tmp_path: Path, format: Format, umask: int) -> None:
    path = tmp_path / "key"
    before = os.umask(umask)
    try:
        save_private_key(path, SIGNER, format=format)
    finally:
        os.umask(before)
    assert mode_of(path) == 0o600
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert holds_key(path)
    assert names_in(tmp_path) == ["key"]


def test_a_key_that_everybody_can_read_is_refused_with_the_command_that_mends_it(tmp_path: Path) -> None:
    path = tmp_path / "my key"
    save_private_key(path, SIGNER)
    for mode in (0o644, 0o604, 0o666, 0o777, 0o606):
        path.chmod(mode)
        with pytest.raises(ConfigurationError) as error:
            load_private_key(path)
        assert f"chmod 600 '{path}'" in str(error.value)


def test_a_key_that_everybody_can_replace_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key"
    save_private_key(path, SIGNER)
    for mode in (0o602, 0o622):
        path.chmod(mode)
        with pytest.raises(
            ConfigurationError, match=f"replace the private key; check its content, then run: chmod o-w {path}"
        ):
            load_private_key(path)


def test_a_key_that_its_group_can_read_is_taken_with_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "key"
    save_private_key(path, SIGNER)
    for mode in (0o640, 0o440, 0o660, 0o620):
        path.chmod(mode)
        with pytest.warns(KeyFileWarning, match=f"chmod 600 {path}") as caught:
            assert holds_key(path)
        assert len(caught) == 1
    path.chmod(0o640)
    with pytest.warns(KeyFileWarning) as caught:
        load_private_key(path)
    assert caught[0].filename == __file__  # the warning points at whoever loads the key


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o700])
def test_a_key_of_its_owner_is_taken_silently(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "key"
    save_private_key(path, SIGNER)
    path.chmod(mode)
    assert holds_key(path)  # a warning would be an error here


def test_the_rights_that_count_are_those_of_the_file_behind_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    save_private_key(target, SIGNER)
    link.symlink_to(target)
    assert holds_key(link)
    target.chmod(0o644)
    with pytest.raises(ConfigurationError, match="everybody can read"):
        load_private_key(link)


def test_a_key_is_read_from_a_pipe_whose_rights_say_nothing(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o666)
    pipe.chmod(0o666)
    # A daemon: should the key never be read, the writer waits for a reader for ever, and the tests must still end.
    writer = threading.Thread(target=pipe.write_bytes, args=(private_key_bytes(SIGNER),), daemon=True)
    writer.start()
    assert holds_key(pipe)
    writer.join()


def test_a_file_that_is_too_large_for_a_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(private_key_bytes(SIGNER) + b"\n" * 70_000)
    path.chmod(0o600)
    with pytest.raises(MalformedError, match="larger than 65536 bytes"):
        load_private_key(path)


def test_a_file_that_is_not_there_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load_private_key(tmp_path / "none")
    with pytest.raises(FileNotFoundError):
        save_private_key(tmp_path / "none" / "key", SIGNER)
    with pytest.raises(IsADirectoryError):
        load_private_key(tmp_path)


# --- saving


def test_a_key_is_not_written_over_another_unless_told(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(b"precious")
    path.chmod(0o644)
    with pytest.raises(FileExistsError):
        save_private_key(path, SIGNER)
    assert path.read_bytes() == b"precious"
    assert names_in(tmp_path) == ["key"]
    save_private_key(path, SIGNER, replace=True)
    assert holds_key(path)
    assert mode_of(path) == 0o600
    assert names_in(tmp_path) == ["key"]


def test_a_link_to_a_key_stays_a_link_and_is_not_written_through_unless_told(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    target, link = folder / "target", tmp_path / "link"
    target.write_bytes(b"precious")
    link.symlink_to(target)
    with pytest.raises(FileExistsError):
        save_private_key(link, SIGNER)
    assert target.read_bytes() == b"precious"
    save_private_key(link, SIGNER, replace=True)
    assert link.is_symlink()
    assert holds_key(target)
    assert (names_in(folder), mode_of(target)) == (["target"], 0o600)


def test_a_key_is_there_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "key"
    save_private_key(path, SIGNER)
    before = path.read_bytes()

    def disk_full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", disk_full)
    with pytest.raises(OSError, match="No space left"):
        save_private_key(path, generate_signer(), replace=True)
    with pytest.raises(OSError, match="No space left"):
        save_private_key(tmp_path / "second", generate_signer())
    assert path.read_bytes() == before
    assert names_in(tmp_path) == ["key"]


def test_no_moment_shows_the_key_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modes = []
    sync = os.fsync

    def look(descriptor: int) -> None:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISREG(mode):  # the folder is synced too
            modes.append(stat.S_IMODE(mode))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", look)
    before = os.umask(0)
    try:
        save_private_key(tmp_path / "key", SIGNER)
    finally:
        os.umask(before)
    assert modes == [0o600]


def test_a_device_is_written_to_and_not_replaced() -> None:
    save_private_key(Path("/dev/null"), SIGNER, replace=True)
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_nothing_is_written_when_the_key_cannot_be_encrypted(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError):
        save_private_key(tmp_path / "key", SIGNER, passphrase="")
    assert names_in(tmp_path) == []
