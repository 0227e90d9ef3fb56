"""The GPipe pipeline (Huang et al. 2019): all micro-batches are alive at the turn."""

from __future__ import annotations

from functools import partial

from torch.distributed.pipelining import ScheduleGPipe

from advisor.profile.strategies import pipeline

NAME = "pp-gpipe"
KIND = "pipeline"
checks = pipeline.checks
apply = partial(pipeline.cut, schedule=ScheduleGPipe)
