"""Whether a case's diagnosis names its cause, and whether the fix gives what was said."""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from advisor import api
from advisor.findings import Severity
from benchmarks.scripts.cases import Case
from benchmarks.scripts.record import traces

# A healthy job may be told at warning what its links and cores are. Everything else accuses.
_TRUE_OF_HEALTHY = {
    "exposed-communication", "fp32-gradients", "tail-bucket-exposed", "first-all-gather-exposed",
    "resharding-not-needed", "no-overlap-at-all", "strategy-choice", "no-free-core",
}  # fmt: skip
_DRAWS = 2_000
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
    recorded_ns: float | None = None
    """What the recorded steps fell by. The timed ones ran before them; where other processes share
    the cores, those may have come or gone between."""
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
        return self._within(self.real_ns)

    @property
    def inside_recorded(self) -> bool | None:
        """The same of what the recorded steps fell by."""
        return self._within(self.recorded_ns)

    def _within(self, gain_ns: float | None) -> bool | None:
        if gain_ns is None or self.low_ns is None or self.high_ns is None:
            return None
        return self.low_ns <= gain_ns <= self.high_ns

    def to_json(self) -> dict[str, Any]:
        """For results.json."""
        own = {name: getattr(self, name) for name in ("inside", "inside_recorded", "costs")}
        return {**asdict(self), **own}


def judge(case: Case, out: Path, apart: Sequence[str] = ()) -> Judged:
    """Diagnose one recorded case; a faulty one is compared with its healthy one, judged before.

    The first finding is judged that is of no rule in ``apart`` (``no-free-core``, on cores that
    others used: true of the machine, and nothing of the script).
    """
    with api.load(traces(case, out / case.id)) as run:
        report = run.report
        (out / case.id / "report.txt").write_text(run.render("text"), encoding="utf-8")
        (out / case.id / "findings.json").write_text(run.render("json"), encoding="utf-8")
    steps = _steps(out / case.id)
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
    real = _gain(steps, _steps(out / case.healthy.id), mean=truth.mean)
    recorded = [_recorded(out / one.id) for one in (case, case.healthy)]
    fell_ns = None if truth.mean else recorded[0] - recorded[1]  # the mean is not written down
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
        first.savings_ns, first.savings_low_ns, first.savings_high_ns, *real, fell_ns, **sure,
    )  # fmt: skip


def _steps(folder: Path) -> list[int]:
    document = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    return [int(step) for step in document["step_ns"]]


def _recorded(folder: Path) -> float:
    """The median recorded step, ns."""
    document = json.loads((folder / "findings.json").read_text(encoding="utf-8"))
    return float(document["runs"][0]["step_ns_median"])


def _gain(before: Sequence[int], after: Sequence[int], *, mean: bool) -> tuple[float, float, float]:
    """What the fix really gave, with its 95 % interval (bootstrap over steps)."""
    middle = statistics.fmean if mean else statistics.median
    generator = random.Random(0)
    draws = sorted(
        middle(generator.choices(before, k=len(before)))
        - middle(generator.choices(after, k=len(after)))
        for _ in range(_DRAWS)
    )
    return middle(before) - middle(after), draws[_DRAWS // 40], draws[-_DRAWS // 40]
