"""Why a rank is late: more operators, or the same ones that take longer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from advisor.metrics.collectives.call import Call
from advisor.metrics.host.overlap import Beside
from advisor.metrics.lateness.blame import Arrivals
from advisor.metrics.lateness.reasons import _slow_launches, idle_at_begin, reason_of
from advisor.metrics.lateness.work import Compared
from advisor.metrics.steps.annotated import Step, Steps
from advisor.metrics.timeline.breakdown import Occupancy
from advisor.metrics.timeline.intervals import Intervals
from advisor.metrics.timeline.timeline import COMM, COMPUTE, MEMORY, Timeline

_MS = 1_000_000
_STRETCHES = 5


_STEPS = Steps(tuple(
    Step(n, n * 1000 * _MS, (n + 1) * 1000 * _MS, None, None, complete=True, source="profiler")
    for n in range(_STRETCHES)
))  # fmt: skip


def _line(rank: int, operators: int, each_ms: int) -> Timeline:
    """A rank that computes in five stretches of a second."""
    begins = [s * 1000 + n * each_ms for s in range(_STRETCHES) for n in range(operators)]
    start = np.array(begins, dtype=np.int64) * _MS
    none = np.full(len(start), -1, dtype=np.int64)
    return Timeline(
        rank=rank,
        on_device=False,
        kind=np.full(len(start), COMPUTE),
        start=start,
        end=start + each_ms * _MS,
        stream=none,
        event_id=np.arange(len(start)),
        launch=none,
        thread=none,
    )


def _reason_on_devices(
    arrivals: Arrivals,
    lines: dict[int, Timeline],
    paces: dict[int, float],
    compared: Compared | None = None,
    beside: dict[int, Beside] | None = None,
) -> str:
    """Why rank 1 costs its peer 80 ms in each of five steps of a second."""
    found = reason_of(
        1,
        [arrivals],
        lines,
        {rank: Occupancy.of(line) for rank, line in lines.items()},
        dict.fromkeys(lines, _STEPS),
        dict.fromkeys(lines, Intervals.empty()),
        dict.fromkeys(lines, Intervals.empty()),
        paces,
        None if compared is None else lambda rank, peers, needed: compared,
        systematic=True,
        cost_ns=80 * _MS,
        beside=beside,
    )
    assert found is not None
    return found.name


@pytest.mark.parametrize(
    ("operators", "each_ms", "compared", "reason"),
    [
        (40, 5, Compared(None, None), "more-work"),
        (20, 9, Compared(1.0, None), "slow-compute"),
        (21, 9, Compared(1.0, None), "slow-compute"),  # one more operator explains no 80 %
        (30, 6, Compared(None, None), "more-work"),
        (20, 9, Compared(None, None), "longer-compute"),  # no shapes: cannot tell
        (20, 9, Compared(1.8, 1.0), "more-work"),
        (20, 9, Compared(1.1, None), "slow-compute"),  # a tenth more work explains no 80 %
        (20, 9, Compared(1.1, 1.0), "longer-compute"),  # nor does a device as quick as the others
        (20, 9, Compared(1.0, 1.0, mean_pace=1.8), "slow-compute"),  # some calls are stopped long
        (20, 9, Compared(1.0, 1.0, mean_pace=1.1), "longer-compute"),  # too short to explain 80 %
    ],
)
def test_more_work_or_slower(operators: int, each_ms: int, compared: Compared, reason: str) -> None:
    lines = {0: _line(0, 20, 5), 1: _line(1, operators, each_ms)}
    begin = np.repeat(np.arange(_STRETCHES)[:, None] * 1000 * _MS, 2, axis=1)
    spent = np.array([100, operators * each_ms]) * _MS
    excess = np.tile(np.array([0, spent[1] - spent[0]]), (_STRETCHES, 1))
    item = Arrivals(
        group=None,
        ranks=(0, 1),
        columns=({},) * _STRETCHES,
        arrival=begin + spent,
        begin=begin,
        lateness=excess,
        excess=excess,
        segment=np.arange(_STRETCHES),
    )
    occupancy = {rank: Occupancy.of(line) for rank, line in lines.items()}
    nothing = {rank: Intervals.of(np.empty(0, np.int64), np.empty(0, np.int64)) for rank in lines}
    steps = dict.fromkeys(lines, _STEPS)
    found = reason_of(
        1, [item], lines, occupancy, steps, nothing, nothing, {},
        lambda rank, peers, needed: compared, systematic=False,
    )  # fmt: skip
    assert found is not None
    assert found.name == reason


@pytest.mark.parametrize(
    ("systematic", "reason"), [(False, "slow-transfer-before"), (True, "slow-compute")]
)
def test_what_a_transfer_left_behind_hides_no_excess_that_comes_again_and_again(
    systematic: bool, reason: str
) -> None:
    """Rank 1 is late by a second in every stretch: 80 ms by its own compute, the rest inherited."""
    lines = {0: _line(0, 20, 5), 1: _line(1, 20, 9)}
    begin = np.repeat(np.arange(_STRETCHES)[:, None] * 1000 * _MS, 2, axis=1)
    spent = np.array([100, 180]) * _MS
    excess = np.tile(np.array([0, 80]) * _MS, (_STRETCHES, 1))
    found = reason_of(
        1,
        [Arrivals(None, (0, 1), ({},) * _STRETCHES, begin + spent, begin,
                  np.tile(np.array([0, 1000]) * _MS, (_STRETCHES, 1)), excess,
                  np.arange(_STRETCHES))],
        lines,
        {rank: Occupancy.of(line) for rank, line in lines.items()},
        {rank: Steps(()) for rank in lines},
        dict.fromkeys(lines, Intervals.empty()),
        dict.fromkeys(lines, Intervals.empty()),
        {}, lambda rank, peers, needed: Compared(1.0, None), systematic=systematic,
    )  # fmt: skip
    assert found is not None
    assert found.name == reason
    assert found.evidence["inherited_ns"] == _STRETCHES * 920 * _MS


def test_operators_inside_a_data_loader_load() -> None:
    """Rank 1 augments its images by operators, in the loader, before the same work as rank 0's."""
    lines = {0: _line(0, 20, 5), 1: _line(1, 36, 5)}
    begin = np.repeat(np.arange(_STRETCHES)[:, None] * 1000 * _MS, 2, axis=1)
    spent = np.array([100, 180]) * _MS
    excess = np.tile(np.array([0, 80]) * _MS, (_STRETCHES, 1))
    loads = np.arange(_STRETCHES) * 1000 * _MS
    found = reason_of(
        1,
        [Arrivals(None, (0, 1), ({},) * _STRETCHES, begin + spent, begin, excess, excess,
                  np.arange(_STRETCHES))],
        lines,
        {rank: Occupancy.of(line) for rank, line in lines.items()},
        {rank: Steps(()) for rank in lines},
        dict.fromkeys(lines, Intervals.empty()),
        {0: Intervals.empty(), 1: Intervals.of(loads, loads + 80 * _MS)},
        {}, None, systematic=True,
    )  # fmt: skip
    assert found is not None
    assert found.name == "data-loading"
    assert found.evidence["idle_excess_ns"] == _STRETCHES * 80 * _MS


