"""The GPipe pipeline (Huang et al. 2019): all micro-batches are alive at the turn."""

from __future__ import annotations

from torch.distributed.pipelining import ScheduleGPipe

from advisor.profile.strategies import pipeline
from advisor.profile.strategies.base import Case, Job

NAME = "pp-gpipe"
SUMMARY = "pipeline with all forwards, then all backwards (GPipe)"
KIND = "pipeline"


def checks(case: Case) -> list[str]:
    """As all pipelines."""
    return pipeline.checks(case)


def apply(job: Job) -> None:
    """Cut the model."""
    pipeline.cut(job, ScheduleGPipe)
