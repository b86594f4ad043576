"""The arguments of every command, and nothing that works with them.

Only ``argparse`` is imported: ``--help`` and mistakes are answered at once, whatever a command loads when it runs.
"""

from __future__ import annotations

import argparse

TYPE_CHECKING = False  # typing takes a tenth of the time that --help may take
if TYPE_CHECKING:
    from typing import Final

__all__ = ["COMMANDS", "SIGNERS"]

#: The words of ``keys.trust.SigningTool``, which stands where keys are loaded.
SIGNERS: Final = ("a2a-trust", "a2a-python", "a2a-js", "whole")
_ALGORITHMS: Final = "ES256, ES384, ES512, EdDSA, RS256 … PS512"


class _Actions:
    """The actions of a command, such as ``keys create``; the arguments of ``every`` are those of all of them.

    When the arguments are read, ``options.action`` is the name of an action.
    """

    def __init__(self, command: argparse.ArgumentParser, every: argparse.ArgumentParser) -> None:
        self._every = every
        self._actions = command.add_subparsers(dest="action", required=True)

    def add(self, name: str, summary: str, *parents: argparse.ArgumentParser) -> argparse.ArgumentParser:
        """Add an action, and return its parser for further arguments; those of ``parents`` it has already."""
        action = self._actions.add_parser(name, parents=[self._every, *parents], help=summary, description=summary)
        self._actions.metavar = f"{{{','.join(self._actions.choices)}}}"
        return action


def _add_sign(command: argparse.ArgumentParser) -> None:
    command.description = "Sign Agent Cards, in place or to -o. Nothing is written unless all were signed and verified."
    _add_files(command, "FILE", "a card, a directory, a quoted glob, or - for standard input")
    command.add_argument("-o", "--output", metavar="FILE", help="where the signed card goes; - is standard output")
    when = command.add_mutually_exclusive_group()
    when.add_argument(
        "--if-needed", action="store_true", help="leave cards as they are that are signed as asked for already"
    )
    when.add_argument(
        "--check", action="store_true", help="write nothing; exit with 1 when a card has to be signed, and say why"
    )
    command.add_argument(
        "--expires-within",
        metavar="TIME",
        help="with --if-needed or --check: a signature that ends within 14d, 12h, 30m has to be made again",
    )
    command.add_argument(
        "--key", action="append", metavar="FILE", help="private key (PEM, JWK) or key ring; repeat to sign with several"
    )
    command.add_argument("--kid", help="name of the key in the signature (default: the key's own, else its thumbprint)")
    command.add_argument("--alg", help="algorithm of an RSA key: RS256 … PS512 (default: the key's own, else RS256)")
    command.add_argument("--jku", metavar="URL", help="https URL of the JWK Set that holds the public key")
    command.add_argument(
        "--expires", metavar="WHEN", help="when the signature ends: 90d, 12h, 30m, or 2027-01-31[T12:00:00Z]"
    )
    command.add_argument(
        "--drop-broken", action="store_true", help="remove signatures of others that dropping empty members may break"
    )
    command.add_argument(
        "--no-companion", action="store_true", help="no second signature for SDKs that cannot check the full one"
    )
    command.add_argument(
        "--no-iat", action="store_true", help="leave out when the card was signed; clients then miss older cards"
    )
    command.add_argument(
        "--allow",
        action="append",
        default=[],
        metavar="RULE",
        help="sign although this rule of lint finds an error; may be repeated",
    )
    _add_quiet(command)
    _add_json_of_cards(command)


def _add_keygen(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Make a signing key and its JWK Set. A private key that is there is never overwritten; if only its JWK Set is "
        "missing, that is made from it."
    )
    command.add_argument("-o", "--output", metavar="FILE", help="private key file (default: the default key)")
    command.add_argument("--alg", default="ES256", help="ES256 (default), ES384, ES512, EdDSA, RS256 … PS512")
    command.add_argument("--kid", help="name of the key (default: its RFC 7638 thumbprint)")
    command.add_argument("--format", choices=("pem", "jwk"), help="default: pem where it can hold all, else jwk")
    _add_encrypt(command)
    _add_json(command)


