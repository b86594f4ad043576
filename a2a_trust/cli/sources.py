"""Read cards, keys and passphrases from files, standard input, the environment and the terminal."""

from __future__ import annotations

import os
import shlex
import sys
import time
import warnings
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeVar

from a2a_trust.base import strict_json
from a2a_trust.base.files.atomic import is_reserved
from a2a_trust.base.files.watched import read_at_most
from a2a_trust.base.strict_json import MAX_BYTES
from a2a_trust.cli.file_names import NOT_SHOWN, is_secret
from a2a_trust.cli.report import error_text, warn
from a2a_trust.errors import ConfigurationError, MalformedError
from a2a_trust.keys.algorithms import algorithm_named
from a2a_trust.keys.files import KeyFileWarning, PassphraseNeededError, read_key_file, read_private_key
from a2a_trust.keys.signer import LocalSigner

if TYPE_CHECKING:
    from a2a_trust.keys.jwk import KeySet, PublicKey

_T = TypeVar("_T")
_K = TypeVar("_K", "PublicKey", LocalSigner)


def default_key_path() -> Path:
    """The path at which ``keygen`` writes the default key and ``sign`` reads it."""
    from platformdirs import user_config_path

    return user_config_path("a2a-trust", appauthor=False) / "signing-key"


def default_memory_path() -> Path:
    """The path of the card memory of this user, for every command that fetches cards and for ``a2a-sign memory``."""
    from platformdirs import user_data_path

    return user_data_path("a2a-trust", appauthor=False) / "cards.db"


def open_input(name: str) -> AbstractContextManager[BinaryIO]:
    """A file, or standard input for ``-``, for a block."""
    if name != "-":
        return Path(name).open("rb")
    if sys.stdin is None:
        raise OSError("standard input is closed; name a file instead of -")
    return nullcontext(sys.stdin.buffer)


def read_input(name: str) -> bytes:
    """The content of a file, or of standard input for ``-``: at most one byte more than the reader accepts."""
    with open_input(name) as file:
        return read_at_most(file, MAX_BYTES + 1)


def in_pipeline() -> bool:
    """Whether a CI system runs this command, which then uses no default key and no memory of its user."""
    return os.environ.get("CI", "").lower() not in ("", "0", "false")


def trust_file_command(name: str) -> str:
    return f"a2a-sign trust add {shlex.quote(name)} --origin HOST --public-key FILE"


@contextmanager
def _of_option(option: str, name: str) -> Iterator[None]:
    """In the block, the error for a missing file names the option that names the file.

    ConfigurationError: there is no such file, and the name looks like a secret, so that the error must not show it.
    """
    if is_secret(name):
        raise ConfigurationError(f"{option}: {NOT_SHOWN}")
    try:
        yield
    except FileNotFoundError:
        raise FileNotFoundError(f"{option} {name}: no such file; check the name") from None


def check_not_secret(targets: Iterable[Path], keys: Iterable[str]) -> None:
    """ConfigurationError for a target that is a secret: one of these key files, one of the environment, a default key.

    A key that is not in use now is a secret, too: writing over it would lose it.
    """
    written = [target for target in targets if target.exists()]
    if not written:
        return  # the library that knows the path of the default key is slow to import
    secrets = dict.fromkeys(keys, "the private key")
    secrets[str(default_key_path())] = "the default private key"
    for variable, kind in (("A2A_SIGN_KEY_FILE", "private key"), ("A2A_SIGN_KEY_PASSPHRASE_FILE", "passphrase")):
        if name := os.environ.get(variable):
            secrets[name] = f"the {kind} of {variable}"
    for name, kind in secrets.items():
        if any(os.path.exists(name) and target.samefile(name) for target in written):  # noqa: PTH110  of any text
            raise ConfigurationError(f"{name} is {kind}, and would be overwritten; name another file")


