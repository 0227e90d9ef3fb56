"""A sweep's trials as pictures: measured step times per setting, and what NCCL's model says."""

import bisect
import json
import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from advisor.messages import on_page
from advisor.report import numbers
from advisor.report.data_table import DataTable, cell
from advisor.report.figures import Dots, Figure, StepTime
from advisor.report.tables import Row
from advisor.vocabulary.words import plural

_MAX_DOTS = 5
# Median absolute deviation to standard deviation for normal noise: 1 / Phi^-1(3/4).
_MAD_TO_SIGMA = 1.4826


@dataclass(frozen=True)
class _Setting:
    """The trials of one setting. ``step_ns`` is freed of drift: see :func:`_ratios`."""

    label: str
    values: dict[str, Any]
    step_ns: float
    sigma_ns: float
    trials: int


def measured(trials: list[Row], result: dict[str, Any], suffix: str) -> Figure:
    """One dot per setting, the present settings first, and a table of every trial."""
    timed = [trial for trial in trials if trial["step_ns_median"]]
    baselines = [trial["step_ns_median"] for trial in timed if trial["is_baseline"]]
    baseline = statistics.median(baselines) if baselines else None
    band = _band(baseline, timed, result.get("resolution_share"))
    settings = sorted(
        _settings(timed, baseline, result.get("resumed_at") or []), key=lambda one: one.step_ns
    )
    best = settings[0] if settings else None
    seen = best is not None and band is not None and best.step_ns < band[0]
    if result:
        # What counts is the confirmation in fresh pairs, not the best single trial.
        verdict = str(result["verdict"])
        title, wins = f"{verdict[:1].upper()}{verdict[1:]}", bool(result["recommended"])
    elif seen and best is not None and baseline is not None:
        gain = numbers.duration(baseline - best.step_ns)
        title, wins = on_page("won", name=best.label, gain=gain), True
    else:
        title, wins = on_page("kept"), False
    chosen = result.get("changes") or {}
    dots = [
        StepTime(
            one.label + (f" ({one.trials} trials)" if one.trials > 1 else ""),
            one.step_ns,
            one.step_ns - one.sigma_ns,
            one.step_ns + one.sigma_ns,
            chosen=wins and (one.values == chosen if result else one is best),
        )
        for one in settings[:_MAX_DOTS]
    ]
    if baseline is not None:
        spread = _MAD_TO_SIGMA * statistics.median(abs(step - baseline) for step in baselines)
        label = f"present settings ({plural(len(baselines), 'trial')})"
        dots.insert(0, StepTime(label, baseline, baseline - spread, baseline + spread))
    failed = len(trials) - len(timed)
    reasons = {one["trial"]: one["reason"] for one in result.get("failures") or []}
    columns = {
        "trial": cell("trial"),
        "settings": lambda it: "present settings" if it["is_baseline"] else label_of(it),
        "outcome": lambda it: _outcome(it, reasons.get(it["trial"], "")),
        "steps": cell("steps", numbers.cell),
        "median step": cell("step_ns_median", numbers.duration),
        "median absolute deviation": cell("step_ns_mad", numbers.duration),
    }
    return Figure(
        id=f"trials{suffix}",
        title=title,
        description=on_page("trials"),
        # One dot says no more than its line in the table.
        drawing=Dots(dots, baseline, band) if len(dots) > 1 else None,
        table=DataTable.of(trials[:200], columns, on_page("dots-of-trials")),
        note=on_page(
            "note-of-trials",
            emulated=any(trial["origin"] == "emulated" for trial in trials),
            slower=len(settings) - _MAX_DOTS,
            failed=failed,
        ),
    )


