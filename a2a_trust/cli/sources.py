"""Where cards, keys and passphrases come from: files, standard input, the environment, the terminal."""

from __future__ import annotations

import os
import sys
import time
import warnings
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from a2a_trust import strict_json
from a2a_trust.cli.report import said, warn
from a2a_trust.errors import ConfigurationError, MalformedError
from a2a_trust.files.atomic import is_reserved
from a2a_trust.keys.algorithms import algorithm_named
from a2a_trust.keys.files import KeyFileWarning, PassphraseNeededError, read_key_file, read_private_key
from a2a_trust.keys.signer import LocalSigner
from a2a_trust.strict_json import MAX_BYTES

if TYPE_CHECKING:
    from a2a_trust.keys.jwk import PublicKey

__all__ = [
    "algorithm_option",
    "check_not_secret",
    "default_key_path",
    "default_memory_path",
    "given_alg",
    "key_file_warnings",
    "load_signers",
    "naming",
    "needing_client",
    "new_passphrase",
    "opened",
    "public_key",
    "public_keys",
    "read_input",
]

_T = TypeVar("_T")
_K = TypeVar("_K", "PublicKey", LocalSigner)


def default_key_path() -> Path:
    """Where ``keygen`` puts the default key and ``sign`` looks for it."""
    from platformdirs import user_config_path

    return user_config_path("a2a-trust", appauthor=False) / "signing-key"


def default_memory_path() -> Path:
    """Where the memory of cards is, for every command that asks agents; ``a2a-sign memory`` shows and changes it."""
    from platformdirs import user_data_path

    return user_data_path("a2a-trust", appauthor=False) / "cards.db"


def read_input(name: str) -> bytes:
    """The content of a file, or of standard input for ``-``; a byte more than the reader takes is enough to refuse."""
    if name == "-":
        if sys.stdin is None:
            raise OSError("standard input is closed")
        return sys.stdin.buffer.read(MAX_BYTES + 1)
    with Path(name).open("rb") as file:
        return file.read(MAX_BYTES + 1)


def load_signers(files: list[str] | None, kid: str | None, alg: str | None = None) -> list[LocalSigner]:
    """The signers that the arguments, the environment or the default key give; ``alg`` is --alg."""
    return [_with_alg(signer, alg, name) for signer, name in _signers(files, kid)]


def check_not_secret(targets: Iterable[Path], keys: Iterable[str]) -> None:
    """Refuse to write over a secret: these key files, those that the environment names, and the default key.

    All of them, in use now or not: a key that another one takes precedence over would be lost just the same.
    """
    secrets = dict.fromkeys(keys, "the private key")
    secrets[str(default_key_path())] = "the default private key"
    for variable, what in (("A2A_SIGN_KEY_FILE", "private key"), ("A2A_SIGN_KEY_PASSPHRASE_FILE", "passphrase")):
        if name := os.environ.get(variable):
            secrets[name] = f"the {what} of {variable}"
    written = [target for target in targets if target.exists()]
    for name, what in secrets.items():
        secret = Path(name)
        if any(secret.exists() and target.samefile(secret) for target in written):
            raise ConfigurationError(f"{name} is {what}, and would be written over; name another file")


def _signers(files: list[str] | None, kid: str | None) -> list[tuple[LocalSigner, str]]:
    """The signers, and where each is from."""
    if files:
        if kid is not None and len(files) > 1:
            raise ConfigurationError("--kid names one key, and --key was given several times; drop --kid")
        signers = [_from_file(Path(name), kid) for name in files]
        _check_different(files, signers)
        return list(zip(signers, files, strict=True))
    value, file = _variable("A2A_SIGN_KEY"), _variable("A2A_SIGN_KEY_FILE")
    if value and file:
        raise ConfigurationError("A2A_SIGN_KEY and A2A_SIGN_KEY_FILE are both set; unset one of them")
    if value:
        with naming("A2A_SIGN_KEY"):
            return [(_key_in(_key_of_variable(value), "A2A_SIGN_KEY", kid), "A2A_SIGN_KEY")]
    if not file and os.environ.get("CI", "").lower() not in ("", "0", "false"):
        raise ConfigurationError(
            "no signing key: A2A_SIGN_KEY is not set, and a pipeline (CI is set) signs with no default key; give the "
            "secret as A2A_SIGN_KEY, or its file as A2A_SIGN_KEY_FILE or --key FILE"
        )
    path = Path(file) if file else default_key_path()
    if not file and not path.exists():
        raise ConfigurationError(
            f"no signing key: none was given and there is no default key at {path}\n"
            "  make one:   a2a-sign keygen\n"
            "  or give it: a2a-sign --key FILE card.json   (or set A2A_SIGN_KEY or A2A_SIGN_KEY_FILE)"
        )
    return [(_from_file(path, kid), str(path))]


def algorithm_option(alg: str) -> str:
    """The algorithm that --alg names."""
    try:
        return algorithm_named(alg).name
    except ConfigurationError as error:
        raise ConfigurationError(f"--alg: {error}") from None


