"""Tracebacks in outputs of jobs: who raised what and where, whatever stands before the lines."""

from __future__ import annotations

from pathlib import Path

import pytest

import advisor
from advisor.findings import Finding
from advisor.ingest.readers.nccl_log.tracebacks import Raised, Tracebacks
from advisor.vocabulary.recorded_steps import TRIAL_ENDS

CALLS = """\
Traceback (most recent call last):
  File "train.py", line 71, in <module>
    main(parse())
  File "/work/project/steps/train.py", line 40, in main
    raise_it(batch)
    ^^^^^^^^^^^^^^^
  File "/opt/env/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1511, in _call_impl
    return forward_call(*args, **kwargs)
"""
PREFIXES = [
    "",
    "fa88a9df || ",
    "[2024-02-27T21:35:34.295662Z] fa88a9df || ",
    "E0409 10:00:00.123 1359 site-packages/torch/x.py:1] ",
    "2024-05-01 10:00:00,000 - root - ERROR - ",
    "stderr: ",
]


def raised_in(lines: list[str], launcher: str = "") -> list[Raised]:
    tracebacks = Tracebacks()
    return [found for line in lines if (found := tracebacks.see(launcher, line))]


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize(
    "last",
    [
        "queue.Empty",
        "KeyError: 'lr'",
        "torch._dynamo.exc.Unsupported: x",
        "socket.timeout: timed out",
        "grpc._channel._InactiveRpcError: <x>",
    ],
)
def test_the_last_line_of_a_traceback_is_what_was_raised(prefix: str, last: str) -> None:
    lines = [f"{prefix}{line}" for line in (*CALLS.splitlines(), last, "Error: another text")]
    found = raised_in(lines)
    assert [item.text for item in found] == [last]
    assert (
        found[0].place
        == "steps/train.py:40 (main), in its call of modules/module.py:1511 (_call_impl)"
    )


def test_torchruns_mark_has_no_space_behind_it(tmp_path: Path) -> None:
    lines = (*CALLS.splitlines(), "LookupEmpty: none of 4")
    found = first_finding(tmp_path, "".join(f"[rank5]:{line}\n" for line in lines))
    assert found.ranks == [5]
    assert "steps/train.py:40 (main)" in str(found.because)


@pytest.mark.slow
def test_a_launchers_report_quotes_a_traceback_indented(tmp_path: Path) -> None:
    report = [
        "W0430 00:03:35 12 torch/distributed/elastic/api.py:1012] Sending process 9 closing signal"
        " SIGTERM",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        "Root Cause (first observed failure):",
        "[0]:",
        "  time      : 2026-04-30_00:03:31",
        "  host      : node7",
        "  rank      : 1 (local_rank: 1)",
        "  exitcode  : 1 (pid: 427491)",
        "  error_file: /tmp/error.json",
        "  traceback : " + CALLS.splitlines()[0],
        *(f"  {line}" for line in CALLS.splitlines()[1:]),
        "  LookupEmpty: none of 4",
    ]
    found = first_finding(tmp_path, "\n".join((*report, "")))
    assert "LookupEmpty: none of 4" in found.title
    assert (found.ranks, found.hosts) == ([1], ["node7"])


@pytest.mark.parametrize("end", [(), (TRIAL_ENDS,)], ids=["of a job", "of a trial"])
def test_what_is_said_behind_a_trials_own_end_is_no_failure(
    tmp_path: Path, end: tuple[str, ...]
) -> None:
    name = "torch.distributed.elastic.multiprocessing.api.SignalException"
    lines = ("step 1", *end, *CALLS.splitlines(), f"{name}: Process 29295 got signal: 15", "")
    log = tmp_path / "command.log"
    log.write_text("\n".join(lines))
    with advisor.load(str(log)) as run:
        assert [found.rule for found in run.report.findings] == ([] if end else ["nccl-error"])


