"""What a reader must know of the inputs and the steps, as codes with values; words come last."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from advisor.engine.facts import Facts, ranks_not_read
from advisor.engine.sandbox import Sandbox
from advisor.findings import Finding, Note, Verdict
from advisor.messages import NOTES, say
from advisor.store import Store
from advisor.store.notes import OTHER_FORMAT, PARTLY_READ, lost_by_whomever

WHOLE_TRACE = "whole-trace"
"""Of ``RunSummary.step_source``: no steps are marked."""
_UNREAD = {"refused", "unreadable"}
# Recordings of ranks, with steps: the rows of the ranks say what they lost, where they know whose.
_TOLD_BY_RANK = {"kineto", "op-table", "nsys"}
COVERED = 0.8
"""Share of the devices' time in kernels that must be understood before a cause is sure."""
_PROFILER_SHARE = 0.1  # of a recorded step: less is within what steps differ by on a shared machine
_SHARE = 0.01  # of a rank's communication: less in no step changes no figure
_BY_SOURCE = {
    WHOLE_TRACE: "steps-whole-trace",
    "collective-period": "steps-by-period",
    "optimizer-step": "steps-by-optimizer",
}


def note(code: str, **values: Any) -> Note:
    """A note with its words. Raises KeyError for a code that the catalogue lacks."""
    return Note(code=code, values=values, text=say(NOTES, code, values))


def of_inputs(store: Store, sandbox: Sandbox, facts: Facts) -> list[Note]:
    """What is known of the files, the ranks, the steps that are left out and the clocks."""
    return [
        *_of_files(store, sandbox.run),
        *_of_steps(sandbox),
        *_of_ranks(sandbox, facts),
        *_of_groups(sandbox),
        *_of_probes(sandbox),
        *_of_benchmarks(sandbox),
        *_of_clocks(facts),
        *_of_outputs(sandbox),
    ]


def recorded_instead(sandbox: Sandbox) -> dict[str, int]:
    """What ranks without device events recorded, by kind."""
    (row,) = sandbox.records(
        'SELECT sum(cpu_ops)::BIGINT AS operators, sum(runtime_calls)::BIGINT AS "runtime calls", '
        'sum(annotations)::BIGINT AS annotations, sum(python_calls)::BIGINT AS "Python functions" '
        "FROM without_device"
    )
    return {kind: int(count) for kind, count in row.items() if count}


def _blind_ranks(sandbox: Sandbox) -> list[int]:
    return [row["rank"] for row in sandbox.records("SELECT rank FROM without_device ORDER BY rank")]


def _of_content(sandbox: Sandbox) -> list[Note]:
    """What was recorded at all: nothing of a device, kernels that nobody knows, inference."""
    found = []
    blind, recorded = _blind_ranks(sandbox), recorded_instead(sandbox)
    if blind and recorded:  # else a log told of calls alone
        found.append(note("no-device-events", ranks=blind, recorded=recorded))
    (cover,) = sandbox.records("SELECT share, unknown_kernels FROM coverage")
    if cover["share"] is not None and cover["share"] < COVERED:
        kernels = json.loads(cover["unknown_kernels"] or "[]")
        found.append(note("kernels-not-known", share=float(cover["share"]), kernels=kernels[:3]))
    found += [
        note("impossible-bandwidth", **row)
        for row in sandbox.records(
            "SELECT op, calls, said_gbps, limit_gbps FROM contradiction "
            "ORDER BY calls DESC LIMIT 1",
            of=["contradiction"],
        )
    ]
    found += [
        note("thread-lost", **row)
        for row in sandbox.records(
            "SELECT rank, count(*) AS steps, min(step) AS first, max(step) AS last FROM step "
            "WHERE left_out = 'lost-thread' GROUP BY rank ORDER BY steps DESC, rank LIMIT 1"
        )
    ]
    edges = sandbox.records(
        "SELECT g.rank, edge, kind, g.end_ns - g.start_ns AS gap_ns, "
        "coalesce(sum(least(s.end_ns, g.end_ns) - greatest(s.start_ns, g.start_ns)) "
        "FILTER (s.rank IS NOT NULL), 0) "  # where no step meets it, least() is the gap's end
        ">= 0.01 * (SELECT step_ns FROM facts) AS counted "
        "FROM edge_gap g LEFT JOIN step s ON s.rank = g.rank AND s.used "
        "AND s.start_ns < g.end_ns AND s.end_ns > g.start_ns "
        # While the profiler stops the device works off its queue, or the recording is over.
        "WHERE kind <> 'profiler-stop' GROUP BY 1, 2, 3, 4 "
        "QUALIFY row_number() OVER (PARTITION BY edge ORDER BY gap_ns DESC, g.rank) = 1 ORDER BY 2",
        of=["edge_gap"],
    )
    found += [
        note(
            "edge-gap",
            rank=row["rank"],
            edge=row["edge"],
            kind=row["kind"],
            gap_ns=int(row["gap_ns"]),
            counted=row["counted"],
        )
        for row in edges
    ]
    engines = sandbox.records(
        "SELECT DISTINCT engine FROM rank_content WHERE purpose = 'inference'"
    )
    return found + [note("inference", engine=row["engine"]) for row in engines]


