"""What runs beside each other come to, in words: a headline, why, and the rows that matter."""

from statistics import mean, median
from typing import Any

from advisor.findings import Finding
from advisor.messages import COMPARED, COMPARED_NOTES, MOST_TITLE, say
from advisor.metrics.compare.changes import because, changes
from advisor.metrics.compare.figures import RunFigures
from advisor.metrics.compare.new_findings import NewFinding, new_finding
from advisor.metrics.compare.runs import Comparison, step_difference, tested_samples_ns
from advisor.metrics.compare.significance import Difference
from advisor.report.clean import shorten_middle
from advisor.report.comparison_figures import signed, signed_share
from advisor.report.figures import KINDS
from advisor.report.summary import place, place_beside, title
from advisor.vocabulary.words import about, lower_first, short

_MOST_ROWS = 5
_MOST_OPS = 2
_OTHER_CALLS = 0.2  # of the calls; an evaluation in one of the recordings moves them by less
_MOST_NAME = 24  # of a run, in letters, in a headline that is too long
_SEEN = 0.005  # of the step: a kind of time that no bar shows
_LONG = 1.5  # times the median: as a step that counts as warm-up
_LITTLE = 0.01  # of the step: less has no why where it is not sure
_MUCH = 0.1  # of the mean step


def headline(found: Comparison) -> str:
    """'ddp is 31 % slower than single, because …'; of more runs which one is fastest, and where
    none is, the one that differs most from the base."""
    if len(found.runs) == 2:
        return _against(found, found.runs[1], found.differences[0])
    ranked = sorted(found.runs, key=lambda row: row.step_ns)
    first, alike = ranked[0], None
    for row in ranked[1:]:
        if not step_difference(first, row).significant:
            alike = alike or row
    differs = [pair for pair in zip(found.runs[1:], found.differences, strict=True)
               if pair[1].significant]  # fmt: skip
    if alike and differs:
        return _against(found, *max(differs, key=lambda pair: abs(pair[1].share)))
    values = {
        "run": first.run,
        "step_ns": first.step_ns,
        "ratio": ranked[-1].step_ns / first.step_ns,
        "last": (alike or ranked[-1]).run,
        "last_ns": (alike or ranked[-1]).step_ns,
    }
    return say(COMPARED, "none-fastest" if alike else "fastest", values)


def _against(found: Comparison, row: RunFigures, change: Difference) -> str:
    before_ns, after_ns = (mean(ns) for ns in tested_samples_ns(found.base, row))
    values: dict[str, Any] = {
        "run": row.run,
        "base": found.base.run,
        "step_ns": found.base.step_ns,
        "other_ns": row.step_ns,
        "share": abs(change.share),
        "slower": change.share > 0,
        "because": why(found, row, change),
        "steps": " and ".join(map(str, change.steps)),
        "needed": change.steps_needed,
        "alike": change.autocorrelation,
        "mean_share": after_ns / before_ns - 1,
    }
    code = outcome(found.base, row, change)
    title = say(COMPARED, code, values)
    if len(title) <= MOST_TITLE:
        return title
    names = {name: shorten_middle(values[name], _MOST_NAME) for name in ("run", "base")}
    return say(COMPARED, code, values | names)


def outcome(base: RunFigures, row: RunFigures, change: Difference) -> str:
    """What two runs come to, as a code of the catalogue."""
    if not change.significant and _means_part(base, row):
        return "long-steps"
    return {True: "differs", False: "same", None: "unknown"}[change.significant]


def _means_part(base: RunFigures, row: RunFigures) -> bool:
    """Whether a few long steps make what no median shows."""
    shorter, longer = sorted(tested_samples_ns(base, row), key=mean)
    has_long = max(longer) > _LONG * median(longer)
    return has_long and mean(longer) > (1 + _MUCH) * mean(shorter)


def why(found: Comparison, row: RunFigures, change: Difference) -> str:
    """What makes most of the difference; '' where nothing does, or the difference is not sure.

    The cause that only the slower run is diagnosed with, else a kind of time; none where the two
    are not one job.
    """
    if not change.significant or row.run in found.unlike:
        return ""
    return _most(found, row, change)


def cause(found: Comparison, row: RunFigures) -> NewFinding | None:
    """The finding behind most of the difference between ``row`` and the base; None where they are
    not one job, for then the difference has other causes too."""
    if row.run in found.unlike:
        return None
    more_ns = row.step_ns - found.base.step_ns
    faster, slower = (found.base, row) if more_ns > 0 else (row, found.base)
    return new_finding(found.findings, faster.run, slower.run, abs(more_ns))


def _because(found: Comparison, row: RunFigures, change: Difference) -> str:
    """The same in a row of several, which says too where it is not sure."""
    if change.significant is False:
        return say(COMPARED, "noise", {})
    if not change.significant and abs(change.share) < _LITTLE:
        return say(COMPARED, "few", {})
    most = _most(found, row, change) or say(COMPARED, "spread", {})
    return most if change.significant else say(COMPARED, "unsure", {"because": most})