def _add_verify(command: argparse.ArgumentParser) -> None:
    command.description = "Verify Agent Cards. A file needs --origin, --origin-from-card or --any-origin."
    _add_trusted(command)
    command.add_argument(
        "--memory",
        metavar="FILE",
        help="what is remembered of agents; older cards than those seen are refused (default: that of this user)",
    )
    command.add_argument(
        "--on-first-use",
        action="store_true",
        help="of agents of whom nothing is known: believe the keys that they publish, and hold them to these later",
    )
    _add_quiet(command)
    _add_verbose(command)
    _add_json_of_cards(command)


def _add_inspect(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Show who an agent is, where, how to authenticate, and who signed what; with keys, what holds."
    )
    _add_trusted(command)
    _add_verbose(command)
    _add_json_of_cards(command)


def _add_lint(command: argparse.ArgumentParser) -> None:
    command.description = "Check Agent Cards for problems. Warnings and notes do not change the exit code."
    _add_files(command, "FILE", "a card, a directory, a quoted glob, or - for standard input")
    command.add_argument(
        "--fix", action="store_true", help="leave out what says nothing (null, defaults); never of a signed card"
    )
    _add_quiet(command)
    output = _add_json_of_cards(command)
    output.add_argument("--sarif", action="store_true", help="report as SARIF 2.1.0, for code scanning")


def _add_rotate(command: argparse.ArgumentParser) -> None:
    _add_ring(command)
    command.add_argument(
        "--overlap",
        default="24h",
        metavar="TIME",
        help="how long the new key is published before it signs: at least the max-age of the key set (default: 24h)",
    )
    command.add_argument(
        "--keep",
        default="91d",
        metavar="TIME",
        help="how long the old key stays published after that: at least the longest --expires and the max-age of the "
        "cards (default: 91d)",
    )
    command.add_argument("--alg", help=f"{_ALGORITHMS} (default: as the key before)")
    _add_json(command)


def _add_keys(command: argparse.ArgumentParser) -> None:
    command.description = "Make a ring of signing keys, show it, revoke a key of it, and write its JWK Set."
    every = type(command)(add_help=False)
    _add_ring(every)
    _add_json(every)
    actions = _Actions(command, every)
    create = actions.add("create", "make a key ring, whose first key signs at once")
    create.add_argument("--alg", help=f"of a new key: {_ALGORITHMS} (default: ES256)")
    create.add_argument("--key", metavar="FILE", help="begin with this private key, PEM or JWK, instead of a new one")
    create.add_argument("--kid", help="name of the key of --key (default: its own, else its thumbprint)")
    _add_encrypt(create)
    actions.add("list", "show the keys, what each does and when that changes, and no secret")
    revoke = actions.add("revoke", "end a key at once; another signs instead")
    revoke.add_argument("kid", metavar="KID", help="of the key, as the list has it")
    export = actions.add("export", "write the JWK Set to publish: next, active and retired keys, public halves only")
    export.add_argument("-o", "--output", default="-", metavar="FILE", help="where it goes (default: standard output)")


def _add_api_key(command: argparse.ArgumentParser) -> None:
    command.description = "Make, import, list, rotate and revoke the API keys of a store."
    every = type(command)(add_help=False)
    every.add_argument("--store", required=True, metavar="FILE", help="the file with the keys' records")
    _add_verbose(every)
    _add_json(every)
    new = type(command)(add_help=False)
    new.add_argument("--owner", required=True, metavar="NAME", help="the caller; keys of one owner are one caller")
    new.add_argument(
        "--scope", action="append", default=[], metavar="SCOPE", help="what the key allows; may be repeated"
    )
    new.add_argument(
        "--expires", metavar="TIME", help="how long the key is good: 90d, 12h, 30m (default: it never expires)"
    )
    new.add_argument("--prefix", default="a2a", metavar="WORD", help="how the key's id begins (default: a2a)")
    actions = _Actions(command, every)
    actions.add("create", "make a key; it is shown this once, on standard output", new)
    import_ = actions.add("import", "accept a key that was made elsewhere, of 32 or more random characters", new)
    import_.add_argument("file", nargs="?", default="-", metavar="FILE", help="holds the key (default: standard input)")
    actions.add("list", "show the keys, and no secret")
    rotate = actions.add("rotate", "make a key in place of another, which goes on for a while")
    rotate.add_argument("id", metavar="ID", help="of the key to replace, as the list has it")
    rotate.add_argument("--overlap", default="24h", metavar="TIME", help="how long the old key goes on (default: 24h)")
    rotate.add_argument("--expires", metavar="TIME", help="how long the new key is good (default: as the old one was)")
    revoke = actions.add("revoke", "revoke a key")
    revoke.add_argument("id", metavar="ID", help="of the key, as the list has it")


