"""The sweep as a store and a report: the baseline's trace, every trial, the recommendation."""

from pathlib import Path

from advisor import engine
from advisor.config.atomic_files import write_atomic
from advisor.errors import AdvisorError
from advisor.findings import Severity, VerdictKind
from advisor.messages import STEPS, TUNED_TRIED, say
from advisor.report import render
from advisor.report.pasted import filled_in
from advisor.report.sections import sweep as sweep_section
from advisor.store import Store
from advisor.store.columns import insert_rows
from advisor.tune.recommend import Recommendation, start_line, trial_rows
from advisor.tune.recorded import recorded, traces_in
from advisor.tune.sweep import Sweep
from advisor.tune.verdict import EMULATED
from advisor.whatif import annotate

_KINDS = {
    sweep_section.KEPT: VerdictKind.HEALTHY,
    sweep_section.MODELLED: VerdictKind.INCONCLUSIVE,
    sweep_section.INCONCLUSIVE: VerdictKind.INCONCLUSIVE,
}


def traced_baseline(sweep: Sweep) -> Path | None:
    """The folder of the first baseline trial that ran; its trace stands for the sweep.

    Raises AdvisorError where somebody removed what all of them recorded.
    """
    folders = [sweep.folder / "trials" / result.folder for result in sweep.baselines]
    found = next((folder for folder in folders if traces_in(folder)), None)
    if folders and found is None:
        raise AdvisorError(
            "the traces of the present settings were removed: no report",
            where=str(folders[0]),
            hint="recommendation.json has the results; a sweep in another folder (-o) records anew",
        )
    return found


def build_store(sweep: Sweep) -> Store | None:
    """A store (sweep.duckdb, not saved yet) with the baseline's tables and all trials."""
    folder = traced_baseline(sweep)
    if folder is None:
        return None
    store = recorded(folder, sweep.job.name, sweep.folder / "sweep.duckdb")
    try:
        annotate(store)
        insert_rows(store.con, "trial", trial_rows(sweep))
    except BaseException:
        store.close()
        raise
    return store


def write_report(store: Store, sweep: Sweep, recommendation: Recommendation) -> Path:
    """report.html: the recommendation as the verdict, the sweep, and the baseline's diagnosis."""
    store.con.execute(
        "INSERT INTO sweep VALUES (?, ?)", [sweep.job.name, recommendation.model_dump_json()]
    )
    report = filled_in(engine.diagnose(store, command="advisor tune --sweep"))
    cause = _cause(sweep, recommendation)
    verdict = report.verdict.model_copy(
        update={
            "title": recommendation.verdict,
            "cause": cause,
            "kind": _KINDS.get(cause, VerdictKind.SURE),
            "reason": "sweep",
            "severity": Severity.INFO,
            "finding": None,
            "values": {},
            "why": " ".join(filter(None, [recommendation.why, _tried(sweep, recommendation)])),
            "next_steps": [say(STEPS, "start", {"command": start_line(sweep.folder)})]
            if recommendation.recommended
            else [],
            "savings_ns": _saving(recommendation),
        }
    )
    path = sweep.folder / "report.html"
    text = render(report.model_copy(update={"verdict": verdict}), store, "html")
    if not text:
        raise AdvisorError("the report is empty", where=str(path))
    return write_atomic(path, text)


def _cause(sweep: Sweep, recommendation: Recommendation) -> str:
    if not sweep.axes:
        return sweep_section.MODELLED
    if recommendation.recommended:
        emulated = sweep.job.is_emulated
        return sweep_section.WON_EMULATED if emulated else sweep_section.WON
    compared = any(one.ratio is not None for one in sweep.tried())
    known = compared and recommendation.confidence in ("measured", EMULATED)
    return sweep_section.KEPT if known else sweep_section.INCONCLUSIVE


def _tried(sweep: Sweep, recommendation: Recommendation) -> str:
    tried, others = recommendation.tried_points - 1, recommendation.grid_points - 1
    code = "pairs" if sweep.axes else "alone"
    values = {"tried": tried, "others": others, "emulated": sweep.job.is_emulated}
    return say(TUNED_TRIED, code, values)


def _saving(recommendation: Recommendation) -> int | None:
    if recommendation.gain_share is None or recommendation.baseline_step_ns is None:
        return None
    return round(recommendation.gain_share * recommendation.baseline_step_ns)
