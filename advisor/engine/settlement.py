"""What each finding claims of the step in the end: all claims come from one ledger.

Two findings may be about the same calls, and shares of one call may add up to more than all of it.
Time is lost once: findings take what they claim in the order in which they are listed, of each
span (a call on a rank, a gap) what those before left of it, and of each rank's step no more than it
spent in that way. So all claims of a run together are no more than its step.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.engine.claims import TIMES, Ledger, Spans, by_kind
from advisor.engine.sandbox import Sandbox
from advisor.findings import ClaimedCalls, Finding

# Of each kind of time the column of rank_step that holds all there is of it.
_POOLS = ("exposed_comm_ns", "idle_ns", "compute_ns", "exposed_memory_ns")
_POOL_OF = {
    "transfer": "exposed_comm_ns",
    "wait": "exposed_comm_ns",
    "idle": "idle_ns",
    "queued": "idle_ns",
    "compute": "compute_ns",
    "memory": "exposed_memory_ns",
}
_OF_KIND = np.array([_POOLS.index(_POOL_OF[kind]) for kind in TIMES])


def settle(
    claimed: Sequence[tuple[Finding, Ledger]], sandbox: Sandbox, steps: int, ranks: int
) -> list[Finding]:
    """The findings of one run, as listed, with what is theirs of its ``steps`` on all ``ranks``.

    Times are ns per step: the mean over the ranks that were read.
    """
    count = max(steps * ranks, 1)
    timed = [_timed(ledger) for _, ledger in claimed]
    pools, room = _pools([spans for _, spans, _, _ in timed], sandbox)
    keys = np.unique(np.concatenate([np.empty(0, dtype=np.uint64), *(key for key, *_ in timed)]))
    left, names = np.ones(len(keys)), None
    settled = []
    for (finding, _), (key, spans, ns, part), pool in zip(claimed, timed, pools, strict=True):
        place = np.searchsorted(keys, key)
        taken = np.minimum(part, left[place])
        wanted = np.bincount(pool, ns * taken, len(room))
        given = np.minimum(wanted, room)
        granted = np.divide(given, wanted, out=np.ones_like(given), where=wanted > 0)
        taken = taken * granted[pool]
        left[place] -= taken
        room = room - given
        of_calls = spans.call >= 0
        if names is None and of_calls.any():
            names = _names(sandbox)
        update: dict[str, Any] = {
            "claims": by_kind(spans, ns * taken, count),
            "claimed_calls": _calls(spans.call[of_calls], (ns * taken)[of_calls], count, names),
        }
        settled.append(finding.model_copy(update=update))
    return settled


Timed = tuple[NDArray[np.uint64], Spans, NDArray[np.float64], NDArray[np.float64]]


def _timed(ledger: Ledger) -> Timed:
    """The spans that are time of a step: key, where they lie, ns, part."""
    of_step = np.flatnonzero(ledger.spans.kind >= 0)
    where = ledger.spans
    spans = Spans(
        where.rank[of_step], where.step[of_step], where.kind[of_step], where.call[of_step]
    )
    return ledger.key[of_step], spans, ledger.ns[of_step], ledger.part[of_step]


def _pools(
    ledgers: Sequence[Spans], sandbox: Sandbox
) -> tuple[list[NDArray[np.int64]], NDArray[np.float64]]:
    """Of each ledger's spans the number of their pool, and how many ns each pool holds.

    A pool is one rank's time of one kind in one step; without a breakdown it has no bounds.
    """
    number: dict[tuple[int, int, int], int] = {}
    held: list[float] = []
    for row in sandbox.records(f"SELECT rank, step, {', '.join(_POOLS)} FROM rank_step"):
        for place, name in enumerate(_POOLS):
            number[row["rank"], row["step"], place] = len(held)
            held.append(float("inf") if row[name] is None else float(row[name]))
    numbers = []
    for spans in ledgers:
        own = zip(
            spans.rank.tolist(), spans.step.tolist(), _OF_KIND[spans.kind].tolist(), strict=True
        )
        found = []
        for pool in own:
            if pool not in number:
                number[pool] = len(held)
                held.append(float("inf"))
            found.append(number[pool])
        numbers.append(np.array(found, dtype=np.int64))
    return numbers, np.array(held)


def _names(sandbox: Sandbox) -> dict[int, tuple[str, str | None]]:
    rows = sandbox.records("SELECT DISTINCT call_id, op, process_group FROM call")
    return {int(row["call_id"]): (row["op"], row["process_group"]) for row in rows}


def _calls(
    calls: NDArray[np.int64],
    ns: NDArray[np.float64],
    count: int,
    names: Mapping[int, tuple[str, str | None]] | None,
) -> list[ClaimedCalls]:
    """The calls of which something is claimed, by operation and group: most first."""
    of_call = np.unique(calls[ns > 0], return_inverse=True)
    sums: dict[tuple[str, str | None], list[float]] = {}
    totals = np.bincount(of_call[1], ns[ns > 0], len(of_call[0]))
    for call, total in zip(of_call[0].tolist(), totals.tolist(), strict=True):
        known = (names or {}).get(call)
        if known is not None:
            sums.setdefault(known, []).append(total)
    found = [
        ClaimedCalls(op=op, process_group=group, calls=len(own), ns=round(sum(own) / count))
        for (op, group), own in sums.items()
    ]
    return sorted(
        (one for one in found if one.ns), key=lambda one: (-one.ns, one.op, one.process_group or "")
    )