def _with_alg(key: _K, alg: str | None, name: str) -> _K:
    if alg is None:
        return key
    wanted = algorithm_option(alg)
    try:
        return key.with_alg(wanted)
    except ConfigurationError as error:
        raise ConfigurationError(f"--alg: {name}: {error}") from None


def given_alg(keys: Sequence[PublicKey], alg: str | None, name: str) -> list[PublicKey]:
    """The keys of a file, for the algorithm of --alg; of several those that are for another one are skipped."""
    if alg is None or len(keys) < 2:
        return [_with_alg(key, alg, name) for key in keys]
    wanted = algorithm_option(alg)
    fitting = [key.with_alg(wanted) for key in keys if wanted in key.algorithms]
    if not fitting:
        raise ConfigurationError(f"--alg: no key in {name} is for {wanted}")
    for key in keys:
        if wanted not in key.algorithms:
            warn(f"{name}: key {key.kid!a} skipped: it is for {key.alg}, not for the {wanted} of --alg")
    return fitting


def _variable(name: str) -> str | None:
    """An environment variable. An empty one is an error: a secret that is missing must not select another key."""
    value = os.environ.get(name)
    if value == "":
        raise ConfigurationError(f"{name} is empty; is the secret available to this job? Set the variable, or unset it")
    return value


def _check_different(files: list[str], signers: list[LocalSigner]) -> None:
    """Refuse two files with one kid or one key: verifiers would count them once."""
    names: dict[str, str] = {}
    for file, signer in zip(files, signers, strict=True):
        for what, name in (("kid", signer.kid), ("key", signer.public_key.thumbprint)):
            first = names.setdefault(f"{what} {name}", file)
            if first is not file:
                raise ConfigurationError(
                    f"--key: {first} and {file} have the same {what}, {name}; sign with different keys"
                )


@contextmanager
def needing_client(purpose: str) -> Iterator[None]:
    """What the block imports is for clients only; ConfigurationError says what to install, and for which purpose."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f'{purpose}, {error.name} has to be installed: pip install "a2a-trust[client]"'
        ) from None


@contextmanager
def naming(file: str) -> Iterator[None]:
    """What is wrong with a file of the operator's names the file: as a mistake of the operator's, not of a card."""
    try:
        yield
    except (MalformedError, ConfigurationError) as error:
        text = said(error)
        is_named = file in text and not file.isalnum()  # a file named "key" is not in "private key"
        raise ConfigurationError(text if is_named else f"{file}: {text}") from None


def new_passphrase() -> str:
    """The passphrase for a new key: from the environment, or asked for twice."""
    given = _passphrase_of_environment()
    if given is not None:
        return given
    first = _ask("New passphrase: ")
    if not first:
        raise ConfigurationError("the passphrase is empty; nothing was made")
    if first != _ask("Once more: "):
        raise ConfigurationError("the two passphrases differ; nothing was made")
    return first


def _from_file(path: Path, kid: str | None) -> LocalSigner:
    """The signer with the key in a file, or with the key of a ring that is active now."""
    if is_reserved(path):
        raise ConfigurationError(f"{path} is a temporary file of a command, which the next one removes; name another")
    if path.is_file() and _is_key_set(read_input(str(path))):  # before its rights are looked at: it is to be read
        raise ConfigurationError(f"{path} is a JWK Set, with public keys to publish; sign with the private key")
    with key_file_warnings(), naming(str(path)), path.open("rb") as file:
        data = read_key_file(file, path, max_bytes=MAX_BYTES)
    with naming(str(path)):
        return _key_in(data, str(path), kid)


def _key_of_variable(value: str) -> bytes:
    """The key in A2A_SIGN_KEY: as a file has it, or that in base64, since some pipelines mask single lines only."""
    data = os.fsencode(value).strip()
    with suppress(ValueError):
        decoded = b64decode(b"".join(data.split()), validate=True)
        data = decoded if _looks_like_a_key(decoded) else data
    if not _looks_like_a_key(data):
        raise ConfigurationError(
            "A2A_SIGN_KEY looks like the path of a file; set A2A_SIGN_KEY_FILE to that path"
            if _is_a_path(value)
            else "neither PEM, a JWK nor a key ring, and not base64 of one of them"
        )
    if _is_key_set(data):
        raise ConfigurationError("a JWK Set, with public keys to publish; sign with the private key")
    if data.startswith(b"-----BEGIN") and b"\n" not in data:
        raise ConfigurationError("the PEM has no line ends; set it with them, or set the file in base64")
    return data


def _looks_like_a_key(data: bytes) -> bool:
    """Whether it begins as PEM or JSON do, or has the five parts of an encrypted JWK (RFC 7516 3.1)."""
    return data.lstrip().startswith((b"-----BEGIN", b"{")) or data.count(b".") == 4


def _is_a_path(value: str) -> bool:
    try:
        return value.startswith(("/", "./", "../", "~/")) or Path(value).exists()
    except (OSError, ValueError):  # a text that is too long for a path, or has a NUL in it
        return False


def _key_in(data: bytes, name: str, kid: str | None) -> LocalSigner:
    if data.lstrip().startswith(b"{"):
        from a2a_trust.keys.rotation import is_key_ring, read_key_ring

        if is_key_ring(data):
            if kid is not None:
                raise ConfigurationError(f"--kid names a single key, and {name} is a key ring, with names; drop --kid")
            return opened(lambda passphrase: read_key_ring(data, passphrase=passphrase).signer(time.time()), name)
    return opened(lambda passphrase: read_private_key(data, passphrase=passphrase, kid=kid), name)


def _is_key_set(data: bytes) -> bool:
    if not data.lstrip().startswith(b"{"):
        return False
    try:
        value = strict_json.parse(data)
    except MalformedError:
        return False
    return isinstance(value, dict) and "keys" in value and "type" not in value


@contextmanager
def key_file_warnings() -> Iterator[None]:
    """What is warned about key files in the block is said on standard error, as the command says things."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", KeyFileWarning)
        yield
    for message in dict.fromkeys(str(warning.message) for warning in caught):
        warn(message)


