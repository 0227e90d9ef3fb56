"""The first look at somebody's own job: what it is made of, and so what is worth trying.

One run with the present settings, recorded: the wrappers that its script builds give the axes and
their present values, its breakdown says which of them act on anything. Its times are no part of the
comparison.
"""

import json
import math
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from advisor.config.atomic_files import write_atomic
from advisor.config.own import OwnAxis, OwnJob, OwnSpace
from advisor.config.paths import shipped
from advisor.config.sweep import (
    ENVIRONMENT_PREFIX,
    Axis,
    Space,
    Value,
    default_space,
    load_space,
    on_interface,
)
from advisor.errors import AdvisorError
from advisor.tune.budget import COMPARISON_TRIALS, Budget
from advisor.tune.job import Limits
from advisor.tune.journal import UNCHANGED
from advisor.tune.own import OwnCommand
from advisor.tune.points import Points
from advisor.tune.sweep import Sweep, planned
from advisor.vocabulary.numbers import INT64_MAX, MOST_RANKS
from advisor.vocabulary.recorded_steps import STEPS
from advisor.vocabulary.words import plural

FILE_NAME = "survey.json"
# Communication below this share of the step is not worth a trial: less than a sweep resolves.
_LEAST_SHARE = 0.01
# What acts on nothing but communication.
_COMMUNICATION = (
    "bucket_cap_mb", "comm_hook", "reshard_after_forward", "prefetch_forward",
    "prefetch_backward", "reduce_precision", "reduce_bucket_size", "overlap_comm", "stage3_",
    "env.GLOO_", "env.NCCL_",
)  # fmt: skip


_OF_FIRST_RANK = ("world_size", "backend", "device", "micro_batches", "built")


class Survey(BaseModel, allow_inf_nan=False):
    """survey.json. ``exposed_share``: communication that nothing hides, of the step; None where
    the recording cannot be read. ``diagnosis`` is the verdict's title, ``findings`` rule: share of
    the step that it may save at most. ``seconds``: all of it, ``trial_s``: its run alone.
    """

    world_size: int = Field(ge=1, le=MOST_RANKS)
    backend: str
    device: str
    micro_batches: int = Field(ge=0, le=INT64_MAX)
    built: dict[str, dict[str, Any]]
    exposed_share: float | None
    diagnosis: str
    findings: dict[str, float]
    trial_s: float = Field(ge=0)
    seconds: float = Field(ge=0)


def survey(job: OwnJob, folder: Path, *, timeout_s: float, again: bool) -> Survey:
    """Run the job once, or with ``again`` read what it gave before.

    Raises LaunchError, and AdvisorError for a file that holds something else.
    """
    path = folder / FILE_NAME
    if again and path.is_file():
        try:
            return Survey.model_validate_json(path.read_bytes())
        except ValueError as error:  # pydantic's
            said = "is not what a first run gave"
            raise AdvisorError(said, where=str(path), hint=UNCHANGED) from error
    started = time.monotonic()
    recorded = folder / "survey"
    shutil.rmtree(recorded, ignore_errors=True)
    first = OwnCommand(job, {}, traced=STEPS)
    ranks = first.look({}, recorded, Limits(timeout_s))
    first.refuse_rare_numbers(recorded)
    ran_s = time.monotonic() - started
    found = Survey(
        **{name: ranks[0][name] for name in _OF_FIRST_RANK},
        trial_s=round(ran_s, 3),
        seconds=0.0,
        **_diagnosis(recorded),
    ).model_copy(update={"seconds": round(time.monotonic() - started, 3)})
    write_atomic(path, json.dumps(found.model_dump(), indent=1) + "\n")
    return found


def prepare_own(
    job: OwnJob, found: Survey, folder: Path, space: Space | None, budget: Budget
) -> tuple[Sweep, list[str]]:
    """The sweep that the survey calls for, and what of the space is left out and why.

    Raises AdvisorError when nothing is left to vary.
    """
    axes, left_out = _axes(found, space)
    axes = [axis.model_copy(update={"expected_share": _expected(axis, found)}) for axis in axes]
    start = {axis.setting: _present(axis.setting, found) for axis in axes}
    if budget.seconds is not None:
        least = COMPARISON_TRIALS * found.trial_s if budget.compares else 1.0
        budget = replace(budget, seconds=max(budget.seconds - found.seconds, least))
    of_job = OwnCommand(job, found.built, found.world_size, device=found.device)
    points = Points.of(axes, start)
    known = {"before_s": found.seconds, "trial_s": found.trial_s}
    sweep = planned(of_job, axes, folder, points, budget, **known)
    if len(sweep.points) == 1:
        raise AdvisorError(
            "nothing to vary: "
            + "; ".join([*left_out, *(f"{n}: no second value is left" for n in sweep.fixed)]),
            hint="name axes and values that this job heeds with --space",
        )
    return sweep, left_out