def _add_password(command: argparse.ArgumentParser) -> None:
    command.description = "Make, import, list, rotate and revoke the passwords of a store, for HTTP Basic."
    every = type(command)(add_help=False)
    every.add_argument("--store", required=True, metavar="FILE", help="the file with the passwords' records")
    _add_verbose(every)
    _add_json(every)
    user = type(command)(add_help=False)
    user.add_argument("--user", required=True, metavar="NAME", help="the caller; a user has one password")
    new = type(command)(add_help=False)
    new.add_argument(
        "--scope", action="append", default=[], metavar="SCOPE", help="what the user may do; may be repeated"
    )
    new.add_argument(
        "--expires", metavar="TIME", help="how long the password is good: 90d, 12h, 30m (default: it never expires)"
    )
    actions = _Actions(command, every)
    actions.add("create", "make a random password; it is shown this once, on standard output", user, new)
    import_ = actions.add("import", "accept a password that a person chose, of 15 or more characters", user, new)
    import_.add_argument(
        "file", nargs="?", default="-", metavar="FILE", help="holds the password (default: standard input, or a prompt)"
    )
    actions.add("list", "show the users, and no secret")
    rotate = actions.add("rotate", "make a new password for a user; the old one ends at once", user)
    rotate.add_argument("--expires", metavar="TIME", help="how long it is good (default: as the old one was)")
    actions.add("revoke", "revoke the password of a user", user)


def _add_trust(command: argparse.ArgumentParser) -> None:
    command.description = "Show a trust file, add keys to it, remove and revoke them; comments stay."
    every = type(command)(add_help=False)
    every.add_argument("file", metavar="FILE", help="the trust file")
    _add_verbose(every)
    _add_json(every)
    actions = _Actions(command, every)
    add = actions.add("add", "trust a key, or a key set, for some hosts; a file that is not there is made")
    add.add_argument(
        "--origin", action="append", required=True, metavar="HOST", help="host, *.parent or URL; may be repeated"
    )
    source = add.add_mutually_exclusive_group(required=True)
    source.add_argument("--public-key", metavar="FILE", help="one key, PEM or JWK")
    source.add_argument("--jwks", metavar="FILE", help="JWK Set; its keys are copied")
    source.add_argument("--jwks-url", metavar="URL", help="JWK Set on the network; fetched when a card is verified")
    add.add_argument("--kid", help="by what name signatures call the --public-key (default: its own)")
    add.add_argument("--name", help="name of the party: policies name it")
    _add_signer(add)
    add.add_argument("--alg", help="algorithm of RSA keys that do not say so themselves: RS256 … PS512")
    add.add_argument("--not-before", metavar="WHEN", help="from when: 30d, 12h, or 2027-01-31[T12:00:00Z]")
    add.add_argument("--not-after", metavar="WHEN", help="until when: 90d, 12h, or 2027-01-31[T12:00:00Z]")
    remove = actions.add("remove", "trust a key, a key set or a key file no more")
    remove.add_argument("what", metavar="KID|NAME|URL|FILE", help="as the list has it")
    actions.add("list", "show whom the file trusts for which hosts")
    revoke = actions.add("revoke", "revoke a key: whatever it signed proves nothing any more")
    revoke.add_argument("kid", nargs="?", metavar="KID", help="of a key in the file or in a key file that it names")
    revoke.add_argument("--thumbprint", help="of the key (RFC 7638), wherever it is listed, or nowhere")
    revoke.add_argument("--entry", metavar="NAME|URL", help="the entry whose fetched key set has the KID")
    revoke.add_argument("--fetch", action="store_true", help="fetch that key set now, and record the key's thumbprint")
    revoke.add_argument("--reason", default="", metavar="TEXT", help="for people who read the file")


def _add_memory(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Show what is remembered of agents whose cards were seen, accept a key of one, and forget one."
    )
    every = type(command)(add_help=False)
    every.add_argument("--file", metavar="FILE", help="the memory (default: the one of this user)")
    _add_verbose(every)
    _add_json(every)
    agent = type(command)(add_help=False)
    agent.add_argument("location", metavar="LOCATION", help="URL of the agent: https://host, or https://host/agents/a")
    actions = _Actions(command, every)
    actions.add("list", "show every location that a signed card came from, and its keys")
    accept = actions.add("accept", "hold an agent to these keys from now on, in place of those remembered", agent)
    accept.add_argument(
        "thumbprints",
        nargs="+",
        metavar="THUMBPRINT",
        help="of its key, from the people who run the agent, not from the agent",
    )
    actions.add("forget", "know nothing of an agent any more: its next card is the first one again", agent)