def load_signers(files: list[str], kid: str | None, alg: str | None = None) -> list[LocalSigner]:
    """The signers from the arguments, the environment or the default key; ``alg`` is --alg."""
    if files:
        if kid is not None and len(files) > 1:
            raise ConfigurationError("--kid names one key, and --key was given several times; leave out --kid")
        signers = []
        for name in files:
            with _of_option("--key", name):
                signers.append(_from_file(Path(name), kid, alg))
        _check_different(files, signers)
        return [_with_alg(signer, alg, name) for signer, name in zip(signers, files, strict=True)]
    value, file = _value_or_file("A2A_SIGN_KEY")
    if value:
        with naming("A2A_SIGN_KEY"):
            signer = _key_in(_key_of_variable(value), "A2A_SIGN_KEY", kid, alg)
        return [_with_alg(signer, alg, "A2A_SIGN_KEY")]
    file = file or _default_key()
    with _of_option("A2A_SIGN_KEY_FILE", file):
        signer = _from_file(Path(file), kid, alg)
    return [_with_alg(signer, alg, file)]


def _default_key() -> str:
    """The file of the default key. ConfigurationError: there is none, or it must not be used."""
    if in_pipeline():
        raise ConfigurationError(
            "no signing key: A2A_SIGN_KEY is not set, and a pipeline (CI is set) does not use the default key; give "
            "the key as A2A_SIGN_KEY, or its file as A2A_SIGN_KEY_FILE or --key FILE"
        )
    path = default_key_path()
    if not path.exists():
        raise ConfigurationError(
            f"no signing key: no key was given and there is no default key at {path}\n"
            "  make one:    a2a-sign keygen\n"
            "  or give one: a2a-sign --key FILE card.json   (or set A2A_SIGN_KEY or A2A_SIGN_KEY_FILE)"
        )
    return str(path)


def algorithm_option(alg: str) -> str:
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


def keys_for_alg(keys: Sequence[PublicKey], alg: str | None, name: str) -> list[PublicKey]:
    """The keys of a file, for the algorithm of --alg; in a set of several keys, those for other ones are skipped."""
    if alg is None or len(keys) < 2:
        return [_with_alg(key, alg, name) for key in keys]
    wanted = algorithm_option(alg)
    fitting = [key.with_alg(wanted) for key in keys if wanted in key.algorithms]
    if not fitting:
        raise ConfigurationError(f"--alg: no key in {name} is for {wanted}")
    for key in keys:
        if wanted not in key.algorithms:
            warn(f"{name}: skipped key {key.kid!a}: it is for {key.alg}, and --alg is {wanted}")
    return fitting


def _value_or_file(name: str) -> list[str | None]:
    """The environment variables ``name`` and ``name_FILE``, which names a file; at most one of them is set.

    An empty one is an error: a missing secret must not select another key.
    """
    values = {each: os.environ.get(each) for each in (name, f"{name}_FILE")}
    for each, value in values.items():
        if value == "":
            raise ConfigurationError(
                f"{each} is empty; set it, or unset it. In a pipeline check that the secret is available to this job"
            )
    if None not in values.values():
        raise ConfigurationError(f"{' and '.join(values)} are both set; unset one of them")
    return list(values.values())


def _check_different(files: list[str], signers: list[LocalSigner]) -> None:
    """ConfigurationError for two files with the same kid or key: verifiers would count them once."""
    names: dict[str, str] = {}
    for file, signer in zip(files, signers, strict=True):
        for part, name in (("kid", signer.kid), ("key", signer.public_key.thumbprint)):
            first = names.setdefault(f"{part} {name}", file)
            if first is not file:
                raise ConfigurationError(
                    f"--key: {first} and {file} have the same {part}, {name}; sign with different keys"
                )


