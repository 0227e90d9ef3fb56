"""What ``advisor diagnose`` says about each recording, against what was done to it.

Nothing of a case reaches the diagnosis but its traces. Every figure is of simulated recordings.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from advisor.findings import Finding, FindingsReport, Severity
from benchmarks.gpulab.cases import Case
from benchmarks.gpulab.judge import judge_cause, judge_fix, judge_place
from benchmarks.gpulab.make import CASE_FILE, TRACES, read_case

STRONG, WEAK = 0.10, 0.03
"""Shares of the step from which a fault counts, and from which it is reported apart."""
WORKERS = 2
SCORE_FILE = "score.json"


@dataclass(frozen=True)
class Score:
    """One case's result. Gains are ns per step."""

    id: str
    kind: str
    strategy: str
    ranks: int
    hosts: int
    edit: str
    is_control: bool
    band: str
    share: float
    place: str
    top: str
    rank_of_truth: int | None
    place_found: str | None
    said: str
    fix_right: bool | None
    first_fix: str
    gain_ns: int | None
    low_ns: int | None
    high_ns: int | None
    truth_ns: int
    alarms: tuple[str, ...]
    changed: str = ""
    error: str = ""
    probability: float | None = None
    """That the first alarm's cause is real, as it was said."""
    basis: str | None = None
    """What that rests on."""
    verdict: str = ""
    why: str = ""

    @property
    def inside(self) -> bool | None:
        """Whether the interval of the gain holds the truth."""
        if self.low_ns is None or self.high_ns is None:
            return None
        return self.low_ns <= self.truth_ns <= self.high_ns

    @property
    def gain_error(self) -> float | None:
        """Relative error of the gain."""
        if self.gain_ns is None or self.truth_ns <= 0:
            return None
        return self.gain_ns / self.truth_ns - 1


def score_all(folder: Path, *, only: str, resume: bool, say: Callable[[str], None]) -> list[Score]:
    """Score every recording under ``folder``; with ``resume`` those scored before are kept."""
    folders = sorted(path.parent for path in folder.glob(f"*/{CASE_FILE}") if only in str(path))
    done = {path: _read(path) for path in folders if resume and (path / SCORE_FILE).exists()}
    todo = [path for path in folders if path not in done]
    with ProcessPoolExecutor(WORKERS) as pool:
        for path, result in zip(todo, pool.map(score_folder, todo), strict=True):
            done[path] = result
            say(f"{result.id}: {result.top}{' ' + result.error if result.error else ''}")
    return [done[path] for path in folders]


def _read(folder: Path) -> Score:
    record = json.loads((folder / SCORE_FILE).read_text())
    return Score(**{**record, "alarms": tuple(record["alarms"])})


def score_folder(folder: Path) -> Score:
    """Diagnose one recording and compare; the result is kept beside it."""
    case = read_case(folder)
    try:
        import advisor

        with advisor.load(folder / TRACES) as recording:
            score = compare(case, recording.report)
    except Exception as error:  # noqa: BLE001 - one broken case is a miss, not the end of all
        score = compare(case, None, f"{type(error).__name__}: {error}")
    (folder / SCORE_FILE).write_text(json.dumps(asdict(score), indent=1) + "\n")
    return score


def compare(case: Case, report: FindingsReport | None, error: str = "") -> Score:
    """A report against a case's truth."""
    alarms = [
        finding
        for finding in (report.findings if report else ())
        if finding.severity in (Severity.CRITICAL, Severity.WARNING)
    ]
    position = next((i for i, one in enumerate(alarms) if judge_cause(case, one)), None)
    found = None if position is None else alarms[position]
    first = alarms[0] if alarms else None
    return Score(
        id=case.id,
        kind=case.kind,
        strategy=case.strategy,
        ranks=case.ranks,
        hosts=case.hosts,
        edit=case.edit,
        is_control=case.is_control,
        band=band(case),
        share=round(case.share, 4),
        place=describe(case),
        top=first.rule if first else "healthy",
        rank_of_truth=None if position is None else position + 1,
        place_found=judge_place(case, found) if found else None,
        said=_said(found or first),
        fix_right=None if case.is_control else bool(first and judge_fix(case, first)),
        first_fix=first.fix[0] if first and first.fix else "",
        gain_ns=found.savings_ns if found else None,
        low_ns=found.savings_low_ns if found else None,
        high_ns=found.savings_high_ns if found else None,
        truth_ns=case.gains.get(found.rule, case.gain_ns) if found else case.gain_ns,
        alarms=tuple(f"{finding.rule} ({finding.where})" for finding in alarms),
        changed=case.faulty[:160],
        error=error,
        probability=first.probability if first else None,
        basis=first.basis if first else None,
        verdict=report.verdict.headline() if report else "",
        why=report.verdict.why if report else "",
    )


