"""Shared by the DeepSpeed strategies: the engine around the model, its step as the optimizer's.

The package is optional and imported only where a job runs under it. The training loop stays as it
is: the engine's hooks on the model's output see ``loss.backward()``, and
``managed_gradient_accumulation: false`` makes ``step`` the end of the accumulation, so that the
engine neither counts micro-batches nor scales what the loop has scaled already.
"""

import importlib.util
import os
from typing import Any

import torch.distributed as dist

from advisor.profile.strategies.base import OPTIMIZERS, Case, Job, alone

EXTRA = "pip install 'nccl-advisor[deepspeed]'"


KIND = "data"


def checks(case: Case, *, stage: int) -> list[str]:
    """The package, and what its engine does not take or has not been tried with here."""
    name, degrees, workload = f"deepspeed-zero{stage}", case.degrees, case.workload
    problems = []
    if importlib.util.find_spec("deepspeed") is None:
        problems.append(f"strategy {name} needs the package deepspeed, which is missing: {EXTRA}")
    problems += alone(name, pp=degrees.pipeline, tp=degrees.tensor, ep=degrees.expert)
    if workload.precision != "fp32":
        problems.append(f"strategy {name} and precision {workload.precision}: fp32 only")
    if stage == 1 and workload.sync_every_micro_batch and workload.gradient_accumulation > 1:
        problems.append(
            f"strategy {name} and sync_every_micro_batch: stage 1 reduces once per step"
        )
    return problems


def apply(job: Job, *, stage: int) -> None:
    """Put the model under DeepSpeed's engine; its step is the optimizer's."""
    os.environ["DS_ACCELERATOR"] = job.device.type
    import deepspeed

    workload, (model,) = job.workload, job.parts
    if job.device.type == "cpu":
        # For inference only, but compiled at start, for minutes, wherever there is a compiler.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed(dist.get_backend())
    optimizer = OPTIMIZERS[workload.optimizer](job.parameters(), lr=workload.learning_rate)
    engine, *_ = deepspeed.initialize(
        model=model,
        optimizer=optimizer,
        config={
            "train_micro_batch_size_per_gpu": workload.micro_batch,
            "gradient_accumulation_steps": 1,
            "gradient_clipping": 0.0,
            "managed_gradient_accumulation": False,
            "zero_optimization": {"stage": stage, "overlap_comm": False},
            "zero_allow_untested_optimizer": True,
            "zero_force_ds_cpu_optimizer": False,
        },
    )
    job.parts = [engine]
    job.optimizer = _Engine(engine)


class _Engine:
    """The engine as the loop's optimizer: it clears the gradients itself, after its step."""

    def __init__(self, engine: Any) -> None:
        self.step = engine.step

    def zero_grad(self, *, set_to_none: bool) -> None:
        """Nothing is left to clear."""
