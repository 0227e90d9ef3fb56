"""A job to a simulation, its step time, and its files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks.gpulab import data_parallel, experts, kineto, pipeline, sharded, tensor
from benchmarks.gpulab.emit import Emitter
from benchmarks.gpulab.job import Job, Layout
from benchmarks.gpulab.simulate import Simulation
from benchmarks.gpulab.state import RankState

_Program = Callable[[Emitter], None]
STRATEGIES: dict[str, tuple[Callable[[Job], Layout], _Program]] = {
    "ddp": (data_parallel.layout, data_parallel.program),
    "zero1": (data_parallel.layout, data_parallel.program),
    "fsdp1": (sharded.layout, sharded.program),
    "fsdp2": (sharded.layout, sharded.program),
    "hsdp": (sharded.layout, sharded.program),
    "tp": (tensor.layout, tensor.program),
    "pp": (pipeline.layout, pipeline.program),
    "moe": (experts.layout, experts.program),
}


def simulate(job: Job) -> tuple[Simulation, Layout]:
    """Run a job. Raises RuntimeError when its ranks wait for each other for ever."""
    make_layout, program = STRATEGIES[job.strategy]
    layout = make_layout(job)
    programs = []
    for rank in range(job.ranks):
        emitter = Emitter(job, rank, layout)
        program(emitter)
        programs.append(emitter.program)
    simulation = Simulation(job, programs)
    simulation.run()
    return simulation, layout


def step_ns(job: Job, ranks: list[RankState]) -> float:
    """Mean time of a step without the first: from the first step's end to the last one's.

    A step ends when its host and what it launched have ended, on the last rank to do so. Counted
    from the start of a step's work instead, idling before it would be missing once.
    """
    firsts, lasts = [], []
    for rank in ranks:
        spans = sorted(
            (start, end, number) for name, _, start, end, _, number, _ in rank.ranges
            if name.startswith("ProfilerStep#")
        )  # fmt: skip
        second = spans[1][2]
        firsts.append(spans[0][1])
        firsts.append(max(end for _, _, _, end, item in rank.device if item[4] < second))
        lasts.append(spans[-1][1])
        lasts.append(max(end for _, _, _, end, *_ in rank.device))
    return (max(lasts) - max(firsts)) / (job.steps - 1)


def write(job: Job, simulation: Simulation, layout: Layout, folder: Path) -> None:
    """All ranks' files."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank in simulation.ranks:
        kineto.write(job, layout, rank, folder / kineto.file_name(job, rank.rank))
