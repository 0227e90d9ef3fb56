"""What change would help? Every replayed change on one axis."""

from collections.abc import Sequence

from advisor.findings import Finding
from advisor.messages import WHATIF, on_page, say
from advisor.report.data_table import DataTable
from advisor.report.figures import Dots, Figure, StepTime
from advisor.report.replayed import Replayed, lines, replayed
from advisor.report.sections.section import Section, of_run
from advisor.report.tables import of_unit
from advisor.store.store import Store

_MOST_DOTS = 8
# Settings that keep their own spelling at the head of a sentence.
_AS_TYPED = "="


def build(
    store: Store, run: str, findings: Sequence[Finding] = (), *, several: bool = False
) -> Section | None:
    """The section of one run; None without predictions."""
    changes = replayed(store, run, findings)
    if not changes:
        return None
    suffix, name, title = of_run("whatif", "What would help", run, several)
    sure = [it for it in changes if it.kind == "saves"]
    likely = sure or [it for it in changes if it.kind == "may-save"]
    best = likely[0] if likely else None
    shown = sorted(likely, key=lambda it: it.step_ns)[:_MOST_DOTS]
    unit = of_unit(store, run)
    line = say(WHATIF, "none", {}) if best is None else _line(best, unit)
    measured, off = changes[0].measured_ns, changes[0].replayed_ns
    figure = Figure(
        id=f"changes{suffix}",
        title=line,
        description=on_page("predicted"),
        drawing=Dots([_dot(it, it is best and bool(sure)) for it in shown], measured)
        if len(shown) > 1
        else None,
        table=DataTable(
            ["change", unit["per_step"], f"predicted {unit['unit']} (90 %)"],
            [list(line) for line in lines(changes)],
        ),
        note=on_page("dotted", drawn=len(shown) > 1, now_ns=measured, **unit)
        + (say(WHATIF, "off", {"off": abs(off - measured) / measured, **unit}) if off else ""),
    )
    return Section(name, "What-if", title, [figure], line)


def _line(best: Replayed, unit: dict[str, str]) -> str:
    change = best.name
    values = {
        "change": change if _AS_TYPED in change else change[:1].upper() + change[1:],
        "low_ns": best.gain_low_ns,
        "middle_ns": best.gain_ns,
        "high_ns": best.gain_high_ns,
        "only_between": best.only_between,
        "step_ns": best.measured_ns,
        **unit,
    }
    return say(WHATIF, best.kind, values)


def _dot(it: Replayed, chosen: bool) -> StepTime:
    return StepTime(
        it.name,
        it.step_ns,
        it.step_low_ns,
        it.step_high_ns,
        chosen=chosen,
        guess=it.extrapolates,
        only_between=it.only_between,
    )
