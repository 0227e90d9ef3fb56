"""A cut rank without what launched its kernels: its calls are in the steps of the others."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import advisor
from advisor.metrics.collectives.call import Call
from advisor.metrics.collectives.groups import Group
from advisor.metrics.collectives.match import Matched, from_matched, match
from advisor.metrics.steps.annotated import Step, Steps
from advisor.metrics.steps.rough_clocks import adrift, rough_offsets, unplaced, without_launches
from advisor.metrics.timeline.timeline import Timeline
from advisor.store.columns import MISSING

FIXTURE = Path(__file__).parents[2] / "fixtures" / "lab-zero1-broadcast"
MS = 1_000_000
RANKS = (0, 1, 2)
GROUPS = {"0": Group("0", None, RANKS, 3)}
FAR = 10**15
"""By how much the clock of the cut rank is off: what says its base time stood behind the cut."""
STEPS = 5


def steps_of(shift: int, *, device: bool) -> Steps:
    """Hosts ask for a step in 5 ms that takes the devices 20 ms."""
    spans = [(shift + 5 * k * MS, shift + 5 * (k + 1) * MS) for k in range(STEPS)]
    windows = [(shift + (20 * k + 2) * MS, shift + (20 * k + 22) * MS) for k in range(STEPS)]
    return Steps(
        tuple(
            Step(k, *(windows if device else spans)[k], *spans[k], True, "ProfilerStep")
            for k in range(STEPS)
        )
    )


def recorded(kept: int) -> tuple[dict[int, Steps], dict[int, list[Call]]]:
    """Four equal calls of each step; of rank 1 the first ``kept`` and no launch."""
    steps = {rank: steps_of(FAR if rank == 1 else 0, device=rank != 1) for rank in RANKS}
    calls: dict[int, list[Call]] = {}
    for rank in RANKS:
        calls[rank] = []
        for number in range(kept if rank == 1 else 4 * STEPS):
            start = (2 + 5 * number) * MS + (FAR if rank == 1 else 0) + 50_000 * rank
            call = Call(rank, "all_gather", start, start + 3 * MS, number)
            call.group, call.group_size, call.bytes = "0", 3, 1_000_000
            found = int(steps[rank].by_window(np.array([start]))[0])
            call.step = None if found == MISSING else found
            calls[rank].append(call)
    return steps, calls


def apart(found: Matched) -> int:
    """Columns that hold different calls."""
    return sum(len({call.event_id for call in column.values()}) > 1 for column in found.columns)


@pytest.mark.parametrize("kept", [4, 7, 10, 13, 19])
def test_its_calls_are_matched_by_the_order_and_by_clocks_that_hosts_align(kept: int) -> None:
    steps, calls = recorded(kept)
    assert apart(match(calls, GROUPS, stepped=True, offsets=rough_offsets(steps)))  # by its spans
    steps, calls = recorded(kept)
    steps[1] = unplaced(steps[1], calls[1])
    assert not any(step.complete for step in steps[1].steps)
    found = adrift(steps, calls, {1})
    assert found == {1: -FAR}
    offsets = rough_offsets(steps) | found
    from_matched(match(calls, GROUPS, stepped=False, offsets=offsets), found)
    assert [call.step for call in calls[1]] == [number // 4 for number in range(kept)]
    assert apart(match(calls, GROUPS, stepped=True, offsets=offsets)) == 0


def test_only_a_cut_rank_beside_ranks_with_launches_lost_its_own() -> None:
    """Devices whose recordings have no launches at all are not to be accused of losing them."""
    times = np.arange(3, dtype=np.int64)
    seen = Timeline(0, True, times, times, times + 1, times, times, times, times)
    bare = replace(seen, launch=np.full(3, MISSING, dtype=np.int64))
    assert without_launches({0: seen, 1: bare, 2: bare}, {1}) == {1}
    assert without_launches({0: bare, 1: bare}, {1}) == set()
    assert without_launches({0: seen, 1: seen}, {1}) == set()


@pytest.mark.slow
def test_a_cut_rank_of_a_cpu_job_keeps_its_clock(tmp_path: Path) -> None:
    """Ranks need not begin a step together: one that does so 22 ms before is not 22 ms off."""
    for trace in sorted(FIXTURE.glob("rank*.json.gz")):
        own = json.loads(gzip.decompress(trace.read_bytes()))
        if trace.name.startswith("rank1"):
            for event in own["traceEvents"]:
                if str(event.get("name")).startswith("ProfilerStep"):
                    event["ts"] -= 22_000
        text = json.dumps(own)
        kept = len(text) * 9 // 10 if trace.name.startswith("rank1") else len(text)
        (tmp_path / trace.name.removesuffix(".gz")).write_text(text[:kept])
    with advisor.load(tmp_path) as run:
        rows = run.sql("SELECT rank, complete, clock_offset_ns FROM rank ORDER BY rank")
    assert list(rows["complete"]) == [True, False, True]
    assert list(rows["clock_offset_ns"]) == [0, 0, 0]
