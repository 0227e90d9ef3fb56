"""From a workload and a space to a sweep that is ready to run."""

from collections.abc import Sequence
from pathlib import Path

from advisor.config.combinations import baseline
from advisor.config.loader import line_of, read_yaml
from advisor.config.sweep import ENVIRONMENT_PREFIX, STRATEGY, Axis
from advisor.config.workload import Workload
from advisor.errors import AdvisorError
from advisor.model.nccl.env.check import check_env
from advisor.model.nccl.version import NcclVersion
from advisor.tune.budget import Budget
from advisor.tune.points import Points, comparable, job_identity, refusals
from advisor.tune.reference import ReferenceJob
from advisor.tune.sweep import Sweep, planned

MINIMUM_TIMED_STEPS = 15
# Settings that change how much is computed or how fast, where something is computed.
_ARITHMETIC = ("micro_batch", "precision")


def check_job(job: Workload) -> None:
    """Raise AdvisorError where the present settings cannot run here: several strategies, no GPU."""
    from advisor.profile import launch
    from advisor.profile.rendezvous import Nodes

    if "," in job.strategy or job.strategy == "all":
        names = [name for name in job.strategy.split(",") if name not in ("single", "all")]
        raise AdvisorError(
            f"strategy {job.strategy}: a sweep is of one job, so of one strategy",
            hint=f"name one with --strategy, for example --strategy {(names or ['ddp'])[0]}",
        )
    try:
        launch.check(job, Nodes())
    except AdvisorError as error:
        # A sweep has no option for the device.
        hint = error.hint.replace("--device cpu", "device: cpu in the workload's file")
        raise AdvisorError(error.message, where=error.where, hint=hint) from error


def check_strategies(path: Path, axes: Sequence[Axis]) -> None:
    """Raise AdvisorError where a space's file names a strategy that does not exist."""
    from advisor.profile import strategies

    for number, axis in enumerate(axes):
        for place, value in enumerate(axis.values if axis.setting == STRATEGY else ()):
            try:
                strategies.resolve(str(value))
            except AdvisorError as error:
                line = line_of(read_yaml(path), ["axes", number, "values", place])
                raise AdvisorError(
                    f"strategy: {error.message}", where=f"{path}:{line}", hint=error.hint
                ) from error


def check_variables(path: Path, axes: Sequence[Axis], version: NcclVersion) -> None:
    """Raise AdvisorError where a space's file names a variable that this NCCL does not read."""
    for number, axis in enumerate(axes):
        if not axis.setting.startswith(ENVIRONMENT_PREFIX):
            continue
        for issue in check_env({axis.variable: ""}, version):
            if issue.effect == "dead" and issue.severity == "warning":
                line = line_of(read_yaml(path), ["axes", number, "setting"])
                where = f"{path}:{line}"
                message = f"{axis.variable}: {issue.title}"
                raise AdvisorError(message, where=where, hint=issue.action)


def of_real_work(job: Workload, axes: Sequence[Axis]) -> tuple[list[Axis], list[str]]:
    """The axes that can be swept of ``job``, and why the others cannot: waits that stand for
    compute (``compute: emulated``) do not follow what changes the arithmetic.
    """
    if job.compute != "emulated":
        return list(axes), []
    kept = [axis for axis in axes if axis.setting not in _ARITHMETIC]
    return kept, [
        f"{axis.setting}: not swept, compute is emulated and its times do not follow it"
        for axis in axes
        if axis.setting in _ARITHMETIC
    ]


def traced_only(workload: Workload, folder: Path, budget: Budget) -> Sweep:
    """A sweep that varies nothing: the present settings run once, for their trace."""
    return planned(ReferenceJob(_long_enough(workload)), (), folder, Points.of((), {}), budget)


def prepare(
    workload: Workload,
    axes: Sequence[Axis],
    folder: Path,
    environment: dict[str, str],
    budget: Budget,
    source: Path | None = None,
) -> Sweep:
    """A sweep ready to run.

    Raises AdvisorError when there is nothing to vary, or too few trials to compare anything.
    """
    given = workload.timed_steps if "timed_steps" in workload.model_fields_set else None
    workload = comparable(_long_enough(workload), axes)
    start = baseline(list(axes), workload, environment)
    points = Points.of(axes, start, job_identity(workload))
    refused = refusals(workload, axes, start) if points.refused else {}
    sweep = planned(
        ReferenceJob(workload, source, given),
        axes,
        folder,
        points,
        budget,
        refused=[f"{name}: {why}" for name, why in refused.items()],
    )
    others = len(sweep.points) - 1
    if others:
        return sweep
    why = "no axis of the space is one that this job heeds"
    if axes:
        why = ", ".join(axis.setting for axis in axes) + " with nothing but the present value"
    if points.refused or points.same:
        why = (
            f"of the space's other combinations this job refuses {points.refused} and "
            f"{points.same} come to the same job (a bucket cap above all gradients is no other "
            "one)" + "".join(f"; {line}" for line in sweep.refused)
        )
    hint = "see the strategies and backends of the axes, or pass --space"
    raise AdvisorError(f"nothing to vary: {why}", hint=hint)


def _long_enough(workload: Workload) -> Workload:
    steps = max(workload.timed_steps, MINIMUM_TIMED_STEPS)
    return workload.with_settings({"timed_steps": steps})
