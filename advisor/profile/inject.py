"""Faults for trying the tool out: ``sleep:rank=1,ms=30`` really sleeps in one rank, every step."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from advisor.errors import AdvisorError

_KINDS = {
    "sleep": "sleep ms milliseconds before the forward pass",
    "die": "exit at the given step, as a crash does",
    "hang": "stop for good at the given step",
}


@dataclass(frozen=True)
class Fault:
    """One fault in one rank; ``from_step`` is counted over all steps, warm-up included."""

    kind: str
    rank: int
    ms: float = 0.0
    from_step: int = 0

    @classmethod
    def parse(cls, text: str) -> Fault:
        """Read ``kind:name=value,...``. Raises AdvisorError."""
        kind, _, rest = text.partition(":")
        hint = "e.g. --inject sleep:rank=1,ms=30 or --inject die:rank=1,step=3"
        if kind not in _KINDS:
            raise AdvisorError(f"unknown fault '{kind}'", where="--inject", hint=hint)
        values = dict(part.partition("=")[::2] for part in rest.split(",") if part)
        try:
            fault = cls(
                kind=kind,
                rank=int(values.pop("rank")),
                ms=float(values.pop("ms", 0)),
                from_step=int(values.pop("step", 0)),
            )
        except (KeyError, ValueError) as error:
            raise AdvisorError(f"cannot read '{text}'", where="--inject", hint=hint) from error
        if values or fault.ms < 0 or (kind == "sleep" and fault.ms == 0):
            raise AdvisorError(f"cannot read '{text}'", where="--inject", hint=hint)
        return fault

    def __str__(self) -> str:
        return f"{self.kind}:rank={self.rank},ms={self.ms:g},step={self.from_step}"

    def strike(self, rank: int, step: int) -> None:
        """Do it, if this is the rank and the step."""
        if rank != self.rank or step < self.from_step:
            return
        if self.kind == "sleep":
            time.sleep(self.ms / 1000)
        elif self.kind == "die":
            os._exit(17)
        else:
            while True:
                time.sleep(3600)
