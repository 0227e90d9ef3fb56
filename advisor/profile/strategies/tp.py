"""Tensor parallelism: see tensor.py."""

from __future__ import annotations

from functools import partial

from advisor.profile.strategies import tensor

NAME = "tp"
KIND = "tensor"
checks = partial(tensor.checks, sequence=False)
apply = partial(tensor.cut, sequence=False)
