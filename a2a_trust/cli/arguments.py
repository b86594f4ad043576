"""The arguments of every command.

Only ``argparse`` is imported here, so ``--help`` and usage errors are fast.
"""

from __future__ import annotations

import argparse

TYPE_CHECKING = False  # typing takes a tenth of the time that --help may take
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Final

#: The metavars of arguments that name files.
FILES: Final = ("FILE", "FILE|URL", "FOLDER", "RING")
#: The values of ``keys.trust.store.SigningTool``, whose import would be slow.
SIGNERS: Final = ("a2a-trust", "a2a-python", "a2a-js", "whole")
_CALLER: Final = {
    "owner": "name of the caller; all keys of an owner are one caller",
    "user": "name of the caller; a user has one password",
}
_ALGORITHMS: Final = "ES256, ES384, ES512, EdDSA, RS256 … PS512"


def _actions(
    command: argparse.ArgumentParser, every: argparse.ArgumentParser
) -> Callable[..., argparse.ArgumentParser]:
    """A function that adds an action, such as ``keys create``, by name, summary and parsers of further arguments.

    Each action has the arguments of ``every``. ``options.action`` is the name of the action that was called.
    """
    actions = command.add_subparsers(dest="action", required=True)

    def add(name: str, summary: str, *parents: argparse.ArgumentParser) -> argparse.ArgumentParser:
        action = actions.add_parser(name, parents=[every, *parents], help=summary, description=summary)
        actions.metavar = f"{{{','.join(actions.choices)}}}"
        return action

    return add


def _add_sign(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Sign Agent Cards in place, or one card to -o FILE. Nothing is written until every card is signed and its new "
        "signatures are verified."
    )
    _add_files(command, "FILE", "card file, directory of cards, quoted glob, or - for standard input")
    command.add_argument(
        "-o", "--output", metavar="FILE", help="file for the signed card; - is standard output (default: in place)"
    )
    when = command.add_mutually_exclusive_group()
    when.add_argument(
        "--if-needed", action="store_true", help="do not change cards that are already signed as these options ask"
    )
    when.add_argument(
        "--check", action="store_true", help="write nothing; exit with 1 if a card has to be signed, and say why"
    )
    command.add_argument(
        "--expires-within",
        metavar="TIME",
        help="with --if-needed or --check: a card also has to be signed when its signature expires within this time: "
        "14d, 12h, 30m",
    )
    _add_signing_keys(command)
    command.add_argument(
        "--jku", metavar="URL", help="https URL of the JWK Set with the public key, written into the signature"
    )
    command.add_argument(
        "--expires",
        metavar="WHEN",
        help="when the signature expires: 90d, 12h, 30m, or 2027-01-31[T12:00:00Z] (default: never)",
    )
    command.add_argument(
        "--drop-broken",
        action="store_true",
        help="signing drops empty members, which may break signatures of others: remove those signatures",
    )
    command.add_argument(
        "--companion",
        action=argparse.BooleanOptionalAction,
        help="add a second signature for SDKs that reject the card without it, although it does not protect security "
        "requirements without scopes, for example (default: add it only where it leaves no security member open)",
    )
    command.add_argument(
        "--no-iat",
        action="store_true",
        help="do not write the time of signing into the signature; clients then cannot reject older cards",
    )
    command.add_argument(
        "--allow",
        action="append",
        default=[],
        metavar="RULE",
        help="sign although lint finds an error of this rule; may be repeated",
    )
    _add_cards_from(command)
    _add_quiet(command)
    _add_json_of_cards(command)


def _add_signing_keys(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--key",
        action="append",
        default=[],
        metavar="FILE",
        help="private key (PEM, JWK) or key ring to sign with; repeat to sign with several keys",
    )
    command.add_argument(
        "--kid", help="name of the key in the signature (default: the kid in the key file, else the key's thumbprint)"
    )
    command.add_argument(
        "--alg", help="algorithm of an RSA key: RS256 … PS512 (default: the alg in the key file, else RS256)"
    )


