"""Rows of the tables that hold ranks' time and calls: activity, step, breakdowns, collective."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from advisor.metrics.collectives.call import Call, when_moving
from advisor.metrics.collectives.groups import process_groups
from advisor.metrics.collectives.spans import HOOKING, calling, update_spans
from advisor.metrics.host.lead import IdleSplit, asked_late, split_idle
from advisor.metrics.host.queue import stream_waits
from advisor.metrics.host.stretches import held_compute, kept_alone
from advisor.metrics.load import RankData, RunData
from advisor.metrics.timeline.contention import exclusive_ns
from advisor.metrics.timeline.intervals import Int64s, Intervals
from advisor.metrics.timeline.timeline import COMPUTE, KINDS
from advisor.store.columns import Pieces, insert_objects, insert_rows


def write_ranks(con: Any, data: RunData) -> None:
    """What each rank's device did, and its steps."""
    activity = Pieces(con, "activity")
    for rank, one in data.ranks.items():
        line = one.line
        activity.add(
            {
                "run": data.run,
                "rank": rank,
                "kind": np.array(KINDS, dtype=object)[line.kind],
                "start_ns": line.start,
                "end_ns": line.end,
                "stream": line.stream,
                "event_id": line.event_id,
                "launch_ns": line.launch,
                "step": one.activity_step,
            }
        )
    activity.flush()
    steps = [(rank, step) for rank, one in data.ranks.items() for step in one.steps.steps]
    insert_objects(
        con,
        "step",
        [step for _, step in steps],
        {"step": "number"},
        run=data.run,
        rank=[rank for rank, _ in steps],
        only_there=[None] * len(steps),  # named later, where a step is long
    )


def write_clocks(con: Any, data: RunData) -> None:
    """In one statement: each looks at all rows, and a log can name thousands of ranks."""
    clocks = [data.clocks.get(rank) for rank in data.ranks]
    con.execute(
        "UPDATE rank SET clock_offset_ns = found.offset_ns, clock_drift_ppm = found.drift_ppm, "
        "clock_residual_ns = found.residual_ns, host = found.host FROM (SELECT "
        "unnest($ranks::INTEGER[]) AS rank, unnest($offsets::BIGINT[]) AS offset_ns, "
        "unnest($drifts::DOUBLE[]) AS drift_ppm, unnest($residuals::BIGINT[]) AS residual_ns, "
        "unnest($hosts::VARCHAR[]) AS host) found WHERE run = $run AND rank.rank = found.rank",
        {
            "ranks": list(data.ranks),
            "offsets": [None if clock is None else clock.offset_ns for clock in clocks],
            "drifts": [None if clock is None else clock.drift_ppm for clock in clocks],
            "residuals": [None if clock is None else clock.residual_ns for clock in clocks],
            "hosts": [one.info.host for one in data.ranks.values()],
            "run": data.run,
        },
    )


def write_groups(con: Any, data: RunData) -> None:
    """Groups that no file names."""
    known = process_groups(con, data.run)
    rows = [
        {
            "run": data.run,
            "process_group": one.name,
            "ranks": list(one.ranks or ()),
            "size": one.size,
        }
        for one in data.told.values()
        if one.name not in known
    ]
    insert_rows(con, "process_group", rows)


def write_collectives(con: Any, data: RunData) -> None:
    hidden: list[int] = []
    for rank, calls in sorted(data.calls.items()):
        occupancy = data.ranks[rank].occupancy
        ends = [c.end for c in calls]
        covered = occupancy.compute.covered([c.start for c in calls], ends)
        hidden += map(int, covered)
        transfers = [c.start + (c.wait or 0) for c in calls]
        exposed = exclusive_ns(transfers, ends, within=occupancy.exposed_comm)
        for call, moving in zip(calls, exposed, strict=True):
            call.exposed_transfer = round(float(moving))
    records = [call for _, calls in sorted(data.calls.items()) for call in calls]
    insert_objects(
        con,
        "collective",
        records,
        {"process_group": "group", "matched_ranks": "matched"},
        run=data.run,
        hidden_ns=hidden,
        exposed_ns=[c.end - c.start - part for c, part in zip(records, hidden, strict=True)],
        split_bytes=[None if c.split_bytes is None else json.dumps(c.split_bytes) for c in records],
    )


