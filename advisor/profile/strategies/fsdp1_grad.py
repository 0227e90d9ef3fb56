"""FSDP1 with SHARD_GRAD_OP."""

from __future__ import annotations

from functools import partial

from torch.distributed.fsdp import ShardingStrategy

from advisor.profile.strategies import fsdp1

NAME = "fsdp1-grad"
KIND = "data"
checks = fsdp1.checks
apply = partial(fsdp1.shard, strategy=ShardingStrategy.SHARD_GRAD_OP)
