"""A registry's day: ten thousand different signed cards by several keys, each of an agent on a host of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import cycle
from multiprocessing import get_context
from time import perf_counter
from typing import Any, Final, TypeAlias

from a2a_trust import Origins, TrustedKey, TrustStore, verify_card
from a2a_trust.base.strict_json.jcs import canonicalize
from a2a_trust.keys import SigningTool, base64url
from a2a_trust.keys.jwk import public_key_from_jwk
from a2a_trust.keys.jws import signing_input
from benchmarks import cards
from benchmarks.peers import Peers, obvious_verifier
from benchmarks.rounds import Contender, Row, Timer
from benchmarks.setting import Setting

__all__ = ["rows"]

_CHUNK: Final = 250
_SIGNERS: Final = 16
_SDK_CARDS: Final = 50  # it is slow, and remembers nothing between cards

Served: TypeAlias = tuple[str, bytes]
"""The host of a card and the card as it was served."""

Prepared: TypeAlias = tuple[Callable[[bytes], None], bytes]
"""The floor's verification, ready for one signature, and the octets that were signed."""


def rows(setting: Setting) -> Iterator[Row]:
    """Throughput on one core, then with two processes."""
    chunks = 8 if setting.quick else 40
    signers = [Peers.with_new_key("ES256") for _ in range(_SIGNERS)]
    public = [peers.signer.public_key.to_jwk() for peers in signers]
    served: list[list[Served]] = []
    prepared: list[list[Prepared]] = []
    for number in range(chunks):
        made = [_signed(at, signers[at % _SIGNERS]) for at in range(number * _CHUNK, (number + 1) * _CHUNK)]
        served.append([one for one, _ in made])
        prepared.append([one for _, one in made])
    yield _one_process(setting, public, served, prepared)
    with _pool(public, 1) as one, _pool(public, 2) as two:
        yield _processes(setting, one, two, served)


def _signed(number: int, peers: Peers) -> tuple[Served, Prepared]:
    host, card = cards.numbered(number)
    payload = canonicalize(card)
    signer = peers.signer
    protected = base64url.encode(canonicalize({"alg": signer.alg, "kid": signer.kid, "typ": "JOSE"}))
    data = signing_input(protected, payload)
    signature = signer.sign(data)
    card["signatures"] = [{"protected": protected, "signature": base64url.encode(signature)}]
    return (host, cards.served(card)), (peers.raw_verifier(signature), data)


def _one_process(
    setting: Setting, public: list[dict[str, Any]], served: list[list[Served]], prepared: list[list[Prepared]]
) -> Row:
    trust, obvious = _trust(public), obvious_verifier(public)
    contenders = [
        Contender(name="cryptography verify (floor)", timer=_chunk_by_chunk(_verify_raw, prepared)),
        Contender(
            name="a2a_trust verify_card, .card taken",
            timer=_chunk_by_chunk(partial(_verify_cards, trust), served),
            target=0.6,
        ),
        Contender(
            name="json + rfc8785 + joserfc",
            timer=_chunk_by_chunk(lambda chunk: [obvious(document) for _, document in chunk], served),
        ),
    ]
    if setting.sdk:
        documents = b"[%b]" % b",".join(document for _, document in served[0][:_SDK_CARDS])
        timer = setting.sdk.timer("verify all", documents, *public, calls=1)
        contenders.append(Contender(name="json + a2a-sdk", timer=lambda: timer() / _SDK_CARDS))
    return Row(
        title=f"{len(served) * _CHUNK} different signed cards, one process",
        baseline="cryptography verify (floor)",
        contenders=tuple(contenders),
        rounds=len(served),
        as_rate=True,
    )


def _processes(setting: Setting, one: ProcessPoolExecutor, two: ProcessPoolExecutor, served: list[list[Served]]) -> Row:
    some = served[:8]
    return Row(
        title=f"{len(some) * _CHUNK} different signed cards in chunks of {_CHUNK}, worker processes",
        baseline="a2a_trust verify_card, one worker",
        contenders=(
            Contender(name="a2a_trust verify_card, one worker", timer=_by_workers(one, some)),
            Contender(name="a2a_trust verify_card, two workers", timer=_by_workers(two, some)),
        ),
        rounds=setting.rounds(10),
        as_rate=True,
        notes=("cards travel to the workers as raw bytes; 2.00 is both cores used",),
    )


def _chunk_by_chunk(work: Callable[[Any], object], chunks: list[Any]) -> Timer:
    """Every round another chunk."""
    following = cycle(chunks)

    def timer() -> float:
        chunk = next(following)
        start = perf_counter()
        work(chunk)
        return (perf_counter() - start) / len(chunk)

    return timer


def _by_workers(pool: ProcessPoolExecutor, chunks: list[list[Served]]) -> Timer:
    def timer() -> float:
        start = perf_counter()
        done = sum(pool.map(_verify_chunk, chunks))
        return (perf_counter() - start) / done

    return timer


def _verify_raw(chunk: list[Prepared]) -> None:
    for verify, data in chunk:
        verify(data)


def _verify_cards(trust: TrustStore, chunk: list[Served]) -> None:
    for host, document in chunk:
        verify_card(document, trust, origin=host, now=0).card  # noqa: B018  made when it is taken


def _trust(public: list[dict[str, Any]]) -> TrustStore:
    origins = Origins(f"*.{cards.HOST}")
    # Signed without our mark, as by a tool that signs complete cards.
    keys = map(public_key_from_jwk, public)
    return TrustStore(TrustedKey(key=key, origins=origins, signer=SigningTool.WHOLE) for key in keys)


def _pool(public: list[dict[str, Any]], workers: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(workers, get_context("spawn"), _start_worker, (public,))


_trust_here: TrustStore | None = None
"""What a worker process trusts: keys are imported once in each."""


def _start_worker(public: list[dict[str, Any]]) -> None:
    global _trust_here
    _trust_here = _trust(public)


def _verify_chunk(chunk: list[Served]) -> int:
    if _trust_here is None:
        raise TypeError("this process was not started as a worker")
    _verify_cards(_trust_here, chunk)
    return len(chunk)
