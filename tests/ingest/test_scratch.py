"""What a process that was killed left in the folder for temporary files goes with the next one."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path

import pytest

from advisor.ingest.scratch import temporary_folder


def test_what_a_killed_process_left_goes_and_what_others_use_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "advisor-notes-of-mine").mkdir()
    child = os.fork()
    if not child:
        with temporary_folder("nsys") as folder:
            (folder / "export.sqlite").write_bytes(b"x")
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    (left,) = tmp_path.glob("advisor-nsys-*")
    with temporary_folder("look") as used, temporary_folder("look") as other:
        assert not left.exists()
        assert used.is_dir()
        assert other.is_dir()
    assert [path.name for path in tmp_path.iterdir()] == ["advisor-notes-of-mine"]
