"""A sweep of somebody's own command: what reaches its ranks, how it ends, what is said of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")

from advisor.cli._tune_own import job_of, plan
from advisor.config.own import OwnAxis, OwnJob, OwnSpace, load_own_job
from advisor.errors import AdvisorError
from advisor.profile import own
from advisor.profile.failures import LaunchError
from advisor.profile.hook import order
from advisor.profile.hook.order import Order, given
from advisor.tune.budget import Budget
from advisor.tune.job import Limits
from advisor.tune.own import OwnCommand
from advisor.tune.recommend import numbers_changed
from advisor.tune.survey import Survey, prepare_own
from tests.tune.test_sweep import finish

SCRIPT = Path(__file__).parents[1] / "scripts" / "ddp.py"
LAUNCH = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2")
FOUND = Survey(
    world_size=2,
    backend="gloo",
    device="cpu",
    micro_batches=1,
    built={
        "ddp": {
            "bucket_cap_mb": 25,
            "gradient_as_bucket_view": False,
            "static_graph": False,
            "find_unused_parameters": True,
            "comm_hook": "none",
            "made_by": "",
        }
    },
    exposed_share=0.3,
    diagnosis="",
    findings={},
    trial_s=60.0,
    seconds=80.0,
)


def sweep_of(folder: Path, found: Survey = FOUND, space: OwnSpace | None = None):
    job = OwnJob(command=("torchrun", "train.py"))
    return prepare_own(job, found, folder, space, Budget(timeout_s=1))


@pytest.mark.slow
def test_a_script_is_timed_recorded_and_ended_with_settings_it_knows_nothing_of(
    tmp_path: Path,
) -> None:
    # GIVEN a script of many steps that writes a checkpoint in every one of them
    saved = tmp_path / "saved"
    job = OwnJob(
        command=(*LAUNCH, str(SCRIPT), "--width", "64", "--steps", "100000", "--save-every", "1",
                 "--out", str(saved)),
        warmup_steps=2, timed_steps=6, objective=r"loss ([0-9.]+)", lower_is_better=True,
    )  # fmt: skip
    configuration = {"bucket_cap_mb": 0.01, "comm_hook": "fp16", "env.OMP_NUM_THREADS": "1"}
    trial = OwnCommand(job, {})
    # WHEN a trial of it runs
    ranks = trial.look(configuration, tmp_path / "t", Limits(180))
    # THEN its steps are timed and recorded on every rank, with the script's own settings noted
    assert [rank["rank"] for rank in ranks] == [0, 1]
    assert [len(rank["timed_ns"]) for rank in ranks] == [6, 6]
    assert ranks[0]["built"]["ddp"]["bucket_cap_mb"] == 25
    assert ranks[0]["environment"]["OMP_NUM_THREADS"] == "1"
    assert len(ranks[0]["losses"]) >= 8
    # AND the settings acted: gradients travel as fp16 in a call for each of many buckets
    from advisor import api

    with api.load(tmp_path / "t") as run:
        calls = run.collectives()
        reductions = calls[(calls.op == "all_reduce") & (calls["rank"] == 0)]
        assert set(reductions.dtype) == {"float16"}
        assert len(reductions) / reductions.step.nunique() >= 4
    # AND the job's checkpoint was never written
    assert not saved.exists() or not any(saved.iterdir())


def test_a_command_that_ends_too_soon_says_so(tmp_path: Path) -> None:
    asked = Order(str(tmp_path), warmup=2, steps=5, ends=True)
    with pytest.raises(LaunchError, match="did not load the recorder"):
        own.run(("true",), asked, dict(os.environ), timeout_s=30)
    with pytest.raises(LaunchError, match="status 3: ValueError: no such thing"):
        own.run(
            (sys.executable, "-c", "import sys; print('ValueError: no such thing'); sys.exit(3)"),
            asked, dict(os.environ), timeout_s=30,
        )  # fmt: skip
    with pytest.raises(AdvisorError, match="cannot start"):
        own.run(("no-such-launcher",), asked, dict(os.environ), timeout_s=30)


def test_a_command_without_progress_is_ended(tmp_path: Path) -> None:
    asked = Order(str(tmp_path), warmup=2, steps=5, ends=True)
    with pytest.raises(LaunchError, match="made no progress"):
        own.run(("sleep", "60"), asked, dict(os.environ), timeout_s=0.5)


@pytest.mark.slow
@pytest.mark.parametrize(("loads", "said"), [(False, "did not load the recorder"), (True, "see ")])
def test_lines_alone_are_no_progress_for_ever(tmp_path: Path, loads: bool, said: str) -> None:
    # GIVEN a command that says twenty times a second that it tries again
    asked = Order(str(tmp_path), warmup=2, steps=5, ends=True)
    if loads:
        marker = order.loaded(tmp_path)
        marker.parent.mkdir(parents=True)
        marker.touch()
    retrying = ("sh", "-c", "while :; do echo again; sleep 0.05; done")
    with pytest.raises(LaunchError, match="made no progress") as error:
        own.run(retrying, asked, dict(os.environ), timeout_s=0.3)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("asked", "kept"),
    [
        (Order("", warmup=1000, ends=True), 20),
        (Order("", warmup=1000), 0),
        (Order("", every=1000), 0),
    ],
    ids=["trial", "recorded", "watched"],
)
def test_only_a_trial_keeps_all_losses_and_a_watched_job_shows_no_sign_of_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: Order, kept: int
) -> None:
    import dataclasses

    import torch

    from advisor.profile.hook.steps import Steps

    monkeypatch.setattr(torch.autograd, "backward", torch.autograd.backward)
    steps = Steps(dataclasses.replace(asked, folder=str(tmp_path)))
    order.alive(tmp_path, 0).parent.mkdir()
    steps.watch()
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(20):
        model(torch.ones(1, 4)).sum().backward()
        optimizer.step()
    steps.over = True
    assert steps.seen == 20
    # A job that is watched for days would keep a tensor of each step, on its GPU.
    assert len(steps._losses) + len(steps._pending) == kept
    # Nobody waits for its steps, and a file each half second is most of what watching costs.
    assert order.alive(tmp_path, 0).exists() is not bool(asked.every)


@pytest.mark.slow
def test_a_script_that_makes_too_few_steps_is_told_how_many(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\n"
        "layer = torch.nn.Linear(2, 2)\n"
        "optimizer = torch.optim.SGD(layer.parameters(), 0.1)\n"
        "for _ in range(8):\n"
        "    layer(torch.ones(1, 2)).sum().backward()\n"
        "    optimizer.step()\n"
    )
    asked = Order(str(tmp_path / "out"), warmup=10, traced=12)
    (tmp_path / "out").mkdir()
    assert own.attached([sys.executable, str(script)], asked, os.environ)[0] == 0
    assert (
        "enough steps of a torch optimizer were made (it made 8; 23 are needed)"
        in own.why_nothing(asked)[0]
    )


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux to tell of a parent's end")
def test_the_launcher_is_asked_to_end_where_the_sweep_is_killed(tmp_path: Path) -> None:
    # GIVEN a launcher that says when it is asked to end
    asked = tmp_path / "asked"
    launcher = f"trap 'touch {asked}; exit' TERM; touch {tmp_path}/runs; sleep 60 & wait"
    script = (
        "import os\nfrom advisor.profile import own\nfrom advisor.profile.hook.order import Order\n"
        f"own.run(('sh', '-c', {launcher!r}), Order({str(tmp_path)!r}), os.environ, timeout_s=60)\n"
    )
    sweep = subprocess.Popen([sys.executable, "-c", script])
    assert comes(tmp_path / "runs")
    # WHEN what started it gets SIGKILL
    sweep.kill()
    sweep.wait()
    # THEN it is told: ranks of this trial would meet those of the resumed one
    assert comes(asked)


def comes(path: Path) -> bool:
    """Whether there is such a file within seconds."""
    until = time.monotonic() + 20
    while not path.exists() and time.monotonic() < until:
        time.sleep(0.05)
    return path.exists()


def test_an_order_survives_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    from advisor.profile.hook.order import VARIABLE, environment

    asked = Order("/f", warmup=1, settings={"bucket_cap_mb": 5}, ranks=(0, 3), ends=True)
    made = environment(asked, {"PYTHONPATH": "/mine", "HOME": "/h"})
    assert made["PYTHONPATH"].endswith(":/mine")
    assert made["HOME"] == "/h"
    monkeypatch.setenv(VARIABLE, made[VARIABLE])
    assert given() == asked


@pytest.mark.parametrize(
    "handed_on",
    [
        "env -i sh -c 'export {name}={value}; export PYTHONPATH={path}; exec {python} {script}'",
        "env -i {name}={value} PYTHONPATH={path} NCCL_ALGO=Ring {python} {script}",
    ],
    ids=["a shell without quotes, as DeepSpeed's", "a wrapper with a value of its own"],
)
def test_a_trials_variables_reach_ranks_that_are_handed_two_of_them(
    tmp_path: Path, handed_on: str
) -> None:
    # GIVEN an order whose folder has what a shell or a list would take apart
    asked = Order("/a b,c%h", variables={"NCCL_ALGO": "Tree"}, ends=True)
    made = order.environment(asked, {})
    script = tmp_path / "train.py"
    script.write_text("import os; print(os.environ['NCCL_ALGO'], os.environ['WANDB_MODE'])")
    line = handed_on.format(
        name=order.VARIABLE, value=made[order.VARIABLE], path=made["PYTHONPATH"],
        python=sys.executable, script=script,
    )  # fmt: skip
    # WHEN another node's Python is handed the order and the path only
    ran = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=True)
    # THEN it has the trial's variables, and no logger opens a run
    assert ran.stdout.split() == ["Tree", "disabled"]
    # AND DeepSpeed hands it on by its name
    assert order.VARIABLE.startswith("PYTHON")


def test_the_axes_are_those_of_the_jobs_wrappers_and_start_where_the_script_stands(
    tmp_path: Path,
) -> None:
    sweep, left_out = sweep_of(tmp_path)
    assert sweep.start["bucket_cap_mb"] == 25
    assert sweep.start["find_unused_parameters"] is True
    names = {axis.setting for axis in sweep.axes}
    assert {"bucket_cap_mb", "find_unused_parameters", "comm_hook"} <= names
    assert not names & {"reshard_after_forward", "prefetch_forward"}
    assert any("builds no fsdp1 or fsdp2" in line for line in left_out)
    # A reason is said once for all settings that share it.
    assert sum("builds no deepspeed" in line for line in left_out) == 1


def test_a_stage_of_zero_is_swept_by_what_it_reads(tmp_path: Path) -> None:
    second = {
        "reduce_bucket_size": 500_000_000,
        "overlap_comm": False,
        "contiguous_gradients": True,
    }
    zero = {"stage": 2, **second, "made_by": ""}
    sweep, left_out = sweep_of(tmp_path, FOUND.model_copy(update={"built": {"deepspeed": zero}}))
    assert sweep.start["reduce_bucket_size"] == 500_000_000
    names = {axis.setting for axis in sweep.axes}
    assert {"reduce_bucket_size", "contiguous_gradients"} <= names
    assert "bucket_cap_mb" not in names
    # Its stream of reductions is CUDA's (deepspeed/accelerator/cpu_accelerator.py has none).
    assert any(
        line.startswith("overlap_comm, ") and line.endswith(": for cuda") for line in left_out
    )
    assert any(line.endswith("stage 2 of ZeRO does not use it") for line in left_out)


def test_settings_of_communication_are_not_tried_where_it_costs_nothing(tmp_path: Path) -> None:
    quiet = FOUND.model_copy(update={"exposed_share": 0.001})
    sweep, left_out = sweep_of(tmp_path, quiet)
    names = {axis.setting for axis in sweep.axes}
    assert "bucket_cap_mb" not in names
    assert "gradient_as_bucket_view" in names
    (line,) = [line for line in left_out if "communication takes 0.1%" in line]
    assert line.startswith("bucket_cap_mb, comm_hook")


@pytest.mark.parametrize(
    ("axis", "said"),
    [
        ("setting: comm_hook\n    values: [none, fp32]", "comm_hook"),
        ("setting: micro_batch\n    values: [1]", "unknown setting 'micro_batch'"),
    ],
)
def test_a_space_of_ones_own_is_checked_before_the_job_is_looked_at(
    tmp_path: Path, axis: str, said: str
) -> None:
    space = tmp_path / "space.yaml"
    space.write_text(f"axes:\n  - {axis}\n")
    job = OwnJob(command=(sys.executable, "-c", f"open({str(tmp_path / 'ran')!r}, 'w')"))
    with pytest.raises(AdvisorError, match=said):
        plan(job, tmp_path / "out", space, Budget(timeout_s=1), resume=False, quiet=True)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("budget", "seconds"),
    [
        (Budget(seconds=480), 400.0),
        (Budget(seconds=480, compares=True), 13 * 60.0),
        (Budget(seconds=1000, compares=True), 920.0),
    ],
)
def test_a_budget_that_nobody_gave_holds_a_comparison(
    tmp_path: Path, budget: Budget, seconds: float
) -> None:
    """GIVEN a first look of 80 s, 60 of them the job's."""
    sweep, _ = prepare_own(OwnJob(command=("x",)), FOUND, tmp_path, None, budget)
    assert sweep.seconds == seconds


