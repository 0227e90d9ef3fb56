"""What did the sweep try, what does each setting do, and what was left out?"""

import json
from typing import Any

from advisor.messages import on_page
from advisor.report import numbers
from advisor.report.data_table import DataTable, cell
from advisor.report.figures import Figure
from advisor.report.sections import sweep_trials
from advisor.report.sections.section import Section, of_run
from advisor.report.tables import rows
from advisor.store.store import Store

# Causes of a sweep's verdict: its page is about the sweep, not about the baseline's findings.
# INCONCLUSIVE: no alternative ran to its end, too little of the present settings did, or what won
# was never confirmed.
WON, KEPT, WON_EMULATED = "sweep-won", "sweep-kept", "sweep-won-emulated"
MODELLED, INCONCLUSIVE = "sweep-modelled", "sweep-inconclusive"
CAUSES = (WON, WON_EMULATED, KEPT, MODELLED, INCONCLUSIVE)


def build(
    store: Store, run: str, *, several: bool = False, is_open: bool = False
) -> Section | None:
    """The section of one run; None without timed trials."""
    trials = rows(store, "SELECT * FROM trial WHERE run = ? ORDER BY trial", [run])
    own = [trial for trial in trials if trial["origin"] != "modelled"]
    by_model = [trial for trial in trials if trial["origin"] == "modelled"]
    if not any(trial["step_ns_median"] for trial in own):
        return None
    suffix, name, title = of_run("sweep", "What the sweep tried", run, several)
    result = _result(store, run)
    figures = [sweep_trials.measured(own, result, suffix)]
    line = figures[0].title
    if is_open:
        # The verdict over the page says what came out.
        figures[0].title = on_page("each-setting")
    surrogate = result.get("surrogate")
    if surrogate and surrogate["effects"]:
        figures.append(_effects(surrogate, suffix))
    frontier = result.get("frontier") or []
    unbeaten = sum(bool(point["on_frontier"]) for point in frontier)
    if unbeaten > 1:
        figures.append(_frontier(frontier, unbeaten, suffix))
    if by_model:
        figures.append(sweep_trials.modelled(by_model, suffix))
    lists = []
    if also := result.get("also"):
        lists.append((on_page("also"), [(item, ()) for item in also]))
    if left_out := result.get("not_tried"):
        lists.append((on_page("not-tried"), [(item, ()) for item in left_out]))
    return Section(name, "Sweep", title, figures, line, is_open, lists)


def _result(store: Store, run: str) -> dict[str, Any]:
    """recommendation.json of the sweep; {} where there are only trials."""
    found = rows(store, "SELECT recommendation FROM sweep WHERE run = ?", [run])
    result: dict[str, Any] = json.loads(found[0]["recommendation"]) if found else {}
    return result


def _effects(surrogate: dict[str, Any], suffix: str) -> Figure:
    """Main effects, and what two settings do together beyond them, the strongest first."""
    error = surrogate["out_of_sample_error"]
    shares = [
        (_plain(f"{effect['setting']}={effect['value']}"), effect["share"], effect["trials"])
        for effect in surrogate["effects"]
    ] + [
        (
            on_page("both", left=_plain(pair["left"]), right=_plain(pair["right"])),
            pair["share"],
            "–",
        )
        for pair in surrogate["interactions"]
    ]
    shares.sort(key=lambda item: -abs(item[1]))
    strongest, share, _ = shares[0]
    return Figure(
        id=f"effects{suffix}",
        title=on_page("effects", sure=abs(share) > error, name=strongest, change=_words(share)),
        table=DataTable(
            ["setting", "effect on the step", "trials with it"],
            [[label, _words(share), trials] for label, share, trials in shares],
        ),
        note=on_page("regression", trials=surrogate["trials"], error=error),
    )


def _words(share: float) -> str:
    if round(abs(share), 4) == 0:
        return "no change"
    return f"{numbers.share(abs(share))} {'shorter' if share < 0 else 'longer'}"


def _plain(setting: str) -> str:
    """``env.NCCL_ALGO='allreduce:ring'`` as people write it; None is ``unset``."""
    name, _, value = setting.removeprefix("env.").replace("'", "").partition("=")
    return f"{name}={'unset' if value == 'None' else value}"


def _frontier(points: list[dict[str, Any]], unbeaten: int, suffix: str) -> Figure:
    """The ``unbeaten`` settings that nothing beats in time and memory together, then the others."""
    ranked = sorted(points, key=lambda point: (not point["on_frontier"], point["step_ns"]))
    title = on_page("frontier", settings=unbeaten)
    return Figure(
        id=f"frontier{suffix}",
        title=title,
        table=DataTable.of(
            ranked,
            {
                "settings": cell("settings"),
                "step": cell("step_ns", numbers.duration),
                "peak memory of a rank": cell("peak_memory_bytes", numbers.traffic),
                "nothing beats it": cell("on_frontier", lambda it: numbers.cell(bool(it))),
            },
        ),
        note=on_page("relative", confirmed=any(p.get("confirmed") for p in points)),
    )
