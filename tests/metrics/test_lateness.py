"""Lateness by its definition, whose calls a rank meets, and what a lost record must not add."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from advisor.metrics.clocks.offsets import Clock
from advisor.metrics.collectives.call import Call, when_moving
from advisor.metrics.lateness.blame import Arrivals
from advisor.metrics.lateness.by_step import waited_for
from advisor.metrics.lateness.cost import cost_of, costs_by_step, is_sure
from advisor.metrics.lateness.lost import lost_time
from advisor.metrics.lateness.others import Others, others_per_peer
from advisor.metrics.lateness.rows import after_median
from advisor.metrics.steps.annotated import Step, Steps
from advisor.metrics.timeline.breakdown import Occupancy
from advisor.metrics.timeline.intervals import Intervals
from tests.metrics.test_recordings import Traces, derived, recording
from tests.support.marks import long

MS = 1_000_000
EPOCH = 1_700_000_000_000_000_001  # an odd number of ns, which no double holds


def column(*starts: int, op: str = "all_reduce", first: int = 0) -> dict[int, Call]:
    """One call that each rank starts at its own time (ns after the epoch) and leaves at 100 ms."""
    return {
        rank: Call(rank, op, EPOCH + start, EPOCH + 100 * MS, 0)
        for rank, start in enumerate(starts, first)
    }


@pytest.mark.parametrize(
    ("starts", "late"),
    [
        ((0, 10, 20, 90), (-15, -5, 5, 75)),
        ((0, 10, 90), (-10, 0, 80)),
        ((0, 90), (-45, 45)),
        ((7, 7, 7, 7), (0, 0, 0, 0)),
    ],
    ids=["even", "odd", "two", "together"],
)
def test_lateness_is_start_less_the_median_start(
    starts: tuple[int, ...], late: tuple[int, ...]
) -> None:
    found = after_median([column(*starts)], {})
    assert [found[rank] for rank in range(len(starts))] == [[ns] for ns in late]


def test_lateness_is_taken_on_the_aligned_clock() -> None:
    clocks = {1: Clock(offset_ns=-50, drift_ppm=0.0, residual_ns=0)}
    assert after_median([column(0, 90)], clocks)[1] == [20]


def test_the_time_of_asking_is_not_the_start() -> None:
    asked = {r: dataclasses.replace(c, enqueue=EPOCH - r) for r, c in column(0, 10, 20).items()}
    assert after_median([asked], {})[2] == [10]


def arrivals(*ranks: int) -> Arrivals:
    none = np.zeros((0, len(ranks)), dtype=np.int64)
    return Arrivals(None, ranks, (), none, none, none, none, none)


def test_a_rank_of_a_grid_meets_fewer_than_all_others() -> None:
    grid = [arrivals(0, 1), arrivals(2, 3), arrivals(0, 2), arrivals(1, 3)]
    assert others_per_peer(grid, 4)[1] == 1.5
    assert others_per_peer([arrivals(0, 1), arrivals(0, 2)], 3)[1] == 2.0
    assert others_per_peer([arrivals(0, 1, 2, 3)], 4)[1] == 1.0


@pytest.mark.parametrize("ranks", [2, 3, 4, 7, 8])
def test_what_the_others_have_is_found_without_a_look_at_each(ranks: int) -> None:
    """GIVEN equal values, too, THEN greatest and median are those of all ranks but one."""
    values = np.random.default_rng(ranks).integers(0, 5, (ranks, 40)).astype(np.float64)
    others = Others(values)
    for rank in range(ranks):
        rest = np.delete(values, rank, axis=0)
        assert np.array_equal(others.greatest(values[rank]), rest.max(axis=0))
        assert np.array_equal(others.median(values[rank]), np.median(rest, axis=0))


def test_a_rank_alone_has_no_others() -> None:
    others = Others(np.ones((1, 3)))
    assert others.greatest(np.ones(3)) is None
    assert others.median(np.ones(3)) is None


def test_only_who_lacks_a_call_of_its_peers_lost_it() -> None:
    whole = [column(0, 0, 0) for _ in range(5)]
    one_lost = {rank: call for rank, call in column(3, 4, 5).items() if rank != 1}
    assert lost_time(whole, {}) == {}
    lost = lost_time([*whole, one_lost], {})
    assert lost.keys() == {1}
    assert lost[1].start.tolist() == [EPOCH + 3]
    assert lost[1].end.tolist() == [EPOCH + 100 * MS]


def test_a_rank_that_was_not_read_or_sends_to_another_one_lost_nothing() -> None:
    pairs = [column(0, 0) for _ in range(5)]
    assert lost_time(pairs, {}) == {}
    assert lost_time([column(0, 0, op="send"), column(0, op="send", first=1)], {}) == {}


@pytest.mark.long
@pytest.mark.slow
def test_a_lost_record_makes_no_rank_late(fixtures_dir: Path) -> None:
    """The pause of another rank falls into the call that rank 3 has no record of."""
    whole = recording(fixtures_dir / "lab-zero1-pauses")
    events = whole[3]["traceEvents"]
    calls = [e for e in events if str(e.get("name", "")).startswith("gloo:all_reduce")]
    lost = calls[len(calls) // 2]
    cut: Traces = {**whole, 3: {**whole[3], "traceEvents": [e for e in events if e is not lost]}}
    before, after = costs(whole), costs(cut)
    assert all(after[rank] <= 1.02 * before[rank] for rank in before)


def costs(traces: Traces) -> dict[int, int]:
    sql = "SELECT rank, cost_ns_per_step FROM lateness WHERE process_group IS NULL"
    return dict(derived(traces).con.execute(sql).fetchall())


@pytest.mark.slow
def test_only_who_keeps_others_waiting_has_a_reason(fixtures_dir: Path) -> None:
    """Rank 2 is slow; what the others waited for before a call does not make them late."""
    traces = recording(fixtures_dir / "lab-ddp-slow-rank")
    sql = "SELECT rank, cost_ns_per_step > 0, reason FROM lateness WHERE process_group IS NULL"
    rows = derived(traces).con.execute(f"{sql} ORDER BY rank").fetchall()
    assert (2, True, "longer-compute") in rows
    assert [(rank, reason) for rank, late, reason in rows if not late] == [
        (rank, None) for rank, late, _ in rows if not late
    ]
    assert not all(late for _, late, _ in rows)


@pytest.mark.slow
def test_the_mean_over_the_steps_is_what_peers_wait_for_a_late_rank(fixtures_dir: Path) -> None:
    """The picture of ranks and steps, and the sentence beside it, show one figure."""
    store = derived(recording(fixtures_dir / "lab-ddp-slow-rank"))
    sql = "SELECT run, wait_ns_per_step FROM lateness WHERE process_group IS NULL AND rank = 2"
    run, cost = store.con.execute(sql).fetchone()
    by_step = waited_for(store.con, run)[2]
    assert np.mean([*by_step.values()]) == pytest.approx(cost, rel=0.01)
    assert max(by_step.values()) > 1.5 * cost


def test_a_peer_that_transfers_in_another_call_does_not_wait() -> None:
    """Rank 1 comes 30 ms late to one call; rank 0 waits, and transfers for 20 of them in another.

    A breakdown has those 20 ms as transfer (METRICS section 3); a step may gain all 30.
    """
    waits = Call(0, "all_reduce", 0, 40 * MS, 0, wait=30 * MS, last_rank=1)
    late = Call(1, "all_reduce", 30 * MS, 40 * MS, 0, wait=0, last_rank=1)
    beside = Call(0, "all_reduce", 5 * MS, 25 * MS, 1, wait=0, last_rank=0)
    excess = np.array([[0, 30 * MS]])
    item = Arrivals(None, (0, 1), ({0: waits, 1: late},), excess, excess, excess, excess, excess)
    steps = Steps((Step(0, 0, 50 * MS, 0, 50 * MS, True, "ProfilerStep"),))
    idle = Occupancy(*[Intervals.empty()] * 6)
    moving = {0: when_moving([waits, beside]), 1: when_moving([late])}
    costs, waited = costs_by_step([item], {0: steps, 1: steps}, {0: idle, 1: idle}, [0, 1], moving)
    assert costs == {0: {0: 0.0}, 1: {0: 30.0 * MS}}
    assert waited == {0: {0: 0.0}, 1: {0: 10.0 * MS}}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["lab-ddp-slow-rank", *long("lab-zero1-pauses", "lab-fsdp2-slow-link")]
)
def test_nobody_is_waited_for_longer_than_breakdowns_have_waiting(
    fixtures_dir: Path, name: str
) -> None:
    con = derived(recording(fixtures_dir / name)).con
    ((exposed,),) = con.execute(
        "SELECT avg(exposed_wait_ns) FROM step_breakdown WHERE used"
    ).fetchall()
    ((ranks, waited),) = con.execute(
        "SELECT count(*), sum(wait_ns_per_step) FROM lateness WHERE process_group IS NULL"
    ).fetchall()
    # Means over all others: of n ranks, one waits for nobody.
    assert 0 < waited * (ranks - 1) / ranks <= 1.001 * exposed


@pytest.mark.parametrize(
    ("by_step", "habit"),
    [
        ((1, 0, 2, 39 * MS, 1, 1, 53 * MS), False),
        ((1, 2, 1, 1, 1, 40 * MS, 2), False),
        ((12 * MS, 15 * MS, 13 * MS, 11 * MS, 14 * MS, 12 * MS, 13 * MS), True),
        ((10 * MS, 5 * MS, 14 * MS, 0, 13 * MS, 7 * MS), True),
        ((0, 40 * MS, 0, 40 * MS, 0, 40 * MS, 0, 40 * MS), True),
    ],
    ids=["two pauses", "one pause", "every step", "most steps", "every second step"],
)
def test_a_few_pauses_are_no_habit_of_their_rank(by_step: tuple[int, ...], habit: bool) -> None:
    """Hosts that collect garbage in turn: one had two pauses in seven steps and was called late."""
    values = np.array(by_step, dtype=np.float64)
    cost, low, _ = cost_of(values, np.zeros(len(values)), 0.0, significant=True)
    assert is_sure(cost, low) == habit
