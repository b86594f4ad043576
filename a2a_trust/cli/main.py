"""``a2a-sign``: the arguments, and which command they are for.

Only argparse is imported here: the help must come at once. Every command imports what it needs when it runs.
"""

from __future__ import annotations

import argparse
import io
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

__all__ = ["main"]

_COMMANDS = ("sign", "keygen", "verify", "inspect", "lint", "rotate", "keys", "api-key", "trust", "pins")

_EPILOG = """\
examples:
  a2a-sign keygen                                   make the default key
  a2a-sign card.json                                sign in place
  a2a-sign card.json -o signed.json --expires 90d   sign a copy that expires
  a2a-sign verify card.json --jwks keys.json --origin https://agent.example.com
  a2a-sign verify https://agent.example.com --trust trust.toml
  a2a-sign trust add trust.toml --origin https://agent.example.com --jwks keys.json
  a2a-sign lint card.json                           say what in a card should be otherwise
  a2a-sign rotate ring.json                         publish the next key of a ring, which signs in a day

keys come from --key FILE, from A2A_SIGN_KEY (the key itself) or A2A_SIGN_KEY_FILE, else from the default key;
an encrypted key is opened with A2A_SIGN_KEY_PASSPHRASE, A2A_SIGN_KEY_PASSPHRASE_FILE, or by asking.

exit codes:
  0 ok   1 invalid   2 usage or configuration   3 unsigned   4 untrusted   5 uncovered members   6 input or output
  129, 130, 143 ended by SIGHUP, Ctrl-C, SIGTERM
"""


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit code. While it runs, SIGTERM and SIGHUP end it as Ctrl-C does."""
    arguments = sys.argv[1:] if argv is None else argv
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # what the terminal cannot show is no reason to fail
    try:
        with _ended_by_signals():
            code = _run(arguments)
            if sys.stdout is not None:
                sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except _EndedBySignal as end:
        return 128 + end.number
    except OSError as error:
        # Whoever read our output has gone, or has no space; leave nothing for the interpreter to flush into the void.
        sys.stdout = None
        if not isinstance(error, BrokenPipeError) and sys.stderr is not None:
            print(f"a2a-sign: error: {error}", file=sys.stderr)
        return 6
    return code


class _EndedBySignal(SystemExit):  # asyncio and others pass it on, as they do KeyboardInterrupt
    """SIGTERM or SIGHUP came. What is open is closed on the way out, and temporaries are removed."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(128 + number)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """In the block SIGTERM and SIGHUP raise _EndedBySignal, once; a signal that the caller ignores stays ignored."""
    if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
        yield  # there are no such signals, or another thread decides what they do
        return
    before: dict[int, Any] = {}
    came: list[int] = []
    hook = sys.unraisablehook

    def end(number: int, _: object) -> None:
        came.append(number)
        for each in before:
            signal.signal(each, signal.SIG_IGN)  # a second one would end the cleaning up
        raise _EndedBySignal(number)

    def lost(exception: sys.UnraisableHookArgs) -> None:
        error = exception.exc_value
        if not isinstance(error, _EndedBySignal):
            hook(exception)
            return
        # It was raised where nothing can be, as in a callback of the import system: raise it again, outside of that.
        number = error.number
        before.setdefault(signal.SIGALRM, signal.signal(signal.SIGALRM, lambda *_: end(number, None)))
        signal.setitimer(signal.ITIMER_REAL, 0.001)

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            before[number] = signal.signal(number, end)
    sys.unraisablehook = lost
    try:
        yield
    except BaseException as error:
        if came and not isinstance(error, _EndedBySignal):
            raise _EndedBySignal(came[0]) from None  # Python makes another exception of it while it makes a class
        raise
    finally:
        if signal.SIGALRM in before:
            signal.setitimer(signal.ITIMER_REAL, 0)
        sys.unraisablehook = hook
        for each, handler in before.items():
            signal.signal(each, handler)


def _run(arguments: list[str]) -> int:
    if not arguments:
        _parser("").print_help(sys.stderr)
        return 2
    if arguments[0] not in (*_COMMANDS, "-h", "--help", "--version"):
        # An option may come first, as in `a2a-sign --key FILE card.json`; a card's name has a dot or a slash.
        if not arguments[0].startswith("-") and _is_word(arguments[0]) and not Path(arguments[0]).exists():
            from a2a_trust.cli.report import Exit, failed
            from a2a_trust.errors import ConfigurationError

            error = ConfigurationError(
                f"there is no command and no file {arguments[0]}; the commands are {', '.join(_COMMANDS)}"
            )
            return failed("sign", error, as_json="--json" in arguments, code=Exit.USAGE)
        arguments = ["sign", *arguments]  # `a2a-sign card.json` signs; a file of a command's name is ./verify
    parser = _parser(arguments[0])
    parser.called = arguments[0]
    try:
        options = parser.parse_args(arguments)
    except _EndedBySignal:
        raise
    except SystemExit as end:  # after --help, --version, or a mistake
        return end.code if isinstance(end.code, int) else 2
    command = import_module(f"a2a_trust.cli.{options.command.replace('-', '_')}")
    code: int = command.run(options)
    return code


def _is_word(text: str) -> bool:
    return text.replace("-", "").isalpha()


class _Parser(argparse.ArgumentParser):
    """Reports mistakes as JSON too, when the arguments ask for JSON."""

    wants_json = False
    called = ""
    """The command that was called, for mistakes that are found above it."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self.wants_json = "--json" in (args or ())
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        if self.wants_json:
            from a2a_trust.cli.report import Exit, failed
            from a2a_trust.errors import ConfigurationError

            command = self.prog.partition(" ")[2] or self.called
            self.exit(failed(command, ConfigurationError(message), as_json=True, code=Exit.USAGE))
        super().error(message)


