"""The 1F1B pipeline (Narayanan et al. 2019): at most pp micro-batches are alive on a rank."""

from __future__ import annotations

from advisor.profile.strategies import pipeline
from advisor.profile.strategies.base import Case, Job

KIND = "pipeline"


def checks(case: Case) -> list[str]:
    """As all pipelines; a micro-batch for every stage."""
    size, count = case.degrees.pipeline, case.workload.gradient_accumulation
    problems = pipeline.checks(case)
    if count < size > 1:
        problems.append(
            f"pp {size} and gradient_accumulation {count}: 1F1B needs a micro-batch for every stage"
        )
    return problems


def apply(job: Job) -> None:
    """Cut the model."""
    pipeline.apply(job, schedule="Schedule1F1B")
