"""``advisor tune --sweep WORKLOAD``: a reference workload and a space as a sweep ready to run."""

import os
from pathlib import Path
from typing import Any

from advisor.cli._tune_run import Prepared
from advisor.config.paths import shipped
from advisor.config.sweep import Axis, default_space, load_space, on_interface
from advisor.config.workload import load_workload
from advisor.errors import AdvisorError
from advisor.model.nccl.calibration import load_calibration
from advisor.model.nccl.version import NcclVersion
from advisor.tune.budget import Budget
from advisor.tune.modelled import NcclModel
from advisor.tune.prepare import (
    check_job,
    check_strategies,
    check_variables,
    of_real_work,
    prepare,
    traced_only,
)


def prepared(
    workload: Path | None,
    folder: Path,
    space: Path | None,
    overrides: dict[str, Any],
    budget: Budget,
    *,
    machine: str | None,
    calibration: Path | None,
    nodes: int,
    version: NcclVersion,
) -> Prepared:
    """The sweep of ``workload`` (default: the tiny GPT-2) over ``space``. Raises AdvisorError.

    ``machine`` and ``nodes`` are what NCCL's cost model is asked about.
    """
    workload = workload or shipped("workloads") / "gpt2.yaml"

    reference = load_workload(workload)
    reference = reference.with_settings({k: v for k, v in overrides.items() if v is not None})
    check_job(reference)
    backend = "nccl" if reference.device == "cuda" else "gloo"
    axes_file = load_space(space) if space else default_space(backend)
    if space:
        check_strategies(space, axes_file.axes)
        check_variables(space, axes_file.axes, version)
    axes, ignored = axes_file.for_job(backend, reference.strategy)
    axes = on_interface(axes, os.environ.get("GLOO_SOCKET_IFNAME"))
    fitted = load_calibration(calibration) if calibration is not None else None
    model = NcclModel.of(machine, nodes, version, ignored, fitted) if machine else None
    modelled_on = f"{nodes} x {machine}" if machine else ""
    axes, not_real = of_real_work(reference, axes)
    unheeded = [
        axis.why_ignored(backend, reference.strategy, modelled_on=modelled_on) for axis in ignored
    ]
    unheeded += not_real
    if axes:
        plan = prepare(reference, axes, folder, dict(os.environ), budget, workload)
    elif model is not None and model.settings:
        plan = traced_only(reference, folder, budget)
    else:
        raise _nothing_to_vary(ignored, unheeded, str(space or backend), model)
    left_out = [*unheeded, *(f"{item.setting}: {item.why}" for item in axes_file.left_out)]
    return Prepared(plan, unheeded, left_out, model)


def _nothing_to_vary(
    ignored: list[Axis], unheeded: list[str], where: str, model: NcclModel | None
) -> AdvisorError:
    hint = "name an axis that this job heeds, or take the default space (no --space)"
    if model is not None:
        unheeded = [*unheeded, *model.left_out]
        hint = f"NCCL's model ranks NCCL_ALGO and NCCL_PROTO; or {hint}"
    elif any(axis.is_modelled for axis in ignored):
        hint = (
            "give --topology MACHINE (dgx-h100 ..., or a YAML file) for NCCL's modelled ranking, "
            f"or {hint}"
        )
    return AdvisorError(f"nothing to vary: {'; '.join(unheeded)}", where=where, hint=hint)
