"""Lost packets: calls that stand still for a retransmission timeout, and who may have lost them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from advisor.metrics.collectives.call import Call
from advisor.metrics.collectives.groups import Group, RankInfo
from advisor.metrics.links.cost import Inputs
from advisor.metrics.links.stalls import stall_rows
from advisor.metrics.steps.annotated import Step, Steps

MS = 1_000_000
RANKS = (0, 1, 2)


def inputs(ends_ms: Sequence[tuple[float, float, float]]) -> Inputs:
    """A 3 ms all-reduce a step over three hosts, plus what ``ends_ms`` adds to each rank's end."""
    columns = []
    for step, extra in enumerate(ends_ms):
        start = step * 1_000 * MS
        column = {}
        for rank in RANKS:
            call = Call(rank, "all_reduce", start, start + round((3 + extra[rank]) * MS), step)
            call.group, call.group_size, call.bytes, call.step = "0", 3, 300_000, step
            call.t_is, call.transfer, call.wait = "matched", call.end - start, 0
            call.last_rank = 0
            column[rank] = call
        columns.append(column)
    spans = tuple(
        Step(n, n * 1_000 * MS, (n + 1) * 1_000 * MS, None, None, True, "ProfilerStep")
        for n in range(len(columns))
    )
    return Inputs(
        run="run",
        columns=columns,
        calls={},
        groups={"0": Group("0", None, RANKS, 3)},
        infos={rank: RankInfo(rank, f"h{rank}", None, 3, True, {}) for rank in RANKS},
        clocks={},
        exclusive={},
        occupancy={},
        steps={rank: Steps(spans) for rank in RANKS},
        gloo=True,
    )


HOME = {rank: f"h{rank}" for rank in RANKS}
NONE = (0.0, 0.0, 0.0)


def test_the_host_whose_data_is_missing_is_named() -> None:
    # gloo's all_reduce sends to the previous rank: rank 2 waits for what rank 0 sends.
    lost = (0.0, 0.0, 207.0)
    (row,) = stall_rows(inputs([NONE, lost, NONE, lost, NONE, lost, NONE, NONE]), HOME)
    assert (row["kind"], row["src"], row["calls"]) == ("rank", 0, 3)
    assert row["excess_ns_per_step"] == pytest.approx(3 * 207 * MS / 8, rel=0.02)


def test_losses_that_everybody_waits_for_leave_the_host_open() -> None:
    lost = (207.0, 207.0, 207.0)
    (row,) = stall_rows(inputs([NONE, lost, NONE, lost, NONE, lost, NONE, NONE]), HOME)
    assert (row["kind"], row["candidates"]) == ("candidates", "[0, 1, 2]")


@pytest.mark.parametrize("extra", [120.0, 300.0, 500.0])
def test_stalls_that_are_no_timeout_are_none(extra: float) -> None:
    odd = (0.0, 0.0, extra)
    assert stall_rows(inputs([NONE, odd, NONE, odd, NONE, odd, NONE, NONE]), HOME) == []


def test_two_stalls_are_chance_unless_one_host_s_packet_explains_them() -> None:
    everybody, one = (207.0, 207.0, 207.0), (0.0, 0.0, 207.0)
    assert stall_rows(inputs([NONE, everybody, NONE, everybody, *[NONE] * 4]), HOME) == []
    (row,) = stall_rows(inputs([NONE, one, *[NONE] * 6]), HOME)
    assert (row["src"], row["calls"]) == (0, 1)
    assert row["excess_low_ns"] < 0.05 * row["excess_ns_per_step"]


def test_a_lost_word_names_who_did_not_send_it() -> None:
    # Ranks 0 and 2 wait, 1 is done: 0 waits for the word of 2 that it may send, 2 for its data. A
    # packet of rank 1 or of rank 0 would leave one of them done, or nobody.
    early, word = (207.0, 207.0, 207.0), (207.0, 0.0, 207.0)
    (row,) = stall_rows(inputs([NONE, early, NONE, early, NONE, word, NONE, NONE]), HOME)
    assert (row["kind"], row["src"], row["calls"]) == ("rank", 2, 3)


