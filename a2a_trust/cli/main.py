"""``a2a-sign``: the parts that all its commands share, such as usage errors, signals and the version.

Every step of every pipeline pays for start-up. So only the module of the called command is imported, and only after
its arguments were read.
"""

from __future__ import annotations

import argparse
import gc
import io
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module

from a2a_trust.cli.arguments import COMMANDS, FILES, may_be_new, names_database
from a2a_trust.cli.file_names import NOT_SHOWN, is_secret, without_secrets

TYPE_CHECKING = False  # typing takes a tenth of the time that --help may take
if TYPE_CHECKING:
    from typing import Any, NoReturn

_EPILOG = """\
examples:
  a2a-sign keygen                                   make the default key
  a2a-sign card.json                                sign in place
  a2a-sign card.json -o signed.json --expires 90d   sign a copy that expires
  a2a-sign 'agents/**/card.json' --if-needed        sign the cards that are not signed yet, or were changed
  a2a-sign card.json --check                        exit with 1 when the card has to be signed; write nothing
  a2a-sign verify card.json --jwks keys.json --origin https://agent.example.com
  a2a-sign verify https://agent.example.com --trust trust.toml
  a2a-sign trust add trust.toml --origin https://agent.example.com --jwks keys.json
  a2a-sign lint card.json                           check a card for problems
  a2a-sign keys rotate ring.json                    add the next key of a ring; it signs in 24 hours

signing key, the first of these that is given:
  --key FILE                    a private key or a key ring
  A2A_SIGN_KEY                  the key itself, or the key in base64
  A2A_SIGN_KEY_FILE             the name of its file (set this or A2A_SIGN_KEY, not both)
  the default key               made by "a2a-sign keygen"; not used in pipelines (when CI is set)
passphrase of an encrypted key, the first of these that is given:
  A2A_SIGN_KEY_PASSPHRASE       the passphrase itself
  A2A_SIGN_KEY_PASSPHRASE_FILE  the name of a file; its first line is the passphrase
  the terminal                  the command asks for it

exit codes:
  0 ok   1 invalid   2 usage or configuration   3 unsigned   4 untrusted   5 uncovered members   6 input or output
  129, 130, 143 ended by SIGHUP, Ctrl-C, SIGTERM
"""


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit code. While it runs, SIGTERM and SIGHUP end it as Ctrl-C does."""
    arguments = sys.argv[1:] if argv is None else argv
    if argv is None:  # the process is ours: to search its modules for garbage at the end takes a tenth of --help
        gc.freeze()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a character that the terminal lacks must not end a command
    came: list[int] = []
    options: argparse.Namespace | int = 0
    try:
        options = _options(arguments)
        if isinstance(options, int):
            _flush()
            return options
        with _end_on_signals(came):
            code = _run(options, owns_process=argv is None)
            _flush()
    except BaseException as error:
        if came or isinstance(error, KeyboardInterrupt):
            # Whatever Python made of a signal: 3.11 raises another error if one comes while a class is made.
            _say_interrupted(options)
            return 128 + came[0] if came else 130
        if not isinstance(error, OSError):
            raise
        # The reader of our output has gone, or the disk is full. The interpreter must not try to flush again.
        sys.stdout = None
        if not isinstance(error, BrokenPipeError) and sys.stderr is not None:
            print(f"a2a-sign: error: {error}", file=sys.stderr)
        return 6
    return code


def _say_interrupted(options: argparse.Namespace | int) -> None:
    """Say in one line what the command has done and what it has not."""
    from a2a_trust.cli.report import printable, put

    said = getattr(options, "interruption", lambda: "nothing was written")
    with suppress(OSError):  # nobody reads it
        put(f"a2a-sign: interrupted: {printable(said())}", sys.stderr)


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()


@contextmanager
def _end_on_signals(came: list[int]) -> Iterator[None]:
    """In the block SIGTERM and SIGHUP end the command as Ctrl-C does, and ``came`` gets the first of them.

    A signal that the caller ignores stays ignored. Temporary files are removed before the end.
    """
    import signal
    from threading import current_thread, main_thread

    handled = []
    if sys.platform != "win32" and current_thread() is main_thread():  # no other thread can handle signals
        handled = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) is signal.SIG_DFL]
    first: list[int] = []

    def end(number: int, _: object) -> None:
        if not came:  # a second one would interrupt the cleaning up
            first.append(number)
            came.append(first[0])
            raise KeyboardInterrupt

    def lost(exception: sys.UnraisableHookArgs) -> None:
        if came and isinstance(exception.exc_value, KeyboardInterrupt):  # in a callback, as of the import system
            handled.append(signal.SIGALRM)
            signal.signal(signal.SIGALRM, end)
            signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)  # again and again: the next one may be lost as well
            del came[:]  # at last, and no call, after which Python handles signals: what is raised here is lost
        else:
            hook(exception)

    hook, sys.unraisablehook = sys.unraisablehook, lost
    try:
        for number in handled:
            signal.signal(number, end)
        yield
    finally:
        sys.unraisablehook = hook
        if first:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number in handled:
            signal.signal(number, signal.SIG_DFL)


def _options(arguments: list[str]) -> argparse.Namespace | int:
    """The parsed arguments; or the exit code, after --help, --version or a usage error."""
    if not arguments:
        _parser().print_help(sys.stderr)
        return 2
    try:
        if arguments[0].partition("=")[0] not in (*COMMANDS, "-h", "--help", "--version", "--print-completion"):
            _check_is_file_or_option(arguments)
            arguments = ["sign", *arguments]  # `a2a-sign card.json` signs; a file of a command's name is ./verify
        parser = _parser(arguments[0]) if arguments[0] in COMMANDS else _parser()
        return parser.parse_args(arguments)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 2


def _run(options: argparse.Namespace, *, owns_process: bool) -> int:
    if owns_process:  # modules stay: to search them for garbage takes a sixth of signing a card
        gc.disable()
    command = import_module(f"a2a_trust.cli.{options.command.replace('-', '_')}")
    if owns_process:
        gc.freeze()
        gc.enable()
    from a2a_trust.cli.report import run_and_report, show_log

    if options.command == "serve" or ("verbose" not in options and "logging" not in sys.modules):
        return run_and_report(command.run, options)  # serve logs as JSON; the import is slow, and nobody else logs
    with show_log(verbose=getattr(options, "verbose", False)):
        return run_and_report(command.run, options)


def _check_is_file_or_option(arguments: list[str]) -> None:
    """Report a command that does not exist.

    An option may come first, as in ``a2a-sign --key FILE card.json``; a card's name has a dot or a slash.
    """
    if arguments[0].startswith("-") or not arguments[0].replace("-", "").isalpha():
        return
    if not os.path.exists(arguments[0]):  # noqa: PTH110  the import of pathlib is slow
        parser = _parser()
        parser.wants_json = _json_form(arguments)
        meant = _did_you_mean(arguments[0], COMMANDS) or f"; the commands are {', '.join(COMMANDS)}"
        parser.error(f"{arguments[0]} is neither a command nor a file{meant}")


def _did_you_mean(word: str, words: Iterable[str]) -> str:
    from difflib import get_close_matches  # slow to import

    near = get_close_matches(word, list(words), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _json_form(arguments: Sequence[str]) -> str:
    """The value of ``options.json``, for arguments that cannot be parsed."""
    return "lines" if "--json-lines" in arguments else "object" if "--json" in arguments else ""


class _Parser(argparse.ArgumentParser):
    """Reports a usage error with the usage of its command, or as JSON when the arguments ask for JSON."""

    wants_json = ""

    def __init__(self, *, formatter_class: Any = argparse.HelpFormatter, **settings: Any) -> None:
        formatter_class = partial(formatter_class, width=_columns() - 2)
        super().__init__(**settings, formatter_class=formatter_class, allow_abbrev=False)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self.wants_json = _json_form(args or ())
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:  # argparse leaves them to the outer parser, which would show the usage of all commands
            meant = _did_you_mean(unknown[0].partition("=")[0], self._option_string_actions)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{meant}")
        sources = (getattr(options, name, None) for name in ("files", "files_from", "cards_from"))
        if "files" in options and not any(source is not None and source != [] for source in sources):
            self.error("the following arguments are required: FILE, or --files-from FILE")
        for action in self._actions:
            if action.metavar in FILES:
                self._check_names(action, getattr(options, action.dest, None))
        return options, unknown

    def _check_names(self, action: argparse.Action, value: list[str] | str | None) -> None:
        """Report a secret in the place of a file, before any command can show or write it."""
        place = action.option_strings[-1] if action.option_strings else action.metavar
        is_new, is_database = may_be_new(action, self.prog), names_database(action)
        for name in [value] if isinstance(value, str) else value or ():
            if is_secret(name, may_be_new=is_new, may_be_database=is_database):
                self.error(f"{place}: {NOT_SHOWN}")

    def error(self, message: str) -> NoReturn:
        message = f"{without_secrets(message)}; for help: {self.prog} --help"
        if self.wants_json:
            from a2a_trust.cli.report import Exit, report_failure
            from a2a_trust.errors import ConfigurationError

            command = self.prog.partition(" ")[2] or "sign"
            self.exit(report_failure(command, ConfigurationError(message), as_json=self.wants_json, code=Exit.USAGE))
        if not message.isprintable() or "##" in message:  # the name of a file in it; the import is slow
            from a2a_trust.cli.report import printable

            message = printable(message)
        super().error(message)


def _columns() -> int:
    """The width of the terminal. ``shutil.get_terminal_size``, which argparse uses, takes longer to import than to
    show the help."""
    try:
        return max(int(os.environ.get("COLUMNS", "0")), 0) or os.get_terminal_size(1).columns or 80
    except (OSError, ValueError):
        return 80


class _Version(argparse.Action):
    """Prints the version; reads the metadata of the package only then."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from importlib.metadata import version

        print(f"a2a-sign {version('a2a-trust')}")
        parser.exit()


