"""What change would help? Predictions from replaying the trace."""

from __future__ import annotations

from advisor.report import numbers
from advisor.report.charts.dots import StepTime, step_times
from advisor.report.charts.scene import DataTable, Figure
from advisor.report.sections.section import Section, slug
from advisor.report.tables import Row, rows
from advisor.store.store import Store

_MAX_DOTS = 24
_LATENESS = "without-lateness"
_NAMES = {
    "without-calls": "Leaving calls out",
    "gradient-sync": "Reducing gradients once per step",
    "gradient-bits": "Gradients in 16 bits",
}
_PART = 0.01  # of the step: less is no gain to speak of
_WHISKERS = "Whiskers: 90 % interval. Dotted line: the measured step."


def build(store: Store, run: str, *, several: bool = False) -> Section | None:
    """The section of one run; None without predictions."""
    suffix = f"-{slug(run)}" if several else ""
    figures = _predictions(store, run, suffix)
    if not figures:
        return None
    return Section(
        id=f"changes{suffix}",
        title="What change would help?" + (f" ({run})" if several else ""),
        template="figures.html.j2",
        data={"figures": figures},
    )


def _predictions(store: Store, run: str, suffix: str) -> list[Figure]:
    settings: dict[str, list[Row]] = {}
    for row in rows(store, "SELECT * FROM whatif WHERE run = ?", [run]):
        settings.setdefault(row["setting"], []).append(row)
    return [
        _prediction(setting, sorted(found, key=_by_value), f"whatif-{number}{suffix}")
        for number, (setting, found) in enumerate(settings.items(), 1)
    ]


def _prediction(setting: str, found: list[Row], name: str) -> Figure:
    # A value beyond what the trace holds is named only when nothing within it helps.
    best = min(found, key=lambda row: (row["extrapolates"], row["step_ns"]))
    measured = best["measured_step_ns"]
    # A gain counts only when the whole interval is below the measured step.
    low = best.get("gain_low_ns")  # not in stores of earlier releases
    if low is not None:
        sure = low > 0
    else:
        sure = measured is not None and (best["step_high_ns"] or best["step_ns"]) < measured
    wins = sure and not best["is_current"]
    if wins:
        gain = numbers.duration(measured - best["step_ns"])
        title = f"{_words(setting, best['value'])} would give back {gain} per step (replayed)"
    elif measured and not best["is_current"] and measured - best["step_ns"] >= _PART * measured:
        most = best.get("gain_high_ns") or measured - (best["step_low_ns"] or best["step_ns"])
        title = (
            f"{_words(setting, best['value'])} may give back up to {numbers.duration(most)} per "
            "step (replayed), or nothing"
        )
    else:
        title = _no_gain(setting)
    times = [
        StepTime(
            f"{_words(setting, row['value'])}{' (as recorded)' if row['is_current'] else ''}"
            f"{' (extrapolated)' if row['extrapolates'] else ''}",
            row["step_ns"],
            row["step_low_ns"],
            row["step_high_ns"],
            chosen=wins and row is best,
            guess=row["extrapolates"],
        )
        for row in found[:_MAX_DOTS]
    ]
    note = _WHISKERS
    if best["replayed_step_ns"] and measured:
        off = abs(best["replayed_step_ns"] - measured) / measured
        note += f" Replaying the unchanged step misses it by {numbers.share(off)}."
    return Figure(
        id=name,
        title=title,
        description=f"Predicted step time in ms for each value of {setting}.",
        # Dots that all lie within the noise would only invite reading something into them.
        scenes=[step_times(times, band_ns=None, baseline_ns=measured)] if wins else [],
        table=DataTable(
            ["change", "predicted step", "90 % interval", "gain per step", "as recorded",
             "extrapolated"],
            [
                [
                    _words(setting, row["value"]),
                    numbers.duration(row["step_ns"]),
                    f"{numbers.duration(row['step_low_ns'])} to "
                    f"{numbers.duration(row['step_high_ns'])}",
                    numbers.duration((row["measured_step_ns"] or row["step_ns"]) - row["step_ns"]),
                    numbers.cell(row["is_current"]),
                    numbers.cell(row["extrapolates"]),
                ]
                for row in found
            ],
        ),
        note=note if wins else note.removeprefix(_WHISKERS).strip(),
    )  # fmt: skip


def _no_gain(setting: str) -> str:
    if setting == _LATENESS:
        return "No single rank on time would shorten the step by as much as 1 %"
    if setting in _NAMES:
        return f"{_NAMES[setting]} gives no measurable gain"
    return f"No value of {setting} gives a measurable gain: leave it"


def _words(setting: str, value: str) -> str:
    if setting == _LATENESS:
        return f"Rank {value} on time"
    if setting in _NAMES:
        return f"{_NAMES[setting]} ({value})"
    return f"{setting}={value}"


def _by_value(row: Row) -> tuple[bool, float, str]:
    """Numbers in their order, words before them."""
    try:
        return True, float(row["value"]), ""
    except ValueError:
        return False, 0.0, row["value"]
