"""Every figure of runs beside each other as rows of text, for the terminal and the page.

A row stands where at least one of the runs recorded it; an indented title belongs to the one above.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from advisor.metrics.compare.causes import Causes
from advisor.metrics.compare.figures import CollectiveTotal, RunFigures, scaling_efficiency
from advisor.metrics.compare.runs import Comparison
from advisor.metrics.compare.significance import Difference
from advisor.metrics.models.theory import Theory
from advisor.report.numbers import milliseconds
from advisor.vocabulary.words import percent, short

Lines = list[tuple[str, list[str]]]
SURE = {True: "yes", False: "no", None: "too few steps"}


class _Column(NamedTuple):
    """A run, what it differs by from ``base`` (None of the base itself), and its theory."""

    row: RunFigures
    base: RunFigures
    change: Difference | None
    theory: Theory | None


_Read = Callable[[_Column], str | None]


def figures(found: Comparison) -> Lines:
    """(title, one value per run), the base first."""
    changes = [None, *found.differences]
    columns = [
        _Column(row, found.base, change, theory)
        for row, change, theory in zip(found.runs, changes, found.theories, strict=True)
    ]
    ops = sorted({total.op for row in found.runs for total in row.collectives})
    rows = [
        *_ROWS,
        *((title.format(op=op), _of_op(op, read)) for op in ops for title, read in _OF_OP),
    ]
    lines = [(title, [read(column) for column in columns]) for title, read in rows]
    return [
        (title, ["-" if value is None else value for value in values])
        for title, values in lines
        if any(value is not None for value in values)
    ]


def _maybe(written: Callable[[Any], str], value: Any) -> str | None:
    return None if value is None else written(value)


def _mb(size: float) -> str:
    return short(size / 1e6)


def _of_step(row: RunFigures, ns: float) -> str:
    """What a run's mean step has of a kind of time, as the same share of its median step."""
    return milliseconds(ns * row.step_ns / row.window_ns)


def _run(read: Callable[[RunFigures], Any], written: Callable[[Any], str]) -> _Read:
    return lambda it: _maybe(written, read(it.row))


def _time(read: Callable[[RunFigures], float | None]) -> _Read:
    return lambda it: _maybe(partial(_of_step, it.row), read(it.row))


def _change(of_base: str, read: Callable[[Difference], str | None]) -> _Read:
    return lambda it: of_base if it.change is None else read(it.change)


def _cause(read: Callable[[Causes], Any], written: Callable[[Any], str]) -> _Read:
    """What is no part of a step stays as it was measured."""
    return lambda it: _maybe(written, read(it.row.causes))


def _last(causes: Causes) -> float | None:
    if causes.late_times is None or not causes.late_calls:
        return None
    return causes.late_times / causes.late_calls


def _mfu(it: _Column) -> str | None:
    if it.theory is None:
        return None
    if it.theory.flops_per_step and not it.theory.peak_flops:
        return "no peak known"
    return _maybe(percent, it.theory.mfu(it.row.step_ns))


def _unprofiled(row: RunFigures) -> str | None:
    if row.unprofiled_step_ns is None:
        return None
    return f"{milliseconds(row.unprofiled_step_ns)} ({len(row.unprofiled_samples_ns)})"


