"""Whether a case's diagnosis names its cause, and whether the fix gives what was said."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from advisor import api
from advisor.findings import Severity
from advisor.tune.statistics import paired_gain, successive
from benchmarks.scripts.cases import Case
from benchmarks.scripts.record import traces
from benchmarks.scripts.turns import LENGTH

# A healthy job may be told at warning what its links and cores are. Everything else accuses.
_TRUE_OF_HEALTHY = {
    "exposed-communication", "fp32-gradients", "tail-bucket-exposed", "first-all-gather-exposed",
    "resharding-not-needed", "no-overlap-at-all", "strategy-choice", "no-free-core",
}  # fmt: skip
# A fault that costs less of the step than this, or nothing for sure, is none here: naming
# something larger first is right.
_LEAST_COST = 0.03


@dataclass(frozen=True)
class Judged:
    """A case's first finding against the truth; times in ns per step."""

    id: str
    first: str
    verdict: str
    right_cause: bool
    right_place: bool
    step_ns: float
    fix: list[str] = field(default_factory=list)
    savings_ns: int | None = None
    low_ns: int | None = None
    high_ns: int | None = None
    real_ns: float | None = None
    real_low_ns: float | None = None
    real_high_ns: float | None = None
    alarms: list[str] = field(default_factory=list)
    probability: float | None = None
    """Of the first finding, where it accuses: at warning or above."""
    basis: str | None = None

    @property
    def costs(self) -> bool:
        """Whether the fault costs anything here: its measured gain is above nothing, and 3 %."""
        if self.real_ns is None or self.real_low_ns is None:
            return True
        return self.real_low_ns > 0 and self.real_ns >= _LEAST_COST * self.step_ns

    @property
    def inside(self) -> bool | None:
        """Whether the real gain is in the interval; None where either was not said."""
        if self.real_ns is None or self.low_ns is None or self.high_ns is None:
            return None
        return self.low_ns <= self.real_ns <= self.high_ns

    def to_json(self) -> dict[str, Any]:
        """For results.json."""
        return {**asdict(self), "inside": self.inside, "costs": self.costs}


def judge(case: Case, out: Path, apart: Sequence[str] = ()) -> Judged:
    """Diagnose one recorded case; a faulty one is compared with its healthy one, judged before.

    The first finding is judged that is of no rule in ``apart`` (``no-free-core``, on cores that
    others used: true of the machine, and nothing of the script).
    """
    with api.load(traces(case, out / case.id)) as run:
        report = run.report
        (out / case.id / "report.txt").write_text(run.render("text"), encoding="utf-8")
        (out / case.id / "findings.json").write_text(run.render("json"), encoding="utf-8")
    steps = _run(out / case.id)["step_ns"]
    first = next((item for item in report.findings if item.rule not in apart), None)
    truth = case.truth
    accused = first if first is not None and first.severity != Severity.INFO else None
    sure = {
        "probability": accused and accused.probability,
        "basis": accused and accused.basis.value,
    }
    if truth is None:
        alarms = [
            finding.rule
            for finding in report.findings
            if finding.severity != Severity.INFO
            and finding.rule not in _TRUE_OF_HEALTHY | case.script.also.keys()
        ]
        return Judged(
            case.id, first.rule if first else "", report.verdict.title, not alarms, True,
            statistics.median(steps), alarms=alarms, **(sure if alarms else {}),
        )  # fmt: skip
    fixed = _run(out / case.id).get("fixed_ns") or _run(out / case.healthy.id)["step_ns"]
    real = real_gain(steps, fixed, mean=truth.mean)
    if first is None:
        return Judged(
            case.id, "", report.verdict.title, False, False, statistics.median(steps),
            real_ns=real[0], real_low_ns=real[1], real_high_ns=real[2],
        )  # fmt: skip
    reason = str(first.evidence.facts.get("reason", ""))
    right = first.rule in truth.cause
    if first.rule == "straggler-rank" and truth.reason:
        right = right and reason == truth.reason
    return Judged(
        case.id, first.rule + (f" ({reason})" if reason else ""), report.verdict.title, right,
        not truth.ranks or first.ranks == truth.ranks, statistics.median(steps), first.fix,
        first.savings_ns, first.savings_low_ns, first.savings_high_ns, *real, **sure,
    )  # fmt: skip


def _run(folder: Path) -> dict[str, list[int]]:
    document: dict[str, list[int]] = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    return document


def real_gain(
    faulty: Sequence[int], fixed: Sequence[int], *, mean: bool
) -> tuple[float, float, float]:
    """What the fix really gave, ns, with its 95 % interval: turn against turn, as a sweep's pairs.

    Of two runs that took no turns (older recordings), their steps in the same order.
    """
    middle = statistics.fmean if mean else statistics.median
    before, after = (
        [middle(steps[at : at + LENGTH]) for at in range(0, len(steps), LENGTH)]
        for steps in (faulty, fixed)
    )
    gain = paired_gain(before, after, successive(before))
    step_ns = middle(faulty)
    return gain.share * step_ns, gain.low * step_ns, gain.high * step_ns
