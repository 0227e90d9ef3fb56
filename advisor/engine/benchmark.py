"""What a benchmark alone shows: how fast each collective gets, and from which size on."""

from __future__ import annotations

from typing import Any

from advisor.config.hardware import find_device
from advisor.engine.sandbox import Sandbox
from advisor.findings import Verdict
from advisor.vocabulary.words import duration, percent, significant, size

_BEST = """
SELECT op, max(ranks) AS ranks, max(busbw_gbps) AS best, arg_max(bytes, busbw_gbps) AS best_bytes,
  arg_min(time_us, bytes) AS smallest_us, coalesce(sum(wrong), 0) AS wrong
FROM bench WHERE tool IN ('nccl-tests', 'probe') AND src IS NULL AND busbw_gbps IS NOT NULL
  AND bytes > 0 GROUP BY op ORDER BY op <> 'all_reduce', op
"""
_FITS = """
SELECT op, alpha_ns, beta_ns_per_byte, n_star_bytes FROM alpha_beta
WHERE origin <> 'trace' AND alpha_ns IS NOT NULL AND n_star_bytes > 0
QUALIFY row_number() OVER (PARTITION BY op ORDER BY group_size DESC, samples DESC) = 1
ORDER BY op <> 'all_reduce', op
"""


def of_benchmark(sandbox: Sandbox) -> Verdict | None:
    """Best bandwidth and fitted cost of each collective; None without a benchmark.

    Wrong results come first where it found some.
    """
    rows = sandbox.records(_BEST)
    if not rows:
        return None
    first = rows[0]
    on = f" on {first['ranks']} ranks" if first["ranks"] else ""
    wrong = [row["op"] for row in rows if row["wrong"]]
    fits = {row["op"]: row for row in sandbox.records(_FITS)}
    half = _half_bytes(sandbox, first["op"], first["best"])
    from_size = f", half of it from about {size(half)} on" if half else ""
    title = (
        f"The benchmark found wrong results in {', '.join(wrong)}."
        if wrong
        else f"{first['op']} reaches {significant(first['best'])} GB/s bus bandwidth{on} "
        f"(at {size(first['best_bytes'])}){from_size}; what a training step loses needs a trace."
    )
    fitted = ""
    if fits:
        fitted = " Below n* a call is mostly latency, by one fitted line: " + ", ".join(
            f"{op} {size(row['n_star_bytes'])}" for op, row in fits.items()
        ) + "."  # fmt: skip
    reached = ", ".join(f"{row['op']} {significant(row['best'])} GB/s" for row in rows)
    return Verdict(
        title=title,
        cause="benchmark",
        why=f"Best bus bandwidth: {reached}{_hardware(sandbox, first)}. The smallest "
        f"{first['op']} takes {duration(first['smallest_us'] * 1e3)}.{fitted}",
        next_steps=["pass these files together with traces of the job: advisor explain all-ranks"],
    )


def _half_bytes(sandbox: Sandbox, op: str, best: float) -> float | None:
    """The size from which on every measured bandwidth is half of ``best`` or more, bytes.

    Between two measured sizes it is read off on a logarithmic scale; None where the sizes do not
    reach below half, or stay there.
    """
    points = sandbox.records(
        "SELECT bytes, max(busbw_gbps) AS busbw FROM bench WHERE op = $op AND src IS NULL "
        "AND tool IN ('nccl-tests', 'probe') AND busbw_gbps > 0 AND bytes > 0 "
        "GROUP BY bytes ORDER BY bytes",
        {"op": op},
    )
    slow = [place for place, point in enumerate(points) if point["busbw"] < best / 2]
    if not slow or slow[-1] + 1 == len(points):
        return None
    below, above = points[slow[-1]], points[slow[-1] + 1]
    part = (best / 2 - below["busbw"]) / (above["busbw"] - below["busbw"])
    return float(below["bytes"] * (above["bytes"] / below["bytes"]) ** part)


def _hardware(sandbox: Sandbox, best: dict[str, Any]) -> str:
    """What the links of the benchmark's device would give, where it ran inside one host."""
    rows = sandbox.records("SELECT DISTINCT name FROM topology WHERE kind = 'bench-device'")
    across = sandbox.records("SELECT 1 AS one FROM topology WHERE kind = 'bench-host' LIMIT 1")
    device = find_device(rows[0]["name"]) if len(rows) == 1 and not across else None
    if device is None or not device.link_gbps:
        return ""
    share = percent(best["best"] / device.link_gbps)
    return (
        f"; the links of one {device.name} give {significant(device.link_gbps)} GB/s by data "
        f"sheet, {best['op']} reaches {share} of it"
    )
