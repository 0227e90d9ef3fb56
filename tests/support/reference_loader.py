"""An independent reading of a trace with Python's json module: slow, obvious, float-free.

Tests compare the fast reader with this one, event by event. It shares no code with the package.
"""

from __future__ import annotations

import ast
import gzip
import json
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

SPANS = ("X", "i", "I", "R")
COLUMNS = (
    *("name", "category", "start_ns", "dur_ns", "pid", "tid", "correlation", "external_id"),
    *("collective", "in_elements", "group_ranks", "bytes"),
)


def load(path: Path) -> dict[str, Any]:
    """The whole trace; numbers with a fraction as Decimal, the first of duplicate keys."""
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)

    def first(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, value in pairs:
            result.setdefault(key, value)
        return result

    trace = json.loads(data, parse_float=Decimal, object_pairs_hook=first)
    return trace if isinstance(trace, dict) else {"traceEvents": trace}


def nanoseconds(value: Any) -> int | None:
    """Microseconds (number or text) as exact nanoseconds."""
    if value is None:
        return None
    return int((Decimal(str(value)) * 1000).quantize(Decimal(1), rounding=ROUND_HALF_UP))


def rank_of(trace: dict[str, Any]) -> int | None:
    """``distributedInfo.rank``, also from the text of a dict."""
    info = trace.get("distributedInfo", {})
    if isinstance(info, str):
        info = ast.literal_eval(info)
    return info.get("rank")


def events(trace: dict[str, Any]) -> list[dict[str, Any]]:
    """Spans and instants in file order, with the columns that tests compare."""
    base = int(trace.get("baseTimeNanoseconds", 0))
    rows = []
    for event in trace["traceEvents"]:
        if event.get("ph") not in SPANS:
            continue
        args = event.get("args")
        args = args if isinstance(args, dict) else {}
        start = nanoseconds(event["ts"])
        assert start is not None
        pid, tid = event.get("pid"), event.get("tid")
        rows.append(
            {
                "name": event.get("name"),
                "category": event.get("cat"),
                "start_ns": base + start,
                "dur_ns": nanoseconds(event.get("dur", 0)),
                "pid": pid if isinstance(pid, int) else None,
                "tid": tid if isinstance(tid, int) else None,
                "correlation": args.get("correlation"),
                "external_id": args.get("External id"),
                "collective": args.get("Collective name"),
                "in_elements": args.get("In msg nelems"),
                "group_ranks": args.get("Process Group Ranks"),
                # ROCm writes the bytes of hipMemcpyAsync as text.
                "bytes": None if args.get("bytes") is None else int(args["bytes"]),
            }
        )
    return rows
