"""How fast a run computes and sends: counted arithmetic over its times, and the device's peak."""

from dataclasses import dataclass
from typing import Any

from advisor.metrics.models.roofline import Arithmetic, Peak, arithmetic, device_peak
from advisor.metrics.steps.used import step_time

_COMPUTE = "SELECT median(compute_ns) FROM step_breakdown WHERE run = ? AND used"
_WHOLE = "SELECT median(window_ns), median(compute_ns) FROM run_breakdown WHERE run = ?"
_SENT = "SELECT sum(wire_bytes_per_step), sum(transfer_ns_per_step) FROM traffic WHERE run = ?"
# Times of a call of which a rank was not read hold waiting as well.
_BOUNDS = (
    "SELECT count(*) FILTER (t_is IS DISTINCT FROM 'matched') FROM collective"
    " WHERE run = ? AND step IS NOT NULL AND bytes > 0"
)


@dataclass(frozen=True)
class Speeds:
    """Per rank and step (``whole``: over the recording, which holds no used step).

    ``apart``: every call's waiting is known, so that times of transfer are times of the network.
    """

    work: Arithmetic
    device: str | None
    peak: Peak | None
    step_ns: float
    compute_ns: float
    sent_bytes: float
    sent_ns: float
    whole: bool
    apart: bool
    emulated: bool
    only_nsys: bool

    @property
    def link_gbps(self) -> float | None:
        """Bytes per ns are GB/s; None where waiting cannot be told from transfer."""
        return self.sent_bytes / self.sent_ns if self.apart and self.sent_ns else None

    @property
    def own_flops(self) -> float | None:
        """FLOP/s over the compute time."""
        return self.work.flops / (self.compute_ns * 1e-9) if self.compute_ns else None

    @property
    def achieved_flops(self) -> float | None:
        """FLOP/s over the whole step."""
        return self.work.flops / (self.step_ns * 1e-9) if self.step_ns else None


def speeds(con: Any, run: str) -> Speeds:
    """Count the run's arithmetic (once for a page: it reads every operator) and its traffic."""
    work = arithmetic(con, run)
    step, (compute,) = step_time(con, run), _one(con, _COMPUTE, run)
    whole = not step
    if whole:
        step, compute = _one(con, _WHOLE, run)
    sent_bytes, sent_ns = (None, None) if whole else _one(con, _SENT, run)
    (emulated,) = _one(con, "SELECT bool_or(compute = 'emulated') FROM run WHERE run = ?", run)
    formats = {row[0] for row in _all(con, "SELECT DISTINCT format FROM source WHERE run = ?", run)}
    names = [
        row[0] for row in _all(con, "SELECT DISTINCT device_name FROM rank WHERE run = ?", run)
    ]
    device = (names[0] or None) if len(names) == 1 else None
    return Speeds(
        work=work,
        device=device,
        peak=device_peak(device, work),
        step_ns=float(step or 0),
        compute_ns=float(compute or 0),
        sent_bytes=float(sent_bytes or 0),
        sent_ns=float(sent_ns or 0),
        whole=whole,
        apart=not _one(con, _BOUNDS, run)[0],
        emulated=bool(emulated),
        only_nsys="nsys" in formats and "kineto" not in formats,
    )


def _one(con: Any, sql: str, run: str) -> Any:
    return con.execute(sql, [run]).fetchone()


def _all(con: Any, sql: str, run: str) -> Any:
    return con.execute(sql, [run]).fetchall()
