"""What the recommendation says to write in a script, in the words of each library."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys

import pytest

pytest.importorskip("torch")

from torch.nn.parallel import DistributedDataParallel

from advisor.config.script_words import how_to_write
from advisor.profile.hook import construction

DDP = dict.fromkeys(["bucket_cap_mb", "gradient_as_bucket_view", "static_graph", "comm_hook"])
DDP_SETTINGS = {"bucket_cap_mb": 5.0, "gradient_as_bucket_view": True, "static_graph": True}


@pytest.mark.parametrize(
    ("made_by", "said"),
    [
        ("", "DistributedDataParallel(model, bucket_cap_mb=5, gradient_as_bucket_view=True, "),
        ("accelerate", "DistributedDataParallelKwargs(bucket_cap_mb=5, gradient_as_bucket_view="),
        ("transformers", "TrainingArguments(ddp_bucket_cap_mb=5, ddp_static_graph=True)"),
        ("lightning", "from lightning.pytorch.strategies import DDPStrategy; Trainer(strategy="),
        ("pytorch_lightning", "from pytorch_lightning.strategies import DDPStrategy; Trainer("),
        ("lightning.fabric", "from lightning.fabric.strategies import DDPStrategy; Fabric("),
    ],
)
def test_what_to_write_is_one_call_of_the_library_that_builds_the_wrapper(
    made_by: str, said: str
) -> None:
    built = {"ddp": {**DDP, "made_by": made_by}}
    lines = how_to_write(DDP_SETTINGS, built, "cpu")
    assert said in lines[0]
    assert all("strategy=" not in line for line in lines[1:])  # a second would replace the first


@pytest.mark.slow
def test_arguments_that_are_to_be_written_are_the_libraries_own() -> None:
    transformers = pytest.importorskip("transformers")
    accelerate = pytest.importorskip("accelerate.utils")
    places = {
        "transformers": transformers.TrainingArguments,
        "accelerate": accelerate.DistributedDataParallelKwargs,
        "": DistributedDataParallel,
    }
    for made_by, place in places.items():
        built = {"ddp": {**DDP, "made_by": made_by}}
        line, *_ = how_to_write(DDP_SETTINGS, built, "cpu")
        names = re.findall(r"(\w+)=(?:5|True)", line)
        assert names and set(names) <= set(inspect.signature(place).parameters)


def test_lightning_registers_hooks_on_cuda_alone() -> None:
    built = {"ddp": {**DDP, "made_by": "lightning"}}
    (line,) = how_to_write({"comm_hook": "fp16"}, built, "cuda")
    assert "DDPStrategy(ddp_comm_hook=" in line
    (line,) = how_to_write({"comm_hook": "fp16"}, built, "cpu")
    assert "on_train_start: self.trainer.model.register_comm_hook(" in line


@pytest.mark.parametrize(
    ("wrapper", "made_by", "said"),
    [
        ("fsdp1", "lightning", 'FSDPStrategy(sharding_strategy="SHARD_GRAD_OP")'),
        ("fsdp1", "accelerate", 'reshard_after_forward="SHARD_GRAD_OP"'),
        ("fsdp2", "", "fully_shard(module, reshard_after_forward=False)"),
        ("fsdp2", "lightning", "fully_shard(module, reshard_after_forward=False)"),
        ("fsdp2", "transformers", "fsdp_config=dict(..., reshard_after_forward=False)"),
        ("fsdp2", "torchtitan", "--parallelism.fsdp_reshard_after_forward never"),
    ],
)
def test_what_to_write_for_sharded_parameters(wrapper: str, made_by: str, said: str) -> None:
    built = {wrapper: {"reshard_after_forward": True, "made_by": made_by}}
    (line,) = how_to_write({"reshard_after_forward": False}, built, "cuda")
    assert said in line


@pytest.mark.parametrize(
    ("made_by", "said"),
    [
        ("", '"zero_optimization": {..., "reduce_bucket_size": 5000000, "overlap_comm": true}'),
        ("transformers", 'TrainingArguments(deepspeed=...): "zero_optimization": {..., "reduce_'),
        ("accelerate", 'hf_ds_config=...)): "zero_optimization": {..., "reduce_bucket_size": 500'),
        ("lightning", "DeepSpeedStrategy(reduce_bucket_size=5000000, overlap_comm=True)"),
    ],
)
def test_what_to_write_for_deepspeed_is_json_or_the_strategys_arguments(
    made_by: str, said: str
) -> None:
    settings = {"reduce_bucket_size": 5_000_000, "overlap_comm": True}
    built = {"deepspeed": {"stage": 2, **dict.fromkeys(settings), "made_by": made_by}}
    (line,) = how_to_write(settings, built, "cuda")
    assert said in line
    # Lightning's strategy has no argument for what stage 3 alone reads.
    persistent = "stage3_param_persistence_threshold"
    built = {"deepspeed": {"stage": 3, persistent: 100_000, "made_by": made_by}}
    (line,) = how_to_write({persistent: 1_000_000}, built, "cuda")
    assert f'"zero_optimization": {{..., "{persistent}": 1000000}}' in line


def test_a_wrapper_that_a_script_builds_inside_of_a_librarys_hook_is_the_scripts() -> None:
    asked = {"construction": construction}
    library = {"__name__": "lightning.pytorch.trainer.trainer", **asked}
    exec("def fit(hook): return hook()\ndef build(): return wrap()", library)
    torch_code = {"__name__": "torch.nn.parallel.distributed", **asked}
    exec("def wrap(): return construction._made_by()", torch_code)
    library["wrap"] = torch_code["wrap"]
    assert library["fit"](library["build"]) == "lightning"
    script = {"__name__": "train", "wrap": torch_code["wrap"]}
    exec("def configure_model(): return wrap()", script)
    assert library["fit"](script["configure_model"]) == ""


@pytest.mark.slow
def test_a_hook_is_found_by_a_script_that_imports_torch_alone() -> None:
    (line,) = how_to_write({"comm_hook": "bf16"}, {"ddp": {**DDP, "made_by": ""}}, "cpu")
    imported, _, _ = line.partition(";")
    code = f"import torch; {imported}; default_hooks.bf16_compress_hook"
    subprocess.run([sys.executable, "-c", code], check=True)