def test_a_value_that_the_backend_refuses_is_named(tmp_path: Path) -> None:
    hooks = OwnAxis(setting="comm_hook", values=["none", "bf16"])
    with pytest.raises(AdvisorError) as error:
        sweep_of(tmp_path, space=OwnSpace(axes=[hooks]))
    assert "comm_hook=bf16: " in error.value.message
    _, left_out = sweep_of(tmp_path)
    assert any(line.startswith("comm_hook=bf16: ") for line in left_out)


def test_the_command_of_a_file_and_of_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("command: torchrun --nproc-per-node 8 train.py --lr 3e-4\ntimed_steps: 30\n")
    job = load_own_job(path)
    assert job.command == ("torchrun", "--nproc-per-node", "8", "train.py", "--lr", "3e-4")
    assert job.title == "train"
    assert job_of((), path, {"timed_steps": 9}).timed_steps == 9
    with pytest.raises(AdvisorError, match="one group"):
        job_of(("a",), None, {"objective": "tokens"})


@pytest.mark.parametrize(
    ("after", "known", "changed"),
    [([2.0, 1.5], 2.0, False), ([2.0, 1.4], 2.0, True), ([2.0, 1.4], 3.0, True)],
)
def test_losses_say_whether_the_numbers_change(
    tmp_path: Path, after: list[float], known: float, changed: bool
) -> None:
    from dataclasses import replace

    from advisor.tune.sweep import Plan

    sweep, _ = sweep_of(tmp_path)
    other = {**sweep.start, "comm_hook": "bf16"}
    for number, losses in enumerate(([2.0, 1.5], [known, 1.5])):
        result = finish(Plan("baseline", sweep.start), number, 1e6)
        sweep.results.append(replace(result, losses=list(losses)))
    result = finish(Plan("search", other), 2, 1e6)
    sweep.results.append(replace(result, losses=after))
    said = numbers_changed(sweep, other)
    assert bool(said) is changed
    # Runs of the same settings that differ themselves show nothing.
    assert ("cannot be compared" in said) is (known == 3.0)


