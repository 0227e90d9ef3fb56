"""Test data: a hand-made store and report, clearly not a recording.

The run: four ranks on two hosts, five steps of 100 ms in which rank 2 arrives 20 ms late at the
one all_reduce (40 MB) of the step. Per rank and step, in ms, with everything else zero:

rank 0, 1, 3: compute 50, wait 20, transfer 20, idle 10;   rank 2: compute 70, transfer 20, idle 10
"""

from __future__ import annotations

import json

import pyarrow as pa

from advisor.findings import (
    Confidence,
    Effect,
    Evidence,
    Finding,
    FindingsReport,
    Outcome,
    OutcomeKind,
    RunSummary,
    Severity,
    Table,
    Verdict,
    VerdictKind,
    Window,
)
from advisor.store.store import Store

MS = 1_000_000
EPOCH_NS = 1_700_000_000_000_000_000
RUN = "test-data"
STEP_NS = 100 * MS
ALL_REDUCE_BYTES = 40_000_000
ACTIVITY_COLUMNS = "run, rank, kind, start_ns, end_ns, stream, event_id, launch_ns, step"
STEP_COLUMNS = (
    "run, rank, step, start_ns, end_ns, host_start_ns, host_end_ns, complete, used, source"
)
BREAKDOWN_COLUMNS = (
    "run, rank, step, complete, used, window_ns, compute_ns, exposed_comm_ns, exposed_memory_ns, "
    "other_ns, idle_ns, comm_ns, hidden_comm_ns, exposed_wait_ns, exposed_transfer_ns"
)
COLLECTIVE_COLUMNS = (
    "run, rank, call_id, op, wire_op, process_group, group_size, seq, dtype, in_elements, "
    "out_elements, bytes, peer, start_ns, end_ns, enqueue_ns, stream, event_id, matched_ranks, "
    "wait_ns, transfer_ns, t_is, last_rank, step, phase, module, exposed_ns, hidden_ns, "
    "algbw_gbps, busbw_gbps"
)


def make_store(ranks: int = 4, steps: int = 5, late_rank: int = 2, calls: int = 1) -> Store:
    """The run above with any number of ranks and steps; ``calls`` splits the all_reduce."""
    store = Store.create()
    con = store.con
    con.execute(
        "INSERT INTO run VALUES (?, '2026-01-01T00:00:00Z', '0', NULL, NULL, NULL, NULL)", [RUN]
    )
    con.execute(
        "INSERT INTO process_group VALUES (?, '0', 'default_pg', ?, ?, 'gloo')",
        [RUN, list(range(ranks)), ranks],
    )
    activity: list[tuple[object, ...]] = []
    collective: list[tuple[object, ...]] = []
    step_rows: list[tuple[object, ...]] = []
    breakdown: list[tuple[object, ...]] = []
    for rank in range(ranks):
        host = f"host-{rank // max(ranks // 2, 1)}"
        con.execute(
            "INSERT INTO rank (run, rank, world_size, host, device_name, backend, timeline,"
            " clock_offset_ns, clock_residual_ns, events_read, events_dropped, complete)"
            " VALUES (?, ?, ?, ?, 'CPU', 'gloo', 'host', 0, 30000, 1000, 0, true)",
            [RUN, rank, ranks, host],
        )
        con.execute(
            "INSERT INTO source VALUES"
            " (?, ?, ?, 'kineto', 1000000, 'ab', ?, 1000, 0, '{}', NULL, [])",
            [RUN, rank, f"traces/rank{rank}.json", rank],
        )
        late = rank == late_rank
        parts = {"compute": 70 if late else 50, "wait": 0 if late else 20, "transfer": 20}
        con.execute(
            "INSERT INTO lateness VALUES (?, ?, NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, '{}', ?, ?)",
            [
                RUN, rank, steps * calls, steps * calls if late else 0, 0.001 if late else 1.0,
                20 * MS if late else 0, 20 * MS if late else 0, 19 * MS if late else 0,
                21 * MS if late else 0, late, "slow-compute" if late else None,
                20 * MS if late else 0,
                json.dumps(dict.fromkeys(range(steps), 20 * MS) if late else {}),
            ],
        )  # fmt: skip
        for step in range(steps):
            start = EPOCH_NS + step * STEP_NS
            end = start + STEP_NS
            step_rows.append((RUN, rank, step, start, end, start, end, True, True, "ProfilerStep"))
            exposed = (parts["wait"] + parts["transfer"]) * MS
            breakdown.append((
                RUN, rank, step, True, True, STEP_NS, parts["compute"] * MS, exposed, 0, 0, 10 * MS,
                exposed, 0, parts["wait"] * MS, parts["transfer"] * MS,
            ))  # fmt: skip
            ready = start + (5 + parts["compute"]) * MS
            activity.append((RUN, rank, "compute", start + 5 * MS, ready, 1, None, None, step))
            span = (parts["wait"] + parts["transfer"]) * MS
            activity.append((RUN, rank, "comm", ready, ready + span, 2, None, None, step))
            for call in range(calls):
                # Equal shares of wait and transfer, one call after the other.
                begin = ready + call * span // calls
                stop = ready + (call + 1) * span // calls
                wait = parts["wait"] * MS // calls
                size = ALL_REDUCE_BYTES // calls
                gbps = size / (20 * MS / calls)
                collective.append((
                    RUN, rank, step * calls + call, "all_reduce", "all_reduce", "0", ranks,
                    step * calls + call, "float32", size // 4, size // 4, size, None, begin, stop,
                    begin, 2, None, ranks, wait, stop - begin - wait, "matched", late_rank, step,
                    "backward", f"bucket {call}", stop - begin, 0, gbps,
                    gbps * 2 * (ranks - 1) / ranks,
                ))  # fmt: skip
    for table, columns, rows in (
        ("activity", ACTIVITY_COLUMNS, activity),
        ("collective", COLLECTIVE_COLUMNS, collective),
        ("step", STEP_COLUMNS, step_rows),
        ("step_breakdown", BREAKDOWN_COLUMNS, breakdown),
    ):
        _bulk(store, table, columns, rows)
    con.execute(
        "INSERT INTO run_breakdown SELECT run, rank, sum(window_ns), sum(compute_ns),"
        " sum(exposed_comm_ns), sum(exposed_memory_ns), sum(other_ns), sum(idle_ns), sum(comm_ns),"
        " sum(hidden_comm_ns), sum(exposed_wait_ns), sum(exposed_transfer_ns), NULL, NULL, NULL"
        " FROM step_breakdown GROUP BY run, rank"
    )
    return store