def test_tracebacks_of_two_processes_that_alternate_are_kept_apart() -> None:
    tracebacks = Tracebacks()
    lines = CALLS.splitlines()
    found = [
        said
        for line in (*lines, "ValueError: of {}")
        for process in ("[rank0]: ", "[rank1]: ")
        if (said := tracebacks.see(process, line.format(process)))
    ]
    assert [item.text for item in found] == ["ValueError: of [rank0]:", "ValueError: of [rank1]:"]
    assert all(len(item.frames) == 3 for item in found)


def test_lines_that_quote_the_program_say_nothing() -> None:
    tracebacks = Tracebacks()
    source = []
    for line in CALLS.splitlines():
        tracebacks.see("", line)
        source.append(tracebacks.is_source)
    assert [
        line for line, is_source in zip(CALLS.splitlines(), source, strict=True) if is_source
    ] == [
        "    main(parse())",
        "    raise_it(batch)",
        "    return forward_call(*args, **kwargs)",
    ]


def test_what_a_worker_raised_is_told_by_its_own_traceback() -> None:
    again = "ValueError: Caught ValueError in DataLoader worker process 2."
    lines = [*CALLS.splitlines(), again, "Original Traceback (most recent call last):"]
    lines += [*CALLS.splitlines()[1:], "ValueError: row 7 is empty"]
    assert [item.text for item in raised_in(lines)] == ["ValueError: row 7 is empty"]


@pytest.mark.parametrize("said", ["in: <x>", "while calling deallocator <x>:"])
def test_what_a_destructor_raised_is_no_error(said: str) -> None:
    lines = [f"Exception ignored {said}", *CALLS.splitlines()]
    assert raised_in([*lines, "ValueError: Pool not running"]) == []
    lines += ["ValueError: Pool not running", *CALLS.splitlines(), "KeyError: 3"]
    assert [item.text for item in raised_in(lines)] == ["KeyError: 3"]


def test_what_is_ignored_is_no_error_where_two_writers_share_a_mark(tmp_path: Path) -> None:
    """The class of one stands before the head of the other, and its words behind."""
    words = "[Errno 2] No such file or directory: '/home/u/.triton/autotune/k.pickle.tmp' -> '/k'"
    ignored = "Exception ignored in atexit callback: <function write at 0x7f>"
    lines = [ignored, *CALLS.splitlines(), ignored, f"FileNotFoundError: {CALLS.splitlines()[0]}"]
    lines += [CALLS.splitlines()[1], words, *CALLS.splitlines()[1:], f"FileNotFoundError: {words}"]
    log = tmp_path / "job.log"
    log.write_text("".join(f"1: {line}\n" for line in ("NCCL version 2.27.7", *lines)))
    with advisor.load(str(log)) as run:
        assert not [item for item in run.report.findings if item.rule == "nccl-error"]


def test_text_behind_a_call_is_no_exception_when_it_goes_on_for_long() -> None:
    lines = [*CALLS.splitlines(), *(f"step {number}" for number in range(9)), "Epoch: 3"]
    assert raised_in(lines) == []


def first_finding(folder: Path, text: str) -> Finding:
    log = folder / "job.log"
    log.write_text(text)
    with advisor.load(str(log)) as run:
        return next(item for item in run.report.findings if item.rule == "nccl-error")


def test_an_unknown_exception_is_named_with_its_rank_and_its_place(tmp_path: Path) -> None:
    said = [f"[rank5]: {line}" for line in (*CALLS.splitlines(), "PayloadEmpty: none of 4")]
    said.append("torch.distributed.elastic.multiprocessing.errors.ChildFailedError:")
    found = first_finding(tmp_path, "\n".join((*said, "")))
    assert found.title == "The program raised PayloadEmpty: none of 4"
    assert (found.ranks, found.severity.value) == ([5], "critical")
    assert "steps/train.py:40 (main)" in str(found.because)


