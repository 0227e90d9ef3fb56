"""A job that is recorded goes on, whatever happens to its trace, and no half of one is left."""

from __future__ import annotations

import contextlib
import errno
import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.marks import long
from tests.trust.faults import Ended, children_of, mounted, needs_root, run, wait_for

pytestmark = pytest.mark.slow

JOB = """
import pathlib, resource, torch
m = torch.nn.Linear(4, 4); o = torch.optim.SGD(m.parameters(), 0.1)
for n in range(12):
    o.zero_grad(); m(torch.ones(2, 4)).sum().backward()
    if n == 4:  # the last that is recorded
        BEFORE_ITS_END
    o.step()
pathlib.Path(__file__).with_name("done").mkdir()
"""
NO_DESCRIPTORS = "resource.setrlimit(resource.RLIMIT_NOFILE, (3, 4096))"


def record(tmp_path: Path, traces: Path, limit: str = "pass", **how: Any) -> Ended:
    """Record two steps of a job of one process."""
    pytest.importorskip("torch")
    (tmp_path / "job.py").write_text(JOB.replace("BEFORE_ITS_END", limit))
    asked = [*("--skip", "2", "--steps", "2", "-o", str(traces)), "--"]
    job = [sys.executable, str(tmp_path / "job.py")]
    return run([sys.executable, "-m", "advisor", "record", *asked, *job], **how)


def goes_on_without(ended: Ended, tmp_path: Path, traces: Path) -> None:
    """The job ran to its end, no trace is there, and it is said why."""
    assert (tmp_path / "done").exists(), ended.said
    assert ended.status == 2
    assert "the job goes on" in ended.said
    assert list(traces.rglob("*.gz")) == []


@pytest.mark.parametrize(
    "number",
    [errno.ENOSPC, *long(errno.EIO, errno.EDQUOT)],
    ids=["full disk", "EIO", "quota"],
)
def test_a_job_goes_on_whose_trace_cannot_be_written(
    number: int, failing: Path, tmp_path: Path
) -> None:
    traces = tmp_path / "traces"
    extra = {"LD_PRELOAD": str(failing), "FAIL_UNDER": str(traces), "FAIL_ERRNO": str(number)}
    ended = record(tmp_path, traces, extra={**extra, "FAIL_AFTER": "400"})
    goes_on_without(ended, tmp_path, traces)


@pytest.mark.long
def test_a_job_goes_on_that_has_no_descriptor_left_for_its_trace(tmp_path: Path) -> None:
    ended = record(tmp_path, tmp_path / "traces", NO_DESCRIPTORS)
    goes_on_without(ended, tmp_path, tmp_path / "traces")


@pytest.mark.long
@needs_root
def test_a_job_goes_on_whose_folder_is_read_only(tmp_path: Path) -> None:
    with mounted(tmp_path / "fixed", "size=1m") as folder:
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
        ended = record(tmp_path, folder / "traces")
        goes_on_without(ended, tmp_path, folder / "traces")


@pytest.mark.long
def test_a_job_that_is_killed_while_it_writes_its_trace(tmp_path: Path) -> None:
    traces = tmp_path / "traces"

    def kill(process: subprocess.Popen[str]) -> None:
        wait_for(lambda: bool(children_of(process.pid)), process)
        job = children_of(process.pid)
        wait_for((traces / ".partial-rank0.json.gz").exists, process)
        for pid in job:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    ended = record(tmp_path, traces, during=kill)
    # The rename may have been faster than the kill: then the trace is whole.
    for trace in traces.glob("rank*.json.gz"):
        assert json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    whole = any(traces.glob("rank*.json.gz"))
    assert ("wrote" in ended.said) == whole
    assert ended.status in (2, 128 + signal.SIGKILL) or (whole and ended.status == 0)
