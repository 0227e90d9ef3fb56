"""Runs the examples inside rule files: each is a miniature run with a known answer.

An example lists only the columns that matter. A list in place of a scalar makes one row per
item (all combinations), ``repeat`` makes copies, and times follow from the step unless given, so
``{rank: [0, 1], step: [0, 1, 2], repeat: 12, op: all_reduce, bytes: 4096, dur_ns: 90000}`` is
twelve matched calls on two ranks in three steps.
"""

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from advisor.engine.evaluate import evaluate
from advisor.engine.facts import read_facts
from advisor.engine.rule import MOST_ROWS, Example, Rule
from advisor.engine.sandbox import Sandbox
from advisor.errors import AdvisorError
from advisor.findings import OutcomeKind
from advisor.metrics.steps.used import mark_records
from advisor.store.schema import Column

_RUN = "example"
_DEFAULTS = {"complete": True, "source": "ProfilerStep"}
# What values that fit no table raise, here or there.
_UNFIT = (
    AdvisorError,
    duckdb.Error,
    pa.ArrowException,
    TypeError,
    ValueError,
    ArithmeticError,
    LookupError,
)
_EMPTY: dict[str, Any] = {"VARCHAR": "", "BOOLEAN": False}


@dataclass(frozen=True)
class ExampleResult:
    """One example's result; ``problem`` is empty when the rule said what it must."""

    rule: str
    example: str
    problem: str


def check_examples(rule: Rule, sandbox: Sandbox | None = None) -> list[ExampleResult]:
    """Run every example of a rule; many rules may share one ``sandbox``."""
    if sandbox is None:
        with Sandbox(None, _RUN) as own:
            return check_examples(rule, own)
    return [
        ExampleResult(rule.id, example.name, _check(rule, example, sandbox))
        for example in rule.examples
    ]


def _check(rule: Rule, example: Example, sandbox: Sandbox) -> str:
    try:
        fill(sandbox, example)
    except _UNFIT as error:
        return f"its rows do not fit the tables: {error}"
    result = evaluate(rule, sandbox, read_facts(sandbox))
    if result.outcome.outcome != OutcomeKind(example.expect):
        return (
            f"expected {example.expect}, got {result.outcome.outcome.value}"
            f"{f': {result.outcome.reason}' if result.outcome.reason else ''}"
        )
    if result.outcome.mistakes:
        return f"savings that cannot be: {'; '.join(result.outcome.mistakes)}"
    if not result.findings:
        return ""
    finding = result.findings[0].model_dump(mode="json")
    for name, expected in example.finding.items():
        if name not in finding:
            return f"a finding has no field {name!r}; it has {', '.join(finding)}"
        actual = finding[name]
        if actual != expected and not _is_close(actual, expected):
            return f"{name}: expected {expected!r}, got {actual!r}"
    text = " ".join([finding["title"], *finding["because"], finding["message"], *finding["fix"]])
    for phrase in example.says:
        if phrase not in text:
            return f"does not say {phrase!r}: {text}"
    return ""


def _is_close(actual: Any, expected: Any) -> bool:
    """Whether both are numbers, within 1 %."""
    numbers = [one for one in (actual, expected) if isinstance(one, int | float)]
    try:
        return len(numbers) == 2 and math.isclose(*numbers, rel_tol=0.01)
    except OverflowError:
        return False


def fill(sandbox: Sandbox, example: Example) -> None:
    """Hold the example's rows, with ranks, steps and breakdowns of a plain run by default."""
    tables = {name: list(rows) for name, rows in example.tables.items()}
    every_rank, every_step = list(range(example.ranks)), list(range(example.steps))
    step_ns = round(example.step_ms * 1e6)
    tables.setdefault(
        "rank",
        [
            {
                "rank": rank,
                "world_size": example.world_size or example.ranks,
                "host": example.hosts[rank] if example.hosts else "host0",
                "timeline": example.timeline,
                "backend": "nccl" if example.timeline == "device" else "gloo",
                "clock_residual_ns": example.clock_residual_ns,
            }
            for rank in every_rank
        ],
    )
    tables.setdefault("step", [{"rank": every_rank, "step": every_step, "step_ns": step_ns}])
    tables.setdefault("step_breakdown", [{"rank": every_rank, "step": every_step}])
    full = {
        table: [
            completed
            for number, row in enumerate(rows)
            for completed in _expand(row, sandbox.columns(table), number, step_ns)
        ]
        for table, rows in tables.items()
    }
    cut = {row["rank"] for row in full["rank"] if row.get("complete") is False}
    mark_records(full["step"], full["step_breakdown"], cut)
    sandbox.hold(full)


def _expand(
    row: dict[str, Any],
    columns: Mapping[str, Column],
    number: int,
    step_ns: int,
) -> Iterator[dict[str, Any]]:
    """All rows that a compact row stands for, with required columns filled."""
    row = dict(row)
    repeat = int(row.pop("repeat", 1))
    spread = {
        name: value
        for name, value in row.items()
        if isinstance(value, list) and not (name in columns and columns[name].type.endswith("[]"))
    }
    fixed = {name: value for name, value in row.items() if name not in spread}
    count = repeat * math.prod(map(len, spread.values()))
    if count > MOST_ROWS:
        raise ValueError(f"{count:,} rows of one are more than {MOST_ROWS:,}")
    calls: dict[tuple[Any, ...], int] = {}
    for values in itertools.product(*spread.values()):
        for copy in range(repeat):
            made = {**fixed, **dict(zip(spread, values, strict=True))}
            # Matched calls share everything but the rank.
            key = (copy, *(made[name] for name in spread if name != "rank"))
            call = calls.setdefault(key, len(calls))
            yield _complete(made, columns, number * 10_000 + call, step_ns)


def _complete(
    row: dict[str, Any],
    columns: Mapping[str, Column],
    call: int,
    step_ns: int,
) -> dict[str, Any]:
    length = row.pop("dur_ns", None) if "dur_ns" not in columns else None
    step_length = row.pop("step_ns", step_ns) if "step_ns" not in columns else step_ns
    step = int(row.get("step") or 0)
    row.setdefault("run", _RUN)
    if "call_id" in columns:
        row.setdefault("call_id", call)
    if "start_ns" in columns and "end_ns" in columns:
        begin = step * step_ns + (call % 100) * 1000 if "op" in columns else step * step_ns
        row.setdefault("start_ns", begin)
        row.setdefault("end_ns", row["start_ns"] + (length or step_length))
    if "window_ns" in columns:
        row.setdefault("window_ns", step_ns)
        row.setdefault("compute_ns", step_ns // 2)
    for name, default in _DEFAULTS.items():
        if name in columns:
            row.setdefault(name, default)
    for name, column in columns.items():
        if not column.nullable:
            row.setdefault(name, _EMPTY.get(column.type, 0))
    return row