def opened(load: Callable[[str | None], _T], name: str) -> _T:
    """What ``load`` gives with the passphrase of the environment, or with one that is asked for when it needs one."""
    try:
        return load(_passphrase_of_environment())
    except PassphraseNeededError:
        return load(_ask(f"Passphrase of {name}: "))


def _passphrase_of_environment() -> str | None:
    value, file = _variable("A2A_SIGN_KEY_PASSPHRASE"), _variable("A2A_SIGN_KEY_PASSPHRASE_FILE")
    if value and file:
        raise ConfigurationError("A2A_SIGN_KEY_PASSPHRASE and A2A_SIGN_KEY_PASSPHRASE_FILE are both set; unset one")
    if file:
        try:
            value = Path(file).read_bytes().partition(b"\n")[0].rstrip(b"\r").decode("utf-8")
        except UnicodeDecodeError:
            raise ConfigurationError("the file in A2A_SIGN_KEY_PASSPHRASE_FILE is not UTF-8 text") from None
        if not value:
            raise ConfigurationError("the first line of the file in A2A_SIGN_KEY_PASSPHRASE_FILE is empty")
    return value


def _ask(prompt: str) -> str:
    if sys.stderr is None or not sys.stderr.isatty():
        raise ConfigurationError(
            "the key needs a passphrase and there is no terminal to ask at; "
            "set A2A_SIGN_KEY_PASSPHRASE or A2A_SIGN_KEY_PASSPHRASE_FILE"
        )
    from getpass import getpass

    try:
        return getpass(prompt)
    except EOFError:
        raise ConfigurationError("no passphrase was given") from None


def public_key(name: str, kid: str | None) -> PublicKey:
    """The public key in a PEM or JWK file."""
    data = read_input(name).strip()
    _check_no_ring(name, data)
    with naming(name):
        return _public_key_in(data, name, kid)


def _public_key_in(data: bytes, name: str, kid: str | None) -> PublicKey:
    from a2a_trust.keys.jwk import public_key_from_jwk, public_key_from_pem

    is_encrypted_jwk = data.startswith(b"eyJ") and data.count(b".") == 4
    if b"PRIVATE KEY-----" in data or is_encrypted_jwk:
        raise _is_private(name)
    if data.startswith(b"-----BEGIN"):
        return public_key_from_pem(data, kid=kid)
    jwk = strict_json.parse(data, what=name)
    if isinstance(jwk, dict) and "keys" in jwk:
        raise ConfigurationError(f"{name} is a JWK Set; give it with --jwks")
    if isinstance(jwk, dict) and "d" in jwk:
        raise _is_private(name)
    if isinstance(jwk, dict) and kid is not None:
        jwk["kid"] = kid
    return public_key_from_jwk(jwk)


def _is_private(name: str) -> ConfigurationError:
    return ConfigurationError(
        f"{name} is a private key, which only its signer needs; give the public half, as the JWK Set that keygen wrote "
        "beside it: --jwks FILE"
    )


def _check_no_ring(name: str, data: bytes) -> None:
    from a2a_trust.keys.rotation import is_key_ring

    if is_key_ring(data):
        raise ConfigurationError(
            f"{name} is a key ring, which signs; verify with what it publishes: a2a-sign keys export {name} -o FILE, "
            "and --jwks FILE"
        )


def public_keys(name: str) -> tuple[PublicKey, ...]:
    """The keys of a JWK Set; those that are skipped are warned about. ConfigurationError when none is left."""
    from a2a_trust.keys.keyset import read_jwks

    data = read_input(name)
    _check_no_ring(name, data)
    if data.lstrip().startswith(b"-----BEGIN"):
        raise ConfigurationError(f"{name} is a single key; give it with --public-key")
    with naming(name):
        found = read_jwks(data)
    for skipped in found.skipped:
        warn(f"{name}: key {skipped.index} skipped: {skipped.reason}")
    if not found.keys:
        raise ConfigurationError(f"{name}: no key in this JWK Set can verify a card")
    return found.keys
