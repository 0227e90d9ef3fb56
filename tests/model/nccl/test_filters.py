"""NCCL_ALGO and NCCL_PROTO by release."""

from __future__ import annotations

import pytest
from nccl_machines import a100_four, h100_node

from advisor.config.hardware import machine
from advisor.errors import AdvisorError
from advisor.model.nccl.cost import predict
from advisor.model.nccl.filters import COLLNET, parse_algorithms, parse_protocols
from advisor.model.nccl.names import ALGORITHMS, FUNCTIONS
from advisor.model.nccl.version import parse_version
from advisor.model.topology_machine import topology_of

NEW, OLD = (2, 29, 7), (2, 20, 5)
MIB = 1 << 20


def test_entries_override_earlier_ones_per_function() -> None:
    # NVIDIA's own example: everything ring and collnetdirect, allreduce tree and collnetdirect,
    # broadcast ring
    chosen = parse_algorithms("ring,collnetdirect;allreduce:tree,collnetdirect;broadcast:ring", NEW)
    assert chosen.names("AllReduce") == {"Tree", "CollNetDirect"}
    assert chosen.names("Broadcast") == {"Ring"}
    assert chosen.names("AllGather") == {"Ring", "CollNetDirect"}


def test_functions_that_are_not_named_keep_the_default() -> None:
    chosen = parse_algorithms("allreduce:^nvls", NEW)
    assert not chosen.allows("AllReduce", "NVLS")
    assert chosen.allows("AllReduce", "Tree")
    assert all(chosen.names(op) is None for op in FUNCTIONS if op != "AllReduce")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("tree;ring", "function before a colon"),
        ("alltoall:ring", "'alltoall' is no function"),
        ("allreduce:rings", "'rings' is unknown"),
        ("CollNet", "'CollNet' is unknown"),
        ("auto", "'auto' is unknown"),
        ("^auto", "'auto' is unknown"),
        ("ring, tree", "' tree' is unknown"),
        ("allreduce:", "'allreduce' is unknown"),  # no list after the colon: it is the list
        (";ring", "function before a colon"),
        ("allgather:ring;tree:", "function before a colon"),
    ],
)
def test_new_releases_refuse_what_they_do_not_know(text: str, complaint: str) -> None:
    with pytest.raises(AdvisorError, match=complaint):
        parse_algorithms(text, NEW)


@pytest.mark.parametrize(
    ("text", "allreduce", "allgather"),
    [
        (":ring", {"Ring"}, {"Ring"}),
        ("RING;", {"Ring"}, {"Ring"}),
        ("allreduce:ring:tree", {"Ring"}, None),  # nobody reads the third part
        ("allreduce::ring,,tree", {"Ring", "Tree"}, None),
        ("ring;allreduce:tree;allreduce:nvls", {"NVLS"}, {"Ring"}),
        (",", set(), set()),
        ("^", set(ALGORITHMS), set(ALGORITHMS)),
        (";", None, None),
    ],
)
def test_values_are_split_as_strtok_splits_them(
    text: str, allreduce: set[str] | None, allgather: set[str] | None
) -> None:
    chosen = parse_algorithms(text, NEW)
    assert (chosen.names("AllReduce"), chosen.names("AllGather")) == (allreduce, allgather)


@pytest.mark.parametrize("text", ["", "auto", ",", ";", "ring;tree", "allreduce:ring", "ring tree"])
def test_a_list_without_a_word_of_an_old_release_leaves_rings_and_trees(text: str) -> None:
    assert parse_algorithms(text, OLD).names("AllReduce") == {"Ring", "Tree"}
    assert parse_algorithms(text, OLD, frozenset()).names("AllReduce") == set(), "with CollNet"


def test_set_and_empty_was_a_list_of_none_until_2_23() -> None:
    """src/graph/tuning.cc: parseList clears all, and what lacks CollNet takes rings and trees."""
    free = predict(h100_node(), "allreduce", 64 * MIB, OLD).choice
    emptied = predict(h100_node(), "allreduce", 64 * MIB, OLD, algo="").choice
    assert free is not None
    assert emptied is not None
    assert (free.algo, emptied.algo in ("Ring", "Tree")) == ("NVLS", True)
    assert (
        predict(h100_node(), "allreduce", 64 * MIB, NEW, algo="").choice
        == predict(h100_node(), "allreduce", 64 * MIB, NEW).choice
    )
    # AND an algorithm that needs CollNet over several nodes is as good as none
    assert parse_algorithms("NVLS", OLD, COLLNET | {"NVLS"}).names("AllReduce") == {
        *("NVLS", "Ring", "Tree")
    }


def test_old_releases_ignore_what_they_do_not_know() -> None:
    assert parse_algorithms("Ring,rings", OLD).names("AllReduce") == {"Ring"}


def test_tree_alone_breaks_other_collectives_from_2_24() -> None:
    prediction = predict(a100_four(), "allgather", MIB, NEW, algo="Tree")
    assert prediction.choice is None
    assert all(row.reason for row in prediction.rows)


@pytest.mark.parametrize("version", ["2.16.5", "2.18.5", "2.19.4", "2.23.4"])
def test_tree_alone_worked_until_2_23(version: str) -> None:
    prediction = predict(a100_four(), "allgather", MIB, parse_version(version), algo="Tree")
    assert prediction.choice is not None
    assert prediction.choice.algo == "Ring"


def test_excluding_one_protocol_switches_ll128_on() -> None:
    # the list is rewritten as a whole, so the default rule for LL128 is gone
    assert parse_protocols("^LL", NEW).names("AllReduce") == {"LL128", "Simple"}
    slow = a100_four()
    assert slow.ring is not None
    far = slow.model_copy(
        update={"ring": slow.ring.model_copy(update={"type_intra": 8}), "tree": None}
    )
    default = predict(far, "allreduce", MIB, NEW).row("Ring", "LL128")
    assert not default.available
    assert predict(far, "allreduce", MIB, NEW, proto="^LL").row("Ring", "LL128").available
    assert not predict(far, "allreduce", MIB, NEW, proto="LL,Simple").row("Ring", "LL128").available


def test_a_nic_behind_c2c_has_ll128_from_the_release_that_put_its_path_before_pxn() -> None:
    # topo.h: PATH_P2C is 7 in 2.27.3 (PATH_PXN is 6), 6 from 2.27.5 on, and unknown before
    quad = topology_of(machine("gh200-quad"), 2)
    for version, trusted in (((2, 26, 6), False), ((2, 27, 3), False), ((2, 27, 5), True)):
        row = predict(quad, "allreduce", MIB, version).row("Ring", "LL128")
        assert row.available == trusted, version


def test_a_filter_moves_the_choice() -> None:
    free = predict(h100_node(), "allreduce", 64 * MIB, NEW).choice
    ringed = predict(h100_node(), "allreduce", 64 * MIB, NEW, algo="allreduce:ring").choice
    assert free is not None
    assert ringed is not None
    assert free.algo == "NVLS"
    assert ringed.algo == "Ring"
    assert ringed.time_us > free.time_us