def test_the_interval_is_that_of_as_many_rare_events() -> None:
    # Garwood's exact limits for three events are 0.62 and 8.77.
    lost = (0.0, 0.0, 207.0)
    (row,) = stall_rows(inputs([NONE, lost, NONE, lost, NONE, lost, NONE, NONE]), HOME)
    one = row["excess_ns_per_step"] / 3
    assert row["excess_low_ns"] / one == pytest.approx(0.62, rel=0.05)
    assert row["excess_high_ns"] / one == pytest.approx(8.77, rel=0.05)


def test_where_most_calls_stand_still_the_others_tell_the_typical_time() -> None:
    lost = (0.0, 0.0, 207.0)
    (row,) = stall_rows(inputs([lost, NONE, lost, lost, lost, NONE, NONE, lost]), HOME)
    assert (row["kind"], row["src"], row["calls"]) == ("rank", 0, 5)


def test_a_kind_that_always_takes_that_long_does_not_stand_still() -> None:
    slow = (0.0, 0.0, 207.0)
    assert stall_rows(inputs([slow] * 7 + [NONE]), HOME) == []


@pytest.mark.parametrize(("of", "rows"), [("send", 0), ("recv", 1)])
def test_the_receive_says_how_long_a_message_took(of: str, rows: int) -> None:
    # A pipeline asks after its sends when the step ends: 0.2 s in which nothing stood still.
    data = inputs([NONE] * 8)
    messages = []
    for step in range(8):
        pair = {}
        for rank, op in ((0, "send"), (1, "recv")):
            start, extra = step * 1_000 * MS, 207 if op == of and step % 2 else 0
            call = Call(rank, op, start, start + (3 + extra) * MS, step)
            call.group, call.group_size, call.bytes, call.step = "0", 3, 300_000, step
            call.t_is, call.transfer, call.wait = "matched", call.end - start, 0
            pair[rank] = call
        messages.append(pair)
    assert len(stall_rows(replace(data, columns=messages), HOME)) == rows


def test_a_call_that_loses_two_segments_costs_both() -> None:
    lost, twice = (0.0, 0.0, 207.0), (0.0, 0.0, 414.0)
    rows = stall_rows(inputs([NONE, lost, NONE, lost, twice, lost, NONE, NONE]), HOME)
    (row,) = rows
    assert row["excess_ns_per_step"] == pytest.approx(5 * 207 * MS / 8, rel=0.02)
    assert row["calls"] == 3, "what names the place is one segment's timeout"


def test_long_calls_of_all_lengths_are_not_added() -> None:
    lost = (0.0, 0.0, 207.0)
    others = [(0.0, 0.0, extra) for extra in (300.0, 350.0, 410.0, 480.0)]
    rows = stall_rows(inputs([NONE, lost, NONE, lost, NONE, lost, NONE, *others, NONE]), HOME)
    (row,) = rows
    assert row["excess_ns_per_step"] == pytest.approx(3 * 207 * MS / 12, rel=0.02)


@pytest.mark.parametrize("off_ms", [3_000, -3_000, 130, -130])
@pytest.mark.parametrize("rank", RANKS)
def test_a_clock_that_is_off_names_no_other_host(rank: int, off_ms: int) -> None:
    """Who ends late by its clock alone, in every call, waits for no packet."""
    lost = (0.0, 0.0, 207.0)
    data = inputs([NONE, lost, NONE, lost, NONE, lost, NONE, NONE])
    for column in data.columns:
        for call in column.values():
            if call.rank == rank:
                call.start, call.end = call.start + off_ms * MS, call.end + off_ms * MS
        last = max(call.start for call in column.values())
        for call in column.values():
            call.transfer = max(call.end - last, 0)
    (row,) = stall_rows(data, HOME)
    assert (row["kind"], row["src"], row["calls"]) == ("rank", 0, 3)
    assert row["excess_ns_per_step"] == pytest.approx(3 * 207 * MS / 8, rel=0.02)
