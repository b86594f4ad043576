"""Many cards from the command line: a registry is signed and verified on one core, and on all that there are."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import Final

from a2a_trust.base.workers import usable_cores
from benchmarks import cards
from benchmarks.peers import Peers
from benchmarks.rounds import Contender, Row, Timer
from benchmarks.setting import Setting

__all__ = ["rows"]

_COMMAND: Final = Path(sys.executable).with_name("a2a-sign")
_VERIFY: Final = ("verify", "--trust", "trust.toml", "-q")


def rows(setting: Setting) -> Iterator[Row]:
    """Lines and files, verified and signed. The whole process counts, with its start."""
    number = 2_000 if setting.quick else 10_000
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        _registry(here, number)
        raw = _raw(setting.es256)
        yield _row(
            f"{number:,} cards, verified from the command line",
            ("cryptography verify, one core (floor)", raw),
            number,
            here,
            lines=(*_VERIFY, "--cards-from", "signed.jsonl"),
            files=(*_VERIFY, "--origin-from-card", "signed"),
            target=0.5 * usable_cores(),
        )
        yield _row(
            f"{number:,} cards, signed from the command line",
            ("cryptography sign, one core (floor)", _raw_sign(setting.es256)),
            number,
            here,
            lines=("--cards-from", "cards.jsonl", "-o", "new.jsonl", "--key", "key.pem", "-q"),
            files=("fresh", "--key", "key.pem", "-q"),
            before=lambda: _fresh(here),
            at_most=1.8e-3,
        )


def _registry(here: Path, number: int) -> None:
    """Cards of so many agents on as many hosts: in lines and in files, unsigned and signed."""
    (here / "cards").mkdir()
    with (here / "cards.jsonl").open("wb") as lines:
        for at in range(number):
            host, card = cards.numbered(at)
            document = cards.served(card)
            lines.write(b'{"origin":"https://%b","card":%b}\n' % (host.encode(), document))
            (here / "cards" / f"{at}.json").write_bytes(document)
    _run(here, "keygen", "-o", "key.pem")
    _run(here, "trust", "add", "trust.toml", "--origin", f"*.{cards.HOST}", "--jwks", "key.jwks.json")
    _run(here, "--cards-from", "cards.jsonl", "-o", "signed.jsonl", "--key", "key.pem", "-q")
    (here / "signed").mkdir()
    for at, line in enumerate((here / "signed.jsonl").read_bytes().splitlines()):
        (here / "signed" / f"{at}.json").write_text(json.dumps(json.loads(line)["card"]))


def _fresh(here: Path) -> None:
    shutil.rmtree(here / "fresh", ignore_errors=True)
    shutil.copytree(here / "cards", here / "fresh")
    os.sync()


def _row(
    title: str,
    floor: tuple[str, Timer],
    number: int,
    here: Path,
    *,
    lines: Sequence[str],
    files: Sequence[str],
    before: Callable[[], None] | None = None,
    target: float | None = None,
    at_most: float | None = None,
) -> Row:
    contenders = [Contender(name=floor[0], timer=floor[1])]
    every = usable_cores()
    for what, arguments in (("lines", lines), ("files", files)):
        # On one core, a process that signs files has all of them open: more than some systems allow.
        for cores in dict.fromkeys((1, every) if what == "lines" or before is None else (every,)):
            is_wanted = cores == every and what == "files"
            timer = _timer(here, number, cores, arguments, before if what == "files" else None)
            where = "one core" if cores == 1 else f"{cores} cores"
            contenders.append(
                Contender(
                    name=f"a2a-sign, {what}, {where}",
                    timer=timer,
                    target=target if is_wanted else None,
                    at_most=at_most if is_wanted else None,
                )
            )
    return Row(
        title=title,
        baseline=floor[0],
        contenders=tuple(contenders),
        rounds=3,
        as_rate=True,
    )


def _timer(here: Path, number: int, cores: int, arguments: Sequence[str], before: Callable[[], None] | None) -> Timer:
    def timer() -> float:
        if before is not None:
            before()
        start = perf_counter()
        _run(here, *arguments, cores=cores)
        return (perf_counter() - start) / number

    return timer


def _run(here: Path, *arguments: str, cores: int | None = None) -> None:
    allowed = None if cores is None else set(sorted(os.sched_getaffinity(0))[:cores])
    subprocess.run(
        [_COMMAND, *arguments],
        cwd=here,
        check=True,
        stdout=subprocess.DEVNULL,
        preexec_fn=None if allowed is None else lambda: os.sched_setaffinity(0, allowed),
    )


def _raw(peers: Peers) -> Timer:
    data = cards.served(cards.without_surprises())
    verify = peers.raw_verifier(peers.signer.sign(data))
    return _hot(lambda: verify(data))


def _raw_sign(peers: Peers) -> Timer:
    data = cards.served(cards.without_surprises())
    return _hot(lambda: peers.raw_sign(data))


def _hot(work: Callable[[], object]) -> Timer:
    def timer() -> float:
        start = perf_counter()
        for _ in range(2_000):
            work()
        return (perf_counter() - start) / 2_000

    return timer
