"""gloo recordings that do not say which group a call belongs to."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from advisor.engine import diagnose
from advisor.metrics import derive
from advisor.metrics.collectives.call import Call
from advisor.metrics.collectives.gloo_groups import threads_by_consistency
from advisor.store.store import Store
from tests.metrics.support import load_trace, store_of
from tests.support.marks import thinned

Traces = dict[int, dict[str, Any]]
FIXTURES = ("lab-ddp-slow-rank", "lab-ddp-slow-link", "lab-fsdp2-slow-link")


def recording(folder: Path) -> Traces:
    return {n: load_trace(path) for n, path in enumerate(sorted(folder.glob("rank*.json.gz")))}


def stripped(traces: Traces) -> Traces:
    """Without any word on process groups: what a plain recording of an old torch says."""
    bare = {rank: dict(trace) for rank, trace in traces.items()}
    for rank, trace in bare.items():
        trace["distributedInfo"] = {"backend": "gloo", "rank": rank, "world_size": len(traces)}
        trace["advisor"] = {k: v for k, v in trace["advisor"].items() if k != "gloo_threads"}
    return bare


def derived(traces: Traces) -> Store:
    store = store_of(traces, hosts={rank: f"host-{rank}" for rank in traces})
    derive(store)
    return store


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("name", thinned(FIXTURES, len(FIXTURES)))
def test_one_group_is_the_same_with_and_without_metadata(fixtures_dir: Path, name: str) -> None:
    traces = recording(fixtures_dir / name)
    told, bare = derived(traces), derived(stripped(traces))
    query = (
        "SELECT rank, op, start_ns, group_size, matched_ranks, wait_ns, transfer_ns, last_rank "
        "FROM collective ORDER BY ALL"
    )
    assert bare.con.execute(query).fetchall() == told.con.execute(query).fetchall()

    def found(store: Store) -> list[tuple[Any, ...]]:
        report = diagnose(store)
        return [(f.rule, f.severity, f.ranks, f.hosts, f.savings_ns) for f in report.findings]

    assert found(bare) == found(told)


def two_groups(traces: Traces) -> Traces:
    """The same, with every other all-reduce made on two threads of another group."""
    split = copy.deepcopy(traces)
    for trace in split.values():
        spans = [e for e in trace["traceEvents"] if e["name"] == "gloo:all_reduce"]
        ours = {span["tid"] for span in spans}
        shift = max(ours) - min(ours) + 1
        for span in sorted(spans, key=lambda e: e["ts"])[::2]:
            span["tid"] += shift
    return split


@pytest.mark.slow
def test_several_groups_without_metadata_are_not_compared_and_it_is_said(
    fixtures_dir: Path,
) -> None:
    store = derived(stripped(two_groups(recording(fixtures_dir / "lab-ddp-slow-rank"))))
    assert store.con.execute("SELECT max(matched_ranks) FROM collective").fetchone() == (1,)
    report = diagnose(store)
    blame = {"straggler-rank", "slow-ring-link", "jitter"}
    assert not blame & {finding.rule for finding in report.findings}
    assert any(note.code == "groups-not-recorded" for note in report.runs[0].notes)
    assert report.verdict.cause == "unknown"
    assert report.verdict.reason == "groups-missing"


NAMES = {rank: ["0", f"row {rank // 2}", f"column {rank % 2}"] for rank in range(4)}
MEMBERS: dict[str, tuple[int, ...] | None] = {
    "0": (0, 1, 2, 3), "row 0": (0, 1), "row 1": (2, 3), "column 0": (0, 2), "column 1": (1, 3),
}  # fmt: skip
MS = 1_000_000


def mesh_calls(clock: dict[int, int]) -> dict[int, dict[int, list[Call]]]:
    """A 2 x 2 mesh whose rows and columns call in turn, each at its own pace."""
    calls: dict[int, dict[int, list[Call]]] = {}
    for rank in range(4):
        row, column = rank // 2, rank % 2
        own: dict[int, list[Call]] = {tid: [] for tid in (10, 12, 17, 18)}
        for number in range(8):
            # Members arrive apart, and end together.
            late = 3 * MS * ((number + rank) % 3)
            for first, shift, group in ((10, 0, row), (17, 50 * MS, column)):
                begin = (
                    number * 100 * MS + shift + 15 * MS * (number * (1 + group) % 3) + clock[rank]
                )
                end = begin + 10 * MS
                tid = first + (2 if first == 10 else 1) * (number % 2)
                own[tid].append(Call(rank, "all_reduce", begin + late, end, number, bytes=64))
        calls[rank] = own
    return calls


@pytest.mark.parametrize("shift", [0, 7_000 * MS])
def test_silent_groups_are_told_by_who_leaves_before_whom(shift: int) -> None:
    clock = {0: 0, 1: 0, 2: shift, 3: shift}
    found = threads_by_consistency(mesh_calls(clock), NAMES, MEMBERS)
    assert found == {
        rank: {10: names[1], 12: names[1], 17: names[2], 18: names[2]}
        for rank, names in NAMES.items()
    }


def test_threads_that_several_choices_fit_stay_open() -> None:
    """Calls that all ranks make at the same time could be of any of their groups."""
    calls = {
        rank: {
            tid: [Call(rank, "all_reduce", n * MS, n * MS + MS // 2, n) for n in range(5)]
            for tid in (10, 11)
        }
        for rank in range(4)
    }
    assert threads_by_consistency(calls, NAMES, MEMBERS) == {}


def test_ranks_of_other_shape_stay_open() -> None:
    calls = mesh_calls(dict.fromkeys(range(4), 0))
    del calls[3][18]
    assert threads_by_consistency(calls, NAMES, MEMBERS) == {}