def beside_the_verdict(sandbox: Sandbox, facts: Facts, source: str) -> list[Note]:
    """What changes how every figure is read: where steps come from unless the profiler marked
    them, what the profiler adds to them, what communication is in none, whose pause made a step too
    long to count, which ranks are missing, what a probe is not used for."""
    found = _of_content(sandbox)
    if source in _BY_SOURCE:
        values = {"steps": facts.steps, "step_ns": facts.step_ns, "purpose": facts.purpose}
        found.append(note(_BY_SOURCE[source], **values))
    if facts.own_share < 1 - _PROFILER_SHARE:
        before_ns = round(facts.own_share * (facts.step_ns or 0))
        found.append(note("profiler-costs", before_ns=before_ns, step_ns=facts.step_ns))
    found += _outside(sandbox)
    found += [odd for odd in _of_odd_steps(sandbox) if odd.values["pause_ns"]]
    if facts.steps:
        found += _not_given(sandbox, facts, "ranks-not-read")
    return [*found, *_of_probes(sandbox)]


def of_probed_links(findings: Sequence[Finding], verdict: Verdict) -> list[Note]:
    """What a probe says against the recording and the verdict does not.

    ``findings`` are all of a run's, also those that count as effects of others.
    """
    against = [item for item in findings if item.evidence.facts.get("probe") in ("denies", "names")]
    named = verdict.values.get("probe_names") if verdict.reason == "probe-denies" else None
    return [
        note("probe", words=item.title.rstrip("."))
        for item in against
        if item.id != verdict.finding
        and not (named and str(item.evidence.facts.get("place_words")) in named)
    ]


def _of_files(store: Store, run: str) -> list[Note]:
    of_ranks = Counter[str]()
    ranks = store.con.execute("SELECT drop_reasons FROM rank WHERE run = ?", [run]).fetchall()
    for (reasons,) in ranks:
        for reason, count in _counts(reasons).items():
            of_ranks[lost_by_whomever(reason)] += count
    rows = store.con.execute(
        "SELECT path, format, drop_reasons, note, codes FROM source WHERE run = ? "
        "ORDER BY source_id",
        [run],
    ).fetchall()
    return [found for row in rows if (found := _of_file(of_ranks, *row)) is not None]


def _of_file(
    of_ranks: Counter[str], path: str, form: str, reasons: str | None, words: str | None, codes: Any
) -> Note | None:
    """``of_ranks`` is what rows of ranks say is lost; what it says of this file goes from it."""
    lost, codes = Counter(_counts(reasons)), codes or []
    refused = form == "unknown" and words is not None and OTHER_FORMAT not in codes
    if refused or _UNREAD & set(lost):
        return note("file-not-read", path=path, reason=words)
    if form in _TOLD_BY_RANK:
        only_here = lost - of_ranks
        of_ranks.subtract(lost - only_here)
        lost = only_here
    if lost.total():
        return note("file-lost-records", path=path, lost=dict(lost), words=words or "")
    if not words:
        return None
    code = {OTHER_FORMAT: "file-of-other-format", PARTLY_READ: "file-partly-read"}
    found = next((code[name] for name in codes if name in code), "file")
    return note(found, path=path, words=words, codes=codes)


def _of_steps(sandbox: Sandbox) -> list[Note]:
    warm_up = [row["step"] for row in sandbox.records("SELECT step FROM warm_up_step ORDER BY 1")]
    return [*([note("warm-up", steps=warm_up)] if warm_up else []), *_of_odd_steps(sandbox)]


def _of_odd_steps(sandbox: Sandbox) -> list[Note]:
    # A pause at the end of a rank's step makes the next one long on the ranks that wait for it.
    odd = sandbox.records(
        "SELECT list(step ORDER BY step) AS steps, max(times) AS times, ranks, pause_ns, name "
        "FROM odd_step LEFT JOIN odd_pause USING (step) GROUP BY ranks, pause_ns, name "
        "ORDER BY steps LIMIT 3",
        of=["odd_step"],
    )
    return [note("odd-step", **{**row, "times": float(row["times"])}) for row in odd]


def _not_given(sandbox: Sandbox, facts: Facts, code: str) -> list[Note]:
    """Ranks whose files were not read; without device events is a note of its own."""
    blind = _blind_ranks(sandbox)
    missing = [rank for rank in ranks_not_read(sandbox, facts) if rank not in blind]
    if not missing:
        return []
    given = (facts.world_size or 0) - len(missing)
    return [note(code, ranks_read=given, world_size=facts.world_size, missing=missing)]


