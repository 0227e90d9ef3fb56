"""Causes and places in this project's own recordings, and what must not change them."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest

from advisor.metrics import derive
from advisor.store.store import Store
from tests.metrics.support import load_trace, store_of
from tests.support.marks import long, thinned

pytestmark = pytest.mark.slow

Traces = dict[int, dict[str, Any]]
MS = 1_000_000


def recording(folder: Path) -> Traces:
    traces = {n: load_trace(p) for n, p in enumerate(sorted(folder.glob("rank*.json.gz")))}
    assert len(traces) == 4
    return traces


def derived(traces: Traces) -> Store:
    store = store_of(traces, hosts={rank: f"host-{rank}" for rank in traces})
    derive(store)
    return store


def stragglers(store: Store) -> list[tuple[int, str]]:
    rows = store.con.execute(
        "SELECT rank, reason FROM lateness WHERE process_group IS NULL AND systematic"
    ).fetchall()
    return [tuple(row) for row in rows]


def places(store: Store) -> list[tuple[Any, ...]]:
    rows = store.con.execute("SELECT kind, src, dst FROM link_excess").fetchall()
    return [tuple(row) for row in rows]


@pytest.fixture(scope="module")
def slow_rank(fixtures_dir: Path) -> Traces:
    return recording(fixtures_dir / "lab-ddp-slow-rank")


@pytest.fixture(scope="module")
def slow_link(fixtures_dir: Path) -> Traces:
    return recording(fixtures_dir / "lab-ddp-slow-link")


@pytest.fixture(scope="module")
def slow_host(fixtures_dir: Path) -> Traces:
    return recording(fixtures_dir / "lab-fsdp2-slow-link")


def test_the_rank_with_slow_layers_is_the_straggler(slow_rank: Traces) -> None:
    store = derived(slow_rank)
    assert stragglers(store) == [(2, "longer-compute")]
    assert places(store) == []
    # 12 layers of 9 ms that take a fifth longer: 21.6 ms, on a busy machine.
    (cost,) = store.con.execute(
        "SELECT cost_ns_per_step FROM lateness WHERE process_group IS NULL AND rank = 2"
    ).fetchone()
    assert 15 * MS < cost < 40 * MS


def test_the_slow_sender_of_a_ring_is_named_and_nobody_is_late(slow_link: Traces) -> None:
    store = derived(slow_link)
    # gloo's all_reduce sends to the previous rank.
    assert places(store) == [("edge", 2, 1)]
    assert stragglers(store) == []


@pytest.mark.long
def test_a_host_slow_both_ways_is_named_from_two_operations(slow_host: Traces) -> None:
    store = derived(slow_host)
    assert places(store) == [("rank", 1, None)]
    assert stragglers(store) == []


def test_everything_is_matched_and_waits_add_up(slow_host: Traces) -> None:
    con = derived(slow_host).con
    assert con.execute("SELECT count(*) FROM unmatched").fetchone() == (0,)
    assert con.execute(
        "SELECT count(*) FROM collective WHERE matched_ranks <> 4 OR t_is <> 'matched' "
        "OR wait_ns + transfer_ns <> end_ns - start_ns OR wait_ns < 0"
    ).fetchone() == (0,)
    # 8 layers gathered twice and reduced once in each of 12 steps, on each rank.
    assert con.execute(
        "SELECT op, phase, count(*) FROM collective WHERE rank = 3 GROUP BY ALL ORDER BY ALL"
    ).fetchall() == [
        ("all_gather", "backward", 96),
        ("all_gather", "forward", 96),
        ("reduce_scatter", "backward", 96),
    ]
    assert con.execute(
        "SELECT DISTINCT wire_op, bytes FROM collective WHERE op = 'reduce_scatter'"
    ).fetchall() == [("all_reduce", 1_048_592)]


def shifted(traces: Traces, rank: int, by_ns: int) -> Traces:
    moved = dict(traces)
    one = dict(traces[rank])
    one["baseTimeNanoseconds"] = int(one["baseTimeNanoseconds"]) + by_ns
    moved[rank] = one
    return moved


@pytest.mark.long
@pytest.mark.parametrize(("rank", "by_ns"), [(0, 700 * MS), *long((3, -3_600_000_000_000))])
@pytest.mark.parametrize("name", ["slow_host", *long("slow_rank")])
def test_shifting_a_clock_changes_no_cause_and_no_place(
    request: pytest.FixtureRequest, name: str, rank: int, by_ns: int
) -> None:
    traces: Traces = request.getfixturevalue(name)
    before, after = derived(traces), derived(shifted(traces, rank, by_ns))
    assert stragglers(after) == stragglers(before)
    assert places(after) == places(before)
    offsets = dict(after.con.execute("SELECT rank, clock_offset_ns FROM rank").fetchall())
    other = 1
    assert offsets[rank] - offsets[other] == pytest.approx(-by_ns, abs=25 * MS)


def test_an_unsure_clock_makes_the_place_abstain_not_wander(slow_link: Traces) -> None:
    # All messages have one size here, so that stagger and offset of the shifted rank are one.
    store = derived(shifted(slow_link, 0, 700 * MS))
    assert [{*ends} for _, *ends in places(store)] in ([], [{1, 2}])
    assert stragglers(store) == []


@pytest.mark.long
def test_order_of_events_changes_nothing(slow_link: Traces) -> None:
    shuffled = copy.deepcopy(slow_link)
    for rank, trace in shuffled.items():
        random.Random(rank).shuffle(trace["traceEvents"])
    query = (
        "SELECT rank, op, start_ns, end_ns, wait_ns, bytes, step, matched_ranks, seq "
        "FROM collective ORDER BY ALL"
    )
    before, after = derived(slow_link), derived(shuffled)
    assert after.con.execute(query).fetchall() == before.con.execute(query).fetchall()
    assert places(after) == places(before)


@pytest.mark.long
def test_a_missing_event_unmatches_only_its_own_call(slow_rank: Traces) -> None:
    gone = copy.deepcopy(slow_rank)
    spans = [e for e in gone[1]["traceEvents"] if e["name"] == "gloo:all_reduce"]
    gone[1]["traceEvents"].remove(spans[17])
    store = derived(gone)
    assert store.con.execute(
        "SELECT rank, calls, reason FROM unmatched ORDER BY rank"
    ).fetchall() == [(0, 1, "missing event"), (2, 1, "missing event"), (3, 1, "missing event")]
    assert stragglers(store) == [(2, "longer-compute")]
    # Every other call still has the partners it had.
    pairs = (
        "SELECT a.start_ns, b.start_ns FROM collective a JOIN collective b USING (call_id) "
        "WHERE a.rank = 0 AND b.rank = 1"
    )
    whole = set(derived(slow_rank).con.execute(pairs).fetchall())
    left = set(store.con.execute(pairs).fetchall())
    assert left <= whole
    assert len(whole - left) == 1


def test_a_missing_rank_is_said_and_leaves_the_rest(slow_rank: Traces) -> None:
    store = derived({rank: trace for rank, trace in slow_rank.items() if rank != 3})
    assert {
        r for (r,) in store.con.execute("SELECT DISTINCT reason FROM unmatched").fetchall()
    } == {"missing rank"}
    assert store.con.execute("SELECT DISTINCT t_is, matched_ranks FROM collective").fetchall() == [
        ("upper bound", 3)
    ]
    # Who kept the others waiting did so, whatever the missing rank was doing.
    assert stragglers(store) == [(2, "longer-compute")]
    whole = dict(
        derived(slow_rank)
        .con.execute("SELECT (rank, start_ns), wait_ns FROM collective WHERE rank <> 3")
        .fetchall()
    )
    waits = store.con.execute("SELECT (rank, start_ns), wait_ns FROM collective").fetchall()
    assert all(wait <= whole[call] + 1_000_000 for call, wait in waits)  # the clocks are refitted


@pytest.mark.long
@pytest.mark.parametrize("missing", thinned(range(4), 4))
def test_a_missing_rank_hides_no_slow_edge(slow_link: Traces, missing: int) -> None:
    ((_, *ends),) = places(derived(slow_link))
    left = places(derived({rank: t for rank, t in slow_link.items() if rank != missing}))
    # Without either end of four ranks' edge, its stagger and a clock may look alike.
    assert len(left) == 1 or (missing in ends and not left)
    assert all(src in ends or dst in ends for _, src, dst in left)


def test_a_cut_file_hides_no_straggler(slow_rank: Traces) -> None:
    cut = copy.deepcopy(slow_rank)
    events = cut[1]["traceEvents"]
    last = max(e["ts"] for e in events if "ts" in e)
    first = min(e["ts"] for e in events if "ts" in e)
    cut[1]["traceEvents"] = [
        e for e in events if e.get("ts", first) < first + (last - first) * 6 / 10
    ]
    assert stragglers(derived(cut)) == [(2, "longer-compute")]


def test_one_rank_alone_blames_nobody(slow_link: Traces) -> None:
    store = derived({2: slow_link[2]})
    assert stragglers(store) == [] and places(store) == []
    assert store.con.execute("SELECT exposed_wait_ns FROM run_breakdown").fetchall() == [(None,)]


def test_steps_are_found_without_annotations(slow_rank: Traces) -> None:
    bare = copy.deepcopy(slow_rank)
    for trace in bare.values():
        trace["traceEvents"] = [
            e for e in trace["traceEvents"] if not e["name"].startswith("ProfilerStep")
        ]
    store = derived(bare)
    assert store.con.execute(
        "SELECT source, max(step) - min(step) + 1 FROM step GROUP BY source"
    ).fetchall() == [("optimizer-step", 13)]  # the first and the last are parts
    assert stragglers(store) == [(2, "longer-compute")]


def test_critical_path_covers_the_step_and_runs_through_the_slow_rank(slow_rank: Traces) -> None:
    con = derived(slow_rank).con
    path = con.execute(
        "SELECT rank, kind, start_ns, end_ns FROM critical_path ORDER BY position"
    ).fetchall()
    assert all(end > start for _, _, start, end in path)
    length = sum(end - start for _, _, start, end in path)
    (step,) = con.execute(
        "SELECT max(window_ns) FROM step_breakdown WHERE step = (SELECT any_value(step) "
        "FROM critical_path)"
    ).fetchone()
    assert length == pytest.approx(step, rel=0.1)
    compute = dict.fromkeys(range(4), 0)
    for rank, kind, start, end in path:
        compute[rank] += end - start if kind == "compute" else 0
    assert compute[2] > 0.8 * sum(compute.values())


def test_evidence_is_json(slow_rank: Traces) -> None:
    rows = derived(slow_rank).con.execute("SELECT reason_evidence FROM lateness").fetchall()
    assert rows and all("stretches" in json.loads(text) for (text,) in rows)
