"""Tensor parallelism with sequence parallelism: see tensor.py."""

from __future__ import annotations

from advisor.profile.strategies import tensor
from advisor.profile.strategies.base import Case, Job

NAME = "tp-sp"
SUMMARY = "tensor parallelism with the sequence cut between blocks"
KIND = "tensor"


def checks(case: Case) -> list[str]:
    """What must be divisible."""
    return tensor.checks(case, sequence=True)


def apply(job: Job) -> None:
    """Cut the layers."""
    tensor.cut(job, sequence=True)
