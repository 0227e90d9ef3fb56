"""What counts as kept when one host's clock is moved."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.lab import shifts
from benchmarks.lab.case import Case, Truth
from benchmarks.lab.config import RunConfig
from benchmarks.lab.edits import drawn_host, shift_one_clock
from benchmarks.lab.score import Score

JOB = RunConfig(ranks=6, ranks_per_host=2)
CASE = Case("c", "slow-link", "", 0, JOB, JOB)
MS = 1_000_000
BEFORE = Score(
    id="c", kind="slow-link", strength="", strategy="ddp", ranks=6, seed=0, is_control=False,
    band="counted", slowdown=0.5, place="host 1", top="slow-ring-link", rank_of_truth=1,
    place_found="right", said="h1", predicted_gain_ns=40 * MS, interval=(30 * MS, 50 * MS),
    real_gain_ns=38 * MS, noise_ns=MS, alarms=("slow-ring-link (rank 2)",),
)  # fmt: skip


@pytest.mark.parametrize(
    ("change", "lost"),
    [
        ({}, set()),
        ({"predicted_gain_ns": 43 * MS}, set()),
        ({"predicted_gain_ns": 45 * MS}, {"gain"}),
        ({"interval": (45 * MS, 50 * MS)}, {"gain"}),
        ({"said": "2 -> 1"}, {"place"}),
        ({"alarms": ("straggler-rank (rank 0)",)}, {"alarms"}),
        (
            {"top": "healthy", "rank_of_truth": None, "said": "", "place_found": None,
             "predicted_gain_ns": None, "interval": None, "alarms": ()},
            {"cause", "place", "gain"},
        ),
    ],
)  # fmt: skip
def test_what_is_kept(change: dict[str, object], lost: set[str]) -> None:
    found = shifts.compared(BEFORE, replace(BEFORE, **change), 2, -3.0)
    assert {name for name in ("cause", "place", "gain", "alarms") if not getattr(found, name)} == (
        lost
    )


@pytest.mark.parametrize(
    ("change", "accuses"),
    [
        ({"said": "2 -> 1", "alarms": ("slow-ring-link (2 -> 1)",)}, False),
        ({"said": "2 -> 1", "alarms": ("slow-ring-link (2 -> 1)",), "place_found": "wrong"}, True),
        ({"alarms": ("slow-ring-link (rank 2)", "straggler-rank (rank 0)")}, True),
        ({"alarms": (), "top": "healthy"}, False),
    ],
)
def test_less_may_be_said_but_nothing_wrong(change: dict[str, object], accuses: bool) -> None:
    after = replace(BEFORE, **change)  # type: ignore[arg-type]
    assert shifts.compared(BEFORE, after, 2, -3.0, ("slow-ring-link",)).accuses is accuses
    assert not shifts.compared(after, after, 2, -3.0, ("slow-ring-link",)).accuses


def test_counts_are_by_sort_and_shift() -> None:
    kept = shifts.compared(BEFORE, BEFORE, 0, 40.0)
    moved = shifts.compared(BEFORE, replace(BEFORE, said="h0"), 1, 40.0)
    control = replace(kept, is_control=True, kind="healthy")
    found = shifts.summarise([kept, moved, control, replace(kept, by_ms=-2.0)])
    assert [(r["sort"], r["by_ms"], r["count"], r["place"]) for r in found["summary"]] == [
        ("slow-link", 40.0, 2, 1),
        ("slow-link", -2.0, 1, 1),
        ("controls", 40.0, 1, 1),
    ]
    assert shifts.render(found).splitlines()[-1].split() == ["all", "4", "4", "3", "4", "4", "0"]


def test_only_one_host_is_moved(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    (folder / "traces").mkdir(parents=True)
    CASE.write(folder)
    Truth((150, 152), (100, 101)).write(folder)
    for rank in range(6):
        path = folder / "traces" / f"rank{rank}.trace.json.gz"
        path.write_bytes(gzip.compress(json.dumps({"baseTimeNanoseconds": 10**18}).encode()))
    shift_one_clock(folder, tmp_path / "moved", CASE, 1, -2.5)
    base = [
        json.loads(gzip.decompress(path.read_bytes()))["baseTimeNanoseconds"] - 10**18
        for path in sorted((tmp_path / "moved" / "traces").iterdir())
    ]
    assert base == [0, 0, -2_500_000, -2_500_000, 0, 0]
    assert drawn_host(CASE) == drawn_host(CASE)
    assert {drawn_host(replace(CASE, id=str(n))) for n in range(40)} == {0, 1, 2}