def band(case: Case) -> str:
    """'strong', 'weak', 'no effect' or 'control'."""
    if case.is_control:
        return "control"
    if case.share >= STRONG:
        return "strong"
    return "weak" if case.share >= WEAK else "no effect"


def describe(case: Case) -> str:
    """The location in words."""
    place = case.place
    if place.stage >= 0:
        return f"stage {place.stage}"
    if place.edge:
        return f"edge {place.edge[0]} - {place.edge[1]}"
    if place.hosts:
        return f"host {', '.join(map(str, place.hosts))} {place.direction}".strip()
    if place.ranks:
        return f"rank {', '.join(map(str, place.ranks))}"
    return place.group


def _said(finding: Finding | None) -> str:
    if finding is None:
        return ""
    return "; ".join(finding.links) or ", ".join(finding.hosts) or finding.where


def summarise(scores: Iterable[Score], seed: str) -> dict[str, Any]:
    """results.json."""
    scores = list(scores)
    faults = [score for score in scores if not score.is_control]
    counted = [score for score in faults if score.band in ("strong", "weak")]
    controls = [score for score in scores if score.is_control]
    sizes = ((2, 4), (5, 8), (9, 16), (17, 64), (65, 512))
    return {
        "label": "simulated NCCL recordings; no figure here was measured on a GPU",
        "seed": seed,
        "summary": {
            "strong": counts([s for s in faults if s.band == "strong"]),
            "weak": counts([s for s in faults if s.band == "weak"]),
            "all": counts(counted),
            "without_effect": [s.id for s in faults if s.band == "no effect"],
            "controls": len(controls),
            "false_alarms": sum(bool(s.alarms) for s in controls),
            "errors": [s.id for s in scores if s.error],
            "longest_verdict": max((len(s.verdict) for s in scores), default=0),
            "longest_why_words": max((_longest_sentence(s.why) for s in scores), default=0),
        },
        "by_kind": {
            kind: counts([s for s in counted if s.kind == kind])
            for kind in sorted({s.kind for s in counted})
        },
        "by_ranks": {
            f"{low}-{high}": counts([s for s in counted if low <= s.ranks <= high])
            for low, high in sizes
        },
        "by_edit": {
            edit or "none": counts([s for s in counted if s.edit == edit])
            for edit in sorted({s.edit for s in counted})
        },
        "cases": [asdict(s) | {"inside": s.inside, "gain_error": s.gain_error} for s in faults],
        "controls": [asdict(s) for s in controls],
    }


def _longest_sentence(text: str) -> int:
    """Words of the longest sentence."""
    return max(len(sentence.split()) for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z0-9`])", text))


def counts(scores: list[Score]) -> dict[str, Any]:
    """The figures of one set of faults."""
    placed = [s for s in scores if s.place]
    judged = [s for s in scores if s.inside is not None]
    errors = [abs(e) for s in scores if (e := s.gain_error) is not None]
    return {
        "faults": len(scores),
        "kinds": len({s.kind for s in scores}),
        "first": sum(s.rank_of_truth == 1 for s in scores),
        "named": sum(s.rank_of_truth is not None for s in scores),
        "with_place": len(placed),
        "place": sum(s.place_found == "right" for s in placed),
        "place_candidates": sum(s.place_found == "candidates" for s in placed),
        "with_interval": len(judged),
        "inside": sum(s.inside is True for s in judged),
        "gain_error_median": round(statistics.median(errors), 3) if errors else None,
        "fix": sum(s.fix_right is True for s in scores),
    }
