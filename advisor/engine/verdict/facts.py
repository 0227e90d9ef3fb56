"""What a verdict rests on, read once: shares of the step, what is missing, what clocks hide."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from advisor.engine.facts import Facts, ranks_not_read
from advisor.engine.notes import recorded_instead
from advisor.engine.partly_read import partly_read_share
from advisor.engine.sandbox import Sandbox
from advisor.engine.verdict.benchmark import Benchmark, read_benchmark
from advisor.engine.verdict.clocks import Clocks, read_clocks
from advisor.engine.verdict.coverage import Coverage, read_coverage
from advisor.engine.verdict.met import strangers
from advisor.findings import Finding, Note
from advisor.store.notes import NOT_RECORDED
from advisor.vocabulary.groups import kind_of_group

LOST = 0.10  # of the step, exposed or idle: not healthy, whether a cause is known or not; of events
_ALONE = (
    "SELECT rank FROM call WHERE coalesce(group_size, 2) > 1 "
    "GROUP BY rank HAVING max(coalesce(matched_ranks, 1)) <= 1 ORDER BY rank"
)
_EMPTY = (
    "SELECT rank FROM rank_step GROUP BY rank "
    "HAVING sum(compute_ns) = 0 AND sum(comm_ns) = 0 ORDER BY rank"
)
_COMMUNICATES = (
    "SELECT 1 AS one FROM collective UNION ALL SELECT 1 FROM rank_step WHERE comm_ns > 0 LIMIT 1"
)
# The operation, and what its groups are for, with most of the time that is exposed.
_MOST_EXPOSED = (
    "SELECT op, description, sum(exposed_all_ns) / nullif(sum(sum(exposed_all_ns)) OVER (), 0) "
    "AS share FROM call LEFT JOIN process_group USING (process_group) "
    "GROUP BY op, description ORDER BY share DESC NULLS LAST LIMIT 1"
)
# Of the only step, what lies before the device's first work.
_LEADING = (
    "SELECT max(g.end_ns - greatest(g.start_ns, s.start_ns)) AS ns "
    "FROM edge_gap g JOIN (FROM step SEMI JOIN used_step USING (step)) s USING (rank) "
    "WHERE g.edge = 'leading' AND g.end_ns > s.start_ns AND g.start_ns < s.end_ns"
)
# Of a trace without steps, what the host did before its device's work, unless that was queued.
_BEFORE = (
    "SELECT max(g.end_ns - g.start_ns) AS ns FROM edge_gap g JOIN step s USING (rank) "
    "WHERE s.source = 'whole-trace' AND g.kind IN ('before-work', 'data-loading') "
    "AND g.end_ns <= s.start_ns"
)
# Idle time of the devices by what their hosts do meanwhile, per step and rank, as a share of the
# step is: the most first.
# A step alone is its host's whole span, so that what lies at its edges idles in it too. Where it
# loads for a tenth of that, its pauses and memory are of the start as well; all of a process's
# first pass is.
_IDLING = (
    "WITH gap AS ("
    "SELECT kind, of_all_ns AS idle_ns, name FROM gap_kind WHERE kind NOT IN ('launch', 'other') "
    "OR (SELECT only_pass FROM first_pass) UNION ALL "
    "SELECT kind, end_ns - start_ns, NULL FROM edge_gap WHERE kind = 'graph-capture' "
    "AND (SELECT steps = 1 FROM facts) UNION ALL "
    "SELECT 'pause', sum(idle_ns) // (SELECT ranks_read FROM facts), NULL "
    "FROM once_gap, first_pass WHERE NOT only_pass HAVING count(*) > 0), "
    "start AS (SELECT any_value(only_pass) AS first, "
    "any_value(steps) = 1 AND sum(idle_ns) FILTER (kind = 'loading') "
    f">= {LOST} * any_value(step_ns) AND bool_or(kind = 'pause') AS cold "
    "FROM gap, facts, first_pass) "
    "SELECT CASE WHEN first OR cold AND kind IN ('loading', 'allocator', 'pause') THEN 'start' "
    "ELSE kind END AS kind, sum(idle_ns)::BIGINT AS idle_ns, "
    "arg_max_null(name, idle_ns) FILTER (first IS NOT TRUE) AS name FROM gap, start "
    "GROUP BY 1 ORDER BY 2 DESC LIMIT 1"
)
# A pause is longer than what moves between steps on a shared machine, as in one-rank-pauses.
_LONGER = 1.3
# ``left_out`` of each rank's steps, its longest, do not count where they are that much longer.
# Of calls whose other end was not read, or not matched, nothing tells transfer and waiting apart:
# they are at most this part of what is exposed (as in exposed-communication).
_MOST_UNMATCHED = 0.1
_SHARES = (
    "WITH own AS (FROM rank_step "
    "QUALIFY row_number() OVER (PARTITION BY rank ORDER BY window_ns DESC, step) > $left_out "
    f"OR window_ns < {_LONGER} * median(window_ns) OVER (PARTITION BY rank)) "
    "SELECT sum(exposed_comm_ns)::DOUBLE / sum(window_ns) AS exposed, "
    "sum(compute_ns)::DOUBLE / sum(window_ns) AS compute, "
    "sum(idle_ns)::DOUBLE / sum(window_ns) AS idle, "
    "coalesce(sum(hidden_comm_ns)::DOUBLE / nullif(sum(comm_ns), 0), 0) AS hidden, "
    "coalesce(bool_and(exposed_wait_ns IS NOT NULL), false) "
    "AND coalesce((SELECT sum(exposed_transfer_ns) FILTER (partly_read) "
    f"<= {_MOST_UNMATCHED} * sum(exposed_transfer_ns) FROM call), true) AS wait_known, "
    "(sum(comm_ns) - coalesce(sum(exposed_wait_ns), 0))::DOUBLE / sum(window_ns) AS moving, "
    "(SELECT coalesce(avg(least(bubble_share, ideal_bubble_share)), 0) FROM pipeline_stage) "
    "AS schedule, "
    "coalesce((SELECT sum(exposed_transfer_ns)::DOUBLE FROM call SEMI JOIN own USING (rank, step) "
    "WHERE process_group IN "
    "(SELECT process_group FROM activation_group) AND coalesce(process_group NOT IN "
    "(SELECT process_group FROM group_host WHERE hosts > 1), true)), 0) "
    "/ sum(window_ns) AS activations "
    "FROM own"
)
_RECURS = 3  # steps, from which on one of them may be left out


# Another machine's network is no change of this job (network-bound offers it).
_SAVES = (
    "SELECT coalesce(max(gain_ns), 0)::DOUBLE AS ns FROM whatif_gain "
    "WHERE gain_low_ns > (SELECT noise_ns FROM facts) AND setting <> 'restore-network' "
    "AND NOT is_current AND NOT extrapolates AND NOT unparted"
)
# What 8-way tensor parallelism inside a host pays by design: it runs at 77 % of eight times one GPU
# (Shoeybi et al., Megatron-LM, 2019, figure 5). Of more some is lost.
_TENSOR_PARALLEL = 0.23
_BACKWARD = 2 / 3  # of compute: twice the FLOPs of the forward pass
_LOSSES = {
    "file-not-read",
    "file-lost-records",
    "file-partly-read",
    "ranks-cut",
    "events-lost",
    "silent-output",
    "inspected",
}


class Shares(NamedTuple):
    """Parts of the mean step of all ranks, from 0 to 1; ``hidden`` is of communication.

    ``moving`` is communication without exposed waiting, hidden or not. ``schedule`` is what a
    pipeline's schedule leaves idle by design: exposed waiting, or idle. ``activations``: exposed
    sums of activations (tensor parallelism) inside hosts, which what follows needs.
    """

    exposed: float
    compute: float
    idle: float
    hidden: float
    wait_known: bool
    moving: float = 0.0
    schedule: float = 0.0
    activations: float = 0.0

    def beside(self, most_exposed: str) -> float:
        """The compute that communication can run under: of gradients the backward pass."""
        of_gradients = most_exposed.endswith(("all_reduce", "reduce_scatter"))
        return self.compute * (_BACKWARD if of_gradients else 1.0)

    @property
    def lost(self) -> float:
        """The larger of what is exposed and idle, as far as a schedule does not explain both, and
        without what tensor parallelism has by design."""
        exposed = self.exposed - min(self.activations, _TENSOR_PARALLEL)
        return min(max(exposed, self.idle), exposed + self.idle - self.schedule)


@dataclass(frozen=True)
class Situation:
    """Everything that the table looks at. ``shares`` is None where no step was recorded whole."""

    facts: Facts
    findings: Sequence[Finding]
    shares: Shares | None
    steps_seen: int
    events: int
    traced_ranks: int
    missing_ranks: Sequence[int]
    cut_ranks: Sequence[int]
    alone_ranks: Sequence[int]
    empty_ranks: Sequence[int]
    communicates: bool
    groups_known: bool
    partly_read: float
    carried: bool
    lacks_kernels: bool
    losses: Sequence[str]
    clocks: Clocks | None
    coverage: Coverage | None
    benchmark: Benchmark | None
    formats: frozenset[str]
    blind_ranks: Sequence[int] = ()
    """Those that were read, without events of their device."""
    lost: float = 0.0
    """Share of the ranks' events that are lost or damaged."""
    leading_ns: int = 0
    """Of a single step, what lies before the device's first work."""
    before_ns: int = 0
    """Before a trace that counts as one step, what its host did that may be of each."""
    strangers: Sequence[int] = ()
    """Ranks whose calls cannot have met those of the others."""
    idling: Mapping[str, Any] = field(default_factory=dict)
    """What hosts do while most of the idle time passes: kind, idle_ns, name; empty if unknown."""
    replay_saves_ns: float = 0.0
    """The most that one replayed change gives whose interval leaves out zero, per step."""
    most_exposed: str = ""
    """The calls with over half of what is exposed, 'data-parallel all_reduce'; '' without any."""
    instead: Mapping[str, int] = field(default_factory=dict)
    """What was recorded where nothing of a device was, by kind; empty where something was."""
    device_used: bool = False
    """What was recorded ran on a device of which no event is."""

    @property
    def only_blind(self) -> list[int]:
        """The missing ranks, where all of them were read and lack events of their device alone."""
        missing = list(self.missing_ranks)
        return missing if {*missing} <= {*self.blind_ranks} else []

    @property
    def step_ns(self) -> int:
        """The run's step time; 0 without steps."""
        return self.facts.step_ns or 0


