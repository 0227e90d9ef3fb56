"""The rows that rules read: a slow link restored in the replay of a real recording."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from advisor import api
from advisor.metrics.derive import derive
from advisor.whatif.annotate import annotate
from advisor.whatif.predict import Prediction
from tests.metrics.nccl_rings import Ask, Fabric, recording, world
from tests.metrics.support import store_of


@pytest.mark.slow
def test_a_slow_link_is_restored_in_the_replay(fixtures_dir: Path) -> None:
    with api.load(fixtures_dir / "lab-fsdp2-slow-link") as run:
        places = run.sql("SELECT src FROM link_excess")
        rows = run.sql("SELECT value, step_ns, measured_step_ns FROM whatif "
                       "WHERE setting = 'restore-link'")  # fmt: skip
    assert len(places)
    assert list(rows["value"]) == [str(src) for src in places["src"]]
    # One host of four had its bandwidth cut: a faster link must shorten the step.
    assert (rows["step_ns"] < rows["measured_step_ns"]).all()


def test_a_slow_nic_is_restored_where_no_trace_names_its_host() -> None:
    """Ranks of unknown hosts may be on different ones."""
    fabric = Fabric(4, 1, sends={1: 0.4}, receives={1: 0.4})
    asks = [Ask("all_reduce", world(fabric), 50_000_000)]
    store = store_of(recording(fabric, asks, jitter=0.4, same_host_names=False))
    derive(store)
    annotate(store)
    rows = store.con.execute(
        "SELECT value, step_ns < 0.8 * measured_step_ns FROM whatif WHERE setting = 'restore-link'"
    ).fetchall()
    assert rows == [("1", True)]


def test_without_a_slow_link_nothing_is_restored(fixtures_dir: Path) -> None:
    with api.load(fixtures_dir / "lab-ddp-slow-rank") as run:
        rows = run.sql("SELECT value FROM whatif WHERE setting = 'restore-link'")
    assert len(rows) == 0


@pytest.mark.slow
def test_of_small_buckets_one_cap_is_tried_that_the_sizes_seen_tell_of(fixtures_dir: Path) -> None:
    """All caps that people set lie beyond twice the largest bucket, of 192 KiB."""
    with api.load(fixtures_dir / "lab-ddp-hidden-communication") as run:
        rows = run.sql("SELECT value, extrapolates FROM whatif WHERE setting = 'bucket_cap_mb'")
    assert list(rows["value"][~rows["extrapolates"].astype(bool)]) == ["0.375"]


@pytest.mark.parametrize("inconclusive", [True, False])
def test_rules_read_that_a_trace_does_not_tell(
    fixtures_dir: Path, monkeypatch: pytest.MonkeyPatch, inconclusive: bool
) -> None:
    """What ``advisor whatif`` prints beside a prediction is in the table that findings rest on."""
    found = Prediction(
        90e6, 80e6, 99e6, 100e6, 100e6, 2e6, 19e6, extrapolates=True, inconclusive=inconclusive
    )
    module = importlib.import_module("advisor.whatif.annotate")
    rows = [("bucket_cap_mb", "1", False, found)]
    with api.load(fixtures_dir / "lab-ddp-slow-rank") as run:
        monkeypatch.setattr(module, "_rows", lambda *_, **__: rows)
        module.annotate(run.store)
        (row,) = run.sql("SELECT extrapolates, inconclusive FROM whatif").to_dict("records")
    assert row == {"extrapolates": True, "inconclusive": inconclusive}