_ROWS: tuple[tuple[str, _Read], ...] = (
    ("strategy", _run(lambda row: row.strategy or None, str)),
    ("ranks", _run(lambda row: row.world_size or row.ranks, str)),
    ("step ms", _run(lambda row: row.step_ns, milliseconds)),
    ("  mean ms", _run(lambda row: row.window_ns, milliseconds)),
    ("  MAD ms", _run(lambda row: row.step_mad_ns, milliseconds)),
    ("  vs base", _change("base", lambda change: signed_share(change.share))),
    ("  95 % low", _change("", lambda change: _maybe(signed_share, change.low))),
    ("  95 % high", _change("", lambda change: _maybe(signed_share, change.high))),
    ("  significant", _change("", lambda change: SURE[change.significant])),
    ("unprofiled ms", lambda it: _unprofiled(it.row)),
    ("tokens/s", _run(lambda row: row.tokens_per_second, short)),
    ("speed-up", lambda it: f"{short(speed_up(it.base, it.row))}x"),
    ("efficiency", lambda it: _maybe(percent, scaling_efficiency(it.base, it.row))),
    ("compute ms", _time(lambda row: row.compute_ns)),
    ("compute %", _run(lambda row: row.compute_ns / row.window_ns, percent)),
    ("non-compute ms", _time(lambda row: row.non_compute_ns)),
    ("idle ms", _time(lambda row: row.idle_ns)),
    ("  idle: host late ms", _time(lambda row: row.causes.idle_host_ns)),
    ("  idle: sync ms", _time(lambda row: row.causes.idle_sync_ns)),
    ("busy (kernel) ms", _time(lambda row: row.busy_ns)),
    ("exposed comm ms", _time(lambda row: row.exposed_comm_ns)),
    ("  waiting ms", _time(lambda row: row.causes.waiting_ns)),
    ("  transfer ms", _time(lambda row: row.causes.transfer_ns)),
    ("  latest rank", _cause(lambda it: it.late_rank, str)),
    ("  it is last %", _cause(_last, percent)),
    ("  peers wait ms", _cause(lambda it: it.late_cost_ns, milliseconds)),
    ("hidden comm ms", _time(lambda row: row.hidden_comm_ns)),
    ("overlap %", _run(lambda row: row.overlap, percent)),
    ("slowest compute ms", _time(lambda row: row.causes.slowest_compute_ns)),
    ("  over the mean %", _cause(lambda it: it.compute_imbalance, percent)),
    ("pipeline bubble %", _cause(lambda it: it.bubble_share, percent)),
    ("all_to_all max/mean", _cause(lambda it: it.all_to_all_imbalance, short)),
    ("peak memory MB", _run(lambda row: row.peak_memory_bytes, _mb)),
    ("  estimate MB", lambda it: _maybe(_mb, it.theory and it.theory.memory_bytes)),
    ("MFU", _mfu),
)
_OF_OP: tuple[tuple[str, Callable[[RunFigures, CollectiveTotal], str | None]], ...] = (
    ("{op} calls", lambda _, total: short(total.calls_per_step)),
    ("  total ms", lambda row, total: _of_step(row, total.total_ns_per_step)),
    ("  average us", lambda _, total: short(total.average_ns / 1e3)),
    ("  MB", lambda _, total: _maybe(_mb, total.bytes_per_step)),
    ("  exposed ms", lambda row, total: _maybe(partial(_of_step, row), total.exposed_ns_per_step)),
    ("  hidden %", lambda _, total: _maybe(percent, total.hidden)),
)


def _of_op(op: str, read: Callable[[RunFigures, CollectiveTotal], str | None]) -> _Read:
    def of_column(it: _Column) -> str | None:
        total = next((total for total in it.row.collectives if total.op == op), None)
        return None if total is None else read(it.row, total)

    return of_column


def traffic(found: Comparison) -> list[list[str]]:
    """Rows of run, operation, MB measured, MB by theory, verdict, formula, explanation."""
    return [
        [
            row.run,
            item.op,
            _maybe(_mb, item.measured_bytes) or "-",
            _mb(item.theory_bytes),
            item.verdict,
            " + ".join(item.formulas),
            item.explanation,
        ]
        for row, known in zip(found.runs, found.theories, strict=True)
        for item in (known.ops if known else [])
    ]


def operators(found: Comparison) -> list[list[str]]:
    """Rows of run, change, ms per step more or less, calls before and after, operator."""
    return [
        [
            run,
            row.change,
            signed(milliseconds, row.ns_other - row.ns_base),
            f"{short(row.calls_base)} -> {short(row.calls_other)}",
            row.name,
        ]
        for run, changes in found.operators.items()
        for row in changes
    ]


def nothing_changed(found: Comparison) -> list[str]:
    """The runs whose operators all have the calls and times of the base."""
    return [run for run, changes in found.operators.items() if not changes]


def speed_up(base: RunFigures, row: RunFigures) -> float:
    """Of throughput, where tokens are known for both, else of step time."""
    if base.tokens_per_second and row.tokens_per_second:
        return row.tokens_per_second / base.tokens_per_second
    return base.step_ns / row.step_ns


def signed(written: Callable[[float], str], value: float) -> str:
    """A change with its sign, '+31 ms', '-4.2 %'."""
    return f"{'+' if value >= 0 else '-'}{written(abs(value))}"


def signed_share(share: float) -> str:
    """'+31 %', '-4.2 %'."""
    return signed(percent, share)
