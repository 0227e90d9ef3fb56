"""DeepSpeed's ZeRO stage 2: gradients and the optimizer's state sharded."""

from __future__ import annotations

from functools import partial

from advisor.profile.strategies import deepspeed_zero

NAME = "deepspeed-zero2"
KIND = "data"
checks = partial(deepspeed_zero.checks, stage=2)
apply = partial(deepspeed_zero.shard, stage=2)
