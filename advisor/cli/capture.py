"""``advisor capture FOLDER``: some steps of a job that runs already and waits to be asked."""

import time
from pathlib import Path

import click

from advisor.cli import _options as options
from advisor.cli._options import ABOVE_ZERO, POSITIVE, argument, option
from advisor.cli._output import show
from advisor.errors import AdvisorError
from advisor.vocabulary.recorded_steps import STEPS

_LOOK_S = 0.5


@options.command(epilog="Example:  advisor capture advisor-traces --diagnose")
def command(
    folder: Path = argument(),
    steps: int = option(default=STEPS, show_default=True, type=POSITIVE, help="To record."),
    timeout: float = option(
        type=ABOVE_ZERO, default=600.0, show_default=True, help="Seconds to wait for it."
    ),
    diagnose: bool = option(help="Diagnose the recording."),
) -> None:
    """Record some steps of a job that runs already, under `advisor record --on-demand -o FOLDER`.

    Every rank begins at the same step. The job goes on; the profiler runs in these steps only.
    """
    from advisor.profile import files
    from advisor.profile.hook import on_demand

    request, pace = on_demand.ask(folder, steps)
    place = folder / request.name
    click.echo(
        f"advisor: the job is at step {pace.seen}; steps {request.begin + 1} to "
        f"{request.begin + steps} are recorded into {place}",
        err=True,
    )
    deadline = time.monotonic() + timeout
    while len(files.whole(place)) < pace.world_size:
        if time.monotonic() > deadline:
            there = len(files.whole(place))
            raise AdvisorError(
                f"{there} of {pace.world_size} ranks have written their recording",
                where=str(place),
                hint="is the job running? with --ranks fewer ranks record",
            )
        time.sleep(_LOOK_S)
    if not diagnose:
        click.echo(f"advisor: next: advisor diagnose {place}", err=True)
        return
    from advisor import api

    with api.load(place, command="advisor capture --diagnose") as run:
        show(run.render("text"))
