"""What did the sweep try, what does each setting do, and what was left out?"""

from __future__ import annotations

import json
from typing import Any

from advisor.report import numbers
from advisor.report.charts.effects import Share, share_bars
from advisor.report.charts.frontier import Outcome, time_against_memory
from advisor.report.charts.scene import DataTable, Figure
from advisor.report.sections import sweep_trials
from advisor.report.sections.section import Section, slug
from advisor.report.tables import rows
from advisor.store.store import Store

# Causes of a sweep's verdict: its page is about the sweep, not about the baseline's findings.
# INCONCLUSIVE: no alternative ran to its end, too little of the present settings did, or what won
# was never confirmed.
WON, KEPT, MODELLED, INCONCLUSIVE = (
    "sweep-won",
    "sweep-kept",
    "sweep-modelled",
    "sweep-inconclusive",
)
WON_EMULATED = "sweep-won-emulated"
VERDICTS = (WON, WON_EMULATED, KEPT, MODELLED, INCONCLUSIVE)
# Peaks of memory that differ by less are alike (as on the sweep's frontier).
_SAME_MEMORY = 1.01


def build(store: Store, run: str, *, several: bool = False) -> Section | None:
    """The section of one run; None without timed trials."""
    suffix = f"-{slug(run)}" if several else ""
    trials = rows(store, "SELECT * FROM trial WHERE run = ? ORDER BY trial", [run])
    if not any(t["step_ns_median"] for t in trials if t["origin"] != "modelled"):
        return None
    result = _result(store, run)
    by_model = [trial for trial in trials if trial["origin"] == "modelled"]
    figures = [
        sweep_trials.measured(
            [trial for trial in trials if trial["origin"] != "modelled"], result, suffix
        )
    ]
    surrogate = result.get("surrogate")
    if surrogate and surrogate["effects"]:
        figures.append(_effects(surrogate, suffix))
    if surrogate and surrogate["interactions"]:
        figures.append(_interactions(surrogate, suffix))
    frontier = result.get("frontier") or []
    if len(frontier) > 1:
        figures.append(_frontier(frontier, suffix))
    if by_model:
        figures.append(sweep_trials.modelled(by_model, suffix))
    return Section(
        id=f"sweep{suffix}",
        title="What did the sweep try?" + (f" ({run})" if several else ""),
        template="sweep.html.j2",
        data={"figures": figures, "not_tried": result.get("not_tried") if result else None},
    )


def _result(store: Store, run: str) -> dict[str, Any]:
    """recommendation.json of the sweep; {} where there are only trials."""
    found = rows(store, "SELECT recommendation FROM sweep WHERE run = ?", [run])
    result: dict[str, Any] = json.loads(found[0]["recommendation"]) if found else {}
    return result


def _effects(surrogate: dict[str, Any], suffix: str) -> Figure:
    error = surrogate["out_of_sample_error"]
    effects = [
        (Share(_plain(f"{effect['setting']}={effect['value']}"), effect["share"]), effect["trials"])
        for effect in surrogate["effects"]
    ]
    strongest = max((share for share, _ in effects), key=lambda share: abs(share.share))
    clear = abs(strongest.share) > error
    title = (
        f"{strongest.label} moves the step most"
        if clear
        else "No setting moves the step by more than the model's error"
    )
    return Figure(
        id=f"effects{suffix}",
        title=title,
        description="Main effect of each value: change of the step in % against the mean of the "
        "combinations tried.",
        scenes=[
            share_bars(
                [share for share, _ in effects],
                title="step, % against the mean of what was tried",
                error=error,
            )
        ],
        table=DataTable(
            ["setting", "effect on the step", "trials with it"],
            [[share.label, share.words.split(": ")[-1], trials] for share, trials in effects],
        ),
        note=f"From a ridge regression on {surrogate['trials']} trials. Its median error on trials "
        f"left out is {numbers.share(error)} of the step (shaded).",
    )


def _interactions(surrogate: dict[str, Any], suffix: str) -> Figure:
    error = surrogate["out_of_sample_error"]
    pairs = [
        Share(f"{_plain(pair['left'])}\nwith {_plain(pair['right'])}", pair["share"])
        for pair in surrogate["interactions"]
    ]
    clear = [pair for pair in pairs if abs(pair.share) > error]
    return Figure(
        id=f"interactions{suffix}",
        title=f"{_one_line(clear[0].words)} than the two apart"
        if clear
        else "No pair of settings does more together than apart, beyond the model's error",
        description="What two settings do together beyond their own effects, in % of the step.",
        scenes=[share_bars(pairs, title="step, % beyond the two effects", error=error)],
        table=DataTable(
            ["pair", "beyond the two effects"],
            [[_one_line(pair.label), pair.words.split(": ")[-1]] for pair in pairs],
        ),
        note="The five strongest pairs of the same regression.",
    )


def _plain(setting: str) -> str:
    """``env.NCCL_ALGO='allreduce:ring'`` as people write it; None is ``unset``."""
    name, _, value = setting.removeprefix("env.").replace("'", "").partition("=")
    return f"{name}={'unset' if value == 'None' else value}"


def _one_line(text: str) -> str:
    return text.replace("\n", " ")


def _frontier(points: list[dict[str, Any]], suffix: str) -> Figure:
    outcomes = [
        Outcome(
            point["settings"], point["step_ns"], point["peak_memory_bytes"], point["on_frontier"]
        )
        for point in points
    ]
    memory = [outcome.memory_bytes for outcome in outcomes]
    alike = max(memory) <= _SAME_MEMORY * min(memory)
    least = "all need about as much memory" if alike else "needs the least memory"
    best = sorted((o for o in outcomes if o.on_frontier), key=lambda o: o.step_ns)
    fastest = next((p for p in points if p["on_frontier"] and p.get("fastest")), None)
    if len(best) > 1:
        title = f"{len(best)} settings trade time against memory, as far as the noise lets one tell"
    elif fastest is not None and fastest.get("confirmed"):
        title = f"{best[0].label} is the fastest and {least}"
    elif fastest is not None:
        title = f"{best[0].label} looked fastest in the search, not confirmed, and {least}"
    elif alike:
        title = f"Nothing is faster by more than the noise, and {least}"
    else:
        title = (
            f"{best[0].label} needs the least memory, and nothing is faster by more than the noise"
        )
    ranked = [*best, *sorted((o for o in outcomes if not o.on_frontier), key=lambda o: o.step_ns)]
    return Figure(
        id=f"frontier{suffix}",
        title=title,
        description="Step time in ms, freed of drift, against the peak memory of a rank in MB.",
        scenes=[time_against_memory(outcomes)],
        table=DataTable(
            ["number", "settings", "step", "peak memory of a rank"],
            [
                [
                    number if outcome.on_frontier else "–",
                    outcome.label,
                    numbers.duration(outcome.step_ns),
                    numbers.traffic(outcome.memory_bytes),
                ]
                for number, outcome in enumerate(ranked, 1)
            ],
        ),
        note="Filled dots: faster, by more than the noise, than all that need no more memory. "
        "Steps are relative to the runs of the present settings before and after, times their "
        "median. "
        + (
            f"Confirmed in fresh pairs: {fastest['settings']} only."
            if fastest is not None and fastest.get("confirmed")
            else "Not confirmed."
        ),
    )
