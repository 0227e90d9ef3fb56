"""A small loader of Kineto traces for the tests of the metrics.

It is written with the json module and exact decimals, apart from the package's readers on
purpose: it fills ``event``, ``rank`` and ``process_group`` as schema.sql describes them, so that a
mistake of one shows against the other.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from advisor.store.store import Store

_COMM = re.compile(r"nccl|rccl|^gloo:|cross_device_reduce", re.IGNORECASE)
_DEVICE = {"kernel", "gpu_memcpy", "gpu_memset", "cuda_sync"}
_RUNTIME = {"cuda_runtime", "cuda_driver", "hip_runtime", "runtime"}
_COLUMNS = {
    "collective": "Collective name",
    "dtype": "dtype",
    "in_elements": "In msg nelems",
    "out_elements": "Out msg nelems",
    "group_size": "Group size",
    "process_group": "Process Group Name",
    "group_description": "Process Group Description",
    "group_ranks": "Process Group Ranks",
    "seq": "Seq",
    "src_rank": "Src Rank",
    "dst_rank": "Dst Rank",
    "in_split": "In split size",
    "out_split": "Out split size",
}
_COMM_HOST = re.compile(r"^(c10d::|gloo:|nccl:|record_param_comms)")


def load_trace(path: Path) -> dict[str, Any]:
    """A trace as a dict, its decimals exact."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as file:  # type: ignore[operator]
        found = json.load(file, parse_float=Decimal)
    return found if isinstance(found, dict) else {"traceEvents": found}


def store_of(traces: dict[int, dict[str, Any]], *, hosts: dict[int, str] | None = None) -> Store:
    """A store that holds one run 'run' of the given traces by rank."""
    store = Store.create()
    con = store.con
    con.execute("INSERT INTO run (run, created_at, advisor_version) VALUES ('run', '', 'test')")
    groups: dict[str, dict[str, Any]] = {}
    for rank, trace in sorted(traces.items()):
        events = event_rows(rank, trace)
        on_device = any(e["device"] is not None for e in events)
        info = trace.get("distributedInfo", {})
        metadata = {"advisor": trace["advisor"]} if "advisor" in trace else {}
        host = (hosts or {}).get(rank, trace.get("host_name"))
        con.execute(
            "INSERT INTO rank (run, rank, world_size, host, device, timeline, complete, metadata) "
            "VALUES ('run', ?, ?, ?, ?, ?, true, ?)",
            [
                rank,
                info.get("world_size"),
                host,
                next((e["device"] for e in events if e["device"] is not None), None),
                "device" if on_device else "host",
                json.dumps(metadata, default=str),
            ],
        )
        for group in info.get("pg_config", []):
            if isinstance(group, dict):
                groups[str(group["pg_name"])] = group
        insert_events(store, events)
    for name, group in groups.items():
        con.execute(
            "INSERT INTO process_group VALUES ('run', ?, ?, ?, ?, ?)",
            [name, group.get("pg_desc"), group.get("ranks"), group.get("pg_size"), None],
        )
    return store


def insert_events(store: Store, events: Sequence[dict[str, Any]]) -> None:
    """Append event rows; what they say of collectives goes into its own table."""
    import pyarrow as pa

    said = (*_COLUMNS, "input_dims", "input_types", "concrete_inputs")
    keys = ("run", "rank", "event_id")
    tables = {
        "event": [{k: v for k, v in row.items() if k not in said} for row in events],
        "comm_event": [
            {k: row[k] for k in (*keys, *said) if k in row}
            for row in events
            if any(row.get(k) is not None for k in said)
        ],
    }
    for table, rows in tables.items():
        if rows:
            store.con.register("rows_in", pa.Table.from_pylist(rows))
            store.con.execute(f"INSERT INTO {table} BY NAME SELECT * FROM rows_in")
            store.con.unregister("rows_in")


def event_rows(rank: int, trace: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of ``event`` of one trace."""
    base = int(trace.get("baseTimeNanoseconds", 0))
    rows = []
    for event in trace["traceEvents"]:
        if event.get("ph") != "X" or event.get("cat") in (None, "Trace"):
            continue
        rows.append(_row(rank, len(rows), base, event))
    return rows


def _row(rank: int, number: int, base: int, event: dict[str, Any]) -> dict[str, Any]:
    args = event.get("args") or {}
    name, category = event["name"], event["cat"]
    on_device = category in _DEVICE or category == "gpu_user_annotation"
    row: dict[str, Any] = {
        "run": "run",
        "rank": rank,
        "event_id": number,
        "name": name,
        "category": category,
        "class": _class(name, category),
        "device": _number(args.get("device")) if on_device else None,
        "stream": _number(args.get("stream")) if on_device else None,
        "pid": _number(event.get("pid")),
        "tid": _number(event.get("tid")),
        "start_ns": base + int(Decimal(str(event["ts"])) * 1000),
        "dur_ns": int(Decimal(str(event["dur"])) * 1000),
        "correlation": _number(args.get("correlation")),
        "external_id": _number(args.get("External id")),
        "bytes": _number(args.get("bytes")),
    }
    for column, key in _COLUMNS.items():
        row[column] = args.get(key)
    keep = bool(_COMM_HOST.match(name))
    for column, key in (
        ("input_dims", "Input Dims"),
        ("input_types", "Input type"),
        ("concrete_inputs", "Concrete Inputs"),
    ):
        row[column] = json.dumps(args[key], default=str) if keep and key in args else None
    return row


def _class(name: str, category: str) -> str:
    if category == "kernel":
        return "comm" if _COMM.search(name) else "compute"
    if category in ("gpu_memcpy", "gpu_memset"):
        return "memory"
    if category == "cuda_sync":
        return "sync"
    if category in _RUNTIME:
        return "runtime"
    if category in ("user_annotation", "gpu_user_annotation"):
        return "comm" if name.startswith("gloo:") else "annotation"
    return "python" if category == "python_function" else "cpu_op"


def _number(value: Any) -> int | None:
    try:
        return int(value)
    except (TypeError, ValueError):
        return None
