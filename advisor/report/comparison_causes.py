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
_Written = Callable[[RunFigures, float], str]
_Row = tuple[str, Callable[[Causes], Any], _Written]


def _as(written: Callable[[float], str]) -> _Written:
    """What is no part of a step stays as it was measured."""
    return lambda _, value: written(value)


def _last(causes: Causes) -> float | None:
    if causes.late_times is None or not causes.late_calls:
        return None
    return causes.late_times / causes.late_calls


def of_step(row: RunFigures, ns: float) -> str:
    """What a run's mean step has of a kind of time, as the same share of its median step."""
    return milliseconds(ns * row.step_ns / row.window_ns)


IDLE: tuple[_Row, ...] = (
    ("  idle: host late ms", lambda it: it.idle_host_ns, of_step),
    ("  idle: sync ms", lambda it: it.idle_sync_ns, of_step),
)
WAITING: tuple[_Row, ...] = (
    ("  waiting ms", lambda it: it.waiting_ns, of_step),
    ("  transfer ms", lambda it: it.transfer_ns, of_step),
    ("  latest rank", lambda it: it.late_rank, _as(str)),
    ("  it is last %", _last, _as(percent)),
    ("  peers wait ms", lambda it: it.late_cost_ns, _as(milliseconds)),
)
BALANCE: tuple[_Row, ...] = (
    ("slowest compute ms", lambda it: it.slowest_compute_ns, of_step),
    ("  over the mean %", lambda it: it.compute_imbalance, _as(percent)),
    ("pipeline bubble %", lambda it: it.bubble_share, _as(percent)),
    ("all_to_all max/mean", lambda it: it.all_to_all_imbalance, _as(short)),
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
            shown = [
                "-" if value is None else written(run, value)
                for run, value in zip(runs, values, strict=True)
            ]
            lines.append((title, shown))
    return lines
