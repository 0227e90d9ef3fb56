"""Which of several errors a job died of: by their times, and by what it trained on after."""

from __future__ import annotations

from pathlib import Path

import pytest

import advisor
from advisor.findings import Finding
from advisor.ingest.readers.nccl_log.clock import Clock, time_of
from advisor.model.nccl.messages import named
from tests.support.marks import slow

TIMED = {
    "2025-12-06 18:44:01,100 - INFO - step 30": "12-06 18:44:01.100000000",
    "[2025-04-08 08:39:46] node1:5:6 [0] NCCL WARN x": "04-08 08:39:46.000000000",
    "[2024-04-20T09:09:37.123] error: step": "04-20 09:09:37.123000000",
    "[rank4]:[E1206 18:44:12.755200000 ProcessGroupNCCL.cpp:607]": "12-06 18:44:12.755200000",
    "[rank14]:[E909 09:55:29.307629539 ProcessGroupNCCL.cpp:607]": "09-09 09:55:29.307629539",
    "W0325 21:16:42.796000 578 torch/distributed/run.py:792]": "03-25 21:16:42.796000000",
    "(RayWorkerVllm pid=4) ERROR 03-28 21:38:23 ray_utils.py:44]": "03-28 21:38:23.000000000",
    "Nov 25 10:11:12 a1 kernel: NVRM: Xid": "11-25 10:11:12.000000000",
    "Train Epoch: 5 [1600/246000 (10%)] Loss: 0.3": None,
    "node1:301:398 [2] NCCL INFO Channel 00/24 : 0 1 2": None,
    "2025-13-40 18:44:01 of no calendar": None,
}


@pytest.mark.parametrize("line", TIMED)
def test_times_are_read_in_the_forms_of_loggers(line: str) -> None:
    assert time_of(line) == TIMED[line]


def test_a_line_without_a_time_was_printed_after_the_last_that_has_one() -> None:
    clock = Clock()
    for path, line in (("a", "2025-01-02 10:00:00 x"), ("a", "RuntimeError: y")):
        clock.see(path, "", line)
    clock.note(("a", 2))
    assert clock.times() == {}, "one file has an order of its own"
    clock.see("b", "", "I0102 09:59:00.5 z")
    clock.note(("b", 1))
    assert sorted(clock.times().items(), key=lambda item: item[1]) == [
        (("b", 1), "01-02 09:59:00.500000000"),
        (("a", 2), "01-02 10:00:00.000000000"),
    ]
    clock.see("c", "", "no time at all")
    clock.note(("c", 1))
    assert clock.times() == {}


def test_nothing_is_ordered_over_the_end_of_a_year() -> None:
    clock = Clock()
    for path, line in (("a", "2025-12-31 23:59:59 x"), ("b", "2026-01-01 00:00:01 y")):
        clock.see(path, "", line)
        clock.note((path, 1))
    assert clock.times() == {}


GAVE_UP = (
    "[rank0]:[E1206 {clock}.755200000 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught "
    "collective operation timeout: WorkNCCL(SeqNum=7753, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, "
    "Timeout(ms)=600000) ran for 600099 milliseconds before timing out.\n"
)
RAISED = """\
Traceback (most recent call last):
  File "/w/train.py", line 60, in main
    x = table[key]
IndexError: index 50257 is out of range
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
"""


def _first(folder: Path, rank_0: str, rank_1: str) -> Finding:
    (folder / "rank0.log").write_text(rank_0)
    (folder / "rank1.log").write_text(rank_1)
    with advisor.load(str(folder)) as run:
        return next(item for item in run.report.findings if item.rule == "nccl-error")


def test_an_exception_before_another_files_time_out_is_the_cause(tmp_path: Path) -> None:
    """GIVEN it stands further down in its own file WHEN its time is earlier."""
    steps = "".join(f"2025-12-06 18:4{n}:01,100 - INFO - step {n}\n" for n in range(5))
    first = _first(tmp_path, GAVE_UP.format(clock="18:54:12"), steps + RAISED)
    assert first.evidence.facts["message"] == "index-outside"
    assert first.severity.value == "critical"


