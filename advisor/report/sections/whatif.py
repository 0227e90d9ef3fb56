"""What change would help? Every replayed change on one axis."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.findings import Finding
from advisor.messages import WHATIF, say
from advisor.report import numbers
from advisor.report.figures import DataTable, Dots, Figure, StepTime
from advisor.report.gain import change_name, delays, gain_kind, gain_words, interval, rests_on
from advisor.report.sections.section import Section, of_run
from advisor.report.tables import Row, late_together, rows
from advisor.store.store import Store
from advisor.vocabulary.words import named_ranks

_MOST_DOTS = 8
_LEAST = 0.01  # of the step: less is no gain to speak of


def build(
    store: Store, run: str, findings: Sequence[Finding] = (), *, several: bool = False
) -> Section | None:
    """The section of one run; None without predictions.

    A cause has one gain: of a replay that a finding of ``findings`` rests on, it is the finding's.
    """
    found = [row for row in rows(store, "SELECT * FROM whatif WHERE run = ?", [run])
             if row["measured_step_ns"]]  # fmt: skip
    if not found:
        return None
    suffix, name, title = of_run("whatif", "What would help", run, several)
    measured = found[0]["measured_step_ns"]
    # A rank stands for its host where that is late as a whole.
    hosts = {("without-lateness", str(rank)): own
             for rank, own in late_together(store, run).items()}  # fmt: skip
    effects = [row for row in found
               if _is_effect(row, hosts.get((row["setting"], row["value"])), findings)]  # fmt: skip
    also = {row["step_ns"] for row in effects}  # of all late ranks: no more than of these
    changes = [
        _as_found(row, findings)
        | {"value": named_ranks(hosts[key]) if key in hosts else row["value"]}
        for row in found
        if not row["is_current"]
        and row not in effects
        and not ((key := (row["setting"], row["value"]))[1] == "all" and row["step_ns"] in also)
    ]
    changes.sort(key=lambda row: (row["extrapolates"], -_gain(row)[0], row["step_ns"]))
    sure = [row for row in changes if _kind(row) == "saves"]
    likely = sure or [row for row in changes if _kind(row) == "may-save"]
    best = likely[0] if likely else None
    # One dot for each setting: the value that gives most.
    shown = list({row["setting"]: row for row in reversed(likely)}.values())[::-1][:_MOST_DOTS]
    shown.sort(key=lambda row: row["step_ns"])
    line = say(WHATIF, "none", {})
    if best is not None:
        low, middle, high = _gain(best)
        change = change_name(best["setting"], best["value"])
        line = say(WHATIF, _kind(best), {"change": change[:1].upper() + change[1:]
                   if best["setting"] not in ("bucket_cap_mb", "reshard_after_forward") else change,
                   "low_ns": low, "middle_ns": middle, "high_ns": high})  # fmt: skip
    off = found[0]["replayed_step_ns"]
    figure = Figure(
        id=f"changes{suffix}",
        title=line,
        description="Predicted step time in ms under each change, with its 90 % interval.",
        drawing=Dots([_dot(row, row is best and bool(sure)) for row in shown], measured)
        if len(shown) > 1
        else None,
        table=DataTable(
            ["change", "per step", "predicted step", "90 % interval"],
            [
                [
                    change_name(row["setting"], row["value"])
                    + (" (extrapolated)" if row["extrapolates"] else ""),
                    gain_words(*_gain(row), _LEAST * measured),
                    numbers.duration(row["step_ns"]),
                    numbers.interval(row["step_low_ns"], row["step_high_ns"]),
                ]
                for row in changes
            ],
        ),
        note=f"Dotted line: the step now, {numbers.duration(measured)}. " * (len(shown) > 1)
        + (say(WHATIF, "off", {"off": abs(off - measured) / measured}) if off else ""),
    )
    return Section(name, "What-if", title, [figure], line)


def _is_effect(row: Row, host: Sequence[int] | None, findings: Sequence[Finding]) -> bool:
    """Whether a rank's lateness is the effect of a finding, which says what mending it gives.

    ``host``: the ranks that are late with it as a whole; a host is late where one of them is.
    """
    if row["setting"] != "without-lateness" or not (host or row["value"].isdecimal()):
        return False
    effect = f"straggler-rank (rank {row['value']})"
    late = host or [int(row["value"])]
    return any(
        (effect in item.merged or delays(item, late)) and not rests_on(item, _gain(row)[1])
        for item in findings
    )


def _as_found(row: Row, findings: Sequence[Finding]) -> Row:
    """The row with the interval of the finding that rests on it."""
    ends = _gain(row)
    low, high = interval(*ends, findings)
    if (low, high) == (ends[0], ends[2]):
        return row
    now = row["measured_step_ns"]
    return row | {
        "gain_low_ns": low,
        "gain_high_ns": high,
        "step_low_ns": now - high,
        "step_high_ns": now - low,
    }


def _gain(row: Row) -> tuple[float, float, float]:
    """Low, middle and high of the gain, ns per step."""
    measured = row["measured_step_ns"]
    low, high = row["gain_low_ns"], row["gain_high_ns"]
    if low is None:  # stores of earlier releases
        low, high = (measured - (row[end] or row["step_ns"]) for end in _ENDS)
    return low, measured - row["step_ns"], high


_ENDS = ("step_high_ns", "step_low_ns")


def _kind(row: Row) -> str:
    return gain_kind(*_gain(row), _LEAST * row["measured_step_ns"])


def _dot(row: Row, chosen: bool) -> StepTime:
    return StepTime(
        change_name(row["setting"], row["value"]),
        row["step_ns"],
        row["step_low_ns"],
        row["step_high_ns"],
        chosen=chosen,
        guess=row["extrapolates"],
    )
