"""Recordings of two runs in one folder are not taken for one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from advisor import api
from advisor.engine.examples import fill
from advisor.engine.rule import Example
from advisor.engine.sandbox import Sandbox
from advisor.engine.verdict.met import strangers

FIXTURES = Path(__file__).parents[2] / "fixtures"


@pytest.mark.long
@pytest.mark.slow
def test_ranks_of_two_runs_are_no_run(tmp_path: Path) -> None:
    shutil.copy(FIXTURES / "gpt2-tiny-ddp-2" / "rank0.json.gz", tmp_path)
    shutil.copy(FIXTURES / "gpt2-tiny-ddp-2-slow-rank" / "rank1.json.gz", tmp_path)
    with api.load(tmp_path) as run:
        assert run.report.verdict.reason == "never-met"


@pytest.mark.slow
def test_ranks_of_one_run_met(tmp_path: Path) -> None:
    for rank in range(2):
        shutil.copy(FIXTURES / "gpt2-tiny-ddp-2-slow-rank" / f"rank{rank}.json.gz", tmp_path)
    with api.load(tmp_path) as run:
        assert run.report.verdict.reason != "never-met"


@pytest.mark.parametrize(
    ("second", "found"),
    [
        ({"process_group": "0", "start_ns": 300_000_000}, [1]),  # after the first has ended
        ({"process_group": "0", "start_ns": 55_000_000}, []),  # beside it: calls were lost
        ({"process_group": "7", "start_ns": 300_000_000}, []),  # another group: they need not meet
    ],
)
def test_ranks_of_one_host_that_share_no_call_and_no_moment_are_of_two_runs(
    second: dict[str, str | int], found: list[int]
) -> None:
    steps = [{"rank": r, "step": s, "start_ns": 0, "end_ns": 10**9} for r in (0, 1) for s in (0, 1)]
    call = {"step": [0, 1], "group_size": 2, "matched_ranks": 1, "bytes": 8, "dur_ns": 9_000_000}
    first = {"rank": 0, "op": "all_reduce", "process_group": "0", "call_id": 1}
    rows = [
        call | first | {"start_ns": [50_000_000, 90_000_000]},
        call | second | {"rank": 1, "op": "all_gather", "call_id": 2},
    ]
    hosts = [{"rank": [0, 1], "world_size": 2, "host": "a"}]
    tables = {"rank": hosts, "step": steps, "collective": rows}
    with Sandbox(None, "example") as sandbox:
        fill(sandbox, Example(name="two", expect="passed", ranks=2, tables=tables))
        assert strangers(sandbox) == found


@pytest.mark.parametrize(("host", "found"), [("a", [1]), ("b", [])])
@pytest.mark.parametrize("base", [True, False])
def test_two_runs_of_one_script_on_one_host_have_calls_of_the_same_numbers(
    host: str, found: list[int], base: bool
) -> None:
    """A clock of another host may differ by any constant; one host's does not."""
    steps = [{"rank": r, "step": s, "start_ns": 0, "end_ns": 10**9} for r in (0, 1) for s in (0, 1)]
    call = {"step": 0, "group_size": 2, "matched_ranks": 2, "bytes": 8, "dur_ns": 9_000_000,
            "op": "all_reduce", "process_group": "0"}  # fmt: skip
    rows = [
        call | {"rank": rank, "call_id": n, "start_ns": begin + 10_000_000 * n}
        for rank, begin in ((0, 0), (1, 700_000_000))
        for n in range(6)
    ]
    hosts = [{"rank": 0, "world_size": 2, "host": "a", "has_base_time": base},
             {"rank": 1, "world_size": 2, "host": host, "has_base_time": base}]  # fmt: skip
    tables = {"rank": hosts, "step": steps, "collective": rows}
    with Sandbox(None, "example") as sandbox:
        fill(sandbox, Example(name="two", expect="passed", ranks=2, tables=tables))
        assert strangers(sandbox) == (found if base else [])