@pytest.mark.parametrize(("idles_ms", "own"), [([40] * 5, True), ([90, 2, 1, 100, 7], False)])
def test_what_idles_as_long_at_the_start_of_every_step_does_so_by_itself(
    idles_ms: list[int], own: bool
) -> None:
    """No loader was recorded: a host whose core is taken at times has no floor."""
    line = _line(1, 20, 5)
    late = np.repeat(np.array(idles_ms), 20) * _MS
    lines = {0: _line(0, 20, 5), 1: replace(line, start=line.start + late, end=line.end + late)}
    begin = np.repeat(np.arange(_STRETCHES)[:, None] * 1000 * _MS, 2, axis=1)
    excess = np.stack([np.zeros(_STRETCHES, dtype=np.int64), np.array(idles_ms) * _MS], axis=1)
    occupancy = {rank: Occupancy.of(line) for rank, line in lines.items()}
    steps = dict.fromkeys(lines, _STEPS)
    found = reason_of(
        1,
        [Arrivals(None, (0, 1), ({},) * _STRETCHES, begin + 100 * _MS + excess, begin, excess,
                  excess, np.arange(_STRETCHES))],
        lines,
        occupancy,
        steps,
        {rank: idle_at_begin(lines[rank], occupancy[rank].busy, steps[rank]) for rank in lines},
        dict.fromkeys(lines, Intervals.empty()),
        {}, None, systematic=True,
    )  # fmt: skip
    assert found is not None
    assert found.name == "data-loading"
    chance = found.evidence["cause_p_value"]
    assert isinstance(chance, float)
    assert (chance < 0.01) is own


