"""Tensor parallelism: see tensor.py."""

from __future__ import annotations

from advisor.profile.strategies import tensor
from advisor.profile.strategies.base import Case, Job

NAME = "tp"
SUMMARY = "Megatron tensor parallelism: four all-reduces of activations per layer and step"
KIND = "tensor"


def checks(case: Case) -> list[str]:
    """What must be divisible."""
    return tensor.checks(case, sequence=False)


def apply(job: Job) -> None:
    """Cut the layers."""
    tensor.cut(job, sequence=False)
