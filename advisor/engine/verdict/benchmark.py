"""What a benchmark alone shows: how fast each collective gets, and from which size on."""

from collections.abc import Sequence
from typing import NamedTuple

from advisor.engine.sandbox import Sandbox
from advisor.metrics.models.bench_curves import SMALL_BYTES

_CURVES = """
SELECT *, (SELECT any_value(b.device) FROM bench b WHERE b.tool = c.tool AND b.op = c.op
  AND b.source IS NOT DISTINCT FROM c.source) AS printed
FROM bench_curve c WHERE tool <> 'inspector'
ORDER BY op <> 'all_reduce', best_gbps DESC, op, source
"""
_POINTS = """
SELECT bytes, max(coalesce(busbw_gbps, algbw_gbps)) AS busbw, min(time_us) AS time_us,
  bool_or(busbw_gbps IS NOT NULL) AS is_bus
FROM bench
WHERE op = $op AND source IS NOT DISTINCT FROM $source AND tool = $tool AND src IS NULL
  AND coalesce(busbw_gbps, algbw_gbps) IS NOT NULL AND time_us > 0 AND bytes > 0
GROUP BY bytes ORDER BY bytes
"""
# A log beside the table may tell of the links itself.
_MACHINE = "SELECT 1 FROM topology WHERE kind IN ('machine', 'path')"
_FITS = """
SELECT op, alpha_ns, beta_ns_per_byte, n_star_bytes FROM alpha_beta
WHERE origin <> 'trace' AND alpha_ns IS NOT NULL AND n_star_bytes > 0
QUALIFY row_number() OVER (PARTITION BY op ORDER BY group_size DESC, samples DESC) = 1
ORDER BY op <> 'all_reduce', op
"""


class Benchmark(NamedTuple):
    """Its best table of all_reduce, or the fastest of any without one. ``half_bytes``: from
    which size on half of the best bandwidth is reached; ``limit_gbps``: what the links or NICs
    (``limit_by``) of its hardware allow; ``fits``: by operation the size below which a call is
    mostly latency. None where it is not known. ``lacks_hardware``: neither table nor user names
    the links or NICs of the ``printed`` devices, ``across`` hosts. ``lacks_ranks``: nothing says
    of how many ranks it is, so that its bandwidths are bytes over time and held against nothing.
    ``lacks_hosts``: the machine is named, but not on which hosts of it the ranks are.
    ``shows_latency``: no message is large enough to tell a bandwidth."""

    op: str
    ranks: int | None
    best_gbps: float
    best_bytes: float
    smallest_bytes: int
    smallest_ns: float
    half_bytes: float | None
    limit_gbps: float | None
    limit_by: str | None
    device: str | None
    fits: dict[str, float]
    lacks_hardware: bool
    printed: str | None
    across: bool
    lacks_ranks: bool
    lacks_hosts: bool
    shows_latency: bool


def read_benchmark(sandbox: Sandbox) -> Benchmark | None:
    """Best bandwidth and fitted cost; None without a benchmark."""
    curves = sandbox.records(_CURVES, of=["bench_curve"])
    if not curves:
        return None
    first = curves[0]
    points = sandbox.records(_POINTS, {key: first[key] for key in ("op", "source", "tool")})
    if not points:
        return None
    lacks_ranks = not any(point["is_bus"] for point in points)
    # NICs that nothing names are the least such machines are sold with: no measure of the best.
    named = bool(sandbox.records(_MACHINE))
    limit_gbps = first["limit_gbps"] if named or first["limit_by"] != "NICs" else None
    return Benchmark(
        op=first["op"],
        ranks=first["ranks"],
        best_gbps=max(point["busbw"] for point in points),
        best_bytes=first["best_bytes"],
        smallest_bytes=points[0]["bytes"],
        smallest_ns=points[0]["time_us"] * 1e3,
        half_bytes=_half_bytes([(point["bytes"], point["busbw"]) for point in points]),
        limit_gbps=None if lacks_ranks else limit_gbps,
        limit_by=first["limit_by"],
        device=first["device"],
        fits={row["op"]: row["n_star_bytes"] for row in sandbox.records(_FITS)},
        lacks_hardware=limit_gbps is None and not named,
        printed=first["printed"],
        across=len(first["hosts"] or ()) > 1,
        lacks_ranks=lacks_ranks,
        lacks_hosts=first["limit_gbps"] is None
        and first["hosts"] is None
        and not lacks_ranks
        and named,
        shows_latency=points[-1]["bytes"] <= SMALL_BYTES,
    )


def _half_bytes(points: Sequence[tuple[int, float]]) -> float | None:
    """The size from which on every measured bandwidth is half of the best or more, bytes.

    Between two measured sizes it is read off on a logarithmic scale; None where the sizes do not
    reach below half, or stay there.
    """
    half = max(gbps for _, gbps in points) / 2
    slow = [place for place, (_, gbps) in enumerate(points) if gbps < half]
    if not slow or slow[-1] + 1 == len(points):
        return None
    (below, slower), (above, faster) = points[slow[-1]], points[slow[-1] + 1]
    return float(below * (above / below) ** ((half - slower) / (faster - slower)))