def _rank_1_comes_late() -> Arrivals:
    """One call in each stretch, to which rank 1 comes 80 ms after rank 0."""
    begin = np.repeat(np.arange(_STRETCHES)[:, None] * 1000 * _MS, 2, axis=1)
    excess = np.tile(np.array([0, 80]) * _MS, (_STRETCHES, 1))
    call = Call(rank=0, op="all_reduce", start=0, end=1, event_id=0)
    return Arrivals(None, (0, 1), ({0: call, 1: call},) * _STRETCHES,
                    begin + np.array([100, 180]) * _MS, begin, excess, excess,
                    np.arange(_STRETCHES))  # fmt: skip


@pytest.mark.parametrize(
    ("copies_ms", "reason"), [((5, 85), "slow-copies"), ((85, 85), "longer-compute")]
)
def test_a_device_that_copies_longer_before_it_computes(
    copies_ms: tuple[int, int], reason: str
) -> None:
    """Both ranks copy their batch before they compute; the rest of 80 ms is compute."""
    none = np.full(2 * _STRETCHES, -1, dtype=np.int64)
    lines = {}
    for rank, (copies, until) in enumerate(zip(copies_ms, (105, 185), strict=True)):
        steps = np.repeat(np.arange(_STRETCHES) * 1000, 2)
        lines[rank] = Timeline(
            rank=rank, on_device=True, kind=np.tile([MEMORY, COMPUTE], _STRETCHES),
            start=(steps + np.tile([0, copies], _STRETCHES)) * _MS,
            end=(steps + np.tile([copies, until], _STRETCHES)) * _MS,
            stream=none, event_id=np.arange(2 * _STRETCHES), launch=none, thread=none,
        )  # fmt: skip
    assert _reason_on_devices(_rank_1_comes_late(), lines, {}) == reason


@pytest.mark.parametrize(
    ("late_ms", "reason"),
    [(80, "slow-transfer-before"), (0, "longer-compute")],
)
def test_a_device_that_computes_no_longer_over_its_steps_was_kept_waiting(
    late_ms: int, reason: str
) -> None:
    """Rank 1 computes 80 ms more before one call; where the step's rest has less, by as much."""
    none = np.full(2 * _STRETCHES, -1, dtype=np.int64)
    lines = {}
    for rank, lengths in ((0, (100, 280)), (1, (180, 280 - late_ms))):
        start = np.array([s * 1000 + at for s in range(_STRETCHES) for at in (0, 500)]) * _MS
        end = start + np.tile(np.array(lengths), _STRETCHES) * _MS
        lines[rank] = Timeline(
            rank=rank, on_device=True, kind=np.full(len(start), COMPUTE), start=start, end=end,
            stream=none, event_id=np.arange(len(start)), launch=none, thread=none,
        )  # fmt: skip
    assert _reason_on_devices(_rank_1_comes_late(), lines, {}) == reason


@pytest.mark.parametrize(
    ("copies_ms", "reason"), [(35, "slow-copies"), (15, "slow-transfer-before")]
)
def test_a_device_that_copied_before_computes_what_its_peers_have_behind_them(
    copies_ms: int, reason: str
) -> None:
    """As above, and of the 80 ms before the call some are copies, which its peer has not."""
    lines = {}
    for rank, (copies, lengths) in enumerate(((0, (100, 280)), (copies_ms, (180, 200)))):
        start = np.array([s * 1000 + at for s in range(_STRETCHES) for at in (0, copies, 500)])
        end = np.array([s * 1000 + at for s in range(_STRETCHES)
                        for at in (copies, lengths[0], 500 + lengths[1] + copies)])  # fmt: skip
        lines[rank] = Timeline(
            rank=rank, on_device=True, kind=np.tile([MEMORY, COMPUTE, COMPUTE], _STRETCHES),
            start=start * _MS, end=end * _MS, stream=start * 0,
            event_id=np.arange(len(start)), launch=start * 0 - 1, thread=start * 0,
        )  # fmt: skip
    assert _reason_on_devices(_rank_1_comes_late(), lines, {}) == reason


@pytest.mark.parametrize(
    ("share", "reason"), [(80 / 180, "slow-transfer-before"), (0.1, "longer-compute")]
)
def test_what_transfers_slow_a_device_by_is_no_work_of_its_own(share: float, reason: str) -> None:
    """Rank 1 computes 80 ms longer before each call, all of it beside what it receives over a slow
    link: as long as that costs the compute, or far longer."""
    none = np.full(_STRETCHES, -1, dtype=np.int64)
    start = np.arange(_STRETCHES) * 1000 * _MS
    lines = {
        rank: Timeline(
            rank=rank, on_device=True, kind=np.full(_STRETCHES, COMPUTE), start=start,
            end=start + spent * _MS, stream=none, event_id=np.arange(_STRETCHES), launch=none,
            thread=none,
        )
        for rank, spent in enumerate((100, 180))
    }  # fmt: skip
    beside = {1: Beside(Intervals.of(start, lines[1].end), share)}
    assert _reason_on_devices(_rank_1_comes_late(), lines, {}, beside=beside) == reason


