"""Rebuild all derived tables of a store, run by run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from advisor.metrics.breakdown import Occupancy
from advisor.metrics.calls import Call
from advisor.metrics.calls_device import device_calls
from advisor.metrics.calls_host import host_calls
from advisor.metrics.clock import Clock, clocks
from advisor.metrics.fits import Kind, exclusive_transfers, fit_all, fit_record
from advisor.metrics.groups import Group, RankInfo, assign_groups, process_groups, rank_infos
from advisor.metrics.host import HostActivity, IdleSplit, gap_rows, host_activity, split_idle
from advisor.metrics.intervals import Int64s, Intervals
from advisor.metrics.lateness import Ranks, lateness_rows
from advisor.metrics.links import Inputs, link_rows
from advisor.metrics.match import Matched, match
from advisor.metrics.overlap import overlap_row
from advisor.metrics.phases import Spans, bucket_rows, host_spans, set_phases, sync_rows
from advisor.metrics.pipeline import pipeline_rows
from advisor.metrics.steps import (
    Steps,
    annotated_steps,
    device_windows,
    last_incomplete,
    whole_trace,
)
from advisor.metrics.summaries import EXPERT_BALANCE, REDUNDANT, TRAFFIC
from advisor.metrics.tables import MISSING, insert, insert_rows
from advisor.metrics.timeline import KINDS, Timeline, timelines
from advisor.metrics.waiting import split_waiting
from advisor.model.alpha_beta import AlphaBeta
from advisor.store.store import Store

TABLES = (
    "activity",
    "step",
    "collective",
    "run_breakdown",
    "step_breakdown",
    "unmatched",
    "alpha_beta",
    "lateness",
    "link_excess",
    "param_bucket",
    "gradient_sync",
    "traffic",
    "redundant",
    "pipeline_stage",
    "expert_balance",
    "host_gap",
    "overlap_slowdown",
)


@dataclass
class RankData:
    """Everything of one rank that the tables are made from."""

    info: RankInfo
    line: Timeline
    steps: Steps
    occupancy: Occupancy
    activity_step: Int64s
    spans: Spans
    activity: HostActivity


@dataclass
class RunData:
    """Everything of one run."""

    run: str
    ranks: dict[int, RankData]
    groups: dict[str, Group]
    calls: dict[int, list[Call]]
    matched: Matched
    clocks: dict[int, Clock]
    exclusive: dict[int, dict[int, float]]
    fits: dict[Kind, AlphaBeta]


def derive(store: Store, *, step_annotation: str | None = None) -> None:
    """(Re)build the derived tables of every run in the store.

    ``step_annotation`` names the annotation that marks a step where there is no ProfilerStep.
    """
    con = store.con
    for table in TABLES:
        # A probe or nccl-tests write fits too; those are not this module's to remove.
        conditions = {
            "alpha_beta": " WHERE origin = 'trace'",
            "link_excess": " WHERE expected_from IS DISTINCT FROM 'probe'",
        }
        condition = conditions.get(table, "")
        con.execute(f"DELETE FROM {table}{condition}")
    for (run,) in con.execute("SELECT run FROM run ORDER BY run").fetchall():
        _derive_run(con, run, step_annotation)


def _derive_run(con: Any, run: str, step_annotation: str | None) -> None:
    data = load_run(con, run, step_annotation)
    for rank in data.ranks.values():
        _write_rank(con, run, rank)
    _write_clocks(con, data)
    _write_collectives(con, data)
    _write_breakdowns(con, data)
    insert_rows(con, "lateness", lateness_rows(run, data.matched.columns, _lateness_input(data)))
    _write_summaries(con, data)
    insert_rows(con, "link_excess", link_rows(_link_input(con, data)))
    insert_rows(
        con, "alpha_beta", [fit_record(run, kind, found) for kind, found in data.fits.items()]
    )
    insert_rows(
        con,
        "unmatched",
        [
            {"run": run, "rank": rank, "process_group": group, "calls": count, "reason": reason}
            for (rank, group, reason), count in sorted(
                data.matched.unmatched.items(), key=lambda item: (item[0][0], str(item[0][1:]))
            )
        ],
    )


def load_run(con: Any, run: str, step_annotation: str | None = None) -> RunData:
    """Read one run's events and match its collectives."""
    infos = rank_infos(con, run)
    groups = process_groups(con, run)
    ranks: dict[int, RankData] = {}
    calls: dict[int, list[Call]] = {}
    for line in timelines(con, run):
        info = infos[line.rank]
        marked = annotated_steps(con, run, line.rank, step_annotation)
        steps = device_windows(marked, line) if marked else whole_trace(line)
        if not info.complete:
            steps = last_incomplete(steps)
        own = (
            device_calls(con, run, line.rank) if line.on_device else host_calls(con, run, line.rank)
        )
        _set_steps(own, steps)
        spans = host_spans(con, run, line.rank)
        set_phases(own, spans)
        calls[line.rank] = own
        ranks[line.rank] = RankData(
            info,
            line,
            steps,
            Occupancy.of(line),
            _activity_steps(line, steps),
            spans,
            host_activity(con, run, line.rank),
        )
    assign_groups(calls, groups, infos)
    stepped = bool(ranks) and all(
        r.steps.steps and r.steps.steps[0].source in ("ProfilerStep", "annotation")
        for r in ranks.values()
    )
    matched = match(calls, groups, stepped)
    found = clocks(matched.columns, infos)
    if any(reason == "missing event" for _, _, reason in matched.unmatched):
        # Equal calls compete for a partner; now that the clocks are known, their times decide.
        offsets = {rank: clock.offset_ns for rank, clock in found.items()}
        matched = match(calls, groups, stepped, offsets)
        found = clocks(matched.columns, infos)
    split_waiting(matched.columns, groups, found)
    exclusive = exclusive_transfers(calls)
    fits = fit_all(matched.columns, exclusive, groups, infos)
    return RunData(run, ranks, groups, calls, matched, found, exclusive, fits)


