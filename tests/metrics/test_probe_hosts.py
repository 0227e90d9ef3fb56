"""Whether a probe's hosts are the trace's: by name, or by rank where the traces name none."""

from __future__ import annotations

import pytest

from advisor.metrics.links.probe_hosts import Apart, Joined, join, use_of

HOME = {0: "a.site", 1: "a.site", 2: "b.site", 3: "b.site"}
UNNAMED = {rank: f"rank {rank}" for rank in range(4)}


@pytest.mark.parametrize("names", [("a.site", "b.site"), ("a", "B"), ("a.local", "b.local")])
def test_hosts_are_joined_by_name_whatever_their_domain(names: tuple[str, str]) -> None:
    joined = join({0: names[1], 1: names[0]}, HOME)
    assert isinstance(joined, Joined)
    assert dict(joined.where) == {0: "b.site", 1: "a.site"}
    assert use_of(joined, comparable=True) == ("all", None)
    assert use_of(joined, comparable=False)[0] == "few"


def test_where_traces_name_no_host_equal_ranks_are_assumed_and_it_is_said() -> None:
    joined = join({0: "x", 1: "x", 2: "y", 3: "y"}, UNNAMED)
    assert isinstance(joined, Joined) and joined.assumed
    assert dict(joined.home) == {0: "x", 1: "x", 2: "y", 3: "y"}
    name, said = use_of(joined, comparable=True)
    assert name == "all" and said is not None and "taken to be of the same" in said


@pytest.mark.parametrize(
    ("probe", "home"),
    [
        (dict.fromkeys(range(4), "vm"), HOME),
        ({0: "c", 1: "c", 2: "d", 3: "d"}, HOME),
        ({0: "x", 1: "y"}, UNNAMED),
        ({0: "x", 1: "x", 2: "y", 3: "y"}, {**UNNAMED, 0: "a"}),
        ({}, HOME),
    ],
    ids=["one-machine", "other-names", "other-ranks", "one-name-differs", "no-hosts"],
)
def test_a_probe_of_other_hosts_is_not_joined(probe: dict[int, str], home: dict[int, str]) -> None:
    joined = join(probe, home)
    assert isinstance(joined, Apart)
    name, said = use_of(joined, comparable=False)
    assert name == "other" and said is not None and "not used" in said


def test_one_machines_ranks_are_the_places_if_they_are_the_same() -> None:
    home = {0: "vm", 1: "vm", 2: "vm"}
    joined = join(home, home)
    assert isinstance(joined, Joined)
    assert dict(joined.where) == {0: 0, 1: 1, 2: 2}
    apart = join({0: "vm", 1: "vm"}, home)
    assert isinstance(apart, Apart) and not apart.other_hosts
