"""Makes the recordings of a seed: simulates each case with and without its fault, writes the
faulty one's files and the truth."""

from __future__ import annotations

import dataclasses
import json
import random
import shutil
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.gpulab import edits, run
from benchmarks.gpulab.cases import Case, Plan, plans
from benchmarks.gpulab.faults import FAULTS, Made, Place
from benchmarks.gpulab.job import Job, Layout
from benchmarks.gpulab.simulate import Simulation

CASE_FILE = "case.json"
TRACES = "traces"
_Ran = tuple[Simulation, Layout]
_TRIES = 3
WORKERS = 2


def make_seed(
    seed: int, folder: Path, *, quick: bool, only: str, say: Callable[[str], None]
) -> int:
    """All recordings of a seed under ``folder``; those that are there are kept."""
    todo = [
        plan for plan in plans(seed)
        if (plan.quick or not quick) and (not only or only in plan.id)
        and not (folder / plan.id / CASE_FILE).exists()
    ]  # fmt: skip
    todo.sort(key=lambda plan: not plan.quick)
    with ProcessPoolExecutor(WORKERS) as pool:
        for plan, case in zip(todo, pool.map(partial(_tried, folder=folder), todo), strict=True):
            if isinstance(case, str):
                say(f"{plan.id}: NOT MADE, {case}")
                continue
            say(f"{case.id}: {case.strategy} x{case.ranks}, step {case.step_ns / 1e6:.1f} ms, "
                f"costs {case.share:.1%}")  # fmt: skip
    return len(todo)


def _tried(plan: Plan, folder: Path) -> Case | str:
    """One case, or what went wrong with it: the others are made all the same."""
    try:
        return make_case(plan, folder)
    except Exception as error:  # noqa: BLE001 - said, and the case is missing from the score
        return f"{type(error).__name__}: {error}"


def make_case(plan: Plan, folder: Path) -> Case:
    """One case: simulate, write the files, write the truth."""
    made, healthy, cost, (simulation, layout) = _settle(plan)
    step = healthy + cost
    target = folder / plan.id
    shutil.rmtree(target, ignore_errors=True)
    run.write(made.faulty, simulation, layout, target / TRACES)
    if plan.edit:
        culprits = (*made.place.ranks, *made.place.edge)
        edits.apply(plan.edit, target / TRACES, made.faulty, culprits, plan.draw + "/edit")
    fault = FAULTS.get(plan.kind)
    case = Case(
        id=plan.id, kind=plan.kind, strategy=plan.job.strategy, ranks=plan.job.ranks,
        hosts=plan.job.hosts, per_host=plan.job.per_host, is_control=plan.is_control,
        edit=plan.form or plan.edit, rules=list(fault.rules) if fault else [],
        fixes=list(fault.fixes) if fault else [], place=made.place, gain_ns=round(cost),
        step_ns=round(step), healthy_step_ns=round(healthy),
        gains=_gains(made, step),
        groups={group.name: group.description for group in layout.groups},
        faulty=_difference(made.healthy or plan.job, made.faulty),
    )  # fmt: skip
    (target / CASE_FILE).write_text(json.dumps(dataclasses.asdict(case), indent=1) + "\n")
    return case


def _gains(made: Made, step: float) -> dict[str, int]:
    """Of several faults at once what each alone costs, ns per step, by the rules that name it."""
    gains: dict[str, int] = {}
    for rules, without in made.without:
        gains |= dict.fromkeys(rules.split(), round(step - _step(without)[0]))
    return gains


def _settle(plan: Plan) -> tuple[Made, float, float, _Ran]:
    """The fault at a size that costs something: what was made, the healthy step and the cost in
    ns, and the simulation with the fault."""
    healthy, plain = _step(plan.job)
    if plan.is_control:
        return Made(plan.job), healthy, 0.0, plain
    make = FAULTS[plan.kind].make
    size = plan.size
    best: tuple[float, Made, float, float, _Ran] | None = None
    known: dict[Job, float] = {}
    for _ in range(_TRIES):
        made = make(plan.job, size, healthy, random.Random(plan.draw))
        without = healthy
        if made.healthy is not None:
            if made.healthy not in known:
                known[made.healthy] = _step(made.healthy)[0]
            without = known[made.healthy]
        faulty, ran = _step(made.faulty)
        cost = faulty - without
        share = cost / faulty
        off = abs(share - plan.size / (1 + plan.size))
        if best is None or off < best[0]:
            best = (off, made, without, cost, ran)
        if 0.6 * plan.size < cost / without < 1.8 * plan.size:
            break
        size *= min(3.0, max(0.35, plan.size / max(cost / without, 0.005)))
    assert best is not None
    return best[1:]


def _step(job: Job) -> tuple[float, _Ran]:
    ran = run.simulate(job)
    return run.step_ns(job, ran[0].ranks), ran


def _difference(before: Job, after: Job) -> str:
    return ", ".join(
        f"{field.name}={getattr(after, field.name)}"
        for field in dataclasses.fields(Job)
        if getattr(before, field.name) != getattr(after, field.name)
    )


def read_case(folder: Path) -> Case:
    """The truth beside a recording; which rules and fixes name its kind is read from the code."""
    record = json.loads((folder / CASE_FILE).read_text())
    if (kind := FAULTS.get(record["kind"])) is not None and not record["is_control"]:
        record |= {"rules": list(kind.rules), "fixes": list(kind.fixes)}
    place: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in record.pop("place").items()
    }
    return Case(**record, place=Place(**place))
