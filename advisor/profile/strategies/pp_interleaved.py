"""The interleaved 1F1B pipeline (Narayanan et al. 2021): several stages on every rank."""

from __future__ import annotations

from torch.distributed.pipelining import ScheduleInterleaved1F1B

from advisor.profile.strategies import pipeline
from advisor.profile.strategies.base import Case, Job

NAME = "pp-interleaved"
KIND = "pipeline"


def checks(case: Case) -> list[str]:
    """As all pipelines; a whole number of rounds."""
    workload, size = case.workload, case.degrees.pipeline
    problems = pipeline.checks(case, stages_per_rank=workload.virtual_stages)
    if workload.virtual_stages < 2:
        problems.append(
            f"strategy {NAME} and virtual_stages {workload.virtual_stages}: needs 2 or more, "
            "or strategy pp"
        )
    if workload.gradient_accumulation % size:
        problems.append(
            f"pp {size} and gradient_accumulation {workload.gradient_accumulation}: {NAME} runs "
            "the micro-batches in rounds of pp"
        )
    return problems


def apply(job: Job) -> None:
    """Cut the model."""
    stages = job.workload.virtual_stages
    pipeline.cut(job, ScheduleInterleaved1F1B, stages_per_rank=stages)
