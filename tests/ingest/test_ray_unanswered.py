"""A cluster that does not let advisor in, and what its killed workers leave behind."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from advisor.errors import AdvisorError
from advisor.ingest.ray_look import look_at
from advisor.ingest.ray_map import ingest_on_ray
from advisor.store.batches import new_token


def test_the_hint_names_the_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def init(**_: Any) -> None:
        raise ConnectionError("Failed to connect to Ray cluster at 10.0.0.1:6379\nmore")

    monkeypatch.setitem(
        sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False, init=init)
    )
    with pytest.raises(AdvisorError, match="no Ray cluster answers") as refused:
        ingest_on_ray([tmp_path], tmp_path / "out", address="10.0.0.1:6379")
    assert "ray start --head" in refused.value.hint
    assert "RAY_AUTH_MODE=token" in refused.value.hint


def test_what_killed_workers_left_goes_with_the_next_look(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    machine = new_token().partition("-")[0]
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    dead = [f"advisor-{kind}-{machine}-{ended.pid}-0a-x" for kind in ("look", "ingest")]
    alive = [f"advisor-look-{machine}-{os.getpid()}-0a-x", "advisor-lookalike"]
    for name in (*dead, *alive):
        (tmp_path / name).mkdir()
    assert look_at([]) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(alive)
