"""What calls that share a network with others tell of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from advisor.metrics.collectives.call import Call
from advisor.metrics.collectives.groups import Group, RankInfo
from advisor.metrics.links.cost import Inputs, homes
from advisor.metrics.links.durations import _typical, durations
from advisor.metrics.links.ring_lags import ring_kinds

HOSTS = ("a", "a", "b", "b")
MS = 1_000_000


def inputs(asked: Sequence[tuple[tuple[int, ...], float, float, float]]) -> Inputs:
    """All-reduces of these ranks, from and to these times (ms), the link alone for that part."""
    columns, exclusive = [], {rank: dict[int, float]() for rank in range(4)}
    for number, (ranks, start, end, alone) in enumerate(asked):
        column = {}
        for rank in ranks:
            call = Call(rank, "all_reduce", round(start * MS), round(end * MS), number)
            call.group, call.group_size, call.bytes = str(ranks), len(ranks), 40 * MS
            call.t_is, call.transfer, call.wait = "matched", call.end - call.start, 0
            exclusive[rank][number] = alone * (call.end - call.start)
            column[rank] = call
        columns.append(column)
    groups = {str(ranks): Group(str(ranks), None, ranks, len(ranks)) for ranks, *_ in asked}
    infos = {rank: RankInfo(rank, host, rank % 2, 4, True, {}) for rank, host in enumerate(HOSTS)}
    return Inputs("run", columns, {}, groups, infos, {}, exclusive, {}, {}, gloo=False)


@pytest.mark.parametrize(("alone", "seen"), [((1.0,) * 4, 4), ((1.0, 1.0, 0.6, 0.95), 3)])
def test_the_order_of_ends_is_that_of_calls_with_the_links_to_themselves(
    alone: tuple[float, ...], seen: int
) -> None:
    """GIVEN a reduce-scatter beside some of FSDP's gathers, with which their ends come apart."""
    data = inputs([((0, 1, 2, 3), 10 * n, 10 * n + 5, part) for n, part in enumerate(alone)])
    (kind,) = ring_kinds(data)
    assert len(kind.columns) == seen


@pytest.mark.parametrize(
    ("took_ms", "varies"),
    [((2.0, 4.0), False), ((2.0, 2.0), False), ((4.0, 2.0), True)],
    ids=["they share a NIC", "each has its own", "some are slow alone"],
)
def test_calls_of_other_ranks_of_a_host_make_no_network_unsteady(
    took_ms: tuple[float, float], varies: bool
) -> None:
    """GIVEN tensor-parallel pairs across hosts that reduce alone and beside each other in turn."""
    alone, beside = took_ms
    asked = []
    for n in range(8):
        at = 20.0 * n
        asked += [((0, 2), at, at + beside, 1.0), ((1, 3), at, at + beside, 1.0),
                  ((0, 2), at + 10, at + 10 + alone, 1.0)]  # fmt: skip
    data = inputs(asked)
    (found,) = durations(data, homes(data))
    spread = found.spread[found.groups.index(next(g for g in found.groups if 0 in g.ranks))]
    assert (spread > 0.2) == varies


def test_a_message_that_waits_or_shares_its_way_tells_no_rate() -> None:
    """GIVEN a pipeline on one host (a message takes 50 us alone, 100 beside others) WHEN most of
    a pair's share the way, one was short by chance, or all are slow THEN only the last is slow."""
    pairs = [[50.0] * 8, [50.0] * 3 + [100.0] * 30, [10.0] + [50.0] * 8, [100.0] * 8]
    logs = [np.log(own) for own in pairs]
    assert np.exp(_typical(logs, messages=True)) == pytest.approx([50, 50, 50, 100])
    assert np.exp(_typical(logs, messages=False)) == pytest.approx([50, 100, 50, 100])
