"""The recommended workload is the user's with what won, and nothing else of the sweep."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.config.workload import load_workload
from advisor.tune.budget import Budget
from advisor.tune.prepare import prepare
from advisor.tune.recommend import recommend, write_files
from tests.tune.test_sweep import AXES, play


@pytest.mark.parametrize("own", ["timed_steps: 8   # short", ""])
def test_the_number_of_timed_steps_stays_the_users(tmp_path: Path, own: str) -> None:
    # GIVEN a workload with fewer timed steps than a trial runs
    source = tmp_path / "job.yaml"
    source.write_text(f"# mine\nname: w\n{own}\nbucket_cap_mb: 25\n")
    folder = tmp_path / "sweep"
    folder.mkdir()
    sweep = prepare(
        load_workload(source), AXES, folder, {},
        Budget(timeout_s=1), source=source,
    )  # fmt: skip
    assert sweep.job.workload.timed_steps == 15
    play(sweep, {1.0: 90, 5.0: 70, 25.0: 100})
    # WHEN the winner is written
    write_files(sweep, recommend(sweep, []), folder)
    # THEN only what won is another
    lines = (folder / "workload.yaml").read_text().splitlines()[1:]
    assert lines == ["# mine", "name: w", *([own] if own else [""]), "bucket_cap_mb: 5.0"]
