"""``advisor tune --sweep -- COMMAND``: what is known before the first trial, and how it is said."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from advisor.cli._tune_run import Prepared
from advisor.errors import AdvisorError

if TYPE_CHECKING:
    from advisor.config.own import OwnJob
    from advisor.tune.budget import Budget
    from advisor.tune.survey import Survey

_SHOWN = 3


def job_of(line: tuple[str, ...], workload: Path | None, given: dict[str, Any]) -> OwnJob:
    """The job of a command line or of a workload file; options win. Raises AdvisorError."""
    from pydantic import ValidationError

    from advisor.config.own import OwnJob, load_own_job

    stated = (
        load_own_job(workload).model_dump(exclude_unset=True)
        if workload is not None
        else {"command": line}
    )
    try:
        return OwnJob.model_validate(stated | given)
    except ValidationError as error:
        problem = error.errors()[0]
        name = ".".join(str(part) for part in problem["loc"])
        said = str(problem["msg"]).removeprefix("Value error, ")
        raise AdvisorError(f"{name}: {said}", where="command line") from error


def plan(
    job: OwnJob, folder: Path, space: Path | None, budget: Budget, *, resume: bool, quiet: bool
) -> Prepared:
    """Look at the job once, and choose what to try."""
    from advisor.config.own import OwnSpace
    from advisor.config.sweep import load_space
    from advisor.tune.budget import CANDIDATES, combinations_in
    from advisor.tune.survey import FILE_NAME, prepare_own, survey

    axes = load_space(space, OwnSpace) if space is not None else None
    if budget.trials is not None:  # a space may turn out to hold one combination, the default not
        combinations_in(budget.trials, CANDIDATES if axes is None else 1)
    if (folder / "trials.jsonl").exists() and not resume:
        raise AdvisorError(
            "holds an earlier sweep", where=str(folder), hint="pass --resume or another -o"
        )
    if not (quiet or (resume and (folder / FILE_NAME).is_file())):
        click.echo("Looking at the job: one run with its present settings, recorded", err=True)
    found = survey(job, folder, timeout_s=budget.timeout_s, again=resume)
    if not quiet:
        _say(found)
    sweep, left_out = prepare_own(job, found, folder, axes, budget)
    return Prepared(sweep, left_out=left_out)


def _say(found: Survey) -> None:
    wrappers = ", ".join(name.upper() for name in found.built) or "no DDP or FSDP"
    share = found.exposed_share
    exposed = "" if share is None else f", communication costs {share:.1%} of the step"
    click.echo(
        f"{wrappers} on {found.world_size} ranks ({found.backend or 'no backend'}){exposed}",
        err=True,
    )
    click.echo(f"Diagnosis: {found.diagnosis}", err=True)
    gains = [(rule, gain) for rule, gain in found.findings.items() if gain]
    for rule, gain in gains[:_SHOWN]:
        click.echo(f"  {rule}: up to {gain:.1%} of the step", err=True)
