"""The workload file: every mistake with its line, flags over the file, the shipped files valid."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.config.paths import shipped
from advisor.config.workload import Workload, load_workload
from advisor.errors import AdvisorError

FIVE_MISTAKES = """\
name: gpt2
model:
  family: gpt3
micro_batch: 0
bucket_cap_mb: -1
precison: fp32
steps: many
"""


def test_five_mistakes_are_all_reported_with_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(FIVE_MISTAKES)
    with pytest.raises(AdvisorError) as refused:
        load_workload(path)
    lines = refused.value.message.splitlines()
    assert [line.split(":")[1] for line in lines] == ["3", "4", "5", "6", "7"]
    assert "'gpt2', 'llama' or 'moe'" in lines[0]
    assert "did you mean 'precision'?" in lines[3]
    assert "5 mistakes" in refused.value.hint


def test_scientific_notation_is_a_number(tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    path.write_text("learning_rate: 3e-4\n")
    assert load_workload(path).learning_rate == 3e-4


def test_settings_replace_those_of_the_file() -> None:
    workload = Workload.model_validate({"steps": 3, "model": {"family": "gpt2", "preset": "xl"}})
    changed = workload.with_settings({"steps": 7, "model.preset": "small"})
    assert (changed.steps, changed.model.preset, changed.model.family) == (7, "small", "gpt2")
    assert workload.steps == 3


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"stepz": 1}, "unknown setting 'stepz'"),
        ({"steps": 0}, "steps"),
        ({"compute": "emulated"}, "emulated"),
        ({"steps.deep": 1}, "no settings inside"),
        ({"global_batch": 8, "gradient_accumulation": 2}, "give only one"),
    ],
)
def test_wrong_settings_name_the_setting(settings: dict[str, object], said: str) -> None:
    with pytest.raises(AdvisorError, match=said) as refused:
        Workload.model_validate({"steps": 3}).with_settings(settings)
    assert refused.value.where == "command line"


@pytest.mark.parametrize("path", sorted(shipped("workloads").glob("*.yaml")), ids=lambda p: p.name)
def test_shipped_workloads_can_run(path: Path) -> None:
    pytest.importorskip("torch")
    from advisor.profile import strategies

    workload = load_workload(path)
    for name in workload.strategy.split(","):
        ranks = 1 if name == "single" else workload.world_size
        strategies.check(workload.model_copy(update={"strategy": name, "world_size": ranks}))


def test_the_published_study_is_its_setting() -> None:
    pytest.importorskip("torch")
    from advisor.profile import strategies

    study = load_workload(shipped("workloads") / "gpt2-large-2xh100.yaml")
    assert (study.sequence_length, study.micro_batch, study.learning_rate) == (1024, 8, 3e-4)
    for name, ranks, micro_steps in (("single", 1, 4), ("ddp", 2, 2), ("fsdp2", 2, 2)):
        job = study.model_copy(update={"strategy": name, "world_size": ranks})
        assert strategies.prepare(job)[0].gradient_accumulation == micro_steps
