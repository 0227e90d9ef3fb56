"""Throughput and memory against micro-batch: one run each, until memory runs out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from advisor.cli._profile_run import How, run_one
from advisor.errors import AdvisorError

if TYPE_CHECKING:
    from advisor.config.workload import Workload

_RESULT = "micro-batches.json"


def sizes(text: str) -> list[int]:
    """The micro-batches to try, smallest first. Raises AdvisorError."""
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        found = [0]
    if min(found) < 1:
        raise AdvisorError(
            f"cannot read '{text}'", where="--sweep-micro-batch", hint="e.g. 1,2,4,8"
        )
    return sorted(set(found))


def sweep(
    workload: Workload,
    micro_batches: list[int],
    folder: Path,
    how: How,
    *,
    global_batch: int | None,
) -> None:
    """Run every micro-batch; running out of memory is a row, and ends the sweep.

    With a ``global_batch`` the accumulation follows from it, as far as the micro-batch leaves room
    for any. Whatever ends the sweep, the rows so far are printed and in the folder; an error that
    is no lack of memory is a row too, and raised.
    """
    from advisor.profile import files
    from advisor.profile.failures import LaunchError

    jobs = [_job(workload, size, global_batch) for size in micro_batches]
    rows: list[dict[str, Any]] = []
    try:
        for job in jobs:
            row: dict[str, Any] = {
                "micro_batch": job.micro_batch,
                "gradient_accumulation": job.gradient_accumulation,
                "status": "ok",
            }
            rows.append(row)
            try:
                document = run_one(job, folder / f"micro-batch-{job.micro_batch}", how)
            except LaunchError as error:
                if not error.out_of_memory:
                    raise
                row |= {"status": "out of memory", "message": error.message}
                how.say(error.message)
                break
            row |= _figures(document)
    except BaseException as error:
        # An interrupt as well: what was measured is kept.
        rows[-1] |= {"status": "failed", "message": str(error) or type(error).__name__}
        raise
    finally:
        files.write_json(folder / _RESULT, rows)
        click.echo(_table(rows))
        click.echo(f"Wrote {folder / _RESULT}")


def _job(workload: Workload, size: int, global_batch: int | None) -> Workload:
    from advisor.profile import strategies

    job = workload.model_copy(update={"micro_batch": size})
    _, degrees = strategies.prepare(job)
    if global_batch is None:
        return job
    batch = max(global_batch, size * degrees.data)
    settled, _ = strategies.prepare(job.model_copy(update={"global_batch": batch}))
    return settled


def _figures(document: dict[str, Any]) -> dict[str, Any]:
    step = document["step_ns"] or document["profiled_step_ns"]
    return {
        "step_ns": step["median"],
        "tokens_per_second": document["tokens_per_second"],
        "peak_memory_bytes": document["peak_memory_bytes"],
    }


def _table(rows: list[dict[str, Any]]) -> str:
    lines = ["micro-batch   accumulation   step ms   tokens/s   peak MB"]
    for row in rows:
        head = f"{row['micro_batch']:>11} {row['gradient_accumulation']:>14}"
        if row["status"] != "ok":
            lines.append(f"{head}   {row['status']}")
            continue
        lines.append(
            f"{head} {row['step_ns'] / 1e6:>9.1f} {row['tokens_per_second']:>10,.0f}"
            f" {row['peak_memory_bytes'] / 1e6:>9,.0f}"
        )
    return "\n".join(lines)