def write_breakdowns(con: Any, data: RunData) -> None:
    of_run, of_steps = Pieces(con, "run_breakdown"), Pieces(con, "step_breakdown")
    for rank, one in sorted(data.ranks.items()):
        line = one.line
        if not len(line):
            continue
        # A rank whose calls are all alone cannot tell waiting from transferring.
        transfers = _transfers(data.calls[rank])
        idle = split_idle(one.gaps) if one.gaps is not None else None
        low, high = [int(line.start.min())], [int(line.end.max())]
        windows = one.occupancy.split(low, high)
        of_run.add(_breakdown(data.run, rank, low, high, windows, one, transfers, idle))
        steps = one.steps.steps
        if steps:
            low, high = [s.start for s in steps], [s.end for s in steps]
            windows = one.occupancy.split(low, high)
            extra: dict[str, Any] = {
                "step": [s.number for s in steps],
                "complete": [s.complete for s in steps],
                "used": [s.used for s in steps],
                "operators": _operators(one),
            }
            if one.gaps is not None:
                extra["idle_hooks_ns"] = one.gaps.in_hooks(
                    one.spans.select(HOOKING).intervals()
                ).covered(low, high)
                late = asked_late(data.calls[rank], line, one.gaps)
                exposed = one.occupancy.exposed_comm
                extra["late_comm_host_ns"] = (exposed & late.by_pace).covered(low, high)
                extra["late_comm_sync_ns"] = (exposed & late.by_wait).covered(low, high)
                held = Intervals.empty()
                if one.gaps.by_wait.any():
                    waits = stream_waits(data.events, rank)
                    held = held_compute(line, one.occupancy, one.activity, waits)
                alone = kept_alone(exposed, held, transfers) - late.by_wait
                extra["late_compute_sync_ns"] = alone.covered(low, high)
            if idle is not None:
                updates = update_spans(one.spans).intervals()
                extra["idle_optimizer_ns"] = (idle.host & updates).covered(low, high)
                called = calling(data.events, rank)
                extra["idle_calls_ns"] = (idle.host & called).covered(low, high)
            of_steps.add(
                {
                    **_breakdown(data.run, rank, low, high, windows, one, transfers, idle),
                    **extra,
                }
            )
    of_run.flush()
    of_steps.flush()


def _operators(one: RankData) -> list[int]:
    """How much compute belongs to each step: kernels, on a CPU top-level operators."""
    numbers, counts = np.unique(one.activity_step[one.line.kind == COMPUTE], return_counts=True)
    counted = dict(zip(numbers.tolist(), counts.tolist(), strict=True))
    return [counted.get(step.number, 0) for step in one.steps.steps]


def _transfers(calls: list[Call]) -> Intervals | None:
    """When data moved; None where no call was matched, so that nothing tells waiting apart."""
    return when_moving(calls) if any(call.is_timed for call in calls) else None


def _breakdown(
    run: str,
    rank: int,
    low: list[int],
    high: list[int],
    windows: Mapping[str, Int64s],
    one: RankData,
    transfers: Intervals | None,
    idle: IdleSplit | None,
) -> dict[str, Any]:
    columns: dict[str, Any] = {"run": run, "rank": rank, **windows}
    if idle is not None:
        columns["idle_host_ns"] = idle.host.covered(low, high)
        columns["idle_launch_gap_ns"] = idle.launch_gap.covered(low, high)
        columns["idle_sync_ns"] = idle.sync.covered(low, high)
    if transfers is not None:
        moving = (transfers - one.occupancy.compute).covered(low, high)
        columns["exposed_transfer_ns"] = moving
        columns["exposed_wait_ns"] = windows["exposed_comm_ns"] - moving
    return columns