def _add_keygen(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Make a signing key, and the JWK Set that publishes its public key. An existing private key is never "
        "overwritten. For keys that replace each other over time, make a ring: a2a-sign keys create."
    )
    command.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="file for the private key (default: the default key, with which sign signs when no other key is given)",
    )
    command.add_argument(
        "--alg", default="ES256", help="algorithm: ES256 (default), ES384, ES512, EdDSA, RS256 … PS512"
    )
    command.add_argument("--kid", help="name of the key (default: its RFC 7638 thumbprint)")
    command.add_argument(
        "--format",
        choices=("pem", "jwk"),
        help="format of the private key file (default: pem, or jwk with --encrypt and where PEM cannot hold the kid or "
        "the algorithm; a passphrase of encrypted PEM is guessed a hundred times as fast as one of an encrypted JWK)",
    )
    _add_encrypt(command)
    _add_json(command)


def _add_verify(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Verify Agent Cards with keys that you trust. For cards in files also say which host they are from: --origin, "
        "--origin-from-card or --any-origin."
    )
    _add_trusted(command)
    command.add_argument(
        "--memory",
        metavar="FILE|URL",
        help="card memory, a file or postgresql://USER@HOST/DATABASE: a card that is older than the last one of its "
        "agent is rejected (default: the memory of this user; in pipelines, when CI is set, none)",
    )
    command.add_argument(
        "--on-first-use",
        action="store_true",
        help="trust the keys that an agent publishes itself when its first card comes; later cards need the same keys",
    )
    command.add_argument(
        "--expires-within",
        metavar="TIME",
        help="exit with 1 also for cards that are verified for less than this time: 14d",
    )
    command.add_argument("--at", metavar="WHEN", help="verify as of a later moment, without the card memory: 30d")
    _add_cards_from(command)
    command.add_argument(
        "--report", metavar="FILE", help="write a JSON line for each card, without the card, to a new file"
    )
    _add_quiet(command)
    _add_verbose(command)
    _add_json_of_cards(command)


def _add_inspect(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Show what Agent Cards say: the agent, its URLs, how to authenticate, its skills, and who signed. With keys, "
        "also show which signatures verify. Without keys, it says that they were NOT CHECKED; in JSON the member "
        "checked of each card is then false, and verified is null."
    )
    _add_trusted(command)
    _add_verbose(command)
    _add_json_of_cards(command)


def _add_lint(command: argparse.ArgumentParser) -> None:
    command.description = "Check Agent Cards for problems. Warnings and notes do not change the exit code."
    _add_files(command, "FILE", "card file, directory of cards, quoted glob, or - for standard input")
    command.add_argument(
        "--fix",
        action="store_true",
        help="remove members that say nothing (null, defaults) from the files; signed cards are not changed",
    )
    _add_quiet(command)
    output = _add_json_of_cards(command)
    output.add_argument("--sarif", action="store_true", help="report as SARIF 2.1.0, for code scanning")


def _add_probe(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Ask running agents whether they enforce what their cards declare: each operation that changes nothing is "
        "called without a credential, with wrong ones, and with yours if you give them."
    )
    kinds = "an API key, a token or USER:PASSWORD, for ORIGIN only (default: the origin of URL); may be repeated"
    for names, metavar, text in (
        (["urls"], "URL", "URL of an agent, or of its card, which ends in .json"),
        (["--list"], "FILE", "file with the URLs of agents, one per line; - is standard input"),
        (["--credential"], "SCHEME=FILE[@ORIGIN]", f"valid credential for a scheme of the card: {kinds}"),
        (["--lacking"], "SCHEME=FILE[@ORIGIN]", f"the same without a required scope, which must be rejected: {kinds}"),
        (["--interface-origin"], "ORIGIN", "further origin whose interfaces are asked (default: the origin of URL)"),
        (["--trust"], "FILE", "trust file with the keys that verify the card"),
    ):
        several: dict[str, Any] = {"nargs": "*"} if names == ["urls"] else {"action": "append", "default": []}
        command.add_argument(*names, metavar=metavar, help=text, **({} if metavar == "FILE" else several))
    for name, text in (
        ("--private-origins", "allow agents on this machine (http too) and at private addresses (https)"),
        ("--allow-tasks", "create a task, and cancel it, to see whether push notifications to 127.0.0.1 are accepted"),
    ):
        command.add_argument(name, action="store_true", help=text)
    command.add_argument(
        "--fail-on",
        choices=("not-enforced", "cannot-tell"),
        default="not-enforced",
        help="exit with 1 for this verdict or a worse one (default: not-enforced)",
    )
    _add_quiet(command)
    _add_verbose(command)
    _add_json_of_cards(command).add_argument(
        "--sarif", action="store_true", help="report as SARIF 2.1.0, for code scanning"
    )


