"""The callbacks in the real libraries' own training loops."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the [profile] extra")


def recorded_steps(trace: Path) -> int:
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    return len({e["name"] for e in events if e["name"].startswith("ProfilerStep#")})


def built_by(trace: Path) -> dict[str, str]:
    """Who builds the wrappers, as the recording says: fixes are written in that library's words."""
    return json.loads(gzip.decompress(trace.read_bytes()))["advisor"]["built_by"]


@pytest.mark.slow
def test_lightning(tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning", reason="needs the [lightning] extra")
    from advisor.integrations.lightning import Recorder

    class Module(lightning.LightningModule):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch: Any, _: int) -> Any:
            return self.layer(batch[0]).sum()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=1e-3)

    data = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(torch.randn(64, 4)), batch_size=2
    )
    recorder = Recorder(tmp_path, steps=2, skip=3)
    trainer = lightning.Trainer(
        max_steps=8,
        accumulate_grad_batches=2,
        accelerator="cpu",
        callbacks=[recorder],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Module(), data)
    assert recorder.trace == tmp_path / "rank0.json.gz"
    assert recorded_steps(tmp_path / "rank0.json.gz") == 2
    assert built_by(tmp_path / "rank0.json.gz") == {"ddp": "lightning"}


@pytest.mark.slow
def test_transformers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="needs the [transformers] extra")
    pytest.importorskip("accelerate", reason="needs the [transformers] extra")
    from advisor.integrations.transformers import Recorder

    config = transformers.GPT2Config(n_layer=1, n_embd=16, n_head=2, vocab_size=32, n_positions=8)
    recorder = Recorder(tmp_path / "traces", steps=2, skip=2)
    tokens = torch.randint(0, 32, (64, 8))
    trainer = transformers.Trainer(
        model=transformers.GPT2LMHeadModel(config),
        args=transformers.TrainingArguments(
            output_dir=str(tmp_path / "out"),
            max_steps=7,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=2,
            report_to=[],
            save_strategy="no",
            use_cpu=True,
            disable_tqdm=True,
        ),
        train_dataset=[{"input_ids": row, "labels": row} for row in tokens],
        callbacks=[recorder],
    )
    trainer.train()
    assert recorded_steps(tmp_path / "traces" / "rank0.json.gz") == 2
    assert built_by(tmp_path / "traces" / "rank0.json.gz") == {"ddp": "transformers"}