class _Version(argparse.Action):
    """Prints the version; the metadata is read only then."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from importlib.metadata import version

        print(f"a2a-sign {version('a2a-trust')}")
        parser.exit()


def _parser(called: str) -> _Parser:
    """The parser; of commands with commands of their own, these only where they are called: each takes its time."""
    parser = _Parser(
        prog="a2a-sign",
        description="Sign and verify A2A Agent Cards.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", nargs=0, action=_Version, help="print the version and exit")
    commands = parser.add_subparsers(dest="command", required=True, metavar=f"{{{','.join(_COMMANDS)}}}")

    sign = commands.add_parser(
        "sign",
        help="sign cards (the command when none is named)",
        description="Sign Agent Cards, in place or to -o. Nothing is written unless all were signed and verified.",
        allow_abbrev=False,
    )
    sign.add_argument("files", nargs="+", metavar="FILE", help="a card, or - for standard input")
    sign.add_argument("-o", "--output", metavar="FILE", help="where the signed card goes; - is standard output")
    sign.add_argument(
        "--key", action="append", metavar="FILE", help="private key (PEM, JWK) or key ring; repeat to sign with several"
    )
    sign.add_argument("--kid", help="name of the key in the signature (default: the key's own, else its thumbprint)")
    sign.add_argument("--alg", help="algorithm of an RSA key: RS256 … PS512 (default: the key's own, else RS256)")
    sign.add_argument("--jku", metavar="URL", help="https URL of the JWK Set that holds the public key")
    sign.add_argument(
        "--expires", metavar="WHEN", help="when the signature ends: 90d, 12h, 30m, or 2027-01-31[T12:00:00Z]"
    )
    sign.add_argument(
        "--drop-broken", action="store_true", help="remove signatures of others that dropping empty members may break"
    )
    sign.add_argument(
        "--no-companion", action="store_true", help="no second signature for SDKs that cannot check the full one"
    )
    sign.add_argument(
        "--no-iat", action="store_true", help="leave out when the card was signed; clients then miss older cards"
    )
    sign.add_argument(
        "--allow",
        action="append",
        default=[],
        metavar="RULE",
        help="sign although this rule of lint finds an error; may be repeated",
    )
    sign.add_argument("--json", action="store_true", help="report as JSON")

    keygen = commands.add_parser(
        "keygen",
        help="make a signing key",
        description="Make a signing key and its JWK Set. A private key that is there is never overwritten; if only its "
        "JWK Set is missing, that is made from it.",
        allow_abbrev=False,
    )
    keygen.add_argument("-o", "--output", metavar="FILE", help="private key file (default: the default key)")
    keygen.add_argument("--alg", default="ES256", help="ES256 (default), ES384, ES512, EdDSA, RS256 … PS512")
    keygen.add_argument("--kid", help="name of the key (default: its RFC 7638 thumbprint)")
    keygen.add_argument("--format", choices=("pem", "jwk"), help="default: pem where it can hold all, else jwk")
    keygen.add_argument(
        "--encrypt", action="store_true", help="encrypt with a passphrase; asks when none is in the environment"
    )
    keygen.add_argument("--json", action="store_true", help="report as JSON")

    verify = commands.add_parser(
        "verify",
        help="verify cards against keys that you trust",
        description="Verify Agent Cards. Without --origin a file is not bound to the host that served it.",
        allow_abbrev=False,
    )
    _add_trusted(verify)
    verify.add_argument(
        "--memory",
        metavar="FILE",
        help="what is remembered of agents; older cards than those seen are refused (default: that of this user)",
    )
    verify.add_argument(
        "--on-first-use",
        action="store_true",
        help="of agents of whom nothing is known: believe the keys that they publish, and hold them to these later",
    )
    verify.add_argument("--json", action="store_true", help="report as JSON, the verified card included")
    inspect = commands.add_parser(
        "inspect",
        help="show cards for people",
        description="Show who an agent is, where, how to authenticate, and who signed what; with keys, what holds.",
        allow_abbrev=False,
    )
    _add_trusted(inspect)
    inspect.add_argument("--json", action="store_true", help="report as JSON")
    _add_lint(commands)
    text = "bring the next signing key of a ring on its way: published now, signing later"
    rotate = commands.add_parser("rotate", help=text, description=text, allow_abbrev=False)
    _add_rotate(rotate)
    text = "Make a ring of signing keys, show it, revoke a key of it, and write its JWK Set."
    keys = commands.add_parser("keys", help="manage a ring of signing keys", description=text, allow_abbrev=False)
    if called == "keys":
        _add_keys(keys)
    text = "Make, import, list, rotate and revoke the API keys of a store."
    api_key = commands.add_parser(
        "api-key", help="manage the API keys of a server", description=text, allow_abbrev=False
    )
    if called == "api-key":
        _add_api_key(api_key)
    text = "Show a trust file, add keys to it, remove and revoke them; comments stay."
    trust = commands.add_parser("trust", help="manage whom you trust", description=text, allow_abbrev=False)
    if called == "trust":
        _add_trust(trust)
    text = "Show what is remembered of agents whose cards were seen, accept a key of one, and forget one."
    pins = commands.add_parser("pins", help="manage what is remembered of agents", description=text, allow_abbrev=False)
    if called == "pins":
        _add_pins(pins)
    return parser


def _add_trusted(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "files", nargs="+", metavar="FILE|URL", help="a card as it was served, - for standard input, or an agent to ask"
    )
    command.add_argument(
        "--jwks", action="append", default=[], metavar="FILE", help="JWK Set of trusted keys; may be repeated"
    )
    command.add_argument(
        "--key", action="append", default=[], metavar="FILE", help="one trusted key, PEM or JWK; may be repeated"
    )
    command.add_argument("--kid", help="by what name signatures call the keys of --key (default: their own)")
    command.add_argument("--alg", help="algorithm of RSA keys of --key and --jwks that do not say so themselves")
    command.add_argument(
        "--trust", metavar="FILE", help="trust file: keys, key sets on the network, policies and revocations by host"
    )
    command.add_argument(
        "--origin",
        metavar="URL",
        help="URL or host that the card is from; the keys may speak for it only (default for a URL: itself)",
    )
    command.add_argument("--signer", choices=_SIGNERS, help=_SIGNER_HELP)


def _add_lint(commands: Any) -> None:
    lint = commands.add_parser(
        "lint",
        help="say what in cards should be otherwise",
        description="Say what in Agent Cards should be otherwise, and why. Warnings and notes are no failure.",
        allow_abbrev=False,
    )
    lint.add_argument("files", nargs="+", metavar="FILE", help="a card, or - for standard input")
    lint.add_argument(
        "--fix", action="store_true", help="leave out what says nothing (null, defaults); never of a signed card"
    )
    output = lint.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="report as JSON")
    output.add_argument("--sarif", action="store_true", help="report as SARIF 2.1.0, for code scanning")


_SIGNERS = ("a2a-trust", "a2a-python", "a2a-js", "whole")
_SIGNER_HELP = (
    "the tool that signs with the keys: of a2a-python and a2a-js accept signatures that prove a part of the card; "
    "whole: it signs complete cards"
)

_ALGORITHMS = "ES256, ES384, ES512, EdDSA, RS256 … PS512"


def _add_rotate(rotate: argparse.ArgumentParser) -> None:
    rotate.add_argument("file", metavar="RING", help="the file with the key ring")
    rotate.add_argument(
        "--overlap",
        default="24h",
        metavar="TIME",
        help="how long the new key is published before it signs: at least the max-age of the key set (default: 24h)",
    )
    rotate.add_argument(
        "--keep",
        default="91d",
        metavar="TIME",
        help="how long the old key stays published after that: at least the longest --expires and the max-age of the "
        "cards (default: 91d)",
    )
    rotate.add_argument("--alg", help=f"{_ALGORITHMS} (default: as the key before)")
    rotate.add_argument("--json", action="store_true", help="report as JSON")


def _add_keys(keys: argparse.ArgumentParser) -> None:
    every = _Parser(add_help=False)
    every.add_argument("file", metavar="RING", help="the file with the key ring")
    every.add_argument("--json", action="store_true", help="report as JSON")
    actions = keys.add_subparsers(dest="action", required=True, metavar="{create,list,revoke,export}")
    create = "make a key ring, whose first key signs at once"
    action = actions.add_parser("create", parents=[every], help=create, description=create, allow_abbrev=False)
    action.add_argument("--alg", help=f"of a new key: {_ALGORITHMS} (default: ES256)")
    action.add_argument("--key", metavar="FILE", help="begin with this private key, PEM or JWK, instead of a new one")
    action.add_argument("--kid", help="name of the key of --key (default: its own, else its thumbprint)")
    action.add_argument(
        "--encrypt", action="store_true", help="encrypt with a passphrase; asks when none is in the environment"
    )
    list_ = "show the keys, what each does and when that changes, and no secret"
    actions.add_parser("list", parents=[every], help=list_, description=list_, allow_abbrev=False)
    revoke = "end a key at once; another signs instead"
    action = actions.add_parser("revoke", parents=[every], help=revoke, description=revoke, allow_abbrev=False)
    action.add_argument("kid", metavar="KID", help="of the key, as the list has it")
    export = "write the JWK Set to publish: next, active and retired keys, public halves only"
    action = actions.add_parser("export", parents=[every], help=export, description=export, allow_abbrev=False)
    action.add_argument("-o", "--output", default="-", metavar="FILE", help="where it goes (default: standard output)")


def _add_api_key(api_key: argparse.ArgumentParser) -> None:
    actions = api_key.add_subparsers(dest="action", required=True, metavar="{create,import,list,rotate,revoke}")

    every = _Parser(add_help=False)
    every.add_argument("--store", required=True, metavar="FILE", help="the file with the keys' records")
    every.add_argument("--json", action="store_true", help="report as JSON")
    new = _Parser(add_help=False)
    new.add_argument("--owner", required=True, metavar="NAME", help="the caller; keys of one owner are one caller")
    new.add_argument(
        "--scope", action="append", default=[], metavar="SCOPE", help="what the key allows; may be repeated"
    )
    new.add_argument("--expires", metavar="TIME", help="how long the key is good: 90d, 12h, 30m (default: for ever)")
    new.add_argument("--prefix", default="a2a", metavar="WORD", help="how the key's id begins (default: a2a)")

    create = "make a key; it is shown this once, on standard output"
    actions.add_parser("create", parents=[every, new], help=create, description=create, allow_abbrev=False)
    import_ = "accept a key that was made elsewhere, of 32 or more random characters"
    action = actions.add_parser("import", parents=[every, new], help=import_, description=import_, allow_abbrev=False)
    action.add_argument("file", nargs="?", default="-", metavar="FILE", help="holds the key (default: standard input)")
    list_ = "show the keys, and no secret"
    actions.add_parser("list", parents=[every], help=list_, description=list_, allow_abbrev=False)
    rotate = "make a key in place of another, which goes on for a while"
    action = actions.add_parser("rotate", parents=[every], help=rotate, description=rotate, allow_abbrev=False)
    action.add_argument("id", metavar="ID", help="of the key to replace, as the list has it")
    action.add_argument("--overlap", default="24h", metavar="TIME", help="how long the old key goes on (default: 24h)")
    action.add_argument("--expires", metavar="TIME", help="how long the new key is good (default: as the old one was)")
    revoke = "let a key in no more"
    action = actions.add_parser("revoke", parents=[every], help=revoke, description=revoke, allow_abbrev=False)
    action.add_argument("id", metavar="ID", help="of the key, as the list has it")


def _add_trust(trust: argparse.ArgumentParser) -> None:
    every = _Parser(add_help=False)
    every.add_argument("file", metavar="FILE", help="the trust file")
    every.add_argument("--json", action="store_true", help="report as JSON")
    actions = trust.add_subparsers(dest="action", required=True, metavar="{add,remove,list,revoke}")
    add = "trust a key, or a key set, for some hosts; a file that is not there is made"
    action = actions.add_parser("add", parents=[every], help=add, description=add, allow_abbrev=False)
    action.add_argument(
        "--origin", action="append", required=True, metavar="HOST", help="host, *.parent or URL; may be repeated"
    )
    source = action.add_mutually_exclusive_group(required=True)
    source.add_argument("--key", metavar="FILE", help="one public key, PEM or JWK")
    source.add_argument("--jwks", metavar="FILE", help="JWK Set; its keys are copied")
    source.add_argument("--jwks-url", metavar="URL", help="JWK Set on the network; fetched when a card is verified")
    action.add_argument("--kid", help="by what name signatures call the key of --key (default: its own)")
    action.add_argument("--name", help="name of the party: policies name it")
    action.add_argument("--signer", choices=_SIGNERS, help=_SIGNER_HELP)
    action.add_argument("--alg", help="algorithm of RSA keys that do not say so themselves: RS256 … PS512")
    action.add_argument("--not-before", metavar="WHEN", help="from when: 30d, 12h, or 2027-01-31[T12:00:00Z]")
    action.add_argument("--not-after", metavar="WHEN", help="until when: 90d, 12h, or 2027-01-31[T12:00:00Z]")
    remove = "trust a key, a key set or a key file no more"
    action = actions.add_parser("remove", parents=[every], help=remove, description=remove, allow_abbrev=False)
    action.add_argument("what", metavar="KID|NAME|URL|FILE", help="as the list has it")
    list_ = "show whom the file trusts for which hosts"
    actions.add_parser("list", parents=[every], help=list_, description=list_, allow_abbrev=False)
    revoke = "revoke a key: whatever it signed proves nothing any more"
    action = actions.add_parser("revoke", parents=[every], help=revoke, description=revoke, allow_abbrev=False)
    action.add_argument("kid", nargs="?", metavar="KID", help="of a key in the file or in a key file that it names")
    action.add_argument("--thumbprint", help="of the key (RFC 7638), wherever it is listed, or nowhere")
    action.add_argument("--entry", metavar="NAME|URL", help="the entry whose fetched key set has the KID")
    action.add_argument("--fetch", action="store_true", help="fetch that key set now, and record the key's thumbprint")
    action.add_argument("--reason", default="", metavar="TEXT", help="for whoever reads the file")


def _add_pins(pins: argparse.ArgumentParser) -> None:
    every = _Parser(add_help=False)
    every.add_argument("--file", metavar="FILE", help="the memory (default: the one of this user)")
    every.add_argument("--json", action="store_true", help="report as JSON")
    agent = _Parser(add_help=False)
    agent.add_argument("location", metavar="LOCATION", help="URL of the agent: https://host, or https://host/agents/a")
    actions = pins.add_subparsers(dest="action", required=True, metavar="{list,accept,forget}")
    list_ = "show every location that a signed card came from, and its keys"
    actions.add_parser("list", parents=[every], help=list_, description=list_, allow_abbrev=False)
    accept = "hold an agent to these keys from now on, in place of those remembered"
    action = actions.add_parser("accept", parents=[every, agent], help=accept, description=accept, allow_abbrev=False)
    action.add_argument(
        "thumbprints",
        nargs="+",
        metavar="THUMBPRINT",
        help="of its key, from whoever runs the agent, not from the agent",
    )
    forget = "know nothing of an agent any more: its next card is the first one again"
    actions.add_parser("forget", parents=[every, agent], help=forget, description=forget, allow_abbrev=False)


if __name__ == "__main__":
    sys.exit(main())
