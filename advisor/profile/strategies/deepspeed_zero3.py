"""DeepSpeed's ZeRO stage 3: parameters gathered for each module, in forward and in backward."""

from __future__ import annotations

from functools import partial

from advisor.profile.strategies import deepspeed_zero

NAME = "deepspeed-zero3"
KIND = "data"
checks = partial(deepspeed_zero.checks, stage=3)
apply = partial(deepspeed_zero.shard, stage=3)
