"""A late rank in flight-recorder dumps or Inspector records alone, as their writers write them."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

import advisor
from advisor.ingest.pipeline import ingest
from advisor.store.store import Store

RANKS, LATE, CALLS = 4, 2, 12
EPOCH_NS = 1_779_782_330_000_000_000
PERIOD_NS, TRANSFER_NS, LATE_NS = 100_000_000, 300_000, 30_000_000


def _calls(rank: int) -> list[tuple[int, int]]:
    """(start, length) of its calls, ns; the others stand in each until the late rank has come."""
    begun = LATE_NS * (rank == LATE)
    return [
        (EPOCH_NS + PERIOD_NS * call + begun, LATE_NS + TRANSFER_NS + 1000 * rank - begun)
        for call in range(CALLS)
    ]


def dumps(folder: Path, *, timed: bool = True, hangs: int | None = None) -> None:
    """``hangs``: the rank that never asks for the next call, which the others wait for."""
    group = {"name": "0", "desc": "default_pg", "ranks": str([*range(RANKS)])}
    for rank in range(RANKS):
        last = [] if hangs is None or rank == hangs else [(EPOCH_NS + PERIOD_NS * CALLS, 0)]
        entries: list[dict[str, Any]] = []
        for seq, (start, length) in enumerate([*_calls(rank), *last], 1):
            done = {"duration_ms": length / 1e6} if timed and length else {}
            entries.append(
                {"record_id": seq - 1, "pg_id": 0, "process_group": ("0", "default_pg"),
                 "collective_seq_id": seq, "p2p_seq_id": 0, "op_id": seq,
                 "profiling_name": "nccl:all_reduce", "time_created_ns": start, **done,
                 "input_sizes": [[1 << 20]], "input_dtypes": ["Float"], "output_sizes": [[1 << 20]],
                 "output_dtypes": ["Float"], "state": "completed" if length else "scheduled",
                 "time_discovered_started_ns": None, "time_discovered_completed_ns": None,
                 "retired": bool(length), "timeout_ms": 600000, "is_p2p": False, "frames": []}
            )  # fmt: skip
        progress = {"last_enqueued_collective": len(entries), "last_started_collective": CALLS,
                    "last_completed_collective": CALLS}  # fmt: skip
        whole = {"version": "2.10", "pg_config": {"0": group}, "pg_status": {"0": progress}}
        content = pickle.dumps({**whole, "entries": entries}, protocol=2)
        (folder / f"nccl_trace_rank_{rank}").write_bytes(content)


def records(folder: Path, *, verbose: bool, source: str = "kernel_gpu") -> None:
    for rank in range(RANKS):
        header = {"id": "0x7f8c", "rank": rank, "n_ranks": RANKS, "nnodes": 1}
        with (folder / f"node1-pid{100 + rank}.log").open("w") as file:
            for seq, (start, length) in enumerate(_calls(rank), 1):
                begun, ended = start // 1000, (start + length) // 1000
                channel = {"channel_id": 0, "kernel_start_ts": begun, "kernel_stop_ts": ended}
                times = {"coll_start_ts": begun, "coll_stop_ts": begun, "kernel_events": [channel]}
                call = {
                    "coll": "AllReduce", "coll_sn": seq, "coll_msg_size_bytes": 4 << 20,
                    "coll_exec_time_us": ended - begun, "coll_timing_source": source,
                    **({"event_trace_ts": times} if verbose else {}),
                }  # fmt: skip
                said = {"inspector_output_format_version": "v4.2", "dump_timestamp_us": ended,
                        "hostname": "node1", "pid": 100 + rank}  # fmt: skip
                file.write(json.dumps({"header": header, "metadata": said, "coll_perf": call}))
                file.write("\n")


def found(folder: Path) -> list[tuple[str, str, list[int]]]:
    with advisor.load(folder) as run:
        return [(one.rule, one.severity.value, one.ranks) for one in run.report.findings]


def test_a_dump_tells_who_comes_last_by_its_short_calls(tmp_path: Path) -> None:
    dumps(tmp_path)
    assert found(tmp_path) == [("last-in-calls", "critical", [LATE])]


@pytest.mark.parametrize("verbose", [True, False])
def test_the_inspector_tells_so_too(tmp_path: Path, verbose: bool) -> None:
    records(tmp_path, verbose=verbose)
    assert found(tmp_path) == [("last-in-calls", "critical", [LATE])]


def test_the_length_of_the_hosts_call_tells_nothing(tmp_path: Path) -> None:
    records(tmp_path, verbose=False, source="collective_cpu")
    assert found(tmp_path) == []


def test_a_hang_comes_before_who_was_late_until_then(tmp_path: Path) -> None:
    dumps(tmp_path, hangs=1)
    assert found(tmp_path)[0] == ("hang-suspect", "critical", [1])


def test_dumps_without_lengths_say_what_to_set(tmp_path: Path) -> None:
    dumps(tmp_path, timed=False)
    with advisor.load(tmp_path) as run:
        (outcome,) = [one for one in run.report.outcomes if one.rule == "last-in-calls"]
    assert outcome.outcome == "not-applicable"
    assert "TORCH_NCCL_ENABLE_TIMING=1" in outcome.how_to_capture


@pytest.mark.parametrize("value", [float("nan"), -1.0, 0, 10**400, "3", [], True])
def test_a_length_that_no_call_can_have_is_none(tmp_path: Path, value: Any) -> None:
    dumps(tmp_path)
    for path in tmp_path.iterdir():
        dump = pickle.loads(path.read_bytes())
        dump["entries"][0]["duration_ms"] = value
        path.write_bytes(pickle.dumps(dump, protocol=2))
    with Store.create() as store:
        ingest([tmp_path], store)
        (count,) = store.con.execute("SELECT count(*) FROM timed_call").fetchone()
    assert count == RANKS * (CALLS - 1)
