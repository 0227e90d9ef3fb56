"""The score: what ``advisor diagnose`` says about each recording, against what was done to it.

Nothing of a case reaches the diagnosis but its traces. A cause counts as found first when the
first finding at ``warning`` or above is of an accepted rule (``accepted.yaml``), its place when it
names the ranks or the host that were at fault and no other.
"""

from __future__ import annotations

import fnmatch
import statistics
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from advisor.findings import Finding, FindingsReport, Severity
from benchmarks.lab import case as lab_case
from benchmarks.lab.case import CASE_FILE, TRACES, Case, Truth
from benchmarks.lab.edits import shift_all_clocks
from benchmarks.lab.judge import judge_place

COUNTED_SLOWDOWN = 0.10
"""Faults that slow the step down by this much count."""
WEAK_SLOWDOWN = 0.03
"""From here they are reported apart; below, the fault did nothing that anyone could find."""
WORKERS = 2
TRUE_HERE = ("no-free-core",)
"""The lab's ranks do share two cores, in every recording: no alarm, and a cause only of a quota."""


@dataclass(frozen=True)
class Score:
    """One case's result. Gains are ns per step."""

    id: str
    kind: str
    strength: str
    strategy: str
    ranks: int
    seed: int
    is_control: bool
    band: str
    """'counted', 'weak', 'no effect' or 'control'."""
    slowdown: float
    place: str
    top: str
    rank_of_truth: int | None
    """1 = the accepted rule was named first; None = not among the findings >= warning."""
    place_found: str | None
    """'right', 'candidates' or 'wrong'; None when the kind has no place or was not found."""
    said: str
    """The place that the finding named."""
    predicted_gain_ns: int | None
    interval: tuple[int, int] | None
    real_gain_ns: int
    noise_ns: int
    alarms: tuple[str, ...]
    """Findings at warning or above, worst first, but those that are true of every recording."""
    error: str = ""
    probability: float | None = None
    """That the first alarm's cause is real, as it was said."""
    basis: str | None = None
    """What that rests on."""

    @property
    def gain_within_interval(self) -> bool | None:
        """Whether the interval meets the real gain as far as that is known (± its noise)."""
        if self.interval is None:
            return None
        low, high = self.interval
        return low - self.noise_ns <= self.real_gain_ns <= high + self.noise_ns


@cache
def accepted_rules() -> dict[str, list[str]]:
    """Kind of fault to the rules that name it."""
    rules: dict[str, list[str]] = YAML(typ="safe").load(
        Path(__file__).with_name("accepted.yaml").read_text()
    )
    return rules


def accepted_of(case: Case) -> tuple[str, ...]:
    """The rules that name a case's fault; none for a control."""
    return () if case.is_control else tuple(accepted_rules()[case.cause or case.kind])


def score_all(
    folder: Path, *, only: str = "*", say: Callable[[str], None], shift_all_ms: float = 0.0
) -> list[Score]:
    """Score every recording under ``folder`` whose id matches ``only``.

    With ``shift_all_ms`` each host's clock is moved by up to so much first, and recordings that
    were edited otherwise are left out.
    """
    folders = sorted(
        path.parent
        for path in folder.glob(f"*/{CASE_FILE}")
        if fnmatch.fnmatch(path.parent.name, only)
        and not (shift_all_ms and lab_case.read(path.parent).edit)
    )
    scores = []
    with ProcessPoolExecutor(WORKERS) as pool:
        for result in pool.map(partial(score_folder, shift_all_ms=shift_all_ms), folders):
            scores.append(result)
            say(f"{result.id}: {result.top}")
    return scores


def score_folder(folder: Path, *, shift_all_ms: float = 0.0) -> Score:
    """Diagnose one recording, or a copy with all hosts' clocks shifted, and compare."""
    case, truth = lab_case.read(folder), lab_case.read_truth(folder)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            traces = folder / TRACES
            if shift_all_ms:
                traces = Path(scratch) / TRACES
                shift_all_clocks(folder / TRACES, traces, case, shift_all_ms)
            report, groups = _diagnose(traces)
    except Exception as error:  # noqa: BLE001 - one broken case is a miss, not the end of all
        return _result(case, truth, None, error=f"{type(error).__name__}: {error}")
    return _result(case, truth, report, groups)


def _diagnose(traces: Path) -> tuple[FindingsReport, dict[str, str]]:
    """The report, and the descriptions of the process groups by name."""
    import advisor

    with advisor.load(traces) as run:
        rows = run.sql("SELECT process_group, description FROM process_group")
        groups = dict(zip(rows["process_group"], rows["description"], strict=True))
        return run.report, groups


