"""Arithmetic of a run, counted from recorded shapes, beside the peak of its device.

Counted are the innermost known operators: ``aten::linear`` shows what it calls, and a sharded
tensor's outer operator has the shape of the whole tensor while the inner one has the rank's.
Kernels belong to the operator in which their launch lies.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from advisor.config.hardware import find_device
from advisor.model.operator_flops import NAME, Work, operator_flops

_SQL = f"""
WITH op AS (
  SELECT rank, coalesce(tid, -1) AS tid, event_id, name, start_ns, start_ns + dur_ns AS end_ns,
    lead(start_ns) OVER (
      PARTITION BY rank, coalesce(tid, -1) ORDER BY start_ns, dur_ns DESC, event_id) AS next_ns
  FROM event WHERE run = $run AND class = 'cpu_op' AND dur_ns >= 0
    AND starts_with(name, 'aten::') AND regexp_full_match(name, '{NAME}')),
leaf AS (SELECT * FROM op WHERE next_ns IS NULL OR next_ns >= end_ns),
span AS (
  SELECT rank, step, coalesce(host_start_ns, start_ns) AS s, coalesce(host_end_ns, end_ns) AS e
  FROM step WHERE run = $run AND used),
inside AS (
  SELECT leaf.*, step FROM leaf LEFT JOIN span
    ON span.rank = leaf.rank AND leaf.start_ns >= s AND leaf.start_ns < e
  WHERE step IS NOT NULL OR NOT EXISTS (FROM span)),
launch AS (
  SELECT rank, coalesce(tid, -1) AS tid, correlation, start_ns FROM event
  WHERE run = $run AND class = 'runtime' AND correlation > 0),
launched AS (
  SELECT inside.rank, inside.event_id, launch.correlation FROM launch ASOF JOIN inside
    ON launch.rank = inside.rank AND launch.tid = inside.tid AND launch.start_ns >= inside.start_ns
  WHERE launch.start_ns < inside.end_ns),
kernel AS (
  SELECT launched.rank, launched.event_id, sum(dur_ns) AS ns FROM launched JOIN event
    ON event.run = $run AND event.rank = launched.rank AND device IS NOT NULL
    AND event.class = 'compute' AND event.correlation = launched.correlation
  GROUP BY ALL)
SELECT inside.rank, inside.name, input_dims, input_types, concrete_inputs, count(*) AS calls,
  count(ns) AS timed, sum(ns) AS ns, sum(end_ns - start_ns) AS host_ns
FROM inside LEFT JOIN kernel USING (rank, event_id)
LEFT JOIN comm_event c ON c.run = $run AND c.rank = inside.rank AND c.event_id = inside.event_id
GROUP BY ALL
"""


@dataclass
class Arithmetic:
    """What was counted: sums per rank and step (over the whole recording without steps)."""

    by_operator: Counter[str] = field(default_factory=Counter)
    by_dtype: Counter[str] = field(default_factory=Counter)
    by_rank: dict[int, float] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)
    calls: float = 0.0
    timed_flops: Counter[str] = field(default_factory=Counter)
    timed_ns: Counter[str] = field(default_factory=Counter)

    @property
    def flops(self) -> float:
        """Per rank and step, the mean."""
        return float(sum(self.by_dtype.values()))

    def speed(self, dtype: str) -> float | None:
        """FLOP/s while the kernels (on CPU: the operators) of this element type ran."""
        spent = self.timed_ns[dtype]
        return self.timed_flops[dtype] / (spent * 1e-9) if spent else None


@dataclass(frozen=True)
class Peak:
    """Dense FLOP/s of a device for the run's mix of element types."""

    flops: float
    source: str
    by_dtype: dict[str, float]


def arithmetic(con: Any, run: str) -> Arithmetic:
    """Count the run's FLOPs; operators that cannot be counted stand in ``left_out`` by reason."""
    result = Arithmetic()
    hosts = dict(
        con.execute("SELECT rank, timeline = 'host' FROM rank WHERE run = ?", [run]).fetchall()
    )
    steps = dict(
        con.execute(
            "SELECT rank, count(*) FROM step WHERE run = ? AND used GROUP BY rank", [run]
        ).fetchall()
    )
    found = con.execute(_SQL, {"run": run}).fetchall()
    ranks = len({row[0] for row in found})
    known: dict[tuple[Any, ...], Work | str] = {}
    by_rank: defaultdict[int, float] = defaultdict(float)
    for rank, name, dims, types, concrete, calls, timed, ns, host_ns in found:
        key = (name, dims, types, concrete)
        if key not in known:
            known[key] = operator_flops(*key)
        work = known[key]
        if isinstance(work, str):
            result.left_out[work] += calls
            continue
        share = 1 / (steps.get(rank, 1) * ranks)
        total = work.flops * calls
        by_rank[rank] += total / steps.get(rank, 1)
        result.calls += calls * share
        result.by_operator[name] += total * share
        result.by_dtype[work.dtype] += total * share
        spent, times = (host_ns, calls) if hosts.get(rank) else (ns, timed)
        if spent:
            result.timed_flops[work.dtype] += work.flops * times * share
            result.timed_ns[work.dtype] += float(spent) * share
    result.by_rank = dict(sorted(by_rank.items()))
    return result


def device_peak(device_name: str | None, counted: Arithmetic) -> Peak | None:
    """Peak for this mix of element types; None where the hardware table does not have it.

    Matrix products of fp32 run as TF32 where that is allowed, which a trace does not say: a speed
    above the fp32 peak shows that it was.
    """
    device = find_device(device_name) if device_name else None
    if device is None or not counted.flops:
        return None
    peaks: dict[str, float] = {}
    for dtype in counted.by_dtype:
        peak = device.peak_flops(dtype)
        if dtype == "fp32" and peak and (counted.speed(dtype) or 0.0) > peak:
            peak = device.peak_flops("tf32")
        if peak is None:
            return None
        peaks[dtype] = peak
    at_peak = sum(amount / peaks[dtype] for dtype, amount in counted.by_dtype.items())
    return Peak(counted.flops / at_peak, device.peak_source, peaks)
