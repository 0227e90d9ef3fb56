"""The interleaved 1F1B pipeline (Narayanan et al. 2021): several stages on every rank."""

from __future__ import annotations

from advisor.profile.strategies import pipeline
from advisor.profile.strategies.base import Case, Job

KIND = "pipeline"


def checks(case: Case) -> list[str]:
    """As all pipelines; a whole number of rounds."""
    workload, size = case.workload, case.degrees.pipeline
    problems = pipeline.checks(case, stages_per_rank=workload.virtual_stages)
    if workload.virtual_stages < 2:
        problems.append(
            f"strategy pp-interleaved and virtual_stages {workload.virtual_stages}: needs 2 "
            "or more, or strategy pp"
        )
    if workload.gradient_accumulation % size:
        problems.append(
            f"pp {size} and gradient_accumulation {workload.gradient_accumulation}: pp-interleaved "
            "runs the micro-batches in rounds of pp"
        )
    return problems


def apply(job: Job) -> None:
    """Cut the model."""
    stages = job.workload.virtual_stages
    pipeline.apply(job, schedule="ScheduleInterleaved1F1B", stages_per_rank=stages)
