"""The memory snapshot is taken of the body, written after an exception too, and CUDA's alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from advisor.config.workload import Workload  # noqa: E402
from advisor.errors import AdvisorError  # noqa: E402
from advisor.profile import launch  # noqa: E402
from advisor.profile.rendezvous import Nodes  # noqa: E402
from advisor.profile.snapshot import memory_snapshot  # noqa: E402


def test_the_history_is_of_the_body_and_written_after_an_exception(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[Any] = []

    def history(enabled: str | None = "all", **_: Any) -> None:
        order.append(("history", enabled))

    def dump(path: str) -> None:
        order.append("dump")
        Path(path).write_text("snapshot")

    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", history)
    monkeypatch.setattr(torch.cuda.memory, "_dump_snapshot", dump)
    path = tmp_path / "logs" / "rank0.memory.pickle"
    with pytest.raises(RuntimeError, match="out of memory"), memory_snapshot(path):
        order.append("body")
        raise RuntimeError("out of memory")
    assert order == [("history", "all"), "body", "dump", ("history", None)]
    assert path.read_text() == "snapshot"


def test_a_cpu_has_no_snapshot() -> None:
    with pytest.raises(AdvisorError, match="memory_snapshot and device cpu"):
        launch.check(Workload(memory_snapshot=True), Nodes())