@pytest.mark.parametrize(
    ("pace_ms", "reason"), [(1000, "late-launch"), (600, "slow-transfer-before")]
)
def test_a_device_that_idled_before_computes_what_its_peers_have_behind_them(
    pace_ms: int, reason: str
) -> None:
    """Rank 1 computes 80 ms more before one call, less elsewhere, and idles 80 ms more per step."""
    lines = {}
    for rank, lengths in ((0, (100, 280)), (1, (180, 120))):
        start = np.array([s * 1000 + at for s in range(_STRETCHES) for at in (0, 500)]) * _MS
        lines[rank] = Timeline(
            rank=rank, on_device=True, kind=np.full(len(start), COMPUTE), start=start,
            end=start + np.tile(np.array(lengths), _STRETCHES) * _MS, stream=start * 0,
            event_id=np.arange(len(start)), launch=start - _MS, thread=start * 0,
        )  # fmt: skip
    paces = {0: 600.0 * _MS, 1: pace_ms * float(_MS)}
    assert _reason_on_devices(_rank_1_comes_late(), lines, paces) == reason


@pytest.mark.parametrize(
    ("pace_ms", "asks_late", "reason"),
    [
        (1000, True, "late-launch"),
        (600, True, "slow-transfer-before"),
        (1000, False, "slow-transfer-before"),
    ],
)
def test_a_device_that_transfers_while_its_host_launches_nothing_computes_later(
    pace_ms: int, asks_late: bool, reason: str
) -> None:
    """As above, and its device never idles: gathers of the step before fill its host's sleep."""
    lines = {}
    for rank, lengths in ((0, (100, 280)), (1, (180, 200))):
        begin = np.repeat(np.arange(_STRETCHES) * 1000, 4)
        start = (begin + np.tile([0, lengths[0], 500, 500 + lengths[1]], _STRETCHES)) * _MS
        end = np.append(start[1:], _STRETCHES * 1000 * _MS)
        lines[rank] = Timeline(
            rank=rank, on_device=True, kind=np.tile([COMPUTE, COMM], 2 * _STRETCHES), start=start,
            end=end, stream=start * 0, event_id=np.arange(len(start)), thread=start * 0,
            launch=start - _MS if rank and asks_late else np.maximum(start - 900 * _MS, 0),
        )  # fmt: skip
    paces = {0: 600.0 * _MS, 1: pace_ms * float(_MS)}
    assert _reason_on_devices(_rank_1_comes_late(), lines, paces) == reason


@pytest.mark.parametrize(("hosts", "reason"), [("abbb", "late-launch"), ("aaaa", "all-hosts-late")])
def test_a_host_is_held_against_other_machines(hosts: str, reason: str) -> None:
    """GIVEN a machine whose hosts are all slow, and a mesh (HSDP) in which a rank meets three of
    its own and one elsewhere THEN it launches late; on one machine most hosts do."""
    lines = {}
    for rank in range(4):
        start = (np.arange(_STRETCHES) * 1000 + (80 if rank else 0)) * _MS
        lines[rank] = Timeline(
            rank=rank, on_device=True, kind=np.full(len(start), COMPUTE), start=start,
            end=start + 100 * _MS, stream=start * 0, event_id=np.arange(len(start)),
            launch=start - 5, thread=start * 0,
        )  # fmt: skip
    across = _rank_1_comes_late()
    alike = np.zeros((_STRETCHES, 3), dtype=np.int64)
    begin = np.repeat(across.begin[:, 1:], 3, axis=1)
    inside = across._replace(
        ranks=(1, 2, 3), begin=begin, arrival=begin, lateness=alike, excess=alike
    )
    found = reason_of(
        1,
        [across, inside],
        lines,
        {rank: Occupancy.of(line) for rank, line in lines.items()},
        dict.fromkeys(lines, _STEPS),
        dict.fromkeys(lines, Intervals.empty()),
        dict.fromkeys(lines, Intervals.empty()),
        {rank: (1000.0 if rank else 600.0) * _MS for rank in lines},
        None,
        systematic=True,
        hosts=dict(enumerate(hosts)),
    )
    assert found is not None
    assert found.name == reason


