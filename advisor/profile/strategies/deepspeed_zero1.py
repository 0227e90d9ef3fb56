"""DeepSpeed's ZeRO stage 1: the optimizer's state spread over the data-parallel ranks."""

from __future__ import annotations

from functools import partial

from advisor.profile.strategies import deepspeed_zero

NAME = "deepspeed-zero1"
KIND = "data"
checks = partial(deepspeed_zero.checks, stage=1)
apply = partial(deepspeed_zero.shard, stage=1)
