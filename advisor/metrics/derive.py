"""Rebuild all derived tables of a store, run by run."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from advisor.metrics.collectives.call import when_moving
from advisor.metrics.collectives.gradients import bucket_rows, sync_rows
from advisor.metrics.collectives.groups import LISTED_GROUPS, name_apart
from advisor.metrics.collectives.limits import impossible_bandwidths
from advisor.metrics.collectives.redundant import REDUNDANT, may_be_redundant
from advisor.metrics.collectives.summaries import (
    EXPERT_BALANCE,
    EXPERTS_BY_WORK,
    PARAMETER_COPIES,
    TRAFFIC,
)
from advisor.metrics.host.avoidable import avoidable_rows
from advisor.metrics.host.copies import copy_rows
from advisor.metrics.host.edges import edge_rows
from advisor.metrics.host.gaps import (
    NAME_AS_ONE,
    NAME_LONG_STEPS,
    NAME_OFFLOADED,
    NAME_PAUSES,
    NAME_READS,
    PAGES,
    gap_rows,
    has_long_steps,
    may_be_named,
)
from advisor.metrics.host.lead import host_pace
from advisor.metrics.host.overlap import beside_transfers, overlap_row
from advisor.metrics.host.queue import queue_row, stream_waits
from advisor.metrics.lateness.hosts import places
from advisor.metrics.lateness.rows import Ranks, lateness_rows
from advisor.metrics.lateness.work import compare_work
from advisor.metrics.links.attribution import link_rows
from advisor.metrics.links.cost import Inputs, homes
from advisor.metrics.links.probes import USE, benchmark_fits, read_probe
from advisor.metrics.links.stalls import stall_rows
from advisor.metrics.load import RunData, load_run
from advisor.metrics.models.bench_curves import curve_rows, keep_machine
from advisor.metrics.models.critical_path import critical_path_rows
from advisor.metrics.models.fits import fit_record
from advisor.metrics.models.pipeline import pipeline_rows
from advisor.metrics.rings.from_log import logged_rings, ring_orders
from advisor.metrics.timeline.content import content_rows
from advisor.metrics.write import (
    write_breakdowns,
    write_clocks,
    write_collectives,
    write_groups,
    write_ranks,
)
from advisor.store.columns import insert_rows
from advisor.store.schema import analysed_tables
from advisor.store.store import Store
from advisor.vocabulary.phases import announce


def derive(store: Store, *, hardware: str | None = None) -> None:
    """(Re)build the derived tables of every run in the store.

    ``hardware`` names the machine that benchmarks ran on. Raises AdvisorError for an unknown one.
    """
    con = store.con
    if store.may_hold_results:
        con.execute("; ".join(f"DELETE FROM {table}" for table in analysed_tables()))
    store.may_hold_results = True
    for (run,) in con.execute("SELECT run FROM run ORDER BY run").fetchall():
        if hardware is not None:
            keep_machine(con, run, hardware)
        _derive_run(con, run)


def _derive_run(con: Any, run: str) -> None:
    content = content_rows(con, run)
    insert_rows(con, "rank_content", content)
    con.execute(LISTED_GROUPS, [run])
    name_apart(con, run)
    data = load_run(con, run)
    announce("tables of calls and steps")
    write_ranks(con, data)
    write_clocks(con, data)
    insert_rows(con, "contradiction", impossible_bandwidths(con, run, data.calls))
    write_groups(con, data)
    write_collectives(con, data)
    write_breakdowns(con, data)
    announce("late ranks")
    slowdowns = [
        row
        for rank, one in data.ranks.items()
        if (row := overlap_row(data.events, one.line, one.occupancy, data.calls[rank], one.steps))
    ]
    insert_rows(con, "overlap_slowdown", slowdowns)
    of_ranks = _lateness_input(con, data, content, slowdowns)
    insert_rows(con, "lateness", lateness_rows(run, data.matched.columns, of_ranks))
    _write_summaries(con, data)
    announce("critical path")
    insert_rows(
        con,
        "critical_path",
        critical_path_rows(
            con,
            run,
            data.calls,
            {rank: one.line for rank, one in data.ranks.items()},
            {rank: one.occupancy for rank, one in data.ranks.items()},
            {rank: one.steps for rank, one in data.ranks.items()},
            data.clocks,
        ),
    )
    announce("links")
    of_links = link_input(con, data)
    home, probe = homes(of_links), read_probe(con, run)
    insert_rows(con, "link_excess", link_rows(of_links, probe))
    insert_rows(con, "link_excess", stall_rows(of_links, home))
    con.execute("DELETE FROM topology WHERE run = ? AND kind = ?", [run, USE])
    use = probe.use_row(run, home) if probe is not None else None
    insert_rows(con, "topology", [use] if use else [])
    own_fits = [fit_record(run, kind, found) for kind, found in data.fits.items()]
    insert_rows(con, "alpha_beta", own_fits + benchmark_fits(con, run))
    insert_rows(con, "bench_curve", curve_rows(con, run))
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


def _lateness_input(
    con: Any,
    data: RunData,
    content: Sequence[Mapping[str, Any]],
    slowdowns: Sequence[Mapping[str, Any]],
) -> Ranks:
    known: dict[tuple[int, ...], Any] = {}
    moving = {rank: when_moving(data.calls[rank]) for rank in data.ranks}
    occupancy = {rank: one.occupancy for rank, one in data.ranks.items()}
    return Ranks(
        lines={rank: one.line for rank, one in data.ranks.items()},
        occupancy=occupancy,
        steps={rank: one.steps for rank, one in data.ranks.items()},
        clocks=data.clocks,
        loading={rank: one.activity.union("data-loading") for rank, one in data.ranks.items()},
        paces={
            rank: pace
            for rank, one in data.ranks.items()
            if (pace := host_pace(one.line, one.steps, one.gaps, data.calls[rank])) is not None
        },
        launches={own["rank"]: own["launch_ns"] for own in content if own["launch_ns"]},
        compare=lambda rank, peers, needed: compare_work(con, data.run, rank, peers, known, needed),
        hosts={r: one.info.host for r, one in data.ranks.items() if one.info.host is not None},
        places=places(data.groups.values()),
        recorded={
            own["rank"]: own["cpu_ops"] / len(data.ranks[own["rank"]].steps.steps)
            for own in content
            if own["cpu_ops"] and own["rank"] in data.ranks and data.ranks[own["rank"]].steps.steps
        },
        moving=moving,
        beside=beside_transfers(slowdowns, occupancy, moving),
    )


def link_input(con: Any, data: RunData) -> Inputs:
    """What the attribution of slow links needs of a run."""
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
        gloo=data.gloo,
        rings=logged_rings(con, data.run),
        ring_orders=ring_orders(con, data.run),
        devices=dict(
            con.execute(
                "SELECT rank, device_name FROM rank "
                "WHERE run = ? AND device_name IS NOT NULL AND timeline = 'device'",
                [data.run],
            ).fetchall()
        ),
        ring_ends=data.ring_ends,
    )


def _write_summaries(con: Any, data: RunData) -> None:
    # One statement per table, not per table and rank: small ones cost the database more to plan
    # than to run.
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for number, (rank, one) in enumerate(sorted(data.ranks.items()), 1):
        announce("gaps and copies of ranks", number, len(data.ranks))
        own = data.calls[rank]
        rows["param_bucket"] += bucket_rows(data.run, rank, own, one.spans)
        spans = {
            s.number: (s.start, s.end)
            if s.host_start is None
            else (s.host_start, s.host_end or s.end)
            for s in one.steps.steps
        }
        rows["host_gap"] += gap_rows(
            data.run, one.line, one.occupancy, one.steps, one.activity, one.gaps
        )
        rows["memory_copy"] += copy_rows(data.events, one.line, one.occupancy, one.steps)
        rows["edge_gap"] += edge_rows(data.events, one.line, one.steps, one.activity)
        rows["avoidable_compute"] += avoidable_rows(
            data.events, one.line, one.spans, one.steps, one.activity_step
        )
        queue = queue_row(data.run, one.line, stream_waits(data.events, rank))
        rows["device_queue"] += [queue] if queue is not None else []
        rows["gradient_sync"] += sync_rows(data.run, rank, own, one.spans, spans)
    for table, records in rows.items():
        insert_rows(con, table, records)
    if any(map(may_be_named, rows["host_gap"])):
        for statement in NAME_PAUSES:
            con.execute(statement, {"run": data.run})
    if any(row["kind"] == "pause" for row in rows["host_gap"]):
        con.execute(NAME_AS_ONE, {"run": data.run})
    if any(row["kind"] == "synchronisation" for row in rows["host_gap"]):
        con.execute(NAME_READS, {"run": data.run})
        con.execute(NAME_OFFLOADED, {"run": data.run})
    if any(has_long_steps(one.steps) for one in data.ranks.values()):
        con.execute(NAME_LONG_STEPS, {"run": data.run})
    if any(row["kind"] == "other" for row in rows["host_gap"]):
        con.execute(PAGES, {"run": data.run})
    operations = {call.op for calls in data.calls.values() for call in calls}
    if operations:
        con.execute(TRAFFIC, [data.run])
    if any(may_be_redundant(call.op, call.bytes) for own in data.calls.values() for call in own):
        con.execute(REDUNDANT, [data.run])
    if "all_gather" in operations:
        con.execute(PARAMETER_COPIES, [data.run])
    if "all_to_all" in operations:
        con.execute(EXPERT_BALANCE, [data.run])
        con.execute(EXPERTS_BY_WORK, [data.run])
    compute = {rank: one.occupancy.compute for rank, one in data.ranks.items()}
    insert_rows(con, "pipeline_stage", pipeline_rows(con, data.run, data.calls, compute))