@pytest.mark.parametrize(
    ("pace_ms", "reason"), [(1000, "late-launch"), (600, "slow-transfer-before")]
)
def test_a_host_that_asks_late_beside_compute_is_what_its_calls_wait_for(
    pace_ms: int, reason: str
) -> None:
    """GIVEN a device that computes between the last call and this one because the host asks for
    this one late THEN the host is late, if it takes longer for a step than its peers'."""
    lines = {}
    for rank in (0, 1):
        start = np.arange(_STRETCHES) * 1000 * _MS
        lines[rank] = Timeline(
            rank=rank, on_device=True, kind=np.full(len(start), COMPUTE), start=start,
            end=start + 400 * _MS, stream=start * 0, event_id=np.arange(len(start)),
            launch=start - _MS, thread=start * 0,
        )  # fmt: skip
    begin = np.repeat(np.arange(_STRETCHES)[:, None] * 1000 * _MS, 2, axis=1)
    arrival = begin + np.array([100, 180]) * _MS
    excess = np.tile(np.array([0, 80]) * _MS, (_STRETCHES, 1))
    calls = [
        {rank: Call(rank, "all_reduce", int(at), int(at) + _MS, 0, enqueue=int(at) - 5)
         for rank, at in enumerate(row)}
        for row in arrival
    ]  # fmt: skip
    for column in calls[: _STRETCHES // 2 + 1]:  # of the others the device was not ready either
        column[1].enqueue = column[1].start - 50 * _MS
    arrivals = Arrivals(None, (0, 1), tuple(calls), arrival, begin, excess, excess,
                        np.arange(_STRETCHES))  # fmt: skip
    paces = {0: 600.0 * _MS, 1: pace_ms * float(_MS)}
    assert _reason_on_devices(arrivals, lines, paces) == reason


@pytest.mark.parametrize(
    ("kernels", "compared", "reason", "on_device"),
    [
        (10, Compared(1.0, 1.3), "slow-compute", True),
        (10, Compared(None, None), "longer-compute", True),
        (13, Compared(None, None), "more-work", True),
        (10, Compared(1.0, 1.0), "longer-compute", False),
        (13, Compared(None, None), "more-work", False),
    ],
)
def test_kernels_of_a_stretch_that_peers_ran_in_another_are_no_more_work(
    kernels: int, compared: Compared, reason: str, on_device: bool
) -> None:
    """GIVEN a rank that still runs the kernels which its peers have behind them when they last
    left a call THEN what it runs per step tells whether it has more to do."""
    none = np.full(_STRETCHES * 20, -1, dtype=np.int64)
    lines = {}
    for rank, count, each_ms in ((0, 10, 30), (1, kernels, 39 if kernels == 10 else 30)):
        start = np.array([s * 1000 + n * each_ms for s in range(_STRETCHES) for n in range(count)])
        lines[rank] = Timeline(
            rank=rank, on_device=on_device, kind=np.full(len(start), COMPUTE), start=start * _MS,
            end=(start + each_ms) * _MS, stream=none[: len(start)], event_id=np.arange(len(start)),
            launch=none[: len(start)], thread=none[: len(start)],
        )  # fmt: skip
    # The call before ends at 270 ms: one kernel is left to the peer, a third of them to rank 1.
    begin = np.repeat((np.arange(_STRETCHES)[:, None] * 1000 + 270) * _MS, 2, axis=1)
    excess = np.tile(np.array([0, 90]) * _MS, (_STRETCHES, 1))
    call = Call(rank=0, op="all_reduce", start=0, end=1, event_id=0)
    arrivals = Arrivals(None, (0, 1), ({0: call, 1: call},) * _STRETCHES,
                        begin + np.array([30, 120]) * _MS, begin, excess, excess,
                        np.arange(_STRETCHES))  # fmt: skip
    assert _reason_on_devices(arrivals, lines, {}, compared) == reason


@pytest.mark.parametrize(
    ("launches", "slower", "found"),
    [
        ((4676, 5646, 4638, 4586), 0.21, True),
        ((4676, 5646, 4638, 4586), 0.9, False),  # it does something else as well
        ((4676, 4740, 4638, 4586), 0.01, False),  # its peers differ by as much
        ((5600, 5646, 4638, 4586), 0.21, False),
        ((4676, 5646), 0.21, False),  # one peer: which of them is unusual
        ((4676, 5646, 4638, 4586), -0.1, False),
    ],
)
def test_a_host_is_slow_where_its_launches_take_as_much_longer(
    launches: tuple[float, ...], slower: float, found: bool
) -> None:
    evidence = _slow_launches(1, [r for r in range(len(launches)) if r != 1],
                              dict(enumerate(launches)), slower)  # fmt: skip
    assert evidence == ({"launch_ns": 5646, "usual_launch_ns": 4638} if found else {})
