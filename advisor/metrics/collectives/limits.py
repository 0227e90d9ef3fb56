"""Bandwidths that no link of the device carries: a size, a group or a time is recorded wrongly.

Such a figure is taken back and kept as a contradiction, so that nobody reads it as a fast network.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from advisor.config.hardware import find_device
from advisor.metrics.collectives.call import Call
from advisor.store.columns import rows

# Time stamps of kernels are exact to under a microsecond, link rates are gross.
_TOLERANCE = 1.1
# An all-reduce in the switch (NVLink SHARP, NVLS) sends each byte once: nccl-tests' bus factor of
# 2(n-1)/n then counts up to twice what a link carries (NVIDIA/nccl-tests doc/PERFORMANCE.md).
_IN_SWITCH = 2.0


def impossible_bandwidths(
    con: Any, run: str, calls: Mapping[int, Sequence[Call]]
) -> list[dict[str, Any]]:
    """Rows of ``contradiction``; the bandwidths of these calls are taken back."""
    limits = {}
    for rank, name in rows(con, "SELECT rank, device_name FROM rank WHERE run = ?", [run]):
        device = find_device(str(name)) if name else None
        if device is not None and device.link_gbps is not None:
            limits[rank] = device.link_gbps
    found: dict[tuple[str | None, str, float], list[float]] = defaultdict(list)
    for rank, own in calls.items():
        if rank not in limits:
            continue
        for call in own:
            factor = _IN_SWITCH if call.op == "all_reduce" else 1.0
            if call.busbw is not None and call.busbw > _TOLERANCE * factor * limits[rank]:
                found[call.group, call.op, limits[rank]].append(call.busbw)
                call.busbw = call.algbw = None
    return [
        {
            "run": run,
            "process_group": group,
            "op": op,
            "calls": len(values),
            "said_gbps": max(values),
            "limit_gbps": limit,
        }
        for (group, op, limit), values in sorted(found.items(), key=str)
    ]