def _add_keys(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Make a ring of signing keys, show it, rotate and revoke its keys, and export its JWK Set. keygen makes one "
        "key that stays; a ring is for keys that replace each other over time."
    )
    every = type(command)(add_help=False)
    every.add_argument("file", metavar="RING", help="file with the key ring")
    _add_json(every)
    add = _actions(command, every)
    create = add("create", "make a key ring; its first key signs at once")
    create.add_argument(
        "--alg", help=f"algorithm of a new key: {_ALGORITHMS} (default: ES256), or of an RSA key of --key"
    )
    create.add_argument("--key", metavar="FILE", help="use this private key (PEM, JWK) instead of a new one")
    create.add_argument("--kid", help="name of the key of --key (default: the kid in its file, else its thumbprint)")
    _add_encrypt(create)
    add("list", "show each key, its state, and when the state changes; no secrets")
    rotate = add("rotate", "add the next key: published now, signing later")
    rotate.add_argument(
        "--overlap",
        default="24h",
        metavar="TIME",
        help="how long the new key is published before it signs; at least the max-age of the key set (default: 24h)",
    )
    rotate.add_argument(
        "--keep",
        default="91d",
        metavar="TIME",
        help="how long the old key stays published after that; at least the longest --expires plus the max-age of the "
        "cards (default: 91d)",
    )
    rotate.add_argument("--alg", help=f"algorithm of the new key: {_ALGORITHMS} (default: as the last key)")
    revoke = add("revoke", "revoke a key at once; if it was the active one, another key signs from now on")
    revoke.add_argument("kid", metavar="KID", help="kid of the key; see keys list")
    export = add("export", "write the JWK Set to publish: the public keys of next, active and retired keys")
    export.add_argument(
        "-o", "--output", default="-", metavar="FILE", help="file for the JWK Set (default: standard output)"
    )


def _add_api_key(command: argparse.ArgumentParser) -> None:
    store = "a file with records of the keys, or postgresql://USER@HOST/DATABASE, or rediss://HOST:6379/0"
    create, import_, list_, rotate, revoke = _add_secrets(
        command, "API key", "owner", store, "was made elsewhere, of 32 or more random characters", "stays for --overlap"
    )
    for new in (create, import_):
        new.add_argument("--prefix", default="a2a", metavar="WORD", help="first word of the key's ID (default: a2a)")
    list_.add_argument("--owner", metavar="NAME", help="show only keys of this owner")
    list_.add_argument("--unused-for", metavar="TIME", help="show only valid keys that were unused for this time: 90d")
    rotate.add_argument("id", metavar="ID", help="ID of the old key; see api-key list")
    rotate.add_argument(
        "--overlap", default="24h", metavar="TIME", help="how long the old key stays valid (default: 24h)"
    )
    revoke.add_argument("ids", nargs="*", metavar="ID", help="ID of a key, see api-key list; - reads IDs line by line")
    revoke.add_argument("--owner", metavar="NAME", help="revoke all keys of this owner")


def _add_password(command: argparse.ArgumentParser) -> None:
    store = "a file with records of the passwords"
    *_, rotate, revoke = _add_secrets(
        command, "password", "user", store, "a person chose, of 15 or more characters", "is rejected at once"
    )
    rotate.add_argument("--user", required=True, metavar="NAME", help=_CALLER["user"])
    _add_caller(revoke, "user")