def _lateness_input(data: RunData) -> Ranks:
    return Ranks(
        lines={rank: one.line for rank, one in data.ranks.items()},
        occupancy={rank: one.occupancy for rank, one in data.ranks.items()},
        steps={rank: one.steps for rank, one in data.ranks.items()},
        clocks=data.clocks,
        loading={rank: one.activity.union("data-loading") for rank, one in data.ranks.items()},
    )


def _link_input(con: Any, data: RunData) -> Inputs:
    backends = con.execute(
        "SELECT backend FROM rank WHERE run = ? UNION SELECT backend FROM process_group "
        "WHERE run = ?",
        [data.run, data.run],
    ).fetchall()
    return Inputs(
        run=data.run,
        columns=data.matched.columns,
        calls=data.calls,
        groups=data.groups,
        infos={rank: one.info for rank, one in data.ranks.items()},
        clocks=data.clocks,
        exclusive=data.exclusive,
        occupancy={rank: one.occupancy for rank, one in data.ranks.items()},
        steps={rank: one.steps for rank, one in data.ranks.items()},
        gloo=not any(one.line.on_device for one in data.ranks.values())
        and all(name is None or "gloo" in name for (name,) in backends),
    )


def _write_summaries(con: Any, data: RunData) -> None:
    for rank, one in sorted(data.ranks.items()):
        own = data.calls[rank]
        insert_rows(con, "param_bucket", bucket_rows(data.run, rank, own))
        spans = {
            s.number: (s.start, s.end)
            if s.host_start is None
            else (s.host_start, s.host_end or s.end)
            for s in one.steps.steps
        }
        gaps = gap_rows(data.run, one.line, one.occupancy, one.steps, one.activity)
        insert_rows(con, "host_gap", gaps)
        slowdown = overlap_row(con, data.run, one.line, one.occupancy, one.steps)
        if slowdown is not None:
            insert_rows(con, "overlap_slowdown", [slowdown])
        insert_rows(con, "gradient_sync", sync_rows(data.run, rank, own, one.spans, spans))
    for statement in (TRAFFIC, REDUNDANT, EXPERT_BALANCE):
        con.execute(statement, [data.run])
    insert_rows(con, "pipeline_stage", pipeline_rows(con, data.run, data.calls))


def _activity_steps(line: Timeline, steps: Steps) -> Int64s:
    """A device event belongs to the step that launched it; without a launch, to its window."""
    by_window = steps.by_window(line.start)
    if not line.on_device:
        return by_window
    return np.where(line.launch == MISSING, by_window, steps.by_host(line.launch))


def _set_steps(calls: list[Call], steps: Steps) -> None:
    starts = np.array([c.start for c in calls], dtype=np.int64)
    asked = np.array([MISSING if c.enqueue is None else c.enqueue for c in calls], dtype=np.int64)
    found = np.where(asked == MISSING, steps.by_window(starts), steps.by_host(asked))
    for call, step in zip(calls, found, strict=True):
        call.step = None if step == MISSING else int(step)


def _write_rank(con: Any, run: str, data: RankData) -> None:
    line = data.line
    count = len(line)
    insert(
        con,
        "activity",
        {
            "run": np.full(count, run, dtype=object),
            "rank": np.full(count, line.rank, dtype=np.int32),
            "kind": np.array(KINDS, dtype=object)[line.kind],
            "start_ns": line.start,
            "end_ns": line.end,
            "stream": line.stream,
            "event_id": line.event_id,
            "launch_ns": line.launch,
            "step": data.activity_step,
        },
    )
    insert_rows(
        con,
        "step",
        [
            {
                "run": run,
                "rank": line.rank,
                "step": step.number,
                "start_ns": step.start,
                "end_ns": step.end,
                "host_start_ns": step.host_start,
                "host_end_ns": step.host_end,
                "complete": step.complete,
                "source": step.source,
            }
            for step in data.steps.steps
        ],
    )