def test_an_exception_after_another_files_time_out_is_not(tmp_path: Path) -> None:
    late = "2025-12-06 18:59:01,100 - INFO - step 1\n"
    first = _first(tmp_path, "x\n" * 40 + GAVE_UP.format(clock="18:54:12"), late + RAISED)
    assert first.evidence.facts["message"] == "watchdog-timeout"


@pytest.mark.slow
def test_files_without_times_are_said_to_have_no_order(tmp_path: Path) -> None:
    first = _first(tmp_path, GAVE_UP.replace("[E1206 {clock}.755200000 ", "[E "), RAISED)
    assert "no order" in " ".join(first.because)
    with advisor.load(str(tmp_path / "rank1.log")) as alone:
        assert not any("no order" in " ".join(item.because) for item in alone.report.findings)


STEPS = "".join(f"step {number} loss 3.{number}\n" for number in range(5))
FULL = """\
Traceback (most recent call last):
  File "/w/train.py", line 12, in <module>
    main()
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.
"""
REFUSED = """\
Traceback (most recent call last):
  File "/w/{name}.py", line 90, in {function}
    pick(rows)
ValueError: {words}
"""


def _of(folder: Path, text: str) -> list[tuple[str, str]]:
    (folder / "job.log").write_text(text)
    with advisor.load(str(folder / "job.log")) as run:
        found = [item for item in run.report.findings if item.rule == "nccl-error"]
    return [(str(item.evidence.facts["message"]), item.severity.value) for item in found]


@pytest.mark.slow
def test_of_several_runs_in_a_file_the_last_ones_end_leads(tmp_path: Path) -> None:
    """An earlier run's error is over, also where the last one died of its like."""
    ended = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n"
    last = REFUSED.format(name="train", function="<module>", words="no rows left")
    assert _of(tmp_path, FULL + ended + STEPS + last + ended)[:2] == [
        ("value-refused", "critical"),
        ("child-failed", "critical"),
    ]
    both = _of(tmp_path, FULL + ended + STEPS + FULL + ended)
    assert both[0] == ("out-of-memory", "critical")
    assert _of(tmp_path, FULL + ended + last + ended)[0] == ("out-of-memory", "critical")


BEGUN = (
    "[2025-07-19 10:43:06,115] [INFO] [runner.py:555:main] cmd = /w/bin/python -u -m deepspeed",
    "Setting OMP_NUM_THREADS environment variable for each process to be 1 in default, to avoid",
    "loading configs/base.yaml\nworld size 8, seed 1234\nmodel has 124.4 M parameters",
)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("begun", [BEGUN[0], *slow(*BEGUN[1:])])
def test_a_launcher_that_begins_behind_ones_end_begins_another_run(
    tmp_path: Path, begun: str
) -> None:
    """GIVEN an output to which a second run was appended that died before its first step
    THEN its end leads; WHEN the launchers of two hosts begin and one ends, no run is over.
    """
    ended = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n"
    last = REFUSED.format(name="train", function="<module>", words="no rows left")
    begun = f"{begun}\n"
    assert _of(tmp_path, begun + FULL + ended + begun + last + ended)[0][0] == "value-refused"
    assert _of(tmp_path, begun + FULL + begun + last + ended)[0][0] == "out-of-memory"
    assert "critical" not in dict(_of(tmp_path, begun + FULL + ended + begun)).values()


def test_what_another_host_raises_behind_a_launchers_end_is_of_the_same_run(tmp_path: Path) -> None:
    ended = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n"
    frames = "".join(f'  File "/w/part{n}.py", line {n}, in run\n    call({n})\n' for n in range(4))
    raised = f"Traceback (most recent call last):\n{frames}{{}}\n"
    first, second = "torch.OutOfMemoryError: CUDA out of memory.", "ValueError: no rows left"
    text = raised.format(first) + ended + raised.format(second) + ended
    assert _of(tmp_path, text)[0] == ("out-of-memory", "critical")


