"""The ledger of claims: which nanoseconds of which calls or idling a finding says it saves.

Findings whose claims lie on the same time are about the same loss, so that what one of them covers
of another says which is merged into which, with no rule naming another. What is said of each in the
end (settlement.py) comes from the one ledger of the step.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.engine.rule import Rule
from advisor.engine.sandbox import Sandbox

_SELECT = {
    "transfer": "SELECT rank, step, call_id AS span, exposed_transfer_ns AS ns FROM call",
    "wait": "SELECT rank, step, call_id AS span, exposed_wait_ns AS ns FROM waiting_call",
    "idle": "SELECT rank, step, start_ns AS span, idle_ns AS ns "
    "FROM (FROM host_gap SEMI JOIN used_step USING (step))",
    "queued": "SELECT rank, step, step AS span, idle_launch_gap_ns AS ns FROM rank_step",
    "compute": "SELECT rank, step, step AS span, compute_ns AS ns FROM rank_step",
    "memory": "SELECT rank, step, step || direction AS span, exposed_ns AS ns "
    "FROM (FROM memory_copy SEMI JOIN used_step USING (step))",
    # What has no time per step: a setting counts once, and a group of a job that stands still.
    "setting": "SELECT 0 AS rank, 0 AS step, name AS span, 1 AS ns "
    "FROM (SELECT DISTINCT name FROM setting)",
    "hang": "SELECT rank, 0 AS step, process_group AS span, 1 AS ns FROM flight_progress",
}
# A finding is an effect of what takes away this part of the time it claims.
COVERED = 0.5
TIMES = ("transfer", "wait", "idle", "queued", "compute", "memory")
OF_CALLS = ("transfer", "wait")
_PARTS = {"exposed": ("transfer", "wait")}


_NONE: NDArray[np.int64] = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Spans:
    """Of each span of a ledger its rank, its step, the kind of its time (a place in TIMES, -1 for
    what is no time) and the call that it is a part of (-1 where it is none)."""

    rank: NDArray[np.int64] = field(default_factory=lambda: _NONE)
    step: NDArray[np.int64] = field(default_factory=lambda: _NONE)
    kind: NDArray[np.int64] = field(default_factory=lambda: _NONE)
    call: NDArray[np.int64] = field(default_factory=lambda: _NONE)


@dataclass(frozen=True)
class Ledger:
    """Of each span, by ``key`` (ascending, no two alike), the finding claims ``part`` of ``ns``."""

    key: NDArray[np.uint64]
    ns: NDArray[np.float64]
    part: NDArray[np.float64]
    spans: Spans = field(default_factory=Spans)
    """Where they lie; empty where they are no time of a step."""
    ranks: frozenset[int] = frozenset()
    """Whose time is claimed."""

    def per_step(self, steps: int, ranks: int) -> dict[str, int]:
        """What is claimed of each kind of time, ns per step: mean over the ranks that were read."""
        return by_kind(self.spans, self.ns * self.part, max(steps * ranks, 1))

    @cached_property
    def claimed_ns(self) -> float:
        """All that is claimed, over all ranks and used steps."""
        return float((self.ns * self.part).sum())


def ledger_of(rows: Mapping[int, tuple[float, float]]) -> Ledger:
    """A ledger from ``{key: (ns, part)}``."""
    keys = sorted(rows)
    values = np.array([rows[key] for key in keys], dtype=float).reshape(-1, 2)
    return Ledger(np.array(keys, dtype=np.uint64), values[:, 0], values[:, 1])


def claims_of(rule: Rule, sandbox: Sandbox, known: Mapping[str, Any]) -> Ledger:
    """What one row of a rule (``known``, with the rule's parameters) claims.

    A rule that says why or who claims as much of all it selects as it would save: a setting that
    saves a tenth of some calls claims a tenth of each. One that says where time goes claims all.
    Raises RuleSqlError for conditions that do not run.
    """
    columns: list[Mapping[str, NDArray[Any]]] = []
    parts: list[NDArray[np.float64]] = []
    of_ranks: set[int] = set()
    for claim in rule.claims:
        kinds = _PARTS.get(claim.part, (claim.part,))
        found = sandbox.arrays(
            "SELECT hash(part, rank, span) AS key, kind, rank::BIGINT AS rank, "
            "coalesce(step, -1)::BIGINT AS step, call, ns::DOUBLE AS ns FROM ("
            + " UNION ALL ".join(
                f"SELECT '{kind}' AS part, {_place(kind)}::BIGINT AS kind, rank, step, span, "
                f"{'span' if kind in OF_CALLS else '-1'}::BIGINT AS call, ns"
                f" FROM ({_SELECT[kind]} WHERE {claim.of})"
                for kind in kinds
            )
            + ") WHERE ns > 0",
            known,
        )
        ns, gain = found["ns"], known.get(claim.gain)
        own = np.unique(found["rank"])
        of_ranks.update(map(int, own))
        share = 1.0
        if gain is not None and rule.says != "where" and len(ns):
            share = float(gain) * len(own) * (known.get("used_steps") or 1) / float(ns.sum())
        columns.append(found)
        parts.append(np.full(len(ns), min(1.0, max(0.0, share))))
    if not columns:
        return ledger_of({})
    every = {name: np.concatenate([found[name] for found in columns]) for name in columns[0]}
    key, first = np.unique(every["key"], return_index=True)
    spans = Spans(**{name: every[name][first] for name in ("rank", "step", "kind", "call")})
    return Ledger(key, every["ns"][first], np.concatenate(parts)[first], spans, frozenset(of_ranks))


def _place(kind: str) -> int:
    return TIMES.index(kind) if kind in TIMES else -1


def by_kind(spans: Spans, ns: NDArray[np.float64], count: int) -> dict[str, int]:
    """Times of spans by kind, each divided by ``count``; what rounds to nothing is left out."""
    timed = spans.kind >= 0
    sums = np.bincount(spans.kind[timed], ns[: len(spans.kind)][timed], len(TIMES)) / count
    return {
        kind: round(total) for kind, total in sorted(zip(TIMES, sums, strict=True)) if round(total)
    }


def covered(effect: Ledger, causes: Sequence[Ledger], *, alike: bool = False) -> float:
    """The part of what ``effect`` claims that goes when what all of ``causes`` claim is gone.

    Of one call both claim shares, and nothing says that these are the same nanoseconds: a cause
    that takes away a third of the call takes away a third of whatever else is claimed of it.
    ``alike`` says that they are (two findings of one rule). 0 where the effect claims nothing.
    """
    total = effect.claimed_ns
    if not total:
        return 0.0
    left = np.ones(len(effect.key))
    for cause in causes:
        _, mine, theirs = np.intersect1d(
            effect.key, cause.key, assume_unique=True, return_indices=True
        )
        taken = cause.part[theirs]
        if alike:
            taken = np.minimum(1.0, taken / np.maximum(effect.part[mine], 1e-9))
        left[mine] *= 1 - taken
    return float((effect.ns * effect.part * (1 - left)).sum()) / total