def _add_secrets(
    command: argparse.ArgumentParser, kind: str, person: str, store: str, imported: str, replaced: str
) -> list[argparse.ArgumentParser]:
    """Add the actions that API keys and passwords share: create, import, list, rotate and revoke.

    ``person`` is the option that names a caller. ``imported`` says what may be imported, and ``replaced`` what happens
    to a secret that was rotated.
    """
    command.description = f"Make, import, list, rotate and revoke the {kind}s in a store."
    every, new = type(command)(add_help=False), type(command)(add_help=False)
    every.add_argument("--store", required=True, metavar="FILE", help=f"the store: {store}")
    _add_quiet(every, "print no notes; list prints the names only")
    _add_verbose(every)
    _add_json(every)
    new.add_argument(
        "--scope", action="append", default=[], metavar="SCOPE", help=f"scope that the {kind} grants; may be repeated"
    )
    new.add_argument(
        "--expires", metavar="TIME", help=f"how long the {kind} is valid: 90d, 12h, 30m (default: it never expires)"
    )
    add = _actions(command, every)
    create = add(
        "create", f"make one {kind}, and show it once, on standard output; or one for each of many {person}s", new
    )
    _add_caller(create, person)
    create.add_argument(
        "-o",
        "--output",
        metavar="FOLDER",
        help=f"with --{person}s-from: new folder with a file for each {kind}, and for index.tsv, which names the "
        f"{person} of each",
    )
    import_ = add("import", f"accept one {kind} that {imported}", new)
    import_.add_argument(f"--{person}", required=True, metavar="NAME", help=_CALLER[person])
    import_.add_argument(
        "file",
        nargs="?",
        default="-",
        metavar="FILE",
        help=f"file with the {kind} (default: standard input, or a prompt on a terminal)",
    )
    list_ = add("list", f"show the {kind}s; no secrets")
    list_.add_argument(
        "--expires-within", metavar="TIME", help=f"show only valid {kind}s that expire within this time: 14d, 12h, 30m"
    )
    rotate = add("rotate", f"replace one {kind} by a new one; the old one {replaced}")
    rotate.add_argument(
        "--expires", metavar="TIME", help=f"how long the new {kind} is valid (default: as long as the old one was)"
    )
    revoke = add("revoke", f"revoke {kind}s at once; all of them, or none if a name is unknown")
    return [create, import_, list_, rotate, revoke]


def _add_caller(command: argparse.ArgumentParser, person: str) -> None:
    """Add the options that name one caller, or many in a file."""
    named = command.add_mutually_exclusive_group(required=True)
    named.add_argument(f"--{person}", metavar="NAME", help=_CALLER[person])
    named.add_argument(
        f"--{person}s-from", dest="names", metavar="FILE", help="file with a name on each line; - is standard input"
    )


def _add_database(command: argparse.ArgumentParser) -> None:
    command.description = "Make the tables of agents on several machines in PostgreSQL, or bring them up to date."
    every = type(command)(add_help=False)
    every.add_argument(
        "url",
        metavar="URL",
        help="postgresql://USER@HOST/DATABASE; the password comes from PGPASSWORD, PGPASSFILE or ~/.pgpass",
    )
    _add_json(every)
    add = _actions(command, every)
    add("migrate", "make the tables of this release, or change older ones into them; all or nothing")
    add("check", "change nothing; exit with 1 if the tables are older than this release needs")


def _add_trust(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Show a trust file, add keys to it, remove them and revoke them. Your comments in the file stay."
    )
    every = type(command)(add_help=False)
    every.add_argument("file", metavar="FILE", help="the trust file")
    _add_verbose(every)
    _add_json(every)
    add = _actions(command, every)
    entry = add("add", "trust a key or a key set for some hosts; makes the file if there is none")
    entry.add_argument(
        "--origin",
        action="append",
        required=True,
        metavar="HOST",
        help="host for whose cards the keys are trusted: a host, *.parent or a URL; may be repeated",
    )
    source = entry.add_mutually_exclusive_group(required=True)
    source.add_argument("--public-key", metavar="FILE", help="one public key, PEM or JWK; it is copied")
    source.add_argument("--jwks", metavar="FILE", help="JWK Set; its keys are copied")
    source.add_argument("--jwks-url", metavar="URL", help="JWK Set on the network; fetched when a card is verified")
    entry.add_argument(
        "--kid", help="kid of the key of --public-key in signatures (default: the kid in its file, else its thumbprint)"
    )
    entry.add_argument("--name", help="name of the party that signs with the keys, for policies")
    _add_signer(entry)
    entry.add_argument("--alg", help="algorithm of RSA keys without an alg: RS256 … PS512")
    entry.add_argument(
        "--not-before", metavar="WHEN", help="when the trust begins: 30d, 12h, or 2027-01-31[T12:00:00Z]"
    )
    entry.add_argument("--not-after", metavar="WHEN", help="when the trust ends: 90d, 12h, or 2027-01-31[T12:00:00Z]")
    remove = add("remove", "remove an entry: its key, key set or key file is no longer trusted")
    remove.add_argument("what", metavar="KID|NAME|URL|FILE", help="of the entry; see trust list")
    add("list", "show which keys the file trusts for which hosts")
    revoke = add("revoke", "revoke keys: nothing that they ever signed is accepted any more")
    revoke.add_argument("kid", nargs="?", metavar="KID", help="kid of a key in the file or in a key file that it names")
    keys = revoke.add_mutually_exclusive_group()
    keys.add_argument(
        "--thumbprint", help="RFC 7638 thumbprint of the key, instead of a KID; the key need not be in the file"
    )
    keys.add_argument(
        "--jwks", metavar="FILE", help="revoke all keys of this JWK Set, also keys that are not in the file"
    )
    keys.add_argument("--ring", metavar="FILE", help="revoke all keys of this key ring; its private keys are not read")
    revoke.add_argument("--yes", action="store_true", help="with --jwks or --ring: also if a host has no key left")
    revoke.add_argument("--entry", metavar="NAME|URL", help="entry whose key set on the network has the KID")
    revoke.add_argument("--fetch", action="store_true", help="fetch that key set now, and record the key's thumbprint")
    revoke.add_argument("--reason", default="", metavar="TEXT", help="a note for people who read the file")


