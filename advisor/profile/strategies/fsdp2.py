"""FSDP2 as ZeRO stage 3: parameters gathered for each layer, in forward and again in backward."""

from __future__ import annotations

from functools import partial

from advisor.profile.strategies import fully_shard

NAME = "fsdp2"
KIND = "data"
checks = fully_shard.checks
apply = partial(fully_shard.shard_data, reshard_after_forward=True)