def _most(found: Comparison, row: RunFigures, change: Difference) -> str:
    if (new := cause(found, row)) is not None:
        values = {
            "title": lower_first(title(new.finding)),
            "place": _unsaid_place(new.finding),
            "ns": new.more_ns,
            "is_new": new.is_new,
            "is_gone": change.share < 0,
            "base": shorten_middle(found.base.run, _MOST_NAME),
        }
        return say(COMPARED, "cause", values)
    base, other = found.parts.get(found.base.run), found.parts.get(row.run)
    if base is None or other is None:
        return ""
    most = because(changes(base, other), change.share)
    if most is None:
        return ""
    more = "more" if most.ns > 0 else "less"
    values = {"ns": abs(most.ns), "more": more, "rank": row.causes.late_rank}
    return say(COMPARED, most.kind, values)


def _unsaid_place(finding: Finding) -> str:
    """Where the finding is, where its title names no part of that."""
    where = place(finding).partition(", ")[0]
    named = where.lower() in finding.title.lower()
    return where if place_beside(finding, finding.title) and not named else ""


def matters(found: Comparison) -> list[list[str]]:
    """Of two runs the step and its kinds of time, at most five rows, then operations that are
    called more or less often; of more at most five runs, a row each.

    Those of two: kind, change, before, after.
    """
    if len(found.runs) > 2:
        return [
            [
                row.run,
                about(row.step_ns),
                "base" if change is None else signed_share(change.share),
                "" if change is None else _because(found, row, change),
            ]
            for row, change in zip(found.runs, [None, *found.differences], strict=True)
        ][:_MOST_ROWS]
    base, other = (found.parts.get(row.run) for row in found.runs)
    if base is None or other is None:
        return []
    before, after = (row.step_ns for row in found.runs)
    least_ns = _SEEN * max(before, after)
    rows: list[tuple[str, float, float]] = [(say(COMPARED, "median", {}), before, after)]
    rows += [
        # What one rank waits stands in its finding; here it is a mean.
        (_kind(it.kind), it.base_ns, it.other_ns)
        for it in changes(base, other)
        if max(it.base_ns, it.other_ns) >= least_ns
    ]
    return [
        *(
            [name, signed(about, after - before), about(before), about(after)]
            for name, before, after in rows[:_MOST_ROWS]
        ),
        *(_calls(*found.runs) if found.runs[1].run not in found.unlike else ()),
    ]


def _calls(base: RunFigures, other: RunFigures) -> list[list[str]]:
    """Operations called more or less often per step, most time first: a busy machine, which hides
    what a step gained, changes no count."""
    totals = [{total.op: total for total in row.collectives} for row in (base, other)]
    changed = []
    for op in {**totals[0], **totals[1]}:
        both = [of[op] for of in totals if op in of]
        before, after = (of[op].calls_per_step if op in of else 0.0 for of in totals)
        if abs(after - before) >= max(1.0, _OTHER_CALLS * max(before, after)):
            row = [f"{op} calls", signed(short, after - before), short(before), short(after)]
            changed.append((max(total.total_ns_per_step for total in both), row))
    return [row for _, row in sorted(changed, reverse=True)[:_MOST_OPS]]


def _kind(kind: str) -> str:
    words = KINDS[kind]
    return say(COMPARED, "of-ranks", {"kind": words}) if kind == "wait" else words


def warning(found: Comparison) -> str:
    """What makes runs another job than the base, which is to be read first; '' of one job."""
    if not found.unlike:
        return ""
    several = len(found.runs) > 2
    runs = [(run if several else "", _unlike(found, run)) for run in found.unlike]
    return say(COMPARED, "unlike", {"runs": runs})


def _unlike(found: Comparison, run: str) -> str:
    parts = found.unlike[run]
    return " and ".join(
        say(COMPARED, f"unlike-{it.code}", {"base": it.base, "other": it.other}) for it in parts
    )


def notes(found: Comparison) -> list[str]:
    """Where the figures come from, one sentence each."""
    few = any(d.significant is not None and d.autocorrelation is None for d in found.differences)
    no_peak = any(it and it.flops_per_step and not it.peak_flops for it in found.theories)
    return [
        *(say(COMPARED_NOTES, code, {}) for code in ("step", "kinds", "others", "overlapping")),
        *(
            f"{row.run}: {too_few(change)}"
            for row, change in zip(found.runs[1:], found.differences, strict=True)
            if change.significant is None
        ),
        *(
            say(COMPARED_NOTES, "same-steps", {"run": row.run, "base": found.base.run})
            for row in found.runs[1:]
            if row.step_samples_ns == found.base.step_samples_ns
        ),
        *(
            say(COMPARED_NOTES, code, {})
            for code, holds in (
                ("unprofiled", any(row.unprofiled_samples_ns for row in found.runs)),
                ("few-steps", few),
                ("other-runs", True),
                ("no-peak", no_peak),
                ("no-theory", None in found.theories),
                ("on-host", any(row.on_host for row in found.runs)),
            )
            if holds
        ),
    ]


def too_few(change: Difference) -> str:
    """Why a difference has no interval, and what would give it one."""
    return say(COMPARED_NOTES, "too-few", vars(change))
