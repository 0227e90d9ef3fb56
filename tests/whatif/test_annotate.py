"""The rows that rules read: a slow link restored in the replay of a real recording."""

from __future__ import annotations

from pathlib import Path

from advisor import api


def test_a_slow_link_is_restored_in_the_replay(fixtures_dir: Path) -> None:
    with api.load(fixtures_dir / "lab-ddp-slow-link") as run:
        places = run.sql("SELECT src FROM link_excess")
        rows = run.sql("SELECT value, step_ns, measured_step_ns FROM whatif "
                       "WHERE setting = 'restore-link'")  # fmt: skip
    assert list(rows["value"]) == [str(src) for src in places["src"]]
    # One host of four had its bandwidth cut: a faster link must shorten the step.
    assert (rows["step_ns"] < rows["measured_step_ns"]).all()


def test_without_a_slow_link_nothing_is_restored(fixtures_dir: Path) -> None:
    with api.load(fixtures_dir / "lab-ddp-slow-rank") as run:
        rows = run.sql("SELECT value FROM whatif WHERE setting = 'restore-link'")
    assert len(rows) == 0
