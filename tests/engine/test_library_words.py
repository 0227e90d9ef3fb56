"""A fix is said in the words of the library whose code builds DDP."""

from __future__ import annotations

import pytest

from advisor.engine.library_words import in_words_of

CAP = "With DDP, reduce in larger buckets.\nDistributedDataParallel(model, bucket_cap_mb=25)"
BUFFERS = (
    "DistributedDataParallel(..., forward_sync_buffers=False)"
    "  # before torch 2.13: broadcast_buffers"
)
HOOK = (
    "from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook\n"
    "model.register_comm_hook(None, fp16_compress_hook)"
)


@pytest.mark.parametrize(
    ("library", "fix", "said"),
    [
        ("transformers", CAP, "TrainingArguments(ddp_bucket_cap_mb=25)"),
        ("transformers", BUFFERS, "TrainingArguments(ddp_broadcast_buffers=False)"),
        ("lightning", CAP, "Trainer(strategy=DDPStrategy(bucket_cap_mb=25))"),
        ("accelerate", HOOK, "comm_hook=DDPCommunicationHookType.FP16"),
        ("lightning", HOOK, "on_train_start: self.trainer.model.register_comm_hook("),
    ],
)
def test_a_library_is_told_its_own_call(library: str, fix: str, said: str) -> None:
    told = in_words_of(library, fix, "host")
    assert said in told
    assert "DistributedDataParallel(" not in told.replace("DistributedDataParallelKwargs", "")


@pytest.mark.parametrize("library", [None, "", "of somebody's"])
def test_a_script_that_builds_ddp_itself_is_told_torchs(library: str | None) -> None:
    assert in_words_of(library, CAP, "host") == CAP