def test_what_a_job_says_of_itself_is_the_cost(tmp_path: Path) -> None:
    log = tmp_path / own.LOG
    log.parent.mkdir()
    log.write_text("".join(f"tok/s {n}\n" for n in (1, 1, 1, 100, 200, 400)))
    job = OwnJob(command=("x",), objective=r"tok/s (\d+)")
    assert OwnCommand(job, {})._objective(tmp_path) == [1 / 100, 1 / 200, 1 / 400]
    log.write_text("tok/s 1\n")
    with pytest.raises(LaunchError, match="usable numbers"):
        OwnCommand(job, {})._objective(tmp_path)


@pytest.mark.parametrize(("numbers", "hint"), [(1, "--steps 153"), (0, "write it"), (4, "")])
def test_too_few_numbers_for_the_objective_are_refused_before_any_trial(
    numbers: int, hint: str, tmp_path: Path
) -> None:
    """GIVEN a look of 32 steps, 12 of them recorded, and trials of 22."""
    log = tmp_path / own.LOG
    log.parent.mkdir()
    log.write_text("tok/s 5\n" * numbers)
    given = {"objective": r"tok/s (\d+)", "warmup_steps": 5, "timed_steps": 15}
    look = OwnCommand(OwnJob(command=("x",), **given), {}, traced=12)
    with pytest.raises(AdvisorError) as refused:
        look.refuse_rare_numbers(tmp_path)
    assert hint in refused.value.hint
    log.write_text("tok/s 5\n" * 8)
    look.refuse_rare_numbers(tmp_path)