def make_report(*, name: str = "rank 2", ranks: int = 4, late_rank: int = 2) -> FindingsReport:
    """Findings for :func:`make_store`: a straggler and a milder one. ``name`` goes into texts."""
    window = Window(
        start_ns=EPOCH_NS + 50 * MS,
        end_ns=EPOCH_NS + STEP_NS,
        ranks=list(range(min(ranks, 4))),
        step=0,
        culprit_rank=late_rank,
        call_ids=[0],
    )
    straggler = Finding(
        id="straggler-rank-2",
        run=RUN,
        rule="straggler-rank",
        severity=Severity.CRITICAL,
        title=f"{name} arrives last at every all_reduce",
        message=f"{name} computes 70 ms per step where the others need 50 ms; they wait for it.",
        category="balance",
        ranks=[late_rank],
        where=name,
        savings_ns=20 * MS,
        savings_low_ns=19 * MS,
        savings_high_ns=21 * MS,
        savings_share=0.2,
        claims={"wait": 15 * MS},
        confidence=Confidence.REPLAYED,
        assumes="the others stay as they are",
        evidence=Evidence(
            tables=[
                Table(
                    title="Compute per rank",
                    columns=["rank", "compute_ms", "times last"],
                    rows=[[0, 50.0, 0], [1, 50.0, 0], [2, 70.0, 5], [3, 50.0, None]],
                    note="five complete steps",
                )
            ],
            sql="SELECT rank, times_last FROM lateness WHERE systematic",
            window=window,
        ),
        fix=["compare clocks and temperature: nvidia-smi -q -d CLOCK,TEMPERATURE", "swap the host"],
        verify="advisor compare before.duckdb after.duckdb",
        wrong_if=["rank 2 was given more work on purpose"],
        see=["https://pytorch.org/docs/stable/notes/ddp.html"],
        merged=[Effect(rule="exposed-communication")],
    )
    buckets = Finding(
        id="small-buckets-dp",
        run=RUN,
        rule="small-buckets",
        severity=Severity.WARNING,
        title="Gradients travel in buckets too small to fill the link",
        message="The buckets of 1 MB reach a third of the bandwidth of 40 MB.",
        category="volume",
        where="DDP buckets 3-11",
        savings_ns=3 * MS,
        savings_low_ns=1 * MS,
        savings_high_ns=4 * MS,
        confidence=Confidence.MODELLED,
        fix=["Make buckets larger.\nDDP(model, bucket_cap_mb=25)"],
        sets={"bucket_cap_mb": "25"},
    )
    outcomes = [
        Outcome(run=RUN, rule="straggler-rank", outcome=OutcomeKind.FIRED),
        Outcome(run=RUN, rule="small-buckets", outcome=OutcomeKind.FIRED),
        Outcome(run=RUN, rule="slow-ring-link", outcome=OutcomeKind.PASSED),
        Outcome(
            run=RUN,
            rule="socket-transport",
            outcome=OutcomeKind.NOT_APPLICABLE,
            reason="no NCCL log",
            how_to_capture="advisor explain nccl-log",
        ),
        Outcome(run=RUN, rule="broken", outcome=OutcomeKind.ERROR, reason="no such column: x"),
    ]
    return FindingsReport(
        advisor_version="0",
        command="advisor diagnose traces/",
        runs=[summary(ranks)],
        verdict=Verdict(
            kind=VerdictKind.SURE,
            reason="finding",
            severity=Severity.CRITICAL,
            finding=straggler.id,
            title=f"{name} is slow: 20 ms of every 100 ms step (20 %) waits for it.",
            cause="straggler-rank",
            savings_ns=20 * MS,
            why=f"{name} computes 70 ms where its peers need 50 ms, in 5 of 5 steps.",
            next_steps=["check its clocks: nvidia-smi -q -d CLOCK", "advisor open 1"],
        ),
        outcomes=outcomes,
        findings=[straggler, buckets],
    )


