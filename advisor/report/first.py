"""The first screen: what is wrong, where the step goes, and what of it could go."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from advisor.findings import Finding, FindingsReport, RunSummary, VerdictKind
from advisor.messages import SUMMARY, on_page, say
from advisor.metrics.compare.runs import Comparison
from advisor.metrics.timeline.parts import Parts, by_rank, mean
from advisor.report import comparison as compared
from advisor.report import numbers, summary
from advisor.report.figures import KINDS, Figure, StepBar, is_of, legend_for
from advisor.report.replayed import ends_ns
from advisor.report.sections import comparison, ranks, sweep
from advisor.store.store import Store

_LEAST = 0.002  # of the step: less is no two pixels of the bar
_SEEN = 0.05  # of what is named: a difference that a reader sees
_PART = 0.1  # of what a finding claims: less is not marked


@dataclass(frozen=True)
class First:
    """``tone`` is a severity or a state, for colour; ``state`` says how sure the title is.

    ``next_steps`` are the terminal's, the one list of what to do; rows of findings point to it.
    ``figures``: the average step or the runs compared, and the ranks where they are the matter.
    """

    tone: str
    state: str
    title: str
    why: str
    next_steps: Sequence[str]
    step: Figure | None
    ranks: Figure | None
    runs: Sequence[RunSummary]


def first_screen(report: FindingsReport, store: Store | None, found: Comparison | None) -> First:
    """Of the verdict, or of the comparison where that was asked for."""
    if found is not None:
        warning = compared.warning(found)
        tone, state = ("warning", warning) if warning else ("info", "Comparison")
        title, bars = compared.headline(found), comparison.bars(found)
        return First(tone, state, title, "", (), bars, None, ())
    verdict = report.verdict
    about = summary.of_verdict(report)
    run = about.run if about is not None else verdict.run
    if not run and len(report.runs) == 1:
        run = report.runs[0].run
    read = next((item.ranks_read for item in report.runs if item.run == run), 0)
    in_turn = verdict.kind is VerdictKind.LOSSY
    matter = about if ranks.is_about_ranks(about, read, in_turn=in_turn) else None
    return First(
        tone=_tone(report),
        state=summary.state(report),
        title=verdict.headline(),
        why=verdict.why,
        next_steps=verdict.next_steps,
        step=_step(report, store, run, about) if store and run and _has_step(report) else None,
        ranks=_waited_for(store, run, matter) if store and matter else None,
        runs=[item for item in report.runs if item.verdict] if len(report.runs) > 1 else (),
    )


def _waited_for(store: Store, run: str, matter: Finding) -> Figure | None:
    return ranks.heat_map(store, run, matter.ranks, matter.evidence.facts.get("pause_steps") or ())


def _has_step(report: FindingsReport) -> bool:
    """Whether a bar of the step says something: not of a sweep, nor of devices not recorded."""
    return not is_sweep(report) and report.verdict.reason != "no-device"


def is_sweep(report: FindingsReport) -> bool:
    """Whether the page is of a sweep, not of its baseline's findings."""
    return report.verdict.cause in sweep.CAUSES


def _tone(report: FindingsReport) -> str:
    verdict = report.verdict
    if verdict.cause == "benchmark" or is_sweep(report):
        return verdict.cause
    if verdict.kind in (VerdictKind.HEALTHY, VerdictKind.INCONCLUSIVE):
        return verdict.kind.value
    return verdict.severity.value


def _step(report: FindingsReport, store: Store, run: str, about: Finding | None) -> Figure | None:
    """The step as one bar of shares, and in it what the verdict's finding would give back.

    Shares are those of the mean step, as in the words beside it; so is the step's length the one
    that every view names.
    """
    measured = by_rank(store.con, run)
    if not measured:
        return None
    blamed = set(about.ranks) if about and report.verdict.kind is not VerdictKind.LOSSY else set()
    rows, kinds = _where_it_lies(about, measured, blamed)
    average = mean(rows)
    step_ns = report.verdict.values.get("step_ns") or average.window_ns
    gain, mark = None, ""
    if about is not None and about.savings_ns:
        low, middle, high = ends_ns(about)
        open_ended = about.is_of_unknown_cost() or about.at_most_ns() is not None
        known = None if open_ended else middle / step_ns
        gain = (low / step_ns, known, high / step_ns)
        number = 1 + report.findings.index(about)
        mark = on_page("could-go", number=number, gain=summary.per_step(about))
    shares = {kind: ns / average.window_ns for kind, ns in average.ns.items()}
    bar = StepBar(shares, kinds, gain, mark)
    rest = rest_of(bar, step_ns)
    others = len(rows) if blamed and not blamed & {row.of for row in rows} else 0
    values = {
        "step_ns": step_ns,
        "is_mean": report.verdict.values.get("is_mean", False),
        "steps": 0 if report.verdict.values.get("whole_trace") else average.steps,
        "others": others,
        "ranks": sorted(row.of for row in rows),
        "all_ranks": len(rows) == len(measured),
    }
    title = say(SUMMARY, "step", values)
    legend = [
        (kind, f"{words} {numbers.share(shares[kind])}")
        for kind, words in legend_for([kind for kind in shares if shares[kind] >= _LEAST])
    ]
    if len(legend) == 1 and gain is None:
        # A bar of one part shows nothing.
        return Figure(id="average-step", title=f"{title}: {legend[0][1]}")
    return Figure(
        id="average-step",
        title=title,
        description=on_page("bar", rest=rest),
        drawing=replace(bar, rest=rest),
        legend=legend,
        note=rest,
    )


def rest_of(bar: StepBar, step_ns: float) -> str:
    """What of the gain its kinds of time do not hold; '' where they hold all that a reader sees."""
    if bar.gain is None:
        return ""
    _, known, high = bar.gain
    # Where nothing inside the interval is known, all of it is hatched.
    marked = high if known is None else known
    span = bar.could_go(marked)
    if span is None or marked <= (1 + _SEEN) * (span[1] - span[0]):
        return ""
    drawn = [kind for kind in KINDS if bar.shares.get(kind, 0.0) > 0]
    own = [kind for of in bar.kinds for kind in drawn if is_of(kind, (of,))]
    parts = " and ".join(dict.fromkeys(KINDS[kind.partition("-")[0]] for kind in own))
    values = {"outlined_ns": (span[1] - span[0]) * step_ns, "gain_ns": marked * step_ns,
              "kinds": parts, "only_between": known is None}  # fmt: skip
    return say(SUMMARY, "rest", values)


def _where_it_lies(
    about: Finding | None, measured: Sequence[Parts], blamed: set[int]
) -> tuple[Sequence[Parts], Sequence[str]]:
    """The ranks in whose steps a finding's time shows, and its kinds there, most first.

    Those that wait for a rank are the others; what a rank idles or computes too long is its own.
    """
    claims = {} if about is None else about.claims
    total = sum(claims.values())
    kinds = sorted((kind for kind, ns in claims.items() if ns > _PART * total),
                   key=lambda kind: -claims[kind])  # fmt: skip
    if not kinds or kinds[0] == "transfer":
        return measured, kinds
    waits = kinds[0] == "wait"
    rows = [row for row in measured if (row.of in blamed) != waits]
    if not blamed or not rows:
        return measured, kinds
    # A call may wait while another one of its rank moves data.
    return rows, ["wait", "transfer"] if waits else [kind for kind in kinds if kind != "wait"]