def test_an_objective_that_does_not_end_fails_the_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("advisor.tune.own._FIND_S", 0.5)
    log = tmp_path / own.LOG
    log.parent.mkdir()
    log.write_text("a" * 60 + "\n")
    job = OwnJob(command=("x",), objective=r"^(?:a+)+ (\d+)$")
    with pytest.raises(LaunchError, match="cannot be searched"):
        OwnCommand(job, {})._objective(tmp_path)


def test_the_winner_is_run_by_the_hook_until_the_script_says_it(tmp_path: Path) -> None:
    job = OwnJob(command=("torchrun", "train.py", "--name", "a b"))
    made = OwnCommand(job, FOUND.built).write({"bucket_cap_mb": 5.0}, tmp_path, "# note\n")
    text = made[0].read_text()
    assert text.splitlines()[-1] == "exec torchrun train.py --name 'a b'"
    (line,) = [part for part in text.splitlines() if part.startswith("export PYTHON_ADVISOR_HOOK=")]
    import shlex

    order = json.loads(bytes.fromhex(shlex.split(line.split("=", 1)[1])[0]))
    assert order["settings"] == {"bucket_cap_mb": 5.0}
    assert not order["ends"]


def test_a_job_that_was_looked_at_is_not_said_to_be_looked_at_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "survey.json").write_text(FOUND.model_dump_json())
    job = OwnJob(command=("a-command-that-is-never-run",))
    plan(job, tmp_path, None, Budget(), resume=True, quiet=False)
    said = capsys.readouterr().err
    assert FOUND.diagnosis in said
    assert "Looking" not in said
