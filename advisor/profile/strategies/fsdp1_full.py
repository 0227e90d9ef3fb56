"""FSDP1 with FULL_SHARD."""

from __future__ import annotations

from functools import partial

from torch.distributed.fsdp import ShardingStrategy

from advisor.profile.strategies import fsdp1

NAME = "fsdp1-full"
KIND = "data"
checks = fsdp1.checks
apply = partial(fsdp1.shard, strategy=ShardingStrategy.FULL_SHARD)
