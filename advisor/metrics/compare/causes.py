"""The figures of a run that findings ask to look at again after a change, per step."""

from dataclasses import dataclass
from typing import Any

from advisor.store.evidence import PER_PEER


@dataclass(frozen=True)
class Causes:
    """Times in ns per step, mean over ranks and used steps unless the name says else.

    None where it was not recorded: waiting needs matched ranks, reasons of idleness a GPU.
    ``late_*``: the rank whose lateness costs its peers most, how often of ``late_calls`` it comes
    last, and what each of its peers, which share calls with it, waits for it.
    """

    waiting_ns: int | None = None
    transfer_ns: int | None = None
    idle_host_ns: int | None = None
    idle_sync_ns: int | None = None
    slowest_compute_ns: int | None = None
    compute_imbalance: float | None = None
    late_rank: int | None = None
    late_times: int | None = None
    late_calls: int | None = None
    late_cost_ns: int | None = None
    bubble_share: float | None = None
    all_to_all_imbalance: float | None = None


def causes(con: Any, run: str) -> Causes:
    """Read them from the tables of one run."""
    split = con.execute(
        "SELECT avg(exposed_wait_ns), avg(exposed_transfer_ns), avg(idle_host_ns), "
        "avg(idle_sync_ns) FROM step_breakdown WHERE run = ? AND used",
        [run],
    ).fetchone()
    compute = con.execute(
        "SELECT max(ns), max(ns) / nullif(avg(ns), 0) - 1 FROM (SELECT rank, avg(compute_ns) AS ns "
        "FROM step_breakdown WHERE run = ? AND used GROUP BY rank HAVING count(*) > 0)",
        [run],
    ).fetchone()
    late = con.execute(
        f"SELECT rank, times_last, calls, (wait_ns_per_step * {PER_PEER})::BIGINT AS peer_wait_ns "
        "FROM lateness WHERE run = ? AND process_group IS NULL "
        "ORDER BY peer_wait_ns DESC NULLS LAST, rank LIMIT 1",
        [run],
    ).fetchone()
    (bubble,) = con.execute(
        "SELECT avg(bubble_share) FROM pipeline_stage WHERE run = ?", [run]
    ).fetchone()
    (experts,) = con.execute(
        "SELECT max(imbalance) FROM expert_balance WHERE run = ?", [run]
    ).fetchone()
    waiting, transfer, idle_host, idle_sync = (
        None if value is None else round(value) for value in split
    )
    rank, times, calls, cost = late or (None, None, None, None)
    return Causes(
        waiting_ns=waiting,
        transfer_ns=transfer,
        idle_host_ns=idle_host,
        idle_sync_ns=idle_sync,
        slowest_compute_ns=None if compute[0] is None else round(compute[0]),
        compute_imbalance=compute[1],
        late_rank=rank,
        late_times=times,
        late_calls=calls,
        late_cost_ns=cost,
        bubble_share=bubble,
        all_to_all_imbalance=experts,
    )
