"""The small parts of profiling: data, faults, progress, summary, printed commands, environment."""

from __future__ import annotations

import json
import multiprocessing
import socket
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given
from hypothesis import strategies as st

from advisor.config.workload import Workload
from advisor.errors import AdvisorError
from advisor.profile import commands, data, environment, files, summary
from advisor.profile import failures as failures_module
from advisor.profile.failures import last_error, rank_that_failed
from advisor.profile.inject import Fault, parse_all
from advisor.profile.launch import _grace, launch, local_ranks
from advisor.profile.progress import PHASES, Board, Position, laggards
from advisor.profile.rendezvous import How, MeetingError, Nodes, await_first


def batch(**changes: int) -> tuple[torch.Tensor, torch.Tensor]:
    settings = {
        "seed": 1, "step": 2, "index": 3, "micro_batch": 2, "sequence_length": 8,
        "vocabulary": 100,
    }  # fmt: skip
    return data.tokens(**{**settings, **changes})


def test_tokens_are_the_same_for_the_same_place_and_no_other() -> None:
    inputs, labels = batch()
    assert torch.equal(inputs, batch()[0])
    assert torch.equal(inputs[:, 1:], labels[:, :-1])
    assert inputs.min() >= 0
    assert inputs.max() < 100
    for other in ({"seed": 2}, {"step": 3}, {"index": 4}):
        assert not torch.equal(inputs, batch(**other)[0])


@given(st.integers(0, 99), st.floats(0.5, 1e6), st.integers(0, 99))
def test_a_fault_reads_back_as_written(rank: int, ms: float, step: int) -> None:
    fault = Fault.parse(f"sleep:rank={rank},ms={ms:g},step={step}")
    assert Fault.parse(str(fault)) == fault
    assert (fault.rank, fault.from_step) == (rank, step)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "sleep",
        "nap:rank=1",
        "sleep:rank=x,ms=1",
        "sleep:rank=1",
        "die:rank=1,when=3",
        "sleep:rank=1,ms=nan",
        "die:rank=1,ms=5",
        "hang:rank=1,step=-1",
    ],
)
def test_a_wrong_fault_shows_how_to_write_one(text: str) -> None:
    with pytest.raises(AdvisorError) as refused:
        Fault.parse(text)
    assert "--inject sleep:rank=1,ms=30" in str(refused.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("sleep:rank=2,ms=30", "ddp has ranks 0 to 1"),
        ("sleep:rank=-1,ms=30", "ddp has ranks 0 to 1"),
        ("die:rank=1,step=20", "ddp has steps 0 to 19"),
    ],
)
def test_a_fault_that_would_never_strike_is_refused(text: str, says: str) -> None:
    with pytest.raises(AdvisorError, match=says):
        parse_all([text], [("ddp", 2, 20)])


def test_a_fault_must_strike_in_every_job() -> None:
    with pytest.raises(AdvisorError, match="single has rank 0 only"):
        parse_all(["sleep:rank=1,ms=30"], [("ddp", 2, 20), ("single", 1, 20)])
    (fault,) = parse_all(["die:rank=1,step=19"], [("ddp", 2, 20)])
    assert (fault.kind, fault.rank, fault.from_step) == ("die", 1, 19)


def _report(path: Path, slot: int, step: int, phase: str) -> None:
    Board(path, 3).write(slot, 1000 + slot, step, phase)


@pytest.mark.long
@pytest.mark.slow
def test_the_board_shows_other_processes_positions(tmp_path: Path) -> None:
    path = tmp_path / "board"
    board = Board(path, 3)
    context = multiprocessing.get_context("spawn")
    for slot, step, phase in ((0, 7, "backward"), (2, 7, "forward")):
        writer = context.Process(target=_report, args=(path, slot, step, phase))
        writer.start()
        writer.join()
    found = board.read(first_rank=8)
    assert [(p.rank, p.pid, p.step, p.phase) for p in found] == [
        (8, 1000, 7, "backward"), (9, 0, 0, "start"), (10, 1002, 7, "forward"),
    ]  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(PHASES)), min_size=1, max_size=8))
def test_laggards_are_those_nobody_running_is_behind(places: list[tuple[int, str]]) -> None:
    positions = [Position(r, 1, step, phase, 0) for r, (step, phase) in enumerate(places)]
    behind = laggards(positions)
    running = [position for position in positions if position.phase != "done"]
    assert bool(behind) == bool(running)
    for position in running:
        assert (position in behind) == all(position.order <= other.order for other in running)


def write_result(folder: Path, rank: int, timed_ns: list[int], losses: list[float]) -> None:
    document = {
        "rank": rank, "timed_ns": timed_ns, "profiled_ns": [2 * t for t in timed_ns],
        "losses": losses, "data_ranks": 2, "peak_rss_bytes": 100 + rank,
        "environment": {}, "versions": {},
    }  # fmt: skip
    files.write_json(files.result(folder, rank), document)


