"""A device's idle stretches, and what lies between two recordings of one job."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import advisor
from advisor.findings import Severity, VerdictKind
from advisor.metrics.host.activity import KINDS, HostActivity
from advisor.metrics.host.beside_calls import loading_beside_calls
from advisor.metrics.host.gaps import _recorded_until, _steps_of, gap_rows
from advisor.metrics.host.lead import device_gaps, split_idle
from advisor.metrics.host.stretches import _QUEUED, _longest_lead
from advisor.metrics.steps.annotated import Step, Steps
from advisor.metrics.timeline.breakdown import Occupancy
from advisor.metrics.timeline.intervals import Intervals
from advisor.metrics.timeline.timeline import Timeline
from benchmarks.fuzz import damages, labelled, recordings
from tests.support.marks import long

MS = 1_000_000


def test_what_was_not_recorded_between_two_steps_is_no_gap_of_either() -> None:
    windows = ((1, 0, 100), (2, 100, 200), (9, 900, 1000))
    steps = Steps(tuple(Step(n, a * MS, b * MS, None, None, True, "x") for n, a, b in windows))
    assert _recorded_until(steps) == {2: 200 * MS}
    assert steps.by_window(np.array([199 * MS])).tolist() == [2]


def test_a_pause_belongs_to_the_step_that_has_most_of_it() -> None:
    """A sleep at each step's start, of which one began just before the mark: 0.25 ms of 30 were
    said of that step, and its peer was accused of a pause of its own."""
    windows = ((1, 0, 100), (2, 100, 200), (9, 900, 1000))
    steps = Steps(tuple(Step(n, a * MS, b * MS, None, None, True, "x") for n, a, b in windows))
    low, high = np.array([99, 101, 150, 190]) * MS, np.array([130, 131, 160, 980]) * MS
    assert _steps_of(low, high, steps, _recorded_until(steps)).tolist() == [2, 2, 2, 2]


@pytest.mark.parametrize(("before", "lead"), [(_QUEUED // 2, 512), (2 * _QUEUED, 1024)])
def test_a_host_that_never_waits_is_ahead_by_a_full_queue_at_most(before: int, lead: int) -> None:
    """Kernels of 1 ms whose launches each wait for the one before, then a pause of 3 s: what all
    those waits took together hid it, and 2,820 ms of a run that its loader stopped were theirs."""
    start = np.append(np.arange(before) * MS, (before + 3000) * MS)
    none = np.zeros_like(start)
    line = Timeline(0, True, none, start, start + MS, none + 7, start, start - 1000, none)
    busy = Intervals.of(line.start, line.end)
    found = _longest_lead(line, busy, line.launch[-1:], np.array([before * MS]))
    assert found.tolist() == [lead * MS]


def test_a_gap_is_split_among_what_filled_it() -> None:
    """Seen in a libtorch program: a gap of 1,207 ms of which cudaFree filled 672 and the first
    launch 492 was said to free memory for all of it. A call of a hundredth of it is no part."""
    start = np.array([0, 1200, 1202]) * MS
    none = np.zeros_like(start)
    line = Timeline(0, True, none, start, start + MS, none + 7, start, start - 1000, none)
    spans = [("allocator", 1, 673), ("allocator", 700, 706), ("loading", 708, 1200)]
    kinds = [name for name, _ in KINDS]
    begin, end = np.array([[low, high] for _, low, high in spans]).T * MS
    activity = HostActivity(
        np.array([kinds.index(kind) for kind, _, _ in spans]),
        np.zeros(3, dtype=np.int64),
        np.array(["cudaFree", "cudaMalloc", "cudaLaunchKernel"], dtype=object),
        begin,
        end,
        np.arange(3),
        Intervals.empty(),
    )
    busy = Occupancy.of(line)
    gaps = device_gaps(line, busy, activity, np.array([], dtype=np.int64))
    step = Steps((Step(0, 0, 1300 * MS, None, None, True, "x"),))
    rows = gap_rows("run", line, busy, step, activity, gaps)
    found = {row["kind"]: (row["idle_ns"] // MS, row["name"]) for row in rows}
    assert found == {
        "allocator": (678, "cudaFree"),
        "loading": (492, "cudaLaunchKernel"),
        "pause": (29, None),
        "launch": (1, None),
    }
    assert len({row["start_ns"] for row in rows}) == len(rows)  # each has a place of its own


@pytest.mark.parametrize(("waited_ms", "kind"), [(0, "pause"), (25, "synchronisation")])
def test_a_pause_is_none_the_shorter_for_the_lead_that_hides_it(waited_ms: int, kind: str) -> None:
    """A host that launches nothing for 40 ms, of which its device idles 13: "launched too late",
    and CUDA graphs were the cure. What it waits for its device of that is no pause."""
    start, launch = np.array([0, 9, 18, 50, 51]) * MS, np.array([0, 8, 9, 49, 50]) * MS
    none = np.zeros_like(start)
    line = Timeline(
        0, True, none, start, start + np.array([9, 9, 18, 1, 1]) * MS, none + 7, start, launch, none
    )
    waits = np.array([10 * MS] if waited_ms else [], dtype=np.int64)
    number = [name for name, _ in KINDS].index("synchronisation")
    activity = HostActivity(
        np.full_like(waits, number), waits * 0, np.full(len(waits), "cudaEventSynchronize"),
        waits, waits + waited_ms * MS, waits * 0, Intervals.empty(),
    )  # fmt: skip
    gaps = device_gaps(line, Occupancy.of(line), activity, np.empty(0, dtype=np.int64))
    assert gaps is not None
    idle = gaps.until - gaps.low >= 13 * MS
    assert gaps.kind[idle].tolist() == [kind]


@pytest.mark.parametrize(
    ("asked", "returned", "queued"), [(49, 50, 99), (49, 138, 11), (60, 61, 88), (60, 138, 11)]
)
def test_a_call_that_has_not_returned_queued_nothing(
    asked: int, returned: int, queued: int
) -> None:
    """Seen in short programs: the first launch of a module, asked for about when the device idled
    (from 50 ms on, to 149), loaded for most of that: "idles with its next work queued"."""
    start, launch = np.array([0, 20, 40, 149]) * MS, np.array([0, 19, 39, asked]) * MS
    none = np.zeros_like(start)
    ends = np.array([0, 19, 39, returned]) * MS
    line = Timeline(
        0, True, none, start, start + 10 * MS, none + 7, start, launch, none, returned=ends
    )
    empty = np.empty(0, dtype=np.int64)
    activity = HostActivity(empty, empty, empty, empty, empty, empty, Intervals.empty())
    gaps = device_gaps(line, Occupancy.of(line), activity, empty)
    assert gaps is not None
    assert split_idle(gaps).launch_gap.length == queued * MS


@pytest.mark.long
@pytest.mark.slow
def test_lost_kernels_are_no_pause_of_the_host(tmp_path: Path) -> None:
    """GIVEN kernels of a rank whose records were lost in some steps THEN nobody is said to pause.

    What ends such a stretch was launched long before.
    """
    rows = labelled.nsys_rows()
    kernels = [row for row in rows["rank0"] if row[0] == "CUPTI_ACTIVITY_KIND_KERNEL"]
    per_step = len(kernels) // labelled.STEPS
    lost = {id(kernels[step * per_step + at]) for step in (1, 3, 5) for at in (1, 5)}
    rows["rank0"] = [row for row in rows["rank0"] if id(row) not in lost]
    labelled.write_nsys(rows, tmp_path)
    with advisor.load(tmp_path) as run:
        rules = {finding.rule for finding in run.report.findings}
        assert "straggler-rank" in rules
        assert "one-rank-pauses" not in rules
        idle = "SELECT count(*) FROM host_gap WHERE rank = 0 AND idle_ns > 900000"
        assert run.store.con.execute(idle).fetchall() == [(6,)]
        assert run.store.con.execute(f"{idle} AND host_ns > 100000").fetchall() == [(0,)]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2-tiny-ddp-2-slow-rank", *long("lab-ep-expert-skew")])
def test_a_cpu_without_operators_is_not_said_to_idle(
    fixtures_dir: Path, tmp_path: Path, name: str
) -> None:
    """GIVEN traces of a CPU that lost all operators THEN neither a pause nor a wait is a cause."""
    recording = recordings.traces(fixtures_dir / name)
    damages.without(recording.parts, "cpu_op")
    recording.write(recording.parts, tmp_path)
    with advisor.load(tmp_path) as run:
        assert run.report.verdict.kind == VerdictKind.INCONCLUSIVE
        assert run.report.verdict.reason == "no-device"
        assert {finding.severity for finding in run.report.findings} == {Severity.INFO}


def _late_host() -> list[labelled.Work]:
    """Each rank computes 8 ms and reduces, four times a step; one host asks 30 ms late each time.

    The hosts wait for their calls in a way that is not recorded.
    """
    found: list[labelled.Work] = []
    free = MS
    for number in range(4 * labelled.STEPS):
        step, jitter = number // 4, number % 3 * MS // 50
        begun = [
            free + 8 * MS + rank * jitter + 30 * MS * (rank == labelled.LATE_RANK)
            for rank in range(labelled.RANKS)
        ]
        for rank, start in enumerate(begun):
            computed = free + 8 * MS + rank * jitter
            found.append(labelled.Work(rank, step, "", free - 10_000, free, computed))
            end = max(begun) + MS // 3
            found.append(labelled.Work(rank, step, "ncclAllReduce", start - 20_000, start, end))
        free = max(begun) + MS // 2
    return found


@pytest.mark.slow
def test_a_host_that_waits_unrecorded_is_not_late_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(labelled, "job", _late_host)
    labelled.write_nsys(labelled.nsys_rows(), tmp_path)
    with advisor.load(tmp_path) as run:
        (finding, *_) = run.report.findings
        assert (finding.rule, finding.ranks) == ("straggler-rank", [labelled.LATE_RANK])
        late = f"SELECT reason FROM lateness WHERE rank = {labelled.LATE_RANK}"
        assert {reason for (reason,) in run.store.con.execute(late).fetchall()} == {"late-launch"}


@pytest.mark.parametrize(("gathered_until", "found"), [(50, [(20, 35)]), (35, []), (36, [])])
def test_a_loader_costs_compute_that_does_not_wait_for_the_calls_beside_it(
    gathered_until: int, found: list[tuple[int, int]]
) -> None:
    """ZeRO-1 gathers parameters from 10 ms on; its first call ends at 20, the loader at 35, and
    the next pass begins then, while calls go on. What ends with the loader it may have waited
    for."""
    spans = [[0, 10], [10, 20], [20, gathered_until], [36, 90], [99, 100]]
    start, end = np.array(spans).T * MS
    kind = np.array([0, 1, 1, 0, 0])
    launch = np.array([0, 0, 0, 36, 99]) * MS - 1000
    none = np.zeros_like(start)
    line = Timeline(0, True, kind, start, end, kind + 7, start, launch, none)
    activity = HostActivity(
        np.array([[name for name, _ in KINDS].index("data-loading")]).ravel(),
        none[:1],
        np.array(["enumerate(DataLoader)"], dtype=object),
        np.array([5 * MS]),
        np.array([35 * MS]),
        none[:1],
        Intervals.empty(),
    )
    own = loading_beside_calls(line, Occupancy.of(line), activity)
    assert [(a // MS, b // MS) for a, b in zip(own.start, own.end, strict=True)] == found