def _add_memory(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Manage the card memory: show what is remembered of agents, accept new keys of an agent, and forget an agent."
    )
    every = type(command)(add_help=False)
    every.add_argument(
        "--file",
        metavar="FILE|URL",
        help="the card memory: a file, or postgresql://USER@HOST/DATABASE (default: the memory of this user)",
    )
    _add_verbose(every)
    _add_json(every)
    agent = type(command)(add_help=False)
    agent.add_argument("location", metavar="LOCATION", help="URL of the agent: https://host, or https://host/agents/a")
    add = _actions(command, every)
    add("list", "show the URL of every agent whose verified card was seen, and its keys")
    accept = add("accept", "replace the remembered keys of an agent by these keys", agent)
    accept.add_argument(
        "thumbprints",
        nargs="+",
        metavar="THUMBPRINT",
        help="RFC 7638 thumbprint of its key; get it from the people who run the agent, not from the agent",
    )
    add("forget", "remove an agent from the memory; its next card is its first one again", agent)


def _add_files(command: argparse.ArgumentParser, metavar: str, help: str) -> None:
    """Define the arguments that ``named_cards`` reads."""
    command.add_argument("files", nargs="*", metavar=metavar, help=help)
    command.add_argument(
        "--files-from",
        metavar="FILE",
        help="file with the names of cards, one per line or separated by NUL; - is standard input",
    )


def _add_cards_from(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--cards-from",
        metavar="FILE",
        help="JSON Lines with a card in each line, or an object with the members card and origin; - is standard input",
    )


def _add_quiet(command: argparse.ArgumentParser, text: str = "print only errors, warnings and the sum") -> None:
    command.add_argument("-q", "--quiet", action="store_true", help=text)


def _add_verbose(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "-v", "--verbose", action="store_true", help="log on standard error what is fetched, made and skipped"
    )


def _add_json(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="report as JSON")


def _add_json_of_cards(command: argparse.ArgumentParser) -> argparse._MutuallyExclusiveGroup:
    """``options.json`` is empty, ``object`` or ``lines``."""
    forms = command.add_mutually_exclusive_group()
    forms.add_argument("--json", action="store_const", const="object", default="", help="report as one JSON object")
    forms.add_argument(
        "--json-lines",
        action="store_const",
        const="lines",
        dest="json",
        help="report as JSON Lines: one object for each card or agent, then one for all of them",
    )
    return forms


def _add_encrypt(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--encrypt", action="store_true", help="encrypt with the passphrase in A2A_SIGN_KEY_PASSPHRASE, or ask for one"
    )


