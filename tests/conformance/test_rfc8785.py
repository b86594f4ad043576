"""RFC 8785 against the vectors of its authors and of other implementations."""

from __future__ import annotations

import gzip
import hashlib
import json
import struct
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from a2a_trust.base import strict_json
from a2a_trust.base.strict_json import jcs
from a2a_trust.errors import MalformedError
from tests.conformance.conftest import Row, Rows
from tests.tables import walk

#: What another project's rules refuse and RFC 8785 does not.
ACCEPTED_BY_RFC_8785 = {
    "json-canon/VEC-REJ-0001": "minus zero is printed as 0 (3.2.2.3, appendix B)",
    "json-canon/VEC-REJ-0002": "minus zero is printed as 0 (3.2.2.3, appendix B)",
    "json-canon/VEC-REJ-0003": "minus zero is printed as 0 (3.2.2.3, appendix B)",
    "json-canon/VEC-REJ-0016": "noncharacters are Unicode scalar values; only surrogates are refused (3.2.2.2)",
    "json-canon/VEC-REJ-0017": "noncharacters are Unicode scalar values; only surrogates are refused (3.2.2.2)",
    "json-canon/VEC-REJ-0018": "noncharacters are Unicode scalar values; only surrogates are refused (3.2.2.2)",
    "json-canon/VEC-REJ-0021": "a number too small for a double is read as 0 (3.2.2.3: IEEE 754 rounding)",
    "json-canon/VEC-OFF-0003": "noncharacters are Unicode scalar values; only surrogates are refused (3.2.2.2)",
}


def received(document: bytes) -> bytes:
    return jcs.canonicalize_received(strict_json.parse(document))


def double(bits: str) -> float:
    value: float = struct.unpack(">d", bytes.fromhex(bits.zfill(16)))[0]
    return value


def test_every_pair_has_the_published_canonical_bytes(rows: Rows) -> None:
    pairs = rows("jcs/pairs.jsonl")
    assert len(pairs) == 54
    for row in pairs:
        assert received(bytes.fromhex(row["input_hex"])).hex() == row["output_hex"], row["id"]


def test_no_pair_needs_the_leave_to_round_integers(rows: Rows) -> None:
    # canonicalize, which signing uses, refuses integers that readers round; none of these inputs holds one.
    for row in rows("jcs/pairs.jsonl"):
        value = strict_json.parse(bytes.fromhex(row["input_hex"]))
        assert jcs.canonicalize(value).hex() == row["output_hex"], row["id"]


def test_canonical_output_is_canonical_itself(rows: Rows) -> None:
    for row in rows("jcs/pairs.jsonl"):
        assert received(bytes.fromhex(row["output_hex"])).hex() == row["output_hex"], row["id"]


def test_what_others_reject_is_rejected_unless_rfc_8785_accepts_it(rows: Rows) -> None:
    accepted = set()
    for row in rows("jcs/reject.jsonl"):
        try:
            received(bytes.fromhex(row["input_hex"]))
        except MalformedError:
            continue
        accepted.add(row["id"])
    assert accepted == ACCEPTED_BY_RFC_8785.keys()


@walk(
    ("document", "canonical"),
    [
        (b"-0", b"0"),
        (b"-0.0", b"0"),
        (b"-0e0", b"0"),
        (b'"\\uFDD0"', '"\ufdd0"'.encode()),
        (b'"\\uFFFE"', '"\ufffe"'.encode()),
        (b'"\\uFFFF"', '"\uffff"'.encode()),
        (b"1e-400", b"0"),
    ],
)
def test_what_only_others_reject_has_the_bytes_of_rfc_8785(document: bytes, canonical: bytes) -> None:
    assert received(document) == canonical


def test_canonical_documents_are_told_from_others(rows: Rows) -> None:
    def is_canonical(row: Row) -> bool:
        document = bytes.fromhex(row["input_hex"])
        try:
            return received(document) == document
        except MalformedError:
            return False

    found = rows("jcs/is_canonical.jsonl")
    assert {row["id"]: is_canonical(row) for row in found} == {row["id"]: row["expected"] for row in found}
    assert {row["expected"] for row in found} == {True, False}


