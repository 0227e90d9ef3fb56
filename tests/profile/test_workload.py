"""The workload file: every mistake with its line, flags over the file, the shipped files valid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

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


def profile(*arguments: str) -> Any:
    from advisor.cli.profile import command

    file = str(shipped("workloads") / "gpt2.yaml")
    return CliRunner().invoke(command, [file, *arguments], standalone_mode=False)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--set", "global_batch=7"], ["global_batch 7", "micro_batch 4", "set global_batch to 8"]),
        (["--set", "global_batch=8", "--grad-accum", "2"], ["global_batch 8", "accumulation 2"]),
        (["--strategy", "single", "--nproc", "2"], ["--strategy single", "--nproc 2"]),
        (["--nnodes", "2", "--node-rank", "2", "--print-command"], ["--node-rank 2", "--nnodes 2"]),
        (["--nnodes", "2", "--rdzv-endpoint", "node0"], ["--rdzv-endpoint", "node0:29500"]),
        (
            ["--strategy", "fsdp2", "--set", "wrap_layers=4", "--set", "prefetch_forward=1"],
            ["prefetch_forward and wrap_layers 4 on 4 layers"],
        ),
        (
            ["--strategy", "fsdp2+pp", "--grad-accum", "2", "--nproc", "4",
             "--set", "wrap_layers=2", "--set", "prefetch_backward=1"],
            ["prefetch_backward and wrap_layers 2 on 2 layers"],
        ),
        (
            ["--strategy", "fsdp2", "--set", "static_graph=true", "--set", "powersgd_rank=8"],
            ["static_graph True and strategy fsdp2", "powersgd_rank 8 and strategy fsdp2",
             "only ddp-powersgd takes it"],
        ),
        (
            ["--strategy", "ddp", "--set", "wrap_layers=2"],
            ["wrap_layers 2 and strategy ddp", "only fsdp2, fsdp2-zero2, hsdp"],
        ),
        (
            ["--nnodes", "2", "--strategy", "single,ddp", "--print-command"],
            ["strategy single", "nnodes 2"],
        ),
    ],
)  # fmt: skip
def test_settings_that_exclude_each_other_are_both_named(
    arguments: list[str], said: list[str]
) -> None:
    pytest.importorskip("torch")
    done = profile(*arguments)
    assert isinstance(done.exception, AdvisorError)
    for part in said:
        assert part in str(done.exception)


@pytest.mark.parametrize(
    ("in_file", "given", "accumulation"),
    [
        ("gradient_accumulation: 3", {"global_batch": 16}, 2),
        ("global_batch: 24", {"gradient_accumulation": 5}, 5),
    ],
)
def test_the_command_line_s_batch_replaces_the_file_s(
    in_file: str, given: dict[str, int], accumulation: int, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    from advisor.cli.profile import _without_rival
    from advisor.profile import strategies

    path = tmp_path / "w.yaml"
    path.write_text(f"world_size: 2\nmicro_batch: 4\n{in_file}\n")
    workload = _without_rival(load_workload(path), given).with_settings(given)
    assert strategies.prepare(workload)[0].gradient_accumulation == accumulation


@pytest.mark.parametrize("path", sorted(shipped("workloads").glob("*.yaml")), ids=lambda p: p.name)
def test_shipped_workloads_can_run(path: Path) -> None:
    pytest.importorskip("torch")
    from advisor.profile import strategies

    workload = load_workload(path)
    for name in workload.strategy.split(","):
        ranks = 1 if name == "single" else workload.world_size
        strategies.prepare(workload.model_copy(update={"strategy": name, "world_size": ranks}))


def test_the_published_study_is_its_setting() -> None:
    pytest.importorskip("torch")
    from advisor.profile import strategies

    study = load_workload(shipped("workloads") / "gpt2-large-2xh100.yaml")
    assert (study.sequence_length, study.micro_batch, study.learning_rate) == (1024, 8, 3e-4)
    for name, ranks, micro_steps in (("single", 1, 4), ("ddp", 2, 2), ("fsdp2", 2, 2)):
        job = study.model_copy(update={"strategy": name, "world_size": ranks})
        assert strategies.prepare(job)[0].gradient_accumulation == micro_steps


def test_all_strategies_on_two_nodes_leave_single_out(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    done = profile("--strategy", "all", "--nnodes", "2", "--print-command", "-o", str(tmp_path))
    assert done.exception is None
    assert "left out single: strategy single and nnodes 2" in done.stderr
    assert (tmp_path / "ddp" / "logs" / "job.json").exists()
    assert not (tmp_path / "single").exists()


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_commands_may_be_printed_on_either_node_first(order: list[int], tmp_path: Path) -> None:
    pytest.importorskip("torch")
    for node in order:
        done = profile("--nnodes", "2", "--node-rank", str(node), "--print-command",
                       "-o", str(tmp_path / "run"))  # fmt: skip
        assert done.exception is None
        assert f"node_rank={node}" in done.stdout.replace("-", "_").replace(" ", "=")


def test_a_refusal_before_launch_leaves_the_folder_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    done = profile("--device", "cuda", "-o", str(tmp_path / "new"))
    assert "device cuda" in str(done.exception)
    assert not (tmp_path / "new").exists()
    earlier = tmp_path / "old" / "logs" / "job.json"
    earlier.parent.mkdir(parents=True)
    earlier.write_text("{}")
    (tmp_path / "old" / "rank0.json.gz").write_text("an earlier trace")
    done = profile("--device", "cuda", "--force", "-o", str(tmp_path / "old"))
    assert "device cuda" in str(done.exception)
    assert (tmp_path / "old" / "rank0.json.gz").read_text() == "an earlier trace"


@pytest.mark.parametrize(
    ("strategy", "setting"),
    [
        ("ddp,fsdp2", "wrap_layers=2"),  # one of them takes it
        ("fsdp2", "static_graph=false"),  # the default asks for nothing
        ("fsdp2", "prefetch_forward=1"),
        ("ddp-powersgd", "powersgd_rank=8"),
    ],
)
def test_settings_that_a_strategy_takes_are_taken(
    strategy: str, setting: str, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    done = profile("--strategy", strategy, "--set", setting, "--print-command",
                   "-o", str(tmp_path / "run"))  # fmt: skip
    assert done.exception is None


def test_every_setting_of_a_strategy_has_takers_that_exist() -> None:
    pytest.importorskip("torch")
    from advisor.profile import foreign, strategies

    for name, takers in foreign.TAKEN_BY.items():
        assert name in Workload.model_fields
        assert set(takers) <= set(strategies.names())
