"""Links are compared with their like: between hosts, and inside them."""

from __future__ import annotations

import itertools

import pytest

from advisor.metrics.links.pair_hosts import compare
from advisor.metrics.links.pair_timings import Pair

FAST, NETWORK = 0.2, 4.0


def matrix(hosts: list[str], slow: dict[tuple[str, str], float]) -> list[Pair]:
    return [
        Pair(a, b, FAST if hosts[a] == hosts[b] else NETWORK * slow.get((hosts[a], hosts[b]), 1.0),
             100.0)
        for a, b in itertools.permutations(range(len(hosts)), 2)
    ]  # fmt: skip


@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("ranks", [1, 2])
def test_equal_hosts_are_not_slow_because_memory_is_faster(count: int, ranks: int) -> None:
    hosts = [name for name in "abcd"[:count] for _ in range(ranks)]
    found = compare(matrix(hosts, {}), dict(enumerate(hosts)))
    assert (found.of_hosts, found.of_ranks, found.inside) == ((), (), ())
    assert found.directions == count * (count - 1)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("kind", ["sender", "receiver", "edge"])
def test_a_slow_host_is_named_once_and_no_healthy_link(kind: str, ranks: int) -> None:
    hosts = [name for name in "abc" for _ in range(ranks)]
    ends = {"sender": [("b", "a"), ("b", "c")], "receiver": [("a", "b"), ("c", "b")],
            "edge": [("a", "c")]}[kind]  # fmt: skip
    found = compare(matrix(hosts, dict.fromkeys(ends, 4.0)), dict(enumerate(hosts)))
    (only,) = found.of_hosts
    named = tuple(found.names[number] for number in only.ranks)
    assert (only.kind, named) == (kind, ("a", "c") if kind == "edge" else ("b",))
    assert (found.of_ranks, found.inside) == ((), ())


def test_between_two_hosts_the_slower_direction_stays_open() -> None:
    hosts = ["a", "a", "b", "b"]
    found = compare(matrix(hosts, {("a", "b"): 4.0}), dict(enumerate(hosts)))
    (only,) = found.of_hosts
    assert (only.kind, only.ranks) == ("candidates", (0, 1))
    assert found.of_ranks == ()


def test_one_ranks_own_port_is_told_from_its_hosts() -> None:
    hosts = ["a", "a", "b", "b", "c", "c"]
    pairs = [
        Pair(p.src, p.dst, p.ns_per_byte * (4.0 if p.src == 2 and p.dst != 3 else 1.0), 100.0)
        for p in matrix(hosts, {})
    ]
    found = compare(pairs, dict(enumerate(hosts)))
    assert ("sender", (2,)) in [(one.kind, one.ranks) for one in found.of_ranks]
