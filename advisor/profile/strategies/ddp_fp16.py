"""DDP with gradients cast to fp16 on the wire, by torch's own communication hook."""

from __future__ import annotations

from functools import partial

from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

from advisor.profile.strategies import ddp
from advisor.profile.strategies.ddp_hooks import apply_with_hook

NAME = "ddp-fp16"
KIND = "data"
checks = ddp.checks
apply = partial(apply_with_hook, hook=fp16_compress_hook, state=lambda group: group)