@pytest.mark.parametrize(
    ("calls", "said", "words"),
    [
        (CALLS, "ValueError: the key has 13 letters, 40 are needed", "13 letters, 40 are needed"),
        (CALLS, "KeyError: 'input_ids'", "'input_ids'"),
        (CALLS, "AssertionError: lock count of node 291 is 0", "lock count of node 291 is 0"),
        # What its calls are of is a guess: the text is of none that the entry knows.
        (
            CALLS.replace(
                "nn/modules/module.py", "distributed/fsdp/_fully_shard/_fsdp_param_group.py"
            ),
            "RuntimeError: parameters are still on the device meta",
            "still on the device meta",
        ),
    ],
)
def test_an_exception_that_its_class_or_calls_name_says_its_own_words(
    calls: str, said: str, words: str, tmp_path: Path
) -> None:
    assert words in first_finding(tmp_path, f"{calls}{said}\n").title


def test_long_words_of_an_exception_end_between_two(tmp_path: Path) -> None:
    found = first_finding(tmp_path, f"{CALLS}ValueError: {'abcdefg ' * 20}\n")
    assert found.title.endswith("abcdefg …") and len(found.title) <= 140


def test_what_a_loaders_process_raised_is_told_once_where_it_arose(tmp_path: Path) -> None:
    inner = CALLS.replace("Traceback (most", "Original Traceback (most")
    text = f"{CALLS}IndexError: Caught IndexError in DataLoader worker process 3.\n{inner}"
    with_last = f"{text}IndexError: list index out of range\nexitcode: 1\n"
    found = first_finding(tmp_path, with_last)
    assert "Caught" not in str(found.because)
    assert "steps/train.py:40 (main)" in str(found.because)


@pytest.mark.slow
def test_an_exceptions_words_go_on_in_the_next_lines(tmp_path: Path) -> None:
    text = (
        f"{CALLS}ValidationError: 1 validation error for EngineArgs\nparallel_size\n  must be > 0\n"
    )
    assert "parallel_size must be > 0" in first_finding(tmp_path, text).message


LOADING = CALLS.replace("raise_it(batch)", "load_checkpoint(model)").replace(
    "nn/modules/module.py", "distributed/checkpoint/planner.py"
)


@pytest.mark.parametrize(
    ("calls", "said", "cause"),
    [
        (LOADING, "KeyError: 'optimizer.state.0.exp_avg'", "checkpoint-differs"),
        (CALLS, "KeyError: 'optimizer.state.0.exp_avg'", "key-missing"),
        (
            LOADING,
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
            "out-of-memory",
        ),
        (
            LOADING,
            "FileNotFoundError: [Errno 2] No such file or directory: 'step-7'",
            "file-missing",
        ),
    ],
)
def test_calls_name_an_exception_that_its_text_does_not(
    tmp_path: Path, calls: str, said: str, cause: str
) -> None:
    text = f"{calls}{said}\ntorch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n"
    assert first_finding(tmp_path, text).evidence.facts["message"] == cause


@pytest.mark.slow
def test_an_exception_that_a_launcher_quotes_behind_its_own_is_the_cause(tmp_path: Path) -> None:
    text = (
        "torch.multiprocessing.spawn.ProcessRaisedException: \n\n"
        f"-- Process 1 terminated with the following error:\n{CALLS}IndexError: out of range\n"
    )
    found = first_finding(tmp_path, text)
    assert (found.evidence.facts["message"], found.severity.value) == ("index-outside", "critical")


@pytest.mark.slow
def test_the_launcher_tells_the_rank_of_an_exception_that_names_none(tmp_path: Path) -> None:
    text = f"""{CALLS}IndexError: list index out of range
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
Root Cause (first observed failure):
[0]:
  time      : 2024-07-26_10:59:45
  host      : n24
  rank      : 10 (local_rank: 2)
  exitcode  : 1 (pid: 214033)
"""
    found = first_finding(tmp_path, text)
    assert (found.evidence.facts["message"], found.ranks, found.hosts) == (
        "index-outside",
        [10],
        ["n24"],
    )