def _add_trusted(command: argparse.ArgumentParser) -> None:
    """Define the arguments that ``trusted_keys`` reads: cards, the keys that are trusted for them, and their origin."""
    _add_files(
        command, "FILE|URL", "card file, directory of cards, quoted glob, - for standard input, or URL of an agent"
    )
    command.add_argument(
        "--jwks", action="append", default=[], metavar="FILE", help="JWK Set of trusted keys; may be repeated"
    )
    command.add_argument(
        "--public-key", action="append", default=[], metavar="FILE", help="one trusted key, PEM or JWK; may be repeated"
    )
    command.add_argument(
        "--kid", help="kid of the key of --public-key in signatures (default: the kid in its file, else its thumbprint)"
    )
    command.add_argument("--alg", help="algorithm of RSA keys without an alg: RS256 … PS512")
    command.add_argument(
        "--trust", metavar="FILE", help="trust file: which keys are trusted for which hosts; see a2a-sign trust"
    )
    origin = command.add_mutually_exclusive_group()
    origin.add_argument(
        "--origin",
        metavar="URL",
        help="URL or host that the card is from; keys of --jwks and --public-key are trusted for it only (default for "
        "an agent: its URL)",
    )
    origin.add_argument(
        "--origin-from-card",
        action="store_true",
        help="the card is from the host of its first interface; the signing key must be trusted for all hosts that the "
        "card names",
    )
    origin.add_argument(
        "--any-origin",
        action="store_true",
        help="do not check where the card is from; a card that was copied from another host is accepted",
    )
    _add_signer(command)
    command.add_argument(
        "--private-origins",
        action="store_true",
        help="allow URLs of agents on this machine (http too) and at private addresses (https)",
    )
    for name, text in (
        ("--header-from", "headers for the URL of a card, one on a line: Authorization: Bearer …"),
        ("--client-certificate", "certificate for the URL of a card, in PEM; needs --client-key"),
        ("--client-key", "private key of --client-certificate"),
    ):
        command.add_argument(name, metavar="FILE", help=text)


def _add_serve(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Enforce an agent's card in front of it, as a reverse proxy, whatever the agent is written in. The TOML file "
        "has the arguments of protect, and where to listen and to pass requests; it is read again after a change."
    )
    what = command.add_mutually_exclusive_group(required=True)
    what.add_argument("file", nargs="?", metavar="FILE", help="configuration file")
    what.add_argument("--init", metavar="FILE", help="print a configuration file for the card in this file, and exit")
    command.add_argument(
        "--check", action="store_true", help="fetch the key sets, say what would be enforced, and exit"
    )


def _add_signer(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--signer",
        choices=SIGNERS,
        help="tool that signs with the keys. a2a-trust: accept only its signatures. whole: also accept signatures of "
        "other tools over the whole card. a2a-python, a2a-js: also accept their signatures, which cover a part of the "
        "card (default: accept signatures that show that they cover the whole card)",
    )


def may_be_new(action: argparse.Action, command: str) -> bool:
    """Whether the command makes the file that this argument names. ``command`` ends with its action, as in
    ``keys create``."""
    is_made = command.endswith((" create", " add", " accept", " import"))
    return action.dest in ("output", "report", "memory") or (is_made and action.dest in ("file", "store"))


def names_database(action: argparse.Action) -> bool:
    """Whether the argument may be the URL of a database in the place of a file."""
    return action.dest == "store" or (action.metavar == "FILE|URL" and action.dest != "files")


#: Name -> summary and function that adds the arguments. Each command is a module here with a function ``run``.
COMMANDS: Final = {
    "sign": ("sign cards; the command if no other is named", _add_sign),
    "keygen": ("make one signing key", _add_keygen),
    "verify": ("verify cards with keys that you trust", _add_verify),
    "inspect": ("show the content of cards, and who signed them", _add_inspect),
    "lint": ("check cards for problems", _add_lint),
    "probe": ("ask running agents whether they enforce their cards", _add_probe),
    "serve": ("enforce an agent's card in front of it, as a reverse proxy", _add_serve),
    "keys": ("manage a key ring: signing keys that replace each other over time", _add_keys),
    "api-key": ("manage the API keys that an agent accepts", _add_api_key),
    "password": ("manage the passwords that an agent accepts", _add_password),
    "trust": ("manage a trust file: which keys are trusted for which hosts", _add_trust),
    "database": ("make the tables of agents on several machines in PostgreSQL, or update them", _add_database),
    "memory": ("manage the card memory: what is remembered of agents", _add_memory),
}
