"""DeepSpeed's ZeRO stages train as one device does; without the package they are refused.

The package is optional: no installation for development or CI has it, so that the tests that train
are skipped there.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from advisor.config.workload import Workload
from advisor.errors import AdvisorError
from advisor.profile import strategies
from advisor.profile.strategies import deepspeed_zero
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
        strategies.check(Workload.model_validate({"strategy": f"deepspeed-zero{stage}"}))
    assert "pip install 'nccl-advisor[deepspeed]'" in str(refused.value)