def make_healthy_report() -> FindingsReport:
    """Nothing found: what a reader of a healthy run gets."""
    report = make_report()
    return report.model_copy(
        update={
            "findings": [],
            "outcomes": [Outcome(run=RUN, rule="slow-ring-link", outcome=OutcomeKind.PASSED)],
            "verdict": Verdict(
                kind=VerdictKind.HEALTHY,
                title="Nothing to fix: 3 % of the step waits.",
                cause="healthy",
            ),
        }
    )


def summary(ranks: int = 4) -> RunSummary:
    """What was read for the test data."""
    return RunSummary(
        run=RUN,
        ranks_read=ranks,
        world_size=ranks,
        steps_complete=5,
        steps_partial=0,
        step_ns_median=STEP_NS,
        step_source="ProfilerStep",
        events_read=1000 * ranks,
        events_dropped=0,
        inputs=["traces/"],
    )


def _bulk(store: Store, table: str, columns: str, rows: list[tuple[object, ...]]) -> None:
    """Insert rows through Arrow: row by row, 64 ranks would take a minute."""
    names = columns.split(", ")
    block = pa.table({name: [row[index] for row in rows] for index, name in enumerate(names)})
    store.con.register("block", block)
    store.con.execute(f"INSERT INTO {table} BY NAME SELECT * FROM block")
    store.con.unregister("block")


def add_fabric(store: Store, order: list[int]) -> None:
    """Two channels with the ring ``order`` and two chains, as the log reader writes them."""
    for channel in (0, 1):
        ring = {"channel": channel, "ranks": order, "complete": True, "communicator": "world"}
        store.con.execute(
            "INSERT INTO topology VALUES (?, 'ring', NULL, NULL, ?, ?, NULL)",
            [RUN, f"ring {channel}", json.dumps(ring)],
        )
    for place, rank in enumerate(order):
        after, before = order[place + 1 : place + 2], order[:place][-1:]
        trees = [
            {"channel": channel, "children": down, "parent": (up or [None])[0], "root": not up,
             "communicator": "world"}
            for channel, down, up in ((0, after, before), (1, before, after))
        ]  # fmt: skip
        store.con.execute(
            "INSERT INTO topology VALUES (?, 'tree', ?, NULL, 'trees', ?, 'nccl.log:12')",
            [RUN, rank, json.dumps(trees)],
        )