@contextmanager
def needing_client(purpose: str) -> Iterator[None]:
    """In the block, a missing library of the extra ``client`` is a ConfigurationError that says how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f'{purpose}, {error.name} has to be installed: pip install "./a2a-trust[client]"'
        ) from None


@contextmanager
def naming(file: str) -> Iterator[None]:
    """In the block, errors about a file of the operator are ConfigurationErrors that name the file."""
    try:
        yield
    except (MalformedError, ConfigurationError) as error:
        text = error_text(error)
        is_named = file in text and not file.isalnum()  # a file named "key" is not in "private key"
        raise ConfigurationError(text if is_named else f"{file}: {text}") from None


def new_passphrase() -> str:
    """The passphrase for a new key: from the environment, or typed twice."""
    given = _passphrase_of_environment()
    if given is not None:
        return given
    first = _ask("New passphrase: ")
    if not first:
        raise ConfigurationError("the passphrase is empty, so nothing was made; try again with a passphrase")
    if first != _ask("Once more: "):
        raise ConfigurationError("the two passphrases differ, so nothing was made; try again")
    return first


def _from_file(path: Path, kid: str | None, alg: str | None) -> LocalSigner:
    """The signer with the key in a file, or with the key of a ring that is active now."""
    if is_reserved(path):
        raise ConfigurationError(
            f"{path} is a temporary file, which the next command removes; name the file of your key"
        )
    if path.is_file() and _is_key_set(read_input(str(path))):  # before the check of rights: a key set is public
        raise ConfigurationError(f"{path} is a JWK Set with public keys; give the private key to sign with")
    with key_file_warnings(), naming(str(path)), path.open("rb") as file:
        data = read_key_file(file, path, max_bytes=MAX_BYTES)
    with naming(str(path)):
        return _key_in(data, str(path), kid, alg)


def _key_of_variable(value: str) -> bytes:
    """The key in A2A_SIGN_KEY: the content of a key file, or that in base64, as some pipelines mask only one line."""
    data = os.fsencode(value).strip()
    with suppress(ValueError):
        decoded = b64decode(b"".join(data.split()), validate=True)
        data = decoded if _looks_like_a_key(decoded) else data
    if not _looks_like_a_key(data):
        raise ConfigurationError(
            "A2A_SIGN_KEY looks like the path of a file; set A2A_SIGN_KEY_FILE to that path"
            if _is_a_path(value)
            else "not a key; set it to the content of a PEM, JWK or key ring file, or to that in base64"
        )
    if _is_key_set(data):
        raise ConfigurationError("a JWK Set with public keys; set it to the private key to sign with")
    if data.startswith(b"-----BEGIN") and b"\n" not in data:
        raise ConfigurationError("the PEM has no line ends; set it with its line ends, or set the file in base64")
    return data


def _looks_like_a_key(data: bytes) -> bool:
    """Whether it begins as PEM or JSON do, or has the five parts of an encrypted JWK (RFC 7516 3.1)."""
    return data.lstrip().startswith((b"-----BEGIN", b"{")) or data.count(b".") == 4


def _is_a_path(value: str) -> bool:
    try:
        return value.startswith(("/", "./", "../", "~/")) or Path(value).exists()
    except (OSError, ValueError):  # a text that is too long for a path, or has a NUL in it
        return False


def _key_in(data: bytes, name: str, kid: str | None, alg: str | None) -> LocalSigner:
    if data.lstrip().startswith(b"{"):
        from a2a_trust.keys.rotation import is_key_ring, read_key_ring

        if is_key_ring(data):
            if kid is not None:
                raise ConfigurationError(
                    f"--kid names a single key, and {name} is a key ring, whose keys have names; leave out --kid"
                )
            return unlock(lambda passphrase: read_key_ring(data, passphrase=passphrase).signer(time.time()), name)
    needed = algorithm_option(alg) if alg is not None and b"-----BEGIN ENCRYPTED" in data else None
    return unlock(lambda passphrase: read_private_key(data, passphrase=passphrase, alg=needed, kid=kid), name)


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
    """In the block, Python warnings about key files become warnings of the command, on standard error."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", KeyFileWarning)
        yield
    for message in dict.fromkeys(str(warning.message) for warning in caught):
        warn(message)