def _add_files(command: argparse.ArgumentParser, metavar: str, help: str) -> None:
    """Define the arguments that ``named_cards`` reads."""
    command.add_argument("files", nargs="*", metavar=metavar, help=help)
    command.add_argument(
        "--files-from", metavar="FILE", help="names of cards, one per line or separated by NUL; - is standard input"
    )


def _add_quiet(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "-q",
        "--quiet",
        action="store_true",
        help="say nothing of cards that pass: only errors, and warnings about keys and files",
    )


def _add_verbose(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "-v", "--verbose", action="store_true", help="log on standard error: what is fetched, made and skipped"
    )


def _add_json(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="report as JSON")


def _add_json_of_cards(command: argparse.ArgumentParser) -> argparse._MutuallyExclusiveGroup:
    """Define how a command over cards reports; ``options.json`` is empty, ``object`` or ``lines``."""
    forms = command.add_mutually_exclusive_group()
    forms.add_argument("--json", action="store_const", const="object", default="", help="report as one JSON object")
    forms.add_argument(
        "--json-lines",
        action="store_const",
        const="lines",
        dest="json",
        help="report as JSON Lines: an object for each card, and one for all of them",
    )
    return forms


def _add_encrypt(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--encrypt", action="store_true", help="encrypt with a passphrase; asks when none is in the environment"
    )


def _add_trusted(command: argparse.ArgumentParser) -> None:
    """Define the arguments that ``trusted_keys`` reads: cards, the keys that are trusted for them, and their origin."""
    _add_files(
        command, "FILE|URL", "a card as it was served, a directory, a quoted glob, - for standard input, or an agent"
    )
    command.add_argument(
        "--jwks", action="append", default=[], metavar="FILE", help="JWK Set of trusted keys; may be repeated"
    )
    command.add_argument(
        "--public-key", action="append", default=[], metavar="FILE", help="one trusted key, PEM or JWK; may be repeated"
    )
    command.add_argument("--kid", help="by what name signatures call the keys of --public-key (default: their own)")
    command.add_argument("--alg", help="algorithm of RSA keys that do not say so themselves")
    command.add_argument(
        "--trust", metavar="FILE", help="trust file: keys, key sets on the network, policies and revocations by host"
    )
    origin = command.add_mutually_exclusive_group()
    origin.add_argument(
        "--origin",
        metavar="URL",
        help="URL or host that the card is from; the keys may speak for it only (default for a URL: itself)",
    )
    origin.add_argument(
        "--origin-from-card",
        action="store_true",
        help="the hosts of the card's interfaces; the entry of the signing key in --trust has to cover all of them",
    )
    origin.add_argument(
        "--any-origin",
        action="store_true",
        help="do not ask where the card is from: whoever has it from another host does not notice",
    )
    _add_signer(command)
    command.add_argument(
        "--allow-private",
        action="store_true",
        help="agents that are named by URL may be on this machine (http too) or have private addresses (https)",
    )


def _add_signer(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--signer",
        choices=SIGNERS,
        help="the tool that signs with the keys: of a2a-python and a2a-js accept signatures that prove a part of the "
        "card; whole: it signs complete cards",
    )


def _add_ring(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", metavar="RING", help="the file with the key ring")


#: Each command, which is a module here with ``run``: what the list of commands says of it, and what adds its arguments.
COMMANDS: Final = {
    "sign": ("sign cards (the command when none is named)", _add_sign),
    "keygen": ("make a signing key", _add_keygen),
    "verify": ("verify cards against keys that you trust", _add_verify),
    "inspect": ("show cards for people", _add_inspect),
    "lint": ("check cards for problems", _add_lint),
    "rotate": ("add the next signing key to a ring: published now, signing later", _add_rotate),
    "keys": ("manage a ring of signing keys", _add_keys),
    "api-key": ("manage the API keys of a server", _add_api_key),
    "password": ("manage the passwords of a server", _add_password),
    "trust": ("manage whom you trust", _add_trust),
    "memory": ("manage what is remembered of agents", _add_memory),
}