def add_everything(store: Store, ranks: int = 4) -> None:
    """Rows for every other picture, added to :func:`make_store`'s: fits, links, sweep, ring."""
    con = store.con
    con.execute(
        "INSERT INTO alpha_beta VALUES (?, 'trace', 'all_reduce', ?, NULL, 100, 8, 2000, 1500,"
        " 2500, 0.4, 0.38, 0.42, ?, ?, 30000, 1000, 40000000, 0.99)",
        [RUN, ranks, 2.0 * (ranks - 1), 2.0 * (ranks - 1) / ranks],
    )
    con.execute(
        "INSERT INTO bench (run, tool, op, ranks, bytes, busbw_gbps) VALUES"
        " (?, 'nccl-tests', 'all_reduce', ?, 1000000, 3.1)",
        [RUN, ranks],
    )
    for sender in range(ranks):
        receiver = (sender + 1) % ranks
        slow = sender == 2
        con.execute(
            "INSERT INTO link_excess VALUES (?, 'edge', ?, ?, NULL, '0', NULL, 50, ?, 1.9,"
            " 'stagger', ?, ?, ?, ?, '{}')",
            [
                RUN, sender, receiver, 0.49 if slow else 1.88, 18 * MS if slow else 0,
                17 * MS if slow else -1 * MS, 19 * MS if slow else 1 * MS, 1e-5 if slow else 0.7,
            ],
        )  # fmt: skip
    add_fabric(store, list(range(ranks)))
    for value, step_ms, current in ((1, 100, True), (25, 88, False), (100, 86, False)):
        con.execute(
            "INSERT INTO whatif VALUES (?, 'bucket_cap_mb', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, false)",
            [
                RUN, str(value), current, step_ms * MS, (step_ms - 3) * MS, (step_ms + 3) * MS,
                100 * MS, 101 * MS, value == 100, (97 - step_ms) * MS, (103 - step_ms) * MS,
            ],
        )  # fmt: skip
    for trial, settings, step_ms in (
        (0, "{}", 100),
        (1, '{"bucket_cap_mb": 25}', 91),
        (2, '{"NCCL_ALGO": "Tree"}', 104),
        (3, '{"bucket_cap_mb": 5}', 99.5),
    ):
        con.execute(
            "INSERT INTO trial VALUES (?, ?, ?, ?, 'ok', 'measured', 20, ?, ?, NULL)",
            [RUN, trial, settings, trial == 0, int(step_ms * MS), 800_000],
        )
    con.execute("INSERT INTO sweep VALUES (?, ?)", [RUN, json.dumps(_sweep_result())])
    con.execute(
        "INSERT INTO traffic VALUES (?, '0', 'all_reduce', 'backward', 'float32', ?, 1, 40000000,"
        " 60000000, 40000000, 40000000, 20000000, 20000000)",
        [RUN, ranks],
    )
    # Messages of other sizes outside the steps, for the scatter.
    for number, size in enumerate((1_000, 8_000, 64_000, 500_000, 4_000_000)):
        time_ns = 12_000 + size * 0.6
        for rank in range(ranks):
            start = EPOCH_NS - 10 * MS + number * MS
            con.execute(
                "INSERT INTO collective (run, rank, call_id, op, process_group, group_size, bytes,"
                " start_ns, end_ns, matched_ranks, wait_ns, transfer_ns, t_is, algbw_gbps,"
                " busbw_gbps) VALUES (?, ?, ?, 'all_reduce', '0', ?, ?, ?, ?, ?, 0, ?, 'matched',"
                " ?, ?)",
                [
                    RUN, rank, 1_000_000 + number, ranks, size, start, start + int(time_ns), ranks,
                    int(time_ns), size / time_ns, size / time_ns * 1.5,
                ],
            )  # fmt: skip


def _sweep_result() -> dict[str, object]:
    """What a sweep over the trials above would come to, as recommendation.json has it."""
    return {
        "verdict": "set bucket_cap_mb=25: the step is 9.0% shorter",
        "recommended": True,
        "changes": {"bucket_cap_mb": 25},
        "resolution_share": 0.02,
        "not_tried": ["wrap_layers (ddp ignores it)", "7 combinations of the grid"],
        "surrogate": {
            "effects": [
                {"setting": "bucket_cap_mb", "value": "25", "share": -0.06, "trials": 3},
                {"setting": "bucket_cap_mb", "value": "5", "share": 0.01, "trials": 2},
                {"setting": "env.NCCL_ALGO", "value": "'Tree'", "share": 0.05, "trials": 2},
            ],
            "interactions": [
                {"left": "bucket_cap_mb=25", "right": "env.NCCL_ALGO='Tree'", "share": 0.03},
                {"left": "bucket_cap_mb=5", "right": "env.NCCL_ALGO='Tree'", "share": -0.004},
            ],
            "out_of_sample_error": 0.015,
            "trials": 7,
        },
        "frontier": [
            {"settings": name, "step_ns": step * MS, "peak_memory_bytes": memory * 1_000_000,
             "on_frontier": front}
            for name, step, memory, front in (
                ("present settings", 100, 900, True),
                ("bucket_cap_mb=25", 91, 980, True),
                ("NCCL_ALGO=Tree", 104, 910, False),
            )
        ],
    }  # fmt: skip