def _result(
    case: Case,
    truth: Truth,
    report: FindingsReport | None,
    groups: dict[str, str] | None = None,
    *,
    error: str = "",
) -> Score:
    accepted = accepted_of(case)
    alarms = [
        finding
        for finding in (report.findings if report else ())
        if finding.severity in (Severity.CRITICAL, Severity.WARNING)
        and (finding.rule not in TRUE_HERE or finding.rule in accepted)
    ]
    position = next((n for n, finding in enumerate(alarms) if finding.rule in accepted), None)
    found = None if position is None else alarms[position]
    return Score(
        id=case.id,
        kind=case.kind,
        strength=case.strength,
        strategy=case.faulty.strategy,
        ranks=case.faulty.ranks,
        seed=case.seed,
        is_control=case.is_control,
        band=band(case, truth),
        slowdown=round(truth.slowdown, 4),
        place=describe_place(case),
        top=alarms[0].rule if alarms else "healthy",
        rank_of_truth=None if position is None else position + 1,
        place_found=None if found is None else judge_place(case, found, groups or {}),
        said="" if found is None else _said(found),
        predicted_gain_ns=None if found is None else found.savings_ns,
        interval=_interval(found),
        real_gain_ns=truth.gain_ns,
        noise_ns=truth.noise_ns,
        alarms=tuple(f"{finding.rule} ({finding.where})" for finding in alarms),
        error=error,
        probability=alarms[0].probability if alarms else None,
        basis=alarms[0].basis if alarms else None,
    )


def band(case: Case, truth: Truth) -> str:
    """How a case counts."""
    if case.is_control:
        return "control"
    if truth.slowdown >= COUNTED_SLOWDOWN:
        return "counted"
    return "weak" if truth.slowdown >= WEAK_SLOWDOWN else "no effect"


def describe_place(case: Case) -> str:
    """The place in words, for the table."""
    place = case.place
    if place.hosts:
        return f"host {place.hosts[0]} {place.direction}".strip()
    if place.ranks:
        return f"rank {place.ranks[0]}"
    return place.group


def _said(finding: Finding) -> str:
    return "; ".join(finding.links) or ", ".join(finding.hosts) or finding.where


def _interval(finding: Finding | None) -> tuple[int, int] | None:
    if finding is None or finding.savings_low_ns is None or finding.savings_high_ns is None:
        return None
    return finding.savings_low_ns, finding.savings_high_ns


def summarise(scores: Iterable[Score]) -> dict[str, Any]:
    """results.json: the cases, the controls and the counts of LAB's score."""
    scores = list(scores)
    cases = [score for score in scores if not score.is_control]
    controls = [score for score in scores if score.is_control]
    return {
        "cases": [_record(score) for score in cases],
        "controls": [
            {
                "id": score.id, "kind": score.kind, "strategy": score.strategy,
                "ranks": score.ranks, "alarms": list(score.alarms), "error": score.error,
                "probability": score.probability, "basis": score.basis,
            }
            for score in controls
        ],
        "summary": {
            **_counts([score for score in cases if score.band == "counted"]),
            "controls": len(controls),
            "false_alarms": sum(bool(score.alarms) for score in controls),
            "weak": _counts([score for score in cases if score.band == "weak"]),
            "without_effect": [score.id for score in cases if score.band == "no effect"],
            "errors": [score.id for score in scores if score.error],
        },
    }  # fmt: skip


def _counts(cases: list[Score]) -> dict[str, Any]:
    placed = [score for score in cases if score.place]
    judged = [score for score in cases if score.gain_within_interval is not None]
    widths = [
        (score.interval[1] - score.interval[0]) / score.real_gain_ns
        for score in judged
        if score.interval and score.real_gain_ns > 0
    ]
    return {
        "faults": len(cases),
        "kinds": len({score.kind for score in cases}),
        "top1": sum(score.rank_of_truth == 1 for score in cases),
        "top3": sum(score.rank_of_truth in (1, 2, 3) for score in cases),
        "with_place": len(placed),
        "place": sum(score.place_found == "right" for score in placed),
        "place_candidates": sum(score.place_found == "candidates" for score in placed),
        "with_interval": len(judged),
        "gain_within_interval": sum(score.gain_within_interval is True for score in judged),
        "interval_width_median": round(statistics.median(widths), 3) if widths else None,
    }


def _record(score: Score) -> dict[str, Any]:
    record = asdict(score)
    del record["is_control"]
    record["gain_within_interval"] = score.gain_within_interval
    return record
