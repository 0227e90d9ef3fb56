"""Tensor parallelism with sequence parallelism: see tensor.py."""

from __future__ import annotations

from functools import partial

from advisor.profile.strategies import tensor

NAME = "tp-sp"
KIND = "tensor"
checks = partial(tensor.checks, sequence=True)
apply = partial(tensor.cut, sequence=True)
