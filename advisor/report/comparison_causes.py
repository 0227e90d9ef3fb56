"""Rows of `advisor compare` for what findings ask to look at again: waiting, idleness, balance.

A row appears where at least one of the runs recorded it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from advisor.metrics.compare.causes import Causes
from advisor.metrics.compare.figures import RunFigures
from advisor.report.numbers import milliseconds, short
from advisor.vocabulary.words import percent

Lines = list[tuple[str, list[str]]]
_Row = tuple[str, Callable[[Causes], Any], Callable[[float], str]]


def _last(causes: Causes) -> float | None:
    if causes.late_times is None or not causes.late_calls:
        return None
    return causes.late_times / causes.late_calls


IDLE: tuple[_Row, ...] = (
    ("  idle: host late ms", lambda it: it.idle_host_ns, milliseconds),
    ("  idle: sync ms", lambda it: it.idle_sync_ns, milliseconds),
)
WAITING: tuple[_Row, ...] = (
    ("  waiting ms", lambda it: it.waiting_ns, milliseconds),
    ("  transfer ms", lambda it: it.transfer_ns, milliseconds),
    ("  latest rank", lambda it: it.late_rank, str),
    ("  it is last %", _last, percent),
    ("  peers wait ms", lambda it: it.late_cost_ns, milliseconds),
)
BALANCE: tuple[_Row, ...] = (
    ("slowest compute ms", lambda it: it.slowest_compute_ns, milliseconds),
    ("  over the mean %", lambda it: it.compute_imbalance, percent),
    ("pipeline bubble %", lambda it: it.bubble_share, percent),
    ("all_to_all max/mean", lambda it: it.all_to_all_imbalance, short),
)


def idle(runs: Sequence[RunFigures]) -> Lines:
    """Why the device was idle, where a GPU was recorded."""
    return _lines(IDLE, runs)


def waiting(runs: Sequence[RunFigures]) -> Lines:
    """What of the exposed communication is waiting, and for whom."""
    return _lines(WAITING, runs)


def balance(runs: Sequence[RunFigures]) -> Lines:
    """How even the ranks are."""
    return _lines(BALANCE, runs)


def _lines(rows: Sequence[_Row], runs: Sequence[RunFigures]) -> Lines:
    lines = []
    for title, read, written in rows:
        values = [read(run.causes) for run in runs]
        if any(value is not None for value in values):
            shown = ["-" if value is None else written(value) for value in values]
            lines.append((title, shown))
    return lines