def read_situation(
    findings: Sequence[Finding], sandbox: Sandbox, facts: Facts, notes: Sequence[Note]
) -> Situation:
    """Read the facts of the run in ``sandbox``."""
    shares = _shares(sandbox, facts)
    whole = {row["rank"] for row in sandbox.records("SELECT rank FROM whole_rank")}
    read = [row["rank"] for row in sandbox.records("SELECT rank FROM rank ORDER BY rank")]
    blind = _ranks(sandbox, "SELECT rank FROM blind_rank")
    (counted,) = sandbox.records(
        "SELECT coalesce(sum(events_read), 0)::BIGINT AS events, "
        "count(*) FILTER (events_read > 0) AS ranks, "
        "coalesce(sum(events_dropped) FILTER (events_read > 0), 0)::BIGINT AS dropped FROM rank"
    )
    partly_read, carried = partly_read_share(sandbox, facts)
    return Situation(
        facts=facts,
        findings=findings,
        shares=shares,
        steps_seen=_count(sandbox, "SELECT count(*) AS n FROM step"),
        events=int(counted["events"]),
        traced_ranks=int(counted["ranks"]),
        lost=counted["dropped"] / max(counted["events"] + counted["dropped"], 1),
        blind_ranks=blind,
        missing_ranks=[] if facts.all_ranks else ranks_not_read(sandbox, facts),
        cut_ranks=[rank for rank in read if whole and rank not in whole and rank not in blind],
        alone_ranks=[] if facts.all_ranks else _ranks(sandbox, _ALONE),
        empty_ranks=_ranks(sandbox, _EMPTY),
        communicates=bool(sandbox.records(_COMMUNICATES)),
        groups_known=not any(note.code == "groups-not-recorded" for note in notes),
        partly_read=partly_read,
        carried=carried,
        leading_ns=_longest(sandbox, _LEADING) if facts.steps == 1 else 0,
        before_ns=_longest(sandbox, _BEFORE) if facts.steps == 1 else 0,
        lacks_kernels=any(NOT_RECORDED in note.values.get("codes", ()) for note in notes),
        losses=[
            note.text
            for note in sorted(notes, key=lambda note: note.code != "events-lost")  # says why
            if note.code in _LOSSES
        ],
        clocks=read_clocks(findings, sandbox, facts) if shares is not None else None,
        coverage=read_coverage(sandbox),
        benchmark=read_benchmark(sandbox) if shares is None else None,
        formats=sandbox.formats,
        strangers=strangers(sandbox),
        idling=next(iter(sandbox.records(_IDLING, of=("host_gap", "edge_gap"))), {}),
        replay_saves_ns=float(sandbox.records(_SAVES)[0]["ns"]) if shares is not None else 0.0,
        most_exposed=_most_exposed(sandbox) if shares is not None else "",
        instead=recorded_instead(sandbox) if not blind and _is_blind(sandbox) else {},
        device_used=sandbox.holds("rank", "json_exists(metadata, '$.device_used')", {}),
    )