def unlock(load: Callable[[str | None], _T], name: str) -> _T:
    """The result of ``load`` with the passphrase of the environment; if it needs one and there is none, asks for it."""
    try:
        return load(_passphrase_of_environment())
    except PassphraseNeededError:
        return load(_ask(f"Passphrase of {name}: "))


def _passphrase_of_environment() -> str | None:
    value, file = _value_or_file("A2A_SIGN_KEY_PASSPHRASE")
    if file:
        try:
            value = Path(file).read_bytes().partition(b"\n")[0].rstrip(b"\r").decode("utf-8")
        except UnicodeDecodeError:
            raise ConfigurationError(
                f"A2A_SIGN_KEY_PASSPHRASE_FILE {file}: not UTF-8 text; write the passphrase in UTF-8"
            ) from None
        except (OSError, ValueError):  # the text of which may be the passphrase, in place of a name
            if os.path.lexists(file):
                raise
            raise ConfigurationError(
                "A2A_SIGN_KEY_PASSPHRASE_FILE: no such file; set it to the name of a file, not to the passphrase"
            ) from None
        if not value:
            raise ConfigurationError(
                f"A2A_SIGN_KEY_PASSPHRASE_FILE {file}: the first line is empty; write the passphrase there"
            )
    return value


def _ask(prompt: str) -> str:
    if sys.stderr is None or not sys.stderr.isatty():
        raise ConfigurationError(
            "the key needs a passphrase, and there is no terminal to ask for it; "
            "set A2A_SIGN_KEY_PASSPHRASE or A2A_SIGN_KEY_PASSPHRASE_FILE"
        )
    from getpass import getpass

    try:
        return getpass(prompt)
    except EOFError:
        raise ConfigurationError("no passphrase was typed; type one, or set A2A_SIGN_KEY_PASSPHRASE") from None


def public_key(name: str, kid: str | None) -> PublicKey:
    """The public key in the PEM or JWK file of --public-key."""
    from a2a_trust.keys.jwk import public_key_from_jwk, public_key_from_pem

    with _of_option("--public-key", name):
        data = read_input(name).strip()
    _check_no_ring(name, data)
    private = ConfigurationError(
        f"{name} is a private key, which only its signer needs; give the public key, in the JWK Set that keygen wrote "
        "beside it: --jwks FILE"
    )
    is_encrypted_jwk = data.startswith(b"eyJ") and data.count(b".") == 4
    if b"PRIVATE KEY-----" in data or is_encrypted_jwk:
        raise private
    with naming(name):
        if data.startswith(b"-----BEGIN"):
            return public_key_from_pem(data, kid=kid)
        jwk = strict_json.parse(data, what=name)
        if isinstance(jwk, dict) and "keys" in jwk:
            raise ConfigurationError(f"{name} is a JWK Set; give it with --jwks")
        if isinstance(jwk, dict) and "d" in jwk:
            raise private
        if isinstance(jwk, dict) and kid is not None:
            jwk["kid"] = kid
        return public_key_from_jwk(jwk)


def _check_no_ring(name: str, data: bytes) -> None:
    from a2a_trust.keys.rotation import is_key_ring

    if is_key_ring(data):
        raise ConfigurationError(
            f"{name} is a key ring, which signs; to verify, export its public keys: a2a-sign keys export {name} -o "
            "FILE, then give --jwks FILE"
        )


def public_keys(name: str) -> KeySet:
    """The JWK Set of --jwks; skipped keys are warnings. ConfigurationError if no key is left."""
    from a2a_trust.keys.jwk import read_jwks

    with _of_option("--jwks", name):
        data = read_input(name)
    _check_no_ring(name, data)
    if data.lstrip().startswith(b"-----BEGIN"):
        raise ConfigurationError(f"{name} is a single key; give it with --public-key")
    with naming(name):
        found = read_jwks(data)
    for skipped in found.skipped:
        warn(f"{name}: skipped key {skipped.index}: {skipped.reason}")
    if not found.keys:
        raise ConfigurationError(f"{name}: no key in this JWK Set can verify a card; give another set")
    return found
