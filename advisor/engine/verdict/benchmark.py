"""What a benchmark alone shows: how fast each collective gets, and from which size on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from advisor.config.hardware import find_device
from advisor.engine.sandbox import Sandbox

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


@dataclass(frozen=True)
class Benchmark:
    """Its first operation (all_reduce if there). ``half_bytes``: from which size on half of the
    best bandwidth is reached; ``of_links``: the best as a share of the device's links; ``fits``:
    by operation the size below which a call is mostly latency. None where it is not known."""

    op: str
    ranks: int | None
    best_gbps: float
    best_bytes: float
    smallest_ns: float
    half_bytes: float | None
    link_gbps: float | None
    device: str
    wrong: Sequence[str]
    fits: dict[str, float]


def read_benchmark(sandbox: Sandbox) -> Benchmark | None:
    """Best bandwidth and fitted cost; None without a benchmark."""
    rows = sandbox.records(_BEST)
    if not rows:
        return None
    first = rows[0]
    device, link_gbps = _hardware(sandbox)
    return Benchmark(
        op=first["op"],
        ranks=first["ranks"],
        best_gbps=first["best"],
        best_bytes=first["best_bytes"],
        smallest_ns=first["smallest_us"] * 1e3,
        half_bytes=_half_bytes(sandbox, first["op"], first["best"]),
        link_gbps=link_gbps,
        device=device,
        wrong=[row["op"] for row in rows if row["wrong"]],
        fits={row["op"]: row["n_star_bytes"] for row in sandbox.records(_FITS)},
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


def _hardware(sandbox: Sandbox) -> tuple[str, float | None]:
    """The benchmark's device and what its links give, where it ran inside one host."""
    rows = sandbox.records("SELECT DISTINCT name FROM topology WHERE kind = 'bench-device'")
    across = sandbox.records("SELECT 1 AS one FROM topology WHERE kind = 'bench-host' LIMIT 1")
    device = find_device(rows[0]["name"]) if len(rows) == 1 and not across else None
    return ("", None) if device is None else (device.name, device.link_gbps or None)