def test_numbers_of_appendix_b(vectors: Path) -> None:
    table = json.loads((vectors / "jcs/rfc8785_appendix_b.json").read_bytes())["vectors"]
    refused = 0
    for row in table:
        value = double(row["ieee"])
        if row["expected"] is None:
            refused += 1
            with pytest.raises(MalformedError, match="NaN and infinities"):
                jcs.es6_number(value)
            with pytest.raises(MalformedError, match="NaN and infinities"):
                jcs.canonicalize(value)
        else:
            assert jcs.es6_number(value) == row["expected"], row["comment"]
            assert jcs.canonicalize(value) == row["expected"].encode(), row["comment"]
    assert refused == 2
    assert len(table) > 20


def test_golden_doubles(vectors: Path) -> None:
    lines = gzip.decompress((vectors / "jcs/golden_vectors.csv.gz").read_bytes()).decode("ascii").splitlines()
    table = [line.split(",") for line in lines]
    assert len(table) == 54_445
    values = [double(bits) for bits, _ in table]
    assert [jcs.es6_number(value) for value in values] == [text for _, text in table]
    assert jcs.canonicalize(values) == f"[{','.join(text for _, text in table)}]".encode()


def test_files_of_the_rfc_authors(vectors: Path) -> None:
    folder = vectors / "jcs/cyberphone"
    names = sorted(path.stem for path in (folder / "input").iterdir())
    assert names == ["arrays", "french", "structures", "unicode", "values", "weird"]
    for name in names:
        canonical = received((folder / "input" / f"{name}.json").read_bytes())
        assert canonical == (folder / "output" / f"{name}.json").read_bytes(), name
        assert canonical == bytes.fromhex((folder / "outhex" / f"{name}.txt").read_text("ascii")), name


def generated_doubles(generator: Row) -> Iterator[bytes]:
    """Bit patterns, big-endian, of the published ES6 number sequence."""
    for bits in generator["static_u64"]:
        yield bytes.fromhex(bits.zfill(16))
    first = int(generator["serial_start"], 16)
    for bits in range(first, first + generator["serial_count"]):
        yield bits.to_bytes(8, "big")
    block = bytes(32)
    while True:
        block = hashlib.sha256(block).digest()
        for bits in struct.unpack("<4Q", block):
            zero, special = not bits & 0x7FFF_FFFF_FFFF_FFFF, (bits >> 52) & 0x7FF == 0x7FF
            if not zero and not special:
                yield bits.to_bytes(8, "big")


@pytest.mark.parametrize("most", [100_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_es6_numbers_have_the_published_checksums(vectors: Path, most: int) -> None:
    generator = json.loads((vectors / "jcs/es6_generator.json").read_bytes())
    checkpoints = [point for point in generator["checkpoints"] if point["lines"] <= most]
    assert [point["lines"] for point in checkpoints] == [1_000, 10_000, 100_000, 1_000_000][: len(checkpoints)]
    assert checkpoints[-1]["lines"] == most
    doubles = generated_doubles(generator)
    digest, done, size = hashlib.sha256(), 0, 0
    sample: list[float] = []
    for point in checkpoints:
        while done < point["lines"]:
            chunk = b"".join(islice(doubles, 1_000))
            values = struct.unpack(f">{len(chunk) // 8}d", chunk)
            text = "".join(
                f"{chunk[8 * index : 8 * index + 8].hex().lstrip('0') or '0'},{jcs.es6_number(value)}\n"
                for index, value in enumerate(values)
            )
            digest.update(text.encode("ascii"))
            size += len(text)
            done += len(values)
            sample.append(values[done // 1_000 % 1_000])
        assert (digest.hexdigest(), size) == (point["sha256"], point["bytes"]), f"{done} lines"
    assert len(sample) == most // 1_000
    assert jcs.canonicalize(sample) == f"[{','.join(map(jcs.es6_number, sample))}]".encode()
