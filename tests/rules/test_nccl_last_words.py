"""Outputs of which no line has a known form: what failed is told by words, as probable only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import advisor
from advisor.errors import AdvisorError
from advisor.ingest.readers.nccl_log.last_words import LAST_LINES, LastWords, strength
from advisor.model.nccl.messages import named
from advisor.model.nccl.raised import named_raised, probably
from tests.rules.outputs import first_named

TRAINED = "".join(f"iteration {number} | loss 2.{number}\n" for number in range(9))
TOLD = {
    "probable-memory": "allocator: arena exhausted, cannot allocate 3 more slabs",
    "probable-rights": "vault said forbidden for lease 7",
    "probable-connection": "peer 7 unresponsive, giving up",
    "probable-versions": "schema: incompatible wire version 3, want 4",
    "probable-file": "weights.bin: shard 3 missing",
    "probable-device": "GPU 3 failed its self test",
    "probable-option": "invalid topology string «2x»",
    "probable-end": "the run died",
}


@pytest.mark.parametrize("kind", TOLD)
def test_an_output_without_a_known_form_is_read_and_its_words_are_quoted(
    tmp_path: Path, kind: str
) -> None:
    """GIVEN no line that an entry knows THEN a warning says that it is probable."""
    assert named(TOLD[kind], is_warning=False) is None
    found = first_named(tmp_path, {"job": {"log": f"{TRAINED}{TOLD[kind]}\nbye\n"}})["job"]
    assert (found.evidence.facts["message"], found.severity.value) == (kind, "warning")
    assert found.title.startswith("Probably ")
    assert TOLD[kind] in found.because[0]


def test_a_line_that_a_logger_calls_an_error_is_told_where_nothing_else_is(tmp_path: Path) -> None:
    log = tmp_path / "job.out"
    log.write_text(f"{TRAINED}ERROR: opening /data/x.bin went wrong\n")
    with advisor.load(str(log)) as run:
        found = [item for item in run.report.findings if item.rule == "nccl-error"]
    assert [item.evidence.facts["message"] for item in found] == ["probable-end"]


WELL = {
    "trained on": f"cache: shard 3 missing\n{TRAINED}",
    "ended well": "cache: shard 3 missing\nTraining completed in 3 h\n",
    "long ago": "cache: shard 3 missing\n" + "writing\n" * 20,
    "counts none": "done: 0 failed, 12 passed, errors: 0\nno errors were found\n",
    "goes on": "WARNING: fused kernel not available, using the slow one\n",
    "a bar": "scan: 1719 images, 0 corrupt: 100%|####| 1719/1719 [00:00<?, ?it/s]\n",
    "a logger's note": "INFO: 3 unknown keys\nINFO: next epoch\n",
    "a warning of Python's": "a.py:609: UserWarning: `pad` should be positive. This will cause "
    "errors when batch generating\n  warnings.warn(\n",
    "a warning of torch's": "[rank1]:[W1128 21:06:44.077265378 socket.cpp:207] [c10d] The hostname "
    "of the client socket cannot be retrieved. err=-3\n",
    "Lightning's end": "cache: shard 3 missing\n`Trainer.fit` stopped: `max_steps=42` reached.\n",
    "a note of glog": "I0904 19:50:19.025613 1405 a.cc:8] tpu: Failed to open libtpu.so\n",
}


@pytest.mark.parametrize("name", WELL)
def test_a_job_that_goes_on_or_ends_well_did_not_die_of_words(tmp_path: Path, name: str) -> None:
    assert first_named(tmp_path, {"job": {"log": WELL[name]}}) == {}


def test_an_output_that_went_well_is_read_where_it_has_such_words(tmp_path: Path) -> None:
    log = tmp_path / "job.out"
    log.write_text(f"cache: shard 3 missing\n{TRAINED}")
    with advisor.load(str(log)) as run:
        assert not [item for item in run.report.findings if item.severity.value != "info"]


def test_what_is_known_by_its_form_stands_before_what_is_probable(tmp_path: Path) -> None:
    known = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    found = first_named(tmp_path, {"job": {"log": f"{known}\npeer 7 unresponsive, giving up\n"}})
    assert found["job"].evidence.facts["message"] == "out-of-memory"


def test_a_wait_at_the_start_that_ends_is_no_warning(tmp_path: Path) -> None:
    waits = "Waiting in store based barrier to initialize process group for rank: 3"
    done = "Rank 3: Completed store-based barrier for key:store_based_barrier_key:1 with 6 nodes."
    logs = {"over": {"log": f"{waits}\n{done}\n"}, "waits": {"log": f"{waits}\n"}}
    found = first_named(tmp_path, logs)
    assert {name: item.severity.value for name, item in found.items()} == {
        "over": "info",
        "waits": "warning",
    }


def test_a_text_without_a_failing_word_is_an_output_by_its_name_alone(tmp_path: Path) -> None:
    text = "writing a shard\n" * 9
    (tmp_path / "job.out").write_text(text)
    with advisor.load(str(tmp_path / "job.out")) as run:
        assert not run.report.findings
    log = tmp_path / "job.txt"
    log.write_text(text)
    with pytest.raises(AdvisorError, match="no trace or log"), advisor.load(str(log)):
        pass


def test_steps_alone_are_the_output_of_a_job_that_trains(tmp_path: Path) -> None:
    log = tmp_path / "job.out"
    log.write_text(TRAINED)
    with advisor.load(str(log)) as run:
        assert not run.report.findings


REFUSED = "host:1:1 [0] misc/socket.cc:1 NCCL WARN Connection refused\n"
NO_OUTPUTS = {
    "a table": ("runs.csv", "run,state\n1,failed\n2,killed\n"),
    "our report": ("findings.json", '{\n "schema_version": 3,\n "runs": ["' + REFUSED),
    "our page": ("report.html", f"<!DOCTYPE html>\n<p>{REFUSED}"),
    "our JUnit": ("report.xml", f'<?xml version="1.0"?>\n<testsuites>{REFUSED}'),
}


@pytest.mark.parametrize("name", NO_OUTPUTS)
def test_what_quotes_errors_is_no_output(tmp_path: Path, name: str) -> None:
    """GIVEN a table, or a diagnosis kept beside its traces THEN it is not read as a log."""
    path = tmp_path / NO_OUTPUTS[name][0]
    path.write_text(NO_OUTPUTS[name][1])
    with pytest.raises(AdvisorError), advisor.load(str(path)):
        pass


def test_a_text_between_rulers_is_told_whole() -> None:
    words = LastWords()
    ruler = "-" * 74
    box = ["A rank is missing its location:", "", "  Rank file:   ./ranks", "Add an entry."]
    for number, line in enumerate(["starts", ruler, *box, ruler, "exits", ruler]):
        words.see(number, "", line)
    line = words.strongest()
    assert line is not None
    assert (line.number, line.text) == (
        2,
        "A rank is missing its location: Rank file: ./ranks Add an entry.",
    )


def test_the_first_of_the_strongest_lines_at_the_end_is_taken() -> None:
    words = LastWords()
    for number, text in enumerate(["x failed", "fatal: y failed, cannot open", "fatal: z failed"]):
        words.see(number, "", text)
    strongest = words.strongest()
    assert strongest is not None
    assert strongest.number == 1
    for number in range(LAST_LINES):
        words.see(number + 3, "", "quiet")
    assert words.strongest() is None
    assert strength("fatal: y failed") > strength("y failed") > strength("y ended") == 0


RAISED: dict[str, tuple[str, str]] = {
    # Where the text tells nothing the code that raised it tells what was being done.
    "model-files": ("RuntimeError: gone", "/x/huggingface_hub/file_download.py hf_hub_download"),
    "data-set-missing": ("Exception: gone", "/x/datasets/load.py load_dataset"),
    "device-unready": ("RuntimeError: gone", "/x/torch/cuda/__init__.py _lazy_init"),
    "kernel-library": ("AssertionError: gone", "/x/flash_attn/flash_attn_interface.py forward"),
    "collective-refused": ("RuntimeError: gone", "/x/torch/distributed/distributed_c10d.py send"),
    "ray-call": ("RuntimeError: gone", "/x/ray/_private/worker.py get"),
    "options-refused": ("ValueError: gone", "/x/accelerate/accelerator.py __init__"),
    "checkpoint-unwritten": ("RuntimeError: gone", "/x/torch/serialization.py save"),
    # A class that says what is wrong tells more.
    "key-missing": ("KeyError: 'a'", "/x/torch/distributed/distributed_c10d.py send"),
    "data-sample": ("KeyError: 'a'", "/w/dataset.py __getitem__"),
    # And words where neither does.
    "exception-memory": ("RuntimeError: arena exhausted, cannot allocate", "/w/train.py main"),
    "exception": ("RuntimeError: no", "/w/train.py main"),
}


@pytest.mark.parametrize("entry", RAISED)
def test_an_exception_is_called_by_whose_code_its_class_or_its_words(entry: str) -> None:
    text, frame = RAISED[entry]
    message = named(text, is_warning=False)
    assert named_raised(text, f"/w/train.py <module>\n{frame}", message) == entry


def test_a_name_that_the_program_looks_up_is_no_sample() -> None:
    """The same file holds both: the function tells."""
    text, calls = "KeyError: 'alpaca_2'", "/w/sft.py main\n/w/utils/dataset.py get_dataset"
    assert named_raised(text, calls, named(text, is_warning=False)) == "key-missing"


def test_every_line_has_a_kind() -> None:
    assert {line: probably(line) for line in TOLD.values()} == {
        line: kind for kind, line in TOLD.items()
    }


PLACES: list[tuple[str, list[int], list[str]]] = [
    ("worker tcp://10.0.0.3:4000 failed its heartbeat", [], ["10.0.0.3"]),
    ("launch failed on node gpu-7: no answer", [], ["gpu-7"]),
    ("Error pod team/job-worker-3 container main exitCode: 1", [], ["job-worker-3"]),
    ("gpu7.cluster.example: fatal: cannot open x.bin", [], ["gpu7.cluster.example"]),
    ("trainer-1  | fatal: cannot open x.bin", [], ["trainer-1"]),
    ("fatal: cannot open x.bin on RANK 5", [5], []),
    ("fatal: cannot open x.bin, global_rank=6", [6], []),
    ("fatal: cannot open x.bin, local rank 6", [], []),
    ("fatal: train.py: line 12 on a node of ours: cannot go on", [], []),
]  # fmt: skip


@pytest.mark.parametrize(("line", "ranks", "hosts"), PLACES, ids=[case[0][:30] for case in PLACES])
def test_the_place_is_read_in_the_forms_of_programs(
    tmp_path: Path, line: str, ranks: list[int], hosts: list[str]
) -> None:
    case: dict[str, Any] = {"log": f"{line}\n", "ranks": ranks}
    found = first_named(tmp_path, {"job": case})["job"]
    assert (found.ranks, found.hosts) == (ranks, hosts)
