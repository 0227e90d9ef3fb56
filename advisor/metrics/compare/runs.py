"""Several runs against the first of them: figures, differences, operators, theory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from advisor.errors import AdvisorError
from advisor.findings import Finding
from advisor.metrics.compare import figures as compare
from advisor.metrics.compare.figures import OperatorChange, RunFigures
from advisor.metrics.compare.jobs import Unlike, unlike
from advisor.metrics.compare.significance import Difference, difference
from advisor.metrics.models.theory import Theory, theory
from advisor.metrics.timeline.parts import Parts, by_run


@dataclass(frozen=True)
class Timed:
    """What profile.json says beside the traces: steps timed without the profiler, tokens."""

    step_ns: Sequence[int] = ()
    tokens_per_step: int | None = None


@dataclass(frozen=True)
class Comparison:
    """``runs`` with the base first; ``differences`` and ``operators`` are of the others.

    A run without recorded operators is not in ``operators``; one with none changed has no rows.
    ``parts``: where the median step of each goes, by the shares of its mean step; ``findings``:
    what each is diagnosed with; ``unlike``: by run what makes it another job than the base.
    """

    runs: list[RunFigures]
    theories: list[Theory | None]
    differences: list[Difference] = field(default_factory=list)
    operators: dict[str, list[OperatorChange]] = field(default_factory=dict)
    parts: dict[str, Parts] = field(default_factory=dict)
    findings: Sequence[Finding] = ()
    unlike: dict[str, list[Unlike]] = field(default_factory=dict)

    @property
    def base(self) -> RunFigures:
        """The run that the others are compared with."""
        return self.runs[0]


def tested_samples_ns(*rows: RunFigures) -> list[list[int]]:
    """Of each the steps that tell a difference from noise: like is compared with like.

    Those timed without the profiler, where each has some, else the traced ones.
    """
    if all(row.unprofiled_samples_ns for row in rows):
        return [row.unprofiled_samples_ns for row in rows]
    return [row.step_samples_ns for row in rows]


def step_difference(base: RunFigures, row: RunFigures) -> Difference:
    """How the step times differ, and whether beyond noise.

    Steps timed without the profiler that say the opposite leave it within noise.
    """
    share = row.step_ns / base.step_ns - 1
    return difference(*tested_samples_ns(base, row), share=share)


def comparison(
    con: Any,
    runs: Mapping[str, Timed],
    *,
    operators: int = 10,
    device_peak_flops: float | None = None,
    findings: Sequence[Finding] = (),
) -> Comparison:
    """Compare runs of one store with the first. Raises AdvisorError for one without a used step.

    Tokens that profile.json does not tell come from the recorded workload, where there is one.
    ``findings`` are those of all runs. ``device_peak_flops`` (FLOP/s of one rank's device) stands
    in for the hardware table.
    """
    found, theories = [], []
    for name, timed in runs.items():
        known = theory(con, name, device_peak_flops=device_peak_flops)
        tokens = timed.tokens_per_step
        if tokens is None and known is not None:
            tokens = known.tokens_per_step
        row = compare.figures(con, name, timed_ns=timed.step_ns, tokens_per_step=tokens)
        if row is None:
            raise AdvisorError(
                "no step in this run is complete on all ranks",
                where=name,
                hint="record at least two steps",
            )
        found.append(row)
        theories.append(known)
    base, others = found[0], found[1:]
    parts = by_run(con, [row.run for row in found])
    return Comparison(
        runs=found,
        theories=theories,
        differences=[step_difference(base, row) for row in others],
        operators={
            row.run: changed
            for row in others
            if (changed := compare.operators(con, base.run, row.run, limit=operators)) is not None
        },
        parts={row.run: parts[row.run].of_step(row.step_ns) for row in found if row.run in parts},
        findings=findings,
        unlike={row.run: unlike_base for row in others if (unlike_base := unlike(base, row))},
    )