def _of_ranks(sandbox: Sandbox, facts: Facts) -> list[Note]:
    found = _not_given(sandbox, facts, "ranks-missing")
    cut = [row["rank"] for row in sandbox.records(
        "SELECT rank FROM rank WHERE complete = false ORDER BY rank"
    )]  # fmt: skip
    if cut:
        found.append(note("ranks-cut", ranks=cut))
    lost = sandbox.records(
        "SELECT rank, drop_reasons FROM rank WHERE events_dropped > 0 ORDER BY rank LIMIT 8"
    )
    return found + [
        note("events-lost", rank=row["rank"], lost=_counts(row["drop_reasons"])) for row in lost
    ]


def _of_groups(sandbox: Sandbox) -> list[Note]:
    """Calls from before the recording have no group in any trace, and are of no step."""
    unknown = sandbox.records(
        "SELECT 1 AS one FROM collective WHERE starts_with(process_group, 'not recorded') "
        "AND (step IS NOT NULL OR NOT EXISTS (FROM collective WHERE step IS NOT NULL)) LIMIT 1"
    )
    return [note("groups-not-recorded")] if unknown else []


def _of_probes(sandbox: Sandbox) -> list[Note]:
    """Of a probe that was given along: of other hosts, assumed, few."""
    rows = sandbox.records(
        "SELECT value FROM topology WHERE kind = 'probe-use' AND value IS NOT NULL"
    )
    return [note("probe", words=str(row["value"])) for row in rows]


def _of_outputs(sandbox: Sandbox) -> list[Note]:
    """Outputs of jobs that tell of nothing that is judged."""
    (row,) = sandbox.records(
        "SELECT sum(value::BIGINT) AS lines, bool_or(name = 'silent-nccl') AS of_nccl "
        "FROM topology WHERE kind = 'output' AND starts_with(name, 'silent')"
    )
    if not row["lines"]:
        return []
    return [note("silent-output", lines=int(row["lines"]), of_nccl=bool(row["of_nccl"]))]


def _of_benchmarks(sandbox: Sandbox) -> list[Note]:
    """Tables that no data sheet is held against, as nothing names what they ran on."""
    tables = sandbox.records(
        "SELECT count(*) FILTER (limit_gbps IS NULL) AS tables, "
        "coalesce(bool_or(device IS NOT NULL) FILTER (limit_gbps IS NULL), false) AS gpus_known, "
        "coalesce(bool_and(len(hosts) > 1) FILTER (limit_gbps IS NULL), false) AS across "
        "FROM bench_curve WHERE tool NOT IN ('inspector', 'probe') "
        "AND NOT EXISTS (SELECT 1 FROM topology WHERE kind = 'machine')",
        of=["bench_curve"],
    )
    notes = [note("benchmark-hardware", **row) for row in tables if row["tables"]]
    # Without a data sheet no rule judges it: what it reaches is said all the same.
    best = sandbox.records(
        "SELECT op, ranks, len(hosts) AS hosts, best_gbps, best_bytes, source FROM bench_curve "
        "WHERE tool = 'inspector' AND limit_gbps IS NULL "
        "QUALIFY row_number() OVER (PARTITION BY op ORDER BY best_gbps DESC, ranks, source) = 1 "
        "ORDER BY op <> 'all_reduce', best_gbps DESC LIMIT 1",
        of=["bench_curve"],
    )
    return notes + [note("inspected", **one) for one in best]


def _of_clocks(facts: Facts) -> list[Note]:
    fitted = facts.residual_ns and facts.ranks_read > 1
    return [note("clock-fit", residual_ns=facts.residual_ns)] if fitted else []


def _outside(sandbox: Sandbox) -> list[Note]:
    """Communication outside the windows of all steps, on the rank where it is most."""
    rows = sandbox.records(
        "SELECT r.rank, r.comm_ns AS all_ns, r.comm_ns - s.comm_ns AS outside_ns, "
        "(SELECT count(*) FROM collective c WHERE c.rank = r.rank) AS calls, "
        "(SELECT count(*) FROM collective c WHERE c.rank = r.rank AND c.step IS NULL) AS stray "
        "FROM run_breakdown r JOIN "
        "(SELECT rank, sum(comm_ns) AS comm_ns FROM step_breakdown GROUP BY rank) s USING (rank) "
        f"WHERE r.comm_ns - s.comm_ns > {_SHARE} * r.comm_ns "
        "ORDER BY outside_ns DESC, rank LIMIT 1",
        of=["run_breakdown"],
    )
    return [
        note(
            "outside-steps",
            rank=row["rank"],
            outside_ns=int(row["outside_ns"]),
            share=float(row["outside_ns"] / row["all_ns"]),
            calls=row["calls"],
            stray_calls=row["stray"],
        )
        for row in rows
    ]


def _counts(text: str | None) -> dict[str, int]:
    reasons: Any = json.loads(text) if text else {}
    return reasons if isinstance(reasons, dict) else {}
