"""Faults for trying the tool out: ``sleep:rank=1,ms=30`` really sleeps in one rank, every step."""

import math
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from advisor.errors import AdvisorError

# Each kind with an example and what it does; --help and the errors list them.
KINDS = {
    "sleep": ("sleep:rank=1,ms=30", "sleeps so many ms before every forward pass"),
    "die": ("die:rank=1,step=3", "exits in that step, as a crash does"),
    "hang": ("hang:rank=1,step=3", "stops for good in that step"),
}
HELP = (
    "A real fault in one rank, for trying the tool out: "
    + ", or ".join(f"{example} ({does})" for example, does in KINDS.values())
    + ". Ranks and steps count from 0, warm-up steps too; may be given several times."
)
_HINT = "e.g. " + ", ".join(f"--inject {example}" for example, _ in KINDS.values())


@dataclass(frozen=True)
class Fault:
    """One fault in one rank; ``from_step`` is counted over all steps, warm-up included."""

    kind: str
    rank: int
    ms: float = 0.0
    from_step: int = 0

    @classmethod
    def parse(cls, text: str) -> "Fault":
        """Read ``kind:name=value,...``. Raises AdvisorError."""
        kind, _, rest = text.partition(":")
        if kind not in KINDS:
            raise AdvisorError(f"unknown fault '{kind}'", where="--inject", hint=_HINT)
        values = dict(part.partition("=")[::2] for part in rest.split(",") if part)
        try:
            fault = cls(
                kind=kind,
                rank=int(values.pop("rank")),
                ms=float(values.pop("ms", 0)),
                from_step=int(values.pop("step", 0)),
            )
        except (KeyError, ValueError) as error:
            raise AdvisorError(f"cannot read '{text}'", where="--inject", hint=_HINT) from error
        # Only a sleep lasts a time, and it must have one.
        is_fit = fault.ms > 0 if kind == "sleep" else fault.ms == 0
        if values or not is_fit or not math.isfinite(fault.ms) or fault.from_step < 0:
            raise AdvisorError(f"cannot read '{text}'", where="--inject", hint=_HINT)
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


def parse_all(texts: Sequence[str], jobs: Iterable[tuple[str, int, int]]) -> tuple[Fault, ...]:
    """Read the faults for jobs of (name, ranks, steps in all).

    Raises AdvisorError for one that cannot be read, and for one that would never strike: a rank or
    a step that a job does not have.
    """
    faults = tuple(Fault.parse(text) for text in texts)
    for name, ranks, steps in jobs:
        for text, fault in zip(texts, faults, strict=True):
            if not 0 <= fault.rank < ranks:
                has = f"ranks 0 to {ranks - 1}" if ranks > 1 else "rank 0 only"
                raise AdvisorError(
                    f"'{text}' would never strike: {name} has {has}",
                    where="--inject",
                    hint=f"{'name one of these' if ranks > 1 else 'rank=0'}, or raise --nproc",
                )
            if fault.from_step >= steps:
                raise AdvisorError(
                    f"'{text}' would never strike: {name} has steps 0 to {steps - 1}, "
                    "warm-up included",
                    where="--inject",
                    hint=f"step={steps - 1} or less",
                )
    return faults