def test_the_summary_takes_the_slowest_rank_of_each_step(tmp_path: Path) -> None:
    workload = Workload.model_validate({"micro_batch": 4, "sequence_length": 50})
    write_result(tmp_path, 0, [100, 300, 200], [4.0, 3.0])
    write_result(tmp_path, 1, [150, 250, 200], [2.0, 1.0])
    files.trace(tmp_path, 1).write_bytes(b"")
    found = summary.write(tmp_path, workload)
    assert found["step_ns"] == {"median": 200, "mad": 50, "samples": [150, 300, 200]}
    assert found["profiler_overhead"] == 1.0
    assert found["tokens_per_step"] == 4 * 50 * 2
    assert found["tokens_per_second"] == 400 / 200e-9
    assert found["losses"] == [3.0, 2.0]
    assert found["peak_memory_bytes"] == 101
    assert [rank["trace"] for rank in found["ranks"]] == [None, "rank1.json.gz"]
    assert json.loads((tmp_path / "profile.json").read_text()) == found


def test_a_failed_run_lists_what_is_there(tmp_path: Path) -> None:
    write_result(tmp_path, 1, [5], [1.0])
    found = summary.write(tmp_path, Workload(), error="rank 0 died")
    assert (found["status"], found["error"]) == ("failed", "rank 0 died")
    assert [rank["rank"] for rank in found["ranks"]] == [0, 1]


def test_printed_commands_start_every_node(tmp_path: Path) -> None:
    workload = Workload.model_validate({"world_size": 16, "device": "cuda"})
    lines = commands.torchrun(workload, tmp_path, nodes=2, endpoint="first:1234")
    assert len(lines) == 2
    for node, line in enumerate(lines):
        for part in ("--nnodes=2", f"--node-rank={node}", "--nproc-per-node=8",
                     "--master-addr=first", "--master-port=1234", str(tmp_path)):  # fmt: skip
            assert part in line.split()
    script = commands.slurm(workload, tmp_path, nodes=2)
    assert "#SBATCH --nodes=2\n" in script
    assert "#SBATCH --gpus-per-node=8\n" in script


def test_printed_commands_meet_where_they_are_told_to(tmp_path: Path) -> None:
    workload = Workload.model_validate({"world_size": 4})
    script = commands.slurm(workload, tmp_path, nodes=2, endpoint="first:1234")
    assert "--node-rank=$SLURM_NODEID --nproc-per-node=2 --master-addr=first" in script
    assert "--master-port=1234" in script
    assert "scontrol" not in script
    (line,) = commands.torchrun(workload, tmp_path, nodes=2, endpoint="first:1234", node_rank=1)
    assert "--node-rank=1" in line
    (line,) = commands.torchrun(workload, tmp_path, nodes=1, endpoint="first:1234", threads=3)
    assert line.startswith("OMP_NUM_THREADS=3 torchrun ")
    assert "--rdzv-endpoint=first:1234" in line
    assert "--standalone" not in line


def test_the_slurm_script_is_a_shell_script_that_starts_torchrun(tmp_path: Path) -> None:
    # GIVEN stand-ins for Slurm's commands and torchrun, on the second of two nodes
    tools = {
        "scontrol": "echo node-a; echo node-b",
        "srun": 'exec "$@"',
        "torchrun": 'printf "%s\\n" "$@"',
    }
    for name, body in tools.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{body}\n")
        (tmp_path / name).chmod(0o755)
    workload = Workload.model_validate({"world_size": 4})
    # WHEN the printed script runs
    done = subprocess.run(
        ["bash", "-eu"], input=commands.slurm(workload, tmp_path / "a b", nodes=2), text=True,
        capture_output=True, check=True, env={"PATH": f"{tmp_path}:/usr/bin:/bin",
        "SLURM_JOB_NODELIST": "node-[a-b]", "SLURM_NODEID": "1"},
    )  # fmt: skip
    # THEN torchrun gets what the node is to do
    assert done.stdout.splitlines() == [
        "--nnodes=2", "--node-rank=1", "--nproc-per-node=2", "--master-addr=node-a",
        "--master-port=29500", "-m", "advisor.profile.worker", str(tmp_path / "a b"),
    ]  # fmt: skip


@pytest.mark.parametrize("endpoint", ["node0", "node0:", ":29500", "node0:port"])
def test_an_endpoint_is_host_and_port(endpoint: str) -> None:
    with pytest.raises(AdvisorError, match="cannot read"):
        commands.parse_endpoint(endpoint)


def test_ranks_divide_evenly_over_nodes() -> None:
    assert local_ranks(Workload.model_validate({"world_size": 6}), Nodes(3)) == 2
    with pytest.raises(AdvisorError, match="world_size 6 does not divide over nnodes 4"):
        local_ranks(Workload.model_validate({"world_size": 6}), Nodes(4))


def test_single_is_one_machine_s() -> None:
    with pytest.raises(AdvisorError, match="strategy single and nnodes 2"):
        local_ranks(Workload(strategy="single", world_size=1), Nodes(2))