@pytest.mark.slow
def test_what_a_program_catches_and_trains_on_after_needs_no_mending(tmp_path: Path) -> None:
    caught = REFUSED.format(name="log", function="upload", words="no rows to upload")
    version = "NCCL version 2.27.7+cuda12.4\n"
    assert _of(tmp_path, version + caught + STEPS) == [("value-refused", "info")]
    assert _of(tmp_path, version + caught) == [("value-refused", "warning")]


@pytest.mark.slow
def test_what_is_told_to_debug_a_library_is_no_death(tmp_path: Path) -> None:
    tried = "[17000.1] [n1:77:0] sock.c:32 UCX  {} bind failed: Cannot assign requested address\n"
    crash = "[n1:77:2:90] Caught signal 11 (Segmentation fault: address not mapped to object)\n"
    assert _of(tmp_path, tried.format("DEBUG") + crash)[0][0] == "segmentation-fault"
    assert "address-unusable" in dict(_of(tmp_path, tried.format("ERROR") + crash))


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("KeyboardInterrupt: terminated", "asked-to-end"),
        ("IsADirectoryError: [Errno 21] Is a directory: '/data'", "path-unfit"),
        ("httpx.HTTPStatusError: Client error '429 Too Many Requests' for url", "outside-service"),
        ("ValueError: cannot find the weights of expert 7 in /ckpt/7", "file-missing"),
        ("EZ9999: Inner Error!", "npu-error"),
    ],
)
def test_what_a_process_met_outside_itself_is_named(said: str, message: str) -> None:
    assert named(said, is_warning=False) == message


def test_what_cannot_be_found_is_no_file_where_the_words_say_none() -> None:
    said = "ValueError: cannot find a rank that holds expert 7"
    assert named(said, is_warning=False) == "value-refused"


def test_what_torch_quotes_is_found_between_the_lines_of_another_process(tmp_path: Path) -> None:
    path = tmp_path / "ray.log"
    path.write_text(
        "(W pid=1) ncclSystemError: System call failed.\n"
        "(W pid=1) Last error:\n"
        "(W pid=2) ncclSystemError: System call failed.\n"
        "(W pid=1) socketPollConnect: connect to 10.0.0.2<51159> returned No route to host(113)\n",
        encoding="utf-8",
    )
    with advisor.load(path) as run:
        assert run.report.findings[0].evidence.facts["message"] == "no-route"


LOST = (
    "w2:5:6 [0] misc/socket.cc:50 NCCL WARN socketProgress: "
    "Connection closed by remote peer w1.example.com<45074>\n"
    "[rank1]:[E ProcessGroupNCCL.cpp:1414] [PG 0 Rank 1] Process group watchdog thread terminated "
    "with exception: NCCL error: remote process exited or there was a network error\n"
)
SRUN = "srun: error: w1: task 0: Exited with exit code 1\nrun.sh: line 9: 5 Aborted (core dumped)\n"


@pytest.mark.parametrize("text", (SRUN + LOST, LOST + SRUN), ids=("before", "behind"))
def test_an_end_where_the_closed_connection_led_to_came_first(tmp_path: Path, text: str) -> None:
    """A file that holds Slurm's errors before what the ranks printed has them in no order."""
    assert _of(tmp_path, text)[0] == ("child-failed", "critical")


JOINED = (
    "[rank3]:[E1115 16:42:37.7 ProcessGroupNCCL.cpp:629] [Rank 3] Watchdog caught collective "
    "operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=5, NumelOut=5, "
    "Timeout(ms)=600000) ran for 600027 milliseconds before timing out.\n"
    "\t - To our best knowledge, the ranks that caused the desync are:\n"
    "\t   - [{joined}] joined but didn't finish collective #{call} (count from 1)\n"
)


@pytest.mark.parametrize(
    ("joined", "call", "message"),
    (("0, 1, 2, 3", 7, "all-ranks-wait"), ("1", 6, "missing-rank")),
)
def test_who_joined_the_call_that_timed_out_is_no_laggard(
    tmp_path: Path, joined: str, call: int, message: str
) -> None:
    found = _of(tmp_path, JOINED.format(joined=joined, call=call))
    assert found[0] == (message, "critical")