def _shares(sandbox: Sandbox, facts: Facts) -> Shares | None:
    """Those of the mean step; without each rank's longest where a pause in that alone makes much of
    it lost: what came once does not tell how often it comes."""
    if not facts.steps or not facts.step_ns:
        return None
    of_all = _mean_shares(sandbox, left_out=0)
    if of_all is None or of_all.lost < LOST or facts.steps < _RECURS:
        return of_all
    usual = _mean_shares(sandbox, left_out=1)
    return usual if usual is not None and usual.lost < LOST else of_all


def _mean_shares(sandbox: Sandbox, *, left_out: int) -> Shares | None:
    (row,) = sandbox.records(_SHARES, {"left_out": left_out})
    return None if row["exposed"] is None else Shares(**row)


def _most_exposed(sandbox: Sandbox) -> str:
    for row in sandbox.records(_MOST_EXPOSED):
        if row["op"] != "unknown" and (row["share"] or 0) > 0.5:
            return f"{kind_of_group(row['description'])} {row['op']}".strip()
    return ""


def _longest(sandbox: Sandbox, query: str) -> int:
    (row,) = sandbox.records(query)
    return int(row["ns"] or 0)


def _is_blind(sandbox: Sandbox) -> bool:
    """Ranks without device events, whose peers have none either."""
    return bool(_count(sandbox, "SELECT count(*) AS n FROM without_device"))


def _ranks(sandbox: Sandbox, query: str) -> list[int]:
    return [int(row["rank"]) for row in sandbox.records(query)]


def _count(sandbox: Sandbox, query: str) -> int:
    (row,) = sandbox.records(query)
    found: Any = row["n"]
    return int(found)
