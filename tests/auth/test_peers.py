"""Who sends a request: peers and the networks that they are in. A queue in which they take turns."""

from __future__ import annotations

from collections import Counter
from ipaddress import IPv4Address, IPv6Address, ip_network
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from a2a_trust.auth.peers import CLIENT, FairQueue, Path, path_of, sending
from tests.tables import walk

NOWHERE: Path = ("",)
OF_V6: Path = ("2001:db8:1::/48", "2001:db8:1::/56", "2001:db8:1:2::/64")


@walk(
    ("client", "path"),
    [
        (("192.0.2.7", 1), ("192.0.2.7",)),
        (["192.0.2.7", 1], ("192.0.2.7",)),
        (("192.0.2.7:4711", 0), ("192.0.2.7",)),
        (("::ffff:192.0.2.7", 1), ("192.0.2.7",)),
        (("2001:db8:1:2:3:4:5:6", 1), OF_V6),
        (("[2001:db8:1:2:3:4:5:6]:4711", 0), OF_V6),
        (("[2001:db8:1:2::]", 0), OF_V6),
        (("2001:db8:1:ff02::1", 0), ("2001:db8:1::/48", "2001:db8:1:ff00::/56", "2001:db8:1:ff02::/64")),
        (("fe80::1%eth0", 1), ("fe80::/48", "fe80::/56", "fe80::/64")),
        (("testclient", 1), NOWHERE),
        (("", 0), NOWHERE),
        ((None, None), NOWHERE),
        (("/run/agent.sock", None), NOWHERE),
        (("fe80::1%" + "x" * 10_000, 1), NOWHERE),  # no server has such a zone, and none is kept
        (None, NOWHERE),
    ],
)
def test_a_path_names_the_networks_of_an_address(client: Any, path: Path) -> None:
    assert path_of({"client": client}) == path
    assert path_of({}) == NOWHERE


@given(st.integers(0, 2**128 - 1), st.integers(0, 2**64 - 1))
@example(0xFFFF_0102_0304, 1)
def test_addresses_of_one_network_are_one_peer(number: int, host: int) -> None:
    one, other = IPv6Address(number), IPv6Address((number >> 64 << 64) | host)
    if one.ipv4_mapped or other.ipv4_mapped:
        return  # addresses of IPv4, each a peer
    path = path_of({"client": (str(one), 1)})
    assert path == path_of({"client": (other.exploded, 2)})
    assert [ip_network(each).prefixlen for each in path] == [48, 56, 64]
    assert all(one in ip_network(each) for each in path)


@given(st.integers(0, 2**32 - 1))
def test_an_ipv4_address_is_one_peer_in_both_versions(number: int) -> None:
    address = IPv4Address(number)
    assert path_of({"client": (str(address), 1)}) == (str(address),)
    assert path_of({"client": (f"::ffff:{address}", 1)}) == (str(address),)


@given(st.text(max_size=100))
def test_no_text_is_too_odd_for_an_address(text: str) -> None:
    for each in path_of({"client": (text, 0)}):
        if each:
            ip_network(each)


def test_the_sender_is_that_of_the_request() -> None:
    CLIENT.set(("2001:db8:1:2::1", 5))
    assert sending() == OF_V6
    CLIENT.set(None)
    assert sending() == NOWHERE


# The queue


def filled(*paths: Path) -> FairQueue[str]:
    """Each item says whose it is, and its place among those."""
    queue, counts = FairQueue[str](), Counter[Path]()
    for path in paths:
        queue.put(path, f"{'/'.join(path)}{counts[path]}")
        counts[path] += 1
    return queue


def popped(queue: FairQueue[str]) -> str:
    return " ".join(queue.pop() for _ in range(len(queue)))


def test_peers_take_turns_and_each_keeps_its_order() -> None:
    assert popped(filled(*[("a",)] * 4, ("b",), ("c",), ("b",))) == "a0 b0 c0 a1 b1 a2 a3"
    queue = filled(*[("a",)] * 9)
    queue.pop()
    queue.put(("b",), "b0")
    assert [queue.pop() for _ in range(2)] == ["a1", "b0"]


def test_a_network_has_one_turn_however_many_peers_it_has() -> None:
    many = [("n", str(number // 4), str(number)) for number in range(8)]
    assert popped(filled(*many, ("b",), ("b",), ("c",))).split()[:7] == [
        "n/0/00",
        "b0",
        "c0",
        "n/1/40",
        "b1",
        "n/0/10",
        "n/1/50",
    ]


@walk(
    ("waiting", "newcomer", "dropped"),
    [
        ([("a",), ("a",), ("a",)], ("b",), "a2"),
        ([("a",), ("a",), ("b",)], ("a",), "a2"),
        ([("a",), ("a",), ("b",)], ("b",), "b1"),  # both would have as many: who came last
        ([("a",), ("b",)], ("c",), "c0"),
        ([("n", "1", "x"), ("n", "2", "y"), ("n", "2", "y")], ("b",), "n/2/y1"),
        ([("n", "1", "x"), ("n", "1", "x"), ("n", "1", "x")], ("n", "1", "y"), "n/1/x2"),
        ([("n", "1", "x"), ("n", "1", "x"), ("n", "2", "y")], ("n", "2", "z"), "n/2/z0"),
    ],
)
def test_too_long_a_queue_loses_the_last_item_of_who_has_most(
    waiting: list[Path], newcomer: Path, dropped: str
) -> None:
    queue = filled(*waiting, newcomer)
    assert queue.drop(newcomer) == dropped
    assert len(queue) == len(waiting)
    assert dropped not in popped(queue).split()


def test_what_left_is_gone_and_is_left_only_once() -> None:
    queue = filled(("a",), ("a",), ("n", "1", "x"))
    assert queue.remove(("a",), "a0")
    assert not queue.remove(("a",), "a0")
    assert not queue.remove(("b",), "a1")
    assert queue.remove(("n", "1", "x"), "n/1/x0")
    assert popped(queue) == "a1"


PATHS = st.sampled_from([("a",), ("b",), ("n", "1", "x"), ("n", "1", "y"), ("n", "2", "x"), ("m", "1", "x")])


@given(st.lists(st.tuples(st.sampled_from(["put", "put", "pop", "drop", "remove"]), PATHS), max_size=60))
def test_whatever_is_done_nothing_is_lost_doubled_or_kept(steps: list[tuple[str, Path]]) -> None:
    queue, there = FairQueue[int](), dict[int, Path]()
    for number, (step, path) in enumerate(steps):
        if step == "put":
            queue.put(path, number)
            there[number] = path
        elif step == "remove":
            mine = [each for each, of in there.items() if of == path]
            assert queue.remove(path, mine[0] if mine else -1) is bool(mine)
            there.pop(mine[0] if mine else -1, None)
        elif there:
            item = queue.pop() if step == "pop" else queue.drop(path)
            of = there.pop(item)
            if step == "pop":
                assert item < min((each for each, other in there.items() if other == of), default=len(steps))
        assert len(queue) == len(there)
    for _ in range(len(there)):
        there.pop(queue.pop())
    assert (there, len(queue), dict(queue._parts), queue._items) == ({}, 0, {}, [])