def _write_clocks(con: Any, data: RunData) -> None:
    for rank in data.ranks:
        clock = data.clocks.get(rank)
        values = (
            (None, None, None)
            if clock is None
            else (clock.offset_ns, clock.drift_ppm, clock.residual_ns)
        )
        con.execute(
            "UPDATE rank SET clock_offset_ns = ?, clock_drift_ppm = ?, clock_residual_ns = ? "
            "WHERE run = ? AND rank = ?",
            [*values, data.run, rank],
        )


def _write_collectives(con: Any, data: RunData) -> None:
    records = []
    for rank, calls in sorted(data.calls.items()):
        compute = data.ranks[rank].occupancy.compute
        hidden = compute.covered([c.start for c in calls], [c.end for c in calls])
        for call, covered in zip(calls, hidden, strict=True):
            call.exposed = call.end - call.start - int(covered)
            records.append(_record(data.run, call, int(covered)))
    insert_rows(con, "collective", records)


def _record(run: str, call: Call, hidden: int) -> dict[str, Any]:
    return {
        "run": run,
        "rank": call.rank,
        "call_id": call.call_id,
        "op": call.op,
        "wire_op": call.wire_op,
        "process_group": call.group,
        "group_size": call.group_size,
        "seq": call.seq,
        "dtype": call.dtype,
        "in_elements": call.in_elements,
        "out_elements": call.out_elements,
        "bytes": call.bytes,
        "peer": call.peer,
        "start_ns": call.start,
        "end_ns": call.end,
        "enqueue_ns": call.enqueue,
        "stream": call.stream,
        "event_id": call.event_id,
        "matched_ranks": call.matched,
        "wait_ns": call.wait,
        "transfer_ns": call.transfer,
        "t_is": call.t_is,
        "last_rank": call.last_rank,
        "step": call.step,
        "phase": call.phase,
        "module": call.module,
        "exposed_ns": call.end - call.start - hidden,
        "hidden_ns": hidden,
        "algbw_gbps": call.algbw,
        "busbw_gbps": call.busbw,
        "fitted_ns": call.fitted,
        "latency_share": call.latency_share,
    }


def _write_breakdowns(con: Any, data: RunData) -> None:
    for rank, one in sorted(data.ranks.items()):
        line = one.line
        if not len(line):
            continue
        # A rank whose calls are all alone cannot tell waiting from transferring.
        transfers = _transfers(data.calls[rank])
        idle = split_idle(line, one.occupancy, one.activity)
        windows = one.occupancy.split([line.start.min()], [line.end.max()])
        _insert_breakdown(con, "run_breakdown", data.run, rank, windows, one, transfers, idle, {})
        steps = one.steps.steps
        if steps:
            windows = one.occupancy.split([s.start for s in steps], [s.end for s in steps])
            extra: dict[str, list[Any]] = {
                "step": [s.number for s in steps],
                "complete": [s.complete for s in steps],
            }
            _insert_breakdown(
                con, "step_breakdown", data.run, rank, windows, one, transfers, idle, extra
            )


def _transfers(calls: list[Call]) -> Intervals | None:
    """When data moved, as far as matching tells; unmatched calls count as moving throughout."""
    if not any(call.t_is == "matched" for call in calls):
        return None
    return Intervals.of(
        [call.start + (call.wait or 0) for call in calls], [call.end for call in calls]
    )


def _insert_breakdown(
    con: Any,
    table: str,
    run: str,
    rank: int,
    windows: Mapping[str, Int64s],
    one: RankData,
    transfers: Intervals | None,
    idle: IdleSplit | None,
    extra: Mapping[str, list[Any]],
) -> None:
    count = len(windows["window_ns"])
    columns: dict[str, Any] = {"run": [run] * count, "rank": [rank] * count, **extra, **windows}
    if table == "run_breakdown":
        low, high = [one.line.start.min()], [one.line.end.max()]
    else:
        low = [s.start for s in one.steps.steps]
        high = [s.end for s in one.steps.steps]
    if idle is not None:
        columns["idle_host_ns"] = idle.host.covered(low, high)
        columns["idle_launch_gap_ns"] = idle.launch_gap.covered(low, high)
        columns["idle_sync_ns"] = idle.sync.covered(low, high)
    if transfers is not None:
        moving = (transfers - one.occupancy.compute).covered(low, high)
        columns["exposed_transfer_ns"] = moving
        columns["exposed_wait_ns"] = windows["exposed_comm_ns"] - moving
    insert(con, table, columns)
