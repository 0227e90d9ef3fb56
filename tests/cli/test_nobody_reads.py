"""Standard output that nobody reads any more, as behind ``head``: files and the status hold."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from advisor.cli import main

_SPAN = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 2}


def _status(monkeypatch: pytest.MonkeyPatch, *command: str) -> object:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as unread, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", unread)
        with pytest.raises(SystemExit) as ended:
            main(list(command))
    return ended.value.code


@pytest.mark.slow
def test_reports_and_the_store_are_written_and_a_gate_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace, store, folder = tmp_path / "rank0.json", tmp_path / "x.duckdb", tmp_path / "out"
    trace.write_text(json.dumps({"traceEvents": [_SPAN], "distributedInfo": {"rank": 0}}))
    line = ["diagnose", str(trace), "--format", "text,json", "-o", f"{folder}/", "--store"]
    assert _status(monkeypatch, *line, str(store)) == 0
    assert json.loads((folder / "findings.json").read_text())
    assert store.is_file()
    (tmp_path / "nccl.log").write_text(
        "n1:1:1 [0] NCCL INFO NCCL version 2.21.5+cuda12.4\n"
        "n1:1:1 [0] NCCL WARN Cuda failure 2 'out of memory'\n"
    )
    gate = ["diagnose", str(tmp_path / "nccl.log"), "--fail-on", "info"]
    assert _status(monkeypatch, *gate) == 1


def test_what_was_not_printed_whole_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _status(monkeypatch, "explain", "straggler-rank") == 141