REPORT = """\
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
Failures:
[1]:
  host      : n24
  rank      : 0 (local_rank: 0)
  exitcode  : {later} (pid: 14689)
Root Cause (first observed failure):
[0]:
  host      : n24
  rank      : 1 (local_rank: 1)
  exitcode  : {root} (pid: 14690)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("later", "root", "cause", "rank"),
    [
        (-9, 1, "first-failed", 1),
        (-9, -9, "rank-killed", 1),
        # No launcher sends this signal.
        (-7, 1, "loader-shared-memory", 0),
    ],
)
def test_a_rank_that_was_killed_after_another_failed_is_not_the_cause(
    tmp_path: Path, later: int, root: int, cause: str, rank: int
) -> None:
    found = first_finding(tmp_path, REPORT.format(later=later, root=root))
    assert (found.evidence.facts["message"], found.ranks) == (cause, [rank])


@pytest.mark.slow
def test_what_is_raised_while_a_program_ends_is_not_the_cause(tmp_path: Path) -> None:
    last = '  File "/opt/lib/python3.11/site-packages/launch/utils.py", line 257, in {}\n'
    said = "AttributeError: 'Popen' object has no attribute 'join'\ntask failed (exitcode: 1)\n"
    for function, cause in (
        ("terminate_local_procs", "child-failed"),
        ("start", "attribute-missing"),
    ):
        found = first_finding(tmp_path, CALLS + last.format(function) + said)
        assert found.evidence.facts["message"] == cause


@pytest.mark.parametrize("said", ["AssertionError", "AssertionError: "])
def test_an_assertion_without_words_is_told_by_its_condition(said: str) -> None:
    lines = [
        *CALLS.splitlines(),
        '  File "/work/project/steps/train.py", line 9, in check',
        "    assert args.heads % args.tp == 0",
        said,
    ]
    assert [item.text for item in raised_in(lines)] == ["AssertionError: args.heads % args.tp == 0"]
    worded = [*lines[:-1], "AssertionError: heads must divide"]
    assert [item.text for item in raised_in(worded)] == ["AssertionError: heads must divide"]


@pytest.mark.slow
def test_an_output_that_ends_inside_a_traceback_is_cut(tmp_path: Path) -> None:
    found = first_finding(tmp_path, "".join(f"[rank3]: {line}\n" for line in CALLS.splitlines()))
    assert (found.evidence.facts["message"], found.ranks) == ("output-cut", [3])
    assert "steps/train.py:40 (main)" in str(found.because)


@pytest.mark.parametrize("behind", ["done\n", "KeyError: 'x'\n"])
def test_a_traceback_that_is_not_the_end_is_not_cut(behind: str) -> None:
    tracebacks = Tracebacks()
    for number, line in enumerate((CALLS + behind).splitlines()):
        tracebacks.see("", line, number)
    assert tracebacks.cut() is None


def test_the_calls_above_a_warning_raise_nothing() -> None:
    """NumPy 2 makes torch print them as a traceback, and a program's next line is no exception."""
    seen = Tracebacks()
    lines = (
        "Traceback (most recent call last):",
        '  File "/app/train.py", line 4, in <module>',
        "    import torch",
        '  File "/venv/torch/nn/modules/transformer.py", line 20, in <module>',
        "    device: torch.device = torch.device(torch._C._get_default_device()),",
        "/venv/torch/nn/modules/transformer.py:20: UserWarning: Failed to initialize NumPy",
        "  device: torch.device = torch.device(torch._C._get_default_device()),",
        "Hostname: node1, Rank: 2, Local Rank: 2",
    )
    assert [seen.see("", line, number) for number, line in enumerate(lines)] == [None] * 8
    other = (*lines[:5], lines[5].replace(":20:", ":21:"), "ValueError: another rank's warning")
    assert [seen.see("", line, number) for number, line in enumerate(other)][-1] is not None