def _expected(axis: Axis, found: Survey) -> float:
    """What the first diagnosis expects of an axis, share of the step."""
    rules = axis.advised_by if isinstance(axis, OwnAxis) else ()
    return max((found.findings.get(rule, 0.0) for rule in rules), default=0.0)


def _axes(found: Survey, space: Space | None) -> tuple[list[Axis], list[str]]:
    """The axes of the space that this job heeds and that may act, and why the others are out."""
    own = space or load_space(shipped("workloads") / "sweeps" / "own.yaml", OwnSpace)
    axes: list[Axis] = list(own.axes)
    if space is None and found.backend in ("gloo", "nccl"):
        listed = default_space(found.backend).axes
        axes += [axis for axis in listed if axis.setting.startswith(ENVIRONMENT_PREFIX)]
    kept: list[Axis] = []
    names: dict[str, list[str]] = {item.why: [item.setting] for item in own.left_out}
    for axis in axes:
        if why := _why_not(axis, found, given=space is not None):
            names.setdefault(why, []).append(axis.variable)
            continue
        cannot = {value: why for value in axis.values if (why := _cannot(axis, value, found))}
        values = [value for value in axis.values if value not in cannot]
        kept.append(axis.model_copy(update={"values": values}))
        for value, why in cannot.items():
            names.setdefault(why, []).append(f"{axis.variable}={value}")
    left_out = [f"{', '.join(those)}: {why}" for why, those in names.items()]
    return on_interface(kept, os.environ.get("GLOO_SOCKET_IFNAME")), left_out


def _why_not(axis: Axis, found: Survey, *, given: bool) -> str:
    """Why an axis is not worth trying in this job; '' where it is. ``given``: by the user."""
    if axis.strategies and not set(axis.strategies) & set(found.built):
        return f"this job builds no {' or '.join(axis.strategies)}"
    zero = found.built.get("deepspeed", {})
    if axis.strategies == ["deepspeed"] and axis.setting not in zero:
        return f"stage {zero.get('stage')} of ZeRO does not use it"
    if isinstance(axis, OwnAxis) and axis.devices and found.device not in axis.devices:
        return f"for {' and '.join(axis.devices)}"
    if not axis.applies(found.backend, "+".join(found.built) or "none"):
        return f"{found.backend or 'this job'} ignores it"
    share = found.exposed_share
    idle_links = share is not None and share < _LEAST_SHARE
    if not given and idle_links and axis.setting.startswith(_COMMUNICATION):
        return f"communication takes {share:.1%} of the step: nothing to gain"
    return ""


def _cannot(axis: Axis, value: Value, found: Survey) -> str:
    """Why this job cannot run a value at all; '' where it can (DDP._check_comm_hook)."""
    if (axis.setting, value, found.backend) == ("comm_hook", "bf16", "gloo"):
        return "torch refuses its bf16 hook on gloo"
    if axis.setting == "env.OMP_NUM_THREADS":
        most = max(1, len(os.sched_getaffinity(0)) // max(found.world_size, 1))
        if int(str(value)) > most:
            return f"more than the {plural(most, 'core')} of each rank"
    return ""


def _present(setting: str, found: Survey) -> Any:
    if setting == "env.OMP_NUM_THREADS":
        return os.environ.get("OMP_NUM_THREADS", "1")  # torchrun's own default
    if setting.startswith(ENVIRONMENT_PREFIX):
        return os.environ.get(setting.removeprefix(ENVIRONMENT_PREFIX))
    return next((how[setting] for how in found.built.values() if setting in how), None)


def _diagnosis(folder: Path) -> dict[str, Any]:
    """What the recording says: the verdict, and how much of the step communication costs."""
    from advisor import engine
    from advisor.tune.recorded import recorded
    from advisor.whatif import annotate

    with recorded(folder, "survey") as store:
        annotate(store)
        report = engine.diagnose(store, command="advisor tune --sweep")
        (share,) = store.con.execute(
            "SELECT sum(exposed_comm_ns) / nullif(sum(window_ns), 0) FROM step_breakdown "
            "WHERE complete"
        ).fetchone()
    step_ns = next((run.step_ns_median for run in report.runs), None) or math.inf
    return {
        "exposed_share": share,
        "diagnosis": report.verdict.title,
        "findings": {
            one.rule: round(min(one.most_ns() / step_ns, 1), 4) for one in report.findings
        },
    }
