"""Figures known from other people's traces (data/README of the recordings)."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.engine.sandbox import Sandbox
from advisor.metrics import derive
from advisor.store.store import Store
from tests.metrics.support import load_trace, store_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def dlrm(shared_data: Path) -> Store:
    paths = sorted((shared_data / "dlrm_8xV100").glob("worker*.json.gz"))
    store = store_of({rank: load_trace(path) for rank, path in enumerate(paths)})
    derive(store)
    return store


def one(store: Store, sql: str) -> tuple[int, ...]:
    row = store.con.execute(sql).fetchone()
    assert row is not None
    return tuple(row)


BREAKDOWN = "SELECT comm_ns, exposed_comm_ns, compute_ns, window_ns FROM run_breakdown WHERE rank=0"


def test_dlrm_rank_0_splits_as_known(dlrm: Store) -> None:
    assert one(dlrm, BREAKDOWN) == (5_798_000, 5_537_000, 1_034_000, 13_009_000)


def test_dlrm_rank_7_arrives_last_in_5_of_8(dlrm: Store) -> None:
    last = one(dlrm, "SELECT count(*) FROM collective WHERE rank = 7 AND last_rank = 7")
    assert last == (5,)
    assert one(dlrm, "SELECT count(DISTINCT call_id) FROM collective") == (8,)


def test_dlrm_rank_1_waits_for_rank_7_in_collective_0(dlrm: Store) -> None:
    sql = "SELECT wait_ns, last_rank FROM collective WHERE rank = 1 ORDER BY start_ns LIMIT 1"
    assert one(dlrm, sql) == (7_624_000, 7)
    sql = "SELECT transfer_ns FROM collective WHERE rank = 7 ORDER BY start_ns LIMIT 1"
    assert one(dlrm, sql) == (10_000,)


def test_dlrm_rank_7_is_the_one_systematic_straggler(dlrm: Store) -> None:
    rows = dlrm.con.execute(
        "SELECT rank, times_last, calls, reason FROM lateness WHERE systematic"
    ).fetchall()
    assert rows == [(7, 5, 8, "late-launch")]
    # One machine, one clock: nothing is corrected.
    assert one(dlrm, "SELECT max(abs(clock_offset_ns)) FROM rank") == (0,)


def test_dlrm_lateness_is_start_less_the_median_start(dlrm: Store) -> None:
    """Eight ranks: the median lies between the fourth and the fifth start."""
    sql = "SELECT rank, median_lateness_ns FROM lateness WHERE rank IN (1, 7) ORDER BY rank"
    assert dlrm.con.execute(sql).fetchall() == [(1, -21_500), (7, 122_750)]


def test_dlrm_rank_7_costs_the_sum_of_what_the_others_wait(dlrm: Store) -> None:
    with Sandbox(dlrm, "run") as sandbox:
        (row,) = sandbox.records("SELECT * FROM late_rank WHERE rank = 7")
        (waits,) = sandbox.records("SELECT sum(wait_ns) AS ns FROM collective WHERE last_rank = 7")
    assert row["summed_cost_ns"] == waits["ns"] == 35_552_000
    assert row["peer_cost_ns"] == row["cost_ns_per_step"]  # one group: all others share its calls
    assert 0 < row["peer_wait_ns"] <= row["peer_cost_ns"]


def test_a100_window_of_three_steps_splits_as_known(shared_data: Path) -> None:
    store = store_of({0: load_trace(shared_data / "ddp_2xA100_metadata" / "rank0.json.gz")})
    derive(store)
    assert one(store, BREAKDOWN) == (46_876_493, 39_559_468, 115_655_847, 660_551_005)
    steps = one(store, "SELECT count(*), sum(window_ns), sum(comm_ns) FROM step_breakdown")
    assert steps[0] == 3
    assert steps[2] == 46_876_493
    sizes = store.con.execute(
        "SELECT op, count(*), count(bytes), min(group_size) FROM collective GROUP BY op ORDER BY op"
    ).fetchall()
    assert sizes == [("all_reduce", 15, 15, 2), ("broadcast", 6, 6, 2)]
    assert one(store, "SELECT count(*) FROM collective WHERE t_is <> 'upper bound'") == (0,)


def test_mi300_counts_kernels_without_a_launch(shared_data: Path) -> None:
    store = store_of({0: load_trace(shared_data / "ddp_8xMI300" / "rank0.json.gz")})
    derive(store)
    assert one(store, BREAKDOWN)[:3] == (71_516_523, 55_625_224, 25_739_303)
    assert one(store, "SELECT count(*) FROM collective") == (17,)


def test_every_window_splits_without_remainder(dlrm: Store) -> None:
    for table in ("run_breakdown", "step_breakdown"):
        assert one(
            dlrm,
            f"SELECT count(*) FROM {table} WHERE window_ns <> compute_ns + exposed_comm_ns + "
            "exposed_memory_ns + other_ns + idle_ns OR comm_ns <> exposed_comm_ns + hidden_comm_ns",
        ) == (0,)
