"""``advisor profile``: train a synthetic workload and record one trace per rank."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from advisor.errors import AdvisorError

if TYPE_CHECKING:
    from advisor.config.workload import Workload

_Decorator = Callable[[Callable[..., None]], Callable[..., None]]

_FLAGS = {
    "preset": "model.preset",
    "nproc": "world_size",
    "seq": "sequence_length",
    "grad_accum": "gradient_accumulation",
    "warmup": "warmup_steps",
}


def _setting(flag: str, help_text: str, kind: Any = int) -> _Decorator:
    return click.option(flag, type=kind, default=None, help=help_text)


@click.command("profile", epilog="Example:  advisor profile workloads/gpt2.yaml -o runs/ddp")
@click.argument("workload_file", metavar="WORKLOAD", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Folder for traces, profile.json and logs; default runs/NAME-STRATEGY.",
)
@_setting("--strategy", "Strategy, e.g. ddp; several by commas run one after another.", str)
@_setting("--preset", "Size of the model.", str)
@_setting("--nproc", "Ranks in total (world size).")
@_setting("--steps", "Steps to record.")
@_setting("--warmup", "Steps before anything is timed.")
@_setting("--timed-steps", "Steps timed without the profiler.")
@_setting("--micro-batch", "Sequences per rank and micro-batch.")
@_setting("--seq", "Sequence length in tokens.")
@_setting("--grad-accum", "Micro-batches per optimizer step.")
@_setting("--precision", "fp32 or bf16.", str)
@_setting("--seed", "Seed of weights and data.")
@_setting("--bucket-cap-mb", "DDP's bucket size in MiB.", float)
@_setting("--device", "cpu (gloo) or cuda (nccl).", str)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="Any other setting of the workload file, e.g. --set static_graph=true.",
)
@click.option(
    "--timeout",
    default=120.0,
    show_default=True,
    help="Seconds without progress after which a rank counts as hung.",
)
@click.option(
    "--inject",
    multiple=True,
    metavar="FAULT",
    help="For trying the tool out: a real fault in one rank, e.g. sleep:rank=1,ms=30.",
)
@click.option("--force", is_flag=True, help="Replace an output folder that has a recording.")
@click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")
def command(
    workload_file: Path,
    output: Path | None,
    settings: tuple[str, ...],
    timeout: float,
    inject: tuple[str, ...],
    force: bool,
    quiet: bool,
    **flags: Any,
) -> None:
    """Train a synthetic WORKLOAD and record one trace per rank.

    Results go to the output folder: rankN.json.gz (Kineto), profile.json (step times, throughput,
    memory, settings) and logs/. Diagnose it with: advisor diagnose FOLDER.
    """
    from advisor.config.workload import load_workload

    workload = load_workload(workload_file)
    chosen = {_FLAGS.get(name, name): value for name, value in flags.items() if value is not None}
    workload = workload.with_settings({**chosen, **dict(_parse(text) for text in settings)})
    _require_torch()
    from advisor.profile.inject import Fault

    faults = tuple(Fault.parse(text) for text in inject)
    names = workload.strategy.split(",")
    for name in names:
        one = workload.with_settings({"strategy": name})
        if name == "single":
            one = one.with_settings({"world_size": 1})
        folder = _folder(output, one.name, names, name)
        run_one(one, folder, faults=faults, timeout=timeout, force=force, quiet=quiet)


def _folder(output: Path | None, workload: str, names: list[str], name: str) -> Path:
    if output is None:
        return Path("runs") / f"{workload}-{name}"
    return output if len(names) == 1 else output / name


def run_one(
    workload: Workload, folder: Path, *, faults: Any, timeout: float, force: bool, quiet: bool
) -> None:
    from advisor.profile import launch, strategies, summary

    strategies.check(workload)
    _prepare(folder, force=force)

    def say(text: str) -> None:
        if not quiet:
            click.echo(text, err=True)

    total = workload.warmup_steps + workload.timed_steps + workload.steps + 1
    say(
        f"{workload.name}: {workload.model.family} {workload.model.preset}, {workload.strategy},"
        f" {workload.world_size} ranks on {workload.device}, {total} steps"
    )
    try:
        launch.launch(workload, folder, faults=faults, timeout_s=timeout)
    except AdvisorError as error:
        summary.write(folder, workload, error=error.message)
        raise
    document = summary.write(folder, workload)
    step = document["step_ns"] or document["profiled_step_ns"]
    say(
        f"{step['median'] / 1e6:.1f} ms per step (MAD {step['mad'] / 1e6:.1f}),"
        f" {document['tokens_per_second']:,.0f} tokens/s"
    )
    click.echo(f"Wrote {folder}")
    say(f"Next: advisor diagnose {folder}")


def _prepare(folder: Path, *, force: bool) -> None:
    if folder.exists() and any(folder.iterdir()):
        if not (folder / "logs" / "job.json").exists():
            raise AdvisorError(
                "is not empty and not a recording of this tool",
                where=str(folder),
                hint="choose another folder with -o",
            )
        if not force:
            raise AdvisorError(
                "has a recording already", where=str(folder), hint="pass --force to replace it"
            )
        for trace in [*folder.glob("rank*.json.gz"), folder / "profile.json"]:
            trace.unlink(missing_ok=True)
        shutil.rmtree(folder / "logs", ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)


def _parse(text: str) -> tuple[str, Any]:
    from ruamel.yaml import YAML

    name, separator, value = text.partition("=")
    if not separator or not name:
        raise AdvisorError(f"cannot read '{text}'", where="--set", hint="write --set NAME=VALUE")
    return name, YAML(typ="safe", pure=True).load(value)


def _require_torch() -> None:
    try:
        import nvtx  # noqa: F401
        import torch  # noqa: F401
    except ImportError as error:
        raise AdvisorError(
            f"profiling needs the package '{error.name}'",
            hint="pip install 'nccl-advisor[profile]'",
        ) from error
