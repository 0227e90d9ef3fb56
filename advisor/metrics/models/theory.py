"""Bytes on the wire, memory and FLOPs that theory gives for a recorded run, beside the measured.

METRICS section 7 has the traffic of each strategy in closed form; the recording (`advisor profile`)
says what was cut how, so the formulas need no guess. Where an implementation is known to move more
or less than the textbook, that is a named correction with its own bytes: a measured figure equals
theory, or the corrections explain the difference, or it stays unexplained and is shown as such.
"""

from dataclasses import dataclass, field
from typing import Any

from advisor.config.hardware import peak_flops
from advisor.metrics.models import workload
from advisor.metrics.models.theory_size import flops_per_step, memory_bytes
from advisor.metrics.models.theory_traffic import corrections, terms, unpredictable
from advisor.vocabulary.bandwidth import bus_factor

_TOLERANCE = 0.02


@dataclass
class OpTheory:
    """One operation: bytes each rank sends per step (mean over ranks), by theory and measured."""

    op: str
    theory_bytes: float = 0.0
    formulas: list[str] = field(default_factory=list)
    corrections: list[tuple[str, float]] = field(default_factory=list)
    measured_bytes: float | None = None
    unpredictable: str = ""

    @property
    def expected_bytes(self) -> float:
        """Theory and its corrections."""
        return self.theory_bytes + sum(size for _, size in self.corrections)

    @property
    def verdict(self) -> str:
        """``equal``, ``explained``, ``not predicted``, ``not measured`` or ``differs``."""
        if self.measured_bytes is None:
            return "not measured"
        if _close(self.measured_bytes, self.theory_bytes):
            return "equal"
        if _close(self.measured_bytes, self.expected_bytes):
            return "explained"
        return "not predicted" if self.unpredictable else "differs"

    @property
    def explanation(self) -> str:
        """Why theory and measurement differ; empty where they do not."""
        if self.verdict == "not predicted":
            return self.unpredictable
        if self.verdict == "explained":
            return "; ".join(
                f"{'+' if size > 0 else '-'}{abs(size) / 1e6:.3g} MB: {why}"
                for why, size in self.corrections
            )
        if self.verdict == "differs" and self.measured_bytes is not None:
            rest = self.measured_bytes - self.expected_bytes
            return f"{rest / 1e6:+.3g} MB are not explained"
        return ""


@dataclass(frozen=True)
class Theory:
    """What theory says of one run; ``memory_bytes`` is the largest rank's estimate."""

    ops: list[OpTheory]
    memory_bytes: float | None
    flops_per_step: float | None
    tokens_per_step: int
    peak_flops: float | None
    peak_source: str | None

    def mfu(self, step_ns: float) -> float | None:
        """Model FLOPs utilisation of the whole job; None where no peak is known."""
        if not self.flops_per_step or not self.peak_flops or not step_ns:
            return None
        return self.flops_per_step / (step_ns * 1e-9) / self.peak_flops


def theory(con: Any, run: str, *, device_peak_flops: float | None = None) -> Theory | None:
    """Theory for a run that `advisor profile` recorded; None for any other.

    ``device_peak_flops``: FLOP/s of one rank's device, where the hardware table is not to be asked.
    """
    rows = con.execute(
        "SELECT r.strategy, r.workload, k.metadata, k.device_name FROM run r JOIN rank k USING "
        "(run) WHERE r.run = ? ORDER BY k.rank",
        [run],
    ).fetchall()
    try:
        found = workload.read(rows)
        if found is None:
            return None
        ops = _traffic(found)
        memory = max(memory_bytes(found, rank) for rank in found.ranks)
        flops = flops_per_step(found)
    except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError):
        return None  # recorded by an older version, or damaged: no theory rather than a wrong one
    _measure(con, run, ops)
    peak = peak_flops(str(rows[0][3] or ""), str(found.workload.get("precision")))
    if device_peak_flops is not None:
        peak = device_peak_flops, "given by the user"
    return Theory(
        ops=sorted(ops.values(), key=lambda item: -(item.measured_bytes or 0)),
        memory_bytes=memory,
        flops_per_step=flops,
        tokens_per_step=found.tokens_per_step,
        peak_flops=None if peak is None else peak[0] * len(rows),
        peak_source=None if peak is None else peak[1],
    )


def _close(left: float, right: float) -> bool:
    return abs(left - right) <= _TOLERANCE * max(left, right)


def _traffic(run: workload.Recorded) -> dict[str, OpTheory]:
    """Theory by operation, the mean over ranks."""
    ops: dict[str, OpTheory] = {}
    for rank in run.ranks:
        for op, formula, size in terms(run, rank):
            entry = ops.setdefault(op, OpTheory(op))
            entry.theory_bytes += size / len(run.ranks)
            if formula not in entry.formulas:
                entry.formulas.append(formula)
        for op, why, size in corrections(run, rank):
            entry = ops.setdefault(op, OpTheory(op))
            known = dict(entry.corrections)
            known[why] = known.get(why, 0.0) + size / len(run.ranks)
            entry.corrections = list(known.items())
    for op, entry in ops.items():
        entry.unpredictable = unpredictable(run, op)
    return ops


def _measure(con: Any, run: str, ops: dict[str, OpTheory]) -> None:
    """Add the measured bytes: those each rank sends in a used step, mean over ranks."""
    rows = con.execute(
        "WITH s AS (SELECT rank, step FROM step WHERE run = ? AND used) "
        "SELECT c.op, c.group_size, sum(c.bytes) / (SELECT count(*) FROM s) FROM collective c "
        "JOIN s USING (rank, step) WHERE c.run = ? AND c.op NOT IN ('recv', 'barrier') "
        "GROUP BY c.op, c.group_size",
        [run, run],
    ).fetchall()

    for op, size, total in rows:
        share = bus_factor(str(op), size)
        if total is None or share is None:
            continue
        entry = ops.setdefault(str(op), OpTheory(str(op)))
        entry.measured_bytes = (entry.measured_bytes or 0.0) + float(total) * share