class _PrintCompletion(argparse.Action):
    """Prints the script with which a shell completes commands, options and names of files."""

    def __call__(self, parser: argparse.ArgumentParser, _: object, shell: Any, __: object = None) -> NoReturn:
        try:
            import shtab
        except ModuleNotFoundError:
            parser.error('--print-completion needs shtab: pip install "./a2a-trust[completion]"')

        def complete_files(parser: argparse.ArgumentParser) -> None:
            for action in parser._actions:
                if isinstance(action, argparse._SubParsersAction):
                    for command in action.choices.values():
                        complete_files(command)
                elif "FILE" in str(action.metavar) or action.metavar == "RING":
                    action.complete = shtab.FILE  # type: ignore[attr-defined]

        whole = _parser(*COMMANDS)
        complete_files(whole)
        print(shtab.complete(whole, shell=shell), end="")
        parser.exit()


def _parser(*called: str) -> _Parser:
    """A parser with the arguments of these commands; without ``called``, with the list of all commands only."""
    parser = _Parser(
        prog="a2a-sign",
        description=(
            "Sign and verify A2A Agent Cards, the JSON documents that describe agents. Manage the keys that sign, the\n"
            "keys that you trust, and the API keys and passwords of agents."
        ),
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", nargs=0, action=_Version, help="print the version and exit")
    parser.add_argument(
        "--print-completion",
        choices=("bash", "zsh"),
        action=_PrintCompletion,
        help="print a script that completes commands, options and files in this shell, and exit",
    )
    # A command of the list is never called. To make a parser for each one would take a tenth of --help.
    kind: Any = _Parser if called else lambda **_: parser
    names = f"{{{','.join(COMMANDS)}}}"
    commands = parser.add_subparsers(dest="command", required=True, metavar=names, parser_class=kind)
    for name, (summary, add_arguments) in COMMANDS.items():
        if name in called:
            add_arguments(commands.add_parser(name, help=summary, description=summary))
        elif not called:
            commands.add_parser(name, help=summary)
    return parser
