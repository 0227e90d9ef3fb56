"""The ledger of claims: which nanoseconds of which calls or idling a finding says it saves.

Findings whose claims lie on the same time are about the same loss, so that what one of them covers
of another says which is merged into which, with no rule naming another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.engine.rule import Rule
from advisor.engine.sandbox import Sandbox

_SELECT = {
    "transfer": "SELECT rank, call_id AS span, exposed_transfer_ns AS ns FROM call",
    "wait": "SELECT rank, call_id AS span, exposed_wait_ns AS ns FROM waiting_call",
    "idle": "SELECT rank, start_ns AS span, idle_ns AS ns "
    "FROM (FROM host_gap SEMI JOIN used_step USING (step))",
    "compute": "SELECT rank, step AS span, compute_ns AS ns FROM rank_step",
    # What has no time per step: a setting counts once, and a group of a job that stands still.
    "setting": "SELECT 0 AS rank, name AS span, 1 AS ns FROM (SELECT DISTINCT name FROM setting)",
    "hang": "SELECT rank, process_group AS span, 1 AS ns FROM flight_progress",
}
TIMES = ("transfer", "wait", "idle", "compute")
_PARTS = {"exposed": ("transfer", "wait")}


@dataclass(frozen=True)
class Ledger:
    """Of each span, by ``key`` (ascending, no two alike), the finding claims ``part`` of ``ns``."""

    key: NDArray[np.uint64]
    ns: NDArray[np.float64]
    part: NDArray[np.float64]
    by_kind_ns: Mapping[str, float] = field(default_factory=dict)
    """What is claimed of each kind of time, over all ranks and used steps."""
    ranks: frozenset[int] = frozenset()
    """Whose time is claimed."""

    def per_step(self, steps: int, ranks: int) -> dict[str, int]:
        """The same per step, the mean over the ranks that were read."""
        count = max(steps * ranks, 1)
        return {kind: round(ns / count) for kind, ns in sorted(self.by_kind_ns.items())}

    @property
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
    keys, times, parts = [], [], []
    by_kind: dict[str, float] = {}
    of_ranks: set[int] = set()
    for claim in rule.claims:
        kinds = _PARTS.get(claim.part, (claim.part,))
        found = sandbox.arrays(
            "SELECT hash(part, rank, span) AS key, place, rank, ns::DOUBLE AS ns FROM ("
            + " UNION ALL ".join(
                f"SELECT '{kind}' AS part, {place} AS place, rank, span, ns"
                f" FROM ({_SELECT[kind]} WHERE {claim.of})"
                for place, kind in enumerate(kinds)
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
        keys.append(found["key"])
        times.append(ns)
        share = min(1.0, max(0.0, share))
        parts.append(np.full(len(ns), share))
        for place, kind in enumerate(kinds):
            if kind in TIMES:
                claimed = share * float(ns[found["place"] == place].sum())
                by_kind[kind] = by_kind.get(kind, 0.0) + claimed
    if not keys:
        return ledger_of({})
    key, first = np.unique(np.concatenate(keys), return_index=True)
    return Ledger(key, np.concatenate(times)[first], np.concatenate(parts)[first], by_kind,
                  frozenset(of_ranks))  # fmt: skip


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