def modelled(trials: list[Row], suffix: str) -> Figure:
    """NCCL's settings by what its cost model gives for the job's calls; never a step time."""
    timed = sorted(
        (trial for trial in trials if trial["step_ns_median"] is not None),
        key=lambda trial: (trial["step_ns_median"], not trial["is_baseline"]),
    )
    own = next((t["step_ns_median"] for t in timed if t["is_baseline"]), None)
    broken = [trial for trial in trials if trial["step_ns_median"] is None]
    rest = [trial for trial in timed if not trial["is_baseline"]]
    worst = max((t["step_ns_median"] for t in rest), default=None)
    return Figure(
        id=f"modelled{suffix}",
        title=on_page("modelled", ratio=worst / own if own and worst else None),
        table=DataTable.of(
            [*timed, *broken],
            {
                "settings": lambda it: "NCCL's own choice" if it["is_baseline"] else label_of(it),
                "communication per step": cell("step_ns_median", numbers.duration),
                "works": cell("step_ns_median", lambda ns: "no" if ns is None else "yes"),
            },
        ),
        note=on_page("note-of-model", broken=len(broken)),
    )


def label_of(trial: Row) -> str:
    """``bucket_cap_mb=5, NCCL_ALGO=allreduce:ring``."""
    values = values_of(trial)
    return ", ".join(
        f"{name.removeprefix('env.')}={'unset' if value is None else value}"
        for name, value in values.items()
    ) or "present settings"  # fmt: skip


def _outcome(trial: Row, reason: str) -> str:
    """``ok``; ``crash: rank 1 failed (log: trials/0007/logs)``."""
    if trial["step_ns_median"]:
        return str(trial["outcome"])
    words = f"{trial['outcome']}: {reason}" if reason else str(trial["outcome"])
    return f"{words} (log: {trial['log']})" if trial["log"] else words


def values_of(trial: Row) -> dict[str, Any]:
    """The settings that the trial changed."""
    found = json.loads(trial["settings"] or "{}")
    return found if isinstance(found, dict) else {}


def _ratios(timed: list[Row], resumed_at: list[int]) -> Iterator[tuple[Row, float | None]]:
    """Every trial that is no baseline, over the (log) mean of the baselines next to it.

    Of its own sitting only: the sweep was resumed with the trials ``resumed_at``.
    """
    sitting = [bisect.bisect(resumed_at, trial["trial"]) for trial in timed]
    good = [trial["is_baseline"] and trial["outcome"] == "ok" for trial in timed]
    for place, trial in enumerate(timed):
        if trial["is_baseline"]:
            continue
        ok = [fine and own == sitting[place] for fine, own in zip(good, sitting, strict=True)]
        before = next((timed[i] for i in range(place - 1, -1, -1) if ok[i]), None)
        after = next((timed[i] for i in range(place + 1, len(timed)) if ok[i]), None)
        around = [math.log(one["step_ns_median"]) for one in (before, after) if one]
        yield (
            trial,
            trial["step_ns_median"] / math.exp(statistics.mean(around)) if around else None,
        )


def _settings(
    timed: list[Row], baseline: float | None, resumed_at: list[int]
) -> Iterator[_Setting]:
    groups: dict[str, list[tuple[Row, float]]] = {}
    for trial, ratio in _ratios(timed, resumed_at):
        if ratio is None or baseline is None:
            step = float(trial["step_ns_median"])
        else:
            step = ratio * baseline
        groups.setdefault(label_of(trial), []).append((trial, step))
    for label, members in groups.items():
        deviations = [t["step_ns_mad"] for t, _ in members if t["step_ns_mad"] is not None]
        yield _Setting(
            label=label,
            values=values_of(members[0][0]),
            step_ns=statistics.median(step for _, step in members),
            sigma_ns=_MAD_TO_SIGMA * statistics.median(deviations) if deviations else 0.0,
            trials=len(members),
        )


def _band(
    baseline: float | None, timed: list[Row], resolution: float | None
) -> tuple[float, float] | None:
    """The sweep's own resolution (baseline trials against one another), else the steps' spread."""
    if baseline is None:
        return None
    if resolution is not None:
        return baseline * (1 - resolution), baseline * (1 + resolution)
    spread = [t["step_ns_mad"] for t in timed if t["is_baseline"] and t["step_ns_mad"] is not None]
    if not spread:
        return None
    two_sigma = 2 * _MAD_TO_SIGMA * max(spread)
    return baseline - two_sigma, baseline + two_sigma
