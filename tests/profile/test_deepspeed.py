"""DeepSpeed's ZeRO stages train as one device does; without the package they are refused.

The package is optional: no installation for development or CI has it, so that the tests that train
are skipped there.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

from advisor.config.own import HookSettings, OwnJob
from advisor.config.workload import Workload
from advisor.errors import AdvisorError
from advisor.profile import strategies
from advisor.profile.hook import construction
from advisor.profile.strategies import deepspeed_zero
from advisor.tune.job import Limits
from advisor.tune.own import OwnCommand
from tests.profile.test_strategies import TOLERANCE, case, file_name, train

STAGES = ["deepspeed-zero1", "deepspeed-zero2", "deepspeed-zero3"]
CASES = {
    **{stage: {"strategy": stage} for stage in STAGES},
    **{
        f"{stage} checkpointed": {"strategy": stage, "activation_checkpointing": "full"}
        for stage in STAGES
    },
}
needs_package = pytest.mark.skipif(
    importlib.util.find_spec("deepspeed") is None,
    reason="deepspeed is not installed (optional extra)",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("deepspeed")


@pytest.fixture(scope="module")
def single(folder: Path) -> list[float]:
    losses: list[float] = train([case("gpt2", 1, strategy="single")], 1, folder)["gpt2"]["losses"]
    return losses


@pytest.fixture(scope="module")
def on_four_ranks(folder: Path) -> dict[str, Any]:
    return train([case(name, 4, **settings) for name, settings in CASES.items()], 4, folder)


@needs_package
@pytest.mark.slow
@pytest.mark.parametrize("name", list(CASES))
def test_losses_agree_with_one_device(
    single: list[float], on_four_ranks: dict[str, Any], name: str
) -> None:
    found = on_four_ranks[file_name(name)]
    assert found["losses"] == pytest.approx(single, abs=TOLERANCE)
    assert found["data_ranks"] == 4


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_without_the_package_the_refusal_says_how_to_install_it(
    stage: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deepspeed_zero.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(AdvisorError) as refused:
        strategies.prepare(Workload.model_validate({"strategy": f"deepspeed-zero{stage}"}))
    assert "pip install 'nccl-advisor[deepspeed]'" in str(refused.value)


DEFAULTS = {
    "stage": 0,
    "reduce_bucket_size": 500_000_000,
    "overlap_comm": None,
    "contiguous_gradients": True,
    "prefetch_bucket_size": 50_000_000,
    "param_persistence_threshold": 100_000,
}


@pytest.mark.parametrize(
    ("section", "read"),
    [
        ({"stage": 2}, {"reduce_bucket_size": 5_000_000}),
        (
            {"stage": 3, "reduce_bucket_size": 7},
            {"reduce_bucket_size": 5_000_000, "prefetch_bucket_size": 0},
        ),
        ({"stage": 0}, {}),
    ],
    ids=["stage 2", "stage 3", "stage 0 has no buckets"],
)
def test_zeros_section_takes_the_wanted_settings_of_its_stage(
    section: dict[str, Any], read: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN what DeepSpeed's function makes of a section: defaults, aliases without their prefix
    def get_zero_config(document: dict[str, Any]) -> SimpleNamespace:
        given = {k.removeprefix("stage3_"): v for k, v in document["zero_optimization"].items()}
        return SimpleNamespace(**DEFAULTS | given)

    wanted = {"reduce_bucket_size": 5_000_000, "stage3_prefetch_bucket_size": 0, "bucket_cap_mb": 1}
    monkeypatch.setattr(construction, "wanted", wanted)
    monkeypatch.setattr(construction, "built", {})
    module: Any = SimpleNamespace(get_zero_config=get_zero_config)
    construction.change_deepspeed(module)
    document = {"train_batch_size": 8, "zero_optimization": dict(section)}
    # WHEN a configuration is read
    found = module.get_zero_config(document)
    # THEN it has the wanted settings that its stage reads, and the script's document is as it was
    given = {k.removeprefix("stage3_"): v for k, v in section.items()}
    assert vars(found) == DEFAULTS | given | read
    assert document["zero_optimization"] == section
    # AND the script's own are noted
    noted = construction.built.get("deepspeed", {}).get("reduce_bucket_size")
    assert noted == (given.get("reduce_bucket_size", 500_000_000) if read else None)


@needs_package
def test_every_setting_is_one_of_deepspeeds_own() -> None:
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig

    fields = DeepSpeedZeroConfig.model_fields
    known = {field.alias or name: field.default for name, field in fields.items()}
    ours = {name for names in construction._BY_STAGE.values() for name in names}
    assert ours <= known.keys()
    stated = HookSettings()
    for name in ours - {"overlap_comm"}:  # its default depends on the stage
        assert getattr(stated, name) == known[name]


SCRIPT = """
import os, sys
import deepspeed
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
import torch
deepspeed.init_distributed("gloo")
torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Linear(64, 64, bias=False) for _ in range(4)])
engine, *_ = deepspeed.initialize(
    model=model, model_parameters=model.parameters(), config=sys.argv[1]
)
while True:
    loss = engine(torch.randn(4, 64)).square().mean()
    engine.backward(loss)
    engine.step()
    engine.save_checkpoint(sys.argv[2])
"""


@needs_package
@pytest.mark.slow
@pytest.mark.parametrize("stage", [1, 2])
def test_a_trial_sets_what_the_file_of_a_script_says_and_writes_no_checkpoint(
    stage: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a script with a file for DeepSpeed, four weights of 4,096 elements
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    script, file, saved = (tmp_path / name for name in ("train.py", "ds.json", "saved"))
    script.write_text(SCRIPT)
    optimizer = {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}}
    zero = {"stage": stage, "overlap_comm": False}
    file.write_text(
        json.dumps(
            {
                "train_micro_batch_size_per_gpu": 4,
                "optimizer": optimizer,
                "zero_force_ds_cpu_optimizer": False,
                "zero_optimization": zero,
            }
        )
    )
    launch = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2")
    job = OwnJob(command=(*launch, str(script), str(file), str(saved)), timed_steps=3)
    # WHEN a trial of it runs with buckets of one weight
    trial = OwnCommand(job, {})
    ranks = trial.look({"reduce_bucket_size": 5_000}, tmp_path / "t", Limits(300))
    # THEN its own setting was noted, and a weight travels in a call of its own
    assert ranks[0]["built"]["deepspeed"]["reduce_bucket_size"] == 500_000_000
    from advisor import api

    with api.load(tmp_path / "t") as run:
        calls = run.collectives()
    sizes = calls[(calls["rank"] == 0) & (calls.op == "all_reduce")].bytes
    assert (sizes == 4 * 4_096).sum() >= 4
    assert sizes.max() == 4 * 4_096
    # AND no checkpoint was written, nor the file that names the last one
    assert not saved.exists()
