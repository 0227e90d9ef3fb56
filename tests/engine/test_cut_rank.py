"""A rank whose recording is cut too short to count is a missing rank, not a healthy one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from advisor.engine import diagnose
from advisor.ingest import ingest
from advisor.metrics import derive
from advisor.store import Store


@pytest.mark.slow
@pytest.mark.parametrize("kept_bytes", [60_000, 200_000])
def test_a_rank_cut_short_leaves_the_question_open(
    tmp_path: Path, fixtures_dir: Path, kept_bytes: int
) -> None:
    """GIVEN the late rank's file cut short THEN the run is not called healthy."""
    traces = fixtures_dir / "gpt2-tiny-ddp-2-slow-rank"
    shutil.copy(traces / "rank0.json.gz", tmp_path)
    late = (traces / "rank1.json.gz").read_bytes()
    (tmp_path / "rank1.json.gz").write_bytes(late[:kept_bytes])
    with Store.create() as store:
        ingest([tmp_path], store)
        derive(store)
        verdict = diagnose(store, command="advisor diagnose x").verdict
    assert verdict.cause == "unknown"
    assert verdict.reason == "ranks-cut"
    assert verdict.values["cut"] == [1]
