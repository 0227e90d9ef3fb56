"""Record a training script as it is: ``torchrun ... -m advisor.record [options] train.py args``.

Skips the first steps, records a few on the chosen ranks, one trace per rank, and lets the script
run on. Options stand before the script; everything after it belongs to the script.
"""

import os
import runpy
import sys
import time
from pathlib import Path

import click

from advisor.errors import AdvisorError
from advisor.vocabulary.numbers import MOST_RANKS, decimal
from advisor.vocabulary.recorded_steps import STEPS

_WAIT_FOR_RANKS_S = 60.0


@click.command(
    context_settings={
        "ignore_unknown_options": True,
        "allow_interspersed_args": False,
        "help_option_names": ["-h", "--help"],
    },
    epilog="Example:  torchrun --nproc-per-node 8 -m advisor.record --skip 20 train.py --lr 1e-4",
)
@click.argument("script")
@click.argument("script_args", nargs=-1, type=click.UNPROCESSED)
@click.option("--steps", default=STEPS, show_default=True, help="Steps to record.")
@click.option("--skip", default=10, show_default=True, help="Optimizer steps before recording.")
@click.option("--ranks", default="all", show_default=True, help="all, or ranks like 0,3,8-11.")
@click.option("-o", "--output", default="advisor-traces", show_default=True, help="Folder.")
@click.option("--no-shapes", is_flag=True, help="Leave tensor shapes out (smaller traces).")
@click.option("--memory", is_flag=True, help="Record allocations as well.")
@click.option("--stacks", is_flag=True, help="Record Python's calls as well; slows the host.")
@click.option("--diagnose", is_flag=True, help="Rank 0 diagnoses the traces at the end.")
@click.option("--force", is_flag=True, help="Remove the traces of an earlier recording in FOLDER.")
@click.option("-m", "module", is_flag=True, help="SCRIPT is a module, as in python -m.")
def command(
    script: str,
    script_args: tuple[str, ...],
    steps: int,
    skip: int,
    ranks: str,
    output: str,
    no_shapes: bool,
    memory: bool,
    stacks: bool,
    diagnose: bool,
    force: bool,
    module: bool,
) -> None:
    """Run SCRIPT with its arguments and record some of its training steps."""
    try:
        from advisor.profile.recorder import StepRecorder, rank_and_world
    except ImportError as error:
        raise AdvisorError(
            "torch or nvtx is not installed", hint="pip install 'nccl-advisor[profile]'"
        ) from error
    if not module and not Path(script).is_file():
        raise AdvisorError("no such script", where=script)
    chosen = parse_ranks(ranks)
    written: list[Path] = []

    def wrote(path: Path) -> None:
        written.append(path)
        click.echo(f"advisor: wrote {path}", err=True)

    try:
        recorder = StepRecorder(
            output,
            steps=steps,
            skip=skip,
            ranks=chosen,
            record_shapes=not no_shapes,
            record_memory=memory,
            record_stacks=stacks,
            on_done=wrote,
            force=force,
        )
    except AdvisorError:
        if os.environ.get("LOCAL_RANK", "0") != "0":
            sys.exit(2)  # all ranks of a machine are refused for the same reason: one says it
        raise
    recorder.count_optimizer_steps()
    sys.argv = [script, *script_args]
    try:
        with recorder:
            if module:
                runpy.run_module(script, run_name="__main__", alter_sys=True)
            else:
                sys.path.insert(0, str(Path(script).resolve().parent))
                runpy.run_path(script, run_name="__main__")
    except SystemExit as ended:
        if ended.code not in (None, 0):
            raise
    rank, world_size = rank_and_world()
    if diagnose and rank == 0:
        if not written and (chosen is None or 0 in chosen):
            click.echo("advisor: nothing was recorded, so there is nothing to diagnose", err=True)
            return
        expected = world_size if chosen is None else len([r for r in chosen if r < world_size])
        _diagnose(recorder.folder, expected)


def parse_ranks(text: str) -> list[int] | None:
    """``all`` is None; ``0,3,8-11`` is a list."""
    if text == "all":
        return None
    chosen: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        low, high = decimal(first, most=MOST_RANKS), decimal(last or first, most=MOST_RANKS)
        if low is None or high is None or high < low:
            raise AdvisorError(f"--ranks {text!r} is no list of ranks", hint="all, or 0,3,8-11")
        chosen += range(low, high + 1)
    return chosen


def _diagnose(folder: Path, expected: int) -> None:
    from advisor import api

    deadline = time.monotonic() + _WAIT_FOR_RANKS_S
    while len(list(folder.glob("rank*.json.gz"))) < expected and time.monotonic() < deadline:
        time.sleep(0.2)
    with api.load(folder, command="advisor.record --diagnose") as run:
        click.echo(run.render("text"))


def main() -> None:
    """Entry point of ``python -m advisor.record``."""
    try:
        command.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except AdvisorError as error:
        click.echo(f"advisor.record: {error}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
