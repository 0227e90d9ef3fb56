"""What torch.profiler calls when a trace is ready: it is kept by rank, and rank 0 says the verdict.

``profile(..., on_trace_ready=advisor.trace_handler("traces"))``
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

_WAIT_FOR_RANKS_S = 60.0


def trace_handler(
    folder: str | Path = "advisor-traces", *, diagnose: bool = True, tensorboard: Any = None
) -> Callable[[Any], None]:
    """A handler that writes ``folder``/cycle-N/rankR.json.gz for the N-th cycle of the schedule.

    With ``diagnose`` rank 0 waits for the other ranks' files (a minute at most) and prints what the
    cycle shows, and writes it to an active run of W&B or MLflow and to ``tensorboard`` (a
    SummaryWriter); training goes on when it is done.
    """
    cycle = 0

    def ready(profiler: Any) -> None:
        nonlocal cycle
        from advisor.config.atomic_files import removed_at_end
        from advisor.profile import files
        from advisor.profile.recorder import rank_and_world

        cycle += 1
        rank, world_size = rank_and_world()
        into = Path(folder) / f"cycle-{cycle}"
        into.mkdir(parents=True, exist_ok=True)
        path = files.trace(into, rank)
        # The suffix stays last: torch compresses by it.
        temporary = path.with_name(f".partial-{path.name}")
        with removed_at_end(temporary):
            profiler.export_chrome_trace(str(temporary))
            temporary.replace(path)
        if diagnose and rank == 0:
            _say(into, world_size, int(profiler.step_num), tensorboard)

    return ready


def _say(folder: Path, world_size: int, step: int, tensorboard: Any) -> None:
    """Print and publish the verdict; neither a bad trace nor a tracker ends the training."""
    from advisor import api
    from advisor.errors import AdvisorError
    from advisor.integrations.loggers import publish

    deadline = time.monotonic() + _WAIT_FOR_RANKS_S
    while len(list(folder.glob("rank*.json.gz"))) < world_size and time.monotonic() < deadline:
        time.sleep(0.2)
    try:
        with api.load(folder, command="advisor.trace_handler") as run:
            click.echo(run.render("text"))
            try:
                publish(run, step=step, tensorboard=tensorboard)
            except Exception as error:  # noqa: BLE001 - no server, no rights: the job may need neither
                click.echo(f"advisor: not written to the tracker: {error}", err=True)
    except AdvisorError as error:
        click.echo(f"advisor: {error}", err=True)
