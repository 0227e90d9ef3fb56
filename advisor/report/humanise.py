"""Evidence tables for people: units move from column names into titles, values into those units.

Rules write columns as the store names them (`exposed_ns`, `largest_bytes`, `busbw_gbps`); a
reader gets 'exposed, ms', sizes with their unit, and 'busbw, GB/s'.
"""

from collections.abc import Callable, Sequence
from typing import Any

from advisor.report import numbers
from advisor.report.clean import one_line

_Format = Callable[[Any], str]

# Suffix (or whole name) -> (words after the name, how to write a value).
PER_STEP = "per step"
_UNITS: tuple[tuple[str, str, _Format], ...] = (
    ("_ns_per_step", f", ms {PER_STEP}", numbers.milliseconds),
    ("_ns", ", ms", numbers.milliseconds),
    ("_us", ", µs", numbers.cell),
    ("_ms", ", ms", numbers.cell),
    ("_bytes_per_step", f" {PER_STEP}", numbers.traffic),
    ("_bytes", "", numbers.traffic),
    ("_gbps", ", GB/s", numbers.cell),
    ("_share", ", share", numbers.share),
    ("_ppm", ", ppm", numbers.cell),
)
_WHOLE: dict[str, tuple[str, _Format]] = {
    "bytes": ("size", numbers.traffic),
    "share": ("share", numbers.share),
    "call_id": ("call", numbers.cell),
    "alpha_ns": ("latency α, ms", numbers.milliseconds),
    "beta_ns_per_byte": ("ns per byte β", numbers.cell),
    "n_star_bytes": ("n* (half latency)", numbers.traffic),
    "r2": ("R² of the fit", numbers.cell),
    "on_path_ns": ("critical path, ms", numbers.milliseconds),
    "dur_ns": ("takes, ms", numbers.milliseconds),
    "exposed_all_ns": ("exposed, ms", numbers.milliseconds),
    "times_last": ("came last", numbers.cell),
    "src": ("from rank", numbers.cell),
    "dst": ("to rank", numbers.cell),
    "kernels": ("kinds of kernels", numbers.cell),
    "calls_under": ("overlapped calls", numbers.cell),
    "slowdown": ("slowdown (1: none)", numbers.cell),
    "slowdown_low": ("95 % from", numbers.cell),
    "slowdown_high": ("95 % to", numbers.cell),
    "imbalance": ("busiest / mean load", numbers.cell),
    "busiest_share": ("share of calls", numbers.share),
    "imbalance_ns": ("over the mean, ms", numbers.milliseconds),
    "pace": ("kernels, times as long", numbers.cell),
    "peer_ns": ("compute of peers, ms", numbers.milliseconds),
    "tiny": ("of 64 KiB or less", numbers.cell),
    "no_dump": ("dump missing", numbers.cell),
    "behind_in": ("late in groups", numbers.cell),
    "waits_in": ("waits in groups", numbers.cell),
    "missing_calls": ("calls never started", numbers.cell),
    "unfinished": ("ended on peers only", numbers.cell),
}


def column(name: str, per_step: str = PER_STEP) -> tuple[str, _Format]:
    """The title of a column and how its numbers are written; ``per_step`` 'in all' of a trace."""
    plain = one_line(name)
    if plain in _WHOLE:
        return _WHOLE[plain]
    for suffix, words, write in _UNITS:
        if plain.endswith(suffix) and len(plain) > len(suffix):
            name = plain.removesuffix(suffix).replace("_", " ")
            return name + words.replace(PER_STEP, per_step), write
    return plain.replace("_", " ").replace(PER_STEP, per_step), numbers.cell


def value(write: _Format, raw: object) -> str:
    """``raw`` in its column's unit when it is a number, else as it is."""
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        return numbers.cell(raw)
    return write(raw)


def table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], per_step: str = PER_STEP
) -> tuple[list[str], list[list[str]]]:
    """Titles and written cells; columns in which no row has a value are left out."""
    kept = [
        index
        for index in range(len(columns))
        if not rows or any(row[index] is not None for row in rows)
    ]
    described = [column(columns[index], per_step) for index in kept]
    written = [
        [value(write, row[index]) for index, (_, write) in zip(kept, described, strict=True)]
        for row in rows
    ]
    return [title for title, _ in described], written
