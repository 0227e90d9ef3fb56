"""A calibrated machine's curves for the calls of a run: what the recording does not tell of them.

The recording says what its own calls take; where it does not part latency from bytes, or holds no
such size, the calibrated model says how the time grows, and the recording how long it is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from advisor.config.hardware import device_of, find_device, machine
from advisor.errors import AdvisorError
from advisor.model.nccl.calibration import Calibration
from advisor.model.nccl.cost import Prediction, predict
from advisor.model.nccl.version import parse_covered
from advisor.model.topology_machine import topology_of
from advisor.whatif.program import Call, Program
from advisor.whatif.slow_places import hosts_of

_Z90 = 1.645


@dataclass(eq=False)
class CalibratedCurve:
    """Calls of one operation in one group by the calibrated model; keeps which were asked for."""

    op: str
    ranks: int
    calibration: Calibration
    model: Callable[[int], Prediction]
    asked: set[int] = field(default_factory=set)

    @property
    def kind(self) -> str:
        """Of which calls, in words."""
        return f"{self.op} of {self.ranks} ranks"

    def time_ns(self, size: int) -> float:
        """Time of a call of ``size`` bytes."""
        self.asked.add(size)
        return 1e3 * self.calibration.time_us(self.model(size))[0]

    def latency(self, size: int) -> tuple[float, float]:
        """The share of that time that no byte takes, and its standard deviation."""
        self.asked.add(size)
        value, low, high = self.calibration.latency_us(self.model(size))
        time = self.calibration.time_us(self.model(size))[0]
        return value / time, (high - low) / (2 * _Z90) / time

    def scale(self, programs: Sequence[Program]) -> float:
        """How many times the calibrated time this run's own calls take, in the middle."""
        own = [
            call.service_ns / (1e3 * self.calibration.time_us(self.model(call.bytes))[0])
            for program in programs
            for call in program.calls.values()
            if call.op == self.op and len(call.ranks) == self.ranks and call.bytes
        ]
        return float(np.median(own))


@dataclass
class Calibrated:
    """The curves of a run's kinds of calls, made as they are asked for."""

    calibration: Calibration
    hosts: dict[int, str]
    _curves: dict[tuple[str, int], CalibratedCurve | None] = field(default_factory=dict)

    @classmethod
    def of_run(cls, con: Any, run: str, calibration: Calibration) -> "Calibrated":
        """For a run of the machine that was measured.

        Raises AdvisorError where it is another: other devices, gloo, an unknown machine.
        """
        measured = device_of(machine(calibration.machine))
        sql = "SELECT DISTINCT device_name, backend FROM rank WHERE run = ? ORDER BY ALL"
        for device, backend in con.execute(sql, [run]).fetchall():
            found = find_device(device) if device else None
            other = device if found is None else found.name
            if backend not in (None, "nccl"):
                other = f"{backend} calls"
            elif device is None or (found is not None and found.name == measured.name):
                continue
            raise AdvisorError(
                f"a calibration of {calibration.machine} ({measured.name}) says nothing of {other}",
                where=run,
                hint="measure the machine that the run was recorded on: advisor calibrate TABLES "
                "--hardware NAME --nodes N; or leave --calibration out",
            )
        return cls(calibration, hosts_of(con, run))

    def __call__(self, call: Call) -> CalibratedCurve | None:
        """The curve of calls like this one; None where none was measured of such a group."""
        key = call.op, len(call.ranks)
        if key not in self._curves:
            self._curves[key] = self._made(call)
        return self._curves[key]

    def used(self) -> list[CalibratedCurve]:
        """The curves that some answer rests on."""
        return [curve for curve in self._curves.values() if curve is not None and curve.asked]

    def _made(self, call: Call) -> CalibratedCurve | None:
        nodes = len({self.hosts.get(rank, str(rank)) for rank in call.ranks})
        if not self.calibration.covers(nodes) or len(call.ranks) % nodes:
            return None
        version = parse_covered(self.calibration.nccl)

        @lru_cache(256)
        def model(size: int) -> Prediction:
            return predict(topology, call.op, size, version)

        try:
            shape = machine(self.calibration.machine)
            topology = topology_of(shape, nodes, len(call.ranks) // nodes)
            known = model(max(call.bytes or 1, 1)).choice is not None
        except AdvisorError:  # an operation or group that NCCL's model does not cover
            return None
        return CalibratedCurve(call.op, len(call.ranks), self.calibration, model) if known else None