def test_a_node_waits_for_the_first_and_says_where_it_looked() -> None:
    with socket.socket() as first:
        first.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{first.getsockname()[1]}"
        with pytest.raises(MeetingError) as refused:  # bound, but nobody listens
            await_first(Nodes(2, 1, endpoint), timeout_s=0.1)
        for part in ("node 1", f"--rdzv-endpoint {endpoint}", "--timeout 0.1 s"):
            assert part in str(refused.value)
        later = threading.Timer(0.5, first.listen)
        later.start()
        await_first(Nodes(2, 1, endpoint), timeout_s=60)
        later.join()
    await_first(Nodes(2, 0, endpoint), timeout_s=0)  # the first waits for nobody


def test_a_node_that_finds_no_first_writes_nothing(tmp_path: Path) -> None:
    with socket.socket() as first:
        first.bind(("127.0.0.1", 0))
        nodes = Nodes(2, 1, f"127.0.0.1:{first.getsockname()[1]}")
        with pytest.raises(MeetingError):
            launch(Workload(), tmp_path / "run", How(nodes=nodes, timeout_s=0.1))
    assert not list(tmp_path.iterdir())


@pytest.mark.long
@pytest.mark.slow
def test_a_document_may_be_written_by_several_processes_at_once(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "job.json"
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write_often, args=(path,)) for _ in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert [item.name for item in path.parent.iterdir()] == ["job.json"]


def _write_often(path: Path) -> None:
    for _ in range(200):
        files.write_json(path, {"a": 1})


@dataclass
class Ended:
    """As torch's elastic agent tells how a rank ended."""

    exitcode: int
    said: str = ""
    timestamp: int = 0
    local_rank: int = 0

    @property
    def message(self) -> object:
        return {"message": self.said} if self.said else f"Signal {-self.exitcode}"


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", True),
        ("RuntimeError: DefaultCPUAllocator: can't allocate memory: you tried to", True),
        ("MemoryError", True),
        ("RuntimeError: shape '[2]' is invalid", False),
    ],
)
def test_out_of_memory_is_told_from_other_errors(said: str, expected: bool, tmp_path: Path) -> None:
    lost = Ended(1, "RuntimeError: Connection closed by peer [127.0.0.1]:9", timestamp=1)
    failures = {0: lost, 1: Ended(1, said, timestamp=2)}
    error = rank_that_failed(failures, tmp_path, hint="", killed_before=0)
    assert "rank 1 failed" in error.message
    assert error.out_of_memory == expected


def test_a_killed_rank_ran_out_of_memory_only_if_the_kernel_did_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures_module, "kernel_kills", lambda: 7)
    killed = {3: Ended(-9)}
    by_kernel = rank_that_failed(killed, tmp_path, hint="", killed_before=6)
    by_hand = rank_that_failed(killed, tmp_path, hint="", killed_before=7)
    untold = rank_that_failed(killed, tmp_path, hint="", killed_before=None)
    assert by_kernel.out_of_memory
    assert "rank 3 was killed by SIGKILL" in by_hand.message
    assert not by_hand.out_of_memory
    assert not untold.out_of_memory


def test_an_abort_for_want_of_memory_is_read_from_the_log(tmp_path: Path) -> None:
    log = tmp_path / "run" / "attempt_0" / "0" / "stderr.log"
    log.parent.mkdir(parents=True)
    log.write_text("terminate called after throwing an instance of 'std::bad_alloc'\n")
    error = rank_that_failed({0: Ended(-6)}, tmp_path, hint="", killed_before=0)
    assert error.out_of_memory
    assert "SIGABRT: terminate called" in error.message


def test_only_listed_variables_are_recorded() -> None:
    found = environment.variables(
        {"NCCL_ALGO": "Ring", "NCCL_NET_TOKEN": "x", "HOME": "/root", "OMP_NUM_THREADS": "1",
         "AWS_SECRET_ACCESS_KEY": "x", "PYTORCH_ALLOC_CONF": "a", "RCCL_API_KEY": "x",
         "FI_EFA_PASSWD": "x", "TORCH_NCCL_AUTH": "x", "NCCL_IB_PKEY": "1"}
    )  # fmt: skip
    assert found == {
        "NCCL_ALGO": "Ring",
        "NCCL_IB_PKEY": "1",
        "OMP_NUM_THREADS": "1",
        "PYTORCH_ALLOC_CONF": "a",
    }


def test_a_torch_without_the_agents_patience_is_launched_all_the_same() -> None:
    @dataclass
    class Older:
        run_id: str

    @dataclass
    class Newer:
        run_id: str
        shutdown_timeout: int

    assert _grace(Older) == {}
    assert _grace(Newer)["shutdown_timeout"] > 0


def test_ranks_without_a_gpu_each_are_refused_before_they_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(AdvisorError, match="device cuda and 2 ranks on this machine: it has 1 GPU"):
        launch(Workload(device="cuda", world_size=2, strategy="ddp"), tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_lost_connection_says_more_of_a_command_than_its_launchers_summary(
    tmp_path: Path,
) -> None:
    said = "[rank0]: RuntimeError: [pair.cc:537] Read error: Connection timed out"
    log = tmp_path / "command.log"
    summary = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:"
    log.write_text(f"{said}\nTraceback (most recent call last):\n{summary}\n", "utf-8")
    assert last_error(log) == (said, False)
